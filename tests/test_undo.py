"""One history: what a run wrote is taken back as a whole, and what a person did since stays."""

from __future__ import annotations

import json

import pytest

import cairn
from cairn.surfaces.cli import main
from tests.surfaces.served import serving_here
from tests.surfaces.test_scenario import ENV

OPTIONS = {"embedding__provider": "none", "strategies__enabled": False}
ALIKE = [f"The nightly backup of db{n} to the blue bucket is kept for thirty days." for n in range(3)]


@pytest.fixture
def memory(tmp_path):
    with cairn.open_blocking(tmp_path / "root", background=False, **OPTIONS) as opened:
        yield opened


def notes(memory):
    root = memory.parts.settings.root
    return {path: path.read_bytes() for path in root.rglob("memories/*.md")}


def latest(memory, kind):
    return next(run for run in memory.memories.runs()["runs"] if run["kind"] == kind)


def test_every_kind_of_run_is_taken_back_to_the_byte(memory):
    """S90, A87, A36: a correction, a consolidation, an import and an undo are runs: listed, taken back exactly, once."""
    kept = memory.remember("The boiler is in the cellar.", status="promoted").memory["id"]
    before = notes(memory)
    memory.memories.edit(kept, content="The boiler is in the attic.")
    memory.memories.supersede(kept, "The boiler is gone.", reason="sold")
    corrections = [run for run in memory.memories.runs()["runs"] if run["kind"] == "correction"]
    assert [run["entries"] for run in corrections] == [2, 1], "superseding changes the old and adds the new"
    for run in corrections:
        assert memory.undo(run["run_id"]).kind == "correction"
    assert notes(memory) == before

    items = json.dumps([{"id": f"m{n}", "memory": text} for n, text in enumerate(ALIKE)])
    imported = memory.memories.import_from("mem0", items)
    assert len(imported.kept) == 3
    run = latest(memory, "import")["run_id"]
    told = memory.undo(run, dry_run=True)
    assert [one.action for one in told.entries] == ["remove"] * 3
    assert notes(memory) != before
    memory.undo(run)
    assert notes(memory) == before
    assert memory.undo(run).entries == (), "a second time changes nothing"
    assert latest(memory, "import")["undone_at"]
    again = memory.memories.import_from("mem0", items, trust=True)
    assert len(again.kept) == 3, "what was taken back may come again"

    merged = notes(memory)
    done = memory.memories.consolidate()
    assert len(done.merged) == 1
    memory.undo("consolidation")
    assert notes(memory) == merged
    memory.undo("undo")
    assert (
        len([one for one in memory.memories.list(status="promoted").memories if "db" in one["content"]]) == 1
    )
    assert latest(memory, "consolidation")["undone_at"] is None, "its undo was undone: it stands again"
    for path in merged:
        path.unlink()
    memory.undo(latest(memory, "import")["run_id"])
    assert notes(memory) == {}, "a note that a person removed does not come back empty"


def test_what_a_person_changed_since_stays_and_is_told(tmp_path, capsys):
    """Tenet 5: an entry that was edited, in a file or by a call, is kept and named; the others go back; by command."""
    root = tmp_path / "root"

    def run(*words, code=0):
        assert main(["--root", str(root), "--json", *words]) == code
        return json.loads(capsys.readouterr().out)

    ids = [run("remember", text, "--status", "promoted")["memory"]["id"] for text in ALIKE]
    run("consolidate")
    [note] = root.rglob("memories/*.md")
    note.write_text(
        note.read_text().replace("db1 to the blue", "db1 to the red", 1) + "\nA line of my own.\n"
    )
    run_id = run("runs")["runs"][0]["run_id"]
    told = run("undo", run_id)
    assert (told["kind"], told["restored"], told["kept"]) == ("consolidation", 3, 1)
    assert [one["entry"] for one in told["entries"] if one["action"] == "kept"] == [ids[1]]
    text = note.read_text()
    assert "db1 to the red" in text and text.endswith("A line of my own.\n")
    standing = {one["content"] for one in run("memories", "list", "--status", "promoted")["memories"]}
    assert {ALIKE[0], ALIKE[2]} <= standing
    again = run("undo", run_id)
    assert (again["restored"], again["kept"]) == (0, 1)
    assert run_id in {one["cause"] for one in run("log")}
    assert main(["--root", str(root), "undo", "nothing"]) == 3
    assert run_id not in capsys.readouterr().err, "only runs that stand are offered"


