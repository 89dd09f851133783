"""Reads and replaces our own small files without blocking and without following links: a pipe, link or device is refused.

Opening a pipe waits for somebody at its other end, for good; so does reading one. What is put in place was written beside it
first, under a name that a sweep of temporary files knows, should its writer be killed.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress


def opened(path: str | os.PathLike[str], flags: int = os.O_RDONLY) -> int:
    """A handle of the plain file at `path`.

    Raises:
        OSError: there is none, or something else stands there.
    """
    file = os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, 0o600)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise OSError(errno.EINVAL, "no plain file", os.fspath(path))
    return file


def read(path: str | os.PathLike[str]) -> bytes:
    """All of the plain file at `path`; raises as `opened` does."""
    with open(opened(path), "rb") as file:
        return file.read()


def put(path: str | os.PathLike[str], data: bytes, mode: int = 0o600) -> None:
    """Have `path` hold `data`, whole and on the disk, or what it held before; its folder is there."""
    folder, name = os.path.split(path)
    beside = os.path.join(folder, f".{name}.tmp.{os.urandom(16).hex()}")
    try:
        with open(opened(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            file.flush()
            os.fchmod(file.fileno(), mode)
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise
