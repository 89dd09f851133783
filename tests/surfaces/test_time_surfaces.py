"""Time travel, skills and imports told through Python, the command line and HTTP with one outcome; and their grants."""

import asyncio
import contextlib
import io
import json

import pytest

import cairn
from cairn.operations.keeping import Keeping
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here, serving_tokens
from tests.surfaces.test_scenario import ENV

pytestmark = pytest.mark.xdist_group("memories-http")

FERRY = "The ferry leaves at noon."
SKILL = """---
name: seed-runs
description: Seeds runs before tests
---

## When to use

Before the first test of a day.

## Steps

Ask for the network, then seed.
"""
EXPORT = json.dumps({"results": [{"id": "1", "memory": "Alice keeps bees in Porto.", "user_id": "alice"}]})


def as_data(method, answer):
    """What an operation answered, as surfaces tell it."""
    return method.operation.told(None, answer, {})


def edited(root):
    """Change the ferry's hour by hand."""
    note = next(path for path in root.rglob("memory-*.md") if "ferry" in path.read_text())
    note.write_text(note.read_text().replace("at noon", "at midnight"))
    return note


def outcome(told, root):
    assert told["mark"]["label"] == "before"
    assert told["marks"] == [told["mark"]]
    assert [(one["action"], one["cause"]) for one in told["log"]] == [("changed", "edit"), ("added", "write")]
    assert [one["words"] for one in told["log"]] == [
        f"Content: {FERRY} -> The ferry leaves at midnight.",
        FERRY,
    ]
    assert [one["action"] for one in told["diff"]] == ["changed"]
    assert "-The ferry leaves at noon." in told["diff"][0]["diff"]
    assert [one["action"] for one in told["plan"]] == ["write"]
    assert told["planned"] == "at midnight"
    assert told["restored"] == told["plan"]
    assert told["after"] == []
    assert told["undone"] != []
    assert told["end"] == "at midnight"
    assert [len(told["skill"][name]) for name in ("added", "changed", "refused")] == [1, 0, 0]
    assert [len(told["scan"][name]) for name in ("added", "unchanged", "refused")] == [1, 0, 0]
    assert [len(told["import"][name]) for name in ("kept", "known", "refused")] == [1, 0, 0]
    assert [len(told["again"][name]) for name in ("kept", "known", "refused")] == [0, 1, 0]


def hour(note):
    return "at noon" if "at noon" in note.read_text() else "at midnight"


def own_skill(root):
    """A skill that somebody put into the root."""
    place = root / "default_app" / "default_project" / "shared" / "skills" / "tides" / "SKILL.md"
    place.parent.mkdir(parents=True)
    place.write_text(SKILL.replace("seed-runs", "tides").replace("Seeds runs", "Reads tides"))


def through_python(root):
    async def tell():
        async with cairn.open(root, embedding__provider="none") as memory:
            made = await memory.remember(FERRY)
            key = made.memory["id"]
            told = {"mark": await memory.checkpoint("before")}
            note = edited(root)
            told["marks"] = await memory.checkpoints()
            told["log"] = await memory.log(key)
            told["diff"] = await memory.diff(told["mark"]["id"])
            told["plan"] = await memory.restore(told["mark"]["id"], dry_run=True)
            told["planned"] = hour(note)
            told["restored"] = await memory.restore(told["mark"]["id"])
            told["after"] = await memory.diff(told["mark"]["id"])
            last = (await memory.log(key, limit=1))[0]["id"]
            told["undone"] = await memory.restore(last)
            told["end"] = hour(note)
            told["skill"] = as_data(
                Keeping.scan_skills, await memory.memories.import_skill("seed-runs/SKILL.md", text=SKILL)
            )
            own_skill(root)
            told["scan"] = as_data(Keeping.scan_skills, await memory.memories.scan_skills())
            told["import"] = as_data(Keeping.import_from, await memory.memories.import_from("mem0", EXPORT))
            told["again"] = as_data(Keeping.import_from, await memory.memories.import_from("mem0", EXPORT))
            return told

    return asyncio.run(tell())


def through_cli(root):
    def run(*words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["--root", str(root), "--json", *words])
        return json.loads(out.getvalue())

    key = run("remember", FERRY)["memory"]["id"]
    told = {"mark": run("log", "--mark", "before")}
    mark = told["mark"]["id"]
    note = edited(root)
    told |= {"marks": run("log", "--checkpoints"), "log": run("log", key), "diff": run("diff", mark)}
    told["plan"] = run("restore", mark, "--dry-run")
    told["planned"] = hour(note)
    told |= {"restored": run("restore", mark), "after": run("diff", mark)}
    told["undone"] = run("restore", run("log", key, "--limit", "1")[0]["id"])
    told["end"] = hour(note)
    file = root.parent / "seed-runs" / "SKILL.md"
    file.parent.mkdir()
    file.write_text(SKILL)
    told["skill"] = run("skills", "import", str(file))
    own_skill(root)
    told["scan"] = run("skills", "scan")
    export = root.parent / "export.json"
    export.write_text(EXPORT)
    told["import"] = run("memories", "import", "--from", "mem0", str(export))
    told["again"] = run("memories", "import", "--from", "mem0", str(export))
    return told


