"""Searches every byte below some folders for words, for the final check of `forget`.

Nothing is followed and nothing is opened that is not a plain file. Pieces overlap, so that words are found where
two of them meet. Databases are read by another process: a process that closes any handle of a file gives up all its
locks on it, so others would take a database that is open here for one that nobody uses, and shorten its log under us.
"""

from __future__ import annotations

import os
import pickle
import stat
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_PIECE = 4 * 1024 * 1024
_OVERLAP = 128 * 1024
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_DATABASES = (".db", ".db-wal", ".db-shm")


def pieces(folders: Sequence[tuple[str, Path]]) -> Iterator[tuple[str, bytes | None]]:
    """(path, bytes) of every file below `folders`, and (path, b"") of every folder; None for what cannot be read.

    Each folder comes with what its paths are to begin with. What vanishes meanwhile holds nothing.
    """
    databases: dict[str, str] = {}
    for name, folder in folders:
        yield from _below(name, folder, databases)
    yield from _apart(databases)


def size_of(folder: Path) -> int:
    """The bytes of every file below `folder`; what vanishes meanwhile counts nothing."""
    total = 0
    for base, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                total += os.lstat(os.path.join(base, name)).st_size
    return total


def _below(name: str, folder: Path, databases: dict[str, str]) -> Iterator[tuple[str, bytes | None]]:
    try:
        found = sorted(os.scandir(folder), key=lambda one: one.name)
    except FileNotFoundError:
        return
    except OSError:
        yield name or ".", None
        return
    for one in found:
        path = f"{name}/{one.name}" if name else one.name
        if one.is_dir(follow_symlinks=False):
            yield path, b""
            yield from _below(path, folder / one.name, databases)
        elif one.name.endswith(_DATABASES):
            databases[path] = one.path
        elif one.is_file(follow_symlinks=False):
            yield from _of_file(path, one.path)
        else:
            yield path, b""


def _of_file(path: str, real: str) -> Iterator[tuple[str, bytes | None]]:
    try:
        with open(os.open(real, _FILE), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return
            piece = file.read(_PIECE)
            yield path, piece
            while more := file.read(_PIECE):
                piece = piece[-_OVERLAP:] + more
                yield path, piece
    except FileNotFoundError:
        return
    except OSError:
        yield path, None


def _apart(files: dict[str, str]) -> Iterator[tuple[str, bytes | None]]:
    """The pieces of `files`, real paths by the names to tell, as another process reads them."""
    if not files:
        return
    command = [
        sys.executable,
        "-P",
        "-m",
        "cairn.engines.bytescan",
        *(one for pair in files.items() for one in pair),
    ]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as reader:
        assert reader.stdout is not None
        with suppress(EOFError):
            while True:
                yield pickle.load(reader.stdout)  # noqa: S301 -- our own process
    if reader.returncode:
        yield ", ".join(files), None


if __name__ == "__main__":
    for _path, _real in zip(sys.argv[1::2], sys.argv[2::2], strict=True):
        for _piece in _of_file(_path, _real):
            pickle.dump(_piece, sys.stdout.buffer)
