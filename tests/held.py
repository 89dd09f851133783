"""Which files hold some words. Another process reads them: one that closes a database gives up its locks on it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def holding(root: Path, words: str, *, pattern: bool = False) -> list[str]:
    """The files below `root` that hold `words` in their bytes, and what has them in its path."""
    look = ["grep", "-rlaZE" if pattern else "-rlaZF", "-e", words, "--", "."]
    found = subprocess.run(look, cwd=root, capture_output=True, env={**os.environ, "LC_ALL": "C"})
    assert found.returncode in {0, 1, 2}, found.stderr  # 2: something vanished meanwhile
    names = ["-zE" if pattern else "-zF", "-e", words]
    paths = "".join(f"{at.relative_to(root)}\0" for at in root.rglob("*"))
    named = subprocess.run(
        ["grep", *names], input=os.fsencode(paths), capture_output=True, env={**os.environ, "LC_ALL": "C"}
    )
    held = [one.removeprefix(b"./") for one in found.stdout.split(b"\0")]
    return sorted({os.fsdecode(one) for one in [*held, *named.stdout.split(b"\0")] if one})
