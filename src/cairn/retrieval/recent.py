"""A bounded cache of files read lately, so that a file that only grew costs what was added.

A day's note and a session's log grow at the end. Reading all of a large one again for each new entry would make
every write dearer than the last. A file is remembered by its exact content; where it still begins with that,
only the rest is read. Anything else is read whole.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import tzinfo
from typing import Any

from cairn.notes.frontmatter import find_head
from cairn.notes.kinds import Place
from cairn.retrieval.reading import MAX_ENTRY_BYTES, FileContent, read_note, read_session
from cairn.seams import Locator
from cairn.talk.sessions import SessionLog, SessionState
from cairn.types import Scope

_MAX_BYTES = 32 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Look:
    """What was found in a file; `whole` is False when `found` names only what was added.

    `troubles` says what in the file was set aside because it cannot be read; `mark` is the hash of a note's text.
    """

    found: FileContent
    whole: bool
    memory: _NoteMemory | _SessionMemory | None = None
    troubles: str = ""
    mark: int = 0


@dataclass(frozen=True, slots=True)
class _NoteMemory:
    generation: str
    body: str = field(repr=False)
    replaced: Mapping[str, Any]
    ids: frozenset[str] = field(repr=False)

    @property
    def size(self) -> int:
        return len(self.body) * 2


@dataclass(frozen=True, slots=True)
class _SessionMemory:
    """How far a session's log was indexed: so many cells of one reading of it, and the open words up to a place.

    While `owners` and `speakers` of the open words stay the same, those before that place are as they were indexed.
    """

    generation: str
    epoch: int
    cells: int
    corrected_lines: int
    cut_upto: int
    open_upto: int
    owners: tuple[tuple[str, str], ...]
    speakers: frozenset[tuple[str, str | None]]
    size: int = 400


class Recent:
    """A bounded memory of files that are likely to grow.

    Args:
        min_chars: Smaller files are not worth remembering.
        max_entry: Longer entries have no row.
    """

    def __init__(self, *, min_chars: int = 16_384, max_entry: int = MAX_ENTRY_BYTES) -> None:
        self.min_chars = min_chars
        self._max_entry = max_entry
        self._kept: OrderedDict[str, _NoteMemory | _SessionMemory] = OrderedDict()
        self._size = 0

    def note(
        self,
        place: Place,
        path: str,
        text: str,
        generation: str,
        known: Mapping[tuple[Scope, str], bytes] | None,
        zone: tzinfo,
    ) -> Look | None:
        """Read a note; None when all of it must be read but `known` (the index's rows of it) is missing."""
        old = self._kept.get(path)
        head = find_head(text)
        if (
            isinstance(old, _NoteMemory)
            and old.generation == generation
            and text.startswith(old.body, head.body)
            and old.body.endswith("\n")
        ):
            added = place.kind.parse(text[: head.body] + text[head.body + len(old.body) :])
            more = {entry.id for entry in added.entries}
            if not added.damaged and _replaced(added.frontmatter) == old.replaced and not more & old.ids:
                memory = _NoteMemory(generation, text[head.body :], old.replaced, old.ids | more)
                found = read_note(place, added, path, {}, zone=zone, max_entry=self._max_entry)
                return Look(found, whole=False, memory=memory, mark=hash(text))
        if known is None:
            return None
        note = place.kind.parse(text)
        remembered: _NoteMemory | None = None
        if place.kind.storage == "daily" and not note.damaged and len(text) >= self.min_chars:
            ids = {entry.id for entry in note.entries}
            remembered = _NoteMemory(generation, note.body, _replaced(note.frontmatter), frozenset(ids))
        found = read_note(place, note, path, known, zone=zone, max_entry=self._max_entry)
        return Look(found, whole=True, memory=remembered, mark=hash(text))

    def session(
        self,
        log: SessionLog,
        locator: Locator,
        generation: str,
        known: Mapping[tuple[Scope, str], bytes] | None,
    ) -> Look | None:
        """Read a session's log, as `note` does."""
        path = locator.key
        old = self._kept.get(path)
        if not isinstance(old, _SessionMemory) or old.generation != generation:
            old = None
        if old is None and known is None:
            return None
        state = log.load(locator, after=(old.epoch, old.cells) if old is not None else None)
        owners = state.open_owners
        speakers = frozenset((message.sender_id, message.sender_name) for message in state.open_messages)
        # Only what was appended is new, unless a correction lies before the end, or somebody lost what was open:
        # then all of it is read again.
        if old is not None and _goes_on(old, state, owners):
            is_same = (old.owners, old.speakers) == (owners, speakers)
            first_cell, first_open, whole = old.cells, old.open_upto if is_same else 0, False
        elif known is None:
            return None
        else:
            first_cell, first_open, whole = 0, 0, True
            state = log.load(locator) if not state.holds(0) else state
        found = read_session(state, path, known or {}, first_cell=first_cell, first_open=first_open)
        memory = _SessionMemory(
            generation,
            state.epoch,
            len(state.cells),
            state.corrected_lines,
            state.cut_upto,
            state.next_ordinal,
            owners,
            speakers,
        )
        return Look(found, whole=whole, memory=memory, troubles=state.remarks())

    def keep(self, path: str, memory: _NoteMemory | _SessionMemory | None) -> None:
        """Remember a file that is now indexed as it was read."""
        self.drop(path)
        if memory is None or memory.size > _MAX_BYTES // 4:
            return
        self._kept[path] = memory
        self._size += memory.size
        while self._size > _MAX_BYTES:
            _, dropped = self._kept.popitem(last=False)
            self._size -= dropped.size

    def drop(self, path: str) -> None:
        old = self._kept.pop(path, None)
        if old is not None:
            self._size -= old.size

    def clear(self) -> None:
        self._kept.clear()
        self._size = 0


def _replaced(frontmatter: Mapping[str, Any]) -> Mapping[str, Any]:
    found = frontmatter.get("deprecated_entries")
    return dict(found) if isinstance(found, Mapping) else {}


def _goes_on(old: _SessionMemory, state: SessionState, owners: tuple[tuple[str, str], ...]) -> bool:
    """Whether what was indexed of a session still holds, so that only what follows is to be read."""
    if old.epoch != state.epoch or old.corrected_lines != state.corrected_lines:
        return False
    had, reached = set(old.owners), old.cut_upto
    for cell in state.cells[old.cells :]:
        # Words that were open and are now before the cut, but in no cell, have to go.
        if cell.first > reached or not had <= set(cell.owners):
            return False
        reached = max(reached, cell.upto)
    return old.open_upto <= state.cut_upto or had <= set(owners)
