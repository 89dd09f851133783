"""From notes and session logs to rows: what each kind of file says, as the index will hold it.

Rows depend on nothing but the file they come from, so that an index kept up to date and one made anew are the
same. Each carries a hash of the bytes behind it; where that is known already, the row is not even made.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, tzinfo
from typing import Any

from cairn.errors import Invalid
from cairn.index.corpus import PASSAGE, NewRow, Row
from cairn.index.embedding_text import message_text, spoken_names
from cairn.language.sentences import PASSAGE_BYTES, passages
from cairn.notes.format import Note, list_items
from cairn.notes.frontmatter import find_head
from cairn.notes.kinds import Place
from cairn.seams import Locator
from cairn.talk.messages import inline_of, labels_of, read_inline
from cairn.talk.sessions import SessionLog, SessionState
from cairn.types import Entry, Message, Scope

MESSAGE = "message"
PART_MARK = "#"  # between the id of an entry and the number of a passage of it
_TIMES = ("timestamp", "created_at", "start_time")
_UPDATES = ("updated_at", "last_updated_at", "last_appended_at")
_MAX_MS = 2**62
MAX_ENTRY_BYTES = 1024 * 1024
_FORM = b"4"  # part of every source hash: bump when rows are made differently
_UNLABELLED = tuple(map(str, inline_of(()).values()))


@dataclass(frozen=True, slots=True)
class FileContent:
    """What a file holds now: its entries by scope and id, rows for those that are new, and damaged ids."""

    present: frozenset[tuple[Scope, str]]
    rows: tuple[NewRow, ...]
    damaged: frozenset[str] = frozenset()


def content_of(made: Iterable[NewRow], known: Mapping[tuple[Scope, str], bytes]) -> FileContent:
    """What a file holds that was made into these rows; those whose source hash is in `known` are only named."""
    rows = {(new.row.scope, new.row.entry_id): new for new in made}
    fresh = tuple(new for identity, new in rows.items() if known.get(identity) != new.source)
    return FileContent(frozenset(rows), fresh)


def read_note(
    place: Place,
    note: Note,
    path: str,
    known: Mapping[tuple[Scope, str], bytes],
    *,
    zone: tzinfo = UTC,
    max_entry: int = MAX_ENTRY_BYTES,
) -> FileContent:
    """The rows of a note. Entries whose source hash is in `known` are only named, not made again.

    Args:
        place: What the note's locator means.
        note: The note, parsed.
        path: Its key.
        known: Source hashes of the rows the index has of this file.
        zone: Times without an offset are meant in it.
        max_entry: A longer entry has no row; `doctor` names it.
    """
    if place.kind.storage != "daily":
        return _document(place, note, path, known, zone)
    replaced = note.frontmatter.get("deprecated_entries")
    replaced = replaced if isinstance(replaced, Mapping) else {}
    present, rows = set(), []
    for entry in note.entries:
        if max_entry and entry.end - entry.start > max_entry:
            continue
        successor = replaced.get(entry.id)
        source = source_hash(
            note.text[entry.start : entry.end], "" if successor is None else f"\0{successor}"
        )
        identity = (place.scope, entry.id)
        present.add(identity)
        if place.kind.name == "episode" or entry.end - entry.start <= PASSAGE_BYTES // 4:
            if known.get(identity) != source:
                rows.append(NewRow(_entry_row(place, entry, path, successor, zone), source))
            continue
        row = _entry_row(place, entry, path, successor, zone)
        for new in in_passages(NewRow(row, source)):
            present.add((place.scope, new.row.entry_id))
            if known.get((place.scope, new.row.entry_id)) != source:
                rows.append(new)
    return FileContent(frozenset(present), tuple(rows), note.damaged)


def _entry_row(place: Place, entry: Entry, path: str, successor: object, zone: tzinfo) -> Row:
    inline = entry.inline
    fields: dict[str, Any] = {**inline, **entry.sections}
    if successor is not None:
        fields["deprecated_by"] = str(successor)
    at = first_time(inline, _TIMES, zone) or _day_ms(place.day)
    parent_type, parent_id = inline.get("parent_type", ""), inline.get("parent_id", "")
    return Row(
        rowid=0,
        kind=place.kind.name,
        scope=place.scope,
        entry_id=entry.id,
        path=path,
        text=place.kind.search_text(entry),
        timestamp_ms=at,
        updated_ms=first_time(inline, _UPDATES, zone) or at,
        session_id=inline.get("session_id") or None,
        cell_id=parent_id if parent_id.startswith("mc_") or parent_type == "memcell" else None,
        parent_type=parent_type or None,
        parent_id=parent_id or None,
        sender_ids=tuple(
            "".join(i.splitlines())
            for i in list_items(inline.get("sender_ids") or inline.get("sender_id", ""))
        ),
        fields=fields,
        status="deprecated" if successor is not None else inline.get("status", ""),
        content_sha256=place.kind.content_hash(entry),
        labels=labels_of(*read_inline(inline)),
    )


def _document(
    place: Place, note: Note, path: str, known: Mapping[tuple[Scope, str], bytes], zone: tzinfo
) -> FileContent:
    """A profile, a skill, or another note that is one document: one row, named by its place."""
    head = {str(key): value for key, value in note.frontmatter.items()}
    at = first_time(head, (*_UPDATES, *_TIMES), zone)
    row = Row(
        rowid=0,
        kind=place.kind.name,
        scope=place.scope,
        entry_id=place.name or place.kind.name,
        path=path,
        text=place.kind.search_text(note),
        timestamp_ms=first_time(head, _TIMES, zone) or at,
        updated_ms=at,
        fields={**head, "body": note.body},
        status=str(head.get("status") or ""),
        content_sha256=place.kind.content_hash(note),
    )
    return content_of(in_passages(NewRow(row, source_hash(note.text))), known)


def in_passages(new: NewRow, names: Sequence[str] = ()) -> Iterator[NewRow]:
    """A row, as it is embedded among speakers of these `names`, and one more for each further passage of its text.

    The row itself holds all of the text and is found by its first passage; the others are found by theirs and name it.
    """
    row = new.row
    first, *rest = passages(row.text)
    if not rest:
        yield NewRow(row, new.source, message_text(row.text, names) if row.kind == MESSAGE else None)
        return
    of = len(row.text)
    begin = row.text[: first.end]
    fields = {**row.fields, "passage": [0, first.end, of]}
    yield NewRow(replace(row, fields=fields), new.source, message_text(begin, names), begin)
    for number, part in enumerate(rest, 1):
        text = row.text[part.start : part.end]
        kept = {
            "passage": [part.start, part.end, of],
            **({"role": row.fields["role"]} if "role" in row.fields else {}),
        }
        made = replace(
            row,
            kind=PASSAGE,
            entry_id=f"{row.entry_id}{PART_MARK}{number}",
            text=text,
            parent_type=row.kind,
            parent_id=row.entry_id,
            fields=kept,
            content_sha256="",
        )
        yield NewRow(made, new.source, message_text(text, names))


def read_session(
    state: SessionState,
    path: str,
    known: Mapping[tuple[Scope, str], bytes],
    *,
    first_cell: int = 0,
    first_open: int = 0,
) -> FileContent:
    """The messages of a session's cut cells, once for each owner of the cell, as that owner has corrected them.

    Those of the open stretch (from the place `first_open` on) are there as well, for whom it would belong to if it
    were cut now. Their rows have no cell: that is how they are told apart, until the cut gives them one.
    """
    present: set[tuple[Scope, str]] = set()
    rows: list[NewRow] = []
    for cell in state.cells[first_cell:]:
        names = _names(state.messages_of(cell))
        for scope in _scopes(state, cell.owners):
            said = state.messages_for(cell, scope.track, scope.owner)
            _take(_Told(state, path, scope, cell.cell_id, names), said, known, present, rows)
    names = _names(state.open_messages)
    fresh = [message for _, message in state.between(max(first_open, state.cut_upto), state.next_ordinal)]
    for scope in _scopes(state, state.open_owners):
        _take(_Told(state, path, scope, None, names), fresh, known, present, rows)
    return FileContent(frozenset(present), tuple(rows))


@dataclass(frozen=True, slots=True)
class _Told:
    """Where messages were said and whom they are told to; no `cell_id` for what is open."""

    state: SessionState
    path: str
    scope: Scope
    cell_id: str | None
    names: tuple[str, ...]


def _take(
    told: _Told,
    said: Sequence[Message],
    known: Mapping[tuple[Scope, str], bytes],
    present: set[tuple[Scope, str]],
    rows: list[NewRow],
) -> None:
    """Add the messages `said` to what is `present`, and rows to `rows` for those that are not `known`."""
    for message in said:
        text = message.text
        if not text.strip():
            continue
        answers = (message.tool_call_id,) if message.tool_call_id else ()
        labelled = message.tags or message.metadata
        marked = map(str, inline_of([message]).values()) if labelled else _UNLABELLED
        about = (str(message.timestamp), message.speaker, *told.names, *answers, *marked)
        source = source_hash(told.cell_id or "", message.id, text, *about)
        row = _message_row(told, message)
        for new in in_passages(NewRow(row, source), told.names):
            present.add((told.scope, new.row.entry_id))
            if known.get((told.scope, new.row.entry_id)) != source:
                rows.append(new)


def _names(said: Sequence[Message]) -> tuple[str, ...]:
    return spoken_names(tuple(sorted({(m.sender_id, m.sender_name) for m in said}, key=str)))


def _message_row(told: _Told, message: Message) -> Row:
    at = max(0, min(int(message.timestamp), _MAX_MS))
    fields: dict[str, Any] = {"role": message.role}
    if message.tool_call_id:
        fields["tool_call_id"] = message.tool_call_id
    if message.tags:
        fields["tags"] = list(message.tags)
    if message.metadata:
        fields["metadata"] = dict(message.metadata)
    return Row(
        rowid=0,
        kind=MESSAGE,
        scope=told.scope,
        entry_id=message.id,
        path=told.path,
        text=message.text,
        timestamp_ms=at,
        updated_ms=at,
        session_id=told.state.session_id,
        cell_id=told.cell_id,
        parent_type="memcell" if told.cell_id else None,
        parent_id=told.cell_id,
        sender_ids=("".join(message.sender_id.splitlines()),),
        sender_name=message.sender_name,
        fields=fields,
        ordinal=int(message.id.rpartition("_")[2]),
        labels=labels_of(message.tags, message.metadata),
    )


def _scopes(state: SessionState, owners: Collection[tuple[str, str]]) -> Iterator[Scope]:
    for track, owner in owners:
        try:
            yield Scope(state.space, track, owner)  # type: ignore[arg-type]  # checked by Scope itself
        except Invalid:
            continue


def first_time(values: Mapping[str, Any], names: Collection[str], zone: tzinfo) -> int:
    """The first of these values that is a time, in epoch milliseconds; 0 where none is."""
    for name in names:
        found = _milliseconds(values.get(name), zone)
        if found:
            return found
    return 0


def _milliseconds(value: object, zone: tzinfo) -> int:
    """Epoch milliseconds of a time as a person or a program wrote it; 0 where it is none."""
    try:
        if isinstance(value, str):
            value = int(value) if value.isdigit() else datetime.fromisoformat(value.strip())
        if isinstance(value, datetime):
            moment = value if value.tzinfo else value.replace(tzinfo=zone)
            return round(moment.timestamp() * 1000)
        if isinstance(value, date):
            return _day_ms(value.isoformat())
        if isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < _MAX_MS:
            return int(value)
    except (ValueError, OverflowError, OSError):
        pass
    return 0


def _day_ms(day: str) -> int:
    try:
        return int(datetime.fromisoformat(day).replace(tzinfo=UTC).timestamp() * 1000)
    except ValueError:
        return 0


def source_hash(*parts: str) -> bytes:
    """What tells whether a row was made of the very same bytes."""
    digest = hashlib.blake2b(_FORM, digest_size=12)
    for part in parts:
        digest.update(part.encode("utf-8", "surrogatepass"))
        digest.update(b"\0")
    return digest.digest()


# ---------------------------------------------------------------- files that only grew
#
# A day's note and a session's log grow at the end. Reading all of a large one again for each new entry would make
# every write dearer than the last. A file is remembered by its exact content; where it still begins with that, only
# the rest is read. Anything else is read whole.

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
        max_entry: Longer entries have no row.
    """

    min_chars = 16_384
    """Smaller files are not worth remembering."""

    def __init__(self, *, max_entry: int = MAX_ENTRY_BYTES) -> None:
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
