"""Offline strategies: the base class, and the parts a strategy is given.

A strategy has a trigger (a cut cell, a written case, an edited episode, a schedule), an input named by the ids
it consumes, and an output written through the notebook. All have one shape: `asks` says which inputs an event
holds, `discover` which inputs the notes hold, `run` turns a batch of jobs into outcomes. The engine does the rest:
queue, lease, retries, records. A new strategy is one file, and one line in `engine.all_strategies`.

    CellEvent -> asks -> job (queued in ome.db) -> run -> notebook -> .md, then one line in journal/derived.jsonl
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, tzinfo
from typing import TYPE_CHECKING, Any, Literal

from cairn.errors import NotFound
from cairn.notes.kinds import KINDS, place_of
from cairn.types import CellEvent, Entry, Job, Scope, StrategyAsk

if TYPE_CHECKING:
    from cairn.governed.memories import Keeper
    from cairn.notes.format import Note
    from cairn.notes.kinds import MemoryRoot
    from cairn.notes.notebook import Notebook
    from cairn.seams import Clock, Embedder, Journals, Locks, Writer
    from cairn.strategies.cells import Cells
    from cairn.strategies.options import Options

__all__ = ["CaseEvent", "EditEvent", "Event", "Job", "Kit", "Outcome", "Schedule", "Strategy", "StrategyAsk"]


@dataclass(frozen=True, slots=True)
class CaseEvent:
    """An agent case was written: what `extract_agent_case` tells the strategies after it."""

    scope: Scope
    case_id: str
    day: str
    session_id: str = ""


@dataclass(frozen=True, slots=True)
class EditEvent:
    """An episode reads otherwise than it did when it was last indexed: what the indexer tells the strategies."""

    scope: Scope
    episode_id: str
    day: str
    cell_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """A cron time has come; `at` is the minute it was due."""

    strategy: str
    at: datetime


Event = CellEvent | CaseEvent | EditEvent | Schedule


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one job: entries written, or a reason why there are none."""

    job: Job
    status: Literal["wrote", "skipped"]
    reason: str = ""
    outputs: tuple[str, ...] = ()
    events: tuple[Event, ...] = ()


@dataclass(frozen=True, slots=True)
class Kit:
    """Everything a strategy may use. `options` are its own, from `ome.toml`."""

    root: MemoryRoot
    notebook: Notebook
    journals: Journals
    locks: Locks
    clock: Clock
    zone: tzinfo
    cells: Cells
    options: Options
    writer: Writer | None = None
    embedder: Callable[[], Embedder | None] = field(default=lambda: None)
    redact: Callable[[str], str] = field(default=lambda text: text)
    keeper: Callable[[], Keeper | None] = field(default=lambda: None)
    cache: dict[str, Any] = field(default_factory=dict)

    def entries(self, kind: str, scope: Scope, day: str) -> Sequence[Entry]:
        """The entries of a kind of one owner's day; none where there is no such note."""
        try:
            return self.notebook.read(KINDS[kind].locator(scope, day)).entries
        except NotFound:
            return ()

    def notes_of(self, kind: str, scope: Scope) -> Iterator[tuple[str, Note]]:
        """Every note of a kind that an owner has, with its day, oldest first."""
        for locator in self.notebook.storage.list(KINDS[kind].locator(scope, "2000-01-01").parent):
            if (place := place_of(locator)) is not None:
                try:
                    note = self.notebook.read(locator)
                except NotFound:
                    continue
                yield place.day, note


class Strategy:
    """One way of thinking about what was said. Stateless: everything comes with the job and the kit."""

    name: str
    purpose: str
    trigger: Literal["cell", "case", "edit", "schedule"]
    takes: frozenset[Literal["episode", "agent", "case", "edit"]] = frozenset()
    agents_only: bool = False
    enabled: bool = True
    cron: str = ""
    writes_daily: bool = True
    kind: str = ""
    """Of the entries it writes, where each says what it was made of (`parent_id`): by these it is known what is done."""

    def asks(self, event: Event) -> Iterable[StrategyAsk]:
        """The inputs that `event` holds for this strategy, of those it `takes`.

        Of a cell: each user's episode, and each agent who took part. With `agents_only` a cell without agents has none.
        """
        if isinstance(event, CellEvent) and (event.agents or not self.agents_only):
            if "episode" in self.takes:
                for scope, episode_id in event.episodes:
                    if scope.track == "user":
                        yield self.ask(scope, event.cell_id, event, episode_id)
            if "agent" in self.takes:
                for agent in event.agents:
                    yield self.ask(Scope(event.space, "agent", agent), event.cell_id, event)
        elif isinstance(event, CaseEvent) and "case" in self.takes:
            yield self.ask(event.scope, event.case_id, event, event.case_id)
        elif isinstance(event, EditEvent) and "edit" in self.takes:
            yield self.ask(event.scope, event.cell_id, event, event.episode_id)

    def ask(
        self, scope: Scope, consumed: str, event: CellEvent | CaseEvent | EditEvent, entry_id: str = ""
    ) -> StrategyAsk:
        """One input: what is `consumed` for an owner, by the event that brings it."""
        cell_id = "" if isinstance(event, CaseEvent) else event.cell_id
        name = f"{consumed}/{scope.track}/{scope.owner}"
        return StrategyAsk(self.name, name, scope, cell_id, event.session_id, event.day, entry_id)

    def discover(self, events: Sequence[CellEvent], kit: Kit) -> Iterable[StrategyAsk]:  # noqa: ARG002 -- a default
        """The inputs the truth holds, given every cell that has its episodes. Done ones may be among them."""
        for event in events:
            yield from self.asks(event)

    def scheduled(self, due: Schedule, kit: Kit) -> Iterable[StrategyAsk]:  # noqa: ARG002 -- a default
        """The inputs that a cron time holds, for strategies whose trigger is a schedule."""
        return ()

    def finished(self, asks: Sequence[StrategyAsk], kit: Kit) -> set[str]:
        """Of `asks`, the inputs whose outputs stand in the notes already."""
        made = {
            (scope, day, parent)
            for scope, day in {(ask.scope, ask.day) for ask in asks if self.kind}
            for entry in kit.entries(self.kind, scope, day)
            if (parent := entry.inline.get("parent_id"))
        }
        return {
            one.input
            for one in asks
            if {(one.scope, one.day, of) for of in (one.cell_id, one.entry_id)} & made
        }

    def run(self, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        """Work through `jobs` and answer for each, in any order; those of one note together, unless it is overridden.

        A job may come a second time after a crash, so outputs are written once by what they consume. An
        exception fails the whole batch; the engine then retries its jobs one by one.
        """
        groups: dict[tuple[Scope, str], list[Job]] = {}
        for job in jobs:
            groups.setdefault((job.ask.scope, job.ask.day if self.writes_daily else ""), []).append(job)
        for (scope, day), group in groups.items():
            yield from self.run_group(scope, day, group, kit)

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        """Work through the jobs of one owner; of one day, where what is written stands in a day's note."""
        raise NotImplementedError
