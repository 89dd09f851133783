"""The file model: what stands where, with which fields, ids, hashes and defaults."""

from __future__ import annotations

import hashlib
import json
import re
import shutil

import pytest

from cairn import open_blocking
from cairn.canonical import json_hash
from cairn.errors import Conflict, Invalid, Misconfigured
from cairn.project import options
from cairn.project.bundle import checked
from cairn.project.projections import with_entry
from cairn.projects import open_project
from tests.project_kit import (
    SetClock,
    event_lines,
    failures,
    git,
    make_repo,
    open_at,
    state,
    tree_bytes,
    write,
)


def test_the_canonical_set_is_there(tree, project):
    """M1, M2, M6, M18, M20: state, history, checkpoints, sources and settings below .cairn."""
    for name in ("state.json", "history/events.jsonl", "sources.json", "config.json"):
        assert (tree / ".cairn" / name).is_file(), name
    assert len(list((tree / ".cairn/history/checkpoints").glob("chk-000001-*.json"))) == 1


def test_state_and_maintenance_fields(tree, project):
    """M3, M4, M5, M33: the active state with exactly its fields, schema 2, generator 0.3.0."""
    found = state(tree)
    assert set(found) == {
        "schemaVersion",
        "generatorVersion",
        "provider",
        "generatedAt",
        "bundleHash",
        "bundle",
        "maintenance",
    }
    assert (found["schemaVersion"], found["generatorVersion"], found["provider"]) == (2, "0.3.0", "none")
    assert set(found["bundle"]) == {
        "project",
        "projectMap",
        "currentFocus",
        "gotchas",
        "nextSteps",
        "validationCommands",
    }
    assert set(found["maintenance"]) == {
        "lastRecalledAt",
        "lastRecalledEventId",
        "latestCheckpointId",
        "historyEventCount",
        "importSourceCount",
        "recallCursors",
    }
    assert set(found["maintenance"]["recallCursors"]) == {"all", "local", "imports"}


def test_event_fields_kinds_and_signals(tree, project):
    """M7, M8, M9, M37: one of two kinds, every field, the five signals, local source and reference."""
    project.record("Looked at locks", {"gotchas": ["Locks: beware"]})
    for event in event_lines(tree):
        assert {
            "id",
            "sourceId",
            "createdAt",
            "contentHash",
            "summary",
            "signals",
            "sourceRef",
            "kind",
            "externalItemId",
        } <= set(event)
        assert event["kind"] in {"tool_run", "imported_session"}
        assert set(event["signals"]) == {
            "decisions",
            "gotchas",
            "nextStepHints",
            "keyPaths",
            "validationObservations",
        }
        assert event["externalItemId"] is None
        assert event["sourceId"] == "cairn.local"
    assert [event["sourceRef"] for event in event_lines(tree)] == ["cairn:init", "cairn:record"]


def test_checkpoint_shape_and_hash(tree, project):
    """M11, M38, C7: the snapshot with its hash, its event and the pages it was taken with."""
    [file] = (tree / ".cairn/history/checkpoints").glob("*.json")
    found = json.loads(file.read_text())
    assert {"id", "createdAt", "eventId", "bundleHash", "bundle", "summary"} <= set(found)
    assert found["bundleHash"] == json_hash(found["bundle"]) == state(tree)["bundleHash"]
    assert found["eventId"] == "evt-000001"
    pages = {item["path"]: item["hash"] for item in found["files"]}
    for path, digest in pages.items():
        assert hashlib.sha256((tree / path).read_bytes()).hexdigest() == digest


def test_bundle_hash_ignores_key_order_and_minds_list_order():
    """M34: sha256 over sorted, two-space JSON; lists keep their order."""
    one = {"b": [1, 2], "a": {"y": "é", "x": None}}
    other = {"a": {"x": None, "y": "é"}, "b": [1, 2]}
    assert json_hash(one) == json_hash(other)
    assert json_hash(one) != json_hash({**one, "b": [2, 1]})
    by_hand = '{\n  "a": {\n    "x": null,\n    "y": "é"\n  },\n  "b": [\n    1,\n    2\n  ]\n}'
    assert json_hash(one) == hashlib.sha256(by_hand.encode()).hexdigest()


