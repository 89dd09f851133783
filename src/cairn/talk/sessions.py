"""What was said, verbatim: one append-only log per session, inbox and transcript in one file.

`<app>/<project>/sessions/<key>.jsonl` holds the lines that `cairn.talk.lines` reads:

    {"t": "add", "n": 0, "batch": "...", "at": "...", "messages": [...]}    one per add call: all of it or none
    {"t": "cut", "cell": "mc_...", "first": 0, "upto": 4, "day": "2023-05-08", "reason": "flush", ...}
    {"t": "told", "cell": "mc_...", "owners": [["user", "u1"]]}             some have their episode, others wait
    {"t": "done", "cell": "mc_..."}                                         the cell's episodes are on disk
    {"t": "corrected", "cell": "mc_...", "owner": ["user", "u1"], "messages": [{"n": 3, "content": "..."}]}
    {"t": "followed", "cell": "mc_...", "owner": ["user", "u1"]}            what was derived agrees with that
    {"t": "again", "cell": "mc_..."}                                        its words changed: tell it anew
    {"t": "merged", "cell": "mc_...", "day": "...", "owners": [...]}        all its words are in other cells

`n` is the ordinal of the line's first message. Where a caller limited to some owners began the session, its first
line names them in `"for": ["alice"]`, and no other user's words are taken in after it. A cell holds the messages
`first <= ordinal < upto`. What no cell holds is the un-extracted inbox. A message that was forgotten leaves `null` in its place, so that ordinals, and with
them message ids, never shift. What an owner corrected in the cell's episode stands in a line of its own, whole each
time: what was said stays, and what holds for that owner is known from this file alone.

`SessionState` folds the lines, one by one, into what they mean; a line that cannot be one, or that says what cannot
be, is set aside with its number and the trouble, and all others count as if it were not there. `SessionLog` is the
one reader: it keeps the states it read last, follows what was appended to them, and reads a log anew when it was
rewritten. Whoever writes to a session (the inbox), tells it, indexes it or thinks about it asks here.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import re
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from cairn import rights
from cairn.errors import CairnError, Conflict, Invalid, InvalidLocatorError
from cairn.notes.kinds import space_locator, space_of
from cairn.seams import Journals, Locator, StorageBackend
from cairn.talk.lines import (
    MAX_ORDINAL,
    Added,
    Again,
    CellRecord,
    Closed,
    Corrected,
    Event,
    Finished,
    Followed,
    Merged,
    Owner,
    ToldTo,
    line_of,
    read_line,
)
from cairn.talk.messages import MAX_MESSAGES
from cairn.types import Message, Space

if TYPE_CHECKING:
    from cairn.talk.inbox import Stretch

SESSIONS = "sessions"
_SUFFIX = ".jsonl"
_SEGMENT_CHARS = 180
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.@+=")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")
_CODED = re.compile(r"[a-z0-9_.@+=%-]+")

_REMEMBERED_BATCHES = 256
_TROUBLES_KEPT = 50
_MAX_GAP = 1_000_000
_SESSION_BYTES = 4 * 1024 * 1024
_SESSIONS_KEPT = 512
_LOCATORS_KEPT = 1024
_MESSAGE_BYTES = 400
_STATE_BYTES = 2000
_WATCH_BYTES = 16_000


Corrections = Mapping[str, str | None]
"""What messages say now, by id, where that is not what was said; None for one that was taken out."""


@dataclass(frozen=True, slots=True)
class LineTrouble:
    """A line of a log that was set aside, wholly or in part, and why."""

    line: int
    trouble: str


@dataclass(slots=True)
class Batch:
    """What is remembered of an add call, to answer a repeat of it."""

    digest: str
    count: int
    status: str = "accumulated"
    cells: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class CellCorrections:
    """What one owner corrected in a cell: `followed` is what derived notes agree with, `recorded` came after."""

    followed: Corrections = field(default_factory=dict)
    recorded: tuple[Corrections, ...] = ()

    @property
    def current(self) -> Corrections:
        return self.recorded[-1] if self.recorded else self.followed


@dataclass(frozen=True, slots=True)
class _Call:
    """Where messages come from: an add call, when it was made, and which of its messages these are."""

    batch: str
    at: str
    part: int
    count: int


@dataclass(frozen=True, slots=True)
class _Jump:
    """Messages that came with a gap before them; `base` is where the next ones would have stood."""

    base: int
    first: int
    upto: int
    line: int


_epochs = itertools.count(1)


@dataclass(slots=True)
class SessionState:
    """A session's log, read: the messages, the cells, and what no cell holds yet.

    With `corrected_by`, what was corrected later than that is left out. `epoch` names one reading of the log from
    its beginning: two states of one epoch differ only by what was appended. `floor` is the place of the first
    message whose words are surely held: a state that is kept in memory lets go of the oldest done cells' words.
    `spoke` has each (role, sender) with the place where it first spoke.
    """

    space: Space
    session_id: str
    corrected_by: datetime | None = None
    by_ordinal: dict[int, Message] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    next_ordinal: int = 0
    cut_upto: int = 0
    mode: str = ""
    spoke: dict[tuple[str, str], int] = field(default_factory=dict)
    begun_for: frozenset[str] | None = None
    batches: OrderedDict[str, Batch] = field(default_factory=OrderedDict)
    merged: dict[str, CellRecord] = field(default_factory=dict)
    corrections: dict[tuple[str, str, str], CellCorrections] = field(default_factory=dict)
    corrected_lines: int = 0
    troubles: list[LineTrouble] = field(default_factory=list)
    skipped_lines: int = 0
    lines: int = 0
    offset: int = 0
    floor: int = 0
    epoch: int = field(default_factory=lambda: next(_epochs))
    held_bytes: int = _STATE_BYTES
    watch: Stretch | None = None
    _ordinals: list[int] = field(default_factory=list)
    _waiting: dict[str, None] = field(default_factory=dict)
    _cell_at: dict[str, int] = field(default_factory=dict)
    _spans: list[tuple[int, int]] = field(default_factory=list)
    _calls: dict[int, _Call] = field(default_factory=dict)
    _room: int = 0
    _jump: _Jump | None = None

    # ---- what it says --------------------------------------------------------------------------------------------

    @property
    def messages(self) -> list[Message]:
        """Every message held, in order."""
        return list(self.by_ordinal.values())

    @property
    def open_messages(self) -> list[Message]:
        """The messages after the last cut, in order."""
        return [message for _, message in self.between(self.cut_upto, self.next_ordinal)]

    @property
    def pending(self) -> list[CellRecord]:
        """Cells that were cut and whose episodes may not be on disk yet."""
        return [self.cells[self._cell_at[cell_id]] for cell_id in self._waiting]

    @property
    def owners(self) -> frozenset[str]:
        """Whose the session is, by all that was said in it."""
        return rights.session_owners(self.spoke)

    @property
    def open_owners(self) -> tuple[Owner, ...]:
        """Whose the open stretch would be if it were cut now, as (track, owner)."""
        return owners_of(self.open_messages, self.people_by(self.next_ordinal))

    def people_by(self, upto: int) -> list[str]:
        """The users who have spoken before the place `upto`, in order."""
        return [who for (role, who), since in self.spoke.items() if role == "user" and since < upto]

    @property
    def stranded(self) -> list[tuple[int, int]]:
        """Stretches before the last cut that no cell holds although there are words: their cut line is lost."""
        found, at = [], 0
        for first, upto in self._spans:
            if at < first and bisect_left(self._ordinals, at) < bisect_left(self._ordinals, first):
                found.append((at, first))
            at = upto
        return found

    def between(self, first: int, upto: int) -> list[tuple[int, Message]]:
        """The messages at the places `first` to before `upto`, in order."""
        places = self._ordinals[bisect_left(self._ordinals, first) : bisect_left(self._ordinals, upto)]
        return [(n, self.by_ordinal[n]) for n in places]

    def new_cell_id(self, first: int, upto: int, added: Added | None = None) -> str:
        """The id of the cell that is about to be cut of these places, `added` being about to be appended.

        It follows from the calls its messages came with: two machines that cut the same words of one log name the
        same cell, and two that cut other words at the same places do not.
        """
        calls: list[tuple[int, _Call]] = []
        for n in reversed(self._calls):
            call = self._calls[n]
            if n + call.count <= first:
                break
            calls.append((n, call))
        if added is not None:
            fresh = _Call(added.batch, added.at, added.part, len(added.messages))
            calls.insert(0, (self.next_ordinal, fresh))
        held = [
            f"{call.batch} {call.at} {call.part + max(first - n, 0)} {call.part + min(upto - n, call.count)}"
            for n, call in reversed(calls)
            if n < upto and first < n + call.count
        ]
        found = cell_id(self.space, self.session_id, first, upto, *held)
        while found in self._cell_at:
            held.append(found)
            found = cell_id(self.space, self.session_id, first, upto, *held)
        return found

    def cell(self, cell_id: str) -> CellRecord | None:
        """The cell of this id."""
        at = self._cell_at.get(cell_id)
        return None if at is None else self.cells[at]

    def messages_of(self, cell: CellRecord) -> tuple[Message, ...]:
        """The messages of `cell`, in order; forgotten ones are left out."""
        return tuple(message for _, message in self.between(cell.first, cell.upto))

    def messages_for(self, cell: CellRecord, track: str, owner: str) -> tuple[Message, ...]:
        """The messages of `cell` as they hold for one owner: corrected where they corrected the episode."""
        mine = self.corrections.get((cell.cell_id, track, owner))
        said = self.messages_of(cell)
        return said if mine is None else corrected(said, mine.current)

    def remarks(self) -> str:
        """What was set aside, in one sentence for people; "" where all is well."""
        if not self.troubles:
            return ""
        more = self.skipped_lines - 3
        told = "; ".join(f"line {one.line}: {one.trouble}" for one in self.troubles[:3])
        return f"{told}; and {more} more" if more > 0 else told

    # ---- the fold ------------------------------------------------------------------------------------------------

    def feed(self, lines: Iterable[str]) -> None:
        """Take further lines of the log into account."""
        self.fold(map(_read, lines))

    def fold(self, events: Iterable[Event | Invalid]) -> None:
        for event in events:
            self.lines += 1
            try:
                if isinstance(event, Invalid):
                    raise event
                self.take(event)
            except Invalid as error:
                self._set_aside(self.lines, error.message)

    def follow(self, lines: Sequence[str]) -> bool:
        """Take over lines that others appended; False, and nothing is taken, where they do not follow on."""
        events = [_read(line) for line in lines]
        first = next((event.first for event in events if isinstance(event, Added)), None)
        if first is not None and first != self.next_ordinal:
            return False
        self.fold(events)
        return True

    def take(self, event: Event) -> None:
        """Take one event into account. Raises `Invalid`, and changes nothing, where it cannot follow on the others."""
        if isinstance(event, Added):
            self._add(event)
        elif isinstance(event, Closed):
            self._close(event)
        elif isinstance(event, ToldTo):
            at = self._cell_at.get(event.cell_id)
            if at is not None:
                self.cells[at] = replace(self.cells[at], told=(*self.cells[at].told, *event.owners))
        elif isinstance(event, Finished):
            at = self._cell_at.get(event.cell_id)
            if at is not None:
                self.cells[at] = replace(self.cells[at], done=True, again=False)
                self._waiting.pop(event.cell_id, None)
        elif isinstance(event, Again):
            at = self._cell_at.get(event.cell_id)
            if at is not None:
                self.cells[at] = replace(self.cells[at], done=False, again=True, told=())
                self._waiting[event.cell_id] = None
        elif isinstance(event, Merged):
            if event.cell.cell_id not in self._cell_at:
                self.merged[event.cell.cell_id] = event.cell
        else:
            self._correct(event)

    def _add(self, event: Added) -> None:
        first, count = self._first_place(event), len(event.messages)
        if self.next_ordinal == 0:
            self.begun_for = event.begun_for
        for n, message in enumerate(event.messages, first):
            if message is not None:
                self._put(n, _named(message, message_id(self.session_id, n)))
        for trouble in event.troubles:
            self._set_aside(self.lines, trouble)
        self.next_ordinal = first + count
        self.mode = event.mode or self.mode
        self._room = 0
        batch = Batch(event.batch, count + event.part)
        if event.batch:
            self._calls[first] = _Call(event.batch, event.at, event.part, count)
            self.batches[event.batch] = batch
        if event.key:
            self.batches[event.key] = batch
        while len(self.batches) > _REMEMBERED_BATCHES:
            self.batches.popitem(last=False)

    def _first_place(self, event: Added) -> int:
        """Where the messages of an add belong: where the line says, as far as that can be."""
        first = self.next_ordinal if event.first is None else event.first
        jump = self._jump
        if jump is not None and first == jump.base and self.cut_upto <= jump.base:
            # What came before this line had a place of its own making: this one goes on as if it were not there.
            self._take_back(jump)
        if first < self.next_ordinal:
            known = self._calls.get(first)
            if known is not None and (known.batch, known.part) == (event.batch, event.part):
                raise Invalid("it is a copy of an earlier line")
            # Two writers who did not see each other: the words of both are kept.
            first = self.next_ordinal
        gap = first - self.next_ordinal
        if gap > _MAX_GAP or first + len(event.messages) > MAX_ORDINAL:
            raise Invalid(f"its place {first} does not follow on the {self.next_ordinal} messages before it")
        # A gap that no lost line explains is doubtful: the next line tells.
        upto = first + len(event.messages)
        self._jump = _Jump(self.next_ordinal, first, upto, self.lines) if gap > self._room else None
        return first

    def _take_back(self, jump: _Jump) -> None:
        for n, message in self.between(jump.first, jump.upto):
            del self.by_ordinal[n]
            self.held_bytes -= _weight(message)
        del self._ordinals[bisect_left(self._ordinals, jump.first) :]
        self._calls.pop(jump.first, None)
        self.next_ordinal = jump.base
        self._set_aside(
            jump.line, f"its place {jump.first} does not follow on the {jump.base} messages before it"
        )

    def _put(self, ordinal: int, message: Message) -> None:
        self.by_ordinal[ordinal] = message
        self.spoke.setdefault((message.role, message.sender_id), ordinal)
        self._ordinals.append(ordinal)
        self.held_bytes += _weight(message)

    def _close(self, event: Closed) -> None:
        cell = event.cell
        if cell.cell_id in self._cell_at:
            raise Invalid(f"cell {cell.cell_id} was closed before")
        if cell.upto > self.next_ordinal + self._room:
            raise Invalid(f"it closes a cell up to {cell.upto} where {self.next_ordinal} messages were said")
        at = bisect_left(self._spans, (cell.first, cell.upto))
        before = self._spans[at - 1][1] if at else 0
        after = self._spans[at][0] if at < len(self._spans) else cell.upto
        if cell.first < before or after < cell.upto:
            raise Invalid(f"it closes messages ({cell.first} to {cell.upto}) that are in a cell already")
        self._spans.insert(at, (cell.first, cell.upto))
        self._cell_at[cell.cell_id] = len(self.cells)
        self._waiting[cell.cell_id] = None
        self.merged.pop(cell.cell_id, None)
        self.cells.append(replace(cell, owners=(*cell.owners, *self._left_out(cell))))
        # A line that is lost may have held the last messages of the cell: their places are taken.
        self.next_ordinal = max(self.next_ordinal, cell.upto)
        self.cut_upto = max(self.cut_upto, cell.upto)
        if self.cut_upto == self.next_ordinal:
            self.mode = ""
        if event.by and event.by in self.batches:
            self.batches[event.by].status = "extracted"
            self.batches[event.by].cells.append(cell.cell_id)

    def _left_out(self, cell: CellRecord) -> list[Owner]:
        """Whose the words of a cell are although its line does not name them: what one said is never only others'."""
        said = self.messages_of(cell)
        spoke = dict.fromkeys(message.sender_id for message in said if message.role == "user")
        due = owners_of(said, spoke or self.people_by(cell.upto)) if said else ()
        left = [owner for owner in due if owner not in cell.owners]
        return left if spoke or len(left) == len(due) else []

    def _correct(self, event: Corrected | Followed) -> None:
        key = (event.cell_id, event.track, event.owner)
        mine = self.corrections.get(key) or CellCorrections()
        if isinstance(event, Followed):
            self.corrections[key] = CellCorrections(mine.current)
            return
        if self.corrected_by is not None and event.at is not None and event.at > self.corrected_by:
            return
        self.corrected_lines += 1
        texts = {message_id(self.session_id, n): text for n, text in event.texts.items()}
        self.corrections[key] = CellCorrections(mine.followed, (*mine.recorded, texts))

    def _set_aside(self, line: int, trouble: str) -> None:
        self.skipped_lines += 1
        self._room += MAX_MESSAGES
        if len(self.troubles) < _TROUBLES_KEPT:
            self.troubles.append(LineTrouble(line, trouble))

    # ---- what is kept of it --------------------------------------------------------------------------------------

    def holds(self, first_cell: int) -> bool:
        """Whether the words of the cells from this one on are held."""
        return not self.floor or all(cell.first >= self.floor for cell in self.cells[first_cell:])

    def let_go(self, limit: int = _SESSION_BYTES) -> None:
        """Let go of the watch where nothing is open, and of the oldest done cells' words until the rest is small enough."""
        if self.cut_upto == self.next_ordinal:
            self.watch = None
        if self.held_bytes <= limit:
            return
        needed = [first for first, _ in self.stranded]
        needed += [cell.first for cell in self.pending]
        for _, upto in self._spans:
            if self.held_bytes <= limit or upto > min(needed, default=upto):
                break
            for n, message in self.between(self.floor, upto):
                del self.by_ordinal[n]
                self.held_bytes -= _weight(message)
            del self._ordinals[: bisect_left(self._ordinals, upto)]
            self.floor = max(self.floor, upto)
        self._calls = {n: call for n, call in self._calls.items() if n + call.count > self.floor}

    def copy(self) -> SessionState:
        """The state as it is now, for a reader who keeps it while the log grows."""
        return replace(
            self,
            by_ordinal=dict(self.by_ordinal),
            cells=list(self.cells),
            batches=OrderedDict(),
            spoke=dict(self.spoke),
            corrections=dict(self.corrections),
            troubles=list(self.troubles),
            watch=None,
            _ordinals=list(self._ordinals),
            _waiting=dict(self._waiting),
            _cell_at=dict(self._cell_at),
            _spans=list(self._spans),
            merged=dict(self.merged),
            _calls={},
        )


