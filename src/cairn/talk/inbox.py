"""The inbox: messages spooled per session until a boundary, then cut into cells.

    add ──> lock the session · look what others appended · seen before? · where to cut?
        ──> one journal unit: the messages and the cuts they bring · flushed · acknowledged

What is kept in memory of a session is small (who spoke when, not the words), is checked against the log's size
on every call, and may be dropped at any time: the log is the truth. The cost of an add does not depend on how
many messages are open.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from cairn import rights
from cairn.config import CaptureSettings
from cairn.errors import Conflict, Invalid
from cairn.seams import Clock, Embedder, Journals, Locator, Locks
from cairn.talk.boundary import Cut, Stretch
from cairn.talk.narrative import said_at
from cairn.talk.pending import PendingCells
from cairn.talk.sessions import (
    CellRecord,
    SessionState,
    cell_from,
    cell_id,
    message_from,
    message_to,
    session_locator,
)
from cairn.types import Message, Space

_REMEMBERED_BATCHES = 256
_CACHED_SESSIONS = 512
_LOCK_NAMES = 1024
_MAX_KEY_CHARS = 200


class _Turn(NamedTuple):
    """What a cut must know of an open message; `unit` is the byte of the log where its lines begin."""

    ordinal: int
    sender_id: str
    role: str
    timestamp: int
    unit: int


@dataclass(slots=True)
class _Batch:
    digest: str
    count: int
    status: str = "accumulated"
    cells: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Added:
    """What became of one add: how many messages it holds, the cells it closed, and whether it was a repeat."""

    status: str
    count: int
    cells: tuple[CellRecord, ...] = ()
    unfinished: tuple[CellRecord, ...] = ()
    repeated: bool = False
    known_cells: tuple[str, ...] = ()


class _Session:
    """What memory holds of one session. Only touched under the session's lock."""

    def __init__(self, place: Locator, session_id: str, stretch: Stretch) -> None:
        self.place = place
        self.session_id = session_id
        self.stretch = stretch
        self.offset = 0
        self.next_ordinal = 0
        self.cut_upto = 0
        self.mode = ""
        self.turns: deque[_Turn] = deque()
        self.people: dict[str, int] = {}
        self.due: list[Cut] = []
        self.spoke: set[tuple[str, str]] = set()
        self.begun_for: frozenset[str] | None = None
        self.batches: OrderedDict[str, _Batch] = OrderedDict()
        self.pending: dict[str, tuple[CellRecord, int]] = {}

    def follow(self, lines: Iterable[str], start: int) -> None:
        """Take over lines of the log that this process did not write (or does not remember)."""
        for line in lines:
            try:
                self._take(json.loads(line), start)
            except (ValueError, TypeError, KeyError, AttributeError):
                continue

    def _take(self, line: Mapping[str, Any], start: int) -> None:
        if line["t"] == "add":
            first = max(int(line.get("n", 0)), self.next_ordinal)
            raws = line["messages"]
            if self.next_ordinal == 0 and isinstance(line.get("for"), list):
                self.begun_for = frozenset(str(owner) for owner in line["for"])
            for ordinal, raw in enumerate(raws, first):
                if raw is not None:
                    self.notice(ordinal, message_from(raw, ""), start)
            self.enter(first, len(raws), str(line.get("batch", "")), line.get("key"), line.get("mode"))
        elif line["t"] == "cut":
            self.close(cell_from(line), line.get("by"))
        elif line["t"] == "done":
            self.pending.pop(line["cell"], None)

    @property
    def owners(self) -> frozenset[str]:
        """Whose the session is, by all that was said in it."""
        return rights.session_owners(self.spoke)

    def notice(self, ordinal: int, message: Message, unit: int) -> None:
        """Let the boundary rules see a message, once."""
        self.due += self.stretch.take(ordinal, message)
        self.spoke.add((message.role, message.sender_id))
        if message.role == "user":
            self.people.setdefault(message.sender_id, ordinal)
        self.turns.append(_Turn(ordinal, message.sender_id, message.role, message.timestamp, unit))

    def enter(self, first: int, count: int, digest: str, key: str | None, mode: str | None) -> None:
        """Messages are in the log."""
        self.next_ordinal = first + count
        self.mode = mode or self.mode
        batch = _Batch(digest, count)
        if digest:
            self.batches[digest] = batch
        if key:
            self.batches[_keyed(key)] = batch
        while len(self.batches) > _REMEMBERED_BATCHES:
            self.batches.popitem(last=False)

    def close(self, cell: CellRecord, by: str | None) -> None:
        """A cut is in the log."""
        self.pending[cell.cell_id] = (cell, self.turns[0].unit if self.turns else 0)
        self.cut_upto = max(self.cut_upto, cell.upto)
        while self.turns and self.turns[0].ordinal < self.cut_upto:
            self.turns.popleft()
        self.due = [cut for cut in self.due if cut.upto > self.cut_upto]
        if self.stretch.first < self.cut_upto:
            self.stretch.close(self.cut_upto)
        if not self.turns:
            self.mode = ""
        if by and by in self.batches:
            self.batches[by].status = "extracted"
            self.batches[by].cells.append(cell.cell_id)


