"""A circuit breaker: after an engine failed to answer, further calls fail at once for a moment instead of
waiting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from cairn.errors import StorageFailed, Unavailable


class Outage:
    """Remembers for a moment that an engine did not answer.

    Whoever asks meanwhile is refused at once, in the words of the one who waited; after `seconds` one asks again.

    Args:
        seconds: For how long it is remembered.
        clock: Seconds that only grow.
    """

    def __init__(self, seconds: float = 1.0, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds, self._clock = seconds, clock
        self._lock = threading.Lock()
        self._words, self._until = "", 0.0

    @property
    def words(self) -> str:
        """What the last one was told; "" where the engine answered the last question."""
        return self._words

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Ask the engine inside.

        Raises:
            Unavailable: it did not answer, just now or a moment ago.
        """
        with self._lock:
            if self._words and self._clock() < self._until:
                raise Unavailable(self._words)
            if self._words:
                self._until = self._clock() + self._seconds  # one asks, the others need not wait with it
        try:
            yield
        except StorageFailed:
            self._words = ""  # it refused something, so it answers
            raise
        except Unavailable as error:
            with self._lock:
                self._words, self._until = str(error), self._clock() + self._seconds
            raise
        except BaseException:
            self._words = ""
            raise
        self._words = ""
