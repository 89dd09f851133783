"""Project memory and git: merges, work trees, submodules, repositories that are odd."""

from __future__ import annotations

import json
import os
import re
import subprocess

import pytest

from cairn.errors import Invalid, Misconfigured, NotFound, StorageFailed
from cairn.project import git as asking_git
from cairn.project.events import Event, content_hash
from tests.project_kit import (
    PYTHON_SERVICE,
    SetClock,
    event_lines,
    failures,
    git,
    make_repo,
    open_at,
    ready_repo,
    state,
    write,
)


def commit_all(tree, message):
    git(tree, "add", "-A")
    git(tree, "commit", "-q", "-m", message)


@pytest.fixture
def two_clones(tmp_path):
    """A shared repository with a memory, and two clones of it."""
    origin = tmp_path / "origin.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(origin))
    seed = ready_repo(tmp_path / "seed")
    open_at(seed).record("Set the scene", {"gotchas": ["Shared trap: known to both. Use care."]})
    open_at(seed).consolidate()
    commit_all(seed, "memory: begin")
    git(seed, "remote", "add", "origin", str(origin))
    git(seed, "push", "-q", "origin", "main")
    clones = []
    for name in ("ann", "bob"):
        git(tmp_path, "clone", "-q", str(origin), name)
        git(tmp_path / name, "config", "user.name", name)
        git(tmp_path / name, "config", "user.email", f"{name}@example.org")
        git(tmp_path / name, "config", "pull.rebase", "false")
        clones.append(tmp_path / name)
    return clones


def work(tree, clock, who):
    project = open_at(tree, clock)
    for turn in range(3):
        project.record(
            f"{who} worked, turn {turn}",
            {
                "gotchas": [f"{who} trap {turn}: found by {who} only. Use plan {turn}{who}."],
                "nextStepHints": [f"NEXT: {who} task {turn}: because"],
            },
        )
        project.consolidate()
    project.record(
        f"{who} left something unread", {"gotchas": [f"{who} late: not consolidated yet, beware."]}
    )
    commit_all(tree, f"{who}: three turns")


def test_two_clones_work_merge_and_pull_without_a_hand_step(two_clones):
    """Both clones append events and consolidate; a plain merge keeps everything and the next command puts it in order."""
    ann, bob = two_clones
    work(ann, SetClock(), "ann")
    work(bob, SetClock(), "bob")
    git(ann, "push", "-q", "origin", "main")
    git(bob, "pull", "-q", "--no-edit", "origin", "main")
    project = open_at(bob, SetClock())
    assert project.status()["problems"], "a merge leaves something to put in order"
    assert "cairn project update" in project.status()["suggestedAction"]
    told = {one.code: one.message for one in project.validate() if one.status == "fail"}
    assert all("version control" not in words for words in told.values()), told

    project.update()

    assert failures(project) == []
    events = event_lines(bob)
    numbers = [int(event["id"][4:]) for event in events]
    assert numbers == sorted(set(numbers))
    summaries = [event["summary"] for event in events]
    for who in ("ann", "bob"):
        for turn in range(3):
            assert summaries.count(f"{who} worked, turn {turn}") == 1
        assert summaries.count(f"{who} left something unread") == 1
    titles = {item["title"].lower() for item in state(bob)["bundle"]["gotchas"]}
    assert {f"{who} trap {turn}" for who in ("ann", "bob") for turn in range(3)} | {"shared trap"} <= titles
    waiting = {event.summary for event in project.record_.view().story.backlog("all")}
    assert {"ann left something unread", "bob left something unread"} <= waiting

    commit_all(bob, "bob: merged")
    git(bob, "push", "-q", "origin", "main")
    git(ann, "pull", "-q", "--no-edit", "origin", "main")
    other = open_at(ann, SetClock())
    other.consolidate()
    assert failures(other) == []
    assert {"ann late", "bob late"} <= {item["title"].lower() for item in state(ann)["bundle"]["gotchas"]}


