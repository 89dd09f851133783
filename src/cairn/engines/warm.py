"""Rows (as arrays) and words of a scope in memory, brought up to date by version, both at once.

A question costs one look at the scope's version, and none while nobody wrote. Where it moved, only the rows with a newer version are read
and worked in; a scope that is not held, or whose index was made anew, is loaded whole. The least recently
used scopes make room when the bytes run out.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from cairn.engines.database import Database, Remembered
from cairn.engines.row_tables import IN_ARRAYS, meta, scope_number
from cairn.index.corpus import KIND_CODES, NAMED, Corpus, Names, Sender, arrays_of
from cairn.index.postings import Postings
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = (
    f"{IN_ARRAYS}, CASE WHEN r.kind = 'passage' THEN (SELECT m.id FROM rows m WHERE"
    " m.scope_id = r.scope_id AND m.entry_id = r.parent_id AND m.path_id = r.path_id) END"
)
_GROW = 1.25
_GONE_ROWS = 1024


class WarmState(NamedTuple):
    """A scope as one version of it was: its rows, and their words."""

    generation: str
    version: int
    worded: int
    rows: Corpus
    words: Postings


class WarmScopes:
    """A bounded set of scopes in memory."""

    def __init__(self, database: Database, *, memory_rows: int, memory_bytes: int) -> None:
        self._db = database
        self._memory_rows = memory_rows
        self._memory_bytes = memory_bytes
        self._held: OrderedDict[tuple[Scope, str], WarmScope] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, scope: Scope, model: str) -> WarmState:
        """What there is of a scope now, with the vectors of a model."""
        with self._lock:
            warm = self._held.get((scope, model))
            if warm is None:
                warm = self._held[scope, model] = WarmScope(scope, model, self._memory_rows)
            self._held.move_to_end((scope, model))
        found = warm.refreshed(self._db)
        with self._lock:
            total = sum(other.bytes for other in self._held.values())
            while total > self._memory_bytes and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                total -= dropped.bytes
        return found

    def clear(self) -> None:
        with self._lock:
            self._held.clear()


class WarmScope:
    """One scope: the latest that was read of it, and how it is brought up to date.

    Its rows are arrays, with the vectors of a model where there are not too many; over arrays a common word costs less
    than a millisecond, too, in full text on disk tens.
    """

    bytes = 0

    def __init__(self, scope: Scope, model: str, memory_rows: int) -> None:
        self._scope = scope
        self._model = model
        self._memory_rows = memory_rows
        self._dimensions = 0
        self._lock = threading.Lock()
        self._known: Remembered[WarmState] = Remembered()
        self._held: WarmState | None = None
        self._reset()

    def refreshed(self, db: Database) -> WarmState:
        """What there is now."""

        def read(_: WarmState | None) -> WarmState:
            generation, held = db.generation, self._held
            # Without the lock: those who ask at once would wait for each other only to find that nothing moved.
            if held is not None and (held.generation, held.version) == (
                generation,
                db.read(self._versions)[1],
            ):
                return held
            with self._lock:
                self._held = db.read(lambda connection: self._loaded(connection, generation))
                return self._held

        return self._known.get(db, (), read)

    def _versions(self, db: sqlite3.Connection) -> tuple[int, int, int]:
        """The number of the scope, its version, and the one that moves with what is written alone."""
        query = "SELECT id, version, worded FROM scopes WHERE id = ?"
        return db.execute(query, (scope_number(db, self._scope),)).fetchone() or (-1, 0, 0)

    def _loaded(self, db: sqlite3.Connection, generation: str) -> WarmState:
        """What changed since what is held (all of it without that), worked in; one snapshot."""
        db.execute("BEGIN")
        try:
            number, version, worded = self._versions(db)
            held = self._held
            if held is not None and (held.generation != generation or meta(db, "trimmed") > held.version):
                held = None
            if held is not None and held.version == version:
                return held
            since = -1 if held is None else held.version
            query = "SELECT id FROM gone WHERE scope_id = ? AND version > ?"
            gone = [] if held is None else [row[0] for row in db.execute(query, (number, since))]
            words = held.words if held is not None else Postings()
            if held is None or held.worded != worded:  # a vector that arrives moves nothing here
                words = self._reworded(db, words, number, since, gone)
            rows = self._read(db, number, since)
        finally:
            db.execute("COMMIT")
        corpus = self._merged(None if held is None else held.rows, rows, gone, version)
        self.bytes = 40 * len(corpus) + words.nbytes
        self.bytes += self._buffer.nbytes if self._buffer is not None else 0
        return WarmState(generation, version, worded, corpus, words)

    def _reworded(
        self, db: sqlite3.Connection, words: Postings, number: int, since: int, gone: Sequence[int]
    ) -> Postings:
        """`words` with those of the rows that were written since, and without those of rows that are gone."""
        query = (
            "SELECT id, kind, words FROM rows WHERE scope_id = ? AND version > ? AND worded > ? ORDER BY id"
        )
        rows = db.execute(query, (number, since, since)).fetchall()
        # A row that has no words any more leaves, as one that was removed does.
        wordless = [row[0] for row in rows if not row[2]] if since >= 0 else []
        return words.updated([row for row in rows if row[2]], [*gone, *wordless])

    def _reset(self) -> None:
        self._named = {name: Names() for name in NAMED}
        self._episode_cells: dict[str, int] = {}
        self._orphans: dict[int, str] = {}
        self._gone = 0
        self._buffer: np.ndarray | None = None

    def _read(self, db: sqlite3.Connection, number: int, since: int) -> list[Any]:
        total = int(db.execute("SELECT count(*) FROM rows WHERE scope_id = ?", (number,)).fetchone()[0])
        query = "SELECT id, dimensions FROM v.models WHERE name = ?"
        model = db.execute(query, (self._model,)).fetchone() if self._model else None
        large = total > self._memory_rows
        self._dimensions = 0 if model is None or large else int(model[1])
        vector = "NULL" if model is None else ("e.id" if large else "e.data")
        join = "" if model is None else "LEFT JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
        return db.execute(
            f"SELECT {_COLUMNS}, {vector} FROM rows r {join} WHERE r.scope_id = ? AND r.version > ? ORDER BY r.id",
            (*((model[0],) if model is not None else ()), number, since),
        ).fetchall()

    def _merged(self, old: Corpus | None, rows: list[Any], gone: Sequence[int], version: int) -> Corpus:
        import numpy as np

        if old is None:
            self._reset()
        rows = [row for row in rows if row[1] in KIND_CODES]
        count = len(rows)
        fresh = arrays_of(rows, self._named)
        fresh["whole"] = np.fromiter((row[13] or row[0] for row in rows), np.int64, count)
        fresh["has_vector"] = np.fromiter((row[14] is not None for row in rows), np.bool_, count)
        for row, cell in zip(rows, fresh["cell"].tolist(), strict=True):
            if row[1] == "episode" and cell >= 0:
                self._episode_cells[row[10]] = cell
            elif cell < 0 and row[11] == "episode" and row[12]:
                self._orphans[row[0]] = row[12]
        if old is None:
            arrays, at, kept = fresh, np.arange(count), None
        else:
            arrays, at, kept = _joined(old, fresh, gone)
            for rowid in gone:
                self._orphans.pop(rowid, None)
            self._gone += len(gone)
        held = self._vectors(old, rows, at, arrays, kept)
        self._adopt(arrays)
        if self._gone > max(_GONE_ROWS, len(arrays["rowid"])):
            self._renumber(arrays)
        return Corpus(
            scope=self._scope,
            version=version,
            vectors=held,
            model=self._model,
            sessions=tuple(self._named["session"].names),
            senders=tuple(Sender(*one) for one in self._named["sender"].names),
            cells=tuple(self._named["cell"].names),
            **arrays,
        )

    def _vectors(
        self,
        old: Corpus | None,
        rows: Sequence[Sequence[Any]],
        at: np.ndarray,
        arrays: dict[str, np.ndarray],
        kept: np.ndarray | None,
    ) -> np.ndarray | None:
        """The vectors of all rows; `at` are the places of `rows`, `kept` the old places that remain (all: None).

        Where nothing was removed, old rows keep their place and new ones go behind them, in the same memory: a
        corpus handed out earlier is shorter and does not see them.
        """
        import numpy as np

        total, dimensions = len(arrays["rowid"]), self._dimensions
        if not dimensions or not arrays["has_vector"].any():
            self._buffer = None
            return None
        have = [n for n, row in enumerate(rows) if row[14] is not None]
        data = np.frombuffer(b"".join(rows[n][14] for n in have), np.float16).reshape(len(have), dimensions)
        was = old.vectors if old is not None else None
        if was is None or self._buffer is None:
            self._buffer = np.zeros((int(total * _GROW) + 64, dimensions), np.float32)
        elif kept is not None or total > len(self._buffer):
            remain = was if kept is None else was[kept]
            self._buffer = np.zeros((int(total * _GROW) + 64, dimensions), np.float32)
            self._buffer[: len(remain)] = remain
        if have:
            self._buffer[at[have]] = data
        return self._buffer[:total]

    def _adopt(self, arrays: dict[str, np.ndarray]) -> None:
        """Give facts the cell of the episode they were drawn from, once that is known."""
        import numpy as np

        ready = {
            row: code
            for row, ep in self._orphans.items()
            if (code := self._episode_cells.get(ep)) is not None
        }
        if not ready:
            return
        rowids = np.fromiter(ready, np.int64, len(ready))
        codes = np.fromiter(ready.values(), np.int32, len(ready))
        at = np.minimum(np.searchsorted(arrays["rowid"], rowids), len(arrays["rowid"]) - 1)
        found = arrays["rowid"][at] == rowids
        arrays["cell"][at[found]] = codes[found]
        for rowid in ready:
            del self._orphans[rowid]

    def _renumber(self, arrays: dict[str, np.ndarray]) -> None:
        """Number anew the sessions, senders and cells that rows still name: the others' are gone with their rows."""
        import numpy as np

        for what, named in self._named.items():
            live = np.unique(arrays[what])
            live = live[live >= 0]
            place = np.full(len(named.names) + 1, -1, np.int32)  # the last is for "none", which is -1
            place[live] = np.arange(len(live), dtype=np.int32)
            arrays[what] = place[arrays[what]]
            self._named[what] = Names(named.names[code] for code in live.tolist())
            if what == "cell":
                kept = {episode: int(place[code]) for episode, code in self._episode_cells.items()}
                self._episode_cells = {episode: code for episode, code in kept.items() if code >= 0}
        self._gone = 0


def _joined(
    old: Corpus, fresh: dict[str, np.ndarray], gone: Sequence[int]
) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray | None]:
    """`old` with `fresh` rows worked in: the arrays, the places of the fresh rows, and which old places remain.

    Rows keep their order by rowid: a new rowid is higher than all before it, since none is given twice.
    """
    import numpy as np

    kept = None
    if gone:
        places = old.positions(np.asarray(gone, np.int64))
        remain = np.ones(len(old), bool)
        remain[places[places >= 0]] = False
        if not remain.all():
            kept = np.flatnonzero(remain)
    base = old.rowid if kept is None else old.rowid[kept]
    place = np.searchsorted(base, fresh["rowid"])
    is_new = place >= len(base)
    at = np.where(is_new, len(base) + np.cumsum(is_new) - 1, place)
    arrays = {}
    for name, values in fresh.items():
        held = getattr(old, name)
        joined = np.concatenate([held if kept is None else held[kept], values[is_new]])
        joined[at] = values
        arrays[name] = joined
    return arrays, at, kept
