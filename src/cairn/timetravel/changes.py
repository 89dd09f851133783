"""Records every change of an entry, and checkpoints as lists of hashes; reads any moment back.

Per space, below `journal/history/`: `changes.jsonl` (one line per changed entry: path, id, hash before and
after, cause, time), `texts.jsonl` (each entry text once, by its hash) and `checkpoints.jsonl`. All are
append-only journals in the SOURCE tier. Observation is a diff against what was last seen, so telling it twice
of one write adds nothing, and telling it late only makes the times late. It runs beside the write path, never
on it.
"""

from __future__ import annotations

import difflib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from typing import Any

from cairn.canonical import compact, json_hash, moment, moment_in_zone, objects_in, rows_in, stamp, text_hash
from cairn.errors import CairnError, Conflict, Invalid, NotFound
from cairn.notes.format import parse_note
from cairn.notes.kinds import MemoryRoot, place_of
from cairn.notes.notebook import Notebook
from cairn.notes.unions import forgotten_marks
from cairn.seams import Clock, Journals, Locator, Locks, StorageBackend
from cairn.types import Space
from cairn.wording import short

_log = logging.getLogger(__name__)
_GRAIN_SECONDS = 5.0
WHOLE = "*"
HEAD = "^"
_FOLDER = ("journal", "history")
_TEXTS_KNOWN = 2048
_HEADS_HELD = 512
# What one line of the log tells of a change: all of an entry, or so many parts of it, so long each side.
_WHOLE_LINE, _PARTS, _PART = 200, 3, 80
_STAMPS = frozenset({"updated_at", "dedupe", "dedupe_rule", "last_appended_at", "profile_timestamp_ms"})


def taken_apart(at: Locator, text: str | None) -> dict[str, str]:
    """A note taken apart: entry id -> its block as written, and the head before the first one as `^`.

    A document without entries is one entry, `*`, but of a day's note whose entries are all gone the head is left; {} for
    a file that is not there, or empty.
    """
    if text is None or not text.strip():
        return {}
    note = parse_note(text)
    if not note.entries:
        place = place_of(at)
        is_emptied = place is not None and place.day and not note.body.strip()
        return {HEAD if is_emptied else WHOLE: text}
    blocks = {entry.id: text[entry.start : entry.end] for entry in note.entries}
    return {**blocks, HEAD: text[: note.entries[0].start]}


@dataclass(frozen=True, slots=True)
class EntryChange:
    """One change of one entry. `before`/`after` are hashes of its text; None for "was not there"."""

    id: str
    at: str
    path: str
    entry: str
    before: str | None
    after: str | None
    cause: str

    @property
    def action(self) -> str:
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"


@dataclass(frozen=True, slots=True)
class RootCheckpoint:
    """A moment to come back to: how many changes had been seen, and a hash over every entry then."""

    id: str
    at: str
    changes: int
    hash: str
    label: str


@dataclass(frozen=True, slots=True)
class Restored:
    """What a restore is to write: the new text of each entry, None to take it out, and in `words` what that changes.

    One whose text of then is `lost` stays as it is now: "purged" where that was forgotten, "damaged" where the journal no
    longer holds it as it was recorded.
    """

    path: str
    entry: str
    text: str | None
    lost: str = ""
    words: str = ""

    @property
    def action(self) -> str:
        if self.lost:
            return self.lost
        return "remove" if self.text is None else "write"