def test_repeated_crossing_merges_never_lose_or_double_an_event(two_clones):
    """Four rounds of work on both sides, merged each time from alternating sides."""
    trees = list(two_clones)
    clocks = [SetClock(), SetClock()]
    wanted = set()
    for turn in range(4):
        for index, tree in enumerate(trees):
            summary = f"clone {index} round {turn}"
            open_at(tree, clocks[index]).record(summary, {"decisions": [f"Decision {index}.{turn} stands"]})
            wanted.add(summary)
            if (turn + index) % 2:
                open_at(tree, clocks[index]).consolidate()
            commit_all(tree, summary)
        first, second = trees if turn % 2 else trees[::-1]
        git(first, "pull", "-q", "--no-edit", "origin", "main")
        open_at(first, SetClock()).update()
        commit_all(first, "merged")
        git(first, "push", "-q", "origin", "main")
        git(second, "pull", "-q", "--no-edit", "origin", "main")
        open_at(second, SetClock()).update()
        commit_all(second, "merged too")
        git(second, "push", "-q", "origin", "main")
    git(trees[0], "pull", "-q", "--no-edit", "origin", "main")
    git(trees[1], "pull", "-q", "--no-edit", "origin", "main")
    for tree in trees:
        project = open_at(tree, SetClock())
        project.update()
        summaries = [event["summary"] for event in event_lines(tree) if event["summary"] in wanted]
        assert sorted(summaries) == sorted(wanted)
        assert failures(project) == []


