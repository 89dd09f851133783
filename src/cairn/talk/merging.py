"""Merges two copies of a session's log, each message once, in order, and removes what was then told twice.

Two machines add to a session in a synced folder, and the sync program keeps one log and puts the other beside it.
Both begin alike and then differ. A message is known by the call it came with (the hash of what was said, the
caller's key) and its number in it, wherever it stands; so the union is the same however often it is made.

    places below our last cut    stay as they are: ids of messages that are told never shift
    cells only they have cut     follow, without what is in a cell of ours already
    what nobody has cut          follows, both sides in the order of their calls

A cell whose words changed by this is marked to be told again; one that has none left is marked as merged, so that
its episodes go. What was forgotten on one side stays forgotten. Lines that cannot be read are kept as they are.

Where logs or notes of two machines were united, a note may hold two episodes of one cell, one that tells what the cell
held before, or one of a cell whose words are in other cells now. Of those that a machine wrote and that say nothing but
what was said in the session, one stays, with the cell's words, and the others go; what a person has reworded stays as
it is, for a person to look at.
"""

from __future__ import annotations

import heapq
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from zoneinfo import ZoneInfo

from cairn.canonical import as_line
from cairn.errors import CairnError, Invalid, NotFound
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.seams import Locator
from cairn.talk import narrative
from cairn.talk.lines import (
    Added,
    CellRecord,
    Closed,
    Corrected,
    Event,
    Finished,
    Followed,
    ToldTo,
    corrected_line,
    line_of,
    read_line,
)
from cairn.talk.narrative import DETERMINISTIC, called
from cairn.talk.sessions import SessionState
from cairn.types import Entry, Message, Scope, Space

FORGOTTEN = "[forgotten]"
_DAY_LINE = re.compile(r"\(\w+, [^()\n]{1,40}\)")
_TURN = re.compile(r"[^:\n]{1,300}: ")
Key = tuple[str, str, int, int]
"""A message: the hash of its call, the caller's key, its number in the call, and which of equal ones it is."""


@dataclass(frozen=True, slots=True)
class _Said:
    """A message as a log holds it, and the line it stands in without its messages."""

    raw: Any
    head: Mapping[str, Any]
    number: int


@dataclass(slots=True)
class _Side:
    """One of the two logs, read: its lines, where each message stands, and its cells."""

    state: SessionState
    lines: list[tuple[str, Event | None, int]] = field(default_factory=list)
    said: dict[Key, _Said] = field(default_factory=dict)
    at: dict[int, Key] = field(default_factory=dict)
    cuts: dict[str, dict[str, Any]] = field(default_factory=dict)

    @classmethod
    def of(cls, space: Space, session_id: str, lines: Sequence[str]) -> _Side:
        side = cls(SessionState(space, session_id))
        seen: Counter[tuple[str, str, int]] = Counter()
        for line in lines:
            side.state.lines += 1
            try:
                event = read_line(line)
                side.state.take(event)
            except Invalid:
                side.lines.append((line, None, 0))
                continue
            first = 0
            if isinstance(event, Added):
                first = side.state.next_ordinal - len(event.messages)
                side._take(json.loads(line), event, first, seen)
            elif isinstance(event, Closed):
                side.cuts[event.cell.cell_id] = json.loads(line)
            side.lines.append((line, event, first))
        return side

    def _take(
        self, raw: dict[str, Any], event: Added, first: int, seen: Counter[tuple[str, str, int]]
    ) -> None:
        messages = raw.pop("messages")
        for n, message in enumerate(messages):
            number = event.part + n
            # A line without a batch is none of ours: it is known by what it says.
            call = event.batch or json.dumps(messages, sort_keys=True)
            name = (call, event.key or "", number)
            key = (*name, seen[name])
            seen[name] += 1
            self.at[first + n] = key
            self.said[key] = _Said(message, raw, number)

    def keys(self, cell: CellRecord) -> list[Key]:
        """The messages of a cell, in order; forgotten ones count, for they have a place."""
        return [
            key for n in range(cell.first, min(cell.upto, self.state.next_ordinal)) if (key := self.at.get(n))
        ]

    def beyond(self, place: int) -> list[Key]:
        """The messages from a place on, in order."""
        return [key for n, key in self.at.items() if n >= place]


