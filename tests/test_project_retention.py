"""Retention and automation: archive first, drop after; one runner; nothing waits for a person."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading

import pytest

from cairn.errors import NotFound
from cairn.project.automate import LEASE, run, run_once, runner_status
from tests.project_kit import SetClock, event_lines, failures, git, open_at, state, tree_bytes
from tests.test_project_imports import make_sessions
from tests.waiting import LONG


@pytest.fixture
def clock():
    return SetClock()


@pytest.fixture
def project(tree, clock):
    return open_at(tree, clock)


def busy(project, rounds=3):
    for turn in range(rounds):
        project.record(f"round {turn}", {"decisions": [f"We chose {turn}"]})
        project.consolidate()


def checkpoint_ids(tree):
    return sorted(path.name[:10] for path in (tree / ".cairn/history/checkpoints").iterdir())


def test_only_old_recalled_events_leave(project, clock, tree):
    """M10, M58, X13: older than the window and at or below the `all` cursor; unread ones stay whatever their age."""
    busy(project, 2)
    project.record("never read", {"decisions": ["We chose silence"]})
    clock.pass_days(91)
    project.record("fresh", {"decisions": ["We chose freshness"]})
    _, batch = project.prune()
    assert batch is not None
    kept = [event["summary"] for event in event_lines(tree)]
    assert "never read" in kept
    assert "fresh" in kept
    assert "round 0" not in kept
    assert "round 1" not in kept
    assert failures(project) == []
    assert state(tree)["maintenance"]["historyEventCount"] == len(kept)


def test_an_event_consolidated_under_another_scope_only_stays(project, clock, tree):
    """M39, M58: recalled under `local` is not recalled under `all`."""
    project.record("local only", {"decisions": ["We chose local"]})
    project.consolidate(source="local")
    clock.pass_days(365)
    assert project.prune(dry_run=True)[0].events == ()


def test_latest_checkpoint_and_the_recent_tail_stay(project, clock, tree):
    """M13, M58: old checkpoints leave except the newest ten."""
    busy(project, 13)
    assert len(checkpoint_ids(tree)) == 14
    clock.pass_days(31)
    project.prune()
    assert checkpoint_ids(tree) == [f"chk-{number:06d}" for number in range(5, 15)]
    assert state(tree)["maintenance"]["latestCheckpointId"] == "chk-000014"
    assert failures(project) == []


def test_batch_layout_name_and_manifest(project, clock, tree):
    """M14, M15, M17, M59, M60: copied out with a manifest of what and why."""
    busy(project, 12)
    clock.pass_days(100)
    plan, name = project.prune()
    assert re.fullmatch(r"prune-\d{8}T\d{9}Z", name or "")
    batch = tree / ".cairn/archive" / (name or "")
    manifest = json.loads((batch / "manifest.json").read_text())
    assert {
        "createdAt",
        "archivedEventIds",
        "archivedCheckpointIds",
        "historyMaxAgeDays",
        "checkpointMaxAgeDays",
        "keepRecent",
        "expireAfterDays",
    } <= set(manifest)
    held = [json.loads(line)["id"] for line in (batch / "events.jsonl").read_text().splitlines()]
    assert held == manifest["archivedEventIds"] == [event.id for event in plan.events]
    assert len(list((batch / "checkpoints").iterdir())) == len(manifest["archivedCheckpointIds"]) == 3
    assert failures(project) == []


def test_ids_are_not_reused_after_pruning(project, clock, tree):
    """M36: the next id follows the highest ever given."""
    busy(project, 3)
    clock.pass_days(100)
    highest = max(event["id"] for event in event_lines(tree))
    project.prune()
    assert project.record("after").id > highest


def test_a_batch_can_be_restored(project, clock, tree):
    """Restore puts events and checkpoints back where they were; a later prune may archive them again."""
    busy(project, 12)
    project.prune()
    before = [event["id"] for event in event_lines(tree)]
    ids = checkpoint_ids(tree)
    clock.pass_days(100)
    _, name = project.prune()
    assert [event["id"] for event in event_lines(tree)] != before
    project.restore(name or "")
    assert [event["id"] for event in event_lines(tree)] == before
    assert checkpoint_ids(tree) == ids
    assert failures(project) == []
    project.update()
    assert {*before} <= {event["id"] for event in event_lines(tree)}, (
        "a restored batch is not dropped again by the next command"
    )
    with pytest.raises(NotFound, match="Known: prune-"):
        project.restore("prune-20000101T000000000Z")


def test_archives_expire_later_and_unreadable_ones_are_left(project, clock, tree):
    """M17, M59: after the longer window a batch goes; one whose manifest cannot be read stays with a warning."""
    busy(project, 3)
    clock.pass_days(100)
    _, first = project.prune()
    odd = tree / ".cairn/archive/prune-20200101T000000000Z"
    odd.mkdir()
    (odd / "manifest.json").write_text("???")
    clock.pass_days(181)
    plan, _ = project.prune()
    assert plan.expired == (first,)
    assert not (tree / ".cairn/archive" / (first or "")).exists()
    assert odd.exists()
    assert any("left alone" in warning for warning in plan.warnings)


def test_retention_can_be_switched_off(project, clock, tree):
    """M24: nothing leaves."""
    busy(project, 3)
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["retention"]["enabled"] = False
    at.write_text(json.dumps(config))
    clock.pass_days(1000)
    assert not project.prune()[0]


@pytest.mark.parametrize("stop_at", ["copied", "manifest", "dropped"])
def test_an_interrupted_prune_is_finished_by_the_next_command(project, clock, tree, stop_at):
    """M59: whatever step it stopped at, no event is lost and none is there twice."""
    busy(project, 12)
    everything = {event["contentHash"] for event in event_lines(tree)}
    clock.pass_days(100)
    archive, story, options = project.record_.archive, project.record_.view().story, project.options
    plan = archive.plan(story, options, clock.now())
    name = archive.copy_out(plan, options, clock.now())
    if stop_at == "copied":
        (tree / ".cairn/archive" / name / "manifest.json").unlink()
    if stop_at == "dropped":
        archive.drop(name)
    fresh = open_at(tree, clock)
    fresh.update()
    active = [event["contentHash"] for event in event_lines(tree)]
    archived = [event.contentHash for batch in archive.batches() for event in archive.events_of(batch)]
    assert len(active) == len(set(active))
    assert not set(active) & set(archived)
    assert everything <= set(active) | set(archived)
    assert failures(fresh) == []


# ---------------------------------------------------------------- automation


def test_a_run_imports_consolidates_and_prunes(project, clock, tree, tmp_path):
    """M16, M23, M61: one cycle in that order; the result is written down."""
    project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    result = run_once(project)
    assert (result.status, result.imported) == ("recalled", 3)
    assert json.loads((tree / ".cairn/automation/latest-run.json").read_text())["status"] == "recalled"
    assert run_once(project).status == "idle"
    clock.pass_days(100)
    assert run_once(project).pruned["events"]
    assert failures(project) == []


def test_run_statuses(project, tree, tmp_path):
    """M61: idle, imported, recalled_noop, failed."""
    assert run_once(project).status == "idle"
    project.record("nothing in it")
    noop = run_once(project)
    assert noop.status == "recalled_noop"
    assert project.status()["suggestedAction"] == "Nothing to do.", (
        "a backlog that was considered is not nagged about"
    )
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["automation"]["autoRecall"] = False
    at.write_text(json.dumps(config))
    project.add_source("claude-local", make_sessions(tmp_path / "c", tree))
    assert run_once(project).status == "imported"
    at.write_text("{")
    assert run_once(project).status == "failed"


def test_a_run_leaves_git_alone(project, tree):
    """A dirty tree is neither blocked nor committed; a merge in progress is left alone."""
    (tree / "src/parcel/cli.py").write_text("dirty = 1\n")
    head = git(tree, "rev-parse", "HEAD")
    project.record("x", {"decisions": ["We chose x"]})
    assert run_once(project).status == "recalled"
    assert git(tree, "rev-parse", "HEAD") == head
    assert git(tree, "diff", "--cached", "--name-only") == ""
    (tree / ".git/MERGE_HEAD").write_text(head)
    project.record("y", {"decisions": ["We chose y"]})
    before = tree_bytes(tree, without=(".git", ".cairn/locks", ".cairn/automation"))
    assert run_once(project).status == "idle"
    assert tree_bytes(tree, without=(".git", ".cairn/locks", ".cairn/automation")) == before


def test_one_runner_per_work_tree(project, tree):
    """M61: a second runner gives way; when the first is gone the place is free at once."""
    stop, ran = threading.Event(), threading.Event()
    thread = threading.Thread(target=run, args=(project, stop, lambda _: ran.set()))
    thread.start()
    try:
        assert ran.wait(LONG)
        value = runner_status(project.record_.storage, open_at(tree).locks)
        assert (value["running"], value["pid"]) == (True, os.getpid())
        assert run(open_at(tree), threading.Event()) is False
    finally:
        stop.set()
        thread.join(LONG)
    assert runner_status(project.record_.storage, project.locks)["running"] is False
    assert not (tree / ".cairn/automation/daemon.json").exists()


def test_a_killed_runner_is_taken_over(project, tree):
    """M61: a stale note of a dead runner does not stop the next one."""
    code = (
        "import sys, os, pathlib; sys.path.insert(0, '.');"
        "from tests.project_kit import open_at; p = open_at(pathlib.Path(sys.argv[1]));"
        f"lease = p.locks.lease({LEASE!r}); assert lease.__enter__();"
        "from cairn.project.layout import DAEMON; p.record_.storage.write(DAEMON, '{\"pid\": %d}' % os.getpid());"
        "os.kill(os.getpid(), 9)"
    )
    import sys

    subprocess.run([sys.executable, "-c", code, str(tree)], check=False, cwd=os.getcwd())
    value = runner_status(project.record_.storage, project.locks)
    assert (value["running"], value["stale"]) == (False, True)
    stop = threading.Event()
    assert run(project, stop, lambda _: stop.set()) is True
