"""What git can tell about a work tree, by asking the `git` program. A plain folder answers "nothing".

A repository's own settings can name programs for git to run, and its author may be anybody: every call passes
through `git`, which overrules each such setting, refuses every transport and leaves out the variables that would
point git elsewhere.
"""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from cairn.config import inherited
from cairn.errors import Invalid, Misconfigured
from cairn.types import Space, checked_id

BOUND = "cairn.space"  # the setting of a clone that says which space of the memory root is its own
WAS = "cairn.was"  # the settings of a clone that name each space its talk went to
_TIMEOUT = 20.0
# The command line wins over every file, included ones too. Filters, textconv and external diffs have names of the
# repository's choice and cannot be overruled here: no command below looks at content in a way that runs them.
_OVERRULED = (
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "core.pager=cat",
    "core.editor=false",
    "core.sshCommand=false",
    "core.gitProxy=false",
    "core.askPass=false",
    "core.alternateRefsCommand=:",
    "core.attributesFile=/dev/null",
    "credential.helper=",
    "diff.external=",
    "interactive.diffFilter=false",
    "log.showSignature=false",
    "gpg.program=false",
    "gpg.ssh.program=false",
    "gpg.x509.program=false",
    "protocol.allow=never",
    "safe.bareRepository=explicit",
    "submodule.recurse=false",
    "color.ui=false",
)
_CALL = ("git", "--no-pager", "--no-optional-locks", *(word for line in _OVERRULED for word in ("-c", line)))
# Who runs us may say where their own settings lie; a hook's GIT_DIR or a GIT_SSH would lead git astray.
_KEPT = frozenset({"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", "GIT_EXEC_PATH"})
_SAFE = {
    "GIT_ALLOW_PROTOCOL": "none",  # wins over protocol.<name>.allow, which a repository may set
    "GIT_NO_LAZY_FETCH": "1",  # a partial clone fetches what it lacks by the remote's own program
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_ATTR_NOSYSTEM": "1",
}


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
            [*_CALL, "-C", str(tree), *arguments],
            env={**inherited(without="GIT_", but=_KEPT), **_SAFE},
            capture_output=True,
            timeout=_TIMEOUT,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else None


def top_of(folder: Path) -> Path:
    """The work tree `folder` belongs to, or `folder` itself where there is no git.

    A repository can name any folder its work tree (`core.worktree`); one without a `.git` is not believed.
    """
    top = (git(folder, "rev-parse", "--show-toplevel") or "").strip()
    return Path(top) if top and os.path.lexists(os.path.join(top, ".git")) else folder.absolute()


def git_dir_around(folder: Path) -> Path | None:
    """The bare repository or git directory that `folder` is in, by what lies there: git is not to look into one by itself."""
    parts = ("HEAD", "objects", "refs")
    around = (folder, *folder.parents)
    return next((one for one in around if all((one / part).exists() for part in parts)), None)


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
    if not remote:
        return space_of_place(tree)
    bare = re.sub(r"^[a-z+]+://", "", remote.strip(), flags=re.IGNORECASE)
    bare = re.sub(r"^[^@/]*@", "", bare).removesuffix("/").removesuffix(".git").lower()
    seed = re.sub(r":(?!\d+/)", "/", bare)
    return _space("-".join(seed.split("/")[-2:]), seed)


def space_of_place(tree: Path) -> Space:
    """The app and project by the place alone: those of a repository before it had a remote."""
    shared = common_dir(tree)
    name = (shared.parent if shared and shared.name == ".git" else tree).name
    return _space(name, str(shared or tree.resolve()))


def _space(name: str, seed: str) -> Space:
    slug = re.sub(r"[^a-z0-9_.-]+", "-", name.lower()).strip("-.") or "project"
    suffix = hashlib.sha256(seed.encode("utf-8")).hexdigest()[:8]
    return Space("default", checked_id(f"{slug[:80]}-{suffix}", "project_id"))


def bound_space(tree: Path) -> Space | None:
    """The space this clone is bound to on this machine: by its own git settings, which no commit reaches."""
    try:
        return _named_space(git(tree, "config", "--local", "--get", BOUND) or "")
    except Invalid as error:
        raise Misconfigured(f"{BOUND} in the git settings of {tree}: {error}", setting=BOUND) from None


def spaces_before(tree: Path) -> list[Space]:
    """The spaces that talk in this clone went to, as `keep_name` noted them: a remote is renamed, a folder moved."""
    found = []
    for line in (git(tree, "config", "--local", "--get-all", WAS) or "").splitlines():
        with suppress(Invalid):
            found.append(_named_space(line))
    return [one for one in found if one is not None]


def keep_name(tree: Path, space: Space) -> None:
    """Note in the clone's own git settings that its talk goes to `space`."""
    if _has_settings(tree) and space not in spaces_before(tree):
        git(tree, "config", "--local", "--add", WAS, str(space))


def _named_space(text: str) -> Space | None:
    app, _, project = text.strip().partition("/")
    return Space(app, project) if project else None


def bind(tree: Path, space: Space) -> None:
    """Let this clone keep `space`, whatever becomes of its remote or place; where there is no git, nothing is kept."""
    if _has_settings(tree) and bound_space(tree) != space:
        git(tree, "config", "--local", BOUND, str(space))


def _has_settings(tree: Path) -> bool:
    """Whether the clone has git settings of its own to write to; a link would lead to somebody else's."""
    shared = common_dir(tree)
    return shared is not None and not (shared / "config").is_symlink()


def tracked_files(tree: Path) -> list[str] | None:
    """Files git tracks or would add, relative to `tree`, submodule contents left out; None without git."""
    out = git(tree, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--deduplicate")
    if out is None:
        return None
    return [name for name in out.split("\0") if name]


def is_tracked(tree: Path, name: str) -> bool:
    """Whether git has the file in its index: then it came, or will go, with the repository."""
    return git(tree, "ls-files", "--error-unmatch", "--", f":(literal){name}") is not None


def recent_commits(tree: Path, limit: int = 60) -> list[Commit]:
    """The newest commits with the files they touched, newest first; [] in a repository without any."""
    fields = "%x1e%H%x1f%cI%x1f%s%x1f%b%x1f"
    ask = (
        "log",
        f"-{limit}",
        "--no-merges",
        "--name-only",
        "--no-ext-diff",
        "--no-textconv",
        f"--format={fields}",
    )
    # Following renames needs the files themselves, which a partial clone may lack and which are not fetched.
    out = git(tree, *ask, "-M") or git(tree, *ask, "--no-renames")
    commits = []
    for record in (out or "").split("\x1e")[1:]:
        parts = record.split("\x1f")
        if len(parts) < 5:
            continue
        files = tuple(line for line in parts[4].splitlines() if line.strip())
        commits.append(Commit(parts[0], parts[1], parts[2].strip(), parts[3].strip(), files))
    return commits


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
    if shared is None or not _has_settings(tree):
        return
    if (git(tree, "config", "--local", "merge.cairn-entry.driver") or "").rstrip("\n") != _DRIVER:
        git(tree, "config", "--local", "merge.cairn-entry.name", "keep one Cairn entry block")
        git(tree, "config", "--local", "merge.cairn-entry.driver", _DRIVER)
    attributes = shared / "info" / "attributes"
    if attributes.is_symlink() or attributes.parent.is_symlink():
        return  # what a link points to is no part of this repository
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
