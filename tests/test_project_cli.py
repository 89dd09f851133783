"""`cairn project ...`, `log`, `diff`, `restore` as a user types them."""

from __future__ import annotations

import argparse
import json
import os

import pytest

from cairn.surfaces.cli import build_parser, main
from tests.project_kit import failures, git, make_repo, open_at, state
from tests.test_project_imports import make_sessions
from tests.waiting import until


@pytest.fixture
def run(capsys):
    def call(*words, code=0):
        assert main([str(word) for word in words]) == code
        shown = capsys.readouterr()
        return shown.out if code in {0, 1} else shown.err

    return call


def test_a_newcomers_walk(tmp_path, run):
    """M32: init, record, preview, consolidate, query, status, validate, update, in words and in JSON."""
    tree = make_repo(tmp_path / "repo")
    assert "Set up project memory" in run("project", "init", "-C", tree)
    assert ", 1 event\n" in run("project", "status", "-C", tree)
    told = json.loads(
        run(
            "project",
            "record",
            "Met a trap",
            "--gotcha",
            "Ice: slippery. Use salt.",
            "--json",
            "-C",
            tree / "src",
        )
    )
    assert told["id"] == "evt-000002"
    preview = run("project", "consolidate", "--dry-run", "--diff", "-C", tree)
    assert "new gotcha: Ice" in preview
    assert "+++ gotchas after" in preview
    assert "Not applied" in run("project", "consolidate", "-C", tree), (
        "nobody there to confirm: nothing is applied"
    )
    assert "Applied as chk-000002" in run("project", "consolidate", "--yes", "-C", tree)
    assert run("project", "consolidate", "--yes", "-C", tree).strip() == "Nothing to recall."
    assert "Use salt." in run("project", "query", "any", "traps?", "-C", tree)
    assert json.loads(run("project", "query", "any traps?", "--json", "-C", tree))["mode"] == "traps"
    assert "not enough evidence" in run("project", "query", "purple elephants", "-C", tree, code=1)
    assert "-> Nothing to do." in run("project", "status", "-C", tree)
    assert json.loads(run("project", "validate", "--json", "-C", tree))["ok"] is True
    assert json.loads(run("project", "update", "--json", "-C", tree))["checkpointId"] == "chk-000003"
    assert json.loads(run("project", "restore", "chk-000001", "--json", "-C", tree))["changedSections"]


def test_validate_exits_with_one_on_a_fail(tree, run):
    """M57: the exit code is for scripts."""
    (tree / "docs/cairn/gotchas.md").unlink()
    assert "fail projection.missing" in run("project", "validate", "-C", tree, code=1)


def test_the_diff_is_hidden_unless_asked_for(tree, run):
    """M21, M25: showDiffByDefault decides, a flag wins."""
    open_at(tree).record("x", {"gotchas": ["Ice: slippery"]})
    assert "+++" not in run("project", "consolidate", "--dry-run", "-C", tree)
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["recall"]["preview"]["showDiffByDefault"] = True
    at.write_text(json.dumps(config))
    assert "+++" in run("project", "consolidate", "--dry-run", "-C", tree)


def test_the_default_output_of_query_is_a_setting(tree, run):
    """M22: query.defaultOutput json needs no flag."""
    at = tree / ".cairn/config.json"
    config = json.loads(at.read_text())
    config["query"]["defaultOutput"] = "json"
    at.write_text(json.dumps(config))
    assert json.loads(run("project", "query", "how do I run the tests?", "-C", tree))["mode"] == "answer"


def test_sources_and_import(tree, tmp_path, run):
    """Add, list, import, remove; a failed file gives exit code 1 and its name."""
    folder = make_sessions(tmp_path / "c", tree)
    ident = json.loads(run("project", "sources", "add", "claude-local", folder, "--json", "-C", tree))["id"]
    assert ident in run("project", "sources", "list", "-C", tree)
    assert "3 new" in run("project", "import", "--all", "-C", tree)
    assert json.loads(run("project", "import", ident, "--json", "-C", tree))[0]["known"] == 3
    (folder / "slug/bad.jsonl").write_text("nope\n")
    assert "bad.jsonl" in run("project", "import", "-C", tree, code=1)
    run("project", "sources", "remove", ident, "-C", tree)
    assert run("project", "sources", "list", "-C", tree).strip() == "No sources."


def test_prune_says_what_would_leave(tree, run):
    """A dry run and a real one."""
    assert "Would archive 0 events" in run("project", "prune", "--dry-run", "-C", tree)
    assert json.loads(run("project", "prune", "--json", "-C", tree))["batch"] is None