def test_what_was_forgotten_does_not_come_back(memory):
    """A text that was forgotten since is named as gone; the rest of the run is taken back."""
    first = memory.remember("Dana's pin is under the mat.", status="promoted").memory["id"]
    memory.memories.edit(first, content="Dana has no pin any more.")
    run = latest(memory, "correction")["run_id"]
    memory.memories.forget(words=["pin is under the mat"])
    assert {one.action for one in memory.undo(run).entries} <= {"kept", "purged"}
    assert "under the mat" not in "".join(text.decode() for text in notes(memory).values())


def test_a_sweep_is_taken_back_by_command(tmp_path, capsys):
    """S90, A65, A85: what a sweep promoted is a candidate again, to the byte; a dry run changes nothing; Python the same."""
    root = tmp_path / "root"

    def run(*words, code=0):
        assert main(["--root", str(root), "--json", *words]) == code
        return json.loads(capsys.readouterr().out)

    seen = "The export fails when the disk of the worker is full."
    kept = run("capture", "add", "error_capture", "run-7/1", seen)["verdict"]["memory"]
    assert main(["--root", str(root), "undo", "sweep"]) == 3
    assert "sweep" in capsys.readouterr().err
    [note] = root.rglob("memories/*.md")
    before = note.read_bytes()
    assert run("sweep")["entries_promoted"] == 1
    after = note.read_bytes()
    assert run("undo", "sweep", "--dry-run")["restored"] == 1 and note.read_bytes() == after
    told = run("undo", "sweep")
    assert (told["kind"], told["restored"], told["kept"]) == ("sweep", 1, 0)
    assert note.read_bytes() == before
    assert run("memories", "show", kept["id"])["status"] == "candidate"
    with cairn.open_blocking(root, background=False, **OPTIONS) as memory:
        memory.undo("undo")
        assert note.read_bytes() == after, "an undo can be undone"
        memory.undo("sweep")
        assert note.read_bytes() == before
        memory.memories.pin(kept["id"])
        memory.memories.sweep()
        assert memory.undo(latest(memory, "correction")["run_id"]).entries


def test_the_end_of_a_mission_is_taken_back_over_http(tmp_path):
    """S90, A68, A88: its memories live again, the project's copy goes, a sweep does not take the mission for over, and
    ending it again promotes again, once.
    """
    words = "Seeding needs the network."

    def listed(server, scope):
        path = f"/api/v1/memories?scope={scope}" + ("&owner=run-1" if scope == "mission" else "")
        return [row["content"] for row in server.call("GET", path)[1]["data"]["memories"]]

    with serving_here(tmp_path / "root", env=ENV) as server:
        body = {
            "content": words,
            "category": "gotcha",
            "scope": "mission",
            "owner": "run-1",
            "mode": "strict",
        }
        assert server.post("memories", body)[0] == 200
        end = ("POST", "/api/v1/missions/run-1/end", {"success": True})
        assert len(server.call(*end)[1]["data"]["promoted"]) == 1
        assert (listed(server, "mission"), listed(server, "project")) == ([], [words])
        told = server.post("undo", {"run_id": "mission"})[1]["data"]
        assert (told["kind"], told["restored"]) == ("mission", 2)
        assert (listed(server, "mission"), listed(server, "project")) == ([words], [])
        assert server.post("memories/sweep", {})[1]["data"]["entries_orphaned"] == 0
        assert listed(server, "mission") == [words]
        assert len(server.call(*end)[1]["data"]["promoted"]) == 1
        assert server.call(*end)[1]["data"]["already"]
        assert listed(server, "project") == [words]
        status, refused = server.post("undo", {"run_id": "no-such-run"})
        assert status == 404 and "no-such-run" in refused["error"]["message"]
