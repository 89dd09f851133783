"""Cells that were cut and whose episodes may not be on disk: what a restart has to look at.

Beside the session logs, which hold the truth, this ledger lets recovery find unfinished cells without reading
every session. One journal per hour under `.tmp/cells/`: a cut is noted there before it happens, its end with the next
cut. Files of past hours go as soon as nothing in them is unfinished.

The ledger outlives the process but is not flushed: it only says where to look. Should a power cut take its
last lines, no message is lost; the next call on that session, or a full recovery, finds the cell in the log.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Collection, Iterable, Sequence
from datetime import timedelta

from cairn.canonical import from_json
from cairn.errors import CairnError
from cairn.seams import Clock, Locator, StorageBackend
from cairn.types import Space, checked_session_id

LEDGER = Locator(".tmp/cells")
_KEPT_HOURS = 2

_log = logging.getLogger(__name__)

Unfinished = dict[str, tuple[Space, str]]
"""Cell id to the space and session it was cut in."""


class PendingCells:
    """The ledger of cells on their way from cut to episode."""

    def __init__(self, storage: StorageBackend, clock: Clock) -> None:
        self._storage = storage
        self._journals = storage.journals
        self._clock = clock
        self._hour = self._name(0)
        self._ended: list[str] = []
        self._noted: dict[str, str] = {}
        self._guard = threading.Lock()

    def begin(self, space: Space, session_id: str, cells: Iterable[str]) -> None:
        """Note that `cells` are about to be cut. The first time in an hour, older files are tidied."""
        if self._hour != (hour := self._name(0)):
            self._hour = hour
            self.tidy()
        lines = self._endings()
        lines += [json.dumps(["cut", cell, space.app, space.project, session_id]) for cell in cells]
        self._journals.append(self._current(), lines, sync=False)

    def end(self, cells: Iterable[str]) -> None:
        """The episodes of `cells` are on disk: it is noted with the next cut, or when this is closed.

        Where a killed process noted nothing, recovery looks at those cells and finds them done.
        """
        with self._guard:
            self._ended.extend(cells)

    def close(self) -> None:
        """Note what has ended. Where that cannot be written, the next start looks at those cells."""
        if lines := self._endings():
            try:
                self._journals.append(self._current(), lines, sync=False)
            except CairnError as error:
                _log.info("Which cells are done is not noted: %s", error)

    def _endings(self) -> list[str]:
        with self._guard:
            ended, self._ended = self._ended, []
        return [json.dumps(["done", cell]) for cell in ended]

    def forget(self, space: Space, sessions: Collection[str]) -> int:
        """Drop the lines about sessions that are forgotten; how many."""
        dropped = 0
        for place in self._storage.list(LEDGER):

            def change(lines: Sequence[str]) -> list[str] | None:
                nonlocal dropped
                rest = [line for line in lines if not _is_of(line, space, sessions)]
                dropped += len(lines) - len(rest)
                return rest if len(rest) < len(lines) else None

            self._journals.edit(place, change)
        return dropped

    def unfinished(self) -> Unfinished:
        """Every cell noted as cut and not as done, oldest first."""
        self._noted.clear()
        return self._unfinished_in(self._storage.list(LEDGER))

    def is_old(self, cell: str) -> bool:
        """Whether a cell was noted an hour ago or longer, as far as `unfinished` has seen: nobody is cutting it now."""
        return self._noted.get(cell, "") < self._name(1)

    def _unfinished_in(self, places: Iterable[Locator]) -> Unfinished:
        cut: Unfinished = {}
        done: set[str] = set()
        for place in places:
            for line in self._journals.read(place).lines:
                try:
                    sort, cell, *rest = from_json(line)
                    if sort == "cut":
                        app, project, session_id = rest
                        self._noted[cell] = place.name
                        cut[cell] = (Space(app, project), checked_session_id(session_id))
                    else:
                        done.add(cell)
                except (ValueError, TypeError):
                    continue  # damaged: a full recovery finds the cell in its log
        return {cell: where for cell, where in cut.items() if cell not in done}

    def tidy(self) -> None:
        """Drop the files of past hours; what is unfinished in them moves to the current one first."""
        oldest_kept = self._name(_KEPT_HOURS)
        places = self._storage.list(LEDGER)
        old = [place for place in places if place.name < oldest_kept]
        if not old:
            return
        for cell, (space, session_id) in self._unfinished_in(places).items():
            line = json.dumps(["cut", cell, space.app, space.project, session_id])
            self._journals.append(self._current(), [line])
        for place in old:
            try:
                self._storage.remove(place)
            except CairnError as error:
                # Another process may have been quicker; if not, the next hour tries again.
                _log.debug("%s stays: %s", place, error)

    def _current(self) -> Locator:
        return LEDGER.child(self._name(0))

    def _name(self, hours_ago: int) -> str:
        return f"{self._clock.now() - timedelta(hours=hours_ago):%Y%m%d%H}.jsonl"


def _is_of(line: str, space: Space, sessions: Collection[str]) -> bool:
    try:
        value = from_json(line)
    except ValueError:
        return False
    if not isinstance(value, list) or len(value) != 5:
        return False
    return value[2:4] == [space.app, space.project] and value[4] in sessions
