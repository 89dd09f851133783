"""From talk to episodes: what happens to a message between `add` and the note.

    add, flush ──> Inbox        the messages and the cut are durable
               ──> Extractor    outside every lock: adds go on while a model thinks
               ──> Notebook     one episode per owner, once per cell
               ──> on_change    the index may fetch the cell's words
               ──> on_cell      the strategies hear of it
               ──> done         noted in the log; until then recovery repeats the steps above

Each step is safe to repeat: a cell's id follows from its place in the log, and the notebook writes an episode
of the same cell only once.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from typing import Any, cast

from cairn.config import Settings
from cairn.errors import CairnError, Invalid, NotFound
from cairn.notes.format import checked_day
from cairn.notes.kinds import KINDS, space_of
from cairn.notes.notebook import Draft, Notebook, OnChange
from cairn.seams import Clock, Embedder, Journals, Locator, Locks, StorageBackend, Writer, iterate_files
from cairn.talk import messages as incoming
from cairn.talk.extract import Extraction, Extractor
from cairn.talk.inbox import Inbox
from cairn.talk.lines import CellRecord
from cairn.talk.narrative import said_at
from cairn.talk.pending import PendingCells
from cairn.talk.sessions import SessionLog, place_of_session, session_locator, sessions_of
from cairn.types import (
    Cell,
    CellEvent,
    Entry,
    Message,
    Scope,
    Space,
    Track,
    checked_id,
    checked_session_id,
)

_log = logging.getLogger(__name__)
_MODES = ("chat", "agent")
_CELL_LOCKS = 256
_PATIENCE_SECONDS = 120.0
_OTHERS_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class AddOutcome:
    """`status` is "accumulated" or "extracted"; `lsn` is 0 while there is nothing new to index."""

    status: str
    message_count: int
    lsn: int = 0
    cell_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FlushOutcome:
    """`status` is "extracted", or "no_extraction" when nothing was open."""

    status: str
    lsn: int = 0
    cell_ids: tuple[str, ...] = ()


class Capture:
    """Takes messages in, closes stretches of talk, and writes their episodes. Synchronous and thread-safe.

    Args:
        storage: Where the truth is; prompts of the root are read from it.
        notebook: Writes the episodes.
        journals: Hold the session logs.
        sessions: Reads them; shared with whoever else does.
        locks: Units of work across threads and processes.
        clock: When things are recorded; messages bring their own times.
        settings: `[capture]`, `[memory] timezone`.
        writer: The language model, if any.
        embedder: Gives the embedder only if it is loaded already; consulted for topic shifts.
        on_cell: Told of each finished cell, at least once.
        on_change: Told that a session's log holds a new cell; returns the LSN.
        redact: Applied to every text before the first byte of it is written; may raise `Invalid` to refuse.
        local: Storage and journals of this machine alone, for the ledger of unfinished cells; needed where
            `storage` is a folder that other machines see too.
    """

    def __init__(
        self,
        *,
        storage: StorageBackend,
        notebook: Notebook,
        journals: Journals,
        locks: Locks,
        clock: Clock,
        settings: Settings,
        writer: Writer | None = None,
        embedder: Callable[[], Embedder | None] | None = None,
        on_cell: Callable[[CellEvent], None] | None = None,
        on_change: OnChange | None = None,
        redact: Callable[[str], str] | None = None,
        local: tuple[StorageBackend, Journals] | None = None,
        sessions: SessionLog | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._notebook = notebook
        self._locks = locks
        self._on_cell = on_cell
        self._on_change = on_change
        self._redact = redact
        self._zone = settings.zone
        self._extractor = Extractor(storage, settings.zone, writer)
        self._pending = PendingCells(*(local or (storage, journals)), clock)
        self._log = sessions or SessionLog(journals)
        self._inbox = Inbox(
            log=self._log,
            locks=locks,
            clock=clock,
            pending=self._pending,
            settings=settings.capture,
            zone=settings.zone,
            embedder=embedder,
        )
        self._busy: set[str] = set()
        self._failed: set[str] = set()
        self._guard = threading.Lock()
        self._idle = threading.Condition(self._guard)

    def add(
        self,
        space: Space,
        session_id: str,
        messages: Sequence[Message],
        *,
        defer: bool = False,
        key: str | None = None,
        mode: str | None = None,
        prompts: Mapping[str, str] | None = None,
        limited_to: Collection[str] | None = None,
    ) -> AddOutcome:
        """Keep `messages`, all of them or none, and extract what they close.

        Durable when it returns. A repeat of the same call changes nothing and gets the same answer.

        Args:
            space: The partition.
            session_id: The conversation the messages belong to.
            messages: 1 to 500 messages, in the order they were said.
            defer: Only keep them; cuts wait for the next call that does not defer.
            key: An idempotency key of the caller's choice.
            mode: "chat" or "agent" for the cells these messages end up in; the setting otherwise.
            prompts: Prompt texts by name, for this call's extraction only.
            limited_to: The owners the caller may act for, where he may not for all: a session of anybody else is
                refused, and one that such a caller begins is closed to other users.

        Raises:
            Invalid: something in the input breaks a rule; nothing was written.
            Forbidden: the session is of somebody outside `limited_to`; nothing was written.
            Conflict: the session was begun for others than a sender; nothing was written.
            StorageFailed: the disk refused. If it refused the messages the inbox is as before; if it refused
                an episode, the messages are kept and the next call tries again.
        """
        checked_session_id(session_id)
        kept = incoming.checked_batch(messages)
        if mode is not None and mode not in _MODES:
            raise Invalid(f'"{str(mode)[:40]}" is not a mode (chat, agent).', field="mode")
        if self._redact is not None:
            redact = self._redact
            kept = tuple(incoming.redacted(message, redact) for message in kept)
        added = self._inbox.add(
            space, session_id, kept, defer=defer, key=key, mode=mode, limited_to=limited_to
        )
        lsn = 0
        if not defer:
            lsn, _ = self._finish_all(space, session_id, added.cells, added.unfinished, prompts)
        cells = tuple(cell.cell_id for cell in added.cells) or added.known_cells
        return AddOutcome(added.status, added.count, lsn, cells)

    def flush(
        self,
        space: Space,
        session_id: str,
        *,
        prompts: Mapping[str, str] | None = None,
        limited_to: Collection[str] | None = None,
    ) -> FlushOutcome:
        """Close the open stretch now and write its episodes before answering."""
        checked_session_id(session_id)
        cells, unfinished = self._inbox.flush(space, session_id, limited_to=limited_to)
        lsn, finished = self._finish_all(space, session_id, cells, unfinished, prompts, patient=True)
        return FlushOutcome("extracted", lsn, finished) if finished else FlushOutcome("no_extraction")

    def settle(self, timeout: float = 60.0) -> bool:
        """Wait for the cells that are being told just now; False where one takes longer (a model is asked)."""
        with self._idle:
            busy = frozenset(self._busy)
            return self._idle.wait_for(lambda: not busy & self._busy, timeout)

    def unprocessed(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> list[Message]:
        """What was said in a session and is in no cell yet."""
        return self._inbox.open_messages(space, checked_session_id(session_id), limited_to=limited_to)

    def recover(self, *, everywhere: bool = False) -> int:
        """Finish the cells that a crash left between cut and episode; returns how many there were.

        Quick: only what the ledger names is looked at. With `everywhere` every session log is read, which also
        finds cells whose ledger was lost.
        """
        unfinished = self._pending.unfinished()
        sessions = set(unfinished.values())
        if everywhere:
            sessions |= set(self.sessions())
        count = 0
        settled: list[str] = []
        for space, session_id in sorted(sessions):
            named = {cell for cell, where in unfinished.items() if where == (space, session_id)}
            try:
                count += self._recover_session(space, session_id)
                if named:
                    settled += sorted(named - self._inbox.pending(space, session_id))
            except CairnError as error:
                _log.warning("Session %s was not looked through: %s", session_id, error)
        if settled:
            self._pending.end(settled)
        self._pending.tidy()
        return count

    def _recover_session(self, space: Space, session_id: str) -> int:
        """Finish the cells of one session; how many there were."""
        place = session_locator(space, session_id)
        state = self._log.load(place, keep=False)
        if state.stranded:
            self._inbox.adopt(space, session_id)
            state = self._log.load(place, keep=False)
        return sum(self._try_recovering(space, session_id, cell) for cell in state.pending)

    def _try_recovering(self, space: Space, session_id: str, cell: CellRecord) -> bool:
        try:
            return self._finish(space, session_id, cell, is_own=False) is not None
        except Exception as error:
            _log.warning("Cell %s of session %s is not finished: %s", cell.cell_id, session_id, error)
            return False

    def reextract(
        self,
        space: Space,
        session: str | None = None,
        user: str | None = None,
        date: str | None = None,
        *,
        prompts: Mapping[str, str] | None = None,
    ) -> int:
        """Tell the cells of a session, a user or a day anew, replacing their episodes in place.

        Entry ids stay. An episode that a person removed stays removed. Returns how many entries were changed.

        Raises:
            Invalid: a session or user that cannot be one, or a day that is not in the calendar.
        """
        if user is not None:
            checked_id(user, "user_id")
        if date is not None:
            checked_day(date)
        sessions = [(space, checked_session_id(session))] if session is not None else self.sessions(space)
        changed = 0
        for place, session_id in sessions:
            state = self._log.load(session_locator(place, session_id), keep=False)
            for cell in state.cells:
                owners = [owner for owner in cell.owners if user is None or owner == ("user", user)]
                if not owners or (date is not None and cell.day != date):
                    continue
                found = list(self._episodes(place, cell, owners))
                said = state.messages_of(cell)
                if not found or not said:
                    continue
                extraction = self._extractor.extract(_cell(place, session_id, cell, said), prompts)
                for locator, entry in found:
                    self._notebook.change(locator, entry.id, partial(_replaced, extraction))
                    changed += 1
        return changed

    def sessions(self, space: Space | None = None) -> Iterator[tuple[Space, str]]:
        """Every session there is a log of, in one space or in all."""
        for home in [sessions_of(space)] if space is not None else self._session_folders():
            for locator in iterate_files(self._storage, home):
                if (place := place_of_session(locator)) is not None:
                    yield place

    def _session_folders(self) -> Iterator[Locator]:
        for app in self._storage.list(Locator("")):
            if not app.name.startswith("."):
                for project in self._storage.list(app):
                    if (space := space_of(project)) is not None:
                        yield sessions_of(space)

    def _finish_all(
        self,
        space: Space,
        session_id: str,
        cells: Sequence[CellRecord],
        unfinished: Sequence[CellRecord],
        prompts: Mapping[str, str] | None,
        *,
        patient: bool = False,
    ) -> tuple[int, tuple[str, ...]]:
        """Finish what earlier calls left, then the new cells; the highest LSN and the cells now finished."""
        highest = 0
        finished = []
        mine = [cell for cell in unfinished if self._is_left_over(cell)]
        for cell, is_own in (*((c, False) for c in mine), *((c, True) for c in cells)):
            lsn = self._finish(space, session_id, cell, is_own=is_own, patient=patient, prompts=prompts)
            if lsn is not None:
                highest = max(highest, lsn)
                finished.append(cell.cell_id)
        return highest, tuple(finished)

    def _is_left_over(self, cell: CellRecord) -> bool:
        """Whether nobody else is likely to be at this cell: it failed here, or its process had time enough."""
        if cell.cell_id in self._failed:
            return True
        try:
            age = self._clock.now() - datetime.fromisoformat(cell.at)
        except (ValueError, TypeError):
            return True
        return age.total_seconds() > _OTHERS_SECONDS

    def _finish(
        self,
        space: Space,
        session_id: str,
        cell: CellRecord,
        *,
        is_own: bool,
        patient: bool = False,
        prompts: Mapping[str, str] | None = None,
    ) -> int | None:
        """Take a cell from cut to done; the LSN, or None where another thread or process is at it.

        With `patient` another thread's work on it is waited for, so that a flush answers when the words are told;
        not where a model is asked, whose call may take a minute: that thread finishes what it began.
        """
        patient = patient and not self._extractor.asks_a_model
        with self._idle:
            late = cell.cell_id in self._busy
            if late and (
                not (is_own or patient)
                or not self._idle.wait_for(lambda: cell.cell_id not in self._busy, _PATIENCE_SECONDS)
            ):
                return None
            if (late or not is_own) and not self._inbox.is_pending(space, session_id, cell.cell_id):
                return 0 if is_own else None
            self._busy.add(cell.cell_id)
            self._failed.add(cell.cell_id)
        try:
            if not self._extractor.asks_a_model:
                return self._write(space, session_id, cell, prompts, check_first=not is_own)
            # A model call is dear: let no other process make it too. Without one, doing it twice is harmless.
            number = int.from_bytes(hashlib.sha256(cell.cell_id.encode()).digest()[:4], "big")
            name = f"cell-{number % _CELL_LOCKS:03d}"
            with self._locks.lease(name) as mine:
                if not mine and not is_own:
                    return None
                return self._write(space, session_id, cell, prompts, check_first=not is_own)
        finally:
            with self._idle:
                self._busy.discard(cell.cell_id)
                self._idle.notify_all()

    def _write(
        self,
        space: Space,
        session_id: str,
        record: CellRecord,
        prompts: Mapping[str, str] | None,
        *,
        check_first: bool,
    ) -> int:
        said = self._inbox.messages_of(space, session_id, record)
        lsn = 0
        episodes: list[tuple[Scope, str]] = []
        if said:
            missing = list(record.owners)
            if check_first:
                for locator, entry in self._episodes(space, record, record.owners):
                    scope = _scope_at(space, record, locator)
                    missing.remove((scope.track, scope.owner))
                    episodes.append((scope, entry.id))
            if missing:
                cell = _cell(space, session_id, record, said)
                draft = self._draft(cell, self._extractor.extract(cell, prompts))
                for track, owner in missing:
                    scope = Scope(space, cast("Track", track), owner)
                    drafted = Draft({"owner_id": owner, **draft.inline}, draft.sections)
                    [written] = self._notebook.append(
                        "episode", scope, record.day, [drafted], once_by=("parent_id",)
                    )
                    episodes.append((scope, written.entry_id))
                    lsn = max(lsn, written.lsn)
                said = self._told_again(space, session_id, record, said, prompts)
            lsn = max(lsn, self._announce(session_locator(space, session_id)))
        told = self._tell(record, space, session_id, said, episodes)
        if told:
            self._inbox.done(space, session_id, [record.cell_id])
        with self._guard:
            self._failed.discard(record.cell_id)
        return lsn

    def _told_again(
        self,
        space: Space,
        session_id: str,
        record: CellRecord,
        said: tuple[Message, ...],
        prompts: Mapping[str, str] | None,
    ) -> tuple[Message, ...]:
        """What was forgotten while its cell was told must not come back with the episode: tell it without that."""
        while (now := self._inbox.messages_of(space, session_id, record)) != said:
            said = now
            for locator, entry in self._episodes(space, record, record.owners):
                with suppress(NotFound):  # forgotten whole meanwhile
                    if not said:
                        self._notebook.remove(locator, [entry.id])
                        continue
                    extraction = self._extractor.extract(_cell(space, session_id, record, said), prompts)
                    self._notebook.change(locator, entry.id, partial(_replaced, extraction))
        return said

    def _draft(self, cell: Cell, extraction: Extraction) -> Draft:
        first = said_at(cell.messages[0].timestamp, self._zone).astimezone(UTC)
        inline: dict[str, object] = {
            "session_id": cell.session_id,
            "timestamp": first.isoformat(timespec="milliseconds"),
            "parent_type": "memcell",
            "parent_id": cell.id,
            "sender_ids": list(dict.fromkeys(message.sender_id for message in cell.messages)),
            "writer": extraction.writer,
            "writer_failure": " ".join(extraction.failure.split()) or None,
        }
        return Draft(inline, _sections(extraction))

    def _announce(self, locator: Locator) -> int:
        if self._on_change is None:
            return 0
        try:
            return self._on_change([(locator, "modified")])
        except Exception as error:
            _log.warning("%s: the index was not told; a scan will find the change: %s", locator, error)
            return 0

    def _tell(
        self,
        record: CellRecord,
        space: Space,
        session_id: str,
        said: Sequence[Message],
        episodes: Sequence[tuple[Scope, str]],
    ) -> bool:
        """Raise the event of a finished cell; False if nobody could take it, so that recovery raises it again."""
        if self._on_cell is None:
            return True
        agents = tuple(dict.fromkeys(message.sender_id for message in said if message.role == "assistant"))
        users = tuple(one for one in episodes if one[0].track == "user")
        event = CellEvent(record.cell_id, space, session_id, record.day, users, agents, record.mode)
        try:
            self._on_cell(event)
        except Exception as error:
            _log.warning("Cell %s: the strategies were not told and will be later: %s", record.cell_id, error)
            return False
        return True

    def _episodes(
        self, space: Space, cell: CellRecord, owners: Sequence[tuple[str, str]]
    ) -> Iterator[tuple[Locator, Entry]]:
        """The episodes on disk that were made of `cell`."""
        for track, owner in owners:
            locator = KINDS["episode"].locator(Scope(space, cast("Track", track), owner), cell.day)
            try:
                note = self._notebook.read(locator)
            except NotFound:
                continue
            for entry in note.entries:
                if entry.inline.get("parent_id") == cell.cell_id:
                    yield locator, entry
                    break


def _cell(space: Space, session_id: str, record: CellRecord, said: Sequence[Message]) -> Cell:
    return Cell(record.cell_id, space, session_id, tuple(said), record.day, record.reason)


def _scope_at(space: Space, record: CellRecord, locator: Locator) -> Scope:
    for track, owner in record.owners:
        scope = Scope(space, cast("Track", track), owner)
        if KINDS["episode"].locator(scope, record.day) == locator:
            return scope
    raise Invalid(f"{locator} holds no episode of {record.cell_id}.", locator=locator.key)


def _sections(extraction: Extraction) -> dict[str, str]:
    text = extraction.text
    return {"Subject": text.subject, "Summary": text.summary, "Content": text.content}


def _replaced(extraction: Extraction, old: Entry) -> Draft:
    inline: dict[str, Any] = {**old.inline, "writer": extraction.writer}
    inline["writer_failure"] = " ".join(extraction.failure.split()) or None
    return Draft(inline, {**old.sections, **_sections(extraction)})