def test_json_files_are_sorted_and_events_compact(tree, project):
    """M34: files in the sorted form plus a newline, events as compact lines."""
    for name in ("state.json", "sources.json", "config.json"):
        text = (tree / ".cairn" / name).read_text()
        assert text == json.dumps(json.loads(text), sort_keys=True, indent=2, ensure_ascii=False) + "\n"
    for line in (tree / ".cairn/history/events.jsonl").read_text().splitlines():
        assert line == json.dumps(json.loads(line), sort_keys=True, separators=(",", ":"), ensure_ascii=False)


@pytest.mark.parametrize(
    ("path", "value", "trouble"),
    [
        (("project", "name"), "", "bundle.project.name"),
        (("project", "extra"), "x", 'does not know "extra"'),
        (("gotchas",), [{"title": "t"}], "gotchas"),
        (("validationCommands",), [{"label": "a", "command": ["x"], "purpose": "p"}] * 3, "at most 2"),
        (("currentFocus", "validationSnapshot", "status"), "maybe", "passed, failed, unknown"),
        (("nextSteps",), "soon", "must be a list"),
    ],
)
def test_bundle_shape_is_checked(tree, project, path, value, trouble):
    """M35: anything but the bundle's shape is refused with the place of the trouble."""
    bundle = state(tree)["bundle"]
    target = bundle
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    with pytest.raises(Invalid, match=trouble):
        checked(bundle)


def test_ids_have_six_digits_and_are_never_reused(tree, project):
    """M36, X12: ids count on from everything active, recalled or snapshotted; a shortened log does not reuse one."""
    project.record("one", {"decisions": ["Use one"]})
    project.consolidate()
    assert [event["id"] for event in event_lines(tree)] == ["evt-000001", "evt-000002", "evt-000003"]
    log = tree / ".cairn/history/events.jsonl"
    log.write_text("".join(line + "\n" for line in log.read_text().splitlines()[2:]))
    assert project.record("two").id == "evt-000004"
    project.update()
    assert state(tree)["maintenance"]["latestCheckpointId"] == "chk-000003"


def test_projections_start_with_a_marker_that_carries_both_hashes(tree, project):
    """M26, M27, M41, C7: five pages, each with id, version 3, bundle hash and body hash."""
    names = {
        "readme": "README",
        "project-map": "project-map",
        "current-focus": "current-focus",
        "gotchas": "gotchas",
        "next-steps": "next-steps",
    }
    for ident, name in names.items():
        first, _, body = (tree / f"docs/cairn/{name}.md").read_text().partition("\n")
        found = re.fullmatch(
            r"<!-- cairn:projection file=(\S+) version=3 bundleHash=([0-9a-f]{64}) bodyHash=([0-9a-f]{64}) -->",
            first,
        )
        assert found is not None
        assert found.group(1) == ident
        assert found.group(2) == state(tree)["bundleHash"]
        assert found.group(3) == hashlib.sha256(body.encode()).hexdigest()


def test_entry_block_is_in_the_entry_file(tree, project):
    """M28, M29, M42: AGENTS.md, CLAUDE.md, README.md in that order; here only README.md was there."""
    text = (tree / "README.md").read_text()
    digest = state(tree)["bundleHash"]
    assert f"<!-- cairn:entry version=3 bundleHash={digest} start -->" in text
    assert "<!-- cairn:entry end -->" in text
    assert text.index("# Parcel tracker") < text.index("cairn:entry") < text.index("A small service")
    assert "entry.block" in {finding.code for finding in project.validate() if finding.status == "pass"}


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"AGENTS.md": "# A\n", "CLAUDE.md": "# C\n", "README.md": "# R\n"}, "AGENTS.md"),
        ({"CLAUDE.md": "# C\n", "README.md": "# R\n"}, "CLAUDE.md"),
        ({"README.md": "# R\n"}, "README.md"),
        ({"main.py": "X = 1\n"}, "AGENTS.md"),
    ],
)
def test_entry_file_choice(tmp_path, files, chosen):
    """M42: the priority of entry files; none there makes an AGENTS.md."""
    tree = make_repo(tmp_path / "r", files)
    open_at(tree).init()
    assert state(tree)["bundle"]["project"]["recommendedEntryFile"] == chosen
    assert "cairn:entry" in (tree / chosen).read_text()


