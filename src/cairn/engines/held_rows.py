"""Rows of large scopes as ranking reads them, held by rowid as they are read.

Questions to one owner meet many of the same rows. What is held is right up to the scope's version: where that moved,
the rows that changed or went since are let go, and those that are asked for are read. A scope that nobody asks makes
room for others.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from cairn.engines.row_tables import FULL_TEXT, full_text
from cairn.index.corpus import KIND_CODES

_MOST_ROWS = 16_000
_COLUMNS = (
    "r.id, r.kind, r.timestamp_ms, r.session_id, r.ordinal, r.sender_ids, r.sender_name, r.cell_id, r.parent_type,"
    " r.parent_id, r.flags, r.length, r.entry_id, r.path_id, r.hidden"
)
# Each kind has its words in one of the full-text tables.
_TOKENS = (
    "CASE "
    + " ".join(
        f"WHEN r.kind IN ({', '.join(repr(kind) for kind in KIND_CODES if full_text(kind) == table)})"
        f" THEN (SELECT c0 FROM {table}_content WHERE id = r.id)"
        for table in FULL_TEXT
    )
    + " END"
)
_QUERY = (
    f"SELECT {_COLUMNS}, {_TOKENS}, e.data FROM json_each(?) w CROSS JOIN rows r"
    " ON r.id = w.value LEFT JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key WHERE +r.scope_id = ?"
)

Key = tuple[str, int, int | None]
"""The generation of the index, the number of a scope, and that of the model whose vectors are read."""


@dataclass(frozen=True, slots=True)
class HeldRows:
    """Rows of one scope: `_COLUMNS`, and behind them how often each word occurs, and the vector."""

    key: Key
    version: int
    rows: dict[int, Sequence[Any]]

    def read(self, db: sqlite3.Connection, wanted: Iterable[int]) -> dict[int, Sequence[Any]]:
        """The rows that are there of those `wanted`, by id."""
        asked = set(wanted)
        found = {rowid: row for rowid in asked if (row := self.rows.get(rowid)) is not None}
        if len(found) < len(asked):
            missing = sorted(asked - found.keys())
            bound = (json.dumps(missing), self.key[2], self.key[1])
            fresh = {row[0]: _counted(row) for row in db.execute(_QUERY, bound) if row[1] in KIND_CODES}
            self.rows.update(fresh)
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
        if held is None or held.version != version or len(held.rows) > _MOST_ROWS:
            held = HeldRows(key, version, _still_right(db, held) if held is not None else {})
        with self._lock:
            self._held[key] = held
            self._held.move_to_end(key)
            while len(self._held) > 1 and sum(len(one.rows) for one in self._held.values()) > _MOST_ROWS:
                self._held.popitem(last=False)
        return held


def _still_right(db: sqlite3.Connection, held: HeldRows) -> dict[int, Sequence[Any]]:
    """The rows of `held` that are as they were, and of too many the later half.

    They are a copy: whoever still reads into the old ones may have read before the change.
    """
    if int(db.execute("SELECT value FROM meta WHERE key = 'trimmed'").fetchone()[0]) > held.version:
        return {}
    rows, since = dict(held.rows), (held.key[1], held.version)
    for table in ("rows", "gone"):
        for (rowid,) in db.execute(f"SELECT id FROM {table} WHERE scope_id = ? AND version > ?", since):
            rows.pop(rowid, None)
    return dict(islice(rows.items(), len(rows) // 2, None)) if len(rows) > _MOST_ROWS else rows


def _counted(row: Sequence[Any]) -> Sequence[Any]:
    words: Mapping[str, int] = Counter(row[-2].split()) if row[-2] else {}
    return (*row[:-2], words, row[-1])
