"""Storage and locks in dictionaries: the reference for engine writers and the double for tests.

They keep the promises of the seams word for word, except that nothing survives the process.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager

from cairn.engines.refusals import check_beside, check_expected, encoded, folder_at, nothing_at
from cairn.errors import Invalid, Unavailable
from cairn.seams import Capabilities, Info, Locator, StorageBackend, checked_new_name

__all__ = ["InMemoryBackend", "InMemoryLocks"]


class InMemoryBackend(StorageBackend):
    """Text by key. Safe with many writers because they share one lock, and gone with the process."""

    extensions = frozenset({"expect", "remove"})

    def __init__(self) -> None:
        self._files: dict[str, tuple[bytes, int]] = {}
        self._dirs: dict[str, int] = {"": time.time_ns()}
        self._lock = threading.RLock()

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=True)

    def read(self, locator: Locator) -> str:
        with self._lock:
            if locator.key in self._dirs:
                raise folder_at(locator.key)
            return self._file(locator)[0].decode("utf-8")

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        data = encoded(locator.key, content)
        with self._lock:
            if locator.key in self._dirs:
                raise folder_at(locator.key)
            check_expected(locator.key, expect, self._files.get(locator.key, (None,))[0])
            self._check_new(locator)
            self.mkdir(locator.parent)
            self._files[locator.key] = (data, time.time_ns())
        return locator

    def list(self, locator: Locator) -> list[Locator]:
        with self._lock:
            keys = [
                key for key in (*self._files, *self._dirs) if key and key.rpartition("/")[0] == locator.key
            ]
        return [Locator(key) for key in sorted(keys)]

    def exists(self, locator: Locator) -> bool:
        with self._lock:
            return locator.key in self._files or locator.key in self._dirs

    def info(self, locator: Locator) -> Info:
        with self._lock:
            if locator.key in self._dirs:
                return Info(locator, is_dir=True, size=0, mtime=self._dirs[locator.key] / 1e9)
            data, mtime_ns = self._file(locator)
            return Info(locator, is_dir=False, size=len(data), mtime=mtime_ns / 1e9)

    def mkdir(self, locator: Locator) -> Locator:
        with self._lock:
            if locator.key in self._files:
                raise Invalid(f"{locator}: a file is in the way.", key=locator.key)
            if locator.key not in self._dirs:
                self.mkdir(locator.parent)
                self._check_new(locator)
                self._dirs[locator.key] = time.time_ns()
        return locator

    def remove(self, locator: Locator) -> None:
        with self._lock:
            if locator.key in self._dirs:
                raise folder_at(locator.key)
            self._file(locator)
            del self._files[locator.key]

    def _file(self, locator: Locator) -> tuple[bytes, int]:
        try:
            return self._files[locator.key]
        except KeyError:
            raise nothing_at(locator.key) from None

    def _check_new(self, locator: Locator) -> None:
        if self.exists(locator):
            return
        checked_new_name(locator.name, locator.key)
        check_beside(locator, self.list(locator.parent))


class InMemoryLocks:
    """Locks between the threads of one process."""

    def __init__(self) -> None:
        self._locks: dict[str, threading.Lock] = {}
        self._owners: dict[str, int] = {}
        self._guard = threading.Lock()

    @contextmanager
    def hold(self, name: str, *, timeout: float = 30.0) -> Iterator[None]:
        if self._owners.get(name) == threading.get_ident():
            raise Invalid(f'The lock "{name}" is already held by this thread; locks do not nest.', name=name)
        with self._held(name, max(timeout, 0)) as is_held:
            if not is_held:
                raise Unavailable(
                    f'The lock "{name}" was not free within {timeout:g} s. Try again.', name=name
                )
            yield

    def lease(self, name: str) -> AbstractContextManager[bool]:
        return self._held(name, 0.0)

    @contextmanager
    def _held(self, name: str, seconds: float) -> Iterator[bool]:
        lock = self._named(name)
        if not lock.acquire(timeout=seconds):
            yield False
            return
        self._owners[name] = threading.get_ident()
        try:
            yield True
        finally:
            del self._owners[name]
            lock.release()

    def _named(self, name: str) -> threading.Lock:
        if not isinstance(name, str) or not name:
            raise Invalid("A lock needs a name.", name=name)
        with self._guard:
            return self._locks.setdefault(name, threading.Lock())
