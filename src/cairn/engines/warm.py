"""The rows of a scope as arrays, held in memory and kept up to date by version.

A question costs one look at the scope's version, and none while nobody wrote. Where it moved, only the rows with a newer version are read
and worked in; a scope that is not held, or whose index was made anew, is loaded whole. The least recently
used scopes make room when the bytes run out.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database, Unchanged
from cairn.index.corpus import KIND_CODES, Corpus, Sender
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = (
    "r.id, r.kind, r.timestamp_ms, r.session_id, r.ordinal, r.sender_ids, r.sender_name, r.cell_id, r.parent_type,"
    " r.parent_id, r.flags, r.length, r.entry_id, CASE WHEN r.kind = 'passage' THEN (SELECT m.id FROM rows m WHERE"
    " m.scope_id = r.scope_id AND m.entry_id = r.parent_id AND m.path_id = r.path_id) END"
)
_GROW = 1.25
_GONE_ROWS = 1024


class WarmScopes:
    """A bounded set of scopes in memory."""

    def __init__(self, database: Database, *, memory_rows: int, memory_bytes: int) -> None:
        self._db = database
        self._memory_rows = memory_rows
        self._memory_bytes = memory_bytes
        self._held: OrderedDict[tuple[Scope, str], _Warm] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, scope: Scope, model: str) -> Corpus:
        """The current corpus of `scope` with the vectors of `model`."""
        with self._lock:
            warm = self._held.get((scope, model))
            if warm is None:
                warm = self._held[scope, model] = _Warm(scope, model, self._memory_rows)
            self._held.move_to_end((scope, model))
        corpus = warm.refreshed(self._db)
        with self._lock:
            total = sum(other.bytes for other in self._held.values())
            while total > self._memory_bytes and len(self._held) > 1:
                _, dropped = self._held.popitem(last=False)
                total -= dropped.bytes
        return corpus

    def clear(self) -> None:
        with self._lock:
            self._held.clear()


class _Warm:
    """One scope: the latest corpus and what is needed to bring it up to date."""

    def __init__(self, scope: Scope, model: str, memory_rows: int) -> None:
        self._scope = scope
        self._model = model
        self._memory_rows = memory_rows
        self._lock = threading.Lock()
        self._unchanged = Unchanged()
        self._generation = ""
        self._corpus: Corpus | None = None
        self._codes: dict[str, dict[Any, int]] = {}
        self._names: dict[str, list[Any]] = {}
        self._episode_cells: dict[str, int] = {}
        self._orphans: dict[int, str] = {}
        self._gone = 0
        self._buffer: np.ndarray | None = None
        self.bytes = 0

    def refreshed(self, db: Database) -> Corpus:
        stamp, generation, corpus = db.stamp(), db.generation, self._corpus
        if (
            corpus is not None
            and generation == self._generation
            and (self._unchanged.holds(stamp) or db.read(self._version) == corpus.version)
        ):
            self._unchanged.note(stamp)
            return corpus
        with self._lock:
            if self._corpus is None or generation != self._generation:
                self._reset()
                self._generation = generation
            self._corpus = db.read(self._load)
            self._unchanged.note(stamp)
            self._measure()
            return self._corpus

    def _version(self, db: sqlite3.Connection) -> int:
        query = "SELECT version FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?"
        scope = self._scope
        found = db.execute(query, (scope.space.app, scope.space.project, scope.track, scope.owner)).fetchone()
        return int(found[0]) if found else 0

    def _reset(self) -> None:
        self._corpus = None
        self._codes = {"session": {}, "sender": {}, "cell": {}}
        self._names = {"session": [], "sender": [], "cell": []}
        self._episode_cells = {}
        self._orphans = {}
        self._gone = 0
        self._buffer = None

    def _load(self, db: sqlite3.Connection) -> Corpus:
        """Read what changed since the held corpus (all of it without one), in one snapshot."""
        db.execute("BEGIN")
        try:
            version = self._version(db)
            since = self._corpus.version if self._corpus is not None else -1
            if self._corpus is not None:
                trimmed = int(db.execute("SELECT value FROM meta WHERE key = 'trimmed'").fetchone()[0])
                if trimmed > since:
                    self._reset()
                    since = -1
            if since == version and self._corpus is not None:
                return self._corpus
            scope = self._scope
            number = db.execute(
                "SELECT id FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?",
                (scope.space.app, scope.space.project, scope.track, scope.owner),
            ).fetchone()
            scope_id = number[0] if number else -1
            total = int(db.execute("SELECT count(*) FROM rows WHERE scope_id = ?", (scope_id,)).fetchone()[0])
            model = (
                db.execute("SELECT id, dimensions FROM v.models WHERE name = ?", (self._model,)).fetchone()
                if self._model
                else None
            )
            large = total > self._memory_rows
            vector = "NULL" if model is None else ("e.id" if large else "e.data")
            join = "" if model is None else "LEFT JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            rows = db.execute(
                f"SELECT {_COLUMNS}, {vector} FROM rows r {join} WHERE r.scope_id = ? AND r.version > ? ORDER BY r.id",
                (*((model[0],) if model is not None else ()), scope_id, since),
            ).fetchall()
            gone = (
                [
                    row[0]
                    for row in db.execute(
                        "SELECT id FROM gone WHERE scope_id = ? AND version > ?", (scope_id, since)
                    )
                ]
                if since >= 0
                else []
            )
        finally:
            db.execute("COMMIT")
        dimensions = 0 if model is None or large else int(model[1])
        return self._merged(rows, gone, version, dimensions)

    def _merged(
        self, rows: Sequence[Sequence[Any]], gone: Sequence[int], version: int, dimensions: int
    ) -> Corpus:
        import numpy as np

        rows = [row for row in rows if row[1] in KIND_CODES]
        count = len(rows)
        fresh: dict[str, np.ndarray] = {
            "rowid": np.fromiter((row[0] for row in rows), np.int64, count),
            "kind": np.fromiter((KIND_CODES[row[1]] for row in rows), np.int8, count),
            "timestamp_ms": np.fromiter((row[2] for row in rows), np.int64, count),
            "session": np.fromiter((self._code("session", row[3]) for row in rows), np.int32, count),
            "ordinal": np.fromiter((row[4] for row in rows), np.int32, count),
            "sender": np.fromiter((self._sender(row) for row in rows), np.int32, count),
            "cell": np.fromiter((self._cell(row) for row in rows), np.int32, count),
            "flags": np.fromiter((row[10] for row in rows), np.uint8, count),
            "length": np.fromiter((row[11] for row in rows), np.int32, count),
            "whole": np.fromiter((row[13] or row[0] for row in rows), np.int64, count),
            "has_vector": np.fromiter((row[14] is not None for row in rows), np.bool_, count),
        }
        old = self._corpus
        if old is None:
            arrays, at, kept = fresh, np.arange(count), None
        else:
            arrays, at, kept = _joined(old, fresh, gone)
            for rowid in gone:
                self._orphans.pop(rowid, None)
            self._gone += len(gone)
        held = self._vectors(rows, at, arrays, kept, dimensions)
        self._adopt(arrays)
        if self._gone > max(_GONE_ROWS, len(arrays["rowid"])):
            self._renumber(arrays)
        return Corpus(
            scope=self._scope,
            version=version,
            vectors=held,
            sessions=tuple(self._names["session"]),
            senders=tuple(self._names["sender"]),
            cells=tuple(self._names["cell"]),
            model=self._model,
            **arrays,
        )

    def _vectors(
        self,
        rows: Sequence[Sequence[Any]],
        at: np.ndarray,
        arrays: dict[str, np.ndarray],
        kept: np.ndarray | None,
        dimensions: int,
    ) -> np.ndarray | None:
        """The vectors of all rows; `at` are the places of `rows`, `kept` the old places that remain (all: None).

        Where nothing was removed, old rows keep their place and new ones go behind them, in the same memory: a
        corpus handed out earlier is shorter and does not see them.
        """
        import numpy as np

        total = len(arrays["rowid"])
        if not dimensions or not arrays["has_vector"].any():
            self._buffer = None
            return None
        have = [n for n, row in enumerate(rows) if row[14] is not None]
        data = np.frombuffer(b"".join(rows[n][14] for n in have), np.float16).reshape(len(have), dimensions)
        old = self._corpus.vectors if self._corpus is not None else None
        if old is None or self._buffer is None:
            self._buffer = np.zeros((int(total * _GROW) + 64, dimensions), np.float32)
        elif kept is not None or total > len(self._buffer):
            remain = old if kept is None else old[kept]
            self._buffer = np.zeros((int(total * _GROW) + 64, dimensions), np.float32)
            self._buffer[: len(remain)] = remain
        if have:
            self._buffer[at[have]] = data
        return self._buffer[:total]

    def _code(self, what: str, value: Any) -> int:
        if value is None:
            return -1
        codes = self._codes[what]
        code = codes.get(value)
        if code is None:
            code = codes[value] = len(codes)
            self._names[what].append(value)
        return code

    def _sender(self, row: Sequence[Any]) -> int:
        if row[1] not in {"message", "passage"} or not row[5]:
            return -1
        return self._code("sender", Sender(row[5].strip("\n"), row[6]))

    def _cell(self, row: Sequence[Any]) -> int:
        if row[7] is not None:
            code = self._code("cell", row[7])
            if row[1] == "episode":
                self._episode_cells[row[12]] = code
            return code
        if row[8] == "episode" and row[9]:
            self._orphans[row[0]] = row[9]
        return -1

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

        for what, names in self._names.items():
            live = np.unique(arrays[what])
            live = live[live >= 0]
            place = np.full(len(names) + 1, -1, np.int32)  # the last is for "none", which is -1
            place[live] = np.arange(len(live), dtype=np.int32)
            arrays[what] = place[arrays[what]]
            self._names[what] = [names[code] for code in live.tolist()]
            self._codes[what] = {name: code for code, name in enumerate(self._names[what])}
            if what == "cell":
                kept = {episode: int(place[code]) for episode, code in self._episode_cells.items()}
                self._episode_cells = {episode: code for episode, code in kept.items() if code >= 0}
        self._gone = 0

    def _measure(self) -> None:
        corpus = self._corpus
        if corpus is None:
            return
        small = 40 * len(corpus)
        self.bytes = small + (self._buffer.nbytes if self._buffer is not None else 0)


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