def through_http(root):
    with serving_here(root, env=ENV) as server:

        def call(method, path, body=None):
            status, answer = server.call(method, f"/api/v1/{path}", body)
            assert status == 200, answer
            return answer["data"]

        key = call("POST", "memories", {"content": FERRY})["memory"]["id"]
        told = {"mark": call("POST", "checkpoints", {"label": "before"})}
        mark = told["mark"]["id"]
        note = edited(root)
        told["marks"] = call("GET", "checkpoints")["checkpoints"]
        told["log"] = call("GET", f"log?id={key}")["changes"]
        told["diff"] = call("GET", f"diff?target={mark}")["differences"]
        plan = call("POST", "restore", {"target": mark, "dry_run": True})
        told |= {"plan": plan["entries"], "planned": hour(note)}
        told["restored"] = call("POST", "restore", {"target": mark})["entries"]
        told["after"] = call("GET", f"diff?target={mark}")["differences"]
        last = call("GET", f"log?id={key}&limit=1")["changes"][0]["id"]
        told["undone"] = call("POST", "restore", {"target": last})["entries"]
        told["end"] = hour(note)
        told["skill"] = call("POST", "skills/import", {"name": "seed-runs", "text": SKILL})
        own_skill(root)
        told["scan"] = call("POST", "skills/scan", {})
        told["import"] = call("POST", "memories/import", {"source": "mem0", "text": EXPORT})
        told["again"] = call("POST", "memories/import", {"source": "mem0", "text": EXPORT})
        return told


@pytest.mark.parametrize("tell", [through_python, through_cli, through_http])
def test_coming_back_skills_and_imports_end_the_same_way(tell, tmp_path, monkeypatch):
    """Mark, edit by hand, compare, restore and undo; take in a skill and an export: one outcome everywhere."""
    monkeypatch.setenv("CAIRN_EMBEDDING__PROVIDER", "none")
    root = tmp_path / "root"
    outcome(tell(root), root)