def owners_of(said: Sequence[Message], people: Collection[str]) -> tuple[Owner, ...]:
    """Whose episode it is: everyone's who has spoken in the session by then, in this cell or before it.

    A long run of an assistant's steps falls into cells without a person's word; it is still theirs it was done
    for. Where no person has spoken, it is the assistants', else whoever spoke.
    """
    if people:
        return tuple(("user", sender) for sender in people)
    for role in ("assistant", "tool"):
        found = dict.fromkeys(message.sender_id for message in said if message.role == role)
        if found:
            return tuple(("agent", sender) for sender in found)
    return ()


def corrected(messages: Sequence[Message], corrections: Corrections) -> tuple[Message, ...]:
    """`messages` as they stand after `corrections`; the very same ones where there is nothing to correct."""
    if not corrections:
        return tuple(messages)
    out = []
    for message in messages:
        text = corrections.get(message.id, "")
        if message.id not in corrections:
            out.append(message)
        elif text:
            out.append(replace(message, content=text))
    return tuple(out)


def _read(line: str) -> Event | Invalid:
    try:
        return read_line(line)
    except Invalid as error:
        return error


def _named(message: Message, identity: str) -> Message:
    # `replace` would do, at twice the price, and this is done for every message of every log.
    return Message(
        message.sender_id,
        message.role,
        message.timestamp,
        message.content,
        message.sender_name,
        message.tool_calls,
        message.tool_call_id,
        identity,
        message.tags,
        message.metadata,
    )


