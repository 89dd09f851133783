"""Writes the episodes of a closed cell: one for each owner, once, independent of the others.

    cell ──> Extractor   outside every lock: adds go on while a model thinks
         ──> Notebook    one episode per owner, once per cell
         ──> announce    the index may fetch the cell's words
         ──> on_cell     the strategies hear of it
         ──> done        noted in the log; until then recovery repeats the steps above

Each step is safe to repeat: a cell's id follows from its place in the log, and the notebook writes an episode
of the same cell only once. Where one owner's note cannot be written (a person saved it in another encoding, a
folder of nearly the same name is there), the others get theirs all the same; that owner's waits, is named by
`waiting`, and is tried again.

The words of an episode come from a model where there is one. Its way out is always open: whatever goes wrong with it, the
deterministic text stands in, and the episode says which of the two wrote it.
"""

from __future__ import annotations

import hashlib
import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

from cairn.errors import CairnError, Invalid, NotFound
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Clock, Locator, Locks, StorageBackend, Writer
from cairn.talk import narrative
from cairn.talk.inbox import Inbox
from cairn.talk.lines import CellRecord, Finished, Owner, ToldTo
from cairn.talk.merging import is_machine_made
from cairn.talk.messages import inline_of
from cairn.talk.narrative import DETERMINISTIC, EpisodeText, said_at
from cairn.talk.sessions import SessionLog, session_locator
from cairn.types import CellEvent, Entry, Message, Scope, Space

_log = logging.getLogger(__name__)
_CELL_LOCKS = 256
_PATIENCE_SECONDS = 120.0
_OTHERS_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 60.0
_AHEAD_KEPT = 1000
_AT_IT = "another call is writing it just now"

