"""The memories of one scope in memory, kept in step with their notes, with exact and near-duplicate lookup.

The gate must not decide on stale data, and must not read every note for each decision either. A shelf keeps
each note's size and time, looks at them before every use, and reads again only what differs; inside a changed
note only the changed blocks are parsed. Beside the records stand two lookups: dedupe hashes, and words for
near duplicates.
"""

from __future__ import annotations

import re
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any

from cairn.errors import CairnError, NotFound
from cairn.governed import gate
from cairn.governed.records import KIND, Record, from_entry
from cairn.language import dates, traits
from cairn.language.near import NearSets
from cairn.language.words import word_set
from cairn.notes.kinds import KINDS, place_of
from cairn.seams import Locator, StorageBackend
from cairn.types import Scope

_MOST_VALUES = 2  # records that differ in one number; more of them are a list of things
# A file written within the clock's grain of being looked at may be written again without looking different.
_GRAIN_NS = 30_000_000
_OPENING = re.compile(r"^[ \t]*<!--[ \t]*entry:", re.MULTILINE)

Key = tuple[str, str]


@dataclass(slots=True)
class _Note:
    size: int
    mtime_ns: int
    trusted: bool
    blocks: dict[int, tuple[Key, ...]] = field(default_factory=dict)
    text_hash: int = 0