# ---------------------------------------------------------------- HTTP alone


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A server with tokens, and a folder of skills it was told about."""
    base = tmp_path_factory.mktemp("time")
    for place in ("repos/skills/tides", "outside/skills/secret"):
        (base / place).mkdir(parents=True)
        (base / place / "SKILL.md").write_text(SKILL.replace("seed-runs", place.rpartition("/")[2]))
    (base / "repos" / "link").symlink_to(base / "outside")
    with serving_tokens(base, ENV) as call:
        call.base = base
        call("all", "POST", "memories", {"content": FERRY})
        yield call


def test_a_note_that_was_deleted_before_a_command_began_is_recorded_and_comes_back(tmp_path):
    """Each command is a process of its own: it looks at the history of its space for files that are gone."""

    def run(*words):
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            main(["--root", str(tmp_path / "root"), *words])
        return out.getvalue()

    run("remember", FERRY)
    mark = run("log", "--mark", "all there").split()[0]
    (note,) = (tmp_path / "root").rglob("memory-*.md")
    note.unlink()
    assert run("log", "--limit", "1").split()[2] == "removed"
    assert "-The ferry leaves at noon." in run("diff", mark)
    told = run("restore", mark)
    assert told.startswith("Restored 1 entry.")
    assert FERRY in told
    assert FERRY in note.read_text()
    assert FERRY in run("memories", "list")


def test_other_line_ends_are_no_change_of_words(tmp_path, capsys):
    """An editor of another system writes a note anew; nothing says that its words were forgotten."""
    root = ["--root", str(tmp_path / "root")]
    assert main([*root, "remember", FERRY]) == 0
    (note,) = (tmp_path / "root").rglob("memory-*.md")
    note.write_bytes(note.read_bytes().replace(b"\n", b"\r\n"))
    capsys.readouterr()
    assert main([*root, "log"]) == 0
    first, second, *_ = capsys.readouterr().out.splitlines()
    assert " changed " in first
    assert second.strip() == "the same words: only stamps or line ends changed"


def test_a_former_text_that_is_not_as_recorded_is_named_and_never_brought_back(tmp_path, capsys):
    """A changed line of the history, here in an archive that was brought in, writes nothing into a note; sound ones come back."""

    def run(*words, root="root"):
        code = main(["--root", str(tmp_path / root), *words])
        told = capsys.readouterr()
        return code, told.out + told.err

    run("remember", FERRY)
    run("remember", "The lighthouse is closed in May.")
    run("log", "--mark", "before")
    for note in (tmp_path / "root").rglob("memory-*.md"):
        note.write_text(note.read_text().replace("at noon", "at midnight").replace("in May", "in June"))
    assert run("log", "--limit", "1")[1].split()[2] == "changed"
    (texts,) = (tmp_path / "root").rglob("history/texts.jsonl")
    texts.write_text(texts.read_text().replace("at noon", "at dawn"))
    run("export", str(tmp_path / "all.tar.gz"))
    assert run("import", str(tmp_path / "all.tar.gz"), root="other")[0] == 0

    for root in ("root", "other"):
        assert (
            "history/texts.jsonl: 1 former text not as recorded, so not brought back"
            in run("doctor", root=root)[1]
        )
        code, told = run("restore", "before", root=root)
        assert code == 0
        assert "is not the one that was recorded" in told
        kept = "".join(note.read_text() for note in (tmp_path / root).rglob("memory-*.md"))
        assert ("in May" in kept, "at midnight" in kept, "at dawn" in kept) == (True, True, False)
    changes = [line.split() for line in run("log")[1].splitlines() if line.startswith("ent-")]
    outcomes = [run("undo", change[0]) for change in changes if change[2] == "changed"]
    assert sum("is not the one that was recorded" in told for _, told in outcomes) == 1
    assert "at dawn" not in "".join(note.read_text() for note in (tmp_path / "root").rglob("memory-*.md"))


def test_the_new_routes_hold_to_the_grants(world):
    """P7: a token for owners, for another app or for reading does not look back, come back or take in."""
    assert world("all", "POST", "checkpoints", {"label": "x"})[0] == 200
    reads = [("GET", "log", None), ("GET", "checkpoints", None), ("GET", "diff?target=chk-000001", None)]
    tells = [("POST", "restore", {"target": "chk-000001", "dry_run": True})]
    writes = [
        ("POST", "checkpoints", {"label": "y"}),
        ("POST", "restore", {"target": "chk-000001"}),
        ("POST", "skills/scan", {}),
        ("POST", "skills/import", {"name": "x", "text": SKILL}),
        ("POST", "memories/import", {"source": "claude", "text": "- Ann sails.", "owner": "alice"}),
    ]
    refused = [(who, *one) for who in ("alice", "acme") for one in (*reads, *tells, *writes)]
    for who, method, path, body in [*refused, *(("reader", *one) for one in writes)]:
        status, error = world(who, method, path, body)
        assert (status, error["code"]) == (403, "FORBIDDEN"), (who, method, path, error)
    for method, path, body in (*reads, *tells):
        assert world("reader", method, path, body)[0] == 200, path
    assert len(world("all", "GET", "checkpoints")[1]["checkpoints"]) == 1
    assert world("acme", "GET", "log?app_id=acme")[1]["changes"] == []


def test_nonsense_is_refused_by_name(world):
    """Each field is known and well-formed, or the answer names it."""
    for method, path, body, status, part in [
        ("GET", "log?limit=0", None, 422, "limit"),
        ("GET", "log?limit=10001", None, 422, "limit"),
        ("GET", "log?since=2026-13-45", None, 422, "since"),
        ("GET", "log?id=", None, 422, "id"),
        ("GET", "diff", None, 422, "target"),
        ("GET", "diff?target=2026-13-45", None, 422, "2026-13-45"),
        ("GET", "diff?target=chk-999999", None, 404, "chk-999999"),
        ("GET", "diff?target=0001-01-01T00:00:00%2B14:00", None, 422, "0001-01-01"),
        ("POST", "restore", {"target": "yesterday"}, 422, "yesterday"),
        ("POST", "restore", {"target": "ent-999999"}, 404, "ent-999999"),
        ("POST", "restore", {"target": ""}, 422, "target"),
        ("POST", "restore", {"target": "chk-000001", "force": True}, 422, "force"),
        ("POST", "checkpoints", {"label": "x" * 501}, 422, "label"),
        ("POST", "memories/import", {"source": "nope", "text": "x"}, 422, "source"),
        ("POST", "memories/import", {"source": "mem0", "text": "{"}, 422, "JSON"),
        ("POST", "memories/import", {"source": "mem0", "text": "[" * 100_000}, 422, "JSON"),
        ("POST", "memories/import", {"source": "claude", "text": "- x", "owner": "../x"}, 422, "owner"),
        ("POST", "skills/import", {"name": "../x", "text": SKILL}, 422, "name"),
        ("POST", "skills/import", {"name": "x", "text": ""}, 422, "text"),
        ("POST", "skills/import", {"name": "x", "text": "x" * (1024 * 1024 + 1)}, 422, "text"),
        ("POST", "skills/scan", {"folders": ["skills"]}, 422, "absolute"),
    ]:
        got, error = world("all", method, path, body)
        assert got == status, (path, error)
        assert part in error["message"], (path, error)


def test_skills_are_scanned_only_below_the_roots(world):
    """A server reads the skill folders it was told about; dots and links do not lead out."""
    base = world.base
    for folder in (base / "outside", base / "repos" / "link", f"{base}/repos/../outside", "/etc"):
        status, error = world("all", "POST", "skills/scan", {"folders": [str(folder)]})
        assert (status, error["code"]) == (403, "FORBIDDEN"), folder
    assert world("all", "POST", "skills/scan", {"folders": [str(base / "repos" / "none")]})[0] == 404
    status, found = world("all", "POST", "skills/scan", {"folders": [str(base / "repos" / "skills")]})
    assert (status, len(found["added"])) == (200, 1)
    known = world("all", "GET", "skills")[1]["skills"]
    assert [row["path"].rpartition("/skills/")[2] for row in known] == ["tides/SKILL.md"]
