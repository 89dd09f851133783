"""A keeper on a real folder with a clock that tests move by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn import config
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.governed.memories import Keeper
from cairn.notes.notebook import Notebook
from cairn.notes.root import MemoryRoot
from cairn.timetravel.changes import TimeTravel
from cairn.timetravel.runs import Runs
from cairn.types import Scope, Space

START = datetime(2026, 6, 1, 12, tzinfo=UTC)
SPACE = Space()
PROJECT = Scope(SPACE, "project", "")


@dataclass
class MovedClock:
    """Stands still until moved."""

    at: datetime = START

    def now(self) -> datetime:
        return self.at

    def move(self, **by: float) -> None:
        self.at += timedelta(**by)


@dataclass
class World:
    """A root, a keeper over it and what it told its subscribers."""

    path: Path
    clock: MovedClock = field(default_factory=MovedClock)
    overrides: Mapping[str, Any] = field(default_factory=dict)
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    changes: list[Any] = field(default_factory=list)
    history: bool = False

    def __post_init__(self) -> None:
        self.reopen()

    def reopen(self) -> Keeper:
        """A second process, as far as the keeper can tell: nothing is held over in memory."""
        self.storage = DeviceLocalBackend(self.path)
        self.locks = FileLocks(self.path / ".tmp" / "locks")
        self.journals = FileJournals(self.path)

        def on_change(changes: Any) -> int:
            self.changes.extend(changes)
            return len(self.changes)

        self.root = MemoryRoot(self.storage)
        self.runs = Runs(self.root, self.journals, self.clock, self.travel)
        self.notebook = Notebook(
            self.storage,
            self.locks,
            clock=self.clock,
            on_change=on_change,
            history=self.runs if self.history else None,
        )
        self.keeper = Keeper(
            storage=self.storage,
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=config.load(self.path, environ={}, **self.overrides),
            on_event=lambda name, row: self.events.append((name, row)),
        )
        return self.keeper

    def travel(self, space: Space) -> TimeTravel:
        return TimeTravel(self.root.space(space), self.notebook, self.journals, self.locks, self.clock)

    def undo(self, run: str) -> list[str]:
        """Take a run back, as the operation does; what became of each entry."""
        return [one.action for one in self.runs.undo(self.notebook, SPACE, run).entries]

    def notes(self) -> list[str]:
        return sorted(
            str(at.relative_to(self.path)) for at in self.path.rglob("*.md") if ".tmp" not in at.parts
        )

    def bytes_holding(self, needle: str) -> list[str]:
        """Every file below the root that holds `needle`, in any of its bytes."""
        wanted = needle.encode()
        return sorted(
            str(at.relative_to(self.path))
            for at in self.path.rglob("*")
            if at.is_file() and wanted in at.read_bytes()
        )
