"""Takes messages from `add` to the episode note: inbox, cut, write, event.

add, flush ──> Inbox    the messages and the cut are durable: from here on the call succeeds
──> Teller   the cell's episodes, one per owner; what cannot be written now is written later
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from cairn.config import Settings
from cairn.errors import CairnError, Invalid, InvalidLocatorError, NotFound, Unavailable
from cairn.notes.format import checked_day
from cairn.notes.kinds import scope_locator
from cairn.notes.notebook import Notebook
from cairn.seams import Clock, Locator, Locks, StorageBackend, Writer
from cairn.talk import messages as incoming
from cairn.talk.inbox import Inbox, PendingCells
from cairn.talk.lines import CellRecord
from cairn.talk.merging import episode_notes, tidy
from cairn.talk.sessions import SessionLog, logs_in, session_locator
from cairn.talk.telling import Extractor, Teller, Waiting
from cairn.types import CellEvent, Message, Scope, Space, checked_id, checked_session_id

_log = logging.getLogger(__name__)
_MODES = ("chat", "agent")
_ADMITTED_KEPT = 20_000


@dataclass(frozen=True, slots=True)
class AddOutcome:
    """`status` is "accumulated" or "extracted"; `lsn` is the change after which the words are searchable.

    The messages are kept either way. `waiting` names the episodes that could not be written yet.
    `skipped` says which messages are no talk and were left out, `recalled` how many framed recalls were taken out;
    `is_cut` whether anything was taken out of the messages before they were written.
    Where the caller did not wait, `status` is "queued" and `pending` messages of the session wait to be extracted.
    """

    status: str
    message_count: int
    lsn: int = 0
    cell_ids: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    pending: int | None = None
    skipped: tuple[str, ...] = ()
    recalled: int = 0
    is_cut: bool = False


@dataclass(frozen=True, slots=True)
class FlushOutcome:
    """`status` is "extracted", or "no_extraction" when nothing was open.

    `waiting` names the episodes that are not written yet. Where it is empty, all that was said before is told,
    whichever process took it in or cut it.
    """

    status: str
    lsn: int = 0
    cell_ids: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()


@dataclass(frozen=True, slots=True)
class _Finished:
    """What became of the cells of a call: those told (in part, at least), and what could not be."""

    lsn: int = 0
    cells: tuple[str, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    error: CairnError | None = None


class Capture:
    """Takes messages in, closes stretches of talk, and writes their episodes. Synchronous and thread-safe.

    Args:
        storage: Where the truth is; prompts of the root are read from it.
        notebook: Writes the episodes, and tells of new words and cells in a session's log.
        sessions: Reads the session logs; shared with whoever else does.
        locks: Units of work across threads and processes.
        clock: When things are recorded; messages bring their own times.
        settings: `[capture]`, `[memory] timezone`.
        writer: The language model, if any.
        on_cell: Told of each finished cell, at least once.
        redact: Applied to every text before the first byte of it is written; may raise `Invalid` to refuse.
        local: Storage of this machine alone, for the ledger of unfinished cells; needed where
            `storage` is a folder that other machines see too.
    """

    def __init__(
        self,
        *,
        storage: StorageBackend,
        notebook: Notebook,
        sessions: SessionLog,
        locks: Locks,
        clock: Clock,
        settings: Settings,
        writer: Writer | None = None,
        on_cell: Callable[[CellEvent], None] = lambda _: None,
        redact: Callable[[str], str] = lambda text: text,
        local: StorageBackend | None = None,
    ) -> None:
        self._storage = storage
        self._clock = clock
        self._idle_minutes = settings.capture.idle_minutes
        self._silent: dict[str, float] = {}
        self._notebook = notebook
        self._zone = settings.zone
        self._redact = redact
        self._pending = PendingCells((local or storage).journals, clock)
        self._log = sessions
        self._inbox = Inbox(
            log=self._log,
            locks=locks,
            clock=clock,
            pending=self._pending,
            settings=settings.capture,
            zone=settings.zone,
            admit=self._admit,
        )
        self._teller = Teller(
            log=self._log,
            inbox=self._inbox,
            notebook=notebook,
            extractor=Extractor(storage, settings.zone, writer),
            locks=locks,
            clock=clock,
            zone=settings.zone,
            on_cell=on_cell,
            keep=storage.archive,
        )
        self._admitted: dict[Scope, None] = {}
        self._settled: dict[Locator, tuple[tuple[object, ...], tuple[Locator, ...]]] = {}

    def add(
        self,
        space: Space,
        session_id: str,
        messages: Sequence[Message],
        *,
        defer: bool = False,
        key: str | None = None,
        mode: str | None = None,
        limited_to: Collection[str] | None = None,
        known_by: str | None = None,
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
            limited_to: The owners the caller may act for, where he may not for all: a session of anybody else is
                refused, and one that such a caller begins is closed to other users.
            known_by: What a repeat with the same key is known by, where that is not all of the messages.

        Raises:
            Invalid: something in the input breaks a rule, or the name of a sender differs from one who has memory
                here only by case; nothing was written.
            Forbidden: the session is of somebody outside `limited_to`; nothing was written.
            Conflict: the session was begun for others than a sender; nothing was written.
            StorageFailed: the disk refused the messages; the inbox is as before. An episode that it refuses is
                no error of the call: the messages are kept, and a later call or the background tries again.
        """
        checked_session_id(session_id)
        said = incoming.checked_batch(messages)
        if mode is not None and mode not in _MODES:
            raise Invalid(f'"{str(mode)[:40]}" is not a mode (chat, agent).', field="mode")
        kept = tuple(
            incoming.redacted(message, self._redact, f"messages[{n}]") for n, message in enumerate(said)
        )
        added = self._inbox.add(
            space,
            session_id,
            kept,
            defer=defer,
            key=key,
            mode=mode,
            limited_to=limited_to,
            known_by=known_by,
        )
        # What is open can be found, too: by its words as soon as the index has looked.
        place = session_locator(space, session_id)
        lsn = 0 if added.repeated else self._notebook.announce(place, "modified")
        done = _Finished()
        if not defer:
            try:
                done = self._finish_all(space, session_id, added.cells, added.unfinished)
            except Exception:
                # What was said is kept; a call that has written does not answer that it has not.
                _log.exception("The cells of session %s wait for the next call", session_id)
        mine = {cell.cell_id for cell in added.cells}
        status = "accumulated" if mine and not mine & set(done.cells) else added.status
        cells = tuple(cell.cell_id for cell in added.cells) or added.known_cells
        is_cut = any(one is not other for one, other in zip(kept, said, strict=True))
        return AddOutcome(status, added.count, max(lsn, done.lsn), cells, done.waiting, is_cut=is_cut)

    def flush(
        self,
        space: Space,
        session_id: str,
        *,
        limited_to: Collection[str] | None = None,
    ) -> FlushOutcome:
        """Close the open stretch now and write its episodes before answering.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
            Unavailable: none of the episodes could be written; the message says why. The words are kept, and each
                further call tries again.
        """
        checked_session_id(session_id)
        cells, unfinished = self._inbox.flush(space, session_id, limited_to=limited_to)
        done = self._finish_all(space, session_id, cells, unfinished, patient=True)
        if done.cells:
            return FlushOutcome("extracted", done.lsn, done.cells, done.waiting)
        if done.error is not None:
            raise _unavailable(done)
        return FlushOutcome("no_extraction", waiting=done.waiting)

    @property
    def waiting(self) -> list[Waiting]:
        """The episodes that could not be written when this process last tried, and why."""
        return self._teller.waiting

    def is_at(self, cell: CellRecord) -> bool:
        """Whether somebody is likely to be telling this cell just now."""
        return not self._teller.is_left_over(cell, insist=True)

    def settle(self, timeout: float = 60.0) -> bool:
        """Wait for the cells that are being told just now; False where one takes longer (a model is asked)."""
        return self._teller.settle(timeout)

    def unprocessed(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> list[Message]:
        """What was said in a session and is in no cell yet."""
        return self._inbox.open_messages(space, checked_session_id(session_id), limited_to=limited_to)

    def retry(self) -> int:
        """Try again to write the episodes that wait, where enough time has passed; returns how many cells are done."""
        count = 0
        for space, session_id in sorted({(one.scope.space, one.session_id) for one in self.waiting}):
            try:
                count += self._recover_session(space, session_id, insist=False)
            except CairnError as error:
                _log.warning("Session %s was not looked through: %s", session_id, error)
        return count

    def close_silent(self, minutes: float | None = None) -> int:
        """Close the open stretch of every session to which nothing was added for `minutes`; how many were closed.

        Without `minutes` the setting decides, where 0 means never. A log is looked into once for each time it was
        written to; between, one look at its time is all.
        """
        if minutes is None:
            minutes = self._idle_minutes
            if not minutes:
                return 0
        before = self._clock.now().timestamp() - 60 * minutes
        closed = 0
        known, self._silent = self._silent, {}  # only what is still there is known on
        for space, session_id, locator, written in self._logs():
            if written > before:
                continue
            try:
                if known.get(locator.key) == written:
                    self._silent[locator.key] = written
                    continue
                if self.unprocessed(space, session_id):
                    if self._storage.info(locator).mtime > before:  # somebody spoke meanwhile
                        continue
                    self.flush(space, session_id)
                    closed += 1
                else:
                    self._silent[locator.key] = written
            except CairnError as error:
                _unread(locator, error)
                self._silent[locator.key] = written
        return closed

    def recover(self, *, everywhere: bool = False) -> int:
        """Finish the cells that a crash left between cut and episode; returns how many there were.

        Quick: only what the ledger names is looked at. With `everywhere` every session log is read, which also
        finds cells whose ledger was lost.
        """
        unfinished = self._pending.unfinished()
        sessions = {(one.space, one.session_id) for one in unfinished.values()}
        if everywhere:
            sessions |= set(self.sessions())
        count = 0
        # A cell is noted before it is cut: one that is in no log may be on its way there, but not for an hour.
        before = (self._clock.now() - timedelta(hours=1)).isoformat(timespec="seconds")
        for space, session_id in sorted(sessions):
            named = [cell for cell, one in unfinished.items() if one[:2] == (space, session_id)]
            try:
                count += self._recover_session(space, session_id, insist=True)
                known = self._inbox.are_done(space, session_id, named) if named else {}
                self._pending.end(
                    cell
                    for cell, is_done in known.items()
                    if is_done or (is_done is None and unfinished[cell].at < before)
                )
            except CairnError as error:
                _log.warning("Session %s was not looked through: %s", session_id, error)
        self.close()
        return count

    def close(self) -> None:
        """Note which cells are done, so that the next start need not look at them."""
        self._pending.close()

    def settle_session(self, space: Space, session_id: str) -> int:
        """Tell what a union of logs left to tell, and remove episodes that say what others say; how many went."""
        place = session_locator(space, checked_session_id(session_id))
        try:
            known = self._settled.get(place, ((), ()))
            if known[0] and self._stamps((place, *known[1])) == known[0]:
                return 0  # neither the log nor a note of its cells has changed since
            self._recover_session(space, session_id, insist=True)
            state = self._log.load(place, keep=False)
            count = tidy(self._notebook, state, self._zone)
            notes = tuple(dict.fromkeys(episode_notes(state)))
            self._settled[place] = (self._stamps((place, *notes)), notes)
            return count
        except CairnError as error:
            _log.warning("Session %s was not looked through: %s", session_id, error)
            return 0

    def _stamps(self, places: Sequence[Locator]) -> tuple[object, ...]:
        """What tells whether files have changed: the time and size of each."""
        found: list[object] = []
        for at in places:
            try:
                info = self._storage.info(at)
                found.append((info.mtime, info.size))
            except NotFound:
                found.append(None)
        return tuple(found)

    def _recover_session(self, space: Space, session_id: str, *, insist: bool) -> int:
        """Finish the cells of one session; how many there were."""
        place = session_locator(space, session_id)
        state = self._log.load(place, keep=False)
        if state.stranded:
            self._inbox.adopt(space, session_id)
            state = self._log.load(place, keep=False)
        return sum(
            self._try_recovering(space, session_id, cell)
            for cell in state.pending
            if insist or self._teller.is_left_over(cell, insist=False)
        )

    def _try_recovering(self, space: Space, session_id: str, cell: CellRecord) -> bool:
        try:
            told = self._teller.finish(space, session_id, cell, is_own=False)
            return told is not None and not told.waiting
        except Exception as error:
            _log.warning("Cell %s of session %s is not finished: %s", cell.cell_id, session_id, error)
            return False

    def reextract(
        self,
        space: Space,
        session: str | None = None,
        user: str | None = None,
        date: str | None = None,
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
                said = state.messages_of(cell)
                changed += self._teller.retell(place, cell, said, owners)
        return changed

    def forget(self, space: Space, sessions: Collection[str]) -> int:
        """Let go of what is known of sessions whose logs were removed; how many lines of the ledger went."""
        self._log.drop()
        return self._pending.forget(space, sessions)

    def sessions(
        self,
        space: Space | None = None,
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[Space, str]]:
        """Every session there is a log of, in one space or in all.

        A folder that cannot be read is passed over, which `passed_over` is told of (the log, without one).
        """
        for one, session_id, _, _ in self._logs(space, passed_over):
            yield one, session_id

    def _logs(
        self,
        space: Space | None = None,
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[Space, str, Locator, float]]:
        """Every session of one space, or of all, with its log and when that was written."""
        for one in [space] if space is not None else self._notebook.root.spaces():
            for session_id, locator, _, written in logs_in(self._storage, one, passed_over or _unread):
                yield one, session_id, locator, written

    def _admit(self, scopes: Sequence[Scope]) -> None:
        """Make sure that each owner can have a folder, before anything of theirs is taken in.

        Raises:
            Invalid: one is named nearly like another who has a folder; on half of all machines the two are one.
        """
        for scope in scopes:
            if scope in self._admitted:
                continue
            try:
                self._storage.mkdir(scope_locator(scope))
            except InvalidLocatorError as error:
                twin = error.facts.get("twin")
                if twin is None:
                    raise
                named = (
                    ("app_id", scope.space.app),
                    ("project_id", scope.space.project),
                    ("sender_id", scope.owner),
                )
                field, given = next((one for one in named if one[1].casefold() == twin.casefold()), named[-1])
                raise Invalid(
                    f'{field} "{given}" differs from "{twin}", which has memory here, only by case or Unicode '
                    f'form: on many machines their folders would be one. Use "{twin}", or another id. Nothing was '
                    "written.",
                    field=field,
                    twin=twin,
                ) from None
            while len(self._admitted) >= _ADMITTED_KEPT:
                self._admitted.pop(next(iter(self._admitted)), None)
            self._admitted[scope] = None

    def _finish_all(
        self,
        space: Space,
        session_id: str,
        cells: Sequence[CellRecord],
        unfinished: Sequence[CellRecord],
        *,
        patient: bool = False,
    ) -> _Finished:
        """Finish what earlier calls left, then the new cells."""
        lsn = 0
        finished: list[str] = []
        waiting: list[Waiting] = []
        error: CairnError | None = None
        for cell, is_own in (*((c, False) for c in unfinished), *((c, True) for c in cells)):
            told = None
            if is_own or self._teller.takes_up(cell, patient=patient):
                told = self._teller.finish(space, session_id, cell, is_own=is_own, patient=patient)
            if told is None:
                waiting += self._teller.told_elsewhere(space, session_id, cell) if patient else ()
                continue
            lsn = max(lsn, told.lsn)
            waiting += told.waiting
            error = error or told.error
            if told.written or not told.waiting:
                finished.append(cell.cell_id)
        return _Finished(lsn, tuple(finished), tuple(waiting), error)


def _unread(at: Locator, error: CairnError) -> None:
    _log.warning("The sessions of %s are passed over: %s", at, error)


def _unavailable(done: _Finished) -> CairnError:
    """The refusal of a call whose words are kept but of which nothing could be told."""
    if isinstance(done.error, Unavailable):
        return done.error
    return Unavailable(str(done.waiting[0]), cells=[one.cell_id for one in done.waiting])