def _weight(message: Message) -> int:
    """About how much memory a message takes."""
    content = message.content
    said = len(content) if isinstance(content, str) else sum(len(str(item)) for item in content)
    return _MESSAGE_BYTES + 2 * said + sum(len(call.arguments) for call in message.tool_calls)


class LogMoved(Conflict):
    """A session's log was written to or rewritten by somebody else since its state was caught up."""


class SessionLog:
    """The one reader of session logs: keeps the states it read last and follows what was appended to them.

    Args:
        journals: Where the logs are.
        budget_bytes: About how much memory all states together may take.
        most: How many states there may be: most sessions are never asked for again once they are told.
        changed_at: When a log was last written, where another program may put one in the place of another.
    """

    def __init__(
        self,
        journals: Journals,
        *,
        budget_bytes: int = 32 * 1024 * 1024,
        most: int = _SESSIONS_KEPT,
        changed_at: Callable[[Locator], float] | None = None,
    ) -> None:
        self._journals = journals
        self._changed_at = changed_at
        self._budget, self._most = budget_bytes, most
        self._held: OrderedDict[Locator, _Held] = OrderedDict()
        self._size = 0
        self._guard = threading.Lock()

    def load(
        self,
        locator: Locator,
        *,
        corrected_by: datetime | None = None,
        after: tuple[int, int] | None = None,
        keep: bool = True,
    ) -> SessionState:
        """The session at `locator` as its log has it now. The state is the caller's own: it does not change.

        Args:
            locator: The log.
            corrected_by: Leave out what was corrected later than this.
            after: An epoch and a number of cells: words are needed from that cell on, if the epoch still is that.
            keep: Whether it is likely to be asked for again soon.

        Raises:
            InvalidLocatorError: no session can live there.
            StorageFailed: the log cannot be read.
        """
        if corrected_by is None and (keep or locator in self._held):
            with self._kept(locator) as held:
                state = self._caught_up(held, locator)
                first = after[1] if after is not None and after[0] == state.epoch else 0
                if state.holds(first):
                    return state.copy()
        return self._read_anew(locator, corrected_by)

    @contextmanager
    def around(self, locator: Locator, cell_id: str, *, trust: bool = False) -> Iterator[SessionState]:
        """The kept state itself, with the words of one cell, for a quick look; with `trust`, as it was last looked at."""
        with self._kept(locator) as held:
            state = (held.state if trust else None) or self._caught_up(held, locator)
            cell = state.cell(cell_id)
            if cell is not None and cell.first < state.floor:
                # Whoever asks for old words asks for more of them: all are kept until the log goes on.
                state = held.state = self._read_anew(locator)
            yield state

    def peek(self, locator: Locator) -> SessionState | None:
        """What memory holds of a session just now; it is not compared with the log."""
        with self._guard:
            held = self._held.get(locator)
        return held.state if held is not None else None

    @contextmanager
    def live(self, locator: Locator, *, trust: bool = False) -> Iterator[SessionState]:
        """The kept state itself, for the one who holds the session's lock and is about to append.

        It is caught up first. With `trust` it is taken as it was left: the append asks for the size that was left, too,
        and whatever ends without an append is compared with the log at the end, so nothing is decided by an old state.

        Raises:
            LogMoved: somebody wrote meanwhile; the state is caught up next time, and nothing was appended.
        """
        with self._kept(locator) as held:
            state = held.state if trust and not held.moved and self._changed_at is None else None
            is_trusted = state is not None
            if state is None:
                before = held.state.offset if held.state is not None else -1
                state = self._caught_up(held, locator)
                held.moved = held.moved and state.offset != before
            offset = state.offset
            try:
                yield state
                if is_trusted and state.offset == offset:
                    self._check_end(locator, offset)
            except LogMoved:
                state.watch = None  # it may have seen what was not appended
                held.moved = (
                    True  # others write here, too: from now on it is read first, until they have ceased
                )
                raise
            except BaseException as error:
                # Whatever was half done to it: the log knows.
                held.state = None
                if is_trusted and isinstance(error, CairnError):
                    self._check_end(locator, offset)
                raise
            if held.state is not None:
                held.state.let_go()
                held.changed_at = self._when_changed(locator)

    def append(
        self,
        locator: Locator,
        state: SessionState,
        events: Sequence[Added | Closed | ToldTo | Finished],
        *,
        sync: bool = True,
    ) -> None:
        """Write the lines of `events` as one unit, and take them over into the state that `live` gave.

        Raises:
            LogMoved: somebody wrote since the state was caught up; nothing was appended.
        """
        try:
            state.offset = self._journals.append(
                locator, [line_of(event) for event in events], sync=sync, expect=state.offset
            )
        except Conflict as error:
            raise LogMoved(error.message, **error.facts) from error
        state.fold(events)

    def drop(self) -> None:
        """Keep nothing of what was read."""
        with self._guard:
            for held in self._held.values():
                held.counted = None
            self._held.clear()
            self._size = 0

    @contextmanager
    def _kept(self, locator: Locator) -> Iterator[_Held]:
        """What is kept of a session, for one thread at a time; afterwards others make room for what it takes now."""
        with self._guard:
            held = self._held.setdefault(locator, _Held())
            self._held.move_to_end(locator)
        with held.lock:
            try:
                yield held
            finally:
                self._make_room(held)

    def _caught_up(self, held: _Held, locator: Locator) -> SessionState:
        """The state as the log has it now, read on from where it was last seen."""
        state = held.state
        changed_at = self._when_changed(locator)
        if state is not None and changed_at != held.changed_at:
            # Another log may be in its place that has lines of the same lengths: nothing of it is known.
            state = None
        held.changed_at = changed_at
        try:
            tail = self._journals.read(locator, state.offset) if state is not None else None
        except Conflict:
            tail = None
        if state is not None and tail is not None and tail.end == state.offset:
            return state
        if state is None or tail is None or not state.follow(tail.lines):
            # Never read, or rewritten since (something was forgotten): what was read of it no longer stands.
            state = held.state = self._read_anew(locator)
        else:
            state.offset = tail.end
        state.let_go()
        return state

    def _check_end(self, locator: Locator, offset: int) -> None:
        if self._journals.size(locator) != offset:
            raise LogMoved(f"{locator} was written to by somebody else.", key=locator.key)

    def _when_changed(self, locator: Locator) -> float:
        return 0.0 if self._changed_at is None else self._changed_at(locator)

    def _read_anew(self, locator: Locator, corrected_by: datetime | None = None) -> SessionState:
        place = place_of_session(locator)
        if place is None:
            raise InvalidLocatorError(f"{locator} is not the log of a session.", key=locator.key)
        state = SessionState(*place, corrected_by=corrected_by)
        log = self._journals.read(locator, 0)
        state.feed(log.lines)
        state.offset = log.end
        return state

    def _make_room(self, held: _Held) -> None:
        """Count what a state takes, and drop those that were not asked for the longest, until the rest fits."""
        state = held.state
        size = 0 if state is None else state.held_bytes + (_WATCH_BYTES if state.watch is not None else 0)
        with self._guard:
            if held.counted is not None:
                self._size += size - held.counted
                held.counted = size
            while len(self._held) > (1 if self._size > self._budget else self._most):
                _, dropped = self._held.popitem(last=False)
                self._size -= dropped.counted or 0
                dropped.counted = None


