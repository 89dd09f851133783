"""The only writer of notes: append, change, remove and rewrite, each one durable change of one file.

    append ──> render (caller's thread) ──> line of the file (`together`) ──> the first in it commits for all:
        lock the file · read · skip what is there already · give ids · one write, if unchanged · one change

A unit of work holds the file's lock across threads and processes and writes only if the file still is what
it read; when a person saved in between, it reads again and repeats. Everything outside the touched entry
and the frontmatter keys that belong to the Notebook stays as it is, byte for byte.
"""

from __future__ import annotations

import logging
import re
import threading
import time
import uuid
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, partial
from operator import itemgetter
from typing import Any, Literal, Protocol

from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.notes import frontmatter
from cairn.notes.format import (
    EntryId,
    Note,
    checked_text,
    inline_text,
    markers,
    parse_note,
    render_body,
    render_entry,
    spliced,
)
from cairn.notes.kinds import (
    SCOPE_DIRS,
    Kind,
    MemoryRoot,
    Place,
    check,
    is_stray,
    kind_named,
    kind_of_entry,
    place_of,
    space_locator,
)
from cairn.seams import Clock, Locator, Locks, StorageBackend, SystemClock
from cairn.seams.storage import iterate_files
from cairn.together import Together
from cairn.types import Entry, Scope, Space

ChangeType = Literal["added", "modified", "deleted"]
OnChange = Callable[[Sequence[tuple[Locator, ChangeType]]], int]

_log = logging.getLogger(__name__)
_ATTEMPTS = 50
_FIRST_EIGHT = itemgetter(slice(0, 8))
_COUNT = re.compile(r"^entry_count:[ ]+([0-9]{1,9})[ ]*(?=\r?$)", re.MULTILINE)
_APPENDED = re.compile(r"^last_appended_at:[ ]+(?:'[^'\n]*'|null)[ ]*(?=\r?$)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Draft:
    """An entry to be written. Fields that are None are left out; lists are written `[a, b]`."""

    inline: Mapping[str, object] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, entry: Entry, **inline: object) -> Draft:
        """A draft that says what `entry` says, with some inline fields set (None removes one)."""
        return cls({**entry.inline, **inline}, dict(entry.sections))


@dataclass(frozen=True, slots=True)
class Written:
    """Where an entry is now. `created` is False when it was there already; `lsn` 0 means nothing changed."""

    entry_id: str
    locator: Locator
    lsn: int
    created: bool


@dataclass(frozen=True, slots=True)
class Run:
    """One piece of work that writes many entries and can be taken back as a whole: its id, and what kind it is."""

    id: str
    kind: str


class History(Protocol):
    """Records what runs write, before they write it (`timetravel.runs`)."""

    def ahead(self, run: Run, at: Locator, before: str | None, after: str | None) -> None:
        """A run is about to put `after` in the place of `before`; None for no file."""

    def undone(self, space: Space) -> frozenset[str]:
        """The ids of the runs that were taken back."""


Once = tuple[tuple[str, str], ...]
_RUN: ContextVar[Run | None] = ContextVar("run", default=None)


@dataclass(slots=True, eq=False)
class _Request:
    """One call of `append`, and what became of it in the commit that carried it."""

    bodies: list[str]
    once: list[Once]
    also: Locator | None = None
    ids: list[tuple[str, bool]] = field(default_factory=list)
    lsn: int = 0


_FILES = 4096  # remembered at a time; a file that fell out counts as changed by another


class OwnTexts:
    """The last known text of each file, as a number. In doubt a text is another's.

    An edit by hand is known by a text that differs from the last one of ours. It may come before a file was ever
    indexed, so the index cannot tell; whoever writes notes can.
    """

    def __init__(self) -> None:
        self._hashes: OrderedDict[str, int] = OrderedDict()
        self._guard = threading.Lock()

    def wrote(self, key: str, before: int | None, after: str) -> None:
        """A file was changed by us from the text with hash `before` (None: there was none) to `after`.

        Where the text before was already another's, `after` is, too: it holds what they wrote.
        """
        mark = hash(after)
        with self._guard:
            if before is None or self._hashes.get(key) == before:
                self._keep(key, mark)
            else:
                self._hashes.pop(key, None)

    def followed(self, key: str, mark: int) -> None:
        """All that the text with hash `mark` says was looked at: only what comes after it is new."""
        with self._guard:
            self._keep(key, mark)

    def is_by_hand(self, key: str) -> None:
        """What is written next is a person's word, whoever writes it down."""
        with self._guard:
            self._hashes.pop(key, None)

    def reads(self, key: str, mark: int) -> bool:
        """Whether a file whose text has the hash `mark` reads as we left it."""
        with self._guard:
            return self._hashes.get(key) == mark

    def _keep(self, key: str, mark: int) -> None:
        self._hashes[key] = mark
        self._hashes.move_to_end(key)
        if len(self._hashes) > _FILES:
            self._hashes.popitem(last=False)


