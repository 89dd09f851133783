"""The inbox: messages spooled per session until a boundary, then cut into cells.

    add ──> look what others appended · seen before? · where to cut?
        ──> one journal unit: the messages and the cuts they bring · flushed · acknowledged

What is known of a session comes from `SessionLog`, which compares its memory with the log's size on every call:
the log is the truth. The cost of an add does not depend on how many messages are open. Which cells were cut and may have
no episode yet stands in a ledger (`PendingCells`).

Where to cut, `Stretch` says: it watches the open messages of one session as they arrive, a constant amount of work for
each, for a silence, a size, or a change of topic. The rules are deterministic: fed the same messages under the same
settings it cuts at the same places, so it can be rebuilt from the log at any time.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeVar
from zoneinfo import ZoneInfo

from cairn import rights
from cairn.canonical import as_line, from_json
from cairn.config import CaptureSettings
from cairn.errors import CairnError, Invalid
from cairn.language import words
from cairn.seams import Clock, Journals, Locator, Locks
from cairn.talk.lines import (
    MAX_LINE_CHARS,
    MAX_ORDINAL,
    Added,
    CellRecord,
    Closed,
    Finished,
    ToldTo,
    hashed_key,
    said_json,
)
from cairn.talk.narrative import said_at
from cairn.talk.sessions import Batch, LogMoved, SessionLog, SessionState, owners_of, session_locator
from cairn.types import Message, Scope, Space, checked_session_id

LEDGER = Locator(".tmp/cells/underway.jsonl")
_TIDIED_AFTER = 200  # times that something was noted
_log = logging.getLogger(__name__)
_LOCK_NAMES = 1024
_MAX_KEY_CHARS = 200
_ATTEMPTS = 20

T = TypeVar("T")
Reason = Literal["flush", "gap", "topic", "tokens", "messages"]


class Noted(NamedTuple):
    """A cell that was about to be cut: in which session, when, and the line that says so."""

    space: Space
    session_id: str
    at: str
    line: str


class PendingCells:
    """The ledger of cells on their way from cut to episode: what a restart has to look at.

    Beside the session logs, which hold the truth, it lets recovery find unfinished cells without reading every session. A
    cut is noted before it happens, its end with the next cut; once lines have piled up, those of cells that are done go.
    It outlives the process but is not flushed: it only says where to look. Should a power cut take its last lines, the
    next call on that session, or a full recovery, finds the cell in the log.
    """

    def __init__(self, journals: Journals, clock: Clock) -> None:
        self._journals = journals
        self._clock = clock
        self._ended: list[str] = []
        self._written = 0
        self._guard = threading.Lock()

    def begin(self, space: Space, session_id: str, cells: Iterable[str]) -> None:
        """Note that `cells` are about to be cut."""
        at = self._clock.now().isoformat(timespec="seconds")
        self._note([as_line(["cut", cell, space.app, space.project, session_id, at]) for cell in cells])

    def end(self, cells: Iterable[str]) -> None:
        """The episodes of `cells` are on disk: it is noted with the next cut, or when this is closed.

        Where a killed process noted nothing, recovery looks at those cells and finds them done.
        """
        with self._guard:
            self._ended.extend(cells)

    def close(self) -> None:
        """Note what has ended. Where that cannot be written, the next start looks at those cells."""
        try:
            self._note([])
        except CairnError as error:
            _log.info("Which cells are done is not noted: %s", error)

    def _note(self, cuts: Sequence[str]) -> None:
        with self._guard:
            ended, self._ended = self._ended, []
            self._written += 1
            has_many = self._written % _TIDIED_AFTER == 0
        if has_many:
            self._journals.edit(LEDGER, lambda lines: [one.line for one in _underway(lines).values()])
        if lines := [*(as_line(["done", cell]) for cell in ended), *cuts]:
            self._journals.append(LEDGER, lines, sync=False)

    def forget(self, space: Space, sessions: Collection[str]) -> int:
        """Drop the lines about sessions that are forgotten; how many."""
        dropped = 0

        def change(lines: Sequence[str]) -> list[str] | None:
            nonlocal dropped
            rest = [line for line in lines if not _is_of(line, space, sessions)]
            dropped = len(lines) - len(rest)
            return rest if dropped else None

        self._journals.edit(LEDGER, change)
        return dropped

    def unfinished(self) -> dict[str, Noted]:
        """Every cell noted as cut and not as done, by its id, oldest first."""
        return _underway(self._journals.read(LEDGER).lines)


def _underway(lines: Iterable[str]) -> dict[str, Noted]:
    found: dict[str, Noted] = {}
    for line in lines:
        cell, noted = _read(line)
        found.pop(cell, None)
        if noted is not None:
            found[cell] = noted
    return found


def _read(line: str) -> tuple[str, Noted | None]:
    """The cell a line is about, and where it was cut; None where it is done. A damaged line is about none: a full
    recovery finds its cell in the log.
    """
    try:
        _, cell, *rest = from_json(line)
        if not rest:
            return str(cell), None
        app, project, session_id, at = rest
        return str(cell), Noted(Space(app, project), checked_session_id(session_id), str(at), line)
    except (ValueError, TypeError):
        return "", None


def _is_of(line: str, space: Space, sessions: Collection[str]) -> bool:
    noted = _read(line)[1]
    return noted is not None and noted.space == space and noted.session_id in sessions


@dataclass(frozen=True, slots=True)
class Kept:
    """What became of one add: how many messages it holds, the cells it closed, and whether it was a repeat."""

    status: str
    count: int
    cells: tuple[CellRecord, ...] = ()
    unfinished: tuple[CellRecord, ...] = ()
    repeated: bool = False
    known_cells: tuple[str, ...] = ()


class Inbox:
    """Keeps what was said, durably and once, and cuts it into cells. Thread-safe, and safe across processes."""

    def __init__(
        self,
        *,
        log: SessionLog,
        locks: Locks,
        clock: Clock,
        pending: PendingCells,
        settings: CaptureSettings,
        zone: ZoneInfo,
        admit: Callable[[Sequence[Scope]], None] = lambda _: None,
    ) -> None:
        self._admit = admit
        self._log = log
        self._locks = locks
        self._clock = clock
        self._ledger = pending
        self._settings = settings
        self._zone = zone

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
    ) -> Kept:
        """Append `messages` as one durable unit, with the cuts they bring unless `defer` is set.

        The same call again (the same `key`, or without one the very same messages) is kept once and answered as
        before; `known_by` stands for the messages where they were dated on arrival. A key that was used for other messages raises `Invalid`, a session that the caller does not reach
        `Forbidden`, and one that is closed to a sender `Conflict`.
        """
        said = said_json(messages)
        digest = hashlib.sha256((known_by or said).encode("utf-8")).hexdigest()[:24]
        _check_key(key)
        if len(said) > MAX_LINE_CHARS // 2:
            raise Invalid(
                f"The messages have {len(said)} characters together, more than one call may bring "
                f"({MAX_LINE_CHARS // 2}): send them in several calls.",
                field="messages",
            )

        def put(place: Locator, state: SessionState) -> Kept:
            rights.check_session(session_id, state.owners, limited_to)
            users = (message.sender_id for message in messages if message.role == "user")
            rights.check_newcomers(session_id, state.begun_for, users)
            before = tuple(state.pending)
            repeat = _repeat(state, digest, key)
            if repeat is not None:
                return Kept(repeat.status, repeat.count, (), before, True, tuple(repeat.cells))
            self._admit(_scopes(space, state, messages))
            begun_for = frozenset(limited_to) if limited_to is not None and not state.next_ordinal else None
            added = Added(
                state.next_ordinal,
                tuple(messages),
                digest,
                key and hashed_key(key),
                mode,
                self._now(),
                begun_for,
                said=said,
            )
            cells = self._append(space, place, state, added, defer=defer)
            return Kept("extracted" if cells else "accumulated", len(messages), tuple(cells), before)

        return self._unit(space, session_id, put)

    def _append(
        self, space: Space, place: Locator, state: SessionState, added: Added, *, defer: bool
    ) -> list[CellRecord]:
        first = state.next_ordinal
        if first + len(added.messages) > MAX_ORDINAL:
            raise Invalid(f'Session "{state.session_id}" is full: begin another one.', field="session_id")
        fresh = [(n, message) for n, message in enumerate(added.messages, first) if message is not None]
        watch = self._watch(state)
        for ordinal, message in fresh:
            watch.take(ordinal, message)
        cells: list[CellRecord] = []
        if not defer and watch.due:
            said_so_far = [*state.between(state.cut_upto, first), *fresh]
            cells = self._cells(state, watch.due, said_so_far, added.mode or state.mode, added)
            self._ledger.begin(space, state.session_id, [cell.cell_id for cell in cells])
        self._log.append(place, state, [added, *(Closed(cell, added.batch) for cell in cells)])
        return cells

    def flush(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> tuple[tuple[CellRecord, ...], tuple[CellRecord, ...]]:
        """Cut everything that is in no cell; returns the new cells and those an earlier call left unfinished."""

        def put(place: Locator, state: SessionState) -> tuple[tuple[CellRecord, ...], tuple[CellRecord, ...]]:
            rights.check_session(session_id, state.owners, limited_to)
            before = tuple(state.pending)
            cells = self._stranded(state)
            if state.cut_upto < state.next_ordinal:
                cuts = [*self._watch(state).due]
                if not cuts or cuts[-1].upto < state.next_ordinal:
                    cuts.append(Cut(state.next_ordinal, "flush"))
                said = state.between(state.cut_upto, state.next_ordinal)
                cells += self._cells(state, cuts, said, state.mode)
            self._close(space, place, state, cells)
            return tuple(cells), before

        return self._unit(space, session_id, put)

    def adopt(self, space: Space, session_id: str) -> None:
        """Cut the stretches whose cut line is lost, so that they are told after all."""

        def put(place: Locator, state: SessionState) -> None:
            self._close(space, place, state, self._stranded(state))

        self._unit(space, session_id, put)

    def _close(self, space: Space, place: Locator, state: SessionState, cells: Sequence[CellRecord]) -> None:
        if cells:
            self._ledger.begin(space, state.session_id, [cell.cell_id for cell in cells])
            self._log.append(place, state, [Closed(cell) for cell in cells])

    def open_messages(
        self, space: Space, session_id: str, *, limited_to: Collection[str] | None = None
    ) -> list[Message]:
        """The messages that no cell holds yet, in order."""

        def look(_: Locator, state: SessionState) -> list[Message]:
            rights.check_session(session_id, state.owners, limited_to)
            return state.open_messages

        return self._unit(space, session_id, look)

    def is_pending(self, space: Space, session_id: str, cell: str) -> bool:
        """Whether `cell` still waits for its episodes, as far as memory knows; True where it does not."""
        state = self._log.peek(session_locator(space, session_id))
        known = state.cell(cell) if state is not None else None
        return state is None or (known is not None and not known.done)

    def are_done(self, space: Space, session_id: str, cells: Collection[str]) -> dict[str, bool | None]:
        """Whether each of `cells` has its episodes; None where the log knows no such cell, not yet or not any more."""

        def look(_: Locator, state: SessionState) -> dict[str, bool | None]:
            known = {cell: state.cell(cell) for cell in cells}
            return {cell: None if found is None else found.done for cell, found in known.items()}

        return self._unit(space, session_id, look)

    def note(self, space: Space, session_id: str, event: ToldTo | Finished) -> None:
        """Note what became of a cell. Not flushed: without this line recovery looks once more and finds its episodes."""
        self._unit(
            space, session_id, lambda place, state: self._log.append(place, state, [event], sync=False)
        )
        if isinstance(event, Finished):
            self._ledger.end([event.cell_id])

    def _unit(self, space: Space, session_id: str, work: Callable[[Locator, SessionState], T]) -> T:
        """Run `work` on the session as its log is now, with nobody else cutting or adding meanwhile.

        What memory holds of it is taken as it is at first. Where the log is another by now, which is noticed before a
        byte is appended and before anything is answered, the work is done again on what is there. A lock costs as much as
        the append itself: it is held only after somebody came between.
        """
        place = session_locator(space, session_id)
        with ExitStack() as held:
            for attempt in range(_ATTEMPTS):
                if attempt == 1:
                    held.enter_context(self._holding(place))
                try:
                    with self._log.live(place, trust=not attempt) as state:
                        return work(place, state)
                except LogMoved:
                    if attempt + 1 == _ATTEMPTS:
                        raise
        raise AssertionError("unreachable")

    def _watch(self, state: SessionState) -> Stretch:
        if state.watch is None:
            state.watch = Stretch(self._settings, state.cut_upto)
        state.watch.follow(state)
        return state.watch

    def _stranded(self, state: SessionState) -> list[CellRecord]:
        return [
            self._cell(state, first, Cut(upto, "flush"), state.between(first, upto), "")
            for first, upto in state.stranded
        ]

    def _cells(
        self,
        state: SessionState,
        cuts: Sequence[Cut],
        said: Sequence[tuple[int, Message]],
        mode: str,
        added: Added | None = None,
    ) -> list[CellRecord]:
        """The cells that `cuts` make of `said`, all that is open; a stretch that was forgotten whole makes none."""
        made = []
        first = state.cut_upto
        for cut in cuts:
            if any(first <= ordinal < cut.upto for ordinal, _ in said):
                made.append(self._cell(state, first, cut, said, mode, added))
            first = cut.upto
        return made

    def _cell(
        self,
        state: SessionState,
        first: int,
        cut: Cut,
        said: Sequence[tuple[int, Message]],
        mode: str,
        added: Added | None = None,
    ) -> CellRecord:
        inside = [message for ordinal, message in said if first <= ordinal < cut.upto]
        lately = [m.sender_id for ordinal, m in said if ordinal < cut.upto and m.role == "user"]
        return CellRecord(
            state.new_cell_id(first, cut.upto, added),
            first,
            cut.upto,
            said_at(inside[0].timestamp, self._zone).date().isoformat(),
            owners_of(inside, dict.fromkeys([*state.people_by(cut.upto), *lately])),
            cut.reason,
            mode or self._settings.mode,
            self._now(),
        )

    def _holding(self, place: Locator) -> AbstractContextManager[None]:
        # A fixed set of names: one lock file per session ever seen would pile up. Two sessions that share one
        # only take turns; nothing slow happens under it.
        number = int.from_bytes(hashlib.sha256(place.key.encode("utf-8")).digest()[:4], "big") % _LOCK_NAMES
        return self._locks.hold(f"session-{number:04d}")

    def _now(self) -> str:
        return self._clock.now().isoformat(timespec="milliseconds")


def _repeat(state: SessionState, digest: str, key: str | None) -> Batch | None:
    if key is None:
        return state.batches.get(digest)
    known = state.batches.get(hashed_key(key))
    if known is not None and known.digest != digest:
        raise Invalid(
            f'The idempotency key "{key[:60]}" was used for other messages in this session: use a new one.',
            field="key",
        )
    return known


def _check_key(key: str | None) -> None:
    if key is not None and not (
        isinstance(key, str) and 1 <= len(key) <= _MAX_KEY_CHARS and key.isprintable()
    ):
        raise Invalid(
            f"An idempotency key must be a text of 1 to {_MAX_KEY_CHARS} printable characters.", field="key"
        )


def _scopes(space: Space, state: SessionState, messages: Sequence[Message]) -> list[Scope]:
    """Whose episodes these messages will be told in, as far as they name them."""
    people = [message.sender_id for message in messages if message.role == "user"]
    known = people or state.people_by(state.next_ordinal)
    owners = owners_of(messages, people) if people or not known else ()
    return [Scope(space, *owner) for owner in dict.fromkeys(owners)]


# ---------------------------------------------------------------- where talk is cut: gap, topic, size

_HEAD_CHARS = 2000
_MIN_WORDS = 12
_MESSAGE_OVERHEAD = 4


def estimated_tokens(text: str) -> int:
    """About how many model tokens `text` is, without a tokenizer: a quarter of its UTF-8 bytes, rounded up.

    That is close for English, and for scripts whose characters take three bytes and about a token each.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    return (size + 3) // 4


