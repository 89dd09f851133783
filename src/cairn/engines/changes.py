"""What every change queue does for its own process, whatever keeps it: what is queued and unclaimed is not queued again."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence

from cairn.errors import CairnError
from cairn.seams import Noticed


class ChangeQueue(ABC):
    """The side of a change queue that this process keeps in memory.

    Args:
        on_enqueue: Called with the kinds of what was queued, after each `enqueue` of this process.
    """

    def __init__(self, on_enqueue: Callable[[Collection[str]], None] | None = None) -> None:
        self.on_enqueue = on_enqueue
        self.sole = False
        self._lock = threading.Lock()
        self._lsn = 0
        self._lost = False
        self._claims = 0
        self._unclaimed: set[str] = set()

    @abstractmethod
    def last_lsn(self) -> int: ...

    @abstractmethod
    def _put(self, changes: Sequence[Noticed]) -> int:
        """Keep `changes` in one transaction, after the highest LSN known; returns the highest now."""

    def enqueue(self, changes: Sequence[Noticed]) -> int:
        """Queue `changes` in one transaction and return the highest LSN.

        Where the queue cannot be written (disk full, directory or server gone) the highest LSN known is
        returned and `take_lost` tells the indexer to scan.
        """
        if not changes:
            return self.last_lsn()
        with self._lock:
            claims = self._claims
            if self.sole and all(
                one.path in self._unclaimed and one.change_type == "modified" for one in changes
            ):
                return self._lsn
        try:
            lsn = self._put(changes)
        except CairnError:
            self._lost = True
            with self._lock:
                lsn = self._lsn
        else:
            with self._lock:
                self._lsn = max(self._lsn, lsn)
                if self.sole and claims == self._claims:
                    self._unclaimed.update(one.path for one in changes if one.kind == "session")
        if self.on_enqueue is not None:
            self.on_enqueue({change.kind for change in changes})
        return lsn

    def take_lost(self) -> bool:
        """Whether a change could not be queued since the last time this was asked: scan if so."""
        lost, self._lost = self._lost, False
        return lost

    def _claimed(self) -> None:
        """What waited may be being read by now: what is written from here on is queued anew."""
        with self._lock:
            self._claims += 1
            self._unclaimed.clear()
