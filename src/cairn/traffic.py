"""Counts the calls being served, so that background work can wait until there are none.

with traffic:                  a call, from its thread; any number at once
with traffic.indexing():       a change is on its way into the index, and somebody may ask for it next
traffic.give_way(QUIET)        waits until neither is so, a tenth of a second at most: work goes on under load

Whoever gives way looks again every few milliseconds. Calls wake nobody: a thread that is woken at the end of each of a thousand
calls a second takes the interpreter a thousand times from those it gives way to.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

QUIET_SECONDS = 0.03  # calls come in rows
_LONGEST_SECONDS = 0.1
_LOOK_SECONDS = 0.005


class Traffic:
    """The calls that one process serves, and whether its index is being brought up to date."""

    def __init__(self) -> None:
        self._counting = threading.Lock()
        self._calls = self._indexing = 0
        self._last_call = 0.0

    def __enter__(self) -> None:
        with self._counting:
            self._calls += 1

    def __exit__(self, *_error: object) -> None:
        with self._counting:
            self._calls -= 1
            self._last_call = time.monotonic()

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

    def give_way(self, quiet_seconds: float = 0.0, longest: float = _LONGEST_SECONDS) -> bool:
        """Let calls and the index go first, for `longest` seconds at most.

        Args:
            quiet_seconds: How long the last call must be over; the next one often follows at once.
            longest: The most to wait.

        Returns:
            Whether a call had to be waited for.
        """
        # Even with nobody known to wait, giving the interpreter away for a moment lets other threads go on at once.
        time.sleep(0.00005)
        until, waited = time.monotonic() + longest, False
        while (busy := self.is_busy(quiet_seconds)) or self._indexing:
            waited = waited or busy
            left = until - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _LOOK_SECONDS))
        return waited
