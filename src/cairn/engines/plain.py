"""Opens our own small files without blocking and without following links: a pipe, link or device is refused.

Opening a pipe waits for somebody at its other end, for good; so does reading one.
"""

from __future__ import annotations

import errno
import os
import stat


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