class Inbox:
    """Keeps what was said, durably and once, and cuts it into cells. Thread-safe, and safe across processes."""

    def __init__(
        self,
        *,
        journals: Journals,
        locks: Locks,
        clock: Clock,
        pending: PendingCells,
        settings: CaptureSettings,
        zone: ZoneInfo,
        embedder: Callable[[], Embedder | None] | None = None,
        cached_sessions: int = _CACHED_SESSIONS,
    ) -> None:
        self._journals = journals
        self._locks = locks
        self._clock = clock
        self._ledger = pending
        self._settings = settings
        self._zone = zone
        self._embedder = embedder
        self._limit = cached_sessions
        self._sessions: OrderedDict[Locator, _Session] = OrderedDict()
        self._guard = threading.Lock()

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
    ) -> Added:
        """Append `messages` as one durable unit, with the cuts they bring unless `defer` is set.

        The same call again (the same `key`, or without one the very same messages) is kept once and answered as
        before. A key that was used for other messages raises `Invalid`, a session that the caller does not reach
        `Forbidden`, and one that is closed to a sender `Conflict`.
        """
        place = session_locator(space, session_id)
        said = json.dumps([message_to(m) for m in messages], ensure_ascii=False, separators=(",", ":"))
        digest = hashlib.sha256(said.encode("utf-8")).hexdigest()[:24]
        _check_key(key)
        with self._holding(place):
            session = self._current(session_id, place)
            rights.check_session(session_id, session.owners, limited_to)
            users = (message.sender_id for message in messages if message.role == "user")
            rights.check_newcomers(session_id, session.begun_for, users)
            repeat = self._repeat(session, digest, key)
            if repeat is not None:
                unfinished = tuple(cell for cell, _ in session.pending.values())
                return Added(repeat.status, repeat.count, (), unfinished, True, tuple(repeat.cells))
            before = tuple(cell for cell, _ in session.pending.values())
            try:
                cells = self._append(space, session, messages, said, digest, defer, key, mode, limited_to)
            except BaseException:
                # The rules have seen messages the log does not hold: read it anew next time.
                self._forget(place)
                raise
        return Added("extracted" if cells else "accumulated", len(messages), tuple(cells), before)

    def _append(
        self,
        space: Space,
        session: _Session,
        messages: Sequence[Message],
        said: str,
        digest: str,
        defer: bool,
        key: str | None,
        mode: str | None,
        limited_to: Collection[str] | None,
    ) -> list[CellRecord]:
        first, start = session.next_ordinal, session.offset
        for ordinal, message in enumerate(messages, first):
            session.notice(ordinal, message, start)
        head: dict[str, Any] = {"t": "add", "n": first, "batch": digest, "at": self._now()}
        begun_for = sorted(limited_to) if first == 0 and limited_to is not None else None
        more = (("key", key), ("mode", mode), ("for", begun_for))
        head |= {name: value for name, value in more if value is not None}
        line = f'{json.dumps(head, ensure_ascii=False, separators=(",", ":"))[:-1]},"messages":{said}}}'
        cells = [] if defer else self._cells(space, session, session.due, mode or session.mode)
        if cells:
            self._ledger.begin(space, session.session_id, [cell.cell_id for cell in cells])
        session.offset = self._journals.append(
            session.place, [line, *(self._cut_line(c, digest) for c in cells)]
        )
        session.enter(first, len(messages), digest, key, mode)
        if begun_for is not None:
            session.begun_for = frozenset(begun_for)
        for cell in cells:
            session.close(cell, digest)
        return cells

    def flush(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> tuple[tuple[CellRecord, ...], tuple[CellRecord, ...]]:
        """Cut everything that is open; returns the new cells and those an earlier call left unfinished."""
        place = session_locator(space, session_id)
        with self._holding(place):
            session = self._current(session_id, place)
            rights.check_session(session_id, session.owners, limited_to)
            before = tuple(cell for cell, _ in session.pending.values())
            if session.next_ordinal == session.cut_upto:
                return (), before
            cuts = [*session.due]
            if not cuts or cuts[-1].upto < session.next_ordinal:
                cuts.append(Cut(session.next_ordinal, "flush"))
            cells = self._cells(space, session, cuts, session.mode)
            self._ledger.begin(space, session_id, [cell.cell_id for cell in cells])
            session.offset = self._journals.append(place, [self._cut_line(cell, None) for cell in cells])
            for cell in cells:
                session.close(cell, None)
            return tuple(cells), before

    def open_messages(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> list[Message]:
        """The messages that no cell holds yet, in order."""
        place = session_locator(space, session_id)
        with self._holding(place):
            session = self._current(session_id, place)
            rights.check_session(session_id, session.owners, limited_to)
            if not session.turns:
                return []
            return self._read(space, session_id, session.turns[0].unit, session.cut_upto).open_messages

    def messages_of(self, space: Space, session_id: str, cell: CellRecord) -> tuple[Message, ...]:
        """The words of a cell, from the log."""
        place = session_locator(space, session_id)
        with self._guard:
            session = self._sessions.get(place)
            _, start = session.pending.get(cell.cell_id, (cell, 0)) if session is not None else (cell, 0)
        return self._read(space, session_id, start, 0).messages_of(cell)

    def is_pending(self, space: Space, session_id: str, cell: str) -> bool:
        """Whether `cell` still waits for its episodes, as far as memory knows; True where it does not."""
        with self._guard:
            session = self._sessions.get(session_locator(space, session_id))
            return session is None or cell in session.pending

    def pending(self, space: Space, session_id: str) -> frozenset[str]:
        """The cells that wait for their episodes; none is being cut meanwhile."""
        place = session_locator(space, session_id)
        with self._holding(place):
            return frozenset(self._current(session_id, place).pending)

    def done(self, space: Space, session_id: str, cells: Sequence[str]) -> None:
        """The episodes of `cells` are on disk."""
        place = session_locator(space, session_id)
        lines = [json.dumps({"t": "done", "cell": cell}, separators=(",", ":")) for cell in cells]
        with self._holding(place):
            session = self._current(session_id, place)
            # Not flushed: without this line recovery looks at the cell once more and finds its episodes there.
            session.offset = self._journals.append(place, lines, sync=False)
            for cell in cells:
                session.pending.pop(cell, None)
        self._ledger.end(cells)

    def _read(self, space: Space, session_id: str, start: int, cut_upto: int) -> SessionState:
        place = session_locator(space, session_id)
        state = SessionState(space, session_id, cut_upto=cut_upto)
        try:
            state.feed(self._journals.read(place, start).lines)
        except Conflict:
            state = SessionState(space, session_id)
            state.feed(self._journals.read(place, 0).lines)
        return state

    def _cells(self, space: Space, session: _Session, cuts: Sequence[Cut], mode: str) -> list[CellRecord]:
        cells: list[CellRecord] = []
        first = session.cut_upto
        for cut in cuts:
            turns = [turn for turn in session.turns if first <= turn.ordinal < cut.upto]
            if turns:
                cells.append(
                    CellRecord(
                        cell_id(space, session.session_id, first, cut.upto),
                        first,
                        cut.upto,
                        _day(turns[0].timestamp, self._zone),
                        _owners(turns, [who for who, since in session.people.items() if since < cut.upto]),
                        cut.reason,
                        mode or self._settings.mode,
                        self._now(),
                    )
                )
            first = cut.upto
        return cells

    def _cut_line(self, cell: CellRecord, by: str | None) -> str:
        line: dict[str, Any] = {"t": "cut", "cell": cell.cell_id, "first": cell.first, "upto": cell.upto}
        line |= {"day": cell.day, "reason": cell.reason, "owners": cell.owners, "mode": cell.mode}
        line |= {"by": by} if by else {}
        return json.dumps({**line, "at": cell.at}, ensure_ascii=False, separators=(",", ":"))

    def _repeat(self, session: _Session, digest: str, key: str | None) -> _Batch | None:
        if key is None:
            return session.batches.get(digest)
        known = session.batches.get(_keyed(key))
        if known is not None and known.digest != digest:
            raise Invalid(
                f'The idempotency key "{key[:60]}" was used for other messages in this session: use a new one.',
                field="key",
            )
        return known

    def _current(self, session_id: str, place: Locator) -> _Session:
        """The session as the log has it now, read on from where it was last seen."""
        with self._guard:
            session = self._sessions.get(place)
            if session is not None:
                self._sessions.move_to_end(place)
        size = self._journals.size(place)
        if session is not None and session.offset == size:
            return session
        if session is None or size < session.offset:
            return self._loaded(session_id, place)
        try:
            tail = self._journals.read(place, session.offset)
        except Conflict:
            return self._loaded(session_id, place)
        if not _continues(tail.lines, session.next_ordinal):
            return self._loaded(session_id, place)
        session.follow(tail.lines, session.offset)
        session.offset = tail.end
        return session

    def _loaded(self, session_id: str, place: Locator) -> _Session:
        session = _Session(place, session_id, Stretch(self._settings, 0, self._embedder))
        log = self._journals.read(place, 0)
        session.follow(log.lines, 0)
        session.offset = log.end
        with self._guard:
            self._sessions[place] = session
            self._sessions.move_to_end(place)
            while len(self._sessions) > self._limit:
                self._sessions.popitem(last=False)
        return session

    def _forget(self, place: Locator) -> None:
        with self._guard:
            self._sessions.pop(place, None)

    def _holding(self, place: Locator) -> AbstractContextManager[None]:
        # A fixed set of names: one lock file per session ever seen would pile up. Two sessions that share one
        # only take turns; nothing slow happens under it.
        number = int.from_bytes(hashlib.sha256(place.key.encode("utf-8")).digest()[:4], "big") % _LOCK_NAMES
        return self._locks.hold(f"session-{number:04d}")

    def _now(self) -> str:
        return self._clock.now().isoformat(timespec="milliseconds")


def _keyed(key: str) -> str:
    return f"key:{key}"


def _check_key(key: str | None) -> None:
    if key is not None and not (
        isinstance(key, str) and 1 <= len(key) <= _MAX_KEY_CHARS and key.isprintable()
    ):
        raise Invalid(
            f"An idempotency key must be a text of 1 to {_MAX_KEY_CHARS} printable characters.", field="key"
        )


def _continues(lines: Sequence[str], ordinal: int) -> bool:
    """Whether the first messages in `lines` follow on `ordinal`; if not, the log was rewritten meanwhile."""
    for line in lines:
        try:
            value = json.loads(line)
            if value["t"] == "add":
                return bool(int(value.get("n", ordinal)) == ordinal)
        except (ValueError, TypeError, KeyError):
            return False
    return True


def _day(timestamp: int, zone: ZoneInfo) -> str:
    return said_at(timestamp, zone).date().isoformat()


def _owners(turns: Sequence[_Turn], people: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Whose episode it is: everyone's who has spoken in the session by then, in this cell or before it.

    A long run of an assistant's steps falls into cells without a person's word; it is still theirs it was done
    for. Where no person has spoken, it is the assistants', else whoever spoke.
    """
    if people:
        return tuple(("user", sender) for sender in people)
    for role in ("assistant", "tool"):
        found = dict.fromkeys(turn.sender_id for turn in turns if turn.role == role)
        if found:
            return tuple(("agent", sender) for sender in found)
    return ()
