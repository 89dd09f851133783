"""Check the messages of all commits since the rule began: the commit that brought `.gitlint`, and those after it.

Outside a clone (an unpacked archive, a copy of the tree) there is nothing to check. In a shallow clone the oldest
commit cannot be told from the one that began, so the check starts after it. Exit 0 when all is well, 1 with each
trouble named by gitlint.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

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


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).parent.parent
    commits = commits_since(root)
    if not commits:
        return 0
    command = [sys.executable, "-m", "gitlint.cli", "--ignore-stdin", "--config", RULES]
    # A lone name after --commits would mean everything that leads to it.
    which = ("--commit", commits[0]) if len(commits) == 1 else ("--commits", ",".join(commits))
    return 1 if subprocess.run([*command, *which], cwd=root).returncode else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