class TimeTravel:
    """The history of one space (`<app>/<project>`), given as the locator of its folder."""

    def __init__(
        self,
        space: Locator,
        notebook: Notebook,
        journals: Journals,
        locks: Locks,
        clock: Clock,
        *,
        is_replicated: bool = False,
    ) -> None:
        self._space = space
        self._is_replicated = is_replicated
        folder = space.child(*_FOLDER)
        self._changes_at = folder.child("changes.jsonl")
        self._texts_at = folder.child("texts.jsonl")
        self._checkpoints_at = folder.child("checkpoints.jsonl")
        self._journals = journals
        self._locks = locks
        self._clock = clock
        self._notebook = notebook
        self._guard = threading.RLock()
        self._reset()

    def _reset(self) -> None:
        # In memory is what stands now and which texts were kept last; all else stays in the journals, for they grow
        # for as long as the memory is used. A text of long ago that comes back is written once more.
        self._count = 0
        self._now: dict[str, dict[str, str]] = {}
        self._texts: dict[str, None] = {}
        self._heads: dict[str, str] = {}
        self._ends = {"changes": 0, "texts": 0}

    # ------------------------------------------------------------ observing

    def observe(self, at: Locator, cause: str = "write") -> list[EntryChange]:
        """Compare a note with what was last seen of it and record each entry that differs. Idempotent."""
        if at.parts[: len(self._space.parts)] != self._space.parts:
            raise Invalid(f"{at} is not below {self._space}.", path=str(at))
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            self._catch_up()
            try:
                text = self._notebook.storage.read(at)
            except NotFound:
                return self._record(str(at), {}, cause)
            found = taken_apart(at, text)
            if known := self._head_text(self._now.get(str(at), {}).get(HEAD)) if HEAD in found else None:
                found[HEAD] = known  # once per note: what it takes to make the file again if it goes
            return self._record(str(at), found, cause)

    def ahead(self, at: Locator, before: str | None, after: str | None, cause: str) -> None:
        """Record a write that is about to be made: what stands there, and what will, head and all, under `cause`.

        If it is not made after all, the next look records that, too.
        """
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            self._catch_up()
            self._record(str(at), taken_apart(at, before), "write")
            self._record(str(at), taken_apart(at, after), cause)

    def _head_text(self, digest: str | None) -> str | None:
        """The text of a head; those used last are held, since finding one reads all texts there are."""
        if not digest:
            return None
        text = self._heads.get(digest) or self.texts([digest]).get(digest)
        if text is not None:
            self._hold_head(digest, text)
        return text

    def _hold_head(self, digest: str, text: str) -> None:
        self._heads.pop(digest, None)
        self._heads[digest] = text
        if len(self._heads) > _HEADS_HELD:
            del self._heads[next(iter(self._heads))]

    def _record(self, path: str, found: Mapping[str, str], cause: str) -> list[EntryChange]:
        known = self._now.get(path, {})
        now = stamp(self._clock.now())
        changes: list[EntryChange] = []
        texts: dict[str, str] = {}
        for entry in list(dict.fromkeys([*known, *found])):
            after = text_hash(found[entry]) if entry in found else None
            before = known.get(entry)
            if after == before:
                continue
            number = self._count + len(changes) + 1
            changes.append(EntryChange(f"ent-{number:06d}", now, path, entry, before, after, cause))
            if after is not None and after not in self._texts:
                texts[after] = found[entry]
            if after is not None and entry == HEAD:
                self._hold_head(after, found[entry])
        if changes:
            # Texts first: a change must never name a text that is not there.
            if texts:
                rows = [compact({"hash": digest, "text": text}) for digest, text in texts.items()]
                self._journals.append(self._texts_at, rows)
            self._journals.append(self._changes_at, [compact(asdict(change)) for change in changes])
            self._catch_up()
        return changes

    def _catch_up(self) -> None:
        """Read what is new in the journals, ours or another process's."""
        try:
            changes = self._journals.read(self._changes_at, self._ends["changes"])
            texts = self._journals.read(self._texts_at, self._ends["texts"])
        except Conflict:
            self._reset()
            changes, texts = self._journals.read(self._changes_at), self._journals.read(self._texts_at)
        for change in rows_in(EntryChange, changes.lines):
            self._count += 1
            entries = self._now.setdefault(change.path, {})
            if change.after is not None:
                entries[change.entry] = change.after
                continue
            entries.pop(change.entry, None)
            if not entries:
                del self._now[change.path]
        self._texts |= dict.fromkeys(str(row["hash"]) for row in objects_in(texts.lines) if _is_sound(row))
        for old in list(islice(self._texts, max(0, len(self._texts) - _TEXTS_KNOWN))):
            del self._texts[old]
        self._ends = {"changes": changes.end, "texts": texts.end}

    # ------------------------------------------------------------ reading

    def _changes(self) -> Iterator[EntryChange]:
        """Every change, oldest first, from the journal."""
        return rows_in(EntryChange, self._journals.read(self._changes_at).lines)

    def changes_of(self, name: str) -> list[EntryChange]:
        """The changes with this cause (a run), or the one of this id, oldest first."""
        with self._guard:
            self._catch_up()
            return [change for change in self._changes() if name in {change.cause, change.id}]

    def notes(self) -> list[Locator]:
        """The notes that have entries, as far as they were observed."""
        with self._guard:
            self._catch_up()
            return [Locator(path) for path in self._now]

    def log(self, entry: str | None = None, *, limit: int = 100) -> list[EntryChange]:
        """Changes, newest first; of one entry (by its id, with its owner or without, or `path#id`) or of all."""
        with self._guard:
            self._catch_up()
            newest = rows_in(EntryChange, reversed(self._journals.read(self._changes_at).lines))
            told = (change for change in newest if change.entry != HEAD)
            return list(islice((change for change in told if entry is None or _names(entry, change)), limit))

    def checkpoints(self) -> list[RootCheckpoint]:
        """Every checkpoint, oldest first."""
        return list(rows_in(RootCheckpoint, self._journals.read(self._checkpoints_at).lines))

    def checkpoint(self, label: str = "") -> RootCheckpoint:
        """Mark this moment."""
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            self._catch_up()
            number = len(self.checkpoints()) + 1
            made = RootCheckpoint(
                f"chk-{number:06d}",
                stamp(self._clock.now()),
                self._count,
                _picture_hash(self.picture()),
                label,
            )
            self._journals.append(self._checkpoints_at, [compact(asdict(made))])
            return made

    def picture(self, when: str | datetime | None = None) -> dict[tuple[str, str], str]:
        """(path, entry id) -> hash, as of a checkpoint id, a time, or now."""
        with self._guard:
            self._catch_up()
            if when is None:
                return {
                    (path, entry): digest
                    for path, found in self._now.items()
                    for entry, digest in found.items()
                }
            picture: dict[tuple[str, str], str] = {}
            for change in self._until(when):
                if change.after is None:
                    picture.pop((change.path, change.entry), None)
                else:
                    picture[change.path, change.entry] = change.after
            return picture

    def _until(self, when: str | datetime) -> Iterator[EntryChange]:
        named = [made for made in self.checkpoints() if when in (made.id, made.label)] if when else []
        if not named and isinstance(when, str) and when.startswith("chk-"):
            raise NotFound(f"There is no checkpoint {when}. `cairn log --checkpoints` lists them.", id=when)
        if named:
            found = named[-1]  # of several with one label the latest
            if found.changes >= 0:
                yield from islice(self._changes(), found.changes)
                return
            when = found.at  # made on another machine: its history came to ours later
        at = moment_in_zone(when) if isinstance(when, str) else when
        if at is None or at.tzinfo is None:
            raise Invalid(
                f'"{when}" is neither a checkpoint nor a time with a zone, as 2026-06-01T09:30:00Z. '
                "`cairn log --checkpoints` lists the checkpoints.",
                field="as_of",
            )
        for change in self._changes():
            seen = moment(change.at)
            if seen is None or seen <= at:
                yield change

    def texts(self, hashes: Sequence[str]) -> dict[str, str]:
        """The entry texts behind hashes; what was purged is left out, and what is not as it was recorded."""
        return self._texts_of(hashes)[0]

    def lost(self, hashes: Sequence[str]) -> dict[str, str]:
        """Why the texts behind these hashes cannot be had, of each for which that is so: "purged" or "damaged"."""
        texts, damaged = self._texts_of(hashes)
        return {one: "damaged" if one in damaged else "purged" for one in hashes if one not in texts}

    def _texts_of(self, hashes: Sequence[str]) -> tuple[dict[str, str], set[str]]:
        """The sound texts behind hashes, and the hashes of which there are damaged ones alone."""
        wanted, texts, damaged = set(hashes), dict[str, str](), set[str]()
        for row in objects_in(self._journals.read(self._texts_at).lines):
            if (digest := row.get("hash")) in wanted and _is_sound(row):
                texts[str(digest)] = str(row["text"])
            elif digest in wanted:
                damaged.add(str(digest))
        return texts, damaged - texts.keys()

    def damaged_texts(self) -> int:
        """How many former texts are not as they were recorded, so that nothing is made of them."""
        return sum(not _is_sound(row) for row in objects_in(self._journals.read(self._texts_at).lines))

    def as_of(self, when: str | datetime) -> dict[tuple[str, str], str]:
        """(path, entry id) -> text as it was then."""
        picture = self.picture(when)
        texts = self.texts(list(picture.values()))
        return {key: texts[digest] for key, digest in picture.items() if digest in texts and key[1] != HEAD}

    def diff(self, when: str | datetime, until: str | datetime | None = None) -> list[dict[str, Any]]:
        """What differs between then and a later time, or now, entry by entry, with a unified diff of the text."""
        before, after = self.picture(when), self.picture(until)
        keys = sorted(
            key for key in {*before, *after} if key[1] != HEAD and before.get(key) != after.get(key)
        )
        texts = self.texts(
            [*(before[key] for key in keys if key in before), *(after[key] for key in keys if key in after)]
        )
        out = []
        for path, entry in keys:
            old, new = before.get((path, entry)), after.get((path, entry))
            action = "added" if old is None else "removed" if new is None else "changed"
            diff = difference(texts.get(old or "", ""), texts.get(new or "", ""))
            out.append({"path": path, "entry": entry, "action": action, "diff": diff})
        return out

    # ------------------------------------------------------------ restoring and forgetting

    def restore_plan(self, target: str) -> list[Restored]:
        """What `restore` would write: things as at a checkpoint or a time, or one change (`ent-...`) undone.

        An entry whose text of then was forgotten, or is damaged, is listed as such and left as it is; the others come back.

        Raises:
            NotFound: no such checkpoint or change; or the text before the one change asked for is lost.
        """
        with self._guard:
            self._catch_up()
            now = self.picture()
            if target.startswith("ent-"):
                change = next((one for one in self._changes() if one.id == target), None)
                if change is None:
                    raise NotFound(f"There is no change {target}. `cairn log` lists them.", id=target)
                wanted = {(change.path, change.entry): change.before}
            else:
                then = self.picture(target)
                wanted = {key: then.get(key) for key in {*then, *now} if then.get(key) != now.get(key)}
            held = [now[key] for key in wanted if key in now]
            texts, damaged = self._texts_of([*(digest for digest in wanted.values() if digest), *held])
            plan = []
            for (path, entry), digest in sorted(wanted.items()):
                current = now.get((path, entry))
                if entry == HEAD or current == digest:
                    continue
                # A text that lost words since may be what stands there now.
                if digest in texts and current in texts and texts[digest] == texts[current]:
                    continue
                lost = (
                    "" if digest is None or digest in texts else "damaged" if digest in damaged else "purged"
                )
                if lost and target.startswith("ent-"):
                    raise NotFound(self._told_lost(f"{path}#{entry}", lost), id=entry)
                text = texts.get(digest) if digest else None
                words = "" if lost else words_of(texts.get(current) if current else None, text)
                plan.append(Restored(path, entry, text, lost, words))
            return plan

    def _told_lost(self, entry: str, lost: str) -> str:
        if lost == "purged":
            return f"The text of {entry} was purged: it cannot be restored."
        return (
            f"The text of {entry} in {self._texts_at} is not the one that was recorded: it is not restored. "
            "Bring that file back from a backup."
        )

    def restore(self, target: str) -> list[Restored]:
        """Bring back a checkpoint, a moment, or what was before one change, through the notebook.

        The writes are observed like any others, so a restore can be undone by another one.
        """
        plan = self.restore_plan(target)
        by_path: dict[str, list[Restored]] = {}
        for item in plan:
            if not item.lost:
                by_path.setdefault(item.path, []).append(item)
        for path, items in by_path.items():
            at = Locator(path)
            self.observe(at, cause="before restore")
            heads = [
                change.after for change in self._changes() if change.path == path and change.entry == HEAD
            ]
            head = next((text for digest in reversed(heads) if (text := self._head_text(digest))), None)

            def edit(text: str | None, items: list[Restored] = items, head: str | None = head) -> str | None:
                return with_blocks(text, items, head or "")

            if any(item.entry == WHOLE and item.text is None for item in items):
                with suppress(NotFound):
                    self._notebook.drop(at)
            else:
                self._notebook.rewrite(at, edit)
            self.observe(at, cause=f"restore {target}")
        return plan

    def purge(
        self, *, entries: Sequence[str] = (), clean: Callable[[str, str], str | None] | None = None
    ) -> int:
        """Remove texts for good: of the named entries (ids or `path#id`), and what `clean` takes out of others.

        `clean` gets a note's path and a former text of one of its entries, and returns what may stay of it: None
        for nothing. The changes stay as a bare record that something was there; the words do not. A text that
        was cleaned is what a restore brings back.
        """
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            self._catch_up()
            doomed: set[str] = set()
            paths: dict[str, set[str]] = {}
            for change in self._changes():
                for digest in filter(None, (change.before, change.after)):
                    paths.setdefault(digest, set()).add(change.path)
                    if any(_names(entry, change) for entry in entries):
                        doomed.add(digest)
            # A text that another entry still holds was not asked to be forgotten.
            doomed -= {
                digest
                for path, found in self._now.items()
                for entry, digest in found.items()
                if not {entry, path, f"{path}#{entry}"} & set(entries)
            }
            rows = list(objects_in(self._journals.read(self._texts_at).lines))
            kept: list[dict[str, Any]] = []
            touched = 0
            for row in rows:
                text = None if row.get("hash") in doomed else str(row.get("text", ""))
                if clean and text is not None:
                    # Where one of those who had this text is not asked about, it is theirs.
                    left = {clean(path, text) for path in paths.get(str(row.get("hash")), {""})}
                    text = text if text in left else left.pop()
                touched += text != row.get("text")
                if text is not None and text != row.get("text") and _is_sound(row):
                    kept.append({**row, "text": text, "cleaned": text_hash(text)})
                elif text is not None:
                    kept.append({**row, "text": text})
            if touched:
                self._keep_texts(kept)
            return touched

    def fold(self, before: datetime, *, dry_run: bool = False) -> tuple[int, int]:
        """Drop former texts that nothing needs any more; how many, and how many characters.

        Needed are the texts that stand now, those of every checkpoint, and those of changes since `before`. The changes
        stay on record; bringing back a moment before then names what cannot come back.
        """
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            self._catch_up()
            needed = {digest for found in self._now.values() for digest in found.values()}
            for one in self.checkpoints():
                needed.update(self.picture(one.id).values())
            for change in self._changes():
                at = moment(change.at)
                if at is None or at >= before:
                    needed.update(filter(None, (change.before, change.after)))
            rows = list(objects_in(self._journals.read(self._texts_at).lines))
            kept = [row for row in rows if row.get("hash") in needed]
            gone = len(rows) - len(kept)
            freed = sum(len(str(row.get("text", ""))) for row in rows if row.get("hash") not in needed)
            if gone and not dry_run:
                self._keep_texts(kept)
            return gone, freed

    def _keep_texts(self, rows: Sequence[Mapping[str, Any]]) -> None:
        """Write the former texts anew with these alone; other copies of the journal are told what went."""
        lines = [compact(row) for row in rows]
        if self._is_replicated:
            lines += forgotten_marks(self._journals.read(self._texts_at).lines, lines)
        self._journals.replace(self._texts_at, lines)
        self._reset()
        self._catch_up()

    def forget_folder(self, folder: str, alias: str) -> int:
        """Remove every former text of the notes below `folder`, and its name from the record; how many changes.

        The changes stay, under `alias`, so that checkpoints go on counting them; there is nothing to restore.
        """
        self.purge(clean=lambda path, text: None if path.startswith(folder) else text)
        with self._guard, self._locks.hold(f"timetravel:{self._space}"):
            touched = 0

            def change(lines: Sequence[str]) -> list[str] | None:
                nonlocal touched
                rows = [
                    row | {"path": alias + path.removeprefix(folder)}
                    if (path := str(row.get("path"))).startswith(folder)
                    else row
                    for row in objects_in(lines)
                ]
                touched = sum(str(row.get("path")).startswith(alias) for row in rows)
                return [compact(row) for row in rows] if touched else None

            self._journals.edit(self._changes_at, change)
            if touched:
                self._reset()
                self._catch_up()
            return touched