class _Held:
    """A kept state, the lock that whoever looks at it or changes it holds, its size as it was counted, and whether
    others have written the log lately.
    """

    __slots__ = ("changed_at", "counted", "lock", "moved", "state")

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.state: SessionState | None = None
        self.changed_at = 0.0
        self.counted: int | None = 0
        self.moved = False


@functools.lru_cache(maxsize=_LOCATORS_KEPT)
def session_locator(space: Space, session_id: str) -> Locator:
    """Where the log of a session lives: one file per id, whatever the id holds.

    Capital letters and anything a file name could not carry everywhere are written as %xx, so ids that differ
    only in case stay apart on every disk; a name too long for one segment goes on in a folder ending in "%".
    """
    coded = "".join(chr(b) if b in _PLAIN else f"%{b:02x}" for b in session_id.encode("utf-8"))
    if coded[0] == "." or _DEVICE.match(coded):
        coded = f"%{ord(coded[0]):02x}{coded[1:]}"
    parts = []
    while len(coded) > _SEGMENT_CHARS:
        # A folder's name must not end inside an escape, nor the next segment start with a dot.
        end = _SEGMENT_CHARS - next((n for n in (1, 2) if coded[_SEGMENT_CHARS - n] == "%"), 0)
        while coded[end] == ".":
            end -= 1
        parts.append(coded[:end] + "%")
        coded = coded[end:]
    return sessions_of(space).child(*parts, coded + _SUFFIX)


