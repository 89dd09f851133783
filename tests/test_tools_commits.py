"""E9: commit messages: the rule, where it begins, and where there is nothing to check."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from tools.check_commits import commits_since, git, main

ROOT = Path(__file__).parent.parent
GOOD = "feat(notes): keep superseded text readable\n\nA reader may want to know what stood there."


def lint(message: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "gitlint.cli", "--config", str(ROOT / ".gitlint"), "--target", str(ROOT)],
        input=message,
        capture_output=True,
        text=True,
        cwd=ROOT,
    )


@pytest.mark.parametrize(
    "message",
    [
        GOOD,
        "fix: answer nothing rather than junk\n\nWhat does not fit only misleads.",
        "refactor(engines)!: one seam\n\nTwo had grown apart without anybody noticing.",
        "Merge branch 'x'",
    ],
)
def test_good_messages_pass(message):
    """Conventional Commits with a reason, and merges."""
    done = lint(message)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("fixed stuff\n\nThis is a long enough reason.", "CT1"),
        ("notes: not a type of the list\n\nThis is a long enough reason.", "CT1"),
        ("feat: " + "x" * 70 + "\n\nThis is a long enough reason.", "T1"),
        ("feat: ends with a stop.\n\nThis is a long enough reason.", "T3"),
        ("feat: fine\nno blank line here, only a reason", "B4"),
        ("feat: no reason", "B6"),
    ],
)
def test_bad_messages_are_named(message, part):
    """Each kind of trouble has its code."""
    done = lint(message)
    assert done.returncode != 0
    assert part in done.stderr


@pytest.fixture
def clone(tmp_path):
    """A repository whose second commit brings the rule; gives a function that commits."""
    folder = tmp_path / "clone"
    folder.mkdir()

    def commit(message: str, name: str = "file") -> str:
        if name == ".gitlint":
            shutil.copy(ROOT / ".gitlint", folder)
        else:
            (folder / name).write_text(message)
        as_someone = ("-c", "user.name=a", "-c", "user.email=a@example.org")
        assert git(folder, "add", "-A") is not None
        assert git(folder, *as_someone, "commit", "--no-verify", "-m", message) is not None
        return git(folder, "rev-parse", "HEAD") or ""

    assert git(folder, "init", "-b", "main") is not None
    commit("from before the rule")
    return folder, commit


def test_the_rule_holds_from_its_own_commit_on(clone):
    """What was before is left alone; the commit that brings the rule is the first to follow it."""
    folder, commit = clone
    assert commits_since(folder) == [], "no rule yet"
    began = commit(GOOD, ".gitlint")
    later = commit(GOOD.replace("keep", "show"))
    assert commits_since(folder) == [began, later]
    assert main(["x", str(folder)]) == 0


def test_a_bad_message_is_found_and_named(clone, capfd):
    """Somewhere in the middle is enough."""
    folder, commit = clone
    commit(GOOD, ".gitlint")
    bad = commit("did things")
    commit(GOOD.replace("keep", "show"))
    assert main(["x", str(folder)]) == 1
    assert bad[:10] in capfd.readouterr().err


def test_a_shallow_clone_is_checked_as_far_as_it_goes(clone, tmp_path):
    """The oldest commit of a shallow clone may be from before the rule; the others are known."""
    folder, commit = clone
    commit(GOOD, ".gitlint")
    commit("did things")
    last = commit(GOOD.replace("keep", "show"))
    for depth, known in ((1, []), (2, [last])):
        shallow = tmp_path / f"shallow{depth}"
        assert git(tmp_path, "clone", "--depth", str(depth), f"file://{folder}", str(shallow)) is not None
        assert commits_since(shallow) == known
        assert main(["x", str(shallow)]) == 0


def test_outside_a_clone_there_is_nothing_to_check(tmp_path, clone):
    """An unpacked archive, and a copy of the tree that lies inside somebody else's repository."""
    assert main(["x", str(tmp_path)]) == 0
    inner = clone[0] / "vendored"
    inner.mkdir()
    shutil.copy(ROOT / ".gitlint", inner)
    assert main(["x", str(inner)]) == 0


def test_make_lint_runs_it_and_the_hooks_pin_what_the_lock_has():
    """The hook and `make lint` judge alike: the same versions of ruff and gitlint, from the package index."""
    assert "tools/check_commits.py" in (ROOT / "Makefile").read_text()
    locked = dict(
        line.split(" ")[0].split("==")
        for line in (ROOT / "requirements.lock").read_text().splitlines()
        if "==" in line and not line.startswith((" ", "#"))
    )
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text())
    assert [repo["repo"] for repo in config["repos"]] == ["local"]
    needed = {
        pin
        for repo in config["repos"]
        for hook in repo["hooks"]
        for pin in hook.get("additional_dependencies", ())
    }
    assert needed == {f"{name}=={locked[name]}" for name in ("ruff", "gitlint-core", "pre-commit-hooks")}