def _is_sound(row: Mapping[str, Any]) -> bool:
    """Whether a text is the one that was recorded, or what forgetting left of that: `cleaned` is then the hash of what is left."""
    text = row.get("text")
    return isinstance(text, str) and text_hash(text) == row.get("cleaned", row.get("hash"))


def with_blocks(text: str | None, items: Sequence[Restored], head: str) -> str | None:
    """`text` with each entry as it is to be: replaced where it stands, added at the end, or taken out."""
    whole = next((item for item in items if item.entry == WHOLE), None)
    if whole is not None:
        return whole.text if whole.text is not None else ""
    out = head if text is None else text
    blocks = taken_apart(Locator(items[0].path), out) if out and items else {}
    for item in items:
        current = blocks.get(item.entry)
        if current is not None:
            then = item.text or ""
            # The last of its file then, saved without a final line end; now another may follow.
            end = "\n" if then and not then.endswith("\n") and not out.endswith(current) else ""
            out = out.replace(current, then + end, 1)
        elif item.text is not None:
            gap = "" if out.endswith("\n\n") or not out else "\n" if out.endswith("\n") else "\n\n"
            out = f"{out}{gap}{item.text}"
    return None if out == text else out


def difference(old: str, new: str) -> str:
    """What is different between two texts, as a unified diff."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), "then", "now", lineterm="", n=2)
    return "\n".join(lines)


def words_of(before: str | None, after: str | None) -> str:
    """One line on what a change did: what an entry says that came or went; of one that stayed, what is different.

    None is a text that was not there, or whose words were forgotten.
    """
    if before is None or after is None:
        return short(next(iter(_said(before or after or "").values()), ""), _WHOLE_LINE)
    old, new = _said(before), _said(after)
    told = []
    for name in dict.fromkeys((*old, *new)):
        if old.get(name) != new.get(name) and name not in _STAMPS:
            was, now = _first_difference(old.get(name, ""), new.get(name, ""))
            told.append(f"{name}: {short(was, _PART)} -> {short(now, _PART)}")
    if not told:
        return "the same words: only stamps or line ends changed"
    return "; ".join(told[:_PARTS]) + (f"; {len(told) - _PARTS} more" if len(told) > _PARTS else "")


def _said(text: str) -> dict[str, str]:
    """What an entry or a document says, by the name of each part: its sections and lines first, then its fields."""
    note = parse_note(text)
    if note.entries:
        one = note.entries[0]
        return {**one.sections, **one.inline}
    head = {str(name): str(value) for name, value in note.frontmatter.items()}
    body = "\n".join(line for line in note.body.splitlines() if not line.lstrip().startswith("<!--"))
    return {"text": body, **head} if body.strip() else head


def _first_difference(old: str, new: str) -> tuple[str, str]:
    """What is left of two texts without the lines at which they begin and end alike."""
    was, now = old.splitlines(), new.splitlines()
    while was and now and was[-1] == now[-1]:
        was.pop()
        now.pop()
    alike = next((at for at, (one, other) in enumerate(zip(was, now, strict=False)) if one != other), None)
    start = alike if alike is not None else min(len(was), len(now))
    return "\n".join(was[start:]), "\n".join(now[start:])


def _names(wanted: str, change: EntryChange) -> bool:
    if wanted in {change.entry, change.id, change.path, f"{change.path}#{change.entry}"}:
        return True
    # The id that search prints begins with the owner, and a document goes by the name of its kind.
    if change.entry != WHOLE and not wanted.endswith(f"_{change.entry}"):
        return False
    place = place_of(Locator(change.path))
    if place is None:
        return False
    entry = (place.name or place.kind.name) if change.entry == WHOLE else change.entry
    return wanted == place.scope.public_id(entry)


def _picture_hash(picture: Mapping[tuple[str, str], str]) -> str:
    return json_hash({f"{path}#{entry}": digest for (path, entry), digest in picture.items()})


class Observer:
    """Collects changed notes and has them recorded when asked, so that writes do not wait for it.

    A second's worth of changes is recorded together (a chore of `background.py`): what stood there at the end of it
    counts. Edits by hand are found by their time when someone looks around.

    Args:
        storage: Where the notes are.
        travel: Makes the history of one space.
        changed_since: Files of the truth modified after a time.
    """

    def __init__(
        self,
        storage: StorageBackend,
        travel: Callable[[Space], TimeTravel],
        changed_since: Callable[[float], Iterable[Locator]],
    ) -> None:
        self._storage = storage
        self._root = MemoryRoot(storage)
        self._travel = travel
        self._changed_since = changed_since
        self._made: dict[Space, TimeTravel] = {}
        self._waiting: dict[Locator, None] = {}
        self._lock = threading.Lock()
        self._working = threading.Lock()
        self._looked_at = 0.0

    def of(self, space: Space) -> TimeTravel:
        """The history of one space."""
        with self._lock:
            if space not in self._made:
                self._made[space] = self._travel(space)
            return self._made[space]

    def tell(self, changes: Sequence[tuple[Locator, object]]) -> None:
        """Note that these files changed. Never raises, never waits for a disk."""
        with self._lock:
            self._waiting.update((at, None) for at, _ in changes if at.name.endswith(".md"))

    def settle(self) -> int:
        """Record what was told so far; how many entries changed."""
        with self._lock:
            waiting, self._waiting = list(self._waiting), {}
        return self._observe(waiting, "write")

    def look_around(self, space: Space | None = None) -> int:
        """Find what was edited or deleted by hand since the last recorded change, and record it.

        Deletions are looked for in the spaces whose history was opened, and in `space`, which a caller is to read.
        """
        self.settle()
        if space is not None:
            self.of(space)
        since: dict[Space, float] = {}
        found = []
        began = time.time()
        after = self._looked_at - _GRAIN_SECONDS if self._looked_at else self._oldest()
        for at in self._changed_since(after):
            place = place_of(at)
            if place is None:
                continue
            space = place.scope.space
            if space not in since:
                since[space] = self._recorded_at(space)
            if self._mtime(at) >= since[space] - _GRAIN_SECONDS:
                found.append(at)
        self._looked_at = began
        with self._lock:
            made = list(self._made.values())
        # A file that is gone has no time to be found by.
        found += [at for travel in made for at in travel.notes() if self._is_gone(at)]
        return self._observe(found, "edit")

    def _observe(self, notes: Iterable[Locator], cause: str) -> int:
        count = 0
        with self._working:
            for at in notes:
                place = place_of(at)
                if place is None:
                    continue
                try:
                    count += len(self.of(place.scope.space).observe(at, cause))
                except (CairnError, OSError) as error:
                    _log.warning("the history of %s was not recorded: %s", at, error)
        return count

    def _is_gone(self, at: Locator) -> bool:
        """Whether nothing is there; a link or a folder in its place is something, and nobody else's trouble."""
        try:
            return not self._storage.exists(at)
        except CairnError as error:
            _log.debug("the history of %s is not looked after: %s", at, error)
            return False

    def _oldest(self) -> float:
        """The time before which every space has recorded everything; 0 where one has recorded nothing."""
        times = [self._recorded_at(space) for space in self._root.spaces()]
        return max(min(times, default=0.0) - _GRAIN_SECONDS, 0.0)

    def _recorded_at(self, space: Space) -> float:
        return self._mtime(self._root.journal(space, "history/changes"))

    def _mtime(self, at: Locator) -> float:
        try:
            return self._storage.info(at).mtime
        except (NotFound, CairnError):
            return 0.0
