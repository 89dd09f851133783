"""What the history tests share: a repository in a temporary folder, a clock that is set, a project on real engines."""

from __future__ import annotations

import atexit
import functools
import json
import shutil
import subprocess
import tempfile
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.project.project import ProjectMemory

START = datetime(2026, 11, 1, 9, 0, tzinfo=UTC)


class SetClock:
    """Time that stands still until told otherwise, then moves by a millisecond per look."""

    def __init__(self, at: datetime = START) -> None:
        self.at = at

    def now(self) -> datetime:
        self.at += timedelta(milliseconds=1)
        return self.at

    def pass_days(self, days: float) -> None:
        self.at += timedelta(days=days)


def git(tree: Path, *arguments: str) -> str:
    done = subprocess.run(
        [
            "git",
            "-C",
            str(tree),
            "-c",
            "user.name=Ann",
            "-c",
            "user.email=ann@example.org",
            "-c",
            "commit.gpgsign=false",
            *arguments,
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"git {' '.join(arguments)}: {done.stdout}{done.stderr}"
    return done.stdout


def write(tree: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        path = tree / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


PYTHON_SERVICE = {
    "pyproject.toml": '[project]\nname = "parcel-tracker"\nversion = "1.0"\ndescription = "Tells customers where their parcels are."\n'
    '[project.scripts]\nparcel = "parcel.cli:main"\n',
    "uv.lock": "version = 1\n",
    "README.md": "# Parcel tracker\n\n[![ci](x.svg)](y)\n\nA small service that asks carriers for news and answers customers. "
    "It keeps the last ninety days.\n\n## Gotchas\n\n- Carrier times: the carrier sends local time without a zone because its API is old. "
    "Use `carrier.to_utc` before storing.\n- Never edit `migrations/` by hand: run `make migration` instead.\n\n"
    "## Roadmap\n\n- [ ] Retry failed webhooks\n- [x] Store UTC\n",
    "Makefile": "test:\n\tpytest\n\nlint:\n\truff check .\n",
    "src/parcel/__init__.py": '"""Parcels, carriers and the answers customers get."""\n',
    "src/parcel/cli.py": '"""The command line."""\n\n\ndef main() -> None:\n    # FIXME: exit code is always zero\n    print("hi")\n',
    "src/parcel/api/__init__.py": '"""HTTP endpoints for customers."""\n',
    "src/parcel/api/routes.py": "ROUTES = []\n" * 40,
    "src/parcel/carriers/__init__.py": "",
    "src/parcel/carriers/post.py": '"""Talks to the national post: polling, backoff, mapping of states."""\n'
    + "X = 1\n" * 200,
    "tests/test_cli.py": "def test_it():\n    assert True\n",
    ".github/workflows/ci.yml": "on:\n  push:\njobs:\n  test:\n    runs-on: x\n    steps: []\n",
}


def make_repo(tree: Path, files: dict[str, str] | None = None, *, commit: bool = True) -> Path:
    tree.mkdir(parents=True, exist_ok=True)
    git(tree, "init", "-q", "-b", "main")
    git(tree, "config", "user.name", "Ann")
    git(tree, "config", "user.email", "ann@example.org")
    write(tree, PYTHON_SERVICE if files is None else files)
    if commit:
        git(tree, "add", "-A")
        git(tree, "commit", "-q", "-m", "parcel: first version")
    return tree


def open_at(tree: Path, clock: SetClock | None = None, **parts: Any) -> ProjectMemory:
    return ProjectMemory(
        tree,
        storage=DeviceLocalBackend(tree),
        journals=FileJournals(tree),
        locks=FileLocks(tree / ".cairn" / "locks"),
        clock=clock or SetClock(),
        **parts,
    )


@functools.cache
def _template() -> Path:
    """A repository with a fresh memory, made once per process and copied for each test."""
    folder = Path(tempfile.mkdtemp(prefix="cairn-history-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    tree = make_repo(folder / "repo")
    open_at(tree).init()
    return tree


def ready_repo(tree: Path) -> Path:
    """A repository whose memory was just set up."""
    return Path(shutil.copytree(_template(), tree))


def state(tree: Path) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((tree / ".cairn/state.json").read_text())
    return value


def event_lines(tree: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line)
        for line in (tree / ".cairn/history/events.jsonl").read_text().splitlines()
        if line.strip()
    ]


def failures(project: ProjectMemory) -> list[str]:
    return [f"{f.code}: {f.message}" for f in project.validate() if f.status == "fail"]


def tree_bytes(tree: Path, *, without: tuple[str, ...] = (".git", ".cairn/locks")) -> dict[str, bytes]:
    """Every file below a folder, for "nothing was written" checks."""
    return {
        str(path.relative_to(tree)): path.read_bytes()
        for path in sorted(tree.rglob("*"))
        if path.is_file() and not str(path.relative_to(tree)).startswith(without)
    }
