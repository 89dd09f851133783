"""The vectors of rows in SQLite: which are missing, which are unused, and whole rows for those who follow
changes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database
from cairn.engines.row_tables import (
    drop_vectors,
    full_text,
    model_number,
    parts,
    scope_number,
    with_vectors,
)
from cairn.index.filters import unpacked
from cairn.index.rows import TOKEN_DIMENSIONS, Pending
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_BLOCK_ROWS = 8192
_UNUSED_KEPT = 1000
_OPEN_TALK = "cell_id IS NULL AND session_id IS NOT NULL AND kind IN ('message', 'passage')"


class RowVectors:
    """The part of the index that knows vectors: each is kept once, by model and by hash of what was embedded.

    Args:
        db: The rows, with the vectors attached as `v`.
        vectors: The vectors, a file of their own that outlives a rebuild of the rows.
    """

    def __init__(self, db: Database, vectors: Database) -> None:
        self._db = db
        self._vectors = vectors
        self._model = ""

    @property
    def model(self) -> str:
        """The embedder whose vectors are served: the one chosen here, else the one the rows have; "" for none."""
        return self._model or self._db.kept("model", self.wanted_model)

    def use_model(self, model: str) -> None:
        """Serve vectors of `model` only. Vectors of any other model are never compared with a query."""
        self._model = model

    def begin_model(self, model: str) -> None:
        """From now on vectors of `model` are wanted. Older ones stay until every row has a new one.

        Vectors lie in a file of their own: where that one was lost alone, every row waits for its vector again.
        """
        self.use_model(model)

        def asked(db: sqlite3.Connection) -> dict[str, str]:
            held = dict(
                db.execute("SELECT key, value FROM meta WHERE key IN ('model', 'vectors')").fetchall()
            )
            return {**held, "now": db.execute("SELECT generation FROM v.birth").fetchone()[0]}

        def switch(db: sqlite3.Connection) -> None:
            now = db.execute("SELECT generation FROM v.birth").fetchone()[0]
            put = "INSERT OR REPLACE INTO meta(key, value) VALUES (?, ?)"
            db.executemany(put, (("model", model), ("vectors", now)))
            db.execute("UPDATE rows SET pending = 1")

        held = self._db.read(asked)
        if held["model"] != model or held.get("vectors") != held["now"]:
            self._db.write(switch)

    def pending(self, limit: int, *, settled: bool = False) -> list[Pending]:
        """Rows whose vector is missing, newest first, so that what was just written is found soonest.

        With `settled`, only those whose text stands: messages that no cell holds yet are left out.
        """
        but = f" AND NOT ({_OPEN_TALK})" if settled else ""
        query = f"SELECT id, embed_key, coalesce(embedded, text) FROM rows WHERE pending = 1{but} ORDER BY id DESC LIMIT ?"
        return [Pending(*row) for row in self._db.read(lambda db: db.execute(query, (limit,)).fetchall())]

    def pending_count(self, scope: Scope | None = None) -> int:
        """How many rows wait for their vector, in all or in one scope."""

        def ask(db: sqlite3.Connection) -> int:
            query = "SELECT count(*) FROM rows WHERE pending = 1"
            if scope is None:
                return int(db.execute(query).fetchone()[0])
            return int(db.execute(f"{query} AND scope_id = ?", (scope_number(db, scope),)).fetchone()[0])

        return self._db.read(ask)

    def have_vectors(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these texts have a vector of the current model already."""
        return self._db.read(lambda db: with_vectors(db, model_number(db, self._model), keys))

    def put_vectors(
        self,
        rows: Sequence[Pending],
        fresh: Mapping[bytes, np.ndarray],
        tokens: Mapping[bytes, np.ndarray] | None = None,
    ) -> int:
        """Keep `fresh` vectors and those of word pieces by key, and mark `rows` as having theirs; return the version."""
        wanted = self._still_wanted(rows) if fresh else frozenset()
        data = _packed({key: vector for key, vector in fresh.items() if key in wanted})
        pieces = [(key, found.tobytes()) for key, found in (tokens or {}).items() if key in wanted]

        def keep(db: sqlite3.Connection) -> None:
            dimensions = len(data[0][1]) // 2
            db.execute(
                "INSERT OR IGNORE INTO models(name, dimensions) VALUES (?, ?)", (self._model, dimensions)
            )
            query = "SELECT id FROM models WHERE name = ?"
            model = int(db.execute(query, (self._model,)).fetchone()[0])
            for table, found in (("vectors", data), ("tokens", pieces)):
                put = f"INSERT OR REPLACE INTO {table}(model, key, data) VALUES ({model}, ?, ?)"
                db.executemany(put, found)

        def mark(db: sqlite3.Connection) -> int:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            # A row that was rewritten meanwhile has another text and stays pending.
            db.executemany(
                f"UPDATE rows SET pending = 0, version = {version} WHERE id = ? AND embed_key = ?",
                [(row.rowid, row.key) for row in rows],
            )
            touched: set[tuple[int]] = set()
            for part in parts([row.rowid for row in rows]):
                marks = ",".join("?" * len(part))
                touched.update(db.execute(f"SELECT DISTINCT scope_id FROM rows WHERE id IN ({marks})", part))
            db.executemany(f"UPDATE scopes SET version = {version} WHERE id = ?", touched)
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
            return version

        if data:
            self._vectors.write(keep)
        return self._db.write(mark, rows=len(rows))

    def _still_wanted(self, rows: Sequence[Pending]) -> frozenset[bytes]:
        """The keys of those rows that say what they said: a text forgotten meanwhile leaves no vector behind."""

        def ask(db: sqlite3.Connection) -> frozenset[bytes]:
            found: set[bytes] = set()
            for part in parts([row.rowid for row in rows]):
                marks = ",".join("?" * len(part))
                found.update(
                    row[0] for row in db.execute(f"SELECT embed_key FROM rows WHERE id IN ({marks})", part)
                )
            return frozenset(found)

        return self._db.read(ask)

    def _drop_unused(self) -> int:
        """Remove vectors without a row; a margin is kept for undone edits.

        Those of another model go once every row has its own: until then they are what is compared.
        """

        def unused(db: sqlite3.Connection) -> list[tuple[int]]:
            rows, held = (
                int(db.execute(query).fetchone()[0])
                for query in ("SELECT count(*) FROM rows", "SELECT count(*) FROM v.vectors")
            )
            if not rows or held <= rows * 1.25 + _UNUSED_KEPT:
                return []
            waiting = db.execute("SELECT 1 FROM rows WHERE pending = 1 LIMIT 1").fetchone()
            whose = "e.model IS ? AND" if waiting else "e.model IS NOT ? OR"
            return db.execute(
                f"SELECT e.id FROM v.vectors e WHERE {whose} e.key NOT IN (SELECT embed_key FROM rows)",
                (model_number(db, self._model),),
            ).fetchall()

        found = self._db.read(unused) if self._model else []
        if found:
            self._vectors.write(lambda db: drop_vectors(db, found))
        return len(found)

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> dict[int, np.ndarray]:
        """The vectors of the word pieces of these rows, by rowid; rows without them are missing."""
        import numpy as np

        def ask(db: sqlite3.Connection) -> list[tuple[int, bytes]]:
            number, model = scope_number(db, scope), model_number(db, self.model)
            found: list[tuple[int, bytes]] = []
            for part in parts([int(rowid) for rowid in rowids]):
                marks = ",".join("?" * len(part))
                query = (
                    "SELECT r.id, t.data FROM rows r JOIN v.tokens t ON t.model = ? AND t.key = r.embed_key"
                    f" WHERE +r.scope_id = ? AND r.id IN ({marks})"
                )
                found += db.execute(query, (model, number, *part)).fetchall()
            return found

        rows = self._db.read(ask) if rowids else []
        return {rowid: np.frombuffer(data, np.int8).reshape(-1, TOKEN_DIMENSIONS) for rowid, data in rows}

    def stored_vectors(self, scope: Scope) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rowids and vectors of a scope, read from disk block by block, a snapshot each."""
        import numpy as np

        query = (
            "SELECT r.id, e.data FROM rows r JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            # The plus keeps SQLite to the order of rows: an index on the scope would walk all of it for every block.
            " WHERE +r.scope_id = ? AND r.id > ? ORDER BY r.id LIMIT ?"
        )
        last, served = 0, self.model

        def ask(db: sqlite3.Connection) -> list[tuple[int, bytes]]:
            bound = (model_number(db, served), scope_number(db, scope), last, _BLOCK_ROWS)
            return db.execute(query, bound).fetchall()

        while rows := self._db.read(ask):
            last = rows[-1][0]
            data = np.frombuffer(b"".join(row[1] for row in rows), np.float16).reshape(len(rows), -1)
            yield np.fromiter((row[0] for row in rows), np.int64, len(rows)), data.astype(np.float32)

    def wanted_model(self) -> str:
        """The model whose vectors the rows have or wait for."""
        query = "SELECT value FROM meta WHERE key = 'model'"
        return str(self._db.read(lambda db: db.execute(query).fetchone()[0]))

    def trimmed_version(self) -> int:
        """Removals up to this version are no longer listed one by one."""
        query = "SELECT value FROM meta WHERE key = 'trimmed'"
        return int(self._db.read(lambda db: db.execute(query).fetchone()[0]))

    def stamp(self) -> dict[str, Any]:
        """Which rows and vectors these are: what was made of others is not believed."""
        query = (
            "SELECT b.generation || ':' || c.value, m.value, coalesce(v.dimensions, 0) FROM birth b JOIN meta c"
            " ON c.key = 'cleared' JOIN meta m ON m.key = 'model' LEFT JOIN v.models v ON v.name = m.value"
        )
        found = self._db.read(lambda db: db.execute(query).fetchone())
        return dict(zip(("generation", "model", "dimensions"), found, strict=True))

    def kinds(self) -> list[str]:
        """The kinds that have rows."""
        query = "SELECT DISTINCT kind FROM tallies WHERE rows > 0"
        return [row[0] for row in self._db.read(lambda db: db.execute(query).fetchall())]

    def has_changed(self, kind: str, version: int) -> bool:
        """Whether a row of a kind went, or was written, after `version`."""

        def ask(db: sqlite3.Connection) -> bool:
            gone = "SELECT 1 FROM gone WHERE kind = ? AND version > ?"
            written = "SELECT 1 FROM rows WHERE kind = ? AND version > ? AND worded > ?"
            return (
                db.execute(gone, (kind, version)).fetchone() is not None
                or db.execute(written, (kind, version, version)).fetchone() is not None
            )

        return self._db.read(ask)

    def changed_count(self, marks: Mapping[str, int]) -> int:
        """How many rows changed or went after the version given for their kind (0 where none is)."""

        def ask(db: sqlite3.Connection) -> int:
            total = 0
            kinds = {row[0] for row in db.execute("SELECT DISTINCT kind FROM tallies WHERE rows > 0")}
            for kind in kinds | marks.keys():
                for table in ("rows", "gone"):
                    query = f"SELECT count(*) FROM {table} WHERE kind = ? AND version > ?"
                    total += int(db.execute(query, (kind, marks.get(kind, 0))).fetchone()[0])
            return total

        return self._db.read(ask)

    def since(
        self, kind: str, version: int, model: str, limit: int
    ) -> tuple[int, dict[str, Sequence[Any]], list[int]]:
        """The next changes of a kind after `version`: up to which version they go, whole rows by column, ids gone.

        A word in `tokens` has the number of its scope before it: whoever counts words counts those of one owner.
        """
        text = full_text(kind)
        tokens = f"coalesce(r.scope_id || ':' || replace(nullif({text}.c0, ''), ' ', ' ' || r.scope_id || ':'), '')"

        def ask(db: sqlite3.Connection) -> tuple[int, list[tuple[Any, ...]], list[tuple[int]]]:
            edge = db.execute(
                "SELECT version FROM rows WHERE kind = ? AND version > ? ORDER BY version LIMIT 1 OFFSET ?",
                (kind, version, limit),
            ).fetchone()
            latest = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])
            upto = int(edge[0]) if edge else latest
            rows = db.execute(
                "SELECT r.id, r.scope_id, s.app, s.project, s.track, s.owner, r.entry_id, r.session_id, r.cell_id,"
                " r.parent_type, r.parent_id, r.sender_ids, r.labels, r.sender_name, r.timestamp_ms, r.updated_ms, r.ordinal,"
                f" r.status, r.hidden, r.text, {tokens}, r.fields, e.data, p.path, r.source FROM rows r JOIN scopes s"
                f" ON s.id = r.scope_id JOIN paths p ON p.id = r.path_id LEFT JOIN {text}_content {text} ON {text}.id = r.id LEFT JOIN v.models m"
                " ON m.name = ? LEFT JOIN v.vectors e ON e.model = m.id AND e.key = r.embed_key"
                " WHERE r.kind = ? AND r.version > ? AND r.version <= ?",
                (model, kind, version, upto),
            ).fetchall()
            gone = db.execute(
                "SELECT id FROM gone WHERE kind = ? AND version > ? AND version <= ?", (kind, version, upto)
            ).fetchall()
            return upto, rows, gone

        upto, rows, gone = self._db.read(ask)
        return upto, _columns(rows), [row[0] for row in gone]

    def version(self) -> int:
        """The latest change of any scope."""
        return int(
            self._db.read(lambda db: db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])
        )


_WHOLE = (
    "id", "scope", "app", "project", "track", "owner", "entry_id", "session_id", "cell_id", "parent_type", "parent_id",
    "senders", "labels", "sender_name", "timestamp_ms", "updated_ms", "ordinal", "status", "hidden", "text", "tokens", "metadata",
    "vector", "path", "source",
)  # fmt: skip


def _packed(vectors: Mapping[bytes, np.ndarray]) -> list[tuple[bytes, bytes]]:
    """Each vector as the bytes that are kept of it."""
    import numpy as np

    data = np.array(list(vectors.values()), np.float16)
    return [(key, row.tobytes()) for key, row in zip(vectors, data, strict=True)]


def _columns(rows: Sequence[Sequence[Any]]) -> dict[str, Sequence[Any]]:
    found: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(_WHOLE)
    columns = dict(zip(_WHOLE, found, strict=True))
    columns["senders"] = list(map(unpacked, columns["senders"]))
    columns["labels"] = list(map(unpacked, columns["labels"]))
    columns["hidden"] = list(map(bool, columns["hidden"]))
    columns["tags"] = [_tags(metadata) if '"tags"' in metadata else [] for metadata in columns["metadata"]]
    return columns


def _tags(metadata: str) -> list[str]:
    tags = json.loads(metadata).get("tags")
    return [str(tag) for tag in tags] if isinstance(tags, list) else []