def test_entry_block_placement_keeps_every_other_byte():
    """M42: replaced in place, else after the first heading, else on top; CRLF stays CRLF."""
    one, two = "a" * 64, "b" * 64
    plain = "Intro without heading.\n"
    assert with_entry(plain, one).endswith("\n\n" + plain)
    text = "# Title\r\n\r\nBody\r\n"
    placed = with_entry(text, one)
    assert "\n" not in placed.replace("\r\n", "")
    assert placed.startswith("# Title\r\n\r\n<!-- cairn:entry")
    assert placed.endswith("Body\r\n")
    assert with_entry(placed, two) == placed.replace(one, two)
    assert with_entry(with_entry(placed, two), two) == with_entry(placed, two)


def test_write_order_is_checkpoint_state_pages_block_event(tree, project, monkeypatch):
    """M40: seen from outside, by the order in which places are written."""
    order = []
    storage, log = project.record_.storage, project.record_.log
    write_text, append = storage.write, log.append
    monkeypatch.setattr(
        storage, "write", lambda at, text, **more: (order.append(at.key), write_text(at, text, **more))[1]
    )
    monkeypatch.setattr(log, "append", lambda events: (order.append("event"), append(events))[1])
    git(tree, "commit", "-q", "--allow-empty", "-m", "news: something")
    project.update()
    assert order[0].startswith(".cairn/history/checkpoints/")
    assert order[1] == ".cairn/state.json"
    assert order[2:-2] == [
        f"docs/cairn/{name}.md"
        for name in ("README", "project-map", "current-focus", "gotchas", "next-steps")
    ]
    assert order[-2:] == ["README.md", "event"]


def test_init_wipes_and_starts_over_only_when_told(tree, project):
    """M43: a second init is refused; with force it begins again with one event, one checkpoint, default settings."""
    project.record("kept until wiped")
    before = tree_bytes(tree)
    with pytest.raises(Conflict, match="--force"):
        project.init()
    assert tree_bytes(tree) == before
    project.init(force=True)
    assert [event["id"] for event in event_lines(tree)] == ["evt-000001"]
    assert json.loads((tree / ".cairn/sources.json").read_text()) == {"sources": []}
    assert failures(project) == []


@pytest.mark.parametrize("where", ["bare.git", "tree/.git", "tree/.git/hooks"])
def test_no_project_memory_is_made_inside_a_git_directory(tmp_path, where):
    """A bare repository and `.git` have no work tree: pages there are read by nobody, and lie among git's own files."""
    git(tmp_path, "init", "-q", "--bare", "bare.git")
    git(tmp_path, "init", "-q", "tree")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(Invalid, match="is a git directory, where no project memory belongs"):
        open_project(tmp_path / where).init()
    assert sorted(tmp_path.rglob("*")) == before
    assert open_project(tmp_path / "tree").init()


def test_a_memory_root_is_not_taken_for_the_folder_of_a_project(tmp_path):
    """The root of a home folder is called `.cairn`, too: init there is refused and touches nothing, with force as well."""
    tree = make_repo(tmp_path / "home")
    with open_blocking(tree / ".cairn", background=False) as memory:
        memory.remember("Deploys wait for the migration job.")
    for gone in (None, ".index", ".tmp"):  # what can be made anew is not what tells
        if gone is not None:
            shutil.rmtree(tree / ".cairn" / gone)
        before = tree_bytes(tree)
        for force in (False, True):
            with pytest.raises(Invalid, match="is a memory root"):
                open_at(tree).init(force=force)
        assert tree_bytes(tree) == before


