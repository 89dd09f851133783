"""Faults on demand: a disk that is full, broken, slow or read-only, and a clock that jumps.

Two places to put them. At the seam, `FaultyBackend` and `FaultyJournals` wrap any engine and fail its verbs with
the errors the seam names. Below it, `faulty_disk` puts a stand-in for `os` under the file engines of this
process, so that the real code meets short writes and refused flushes. Both ask one `Faults` what to do, call by
call; a schedule is a function of the call, so that a seed replays it.

    faults = Faults(lambda call: Fault.FULL if call.number % 7 == 0 else None)
    notebook = Notebook(FaultyBackend(DeviceLocalBackend(root), faults), locks)
"""

from __future__ import annotations

import enum
import errno
import os
import random
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any

from cairn.engines import journals as journals_engine
from cairn.engines import tree as tree_engine
from cairn.engines.foreign import WrappedBackend
from cairn.errors import StorageFailed
from cairn.seams import Clock, Journals, JournalSlice, Locator, StorageBackend

__all__ = ["Call", "Fault", "Faults", "FaultyBackend", "FaultyJournals", "JumpingClock", "faulty_disk"]


class Fault(enum.Enum):
    """What can go wrong with one call."""

    FULL = errno.ENOSPC
    BROKEN = errno.EIO
    READ_ONLY = errno.EROFS
    SHORT = "short"
    """Half of the bytes are written and the call says so, as disks do that fill up."""
    LATE = "late"
    """It was done, and then reported as broken: the caller cannot know."""
    SLOW = "slow"

    def error(self, key: str) -> OSError:
        number = self.value if isinstance(self.value, int) else errno.EIO
        return OSError(number, os.strerror(number), key)


@dataclass(frozen=True, slots=True)
class Call:
    """One call that could fail: its number, the verb, and the place."""

    number: int
    verb: str
    key: str


class Faults:
    """Decides, counts and remembers. Nothing fails while it is off.

    Args:
        schedule: Given each call, says what goes wrong with it; None for nothing.
        slow_seconds: How long a slow call takes.
    """

    def __init__(self, schedule: Callable[[Call], Fault | None], *, slow_seconds: float = 0.005) -> None:
        self.is_on = True
        self.seen: list[tuple[Call, Fault]] = []
        self.calls: Counter[str] = Counter()
        self.schedule = schedule
        self._slow_seconds = slow_seconds
        self._lock = threading.Lock()
        self._number = 0

    @classmethod
    def at_random(cls, seed: int, share: float, kinds: Sequence[Fault] = tuple(Fault)) -> Faults:
        """Faults of these kinds at a share of all calls."""
        rng = random.Random(seed)
        return cls(lambda _: rng.choice(kinds) if rng.random() < share else None)

    def strike(self, verb: str, key: str) -> Fault | None:
        """Whether this call goes wrong, and how. A slow one has already waited."""
        with self._lock:
            self.calls[verb] += 1
            if not self.is_on:
                return None
            self._number += 1
            call = Call(self._number, verb, key)
            fault = self.schedule(call)
            if fault is not None:
                self.seen.append((call, fault))
        if fault is Fault.SLOW:
            time.sleep(self._slow_seconds)
            return None
        return fault

    @contextmanager
    def off(self) -> Iterator[None]:
        """A while in which nothing fails."""
        was, self.is_on = self.is_on, False
        try:
            yield
        finally:
            self.is_on = was


@contextmanager
def _failing(faults: Faults, verb: str, at: Locator) -> Iterator[None]:
    fault = faults.strike(verb, at.key)
    if fault is None or fault is Fault.LATE:
        yield
    if fault is not None:
        error = fault.error(at.key)
        raise StorageFailed(f"{at}: {error.strerror}. The fault was injected.", key=at.key) from error


class FaultyBackend(WrappedBackend):
    """A backend whose changing verbs fail by schedule, with the error the seam names; reads fail if asked to."""

    def __init__(self, inner: StorageBackend, faults: Faults, *, reads: bool = False) -> None:
        super().__init__(inner)
        self._faults = faults
        self._failing = {"write", "mkdir", "remove", *(("read", "list") if reads else ())}

    @cached_property
    def journals(self) -> Journals:
        return FaultyJournals(self._inner.journals, self._faults)

    def _around(self, verb: str, locator: Locator) -> AbstractContextManager[None]:
        return _failing(self._faults, verb, locator) if verb in self._failing else nullcontext()


class FaultyJournals:
    """Journals whose changing verbs fail by schedule."""

    def __init__(self, inner: Journals, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        with _failing(self._faults, "append", at):
            return self._inner.append(at, lines, sync=sync, expect=expect)

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        return self._inner.read(at, start)

    def size(self, at: Locator) -> int:
        return self._inner.size(at)

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        with _failing(self._faults, "replace", at):
            return self._inner.replace(at, lines)

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        with _failing(self._faults, "edit", at):
            return self._inner.edit(at, change)


class JumpingClock:
    """A clock that jumps by schedule, forwards and back, as one does that is set by hand or by a network."""

    def __init__(self, inner: Clock, jumps: Callable[[int], timedelta]) -> None:
        self._inner = inner
        self._jumps = jumps
        self._asked = 0
        self._lock = threading.Lock()

    def now(self) -> datetime:
        with self._lock:
            self._asked += 1
            return self._inner.now() + self._jumps(self._asked)


class _FaultyOs:
    """`os` as the file engines see it: what changes the disk asks the faults first."""

    _VERBS = frozenset(
        {"fsync", "fdatasync", "replace", "link", "unlink", "mkdir", "ftruncate", "makedirs", "fchmod"}
    )

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def __getattr__(self, name: str) -> Any:
        real = getattr(os, name)
        if name not in self._VERBS:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            fault = self._faults.strike(name, str(args[0]))
            if fault is Fault.LATE:
                real(*args, **kwargs)
            if fault is not None:
                raise fault.error(name)
            return real(*args, **kwargs)

        return call

    def open(self, path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        if flags & os.O_CREAT:
            fault = self._faults.strike("create", str(path))
            if fault is not None:
                raise fault.error(str(path))
        return os.open(path, flags, mode, dir_fd=dir_fd)

    def write(self, fd: int, data: Any) -> int:
        fault = self._faults.strike("write", str(fd))
        if fault is Fault.SHORT and len(data) > 1:
            return os.write(fd, data[: len(data) // 2])
        if fault is Fault.LATE:
            os.write(fd, data)
        if fault is not None:
            raise fault.error("write")
        return os.write(fd, data)


@contextmanager
def faulty_disk(faults: Faults) -> Iterator[Faults]:
    """Put `faults` under the file engines of this process for a while.

    With a schedule that never strikes it is a counter: `faults.calls` says how often each system call was made.
    """
    stand_in: Any = _FaultyOs(faults)
    under = [vars(tree_engine), vars(journals_engine)]
    for names in under:
        names["os"] = stand_in
    try:
        yield faults
    finally:
        for names in under:
            names["os"] = os
