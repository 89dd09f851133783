"""Carries out requests for one thing that arrive together as one, by the thread of the first of them.

    alone                        the request is carried out at once
    while another is under way   it waits, and goes with all that wait then

A journal and a note flush the disk once for fifty requests as for one. Whoever waited learns what became of its batch.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

from cairn.errors import Unavailable

T = TypeVar("T")
_LONGEST_PAUSE = 0.02


@dataclass(slots=True, eq=False)
class _Waiting(Generic[T]):
    request: T
    is_done: bool = False
    error: Exception | None = None


class _Line(Generic[T]):
    """Those who want the same thing, and who of them is at it for all."""

    def __init__(self, guard: threading.Lock) -> None:
        self.came, self.ended = threading.Condition(guard), threading.Condition(guard)
        self.waiting: list[_Waiting[T]] = []
        self.leader: _Waiting[T] | None = None
        self.users = 0
        self._expected, self._began, self._seconds = 1, 0.0, 0.0

    def take(self, leader: _Waiting[T]) -> list[_Waiting[T]]:
        """All that wait now, after a short pause for those the last batch has just let go.

        Who asks in a loop comes back right after its answer; without the pause they would split into two halves that
        take turns. It is a fraction of one batch's time, and only after a crowded one.
        """
        self.leader = leader
        until = time.monotonic() + min(self._seconds / 4, _LONGEST_PAUSE)
        while len(self.waiting) < self._expected:
            left = until - time.monotonic()
            if left <= 0 or not self.came.wait(left):
                break
        batch, self.waiting, self._began = self.waiting, [], time.monotonic()
        return batch

    def end(self, batch: list[_Waiting[T]], error: Exception | None) -> None:
        """Tell all of a batch what became of it, and let the next ones go on."""
        for one in batch:
            one.is_done, one.error = True, error
        # Nobody of this batch can be waiting again yet: together they are all who ask just now.
        self._expected, self._seconds = len(batch) + len(self.waiting), time.monotonic() - self._began
        self.leader = None
        self.ended.notify_all()


class Together(Generic[T]):
    """Requests by the key of what they are for. Thread-safe."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self.lines: dict[str, _Line[T]] = {}

    def run(self, key: str, request: T, carry_out: Callable[[list[T]], object]) -> None:
        """Return when `request` is carried out, by this thread or by another's `carry_out`; raises what that raised.

        Raises:
            Unavailable: the thread that was at it was stopped.
        """
        mine, batch = _Waiting(request), list[_Waiting[T]]()
        error: Exception | None = Unavailable(f"{key}: the write was interrupted. Try again.")
        with self._guard:
            if key not in self.lines:
                self.lines[key] = _Line(self._guard)
            line = self.lines[key]
            line.users += 1
            line.waiting.append(mine)
            line.came.notify()
        try:
            with self._guard:
                line.ended.wait_for(lambda: mine.is_done or line.leader is None)
                if not mine.is_done:
                    batch = line.take(mine)
            if batch:
                carry_out([one.request for one in batch])
            error = None
        except Exception as trouble:
            error = trouble
        finally:
            with self._guard:
                if mine in line.waiting:  # this thread was stopped before anybody was at it
                    line.waiting.remove(mine)
                if line.leader is mine:
                    line.end(batch, error)
                line.users -= 1
                if not line.users:
                    del self.lines[key]
        if mine.error is not None:
            raise mine.error