def test_text_outside_the_entry_block_still_conflicts(two_clones):
    """The merge driver settles the block's hash only; two edits of one sentence stay a person's to settle."""
    ann, bob = two_clones
    for tree, line in ((ann, "Ann's rule"), (bob, "Bob's rule")):
        entry = tree / state(tree)["bundle"]["project"]["recommendedEntryFile"]
        entry.write_text(entry.read_text() + f"\n{line}\n")
        work(tree, SetClock(), line[:3].lower())
    git(ann, "push", "-q", "origin", "main")
    done = subprocess.run(
        ["git", "-C", str(bob), "pull", "-q", "--no-edit", "origin", "main"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    conflicted = git(bob, "diff", "--name-only", "--diff-filter=U").split()
    assert conflicted == [state_entry(ann)]
    text = (bob / conflicted[0]).read_text()
    assert text.count("cairn:entry version=3") == 1
    assert "Ann's rule" in text
    assert "Bob's rule" in text


def state_entry(tree):
    return state(tree)["bundle"]["project"]["recommendedEntryFile"]


@pytest.mark.parametrize("name", ["state.json", "history/events.jsonl", "page", "entry"])
def test_conflict_markers_in_generated_files_are_settled(tmp_path, name):
    """Where a merge without our attributes left its markers, the next command keeps both sides' events and mends the rest."""
    tree = make_repo(tmp_path / "repo")
    project = open_at(tree)
    project.init()
    project.record("ours", {"decisions": ["Ours stands"]})
    ours_log = (tree / ".cairn/history/events.jsonl").read_text().splitlines()
    if name == "history/events.jsonl":
        theirs = json.loads(ours_log[-1]) | {"summary": "theirs"}
        theirs["contentHash"] = content_hash(Event.from_json(theirs))
        lines = [ours_log[0], "<<<<<<< HEAD", ours_log[1], "=======", json.dumps(theirs), ">>>>>>> other"]
        (tree / ".cairn/history/events.jsonl").write_text("\n".join(lines) + "\n")
    else:
        at = {"state.json": ".cairn/state.json", "page": "docs/cairn/gotchas.md", "entry": state_entry(tree)}[
            name
        ]
        text = (tree / at).read_text()
        first = next(line for line in text.splitlines() if "undleHash" in line)
        other = first.replace(state(tree)["bundleHash"], "0" * 64)
        (tree / at).write_text(
            text.replace(first, f"<<<<<<< HEAD\n{first}\n=======\n{other}\n>>>>>>> other", 1)
        )
    project = open_at(tree)
    assert any(finding.status == "fail" for finding in project.validate())

    project.update()

    assert failures(project) == []
    summaries = [event["summary"] for event in event_lines(tree)]
    assert "ours" in summaries
    assert ("theirs" in summaries) == (name == "history/events.jsonl")
    for path in (tree / ".cairn/state.json", tree / "docs/cairn/gotchas.md", tree / state_entry(tree)):
        assert "<<<<<<<" not in path.read_text()


def test_markers_in_the_settings_are_a_named_error(tmp_path):
    """Settings are a person's: a conflict there is reported with its line, and nothing is written."""
    tree = make_repo(tmp_path / "repo")
    project = open_at(tree)
    project.init()
    at = tree / ".cairn/config.json"
    at.write_text("<<<<<<< HEAD\n" + at.read_text())
    with pytest.raises(RuntimeError, match="line 1: merge-conflict markers"):
        project.consolidate()
    assert any(finding.code == "config.invalid" for finding in project.validate())


def test_worktrees_and_clones_share_one_space(tmp_path):
    """Bound by remote where there is one, else by the shared git directory: every work tree meets in one project."""
    tree = make_repo(tmp_path / "repo")
    git(tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    assert asking_git.space_of(tree) == asking_git.space_of(tmp_path / "side")
    git(tree, "remote", "add", "origin", "git@example.org:team/parcel.git")
    by_ssh = asking_git.space_of(tree)
    git(tree, "remote", "set-url", "origin", "https://example.org/team/parcel")
    assert asking_git.space_of(tree) == by_ssh == asking_git.space_of(tmp_path / "side")
    assert by_ssh.project.startswith("team-parcel-")
    open_at(tree).init()
    git(tree, "remote", "remove", "origin")
    assert open_at(tree).space == by_ssh, "the binding is written down and outlives the remote"
    git(tree, "remote", "add", "origin", "https://example.org/elsewhere/parcel")
    assert open_at(tree).space == by_ssh, "and another one"
    assert open_at(tree).unbound is None
    open_at(tree).init(force=True)
    assert open_at(tree).space == asking_git.space_of(tree) != by_ssh, "a new start takes the remote of today"


def test_a_plain_folder_that_was_moved_is_told_how_to_take_its_space_along(tmp_path):
    """Without git there are no settings of its own to bind it by: the next step makes them, and works as it is written."""
    (tmp_path / "before").mkdir()
    (tmp_path / "before" / "README.md").write_text("# Parcel\n")
    open_at(tmp_path / "before").init()
    space = open_at(tmp_path / "before").space
    tree = (tmp_path / "before").rename(tmp_path / "after")
    told = open_at(tree).status()["unbound"]
    assert f"{space.app}/{space.project}" in told
    steps = re.findall("`(git [^`]+)`", told)
    assert [one.split()[1] for one in steps] == ["init", "config"]
    for step in steps:
        git(tree, *step.replace("APP/PROJECT", f"{space.app}/{space.project}").split()[1:])
    moved = open_at(tree.rename(tmp_path / "again"))
    assert (moved.space, moved.unbound) == (space, None)


def test_a_committed_binding_names_no_space_but_the_repositorys_own(tmp_path):
    """It may choose the place in favour of the remote; what else it says is told, and any text is borne."""
    tree = make_repo(tmp_path / "repo")
    open_at(tree).init()
    place = asking_git.space_of_place(tree)
    git(tree, "config", "--unset", "cairn.space")
    git(tree, "remote", "add", "origin", "https://example.org/team/parcel")
    assert open_at(tree).space == place, (
        "bound before there was a remote, by a version that kept it here alone"
    )
    config = tree / ".cairn" / "config.json"
    for named in ("team-other-0a1b2c3d", "../../etc", "x; touch /tmp/y", "y" * 5000):
        config.write_text(json.dumps({"binding": {"app": None, "project": named}}))
        project = open_at(tree)
        assert project.spaces == [asking_git.space_of(tree), place]
        assert project.status()["unbound"] == project.unbound
        assert len(project.unbound) < 500
        assert ("warn", "config.binding") in [(one.status, one.code) for one in project.validate()]
    git(tree, "config", "cairn.space", "default/no such name")
    with pytest.raises(Misconfigured, match=r"cairn\.space"):
        _ = open_at(tree).space


def test_a_worktree_has_a_working_memory(tmp_path):
    """init, record, consolidate and validate work in a linked work tree, whose .git is a file."""
    tree = make_repo(tmp_path / "repo")
    git(tree, "worktree", "add", "-q", "-b", "side", str(tmp_path / "side"))
    project = open_at(asking_git.top_of(tmp_path / "side" / "src"))
    project.init()
    project.record("Side work", {"decisions": ["Sidecar instead of a thread"]})
    project.consolidate()
    assert failures(project) == []


def test_a_repository_without_commits(tmp_path):
    """No commit yet: the bundle is built from the files."""
    tree = make_repo(tmp_path / "new", commit=False)
    project = open_at(tree)
    project.init()
    assert failures(project) == []
    assert "No commits yet" in state(tree)["bundle"]["currentFocus"]["summary"]


def test_a_plain_folder(tmp_path):
    """No git at all: everything works."""
    write(tmp_path / "plain", PYTHON_SERVICE)
    project = open_at(tmp_path / "plain")
    project.init()
    project.record("Looked around", {"decisions": ["We will use folders"]})
    project.consolidate()
    assert failures(project) == []
    assert any("FIXME" in step["why"] for step in state(tmp_path / "plain")["bundle"]["nextSteps"])


def test_submodules_huge_and_binary_files_are_not_read(tmp_path):
    """A submodule is named and left alone; a binary and a huge file do not disturb."""
    library = make_repo(tmp_path / "library", {"lib.py": "X = 1\n"})
    tree = make_repo(tmp_path / "repo")
    git(tree, "-c", "protocol.file.allow=always", "submodule", "add", "-q", str(library), "third/library")
    (tree / "blob.py").write_bytes(b"\0\1\2" * 1000)
    commit_all(tree, "odd files")
    for name in ("huge.md", "huge.py"):
        with (tree / name).open("wb") as handle:
            handle.truncate(3_000_000_000)
    project = open_at(tree)
    project.init()
    notes = state(tree)["bundle"]["projectMap"]["architectureNotes"]
    assert any("third/library" in note for note in notes)
    assert failures(project) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_folder_is_a_named_error(tmp_path):
    """init in a folder that cannot be written raises StorageFailed and leaves nothing."""
    tree = make_repo(tmp_path / "repo")
    tree.chmod(0o555)
    try:
        with pytest.raises(StorageFailed):
            open_at(tree).init()
    finally:
        tree.chmod(0o755)
    assert not (tree / "docs").exists()


def test_asking_before_init_says_what_to_do(tmp_path):
    """Every command but init names the missing memory and the next step; nothing is created."""
    tree = make_repo(tmp_path / "repo")
    project = open_at(tree)
    for call in (
        project.update,
        project.status,
        project.consolidate,
        lambda: project.query("what is it"),
        lambda: project.record("x"),
    ):
        with pytest.raises(NotFound, match="cairn project init"):
            call()
    assert not (tree / ".cairn/state.json").exists()


def test_a_linked_entry_file_is_passed_over(tmp_path):
    """AGENTS.md as a link to CLAUDE.md: the block goes into the file behind it."""
    tree = make_repo(tmp_path / "repo", {"CLAUDE.md": "# Rules\n\nBe kind.\n", "a.py": "A = 1\n"})
    (tree / "AGENTS.md").symlink_to("CLAUDE.md")
    open_at(tree).init()
    assert "cairn:entry" in (tree / "CLAUDE.md").read_text()
    assert (tree / "AGENTS.md").is_symlink()


def test_bad_source_type_is_refused(tmp_path):
    """An unknown source type names the known ones."""
    tree = make_repo(tmp_path / "repo")
    project = open_at(tree)
    project.init()
    with pytest.raises(Invalid, match="claude-local"):
        project.add_source("floppy", tmp_path)


def test_a_manifest_that_is_nested_too_deeply_tells_nothing(tmp_path):
    """A repository's own files may be hostile: one that cannot be read costs its evidence alone."""
    tree = ready_repo(tmp_path / "repo")
    for name, deep in (("pyproject.toml", "x = " + "[" * 100_000), ("package.json", '{"x":' * 100_000)):
        (tree / name).write_text(deep)
    git(tree, "add", ".")
    git(tree, "commit", "-qm", "deep")
    assert open_at(tree).update() is not None