def test_init_leaves_what_is_not_its_own(tree, project):
    """A repository in which agents' memory is off stays so."""
    (tree / ".cairn/agents-off").touch()
    project.init(force=True)
    assert (tree / ".cairn/agents-off").is_file()
    assert failures(project) == []


@pytest.mark.parametrize(
    ("files", "parts"),
    [
        ({"src/a.py": "A = 1\n"}, ["src"]),
        ({"api/a.py": "A = 1\n", "web/b.py": "B = 1\n"}, ["api", "web"]),
        ({"a.py": "A = 1\n"}, []),
    ],
)
def test_a_part_is_named_once(tmp_path, files, parts):
    tree = tmp_path / "plain"
    write(tree, files)
    open_at(tree).init()
    assert [one["path"] for one in state(tree)["bundle"]["projectMap"]["modules"]] == parts


def test_update_adds_an_event_and_a_checkpoint(tree, project):
    """M44: the repository is read again; event and checkpoint tell of it."""
    write(
        tree,
        {
            "src/parcel/billing/__init__.py": '"""Invoices and refunds."""\n',
            "src/parcel/billing/pdf.py": "P = 1\n",
        },
    )
    written = project.update()
    assert written.checkpoint_id == "chk-000002"
    assert event_lines(tree)[-1]["sourceRef"] == "cairn:update"
    assert {
        "path": "src/parcel/billing",
        "name": "billing",
        "responsibility": "Invoices and refunds.",
    } in state(tree)["bundle"]["projectMap"]["modules"]


@pytest.mark.parametrize("version", [1, 3, "2"])
def test_another_schema_is_refused_and_init_rebuilds(tree, project, version):
    """M30, M31, M33, M44: schema equality is hard; init is the way out."""
    at = tree / ".cairn/state.json"
    at.write_text(json.dumps({**state(tree), "schemaVersion": version}))
    with pytest.raises(Misconfigured, match="cairn project init"):
        project.update()
    assert [finding.code for finding in project.validate()] == ["state.schema"]
    project.init()
    assert failures(project) == []


def test_defaults(tree, project):
    """M21-M24, M45: every setting of the file with its default."""
    found = json.loads((tree / ".cairn/config.json").read_text())
    assert found["recall"] == {
        "defaultSection": "all",
        "defaultSource": "all",
        "policy": "balanced",
        "backlogWarnThreshold": 10,
        "preview": {"showDiffByDefault": False},
    }
    assert found["query"]["defaultOutput"] == "text"
    assert all("instructions" in template for template in found["query"]["templates"].values())
    assert found["automation"] == {
        "intervalMinutes": 15,
        "provider": "auto",
        "importSyncBeforeRecall": True,
        "autoRecall": True,
    }
    assert found["retention"] == {
        "enabled": True,
        "history": {"maxAgeDays": 90},
        "checkpoints": {"maxAgeDays": 30, "keepRecent": 10},
        "archive": {"expireAfterDays": 180},
    }


@pytest.mark.parametrize(
    ("changes", "trouble"),
    [
        ({"recall": {"policy": "wild"}}, "recall.policy"),
        ({"recall": {"backlogWarnThreshold": "many"}}, "backlogWarnThreshold"),
        ({"retention": {"enabled": "yes"}}, "retention.enabled"),
        ({"retention": {"history": {"maxAgeDays": -1}}}, "maxAgeDays"),
        ({"surprise": {}}, "surprise"),
    ],
)
def test_bad_settings_are_named(tree, project, changes, trouble):
    """M20: an unknown name or a wrong value names the setting; nothing is written."""
    at = tree / ".cairn/config.json"
    at.write_text(json.dumps({**json.loads(at.read_text()), **changes}))
    before = tree_bytes(tree)
    with pytest.raises(Misconfigured, match=trouble):
        project.consolidate()
    assert tree_bytes(tree) == before


def test_a_flag_wins_over_the_setting_for_one_run(tree, project):
    """M25: the setting says gotchas only; the flag says next steps, once."""
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["recall"]["defaultSection"] = "gotchas"
    at.write_text(json.dumps(config))
    project.record("x", {"gotchas": ["Trap: a"], "nextStepHints": ["NEXT: step: b"]})
    assert project.plan().summary["changedSections"] == ["gotchas"]
    assert project.plan(section="next-steps").summary["changedSections"] == ["next-steps"]
    assert options.load(project.record_.storage).get("recall.defaultSection") == "gotchas"