def united(space: Space, session_id: str, ours: Sequence[str], theirs: Sequence[str]) -> list[str] | None:
    """The lines of one log that holds what both hold; None where `ours` does already.

    Raises:
        Invalid: the two are not one session: they were begun for different owners and share nothing.
    """
    mine, other = _Side.of(space, session_id, ours), _Side.of(space, session_id, theirs)
    if not mine.said.keys() & other.said.keys() and mine.said and other.said:
        begun = {mine.state.begun_for, other.state.begun_for}
        if len(begun) > 1:
            raise Invalid("they are two sessions of one name, begun for different owners")
    lines = _Union(mine, other).made()
    return None if lines == list(ours) else lines


class _Union:
    """Makes the united log."""

    def __init__(self, mine: _Side, other: _Side) -> None:
        self._mine, self._other = mine, other
        self._base = mine.state.cut_upto
        self._in_cell: dict[Key, str] = {}
        for cell in mine.state.cells:
            self._in_cell.update((key, cell.cell_id) for key in mine.keys(cell))
        self._place = {key: n for n, key in mine.at.items() if n < self._base}
        self._next = self._base
        self._again: dict[str, None] = {}
        self._lines: list[str] = []
        self._kept: set[str] = set()

    def made(self) -> list[str]:
        """The lines of the united log."""
        mine, other = self._mine, self._other
        fresh = [cell for cell in other.state.cells if mine.state.cell(cell.cell_id) is None]
        if self._differs(fresh):
            self._keep_mine()
            for cell in fresh:
                self._add_cell(cell)
            self._add_open()
        else:
            self._put(self._without_forgotten(*line) for line in mine.lines)
        self._add_merged()
        self._add_marks({cell.cell_id for cell in mine.state.cells})
        self._put(line for line, event, _ in other.lines if event is None and line not in self._kept)
        so_far = SessionState(mine.state.space, mine.state.session_id)
        so_far.feed(self._lines)
        for cell_id in self._again:
            found = so_far.cell(cell_id)
            if found is not None and not found.again:
                self._put([as_line({"t": "again", "cell": cell_id})])
        return self._lines

    def _put(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._lines.append(line)
            self._kept.add(line)

    def _add_merged(self) -> None:
        """Cells that are cut otherwise on the two sides: what they hold now may not be what was told of them."""
        mine, other = self._mine, self._other
        for cell in other.state.cells:
            known = mine.state.cell(cell.cell_id)
            if known is not None and set(mine.keys(known)) != set(other.keys(cell)):
                self._again[cell.cell_id] = None
        for cell_id, gone in other.state.merged.items():
            if mine.state.cell(cell_id) is not None:
                self._again[cell_id] = None
            elif self._is_new(gone):
                self._put([_merged_line(gone)])

    def _differs(self, fresh: Sequence[CellRecord]) -> bool:
        return bool(self._other.said.keys() - self._mine.said.keys()) or any(map(self._is_new, fresh))

    def _is_new(self, cell: CellRecord) -> bool:
        return cell.cell_id not in self._mine.state.merged

    # ---- ours ----------------------------------------------------------------------------------------------------

    def _keep_mine(self) -> None:
        """Our lines, without the messages that no cell of ours holds: they find their place among the others."""
        for line, event, first in self._mine.lines:
            if not isinstance(event, Added):
                self._put([line])
                continue
            count = max(min(self._base - first, len(event.messages)), 0)
            if count == len(event.messages) and event.first in {None, first}:
                self._put([self._without_forgotten(line, event, first)])
            elif count:
                self._put(self._calls([self._mine.at[first + n] for n in range(count)], first))

    def _without_forgotten(self, line: str, event: Event | None, first: int) -> str:
        """A line of ours without what was forgotten on the other side."""
        if not isinstance(event, Added):
            return line
        raw = json.loads(line)
        less = [self._raw(self._mine.at[first + n]) for n in range(len(event.messages))]
        return line if less == raw["messages"] else as_line({**raw, "messages": less})

    def _raw(self, key: Key) -> Any:
        mine, other = self._mine.said.get(key), self._other.said.get(key)
        if mine is None or other is None:
            found = mine or other
            return found.raw if found is not None else None
        if mine.raw is None or other.raw is None:
            return None
        forgot = FORGOTTEN in as_line(other.raw) and FORGOTTEN not in as_line(mine.raw)
        return other.raw if forgot else mine.raw

    # ---- theirs --------------------------------------------------------------------------------------------------

    def _add_cell(self, cell: CellRecord) -> None:
        """A cell that only they have cut, as far as its words are in none of ours."""
        keys = self._other.keys(cell)
        left = [key for key in keys if key not in self._in_cell and key not in self._place]
        words = [key for key in keys if self._raw(key) is not None]
        if not any(self._raw(key) is not None for key in left):
            if words and self._is_new(cell):
                self._put([_merged_line(cell)])
            return
        first = self._next
        self._put(self._placed(left))
        line = self._other.cuts[cell.cell_id]
        self._put([as_line({**line, "first": first, "upto": self._next})])
        self._in_cell.update((key, cell.cell_id) for key in left)
        self._add_marks({cell.cell_id})
        if len([key for key in left if key in set(words)]) < len(words) or cell.again:
            self._again[cell.cell_id] = None

    def _add_open(self) -> None:
        """What nobody has cut: both sides in their order; between messages that both know, by the time of the calls."""
        mine = [key for key in self._mine.beyond(self._base) if key not in self._in_cell]
        theirs = [key for key in self._other.beyond(0) if key not in self._in_cell and key not in self._place]
        both = set(mine) & set(theirs)
        after = _runs(theirs, both)
        ordered: list[Key] = []
        for shared, run in _runs(mine, both).items():
            ordered += [shared] if shared is not None else []
            ordered += self._by_time(run, after.pop(shared, []))
        self._put(self._placed([*ordered, *(key for run in after.values() for key in run)]))

    def _by_time(self, mine: Sequence[Key], theirs: Sequence[Key]) -> list[Key]:
        ordered = heapq.merge(
            ((str(self._mine.said[key].head.get("at", "")), 0, n, key) for n, key in enumerate(mine)),
            ((str(self._other.said[key].head.get("at", "")), 1, n, key) for n, key in enumerate(theirs)),
        )
        return [key for _, _, _, key in ordered]

    def _placed(self, keys: Sequence[Key]) -> list[str]:
        """Lines that put `keys` at the next places."""
        first = self._next
        self._place.update((key, first + n) for n, key in enumerate(keys))
        self._next += len(keys)
        return self._calls(keys, first)

    def _calls(self, keys: Sequence[Key], first: int) -> list[str]:
        """Add lines for `keys` from a place on; messages of one call that follow each other share a line."""
        lines: list[str] = []
        run: list[Key] = []
        for n, key in enumerate([*keys, None]):
            if run and (key is None or not self._follows(run[-1], key)):
                lines.append(self._call(run, first + n - len(run)))
                run = []
            if key is not None:
                run.append(key)
        return lines

    def _follows(self, key: Key, later: Key) -> bool:
        return key[:2] == later[:2] and key[3] == later[3] and later[2] == key[2] + 1

    def _call(self, keys: Sequence[Key], first: int) -> str:
        said = self._mine.said.get(keys[0]) or self._other.said[keys[0]]
        head = {name: value for name, value in said.head.items() if name not in {"n", "from"}}
        if first:
            head.pop("for", None)
        part = {"from": said.number} if said.number else {}
        named = {"t": "add", "n": first, **part, **{k: v for k, v in head.items() if k != "t"}}
        return as_line({**named, "messages": [self._raw(key) for key in keys]})

    # ---- what is said of cells -----------------------------------------------------------------------------------

    def _add_marks(self, cells: Iterable[str]) -> None:
        """What they note of these cells and we do not: who was told, that it is done, what was corrected."""
        wanted = set(cells)
        for _, event, _ in self._other.lines:
            if not isinstance(event, ToldTo | Finished | Corrected | Followed) or event.cell_id not in wanted:
                continue
            line = self._mark(event)
            if line not in self._kept:
                self._put([line])

    def _mark(self, event: ToldTo | Finished | Corrected | Followed) -> str:
        if not isinstance(event, Corrected):
            return line_of(event)
        texts = {
            self._place[key]: text
            for n, text in event.texts.items()
            if (key := self._other.at.get(n)) is not None and key in self._place
        }
        at = event.at.isoformat() if event.at is not None else ""
        return corrected_line(event.cell_id, event.track, event.owner, texts, at)


def _runs(keys: Sequence[Key], both: set[Key]) -> dict[Key | None, list[Key]]:
    """Messages that one side alone has, by the shared one they follow on (None at the beginning)."""
    found: dict[Key | None, list[Key]] = {None: []}
    shared: Key | None = None
    for key in keys:
        if key in both:
            shared = key
            found[shared] = []
        else:
            found[shared].append(key)
    return found


def _merged_line(cell: CellRecord) -> str:
    return as_line({"t": "merged", "cell": cell.cell_id, "day": cell.day, "owners": cell.owners})


# ---------------------------------------------------------------- episodes that two machines wrote of the same talk


def is_machine_made(entry: Entry, said: Sequence[Message], zone: ZoneInfo, *, forgotten: int = 0) -> bool:
    """Whether an episode says nothing but what was said: no person has put a word into it.

    Of messages that were forgotten since, `forgotten` in number, nobody knows the words any more: so many turns of
    somebody who spoke may be others.
    """
    if entry.inline.get("writer") != DETERMINISTIC:
        return True
    tools = called(said)
    known = {
        paragraph
        for message in said
        for names in (tools, {})
        for paragraph in _paragraphs(narrative.turn(message, zone, names))
    }
    told = _paragraphs(entry.sections.get("Content", ""))
    others = [
        paragraph
        for n, paragraph in enumerate(told)
        if paragraph not in known
        and not _DAY_LINE.fullmatch(paragraph)
        and not (n == 0 and narrative.is_headline(paragraph))
    ]
    return len(others) <= forgotten and all(_TURN.match(paragraph) for paragraph in others)


def says_what_was_said(entry: Entry, state: SessionState, zone: ZoneInfo) -> bool:
    """Whether an episode of a session was made by a machine, as far as the session's log can tell."""
    cell = state.cell(entry.inline.get("parent_id", ""))
    return is_machine_made(
        entry, state.messages, zone, forgotten=_forgotten_in(state, cell) if cell is not None else 0
    )


def _forgotten_in(state: SessionState, cell: CellRecord) -> int:
    """How many messages of a cell were forgotten, wholly or in part."""
    said = state.messages_of(cell)
    return max(cell.upto - cell.first - len(said), 0) + sum(FORGOTTEN in message.text for message in said)


def _paragraphs(text: str) -> list[str]:
    return [" ".join(part.split()) for part in re.split(r"\n\s*\n", text) if part.strip()]


def tidy(notebook: Notebook, state: SessionState, zone: ZoneInfo) -> int:
    """Remove the episodes of a session that say what others say; returns how many went."""
    count = 0
    for cell in (*state.merged.values(), *state.cells):
        for locator in _notes_of(state, cell):
            with suppress(CairnError):  # a note that cannot be read now is looked at the next time
                count += _tidy_note(notebook, state, cell, locator, zone)
    return count


def episode_notes(state: SessionState) -> Iterator[Locator]:
    """The notes that episodes of a session's cells lie in."""
    for cell in (*state.merged.values(), *state.cells):
        yield from _notes_of(state, cell)


def _notes_of(state: SessionState, cell: CellRecord) -> Iterator[Locator]:
    for owner in cell.owners:
        yield KINDS["episode"].locator(Scope(state.space, *owner), cell.day)


def _tidy_note(
    notebook: Notebook, state: SessionState, cell: CellRecord, locator: Locator, zone: ZoneInfo
) -> int:
    try:
        entries = notebook.read(locator).entries
    except NotFound:
        return 0
    found = [entry for entry in entries if entry.inline.get("parent_id") == cell.cell_id]
    is_gone = cell.cell_id in state.merged
    said = state.messages_of(cell)
    content = narrative.transcript(said, zone) if said else ""
    if not found or (len(found) == 1 and found[0].sections.get("Content") == content and not is_gone):
        return 0
    gone = _forgotten_in(state, cell)
    ours = [entry for entry in found if is_machine_made(entry, state.messages, zone, forgotten=gone)]
    if is_gone:
        doomed = ours
    else:
        kept = _best(found, content)
        doomed = [entry for entry in ours if entry is not kept]
        if said and kept in ours and kept.inline.get("writer") == DETERMINISTIC:
            _reword(notebook, locator, kept, narrative.told(said, zone))
    if doomed:
        notebook.remove(locator, [entry.id for entry in doomed])
    return len(doomed)


def _best(entries: Iterable[Entry], content: str) -> Entry:
    """The episode to keep: one that a cell's words would make, else the first."""
    found = list(entries)
    return next((entry for entry in found if entry.sections.get("Content") == content), found[0])


def _reword(notebook: Notebook, locator: Locator, entry: Entry, told: narrative.EpisodeText) -> None:
    sections = {"Subject": told.subject, "Summary": told.summary, "Content": told.content}
    if {name: entry.sections.get(name) for name in sections} != sections:
        notebook.change(locator, entry.id, lambda old: Draft({**old.inline}, {**old.sections, **sections}))
