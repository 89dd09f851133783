"""The vectors of the rows: which are wanted, which wait, which nobody needs, and what a mirror has to follow."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database
from cairn.engines.row_tables import FULL_TEXT, drop_vectors, model_number, parts, scope_number
from cairn.retrieval.rows import TOKEN_DIMENSIONS, Pending
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_BLOCK_ROWS = 8192


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
        return self._model or self.wanted_model()

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

    def pending(self, limit: int) -> list[Pending]:
        """Rows whose vector is missing, newest first, so that what was just written is found soonest."""
        query = "SELECT id, embed_key, coalesce(embedded, text) FROM rows WHERE pending = 1 ORDER BY id DESC LIMIT ?"
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

        def ask(db: sqlite3.Connection) -> set[bytes]:
            number = model_number(db, self._model)
            found: set[bytes] = set()
            for part in parts(list(keys)):
                query = f"SELECT key FROM v.vectors WHERE model = ? AND key IN ({','.join('?' * len(part))})"
                found.update(row[0] for row in db.execute(query, (number, *part)))
            return found

        return self._db.read(ask)

    def put_vectors(
        self,
        rows: Sequence[Pending],
        fresh: Mapping[bytes, np.ndarray],
        tokens: Mapping[bytes, np.ndarray] | None = None,
    ) -> int:
        """Keep `fresh` vectors and those of word pieces by key, and mark `rows` as having theirs; return the version."""
        import numpy as np

        wanted = self._still_wanted(rows) if fresh else frozenset()
        data = [
            (key, np.asarray(vector, np.float16).tobytes(), self._model)
            for key, vector in fresh.items()
            if key in wanted
        ]

        pieces = [
            (key, found.tobytes(), self._model) for key, found in (tokens or {}).items() if key in wanted
        ]

        def keep(db: sqlite3.Connection) -> None:
            dimensions = len(data[0][1]) // 2
            db.execute(
                "INSERT OR IGNORE INTO models(name, dimensions) VALUES (?, ?)", (self._model, dimensions)
            )
            db.executemany(
                "INSERT OR REPLACE INTO vectors(model, key, data) SELECT id, ?, ? FROM models WHERE name = ?",
                data,
            )
            db.executemany(
                "INSERT OR REPLACE INTO tokens(model, key, data) SELECT id, ?, ? FROM models WHERE name = ?",
                pieces,
            )

        def mark(db: sqlite3.Connection) -> int:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            for row in rows:
                # A row that was rewritten meanwhile has another text and stays pending.
                db.execute(
                    "UPDATE rows SET pending = 0, version = ? WHERE id = ? AND embed_key = ?",
                    (version, row.rowid, row.key),
                )
            db.execute(
                "UPDATE scopes SET version = ? WHERE id IN (SELECT scope_id FROM rows WHERE version = ?)",
                (version, version),
            ) if len(rows) > 200 else db.executemany(
                "UPDATE scopes SET version = ? WHERE id = (SELECT scope_id FROM rows WHERE id = ?)",
                [(version, row.rowid) for row in rows],
            )
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
            return version

        if data:
            self._vectors.write(keep)
        return self._db.write(mark)

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
        """Remove vectors without a row, once every row has its own; a margin is kept for undone edits."""

        def unused(db: sqlite3.Connection) -> list[tuple[int]]:
            rows, held = (
                int(db.execute(query).fetchone()[0])
                for query in ("SELECT count(*) FROM rows", "SELECT count(*) FROM v.vectors")
            )
            waiting = db.execute("SELECT 1 FROM rows WHERE pending = 1 LIMIT 1").fetchone()
            if waiting or not rows or held <= rows * 1.25 + 1000:
                return []
            return db.execute(
                "SELECT e.id FROM v.vectors e WHERE e.model IS NOT ? OR e.key NOT IN (SELECT embed_key FROM rows)",
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

    def _stored_vectors(self, scope: Scope) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """The rowids and vectors of a scope, read from disk block by block, a snapshot each."""
        import numpy as np

        query = (
            "SELECT r.id, e.data FROM rows r JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            " WHERE r.scope_id = ? AND r.id > ? ORDER BY r.id LIMIT ?"
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

    def changed_count(self, since: int) -> int:
        """How many rows changed or went after a version."""
        query = "SELECT (SELECT count(*) FROM rows WHERE version > ?) + (SELECT count(*) FROM gone WHERE version > ?)"
        return int(self._db.read(lambda db: db.execute(query, (since, since)).fetchone()[0]))

    def since(self, version: int, model: str, limit: int) -> tuple[int, list[dict[str, Any]], list[int]]:
        """The next changes after `version`: up to which version they go, rows with their vectors, ids gone."""
        import numpy as np

        tokens = ", ".join(f"{table}.tokens" for table in FULL_TEXT)
        texts = " ".join(f"LEFT JOIN {table} ON {table}.rowid = r.id" for table in FULL_TEXT)

        def ask(db: sqlite3.Connection) -> tuple[int, list[tuple[Any, ...]], list[tuple[int]]]:
            edge = db.execute(
                "SELECT version FROM rows WHERE version > ? ORDER BY version LIMIT 1 OFFSET ?",
                (version, limit),
            ).fetchone()
            latest = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])
            upto = int(edge[0]) if edge else latest
            rows = db.execute(
                "SELECT r.id, s.app, s.project, s.track, s.owner, r.kind, coalesce(r.session_id, ''), r.timestamp_ms,"
                f" coalesce({tokens}, ''), hex(r.embed_key), e.data FROM rows r JOIN scopes s ON s.id = r.scope_id"
                f" {texts} JOIN v.models m ON m.name = ?"
                " JOIN v.vectors e ON e.model = m.id AND e.key = r.embed_key WHERE r.version > ? AND r.version <= ?",
                (model, version, upto),
            ).fetchall()
            gone = db.execute(
                "SELECT id FROM gone WHERE version > ? AND version <= ?", (version, upto)
            ).fetchall()
            return upto, rows, gone

        upto, rows, gone = self._db.read(ask)
        names = ("id", "app", "project", "track", "owner", "kind", "session", "timestamp_ms", "tokens", "key")
        made = [
            dict(zip(names, row, strict=False))
            | {"model": model, "vector": np.frombuffer(row[10], np.float16).astype(np.float32)}
            for row in rows
        ]
        return upto, made, [row[0] for row in gone]

    def version(self) -> int:
        """The latest change of any scope."""
        return int(
            self._db.read(lambda db: db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])
        )