class Shelf:
    """Records of one scope by (note, entry id), with exact and near lookups over the live ones.

    Not thread-safe by itself: the caller holds the scope's lock (or the keeper's guard, for reading).
    """

    def __init__(self, storage: StorageBackend, scope: Scope, folder: Locator) -> None:
        self.scope = scope
        self._storage = storage
        self._folder = folder
        self._notes: dict[str, _Note] = {}
        self._records: dict[Key, Record] = {}
        self._by_id: dict[str, set[Key]] = {}
        self._exact: dict[str, set[Key]] = {}
        self._near: NearSets[Key] = NearSets()
        self._gists: dict[frozenset[str], set[Key]] = {}
        self._by_gist: dict[str, set[Key]] = {}
        self.damaged: set[str] = set()

    def __len__(self) -> int:
        return len(self._records)

    def __iter__(self) -> Iterator[Record]:
        return iter(self._records.values())

    def get(self, entry_id: str) -> Record | None:
        """The record with that id; should a hand copy have doubled it, the one in its own day's note."""
        return min(
            (self._records[key] for key in self._by_id.get(entry_id, ())),
            key=lambda record: (
                record.locator.name[-13:-3].replace("-", "") not in entry_id,
                record.locator.key,
            ),
            default=None,
        )

    def refresh(self) -> None:
        """Bring the shelf up to date with the notes on disk."""
        seen: set[str] = set()
        now_ns = time.time_ns()
        for key, size, mtime_ns in self._scan():
            seen.add(key)
            note = self._notes.get(key)
            if note is not None and note.trusted and (note.size, note.mtime_ns) == (size, mtime_ns):
                continue
            self._read(key, size, mtime_ns, trusted=not 0 <= now_ns - mtime_ns < _GRAIN_NS)
        for key in self._notes.keys() - seen:
            for gone in [k for keys in self._notes.pop(key).blocks.values() for k in keys]:
                self._drop(gone)

    def exact(self, content: str) -> Record | None:
        """The live record that says the same, or was merged with something that did; the oldest of several."""
        return self._oldest(self._exact.get(gate.dedupe_hash(content), ()))

    def near(self, content: str) -> Record | None:
        """The most similar live record at or above `gate.NEAR`; the most recently updated of equals."""
        found = [
            (score, str(record.updated_at or record.created_at or ""), key[1], record)
            for key, score in self._near.near(word_set(content), gate.NEAR)
            if (record := self._records[key])
        ]
        return max(found, key=lambda one: one[:3])[3] if found else None

    def reworded(self, content: str) -> Record | None:
        """The live record that says the same in other words: the same gist, the same numbers, the same denials."""
        gist = gate.gist(content)
        return self._oldest(self._gists.get(gist, ())) if len(gist) >= gate.LEAST_GIST else None

    def _oldest(self, keys: Iterable[Key]) -> Record | None:
        return min((self._records[k] for k in keys), key=lambda r: (r.locator.key, r.entry_id), default=None)

    def opposed(self, content: str) -> list[Record]:
        """The live records of the same matter that say otherwise, the oldest first.

        Where several differ from each other in the same number, it tells things apart ("room 1 is locked", "room 2
        is locked", ...) and opposes nothing. "I live in Porto" says otherwise than "I live in Lisbon"; "I don't like
        green tea" says nothing against "I like tea".
        """
        gist = gate.gist(content)
        touched = Counter(key for word in gist for key in self._by_gist.get(word, ()))
        found = [
            record
            for key, shared in touched.items()
            if shared >= 2 and gate.of_one_thing(content, (record := self._records[key]).content)
        ]
        how = [(record, gate.opposed_texts(content, record.content)) for record in found]
        how = [
            (old, one)
            for old, one in how
            if one != "denial" or not traits.are_two_tastes(content, old.content)
        ]
        if dates.looks_back(content):  # two visits in two years were two visits
            how = [(old, one) for old, one in how if one != "number" or not dates.looks_back(old.content)]
        are_names = sum(one == "number" for _, one in how) > _MOST_VALUES
        opposed = [record for record, one in how if one == "denial" or (one and not are_names)]
        if own := traits.means(content):
            others = (record for record in self._records.values() if record not in opposed)
            opposed += [
                r
                for r in others
                if (old := traits.only_trait(r.content)) and any(traits.replaces(one, old) for one in own)
            ]
        return sorted(opposed, key=lambda record: (record.locator.key, record.entry_id))

    def _scan(self) -> Iterator[tuple[str, int, int]]:
        return (item for item in self._storage.scan(self._folder) if self._is_note(item[0]))

    def _is_note(self, key: str) -> bool:
        if key in self._notes:
            return True
        place = place_of(Locator(key))
        return place is not None and place.kind.name == KIND and place.scope == self.scope

    def _read(self, key: str, size: int, mtime_ns: int, *, trusted: bool) -> None:
        locator = Locator(key)
        note = self._notes.setdefault(key, _Note(-1, -1, trusted=False))
        try:
            text = self._storage.read(locator)
        except NotFound:
            return
        except CairnError:
            self.damaged.add(key)  # not UTF-8: what was read before stays, `doctor` names the file
            return
        note.size, note.mtime_ns, note.trusted = size, mtime_ns, trusted
        if hash(text) == note.text_hash:
            return
        self.damaged.discard(key)
        note.text_hash = hash(text)
        starts = [match.start() for match in _OPENING.finditer(text)]
        blocks: dict[int, tuple[Key, ...]] = {}
        fresh: list[str] = []
        for begin, end in zip_longest(starts, starts[1:], fillvalue=len(text)):
            block = text[begin:end]
            mark = hash(block)
            if mark in note.blocks:
                blocks[mark] = note.blocks[mark]
            else:
                fresh.append(block)
        for gone in {k for mark, keys in note.blocks.items() if mark not in blocks for k in keys}:
            self._drop(gone)
        for block in fresh:
            parsed = KINDS[KIND].parse(block)
            keys = []
            for entry in parsed.entries:
                self._put(from_entry(entry, self.scope, locator))
                keys.append((key, entry.id))
            blocks[hash(block)] = tuple(keys)
        note.blocks = blocks

    def _put(self, record: Record) -> None:
        key = (record.locator.key, record.entry_id)
        self._drop(key)
        self._records[key] = record
        self._by_id.setdefault(record.entry_id, set()).add(key)
        if record.is_live:
            for lookup, marks in self._lookups(record):
                for mark in marks:
                    lookup.setdefault(mark, set()).add(key)
            self._near.put(key, word_set(record.content))

    def _drop(self, key: Key) -> None:
        record = self._records.pop(key, None)
        if record is None:
            return
        gone: list[tuple[dict[Any, set[Key]], Iterable[Any]]] = [(self._by_id, [key[1]])]
        if record.is_live:
            gone += self._lookups(record)
            self._near.drop(key)
        for lookup, marks in gone:
            for mark in marks:
                if keys := lookup.get(mark):
                    keys.discard(key)
                    if not keys:
                        del lookup[mark]

    def _lookups(self, record: Record) -> list[tuple[dict[Any, set[Key]], Iterable[Any]]]:
        """Where a live record is found, and by which marks."""
        gist = gate.gist(record.content)
        exact = {gate.dedupe_hash(record.content), *record.aliases}
        return [(self._exact, exact), (self._gists, [gist]), (self._by_gist, gist)]