def sessions_of(space: Space) -> Locator:
    """The folder that holds the session logs of a space."""
    return space_locator(space).child(SESSIONS)


def logs_in(
    storage: StorageBackend, space: Space, passed_over: Callable[[Locator, CairnError], object]
) -> Iterator[tuple[str, Locator, int, float]]:
    """The sessions of a space by key, each with its log, its size and when it was written; one look, however many there are."""
    for key, size, moment in sorted(storage.scan_lines(sessions_of(space), passed_over)):
        if (place := place_of_session(locator := Locator(key))) is not None:
            yield place[1], locator, size, moment / 1e9


@functools.lru_cache(maxsize=_LOCATORS_KEPT)
def place_of_session(locator: Locator) -> tuple[Space, str] | None:
    """The space and session id whose log lives at `locator`; None where no session's log can be."""
    parts = locator.parts
    if len(parts) < 4 or parts[2] != SESSIONS or not parts[-1].endswith(_SUFFIX):
        return None
    folders, name = parts[3:-1], parts[-1].removesuffix(_SUFFIX)
    if not all(folder.endswith("%") for folder in folders):
        return None
    coded = "".join(folder[:-1] for folder in folders) + name
    if not _CODED.fullmatch(coded):
        return None
    try:
        raw = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), coded.encode("ascii"))
        space = space_of(locator)
        session_id = raw.decode("utf-8")
        if space is None or session_locator(space, session_id) != locator:
            return None
    except (ValueError, IndexError):
        return None
    return space, session_id


def message_id(session_id: str, ordinal: int) -> str:
    """The id of the message at `ordinal`: stable, and unique within a space."""
    return f"m_{_session_hash(session_id)}_{ordinal:06d}"


def cell_id(space: Space, session_id: str, first: int, upto: int, *held: str) -> str:
    """The id of the cell of these ordinals, or of what is `held` in it: the same whenever it is computed."""
    named = "\0".join((space.app, space.project, session_id, *(held or (str(first), str(upto)))))
    return "mc_" + hashlib.sha256(named.encode("utf-8")).hexdigest()[:12]


@functools.lru_cache(maxsize=_LOCATORS_KEPT)
def _session_hash(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8")).hexdigest()[:16]


def ordinal_of(message: str) -> int:
    """The place in its session of the message with this id."""
    return int(message.rpartition("_")[2])