def test_generated_files_can_be_removed_and_come_back_byte_for_byte(tree, project):
    """C1, C16: state, pages and entry block are recomputed from checkpoints and events, to the byte."""
    project.record("Learned", {"gotchas": ["Trap: careful. Use a rope."], "decisions": ["We chose ropes"]})
    project.consolidate()
    project.record("Unread", {"decisions": ["We chose knots"]})
    project.prune()
    before = tree_bytes(tree)
    answer = project.query("what traps are there").to_json()
    (tree / ".cairn/state.json").unlink()
    for page in (tree / "docs/cairn").glob("*.md"):
        page.unlink()
    text = (tree / "README.md").read_text()
    (tree / "README.md").write_text(re.sub(r"<!-- cairn:entry.*?end -->\n\n", "", text, flags=re.DOTALL))
    project.prune()
    assert tree_bytes(tree) == before
    assert project.query("what traps are there").to_json() == answer


def test_a_hand_edit_of_a_page_is_taken_over(tree, project):
    """C7, tenet 5: an edited page is noticed by its body hash and becomes the bundle; nothing is overwritten."""
    page = tree / "docs/cairn/gotchas.md"
    page.write_text(
        page.read_text().replace(
            "- **Cause:** Its API is old.", "- **Cause:** The vendor refuses to change it."
        )
        + "\n## Rate limits\n\n- **Symptom:** 429 after ten calls\n- **Cause:** per-minute quota\n- **Correct path:** sleep between calls\n"
    )
    assert "projection.edited" in {finding.code for finding in project.validate()}
    assert project.status()["editedPages"] == ["docs/cairn/gotchas.md"]
    assert "429" in project.query("what traps with rate limits").answer

    project.update()

    gotchas = {item["title"]: item for item in state(tree)["bundle"]["gotchas"]}
    assert gotchas["Rate limits"]["correctPath"] == "sleep between calls"
    assert gotchas["Carrier times"]["cause"] == "The vendor refuses to change it."
    assert "429" in page.read_text()
    assert failures(project) == []
    assert any(event["sourceRef"] == "cairn:edit" for event in event_lines(tree))


def test_an_edit_survives_later_updates(tree, project):
    """A corrected sentence and a removed entry stay as the person left them, though the evidence says otherwise."""
    readme = tree / "docs/cairn/README.md"
    readme.write_text(
        readme.read_text().replace("Tells customers where their parcels are", "Parcel news for shops")
    )
    page = tree / "docs/cairn/next-steps.md"
    page.write_text(
        re.sub(r"## exit code is always zero.*?(?=\n## |\Z)", "", page.read_text(), flags=re.DOTALL)
    )
    project.update()
    git(tree, "commit", "-q", "--allow-empty", "-m", "more work")
    project.update()
    bundle = state(tree)["bundle"]
    assert bundle["project"]["summary"].startswith("Parcel news for shops")
    assert "exit code is always zero" not in {step["title"] for step in bundle["nextSteps"]}
    assert "more work" in bundle["currentFocus"]["summary"]


def test_words_no_field_can_hold_are_kept_aside(tree, project):
    """An edit the bundle has no place for is not lost: the page is copied before it is written anew."""
    page = tree / "docs/cairn/project-map.md"
    page.write_text(page.read_text() + "\n## My poem\n\nRoses are red.\n")
    written = project.update()
    [kept] = (tree / ".cairn/edits").glob("*project-map.md")
    assert "Roses are red." in kept.read_text()
    assert any("kept aside" in note for note in written.notes)
    assert failures(project) == []


def test_a_page_that_was_there_before_is_kept_aside(tmp_path):
    """init does not swallow a docs/cairn/README.md somebody else wrote."""
    tree = make_repo(tmp_path / "r", {"docs/cairn/README.md": "# Mine\n\nPrecious.\n", "a.py": "A = 1\n"})
    open_at(tree).init()
    assert any("Precious." in path.read_text() for path in (tree / ".cairn/edits").iterdir())


