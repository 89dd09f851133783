"""Check the messages of all commits since the rule began: the commit that brought `.gitlint`, and those after it.

Outside a clone (an unpacked archive, a copy of the tree) there is nothing to check. In a shallow clone the oldest
commit cannot be told from the one that began, so the check starts after it. Exit 0 when all is well, 1 with each
trouble named by gitlint.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from gitlint.config import LintConfigBuilder
from gitlint.git import GitContext
from gitlint.lint import GitLinter

RULES = ".gitlint"


def git(root: Path, *words: str) -> str | None:
    """What git answers in `root`, or None where it refuses or is not there."""
    # Inside a hook git names its own folders in the environment; this is about `root`.
    clean = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    try:
        done = subprocess.run(["git", *words], cwd=root, env=clean, capture_output=True, text=True)
    except FileNotFoundError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commits_since(root: Path) -> list[str]:
    """The commits under the rule, oldest first; none where there is no history of `root` itself."""
    top = git(root, "rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != root.resolve():
        return []
    added = (git(root, "log", "--diff-filter=A", "--format=%H", "--", RULES) or "").split()
    if not added:
        return []
    began = added[-1]
    later = (git(root, "rev-list", "--reverse", "--no-merges", f"{began}..HEAD") or "").split()
    is_known = git(root, "rev-parse", "--verify", "--quiet", f"{began}^") is not None
    return [*([began] if is_known else []), *later]


def messages(root: Path, commits: list[str]) -> Iterator[tuple[str, str]]:
    """Each commit's name and message, read from git in one call."""
    command = ["git", "log", "--stdin", "--no-walk=unsorted", "-z", "--format=%H%n%B"]
    told = subprocess.run(
        command, cwd=root, input="\n".join(commits), capture_output=True, text=True, check=True
    )
    for record in told.stdout.split("\0"):
        name, _, message = record.partition("\n")
        if name:
            yield name, message


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).parent.parent
    commits = commits_since(root)
    if not commits:
        return 0
    builder = LintConfigBuilder()
    builder.set_from_config_file(str(root / RULES))
    linter = GitLinter(builder.build())
    failed = False
    for name, message in messages(root, commits):
        found = linter.lint(GitContext.from_commit_msg(message).commits[0])
        if found:
            print(f"Commit {name[:10]}:", file=sys.stderr)
            linter.print_violations(found)
            failed = True
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