def test_the_runner_starts_once_and_stops(tree, run, monkeypatch):
    """M61: start, ensure-running, status, stop; a real process, one per work tree, and of ours: no module of the tree is run."""
    monkeypatch.chdir(tree)
    (tree / "cairn").mkdir()
    (tree / "cairn/__init__.py").write_text("raise SystemExit(3)\n")
    try:
        started = json.loads(run("project", "automate", "start", "--json", "-C", tree))
        assert started["started"] is True
        assert started["pid"] != os.getpid()
        again = json.loads(run("project", "automate", "ensure-running", "--json", "-C", tree))
        assert (again["started"], again["pid"]) == (False, started["pid"])
        until((tree / ".cairn/automation/latest-run.json").exists)
        assert (
            json.loads(run("project", "automate", "status", "--json", "-C", tree))["latestRun"]["status"]
            == "idle"
        )
    finally:
        run("project", "automate", "stop", "-C", tree)
    assert json.loads(run("project", "automate", "status", "--json", "-C", tree))["running"] is False


def test_run_once(tree, run):
    """One cycle from the command line."""
    open_at(tree).record("x", {"decisions": ["We chose x"]})
    assert run("project", "automate", "run-once", "-C", tree).strip() == "recalled"
    assert failures(open_at(tree)) == []
    assert state(tree)["maintenance"]["lastRecalledEventId"] == "evt-000003"


def test_bad_places_are_named(tmp_path, run):
    """A folder that is not there, and a repository without a memory."""
    assert "not a folder" in run("project", "status", "-C", tmp_path / "nowhere", code=2)
    (tmp_path / "plain").mkdir()
    assert "cairn project init" in run("project", "automate", "run-once", "-C", tmp_path / "plain", code=3)
    assert list((tmp_path / "plain").iterdir()) == []


def test_log_diff_and_restore_over_a_root(tmp_path, run):
    """The root's history from the command line: log, mark, diff, restore, and undoing the restore."""
    root = tmp_path / "root"
    root.mkdir()
    page = root / "default_app/default_project/users/ann/user.md"
    page.parent.mkdir(parents=True)
    page.write_text("---\ntype: profile\n---\nLikes tea.\n")
    assert "chk-000001" in run("log", "--mark", "start", "--root", root)
    page.write_text("---\ntype: profile\n---\nLikes coffee.\n")
    assert "-Likes tea." in run("diff", "chk-000001", "--root", root)
    assert len(json.loads(run("log", "--json", "--root", root))) == 2
    assert run("log", "--root", root).splitlines()[1::2] == [
        "      text: Likes tea. -> Likes coffee.",
        "      Likes tea.",
    ]
    assert "Would restore 1" in run("restore", "chk-000001", "--dry-run", "--root", root)
    assert "Restored 1" in run("restore", "chk-000001", "--root", root)
    assert "tea" in page.read_text()
    undo = json.loads(run("log", "--json", "--root", root))[0]["id"]
    run("restore", undo, "--root", root)
    assert "coffee" in page.read_text()
    assert "start" in run("log", "--checkpoints", "--root", root)


def test_restore_names_what_comes_back_and_what_goes_and_takes_a_label(tmp_path, run):
    """Going back before an entry was added takes it out: that is said in its words, and a checkpoint is known by its label."""
    root = tmp_path / "root"
    run("remember", "The staging host is called otter.", "--root", root)
    run("log", "--mark", "before the move", "--root", root)
    note = next((root / "default_app/default_project/shared/memories").glob("*.md"))
    note.write_text(note.read_text().replace("otter", "badger"))
    assert "+The staging host is called badger." in run("diff", "before the move", "--root", root)
    told = run("restore", "before the move", "--root", root)
    assert "Restored 1 entry." in told and "badger" in told and "otter" in told
    assert "otter" in note.read_text()
    added = json.loads(run("log", "--json", "--root", root))[-1]["id"]
    told = run("restore", added, "--dry-run", "--root", root)
    assert "Would take out what was not there then: 1 entry." in told
    assert "The staging host is called otter." in told
    assert "Took out" in run("restore", added, "--root", root)
    assert "otter" not in note.read_text()
    assert "--checkpoints" in run("restore", "no such label", "--root", root, code=2)


def test_a_pager_of_json_everywhere(tree, run):
    """Every project command offers --json."""

    def leaves(current):
        for action in current._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child in action.choices.values():
                    yield from leaves(child)
                return
        yield current

    missing = [leaf.prog for leaf in leaves(build_parser()) if "--json" not in leaf.format_help()]
    assert missing == []
    assert git(tree, "status", "--porcelain")


def test_imported_sessions_can_be_remembered_too(tree, tmp_path, run):
    """import --capture: what was said enters the memory root, in the repository's space, once."""
    run("project", "sources", "add", "claude-local", make_sessions(tmp_path / "c", tree, 2), "-C", tree)
    root = tmp_path / "root"
    for expected in ("2 new", "0 new"):
        assert expected in run("--root", root, "project", "import", "--capture", "--user", "ann", "-C", tree)
    space = open_at(tree).space
    logs = list((root / "default_app" / space.project / "sessions").rglob("*.jsonl"))
    assert len(logs) == 2
    told = "".join(log.read_text() for log in logs)
    assert told.count("Work item 0 in src/parcel/cli.py") == 1
    found = json.loads(
        run("--root", root, "--project", space.project, "search", "--user", "ann", "work item plan", "--json")
    )
    assert "Work item" in json.dumps(found)