def test_text_edits_inside_the_block_are_kept_aside(tree, project):
    """A sentence written into the entry block is copied before the block is put right."""
    at = tree / "README.md"
    at.write_text(at.read_text().replace("## Project memory\n", "## Project memory\n\nAsk Ann first.\n"))
    assert "entry.changed" in {finding.code for finding in project.validate() if finding.status == "fail"}
    project.update()
    assert "Ask Ann first." not in at.read_text()
    assert any("Ask Ann first." in path.read_text() for path in (tree / ".cairn/edits").iterdir())


def test_torn_and_foreign_lines_in_the_log(tree, project):
    """A truncated line and a stranger's line are reported, kept aside, and do not stop anything."""
    project.record("sound", {"decisions": ["We chose sound"]})
    log = tree / ".cairn/history/events.jsonl"
    lines = log.read_text().splitlines()
    log.write_text("\n".join([lines[0], lines[1][:40], '{"hello": 1}', lines[1]]) + "\n")
    assert "history.unreadable" in {
        finding.code for finding in project.validate() if finding.status == "fail"
    }
    assert project.status()["backlog"]["all"]["count"] == 1
    project.update()
    assert failures(project) == []
    assert any('{"hello": 1}' in path.read_text() for path in (tree / ".cairn/edits").iterdir())
    assert [event["summary"] for event in event_lines(tree)][:2] == [json.loads(lines[0])["summary"], "sound"]


def test_a_clock_that_goes_backwards(tree, project):
    """Times may run backwards; ids do not, and nothing is counted as read that was not."""
    clock = SetClock()
    later = open_at(tree, clock)
    later.record("first", {"decisions": ["Use first"]})
    later.consolidate()
    clock.pass_days(-400)
    later.record("second", {"decisions": ["Use second"]})
    assert [event.summary for event in later.record_.view().story.backlog("all")] == ["second"]
    later.consolidate()
    assert failures(later) == []
    assert later.prune(dry_run=True)[0].to_json()["events"] == []


def test_an_agent_memory_tree_is_imported(tmp_path):
    """An existing .agent-memory tree brings its bundle, events and settings along."""
    first = make_repo(tmp_path / "a")
    open_at(first).init()
    old = state(first)
    old["bundle"]["gotchas"] = [{"title": "Old trap", "symptom": "s", "cause": "c", "correctPath": "p"}]
    events = [
        {"id": "evt-000001", "kind": "tool_run", "sourceId": "agent-memory.local", "createdAt": "2026-01-01T00:00:00.000Z", "contentHash": "1" * 64,
         "summary": "init", "signals": {}, "sourceRef": "agent-memory:init", "externalItemId": None},
        {"id": "evt-000002", "kind": "imported_session", "sourceId": "s1", "createdAt": "2026-01-02T00:00:00.000Z", "contentHash": "2" * 64,
         "summary": "An old session", "signals": {"decisions": ["We keep SQLite"]}, "sourceRef": "claude-local:abc", "externalItemId": "abc"},
    ]  # fmt: skip
    tree = make_repo(tmp_path / "b")
    write(
        tree,
        {
            ".agent-memory/state.json": json.dumps(old),
            ".agent-memory/history/events.jsonl": "".join(json.dumps(e) + "\n" for e in events) + "broken\n",
            ".agent-memory/config.json": json.dumps({"recall": {"policy": "imports-only"}}),
        },
    )
    project = open_at(tree)
    written = project.init()
    assert any("1 lines left behind" in note for note in written.notes)
    assert "Old trap" in {item["title"] for item in state(tree)["bundle"]["gotchas"]}
    assert [event["summary"] for event in event_lines(tree)][:2] == ["init", "An old session"]
    assert [event.summary for event in project.record_.view().story.backlog("imports")] == ["An old session"]
    assert project.options.get("recall.policy") == "imports-only"
    assert failures(project) == []
