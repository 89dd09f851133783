"""A cache of rows of large scopes in columns, by rowid, filled as ranking reads them.

Questions to one owner meet many of the same rows. What is held is right up to the scope's version: where that moved,
the rows that changed or went since are let go, and those that are asked for are read. A scope that nobody asks makes
room for others.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any

from cairn.engines.row_tables import IN_ARRAYS, meta
from cairn.index.corpus import ATTRIBUTES, KIND_CODES, NAMED, Names, arrays_of

if TYPE_CHECKING:
    import numpy as np

# 2 KB each with a vector of 384 numbers.
_MOST_ROWS = 48_000
# Names are numbered as they come; with more of them than this all is read anew.
_MOST_NAMES = 200_000
_QUERY = (
    f"SELECT {IN_ARRAYS}, r.path_id, r.words, e.data FROM json_each(?) w CROSS JOIN rows r"
    " ON r.id = w.value LEFT JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key WHERE +r.scope_id = ?"
)
_NUMBERS = {**ATTRIBUTES, "from_episode": "bool", "begins": "int64", "words": "int64", "has_vector": "bool"}

Key = tuple[str, int, int | None]
"""The generation of the index, the number of a scope, and that of the model whose vectors are read."""


class Columns:
    """Rows as columns: one array per attribute. They only grow, so places in them stay.

    `[name]` is an array of `_NUMBERS`; `entries` has for each row its entry, its file and what it is a part of.
    """

    def __init__(self) -> None:
        import numpy as np

        self._lock = threading.Lock()
        self._count, self._worded = 0, 0
        self._arrays = {name: np.zeros(0, kind) for name, kind in _NUMBERS.items()}
        self._words = np.zeros(0, np.int64)
        self._vectors: np.ndarray | None = None
        self.entries: list[tuple[str, int, str | None]] = []
        self.names = {name: Names() for name in NAMED}

    def __getitem__(self, name: str) -> np.ndarray:
        return self._arrays[name]

    def __len__(self) -> int:
        return self._count

    @property
    def named(self) -> int:
        """How many names are known."""
        return len(self.names["session"].names) + len(self.names["cell"].names)

    def add(self, rows: Sequence[Sequence[Any]]) -> dict[int, int]:
        """Take rows in, as `_QUERY` gives them; the place of each by its id."""
        import numpy as np

        if not rows:
            return {}
        ids, *columns = zip(*rows, strict=True)
        entries, origins, parents, paths, said, data = columns[9:]
        with self._lock:
            flat = np.frombuffer(b"".join(said), np.int64)
            sizes = np.fromiter(map(len, said), np.int64, len(said)) // 8
            fresh: dict[str, Any] = {
                **arrays_of(rows, self.names),
                "from_episode": [origin == "episode" for origin in origins],
                "begins": self._worded + np.cumsum(sizes) - sizes,
                "words": sizes,
                "has_vector": [one is not None for one in data],
            }
            first, end = self._count, self._count + len(rows)
            for name, values in fresh.items():
                self._arrays[name] = _with_room(self._arrays[name], first, end)
                self._arrays[name][first:end] = values
            self._words = _with_room(self._words, self._worded, self._worded + len(flat))
            self._words[self._worded : self._worded + len(flat)] = flat
            self._worded += len(flat)
            have = np.flatnonzero(fresh["has_vector"])
            if self._vectors is None and len(have):
                self._vectors = np.zeros((first, len(data[have[0]]) // 2), np.float32)
            if self._vectors is not None:
                self._vectors = _with_room(self._vectors, first, end)
                found = np.frombuffer(b"".join(data[n] for n in have), np.float16)
                self._vectors[first + have] = found.reshape(len(have), self._vectors.shape[1])
            self.entries.extend(zip(entries, paths, parents, strict=True))
            self._count = end
        return dict(zip(ids, range(first, end), strict=True))

    def kept(self, places: Sequence[int]) -> Columns:
        """The rows at these places alone, in their order."""
        import numpy as np

        at, out = np.array(places, np.int64), Columns()
        with self._lock:
            out._lock, out._count = self._lock, len(at)  # their names stay one
            out.names = self.names
            out._arrays = {name: found[at] for name, found in self._arrays.items()}
            out._vectors = None if self._vectors is None else self._vectors[at]
            out.entries = [self.entries[place] for place in places]
            out._words = self.words_of(at)[1]
            out._worded = len(out._words)
            out._arrays["begins"] = np.cumsum(out["words"]) - out["words"]
        return out

    def words_of(self, at: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The words of the rows at `at`, as often as they occur: for each the place in `at`, and its mark."""
        import numpy as np

        sizes = self._arrays["words"][at]
        before = np.cumsum(sizes) - sizes
        flat = np.arange(int(sizes.sum())) + np.repeat(self._arrays["begins"][at] - before, sizes)
        return np.repeat(np.arange(len(at)), sizes), self._words[flat]

    def vectors_of(self, at: np.ndarray) -> np.ndarray | None:
        """The vectors of the rows at `at`, zero where there is none; None where no row has one."""
        return None if self._vectors is None or not self["has_vector"][at].any() else self._vectors[at]