class Notebook:
    """Reads and writes notes through the storage seam. Thread-safe, and safe across processes.

    Args:
        storage: Where the notes are.
        locks: Named locks; a file's lock is named by its key.
        clock: Sets `last_appended_at`.
        on_change: Told of each durable change; returns its LSN. When it fails the write still stands (a scan
            finds the change later) and the LSN is 0.
        history: Told of what runs write.
    """

    def __init__(
        self,
        storage: StorageBackend,
        locks: Locks,
        *,
        clock: Clock | None = None,
        on_change: OnChange | None = None,
        lock_seconds: float = 60.0,
        history: History | None = None,
    ) -> None:
        self.root = MemoryRoot(storage)
        self.history = history
        self.own = OwnTexts()
        self.storage = storage
        self._locks = locks
        self._clock = clock or SystemClock()
        self._on_change = on_change
        self._lock_seconds = lock_seconds
        self.together: Together[_Request] = Together()

    # --- reading ---------------------------------------------------------------------------------------

    def read(self, locator: Locator) -> Note:
        """The note, parsed and checked against its place. Raises `NotFound`; damage is in `problems`."""
        return self.parse(locator, self.storage.read(locator))

    def find(self, scope: Scope, entry_id: str) -> tuple[Locator, Entry]:
        """The entry of that id in a scope, and its note. Raises `NotFound`, or `Invalid` for no id."""
        parsed = EntryId.parse(entry_id)
        locator = kind_of_entry(entry_id).locator(scope, parsed.day)
        try:
            note = self.read(locator)
        except NotFound:
            raise NotFound(f"Entry {entry_id}: there is no {locator}.", entry_id=entry_id) from None
        for candidate in (entry_id, str(parsed)):
            if candidate in note.by_id:
                return locator, note.by_id[candidate]
        return locator, note.entry(entry_id)

    def notes(
        self,
        space: Space | None = None,
        kind: str | None = None,
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[Locator]:
        """Every note, by key order; of one space or one kind where given.

        A folder that cannot be read is passed over, which `passed_over` is told of (the log, without one).
        """
        wanted = kind_named(kind) if kind is not None else None
        for locator in self._files(space, passed_over):
            place = place_of(locator)
            if place is not None and (wanted is None or place.kind is wanted):
                yield locator

    def strays(self) -> Iterator[Locator]:
        """Markdown files among the daily notes that nothing reads, for their name fits no kind."""
        return filter(is_stray, self._files())

    def _files(
        self, space: Space | None = None, passed_over: Callable[[Locator, CairnError], object] | None = None
    ) -> Iterator[Locator]:
        for one in [space] if space is not None else self.root.spaces():
            for directory in sorted(SCOPE_DIRS.values()):
                yield from iterate_files(
                    self.storage, space_locator(one).child(directory), passed_over or _unread
                )

    @staticmethod
    def parse(locator: Locator, text: str) -> Note:
        """`text` as a note that stands at `locator`, checked against its place."""
        place = place_of(locator)
        if place is None:
            return parse_note(text)
        note = place.kind.parse(text)
        more = tuple(check(note, place))
        return replace(note, problems=(*note.problems, *more)) if more else note

    # --- appending -------------------------------------------------------------------------------------

    def append(
        self,
        kind: str,
        scope: Scope,
        day: str,
        drafts: Sequence[Draft],
        *,
        once_by: Sequence[str] = (),
        also: Locator | None = None,
    ) -> list[Written]:
        """Add entries to a day's note; durable, all of them or none, when this returns.

        Args:
            kind: A kind that is kept in daily notes.
            scope: Whose note.
            day: The date bucket, YYYY-MM-DD; decided once by the caller.
            drafts: What to write, in order.
            once_by: Inline keys. A draft whose values of these keys equal those of an entry that was there
                before this call is not written again: that entry's id is returned, `created` False. Several
                drafts with the same values are matched with as many entries, in order.
            also: A file whose change is told together with the note's: the log that the entries were made of.

        Raises:
            Invalid: text or fields no note can hold; nothing was written.
            Conflict: the file kept changing under the write.
            Unavailable: the file's lock or the disk could not be had.
        """
        declared = kind_named(kind)
        if declared.storage != "daily":
            raise Invalid(f"{kind} is not kept in daily notes: use rewrite.", kind=kind)
        locator = declared.locator(scope, day)
        request = _Request(
            [render_body(d.inline, d.sections) for d in drafts], [_once(d, once_by) for d in drafts], also
        )
        if not drafts:
            return []
        place = Place(scope, declared, day=day)
        commit = partial(self._append_batch, place, locator)
        if _RUN.get() is None:
            self.together.run(locator.key, request, commit)
        else:  # what a run writes is not mixed with what others write
            commit([request])
        return [Written(entry_id, locator, request.lsn, created) for entry_id, created in request.ids]

    def _append_batch(self, place: Place, locator: Locator, batch: Sequence[_Request]) -> None:
        edit = partial(self._with_appended, place, locator, batch)
        lsn = self._edit(locator, edit, {one.also: None for one in batch if one.also is not None})
        for request in batch:
            request.lsn = lsn if any(created for _, created in request.ids) else 0

    def _with_appended(
        self, place: Place, locator: Locator, batch: Sequence[_Request], text: str | None
    ) -> str | None:
        kind, day = place.kind, place.day
        if text is None or not text.lstrip("\ufeff"):
            mark = text or ""
            text = f"{mark}---\n{frontmatter.dump(kind.fresh_frontmatter(place.scope, day))}---\n"
        count = self._highest_sequence(locator, text, kind, day)
        newline = "\r\n" if text.lstrip("\ufeff").startswith("---\r\n") else "\n"
        parse = cache(partial(kind.parse, text))
        known: dict[Once, list[str]] = {
            (): []
        }  # the entries with given values of the keys they are written once by
        blocks: list[str] = []
        for request in batch:
            request.ids = []
            added: list[tuple[Once, str]] = []
            taken: Counter[Once] = Counter()
            for body, once in zip(request.bodies, request.once, strict=True):
                if once not in known:
                    known[once] = _ids_with(once, text, parse)
                if there := known[once]:
                    request.ids.append((there[min(taken[once], len(there) - 1)], False))
                    taken[once] += 1
                    continue
                entry_id = str(EntryId.next_for(kind.prefix, day, count))
                count += 1
                blocks.append(render_entry(entry_id, body, newline))
                added.append((once, entry_id))
                request.ids.append((entry_id, True))
            for once, entry_id in added:
                if once:
                    known[once].append(entry_id)
        if not blocks:
            return None
        text = self._counted(place, text, count)
        return text + ("" if text.endswith("\n") else newline) + "".join(blocks)

    def _highest_sequence(self, locator: Locator, text: str, kind: Kind, day: str) -> int:
        """The larger of `entry_count` and the highest sequence in the file, readable or not.

        A hand-lowered count or a damaged entry therefore never leads to an id being used again.
        """
        head = frontmatter.find_head(text)
        if head.end - head.start > frontmatter.MAX_CHARS:
            raise Invalid(
                f"{locator}: the frontmatter is longer than {frontmatter.MAX_CHARS} characters. Shorten it by hand.",
                locator=locator.key,
            )
        counted = _COUNT.search(text, head.start, head.end)
        if counted is not None:
            count = int(counted.group(1))
        else:
            count = frontmatter.entry_count(frontmatter.read_head(text[head.start : head.end])[0])
        return max(count, _highest_in(text, f"<!-- entry:{kind.prefix}_{day.replace('-', '')}_"))

    def _counted(self, place: Place, text: str, count: int) -> str:
        """`text` with `entry_count` and `last_appended_at` set, and a head put in place where there is none.

        A head that is not readable YAML is left alone: the ids stay safe without it.
        """
        now = self._clock.now().isoformat()
        head = frontmatter.find_head(text)
        if not head.fenced:
            values = {
                **place.kind.fresh_frontmatter(place.scope, place.day),
                "entry_count": count,
                "last_appended_at": now,
            }
            return f"{text[: head.start]}---\n{frontmatter.dump(values)}---\n{text[head.body :]}"
        if not head.closed:
            return text
        values = {"entry_count": count, "last_appended_at": now}
        old = text[: head.end]
        new, counts = _COUNT.subn(f"entry_count: {count}", old, count=1)
        new, stamps = _APPENDED.subn(f"last_appended_at: '{now}'", new, count=1)
        if not (counts and stamps):
            try:
                new = old[: head.start] + frontmatter.with_values(old[head.start :], values)
            except Invalid:
                return text
        # One copy of a long note instead of two: the head occurs first at the very beginning.
        return text.replace(old, new, 1)

    # --- changing --------------------------------------------------------------------------------------

    def change(self, locator: Locator, entry_id: str, edit: Callable[[Entry], Draft]) -> Written:
        """Rewrite one entry where it stands; its id and position stay. `edit` may run more than once."""
        return self.change_many(locator, {entry_id: edit})[0]

    def change_many(self, locator: Locator, edits: Mapping[str, Callable[[Entry], Draft]]) -> list[Written]:
        """Rewrite several entries of one note in one go; all of them or none.

        Raises:
            NotFound: the note, or an entry in it, is not there (or damaged).
            Invalid: a draft no note can hold.
        """

        def rewrite(text: str | None) -> str:
            note, blocks = self._existing(locator, text), {}
            for entry, make in [(note.entry(name), make) for name, make in edits.items()]:
                draft, old = make(entry), note.text[entry.start : entry.end]
                newline = "\r\n" if old.partition("\n")[0].endswith("\r") else "\n"
                block = render_entry(entry.id, render_body(draft.inline, draft.sections), newline)
                if not old.endswith("\n"):
                    block = block.removesuffix("\n").removesuffix("\r")
                blocks[entry.id] = block
            return spliced(note, blocks)

        lsn = self._edit(locator, rewrite)
        return [Written(entry_id, locator, lsn, created=False) for entry_id in edits]

    def remove(self, locator: Locator, entry_ids: Sequence[str]) -> int:
        """Take entries out of a note; the LSN. Their ids are never given again: the count stays.

        Raises:
            NotFound: the note, or an entry in it, is not there.
        """

        def rewrite(text: str | None) -> str:
            note = self._existing(locator, text)
            kept = spliced(note, dict.fromkeys(entry_ids, ""))
            place = place_of(locator)
            return self._counts_kept(place, note.text, kept, locator) if place is not None else kept

        return self._edit(locator, rewrite)

    def _counts_kept(self, place: Place, before: str, after: str, locator: Locator) -> str:
        """`after`, its `entry_count` raised to the highest id `before` held, so that none is given twice."""
        highest = self._highest_sequence(locator, before, place.kind, place.day)
        if (
            place.kind.storage != "daily"
            or self._highest_sequence(locator, after, place.kind, place.day) >= highest
        ):
            return after
        head = frontmatter.find_head(after)
        if not head.fenced or not head.closed:
            raise Invalid(
                f"{locator}: mend the frontmatter first; it keeps removed ids from being used again."
            )
        return frontmatter.in_head(after, {"entry_count": highest}, head)

    def rewrite(self, locator: Locator, edit: Callable[[str | None], str | None]) -> int:
        """Replace a whole file; the LSN, 0 when nothing changed. `edit` may run more than once.

        Args:
            locator: A document, or any text file of the root.
            edit: Gets the present text (None where there is no file) and returns the new one, or None to
                leave it.
        """

        def checked(text: str | None) -> str | None:
            new = edit(text)
            return new if new is None else checked_text(new, f"{locator}: text", locator=locator.key)

        return self._edit(locator, checked)

    def update_frontmatter(
        self, locator: Locator, updates: Mapping[str, Any] | Callable[[Mapping[str, Any]], Mapping[str, Any]]
    ) -> int:
        """Set keys of a note's head in place (None removes one); the LSN.

        Raises:
            NotFound: there is no such note.
            Invalid: the head cannot be read, or a value cannot be written.
        """

        def rewrite(text: str | None) -> str:
            note = self._existing(locator, text)
            values = updates(note.frontmatter) if callable(updates) else updates
            if not note.head.fenced:
                return f"{note.text[: note.head.start]}---\n{frontmatter.dump(values)}---\n{note.body}"
            if not note.head.closed:
                raise Invalid(f"{locator}: the frontmatter has no closing ---. Mend it by hand first.")
            return frontmatter.in_head(note.text, values, note.head)

        return self._edit(locator, rewrite)

    def drop(self, locator: Locator) -> int:
        """Remove a whole file durably; the LSN. Raises `NotFound`."""
        with self._locks.hold(locator.key, timeout=self._lock_seconds):
            if (run := _RUN.get()) is not None and self.history is not None:
                self.history.ahead(run, locator, self.storage.read(locator), None)
            self.storage.remove(locator)
            return self.announce(locator, "deleted")

    def _existing(self, locator: Locator, text: str | None) -> Note:
        if text is None:
            raise NotFound(f"There is no {locator}.", locator=locator.key)
        return self.parse(locator, text)

    # --- runs ------------------------------------------------------------------------------------------

    @contextmanager
    def run(self, kind: str, run_id: str = "") -> Iterator[Run]:
        """What this thread writes meanwhile is recorded as one run, which can be taken back as a whole.

        Inside another run it is part of that one.
        """
        run = _RUN.get() or Run(run_id or f"{kind[:3]}_{uuid.uuid4().hex[:12]}", kind)
        token = _RUN.set(run)
        try:
            yield run
        finally:
            _RUN.reset(token)

    @property
    def current_run(self) -> Run | None:
        """The run that this thread writes for, if any."""
        return _RUN.get()

    # --- the unit of work ------------------------------------------------------------------------------

    def _edit(
        self, locator: Locator, edit: Callable[[str | None], str | None], also: Iterable[Locator] = ()
    ) -> int:
        """Read, change and write back one file under its lock, only if nobody wrote in between.

        The change is told together with those of the files in `also`.
        """
        with self._locks.hold(locator.key, timeout=self._lock_seconds):
            for attempt in range(_ATTEMPTS):
                text: str | None
                try:
                    text, version = self.storage.read_version(locator)
                except NotFound:
                    text, version = None, ""
                new = edit(text)
                if new is None or new == text:
                    return 0
                if (run := _RUN.get()) is not None and self.history is not None:
                    self.history.ahead(run, locator, text, new)
                before = None if text is None else hash(text)
                del text  # a long note: its memory serves the write
                try:
                    self.storage.write(locator, new, expect=version)
                except Conflict:
                    if attempt + 1 == _ATTEMPTS:
                        raise
                    time.sleep(min(0.001 * 2**attempt, 0.05))
                    continue
                self.own.wrote(locator.key, before, new)
                return self.announce(locator, "modified" if version else "added", also)
        raise AssertionError("unreachable")

    def announce(self, locator: Locator, change: ChangeType, also: Iterable[Locator] = ()) -> int:
        """Tell of a durable change of a file, and of others with it; the LSN, 0 where it could not be told."""
        if self._on_change is None:
            return 0
        try:
            return self._on_change([(locator, change), *((one, "modified") for one in also)])
        except Exception as error:
            # The write is durable and must be acknowledged; the next scan finds what was not queued.
            _log.warning("change of %s was not queued; a scan will find it: %s", locator, error)
            return 0


def _unread(at: Locator, error: CairnError) -> None:
    _log.debug("%s is passed over: %s", at, error)


def _ids_with(once: Once, text: str, parse: Callable[[], Note]) -> list[str]:
    """Ids of the entries whose fields equal `once`, in file order; the note is parsed only if the words occur in it."""
    for key, value in once:
        if f"**{key}**:" not in text or re.split(r"[^\w.@+-]", value, maxsplit=1)[0] not in text:
            return []
    return [entry.id for entry in parse().entries if all(entry.inline.get(k) == v for k, v in once)]


def _once(draft: Draft, keys: Sequence[str]) -> Once:
    missing = [key for key in keys if draft.inline.get(key) is None]
    if missing:
        raise Invalid(f"once_by names {', '.join(missing)}, which the draft does not have.", field="once_by")
    return tuple((key, inline_text(draft.inline[key])) for key in keys)


def _highest_in(text: str, start: str) -> int:
    """The highest sequence among the opening markers that begin with `start`, readable entries or not."""
    pieces = text.split(start)
    if len(pieces) == 1:
        return 0
    # Eight digits compare like numbers; a marker of another shape (four digits, in running text) comes out on
    # top or below zero, and is then looked at closely.
    best = max(map(_FIRST_EIGHT, pieces[1:]))
    if (
        best.isascii()
        and best.isdecimal()
        and len(best) == 8
        and text.startswith("\n", text.find(f"{start}{best}") - 1)
    ):
        return int(best)
    highest = 0
    for _, closes, entry_id in markers(text):
        if not closes and entry_id.startswith(start[11:]):
            digits = entry_id[len(start) - 11 :]
            if len(digits) in {4, 8} and digits.isascii() and digits.isdecimal():
                highest = max(highest, int(digits))
    return highest
