"""Collects changed notes and records their history in the background, so that writes do not wait for it.

Changes are recorded a second's worth together (a chore of `background.py`), so what is recorded is what stood there when
the dust had settled. Edits by hand are found by their time when someone looks around.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from cairn.errors import CairnError, NotFound
from cairn.notes.kinds import MemoryRoot, place_of
from cairn.seams import Locator, StorageBackend
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.timetravel.changes import TimeTravel

_log = logging.getLogger(__name__)
_GRAIN_SECONDS = 5.0


class Observer:
    """Collects changed notes and has them recorded when asked.

    Args:
        storage: Where the notes are.
        travel: Makes the history of one space.
        changed_since: Files of the truth modified after a time.
    """

    def __init__(
        self,
        storage: StorageBackend,
        travel: Callable[[Space], TimeTravel],
        changed_since: Callable[[float], Iterable[Locator]],
    ) -> None:
        self._storage = storage
        self._root = MemoryRoot(storage)
        self._travel = travel
        self._changed_since = changed_since
        self._made: dict[Space, TimeTravel] = {}
        self._waiting: dict[Locator, None] = {}
        self._lock = threading.Lock()
        self._working = threading.Lock()
        self._looked_at = 0.0

    def of(self, space: Space) -> TimeTravel:
        """The history of one space."""
        with self._lock:
            if space not in self._made:
                self._made[space] = self._travel(space)
            return self._made[space]

    def tell(self, changes: Sequence[tuple[Locator, object]]) -> None:
        """Note that these files changed. Never raises, never waits for a disk."""
        with self._lock:
            self._waiting.update((at, None) for at, _ in changes if at.name.endswith(".md"))

    def settle(self) -> int:
        """Record what was told so far; how many entries changed."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), {}
        return self._observe(waiting, "write")

    def look_around(self) -> int:
        """Find what was edited or deleted by hand since the last recorded change, and record it."""
        self.settle()
        since: dict[Space, float] = {}
        found = []
        began = time.time()
        after = self._looked_at - _GRAIN_SECONDS if self._looked_at else self._oldest()
        for at in self._changed_since(after):
            place = place_of(at)
            if place is None:
                continue
            space = place.scope.space
            if space not in since:
                since[space] = self._recorded_at(space)
            if self._mtime(at) >= since[space] - _GRAIN_SECONDS:
                found.append(at)
        self._looked_at = began
        with self._lock:
            made = list(self._made.values())
        # A file that is gone has no time to be found by.
        found += [at for travel in made for at in travel.notes() if self._is_gone(at)]
        return self._observe(found, "edit")

    def _observe(self, notes: Iterable[Locator], cause: str) -> int:
        count = 0
        with self._working:
            for at in notes:
                place = place_of(at)
                if place is None:
                    continue
                try:
                    count += len(self.of(place.scope.space).observe(at, cause))
                except (CairnError, OSError) as error:
                    _log.warning("the history of %s was not recorded: %s", at, error)
        return count

    def _is_gone(self, at: Locator) -> bool:
        """Whether nothing is there; a link or a folder in its place is something, and nobody else's trouble."""
        try:
            return not self._storage.exists(at)
        except CairnError as error:
            _log.debug("the history of %s is not looked after: %s", at, error)
            return False

    def _oldest(self) -> float:
        """The time before which every space has recorded everything; 0 where one has recorded nothing."""
        times = [self._recorded_at(space) for space in self._root.spaces()]
        return max(min(times, default=0.0) - _GRAIN_SECONDS, 0.0)

    def _recorded_at(self, space: Space) -> float:
        return self._mtime(self._root.journal(space, "history/changes"))

    def _mtime(self, at: Locator) -> float:
        try:
            return self._storage.info(at).mtime
        except (NotFound, CairnError):
            return 0.0
