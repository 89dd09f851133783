"""What git can tell about a work tree, by asking the `git` program. A plain folder answers "nothing"."""

from __future__ import annotations

import hashlib
import re
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cairn.types import Space, checked_id

_TIMEOUT = 20.0


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit of the recent past."""

    hash: str
    at: str
    subject: str
    body: str
    files: tuple[str, ...]


def git(tree: Path, *arguments: str) -> str | None:
    """The output of a git command in `tree`, or None where it fails or git is missing."""
    try:
        done = subprocess.run(
            ["git", "-C", str(tree), *arguments],
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def top_of(folder: Path) -> Path:
    """The work tree `folder` belongs to, or `folder` itself where there is no git."""
    top = git(folder, "rev-parse", "--show-toplevel")
    return Path(top.strip()) if top and top.strip() else folder.absolute()


def common_dir(tree: Path) -> Path | None:
    """The git directory all work trees of a repository share."""
    out = git(tree, "rev-parse", "--git-common-dir")
    if not out:
        return None
    path = Path(out.strip())
    return path if path.is_absolute() else (tree / path).resolve()


def remote_of(tree: Path) -> str | None:
    """The URL of `origin`, or of the first remote."""
    names = (git(tree, "remote") or "").split()
    if not names:
        return None
    url = git(tree, "remote", "get-url", "origin" if "origin" in names else names[0])
    return url.strip() or None if url else None


def space_of(tree: Path) -> Space:
    """The app and project of the memory root that belong to this repository.

    By the remote where there is one, so that every clone, work tree and branch meets in the same space; by
    the place of the shared git directory (or of the folder) otherwise.
    """
    remote = remote_of(tree)
    if remote:
        bare = re.sub(r"^[a-z+]+://", "", remote.strip(), flags=re.IGNORECASE)
        bare = re.sub(r"^[^@/]*@", "", bare).removesuffix("/").removesuffix(".git").lower()
        seed = re.sub(r":(?!\d+/)", "/", bare)
        name = "-".join(seed.split("/")[-2:])
    else:
        shared = common_dir(tree)
        seed = str(shared or tree.resolve())
        name = (shared.parent if shared and shared.name == ".git" else tree).name
    slug = re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-.") or "project"
    suffix = hashlib.sha256(seed.encode("utf-8")).hexdigest()[:8]
    return Space("default", checked_id(f"{slug[:80]}-{suffix}", "project_id"))


def tracked_files(tree: Path) -> list[str] | None:
    """Files git tracks or would add, relative to `tree`, submodule contents left out; None without git."""
    out = git(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    if out is None:
        return None
    return [name for name in out.split("\0") if name]


def recent_commits(tree: Path, limit: int = 60) -> list[Commit]:
    """The newest commits with the files they touched, newest first; [] in a repository without any."""
    fields = "%x1e%H%x1f%cI%x1f%s%x1f%b%x1f"
    out = git(tree, "log", f"-{limit}", "--no-merges", "--name-only", "-M", f"--format={fields}")
    commits = []
    for record in (out or "").split("\x1e")[1:]:
        parts = record.split("\x1f")
        if len(parts) < 5:
            continue
        files = tuple(line for line in parts[4].splitlines() if line.strip())
        commits.append(Commit(parts[0], parts[1], parts[2].strip(), parts[3].strip(), files))
    return commits


def branch_of(tree: Path) -> str | None:
    """The branch checked out, or None on a detached head or without git."""
    name = git(tree, "symbolic-ref", "--quiet", "--short", "HEAD")
    return name.strip() or None if name else None


# Text outside the block merges as ever; only the hash in the block's first line is taken from our side. Plain
# shell, so that a merge works where Cairn is not on the PATH.
_DRIVER = (
    "sh -c '"
    'h=$(grep -m1 "^<!-- cairn:entry version=.* start -->" "$2"); '
    'if [ -n "$h" ]; then for f in "$1" "$3"; do '
    'sed "s/^<!-- cairn:entry version=.* start -->/$h/" "$f" > "$f.cairn" && cat "$f.cairn" > "$f"; rm -f "$f.cairn"; '
    "done; fi; "
    'git merge-file -L ours -L base -L theirs "$2" "$1" "$3"'
    "' cairn-merge %O %A %B"
)


def ease_merges(tree: Path, entry_files: Sequence[str]) -> None:
    """Let this clone merge the entry block without a conflict: a merge driver in its own git settings.

    Nothing committed changes; a clone without the driver meets an ordinary one-line conflict at worst.
    """
    shared = common_dir(tree)
    if shared is None:
        return
    if (git(tree, "config", "--local", "merge.cairn-entry.driver") or "").rstrip("\n") != _DRIVER:
        git(tree, "config", "--local", "merge.cairn-entry.name", "keep one Cairn entry block")
        git(tree, "config", "--local", "merge.cairn-entry.driver", _DRIVER)
    attributes = shared / "info" / "attributes"
    try:
        text = attributes.read_text(encoding="utf-8") if attributes.exists() else ""
        missing = [
            f"/{name} merge=cairn-entry" for name in entry_files if f"/{name} merge=cairn-entry" not in text
        ]
        if missing:
            attributes.parent.mkdir(parents=True, exist_ok=True)
            lines = [text.rstrip("\n"), *missing] if text.strip() else missing
            attributes.write_text("\n".join(lines) + "\n", encoding="utf-8")
    except OSError:
        return