def _with_room(held: np.ndarray, used: int, needed: int) -> np.ndarray:
    """An array that has room for `needed` rows: the one that is held, or a larger one with what is used of it."""
    import numpy as np

    if len(held) >= needed:
        return held
    # Twice as many: the system gives memory where something is written, and what is held is copied seldom.
    larger = np.zeros((2 * needed + 64, *held.shape[1:]), held.dtype)
    larger[:used] = held[:used]
    return larger


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of one scope as one version has them: for each id the place in `columns`.

    `episodes` and `wholes` remember which rows a question by cell or by entry found; rows that are gone since may be among them.
    """

    key: Key
    version: int
    columns: Columns
    places: dict[int, int]
    episodes: dict[str, tuple[int, ...]] = field(default_factory=dict)
    wholes: dict[str, tuple[int, ...]] = field(default_factory=dict)

    def read(self, db: sqlite3.Connection, wanted: Iterable[int]) -> dict[int, int]:
        """The places of the rows that are there of those `wanted`, by id."""
        asked = set(wanted)
        found = {rowid: place for rowid in asked if (place := self.places.get(rowid)) is not None}
        if len(found) < len(asked):
            bound = (json.dumps(sorted(asked - found.keys())), self.key[2], self.key[1])
            fresh = self.columns.add([row for row in db.execute(_QUERY, bound) if row[1] in KIND_CODES])
            self.places.update(fresh)
            found |= fresh
        return found


class HeldScopes:
    """The rows held of the scopes asked last."""

    def __init__(self) -> None:
        self._held: OrderedDict[Key, HeldRows] = OrderedDict()
        self._lock = threading.Lock()

    def current(self, db: sqlite3.Connection, key: Key) -> HeldRows:
        """What is held of a scope, without what changed since it was read."""
        with self._lock:
            held = self._held.get(key)
        found = db.execute("SELECT version FROM scopes WHERE id = ?", (key[1],)).fetchone()
        version = int(found[0]) if found else 0
        if held is None or held.version != version or len(held.columns) > _MOST_ROWS:
            held = _still_right(db, held, version) if held is not None else None
            held = held or HeldRows(key, version, Columns(), {})
        with self._lock:
            self._held[key] = held
            self._held.move_to_end(key)
            while len(self._held) > 1 and sum(len(one.columns) for one in self._held.values()) > _MOST_ROWS:
                self._held.popitem(last=False)
        return held


def _still_right(db: sqlite3.Connection, held: HeldRows, version: int) -> HeldRows | None:
    """The rows of `held` that are as they were, and of too many the later half; None where none is worth it.

    Places are a copy: whoever still reads into the old ones may have read before the change.
    """
    trimmed = meta(db, "trimmed")
    if trimmed > held.version or held.columns.named + len(held.wholes) > _MOST_NAMES:
        return None
    places, episodes, wholes = dict(held.places), dict(held.episodes), dict(held.wholes)
    since = (held.key[1], held.version)
    changed = "SELECT id, cell_id, entry_id FROM rows WHERE scope_id = ? AND version > ?"
    for rowid, cell, entry in db.execute(changed, since):
        places.pop(rowid, None)
        episodes.pop(cell, None)
        wholes.pop(entry, None)
    for (rowid,) in db.execute("SELECT id FROM gone WHERE scope_id = ? AND version > ?", since):
        places.pop(rowid, None)
    columns = held.columns
    if len(columns) > _MOST_ROWS:
        places = dict(islice(places.items(), max(0, len(places) - _MOST_ROWS // 2), None))
        columns = columns.kept(list(places.values()))
        places = {rowid: place for place, rowid in enumerate(places)}
    return HeldRows(held.key, version, columns, places, episodes, wholes)


def found_by(
    db: sqlite3.Connection, known: dict[str, tuple[int, ...]], wanted: Iterable[str], query: str, number: int
) -> set[int]:
    """Ids of the rows that `query` finds by a name, for all names `wanted`; asked only for names not yet `known`."""
    names = set(wanted)
    if missing := names - known.keys():
        found: dict[str, tuple[int, ...]] = dict.fromkeys(missing, ())
        for rowid, name in db.execute(query, (json.dumps(sorted(missing)), number)):
            found[name] = (*found[name], rowid)
        known.update(found)
    return {rowid for name in names for rowid in known[name]}
