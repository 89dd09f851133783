"""Counts the calls being served, so that background work can wait until there are none.

with traffic:                  a call, from its thread; any number at once
traffic.afterwards(wake)       what a call leaves to others begins when it is over, not beside its last steps
with traffic.indexing():       a change is on its way into the index, and somebody may ask for it next
traffic.wrote(lsn)             a call queued this change; whoever asks next, asks for what was `written`
traffic.give_way(QUIET)        waits until neither is so, a tenth of a second at most: work goes on under load

Whoever gives way looks again every few milliseconds. Calls wake nobody: a thread that is woken at the end of each of a thousand
calls a second takes the interpreter a thousand times from those it gives way to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

QUIET_SECONDS = 0.03  # calls come in rows
_LONGEST_SECONDS = 0.1
_LOOK_SECONDS = 0.005


class _Here(threading.local):
    """The calls that this thread serves, one within the other, and what is to be done when it serves none any more."""

    def __init__(self) -> None:
        self.calls = 0
        self.is_background = False
        self.waiting: dict[Callable[[], object], None] = {}


class Traffic:
    """The calls that one process serves, and whether its index is being brought up to date."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._calls = self._indexing = 0
        self._last_call = 0.0
        self._here = _Here()
        self.written = 0
        """The last change that was queued for somebody who was told that it is kept."""

    def __enter__(self) -> None:
        if self._here.is_background:
            return
        with self._counting:
            self._calls += 1
        self._here.calls += 1

    def __exit__(self, *_error: object) -> None:
        if self._here.is_background:
            return
        with self._counting:
            self._calls -= 1
            self._last_call = time.monotonic()
        self._here.calls -= 1
        if not self._here.calls:
            waiting, self._here.waiting = self._here.waiting, {}
            for act in waiting:
                act()

    def afterwards(self, act: Callable[[], object]) -> None:
        """Do `act` once the call that this thread serves is over, once however often it is asked; at once where there is none."""
        if self._here.calls:
            self._here.waiting[act] = None
        else:
            act()

    def begin_background(self) -> None:
        """Nobody waits for what this thread does and writes from here on: it is no call."""
        self._here.is_background = True

    def wrote(self, lsn: int) -> int:
        """Note a change that this thread queued, and give it back."""
        if not self._here.is_background:
            with self._counting:
                self.written = max(self.written, lsn)
        return lsn

    @contextmanager
    def indexing(self) -> Iterator[None]:
        """While this is held, what nobody waits for waits."""
        with self._counting:
            self._indexing += 1
        try:
            yield
        finally:
            with self._counting:
                self._indexing -= 1

    def is_busy(self, quiet_seconds: float = 0.0) -> bool:
        """Whether a call is being served, or the last one was over less than `quiet_seconds` ago."""
        return bool(self._calls) or time.monotonic() - self._last_call < quiet_seconds

    def give_way(
        self,
        quiet_seconds: float = 0.0,
        longest: float = _LONGEST_SECONDS,
        *,
        unless: Callable[[], bool] = lambda: False,
    ) -> bool:
        """Let calls and the index go first, for `longest` seconds at most.

        Args:
            quiet_seconds: How long the last call must be over; the next one often follows at once.
            longest: The most to wait.
            unless: Whether somebody waits for what is to be done, who then goes first.

        Returns:
            Whether a call had to be waited for.
        """
        # Even with nobody known to wait, giving the interpreter away for a moment lets other threads go on at once.
        time.sleep(0.00005)
        until, waited = time.monotonic() + longest, False
        while (busy := self.is_busy(quiet_seconds)) or self._indexing:
            waited = waited or busy
            left = until - time.monotonic()
            if left <= 0 or unless():
                break
            time.sleep(min(left, _LOOK_SECONDS))
        return waited
