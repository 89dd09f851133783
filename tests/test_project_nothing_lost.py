"""What a repository's history says is neither merged away nor called read before it was folded."""

from __future__ import annotations

import json
import shutil

import pytest

from cairn.canonical import json_hash
from tests.project_kit import SetClock, git, open_at, ready_repo, state


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def project(tmp_path, clock):
    return open_at(ready_repo(tmp_path / "tree"), clock)


def transcripts(folder, *sentences, day="2026-05-01"):
    """A folder with one session of a coding agent for each sentence."""
    folder.mkdir()
    for number, sentence in enumerate(sentences):
        records = [
            {
                "type": "user",
                "uuid": f"u{number}",
                "timestamp": f"{day}T10:00:00Z",
                "message": {"content": f"Task {number}"},
            },
            {
                "type": "assistant",
                "uuid": f"a{number}",
                "timestamp": f"{day}T10:05:00Z",
                "message": {"content": sentence},
            },
        ]
        (folder / f"s{number}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    return folder


TRAPS = (
    "Gotcha: the cache is stale after a deploy unless it is warmed.",
    "Gotcha: the login form double submits on slow networks.",
    "Gotcha: migrations lock the orders table for minutes.",
)
STEPS = (
    "Next step: write the retry queue for webhooks.",
    "Next step: measure the import with real files.",
    "Next steps: remove the old parser from the tree.",
)


@pytest.mark.parametrize(("sentences", "key"), [(TRAPS, "gotchas"), (STEPS, "nextSteps")])
def test_three_sessions_with_three_lessons_give_three_entries(project, tmp_path, sentences, key):
    """M46, M50, M51: a label such as "Gotcha" is no topic; titles say what it is about, sources are right."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", *sentences))
    project.import_()
    project.consolidate()
    found = state(project.tree)["bundle"][key]
    for number, sentence in enumerate(sentences):
        words = set(sentence.partition(": ")[2].rstrip(".").casefold().split())
        [entry] = [one for one in found if len(words & set(one["title"].casefold().split())) > len(words) / 2]
        assert f"Task {number}" in json.dumps(entry)
    assert not {"gotcha", "next step", "next steps"} & {one["title"].casefold() for one in found}


def test_different_news_of_one_topic_stay_apart(project):
    """M51: what says something else under the same heading keeps its own words."""
    project.record("one", {"gotchas": ["Cache: stale after a deploy"]})
    project.record("two", {"gotchas": ["Cache: never share it between tenants"]})
    project.consolidate()
    told = json.dumps(state(project.tree)["bundle"]["gotchas"]).casefold()
    assert "stale after a deploy" in told and "between tenants" in told


def test_events_are_of_the_day_of_their_session(project, tmp_path):
    """The focus and the answers name the session's day, not the day of the import."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", TRAPS[0], day="2026-04-02"))
    project.import_()
    project.consolidate()
    assert "2026-04-02" in state(project.tree)["bundle"]["currentFocus"]["summary"]


def test_a_consolidation_of_one_section_leaves_the_others_to_be_folded(project):
    """M47: only what was folded is read; the rest of the event is folded later, and nothing twice."""
    project.record(
        "x",
        {"gotchas": ["Cold cache: warm it first"], "nextStepHints": ["NEXT: retry webhooks: they get lost"]},
    )
    project.consolidate(section="gotchas")
    titles = {one["title"] for one in state(project.tree)["bundle"]["nextSteps"]}
    assert "Retry webhooks" not in titles and "retry webhooks" not in titles
    again, written = project.consolidate(section="gotchas")
    assert again.is_noop and written is None
    _, written = project.consolidate()
    assert written is not None
    assert any(
        "retry webhooks" in one["title"].casefold() for one in state(project.tree)["bundle"]["nextSteps"]
    )
    assert project.consolidate()[0].is_noop


def test_a_policy_reads_only_what_it_folds_and_retention_keeps_the_rest(project, clock, tmp_path):
    """M10, M47, M58: an import under local-only waits, and is not archived however old it is."""
    project.add_source("claude-local", transcripts(tmp_path / "sessions", TRAPS[0]))
    project.import_()
    project.record("local", {"gotchas": ["Flaky clock: freeze it in tests"]})
    project.consolidate(policy="local-only")
    assert project.status()["backlog"]["imports"]["count"] == 1
    clock.pass_days(200)
    project.prune()
    project.consolidate()
    assert "cache is stale" in json.dumps(state(project.tree)["bundle"]["gotchas"]).casefold()


def test_the_protected_map_still_gets_its_news_later(project):
    """M47: under project-map-protected an event with news for the map stays in the backlog until the map may change."""
    project.record(
        "x", {"gotchas": ["Trap door: mind it"], "decisions": ["We chose one API module for billing"]}
    )
    project.consolidate(policy="project-map-protected")
    project.consolidate()
    assert (
        "We chose one API module for billing"
        in state(project.tree)["bundle"]["projectMap"]["architectureNotes"]
    )


def test_an_edit_of_the_state_file_is_taken_over(project):
    """M1: a program that changes the bundle in state.json is heard by the next command, and validate says so before."""
    at = project.tree / ".cairn/state.json"
    data = json.loads(at.read_text())
    data["bundle"]["gotchas"].append(
        {
            "title": "Clock skew",
            "symptom": "tokens expire early",
            "cause": "drift",
            "correctPath": "Run chrony.",
        }
    )
    data["bundleHash"] = json_hash(data["bundle"])
    at.write_text(json.dumps(data))
    assert "state.differs" in {one.code for one in project.validate() if one.status == "fail"}
    written = project.update()
    assert "Clock skew" in {one["title"] for one in state(project.tree)["bundle"]["gotchas"]}
    assert any("state.json" in note for note in written.notes)


def test_a_state_file_that_cannot_be_read_is_kept_aside(project):
    """What cannot be taken over is not lost: it lies in .cairn/edits and is named."""
    at = project.tree / ".cairn/state.json"
    at.write_text("{ my own words")
    written = project.update()
    [kept] = (project.tree / ".cairn/edits").glob("*state.json")
    assert kept.read_text() == "{ my own words" and any("kept aside" in note for note in written.notes)


@pytest.mark.parametrize("kind", ["recorded", "imported"])
def test_validate_notices_a_changed_event(project, tmp_path, kind):
    """M57: the words of an event are held by a hash, whatever kind it is."""
    if kind == "imported":
        project.add_source("claude-local", transcripts(tmp_path / "sessions", TRAPS[0]))
        project.import_()
    else:
        project.record("We measured it", {"decisions": ["We chose SQLite"]})
    log = project.tree / ".cairn/history/events.jsonl"
    assert "history.changed" not in {one.code for one in project.validate()}
    log.write_text(log.read_text().replace("We measured it", "We guessed it").replace("Task 0", "Task zero"))
    assert "history.changed" in {one.code for one in project.validate() if one.status == "fail"}


def test_validate_notices_a_torn_last_line(project):
    """M57: a line that was cut off in writing is a finding."""
    log = project.tree / ".cairn/history/events.jsonl"
    with log.open("a") as handle:
        handle.write('{"id": "evt-0000')
    assert "history.torn" in {one.code for one in project.validate() if one.status == "fail"}


def old_tree(tree, **config):
    """An `.agent-memory/` tree as its own program leaves it."""
    bundle = state(tree)["bundle"]
    bundle["gotchas"] = [{"title": "Old trap", "symptom": "s", "cause": "c", "correctPath": "p"}]
    home = tree / ".agent-memory"
    (home / "history/checkpoints").mkdir(parents=True)
    events = [
        {
            "id": f"evt-{number:06d}",
            "kind": "imported_session",
            "sourceId": "claude-1",
            "createdAt": f"2025-03-0{number}T08:00:00.000Z",
            "contentHash": f"{number}" * 64,
            "summary": f"Session {number}",
            "signals": {"gotchas": [f"Lesson {number}: mind the gap number {number}"]},
            "sourceRef": f"claude:{number}",
            "externalItemId": f"s{number}",
        }
        for number in (1, 2)
    ]
    (home / "history/events.jsonl").write_text("".join(json.dumps(one) + "\n" for one in events))
    (home / "history/checkpoints/chk-000001.json").write_text(
        json.dumps({"id": "chk-000001", "createdAt": "2025-03-01T09:00:00.000Z", "eventId": "evt-000001",
                    "bundleHash": json_hash(bundle), "bundle": bundle, "summary": "First"})
    )  # fmt: skip
    maintenance = {"lastRecalledEventId": "evt-000001", "latestCheckpointId": "chk-000001"}
    (home / "state.json").write_text(
        json.dumps({"schemaVersion": 2, "bundle": bundle, "maintenance": maintenance})
    )
    (home / "config.json").write_text(json.dumps(config))
    source = {
        "id": "claude-1",
        "type": "claude-local",
        "path": "/no/such/place",
        "createdAt": "x",
        "updatedAt": "x",
    }
    (home / "sources.json").write_text(json.dumps({"sources": [source]}))


def test_an_older_tree_is_carried_over_whole_and_opens(project, tmp_path):
    """M2, M18, M23, M38: times, sources, checkpoints and cursors come along; a foreign provider bricks nothing."""
    old_tree(project.tree, automation={"provider": "claude"}, retention={"enabled": False})
    written = project.init(force=True)
    assert any("claude" in note for note in written.notes)
    fresh = open_at(project.tree)
    assert [one.happened_at[:10] for one in fresh.events() if one.is_import] == ["2025-03-01", "2025-03-02"]
    assert [one.id for one in fresh.sources()] == ["claude-1"]
    assert not fresh.options.get("retention.enabled") and fresh.options.get("automation.provider") == "auto"
    assert fresh.status()["backlog"]["imports"]["count"] == 1
    assert "2025-03-01" in "".join(
        file.read_text() for file in (project.tree / ".cairn/history/checkpoints").iterdir()
    )
    fresh.consolidate()
    assert "Lesson 2" in json.dumps(state(project.tree)["bundle"]["gotchas"])


def test_what_an_older_memory_had_not_recalled_is_still_to_be_folded(project):
    """M39, M58: an event of its own tools beyond the cursor waits to be folded; what made the carried bundle does not, and
    without that bundle nothing counts as read.
    """
    old_tree(project.tree)
    log = project.tree / ".agent-memory/history/events.jsonl"
    first = json.loads(log.read_text().splitlines()[0])
    for number, command in ((3, "handoff"), (4, "update")):
        signals = {"gotchas": [f"Trap {number}: the gate {number} sticks"]}
        own = {"id": f"evt-00000{number}", "kind": "tool_run", "sourceRef": f"agent-memory:{command}"}
        told = {**first, **own, "signals": signals, "contentHash": f"{number}" * 64, "externalItemId": None}
        with log.open("a") as lines:
            lines.write(json.dumps(told) + "\n")
    project.init(force=True)
    assert open_at(project.tree).status()["backlog"]["local"]["count"] == 1
    (project.tree / ".agent-memory/state.json").unlink()
    shutil.rmtree(project.tree / ".cairn")
    fresh = open_at(project.tree)
    fresh.init()
    assert fresh.status()["backlog"]["all"]["count"] == 4
    fresh.consolidate()
    assert "gate 4 sticks" in json.dumps(state(project.tree)["bundle"]["gotchas"])


def test_sources_of_a_cloned_tree_are_not_taken_over(project):
    """A repository may not name folders of its reader: what git tracks is left behind and said."""
    old_tree(project.tree)
    git(project.tree, "add", "-f", ".agent-memory")
    git(project.tree, "commit", "-qm", "theirs")
    written = project.init(force=True)
    assert open_at(project.tree).sources() == [] and any("tracked" in note for note in written.notes)


def test_an_update_that_changes_nothing_writes_nothing(project):
    """M11, M44: where the repository says what it said, no byte and no time of a file changes; a change is written again."""
    tree = project.tree
    project.update()

    def looked():
        return {
            path: (path.read_bytes(), path.stat().st_mtime_ns)
            for path in tree.rglob("*")
            if path.is_file() and not {".git", "locks"} & set(path.parts)
        }

    before = looked()
    written = project.update()
    assert looked() == before
    assert (written.event_id, written.changed) == (None, ())
    assert "nothing was written" in written.summary
    (tree / "README.md").write_text("# Parcel\n\nA tracker of parcels with a new sentence.\n")
    assert project.update().event_id is not None