PROMPTS = Locator("prompts")
_PROMPT_CHARS = 300_000
_MAX_PROMPT_FILE = 64_000
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "subject": {"type": "string"},
        "summary": {"type": "string"},
        "content": {"type": "string"},
    },
    "required": ["subject", "summary", "content"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Extraction:
    """An episode's text, who wrote it, and why the model did not where it should have."""

    text: EpisodeText
    writer: str = DETERMINISTIC
    failure: str = ""


class Extractor:
    """Turns cells into episode texts."""

    def __init__(self, storage: StorageBackend, zone: ZoneInfo, writer: Writer | None = None) -> None:
        self._storage = storage
        self._zone = zone
        self._writer = writer

    @property
    def asks_a_model(self) -> bool:
        return self._writer is not None

    def extract(self, cell_id: str, said: Sequence[Message]) -> Extraction:
        """The episode of a cell. Never fails: without a usable answer from the model the words speak themselves.

        Args:
            cell_id: The cell, for the record of what the model is asked.
            said: What was said in it.
        """
        if self._writer is None:
            return Extraction(narrative.told(said, self._zone))
        try:
            return Extraction(self._asked(self._writer, cell_id, said), f"model:{self._writer.id}")
        except Exception as error:
            if not isinstance(error, CairnError):
                _log.exception("A cell is told without the model")  # a fault of ours
            reason = str(error) if isinstance(error, CairnError) else f"{type(error).__name__}: {error}"
            return Extraction(narrative.told(said, self._zone), DETERMINISTIC, reason[:300])

    def _asked(self, writer: Writer, cell_id: str, said: Sequence[Message]) -> EpisodeText:
        system = self.prompt("episode")
        talk = narrative.transcript(said, self._zone)
        if len(talk) > _PROMPT_CHARS:
            half = _PROMPT_CHARS // 2
            talk = f"{talk[:half]}\n\n[{len(talk) - 2 * half} characters left out]\n\n{talk[-half:]}"
        answer = writer.complete(system, talk, _SCHEMA, purpose=f"episode {cell_id}").value
        texts = {name: _clean(answer[name]) for name in ("subject", "summary", "content")}
        for name, text in texts.items():
            if not text:
                raise Invalid(f"The model left the {name} empty.", field=name)
        subject = " ".join(texts["subject"].split())[: 2 * narrative.SUBJECT_CHARS]
        return EpisodeText(subject, texts["summary"], texts["content"])

    def prompt(self, name: str) -> str:
        """The prompt called `name`: the root's `prompts/<name>.md`, or the built-in."""
        try:
            text = self._storage.read(PROMPTS.child(f"{name}.md"))
            if text.strip() and len(text) <= _MAX_PROMPT_FILE:
                return text
        except NotFound:
            pass
        return (resources.files("cairn.talk") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def _clean(text: str) -> str:
    """A model's text made fit for a note: no NUL, no lone surrogates, no blanks around it."""
    return text.replace("\0", "").encode("utf-8", "ignore").decode("utf-8").strip()


@dataclass(frozen=True, slots=True)
class Waiting:
    """An episode that could not be written yet: whose it is, of which cell, and why. The words are in the log."""

    scope: Scope
    session_id: str
    cell_id: str
    reason: str

    def __str__(self) -> str:
        return (
            f"The episode of {self.scope.owner} from session {self.session_id} (cell {self.cell_id}) waits, its words "
            f"are kept: {self.reason}"
        )


@dataclass(frozen=True, slots=True)
class Telling:
    """What became of a cell: the LSN to wait for, how many episodes were written, and who waits for theirs."""

    lsn: int = 0
    written: int = 0
    waiting: tuple[Waiting, ...] = ()
    error: CairnError | None = None


@dataclass(frozen=True, slots=True)
class _Work:
    """A cell that is being told: where its log is, and its record."""

    place: Locator
    space: Space
    session_id: str
    record: CellRecord


@dataclass(slots=True)
class _Failure:
    waiting: tuple[Waiting, ...] = ()
    tries: int = 0
    not_before: float = field(default=0.0)


class Teller:
    """Writes the episodes of cells. Thread-safe, and safe beside other processes.

    Args:
        log: Knows the words of a cell.
        inbox: Is told when a cell is done.
        notebook: Writes the episodes, and tells of the log that they were made of.
        extractor: Makes the text of an episode.
        locks: Keeps two processes from asking a model about one cell.
        clock: Tells how old a cut is.
        zone: The display zone, for the times in a note.
        on_cell: Telling of each finished cell, at least once.
        keep: Puts a copy of a session's log aside, before its episodes are written.
    """

    def __init__(
        self,
        *,
        log: SessionLog,
        inbox: Inbox,
        notebook: Notebook,
        extractor: Extractor,
        locks: Locks,
        clock: Clock,
        zone: ZoneInfo,
        on_cell: Callable[[CellEvent], None],
        keep: Callable[[Locator], object],
    ) -> None:
        self._keep = keep
        self._log = log
        self._inbox = inbox
        self._notebook = notebook
        self._extractor = extractor
        self._locks = locks
        self._clock = clock
        self._zone = zone
        self._on_cell = on_cell
        self._busy: set[str] = set()
        self._ahead: dict[str, float] = {}
        self._failed: dict[str, _Failure] = {}
        self._guard = threading.Lock()
        self._idle = threading.Condition(self._guard)

    @property
    def waiting(self) -> list[Waiting]:
        """The episodes that could not be written when this process last tried."""
        with self._guard:
            return [one for failure in self._failed.values() for one in failure.waiting]

    def settle(self, timeout: float) -> bool:
        """Wait for the cells that are being told just now; False where one takes longer (a model is asked)."""
        with self._idle:
            busy = frozenset(self._busy)
            return self._idle.wait_for(lambda: not busy & self._busy, timeout)

    def is_left_over(self, cell: CellRecord, *, insist: bool) -> bool:
        """Whether this cell should be taken up here: it failed here, or its process had time enough.

        A cell that failed again and again is left alone for a while, unless the caller insists. One that was cut on a
        machine whose clock is ahead of this one's is as old as this process has known it.
        """
        with self._guard:
            failure = self._failed.get(cell.cell_id)
        if failure is not None:
            return insist or time.monotonic() >= failure.not_before
        try:
            age = (self._clock.now() - datetime.fromisoformat(cell.at)).total_seconds()
        except (ValueError, TypeError):
            return True
        if age < 0:
            age = self._known_for(cell)
        return age > _OTHERS_SECONDS

    def _known_for(self, cell: CellRecord) -> float:
        """How many seconds ago this process was first asked about a cell."""
        with self._guard:
            if len(self._ahead) >= _AHEAD_KEPT:
                self._ahead.clear()
            return time.monotonic() - self._ahead.setdefault(cell.cell_id, time.monotonic())

    def takes_up(self, cell: CellRecord, *, patient: bool) -> bool:
        """Whether a call tells this cell although another call cut it.

        One that answers when the words are told does so whoever else may be at it: another machine may have died with
        it a moment ago, and telling it twice writes it once. Not where a model would be asked twice.
        """
        return (patient and not self._extractor.asks_a_model) or self.is_left_over(cell, insist=patient)

    def told_elsewhere(self, space: Space, session_id: str, cell: CellRecord) -> list[Waiting]:
        """The episodes of a cell that another call is writing just now, as far as this process knows."""
        if not self._inbox.is_pending(space, session_id, cell.cell_id):
            return []
        return [Waiting(Scope(space, *owner), session_id, cell.cell_id, _AT_IT) for owner in cell.owners]

    def finish(
        self,
        space: Space,
        session_id: str,
        cell: CellRecord,
        *,
        is_own: bool,
        patient: bool = False,
    ) -> Telling | None:
        """Take a cell from cut to done; None where another thread or process is at it, or has been.

        With `patient` another thread's work on it is waited for, so that a flush answers when the words are told;
        not where a model is asked, whose call may take a minute: that thread finishes what it began.
        """
        patient = patient and not self._extractor.asks_a_model
        work = _Work(session_locator(space, session_id), space, session_id, cell)
        with self._idle:
            late = cell.cell_id in self._busy
            if late and (
                not (is_own or patient)
                or not self._idle.wait_for(lambda: cell.cell_id not in self._busy, _PATIENCE_SECONDS)
            ):
                return None
            if (late or not is_own) and not self._inbox.is_pending(space, session_id, cell.cell_id):
                self._failed.pop(cell.cell_id, None)
                return Telling() if is_own else None
            self._busy.add(cell.cell_id)
            # Until it is done: whatever ends this thread, the next call of this process takes it up.
            self._failed.setdefault(cell.cell_id, _Failure())
        try:
            if not self._extractor.asks_a_model:
                return self._write(work, check_first=not is_own)
            # A model call is dear: let no other process make it too. Without one, doing it twice is harmless.
            number = int.from_bytes(hashlib.sha256(cell.cell_id.encode()).digest()[:4], "big")
            with self._locks.lease(f"cell-{number % _CELL_LOCKS:03d}") as mine:
                if not mine and not is_own:
                    return None
                return self._write(work, check_first=not is_own)
        finally:
            with self._idle:
                self._busy.discard(cell.cell_id)
                self._idle.notify_all()

    def _write(self, work: _Work, *, check_first: bool) -> Telling:
        # Of a cell that was cut a moment ago memory has the words; what became of them meanwhile is looked at in the end.
        record = work.record
        with self._log.around(work.place, record.cell_id, trust=not check_first) as log:
            said = log.messages_of(record)
        lsn = 0
        episodes: dict[Owner, tuple[Scope, str]] = {}
        failed: dict[Owner, CairnError] = {}
        fresh: list[Owner] = []
        if said:
            if check_first:
                episodes, failed = self._there(work.space, record)
            if record.again:
                lsn = self._retell(work, said, episodes, failed)
            known = {*episodes, *failed, *record.told}  # one that was told and is not there was removed since
            missing = [owner for owner in record.owners if owner not in known]
            told = 0
            if missing:
                told = self._append(work, said, missing, episodes, failed)
                said = self._told_again(work, said, list(episodes))
            fresh = [owner for owner in episodes if owner in missing]
            if failed and not fresh:
                return self._wait(work, Telling(max(lsn, told)), failed)
            # The note's change told of the log's, too, where one was written.
            lsn = max(lsn, told or self._notebook.announce(work.place, "modified"))
        heard = self._tell(work, said, list(episodes.values()))
        if failed:
            self._inbox.note(work.space, work.session_id, ToldTo(record.cell_id, tuple(fresh)))
            return self._wait(work, Telling(lsn, len(fresh)), failed)
        if heard:
            self._inbox.note(work.space, work.session_id, Finished(record.cell_id))
        with self._guard:
            self._failed.pop(record.cell_id, None)
        return Telling(lsn, len(episodes))

    def _append(
        self,
        work: _Work,
        said: Sequence[Message],
        missing: Sequence[Owner],
        episodes: dict[Owner, tuple[Scope, str]],
        failed: dict[Owner, CairnError],
    ) -> int:
        """Write the episode of each owner who has none; those who cannot be given theirs go to `failed`."""
        try:
            self._keep(work.place)
        except CairnError as error:
            failed.update(dict.fromkeys(missing, error))
            return 0
        draft, lsn = self._draft(work, said), 0
        for owner in missing:
            scope = Scope(work.space, *owner)
            drafted = Draft({"owner_id": scope.owner, **draft.inline}, draft.sections)
            try:
                [written] = self._notebook.append(
                    "episode", scope, work.record.day, [drafted], once_by=("parent_id",), also=work.place
                )
            except CairnError as error:
                failed[owner] = error
                continue
            episodes[owner] = (scope, written.entry_id)
            lsn = max(lsn, written.lsn)
        return lsn

    def _retell(
        self,
        work: _Work,
        said: Sequence[Message],
        episodes: Mapping[Owner, tuple[Scope, str]],
        failed: dict[Owner, CairnError],
    ) -> int:
        """Give the episodes that are there the words the cell holds now; one that a person reworded stays."""
        extraction = self._extractor.extract(work.record.cell_id, said)
        lsn = 0
        for owner in episodes:
            try:
                for locator, entry in self._episodes(work.space, work.record, [owner]):
                    if is_machine_made(entry, self._log.load(work.place).messages, self._zone):
                        change = partial(_replaced, extraction, said)
                        lsn = max(lsn, self._notebook.change(locator, entry.id, change).lsn)
            except CairnError as error:
                failed[owner] = error
        return lsn

    def _wait(self, work: _Work, told: Telling, failed: Mapping[Owner, CairnError]) -> Telling:
        """Remember whose episodes could not be written; each failure makes the pause before the next try longer."""
        cell_id = work.record.cell_id
        waiting = tuple(
            Waiting(Scope(work.space, *owner), work.session_id, cell_id, str(error))
            for owner, error in failed.items()
        )
        with self._guard:
            failure = self._failed.setdefault(cell_id, _Failure())
            failure.waiting = waiting
            failure.tries += 1
            failure.not_before = time.monotonic() + min(2.0 ** (failure.tries - 1), _LONGEST_PAUSE_SECONDS)
        for one in waiting:
            _log.warning("%s", one)
        return Telling(told.lsn, told.written, waiting, next(iter(failed.values())))

    def _told_again(
        self, work: _Work, said: tuple[Message, ...], owners: Sequence[Owner]
    ) -> tuple[Message, ...]:
        """What was forgotten while its cell was told must not come back with the episode: tell it without that."""
        while True:
            with self._log.around(work.place, work.record.cell_id) as log:
                now = log.messages_of(work.record)
            if now == said:
                return said
            said = now
            for locator, entry in self._episodes(work.space, work.record, owners):
                with suppress(NotFound):  # forgotten whole meanwhile
                    if not said:
                        self._notebook.remove(locator, [entry.id])
                        continue
                    extraction = self._extractor.extract(work.record.cell_id, said)
                    self._notebook.change(locator, entry.id, partial(_replaced, extraction, said))

    def retell(
        self, space: Space, record: CellRecord, said: Sequence[Message], owners: Sequence[Owner]
    ) -> int:
        """Replace the text of the episodes of a cell that are there, in place; how many there were."""
        found = list(self._episodes(space, record, owners))
        if not found or not said:
            return 0
        extraction = self._extractor.extract(record.cell_id, said)
        for locator, entry in found:
            self._notebook.change(locator, entry.id, partial(_replaced, extraction, said))
        return len(found)

    def _draft(self, work: _Work, said: Sequence[Message]) -> Draft:
        extraction = self._extractor.extract(work.record.cell_id, said)
        first = said_at(said[0].timestamp, self._zone).astimezone(UTC)
        inline: dict[str, object] = {
            "session_id": work.session_id,
            "timestamp": first.isoformat(timespec="milliseconds"),
            "parent_type": "memcell",
            "parent_id": work.record.cell_id,
            "sender_ids": list(dict.fromkeys(message.sender_id for message in said)),
            **inline_of(said),
            "writer": extraction.writer,
            "writer_failure": " ".join(extraction.failure.split()) or None,
        }
        return Draft(inline, _sections(extraction))

    def _tell(self, work: _Work, said: Sequence[Message], episodes: Sequence[tuple[Scope, str]]) -> bool:
        """Raise the event of a finished cell; False if nobody could take it, so that recovery raises it again."""
        agents = tuple(dict.fromkeys(message.sender_id for message in said if message.role == "assistant"))
        users = tuple(one for one in episodes if one[0].track == "user")
        record = work.record
        event = CellEvent(record.cell_id, work.space, work.session_id, record.day, users, agents, record.mode)
        try:
            self._on_cell(event)
        except Exception as error:
            _log.warning("Cell %s: the strategies were not told and will be later: %s", record.cell_id, error)
            return False
        return True

    def _there(
        self, space: Space, cell: CellRecord
    ) -> tuple[dict[Owner, tuple[Scope, str]], dict[Owner, CairnError]]:
        """The episodes of `cell` on disk, by owner, and the owners whose note cannot be read."""
        found: dict[Owner, tuple[Scope, str]] = {}
        failed: dict[Owner, CairnError] = {}
        for owner in cell.owners:
            try:
                for _, entry in self._episodes(space, cell, [owner]):
                    found[owner] = (Scope(space, *owner), entry.id)
            except CairnError as error:
                if owner not in cell.told:
                    failed[owner] = error
        return found, failed

    def _episodes(
        self, space: Space, cell: CellRecord, owners: Sequence[Owner]
    ) -> Iterator[tuple[Locator, Entry]]:
        """The episodes on disk that were made of `cell`."""
        for owner in owners:
            locator = KINDS["episode"].locator(Scope(space, *owner), cell.day)
            try:
                note = self._notebook.read(locator)
            except NotFound:
                continue
            for entry in note.entries:
                if entry.inline.get("parent_id") == cell.cell_id:
                    yield locator, entry
                    break


def _sections(extraction: Extraction) -> dict[str, str]:
    text = extraction.text
    return {"Subject": text.subject, "Summary": text.summary, "Content": text.content}


def _replaced(extraction: Extraction, said: Sequence[Message], old: Entry) -> Draft:
    inline: dict[str, Any] = {**old.inline, **inline_of(said), "writer": extraction.writer}
    inline["writer_failure"] = " ".join(extraction.failure.split()) or None
    return Draft(inline, {**old.sections, **_sections(extraction)})
