"""A Capture on real engines in a folder, and a few verbs the capture tests share."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from cairn.config import CaptureSettings, MemorySettings, Settings
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import place_of
from cairn.notes.notebook import Notebook
from cairn.seams import SystemClock
from cairn.talk import Capture
from cairn.talk.sessions import SessionLog, SessionState, session_locator
from cairn.types import CellEvent, Entry, Message, Space

SPACE = Space()
MAY_8 = int(datetime(2023, 5, 8, 13, 56, tzinfo=UTC).timestamp() * 1000)


def said(
    text: str, n: int = 0, *, who: str = "ann", role: str = "user", at: int = MAY_8, **fields
) -> Message:
    """A message; `n` counts seconds from `at`."""
    return Message(who, role, at + n * 1000, text, **fields)  # type: ignore[arg-type]


class Kit:
    """One Capture over one folder. Make a second one over the same folder to play another process."""

    def __init__(
        self,
        folder: Path,
        *,
        writer=None,
        redact=None,
        on_cell=None,
        timezone="UTC",
        embedder=None,
        clock=None,
        local=None,
        sessions_bytes=32 * 1024 * 1024,
        **capture,
    ):
        self.folder = folder
        self.storage = DeviceLocalBackend(folder)
        self.journals = FileJournals(folder)
        self.locks = FileLocks(folder / ".tmp" / "locks")
        self.changes: list[tuple[str, str]] = []
        self.events: list[CellEvent] = []
        self.notebook = Notebook(self.storage, self.locks, on_change=self._changed)
        settings = Settings(
            memory=MemorySettings(root=str(folder), timezone=timezone),
            capture=dataclasses.replace(CaptureSettings(), **capture),
        )
        self.capture = Capture(
            storage=self.storage,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=clock or SystemClock(),
            settings=settings,
            writer=writer,
            embedder=embedder,
            on_cell=on_cell or self.events.append,
            on_change=self._changed,
            redact=redact,
            local=local,
            sessions=SessionLog(self.journals, budget_bytes=sessions_bytes),
        )

    def _changed(self, changes):
        self.changes += [(locator.key, change) for locator, change in changes]
        return len(self.changes)

    def add(self, session: str, *messages: Message, **options):
        return self.capture.add(SPACE, session, messages, **options)

    def flush(self, session: str = "s1"):
        return self.capture.flush(SPACE, session)

    def log(self, session: str = "s1", space: Space = SPACE) -> SessionState:
        return SessionLog(self.journals).load(session_locator(space, session))

    def episodes(self) -> Iterator[tuple[str, Entry]]:
        """Every episode on disk, with its owner."""
        for locator in self.notebook.notes(kind="episode"):
            place = place_of(locator)
            assert place is not None
            for entry in self.notebook.read(locator).entries:
                yield place.scope.owner, entry

    def told(self, owner: str | None = None) -> str:
        """The content of all episodes, joined."""
        return "\n".join(e.sections["Content"] for who, e in self.episodes() if owner in {None, who})

    def files(self) -> set[str]:
        return {
            str(p.relative_to(self.folder))
            for p in self.folder.rglob("*")
            if p.is_file() and ".tmp" not in p.parts
        }
