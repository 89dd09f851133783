"""Locks as `flock` on empty files: held by an open file, so a dead process lets go at once.

Each name has a file in one directory. A thread first takes the name inside its process, then the file against
other processes. After a lock is had, the file is looked up again: if it was swept or its directory removed
meanwhile, another may lock a new file of that name, so the lock is taken anew. Whoever waits says so in the mode of the
file; who comes later and finds the lock free lets go of it once, so that a busy process keeps nobody out.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import random
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field

from cairn.engines.tree import is_at, translating
from cairn.errors import Invalid, Unavailable

_FIRST_NAP = 0.0005
_LONGEST_NAP = 0.004
_COURTESY_NAP = 2 * _LONGEST_NAP
_WANTED = stat.S_IXUSR
_TOUCH_SECONDS = 3600.0  # how long the time of a file in use may stand still; `sweep` counts in days


class FileLocks:
    """`Locks` in a directory of this machine (never inside a synced folder, never in `.index/`).

    Not reentrant: a thread that asks again for a name it holds gets an error instead of a deadlock. Should the
    directory be removed while a lock is held, it is made anew; the holder keeps working, but newcomers cannot
    see it. Compare-and-swap on write still stands between the two.
    """

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._directory = os.path.abspath(os.path.expanduser(os.fspath(directory)))
        self._names: dict[str, _Name] = {}
        self._guard = threading.Lock()
        self._pid = os.getpid()

    @contextmanager
    def hold(self, name: str, *, timeout: float = 30.0) -> Iterator[None]:
        with self._held(name, time.monotonic() + timeout) as is_held:
            if not is_held:
                raise Unavailable(
                    f'The lock "{name}" was not free within {timeout:g} s: another process is at work there. Try again.',
                    name=name,
                )
            yield

    def lease(self, name: str) -> AbstractContextManager[bool]:
        return self._held(name, 0.0)

    @contextmanager
    def _held(self, name: str, until: float) -> Iterator[bool]:
        """Take the name from other threads, then its file from other processes; whether both were had by `until`."""
        if not isinstance(name, str) or not name:
            raise Invalid("A lock needs a name.", name=name)
        if self._pid != os.getpid():
            # After a fork the parent's threads, and the locks they hold, are not here.
            self._names, self._guard, self._pid = {}, threading.Lock(), os.getpid()
        with self._guard:
            mine = self._names.setdefault(name, _Name())
            mine.users += 1
        try:
            if until and mine.owner == threading.get_ident():
                raise Invalid(
                    f'The lock "{name}" is already held by this thread; locks do not nest.', name=name
                )
            if not mine.lock.acquire(timeout=max(until - time.monotonic(), 0)):
                yield False
                return
            file = None
            mine.owner = threading.get_ident()
            try:
                file = self._take(name, until)
                yield file is not None
            finally:
                if file is not None:
                    _release(file)
                mine.owner = 0
                mine.lock.release()
        finally:
            with self._guard:
                mine.users -= 1
                if not mine.users:
                    self._names.pop(name, None)

    def sweep(self, older_than_seconds: float = 86_400.0) -> int:
        """Remove lock files that nobody has taken for a while and nobody holds; say how many."""
        removed = 0
        with suppress(FileNotFoundError), os.scandir(self._directory) as found:
            for entry in found:
                with suppress(OSError):
                    if (
                        not entry.name.endswith(".lock")
                        or time.time() - entry.stat().st_mtime < older_than_seconds
                    ):
                        continue
                    file = os.open(entry.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                    try:
                        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                        os.unlink(entry.path)
                        removed += 1
                    finally:
                        os.close(file)
        return removed

    def _take(self, name: str, until: float) -> int | None:
        """The locked file, or None once `until` has passed. It is tried at least once."""
        path = os.path.join(self._directory, hashlib.sha256(name.encode("utf-8")).hexdigest()[:32] + ".lock")
        nap = _FIRST_NAP
        has_waited = time.monotonic() >= until  # who cannot wait, waits for nobody
        while True:
            is_left = False
            with translating(f'lock "{name}"'):
                file = self._open(path)
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    opened = os.fstat(file)
                    if not is_at(opened, path):
                        os.close(file)
                        continue
                    if opened.st_mode & _WANTED:
                        os.fchmod(file, 0o600)  # whoever still waits says so again
                    if has_waited or not opened.st_mode & _WANTED:
                        if time.time() - opened.st_mtime > _TOUCH_SECONDS:
                            os.utime(file)
                        return file
                    is_left = True
                    _release(file)
                except BlockingIOError:
                    if until:
                        with suppress(OSError):
                            os.fchmod(file, 0o600 | _WANTED)
                    os.close(file)
                except BaseException:
                    os.close(file)
                    raise
            if not is_left and time.monotonic() >= until:
                return None
            has_waited = True
            time.sleep(_COURTESY_NAP if is_left else nap * random.uniform(0.5, 1.0))
            nap = min(nap * 1.5, _LONGEST_NAP)

    def _open(self, path: str) -> int:
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(self._directory, mode=0o700, exist_ok=True)
            return os.open(path, flags, 0o600)


@dataclass(slots=True, eq=False)
class _Name:
    lock: threading.Lock = field(default_factory=threading.Lock)
    owner: int = 0
    users: int = 0


def _release(file: int) -> None:
    # Unlock before closing: a forked child may share the descriptor.
    with suppress(OSError):
        fcntl.flock(file, fcntl.LOCK_UN)
    os.close(file)