def message_tokens(message: Message) -> int:
    """The estimate for a whole message: its words, its tool calls, and a little for who said it."""
    calls = sum(estimated_tokens(call.name) + estimated_tokens(call.arguments) for call in message.tool_calls)
    return estimated_tokens(message.text) + calls + _MESSAGE_OVERHEAD


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the stretch before ordinal `upto`."""

    upto: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Seen:
    ordinal: int
    vocabulary: frozenset[str]
    tokens: int


class Stretch:
    """What the boundary rules know of the open messages of one session; `due` are the cuts that are not made yet."""

    def __init__(self, settings: CaptureSettings, first: int = 0) -> None:
        self._settings = settings
        self._gap_ms = int(settings.gap_minutes * 60_000)
        self._window = max(settings.topic_window, 2)
        self._seen: deque[_Seen] = deque(maxlen=2 * self._window)
        self._begin(first)
        self._last_ms: int | None = None
        self._upto = first
        self.due: list[Cut] = []

    def follow(self, state: SessionState) -> None:
        """Let the rules see what is open and was not seen yet, and end what was cut meanwhile."""
        if self.first < state.cut_upto:
            self.close(state.cut_upto)
            self._upto, self.due = state.cut_upto, []
        self.due = [cut for cut in self.due if cut.upto > state.cut_upto]
        for ordinal, message in state.between(self._upto, state.next_ordinal):
            self.take(ordinal, message)
        self._upto = max(self._upto, state.next_ordinal)

    def _begin(self, first: int) -> None:
        self.first = first
        self._count = 0
        self._tokens = 0

    def take(self, ordinal: int, message: Message) -> list[Cut]:
        """Note the next message and return the cuts it brings, in order.

        A gap, or a message that would overfill the stretch, closes what was there before it; a full stretch
        closes after it.
        """
        cuts: list[Cut] = []
        tokens = message_tokens(message)
        has_gap = (
            self._last_ms is not None
            and self._gap_ms > 0
            and abs(message.timestamp - self._last_ms) > self._gap_ms
        )
        limit = self._settings.max_tokens
        if self._count and has_gap:
            cuts.append(self._close(ordinal, "gap"))
        elif self._count and limit and self._tokens + tokens > limit:
            cuts.append(self._close(ordinal, "tokens"))
        self._last_ms = message.timestamp
        self._count += 1
        self._tokens += tokens
        if limit and self._tokens >= limit:
            cuts.append(self._close(ordinal + 1, "tokens"))
        elif self._settings.max_messages and self._count >= self._settings.max_messages:
            cuts.append(self._close(ordinal + 1, "messages"))
        elif self._settings.topic_shift:
            cuts += self._topic_cut(ordinal, message, tokens)
        self.due += cuts
        self._upto = ordinal + 1
        return cuts

    def close(self, upto: int) -> None:
        """The stretch was closed from outside (a flush): begin anew at `upto`."""
        self._begin(upto)
        self._seen.clear()

    def _close(self, upto: int, reason: Reason) -> Cut:
        self.close(upto)
        return Cut(upto, reason)

    def _topic_cut(self, ordinal: int, message: Message, tokens: int) -> list[Cut]:
        """Few words in common settle it. No model is asked: where talk is cut must not rest on what is loaded."""
        vocabulary = words.word_set(message.text[:_HEAD_CHARS]) - words.stop_words()
        self._seen.append(_Seen(ordinal, vocabulary, tokens))
        if len(self._seen) < 2 * self._window:
            return []
        seen = list(self._seen)
        before, after = seen[: self._window], seen[self._window :]
        old: frozenset[str] = frozenset().union(*(one.vocabulary for one in before))
        new: frozenset[str] = frozenset().union(*(one.vocabulary for one in after))
        if len(old) < _MIN_WORDS or len(new) < _MIN_WORDS:
            return []
        shared = len(old & new)
        if shared / (len(old) + len(new) - shared) >= self._settings.topic_threshold:
            return []
        upto = after[0].ordinal
        self._begin(upto)
        self._count = len(after)
        self._tokens = sum(one.tokens for one in after)
        self._seen.clear()
        self._seen.extend(after)
        return [Cut(upto, "topic")]
