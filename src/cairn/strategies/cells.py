"""The cells that strategies think about: their messages, from the session logs, and their episodes, from the notes."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import tzinfo
from typing import TYPE_CHECKING

from cairn.errors import CairnError, NotFound
from cairn.notes.kinds import KINDS
from cairn.seams import Locator
from cairn.strategies.statements import Statement, statements_of
from cairn.talk.sessions import (
    CellCorrections,
    SessionLog,
    SessionState,
    corrected,
    logs_in,
    session_locator,
)
from cairn.types import Cell, CellEvent, Entry, Scope

if TYPE_CHECKING:
    from cairn.notes.notebook import Notebook
    from cairn.strategies import StrategyAsk

CELLS_KEPT = 512
_log = logging.getLogger(__name__)


class Cells:
    """Reads cells. Keeps what is stated in those that several strategies ask for in one batch, and no more."""

    def __init__(
        self, notebook: Notebook, sessions: SessionLog, step_aside: Callable[[], object] = lambda: None
    ) -> None:
        # Every job passes through `cell`, so this is where background work makes way for people who wait.
        self._step_aside = step_aside
        self._notebook, self._log = notebook, sessions
        self._statements: OrderedDict[str, tuple[Cell, list[Statement]]] = OrderedDict()

    def drop(self) -> None:
        """Keep nothing of what was read."""
        self._log.drop()
        self.let_go()

    def let_go(self) -> None:
        """Keep nothing of cells: a batch is done, and what several strategies shared in it is not asked again."""
        self._statements.clear()

    def cell(self, ask: StrategyAsk) -> Cell:
        """The cell an ask is about, as its owner corrected it. Raises `NotFound` when its words are gone."""
        cell, mine = self.said(ask)
        return cell if not mine.current else replace(cell, messages=corrected(cell.messages, mine.current))

    def said(self, ask: StrategyAsk) -> tuple[Cell, CellCorrections]:
        """The cell an ask is about as it was said, and what its owner corrected in it."""
        self._step_aside()
        space, cell_id = ask.scope.space, ask.cell_id
        with self._log.around(session_locator(space, ask.session_id), cell_id) as state:
            record = state.cell(cell_id)
            said = state.messages_of(record) if record is not None else ()
            mine = state.corrections.get((cell_id, ask.scope.track, ask.scope.owner)) or CellCorrections()
        if record is None or not said:
            raise NotFound(f"The words of cell {cell_id} are not in session {ask.session_id} any more.")
        return Cell(cell_id, space, ask.session_id, said, record.day, record.reason), mine

    def statements(self, ask: StrategyAsk, zone: tzinfo) -> list[Statement]:
        """What is stated in the cell of an ask; several strategies and owners share the work."""
        key = f"{ask.scope.space.app}/{ask.scope.space.project}/{ask.cell_id}"
        cell, mine = self.said(ask)
        if mine.current:
            return statements_of(corrected(cell.messages, mine.current), zone, self._step_aside)
        if key not in self._statements or self._statements[key][0] != cell:
            self._statements[key] = (cell, statements_of(cell.messages, zone, self._step_aside))
            while len(self._statements) > CELLS_KEPT:
                self._statements.popitem(last=False)
        return self._statements[key][1]

    def episodes(self, scope: Scope, day: str) -> dict[str, Entry]:
        """The episodes of one owner's day, by id; none where there is no such note."""
        try:
            return dict(self._notebook.read(KINDS["episode"].locator(scope, day)).by_id)
        except NotFound:
            return {}

    def events(self, seen: Mapping[str, int]) -> tuple[list[CellEvent], dict[str, int]]:
        """The cells that have their episodes, of every session log whose size is not the one in `seen`.

        Returns:
            The events, and the size of each log that was read.
        """
        events: list[CellEvent] = []
        sizes: dict[str, int] = {}
        by_cell: dict[tuple[Scope, str], dict[str, str]] = {}
        for locator, size in self._logs():
            if seen.get(locator.key) == size:
                continue
            try:
                found = list(self._events_of(self._log.load(locator, keep=False), by_cell))
            except CairnError as error:
                _log.warning("The cells of %s wait until it can be read: %s", locator, error)
                continue
            sizes[locator.key] = size
            events.extend(found)
        return events, sizes

    def _events_of(
        self, state: SessionState, by_cell: dict[tuple[Scope, str], dict[str, str]]
    ) -> Iterator[CellEvent]:
        for cell in state.cells:
            if not cell.done:
                continue
            episodes = []
            for track, owner in cell.owners:
                if track not in {"user", "agent"}:
                    continue
                scope = Scope(state.space, "user" if track == "user" else "agent", owner)
                if (scope, cell.day) not in by_cell:
                    by_cell[scope, cell.day] = {
                        entry.inline.get("parent_id", ""): entry.id
                        for entry in self.episodes(scope, cell.day).values()
                    }
                if cell.cell_id in by_cell[scope, cell.day]:
                    episodes.append((scope, by_cell[scope, cell.day][cell.cell_id]))
            agents = {m.sender_id for m in state.messages_of(cell) if m.role == "assistant"}
            yield CellEvent(
                cell.cell_id,
                state.space,
                state.session_id,
                cell.day,
                tuple(episodes),
                tuple(sorted(agents)),
                cell.mode,
            )

    def _logs(self) -> Iterator[tuple[Locator, int]]:
        for space in self._notebook.root.spaces():
            for _, locator, size, _ in logs_in(self._notebook.storage, space, _unread):
                yield locator, size


def _unread(at: Locator, error: CairnError) -> None:
    _log.warning("The cells in %s wait until it can be read: %s", at, error)
