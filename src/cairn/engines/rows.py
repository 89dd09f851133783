"""The index on SQLite: rows, full text and vectors in `.index/sqlite/`.

`index.db` has one row per searchable thing and an FTS5 table over our own token stream; `vectors.db` holds
each vector once, by model and by hash of the embedded text, so that it outlives a rebuild. Only the holder of
the indexer's lease writes; every change carries a growing version, so that readers refresh what they hold.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database
from cairn.engines.warm import WarmScopes
from cairn.engines.warm_words import WarmWords
from cairn.retrieval.corpus import Corpus, Row, text_flags
from cairn.retrieval.embedding_text import searched_words
from cairn.retrieval.filters import NOTHING_ASKED, Group, packed_senders
from cairn.retrieval.rows import HIDDEN_STATUSES, PAGE_ORDER, NewRow, Page, Pending, Stored, embed_key
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

    from cairn.retrieval.rows import Mirror

_SCHEMA = """
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('version', CAST(strftime('%s', 'now') AS INTEGER) * 1000), ('model', ''), ('trimmed', 0), ('cleared', 0);
CREATE TABLE scopes(
    id INTEGER PRIMARY KEY, app TEXT NOT NULL, project TEXT NOT NULL, track TEXT NOT NULL, owner TEXT NOT NULL,
    version INTEGER NOT NULL, worded INTEGER NOT NULL DEFAULT 0,
    UNIQUE (app, project, track, owner));
CREATE TABLE paths(id INTEGER PRIMARY KEY, path TEXT NOT NULL UNIQUE, cursor TEXT);
CREATE TABLE rows(
    id INTEGER PRIMARY KEY AUTOINCREMENT, scope_id INTEGER NOT NULL, kind TEXT NOT NULL, entry_id TEXT NOT NULL,
    path_id INTEGER NOT NULL, text TEXT NOT NULL, embedded TEXT, fields TEXT NOT NULL, content_sha256 TEXT NOT NULL,
    source BLOB NOT NULL, timestamp_ms INTEGER NOT NULL, updated_ms INTEGER NOT NULL, session_id TEXT, cell_id TEXT,
    parent_type TEXT, parent_id TEXT, sender_ids TEXT NOT NULL, sender_name TEXT, ordinal INTEGER NOT NULL,
    status TEXT NOT NULL, hidden INTEGER NOT NULL, damaged INTEGER NOT NULL DEFAULT 0,
    flags INTEGER NOT NULL, length INTEGER NOT NULL, embed_key BLOB NOT NULL, pending INTEGER NOT NULL,
    version INTEGER NOT NULL, worded INTEGER NOT NULL, UNIQUE (path_id, scope_id, entry_id));
CREATE INDEX rows_entry ON rows(scope_id, entry_id);
CREATE INDEX rows_version ON rows(scope_id, version);
CREATE INDEX rows_worded ON rows(scope_id, worded);
CREATE INDEX rows_page ON rows(scope_id, kind, hidden, timestamp_ms);
CREATE INDEX rows_pending ON rows(id) WHERE pending = 1;
CREATE TABLE gone(version INTEGER NOT NULL, scope_id INTEGER NOT NULL, id INTEGER NOT NULL);
CREATE INDEX gone_version ON gone(scope_id, version);
"""
# `version` moves with anything about a row, its vector included; `worded` only with what is written.
# BM25 weighs a row against the mean length of its table: one line of talk must not be measured against whole
# episodes, so each sort of text has its own.
_FULL_TEXT = ("fts_message", "fts_episode", "fts_entry")
_SCHEMA += ";".join(
    f"""
CREATE VIRTUAL TABLE {table} USING fts5(scope, tokens, tokenize = "ascii tokenchars '_'");
INSERT INTO {table}({table}, rank) VALUES ('rank', 'bm25(0.0, 1.0)');
CREATE VIRTUAL TABLE {table}_words USING fts5vocab('{table}', 'col')"""
    for table in _FULL_TEXT
)
_VECTORS = """
CREATE TABLE models(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, dimensions INTEGER NOT NULL);
CREATE TABLE vectors(id INTEGER PRIMARY KEY, model INTEGER NOT NULL, key BLOB NOT NULL, data BLOB NOT NULL,
    UNIQUE (model, key))
"""
_COLUMNS = (
    "r.id, r.kind, s.app, s.project, s.track, s.owner, r.entry_id, p.path, r.text, r.timestamp_ms, r.session_id,"
    " r.cell_id, r.parent_type, r.parent_id, r.sender_ids, r.sender_name, r.fields, r.updated_ms, r.ordinal,"
    " r.status, r.content_sha256, r.damaged"
)
_FROM = "FROM rows r JOIN scopes s ON s.id = r.scope_id JOIN paths p ON p.id = r.path_id"
_GONE_KEPT = 200_000
# Bump when rows or tokens are made differently: the index is then made anew from the notes.
SCHEMA_VERSION = 5
_VECTORS_VERSION = 1


class SqliteIndex:
    """Rows of every scope: `SearchIndex` and `Pages` for readers, `RowStore` for the indexer.

    Args:
        directory: The index directory; the files are below `sqlite/`.
        memory_rows: Scopes with more rows keep their vectors on disk.
        memory_bytes: How much the warm arrays of all scopes may take together.
    """

    def __init__(
        self, directory: Path, *, memory_rows: int = 120_000, memory_bytes: int = 256 * 1024 * 1024
    ) -> None:
        self._vectors = Database(directory / "sqlite" / "vectors.db", _VECTORS, version=_VECTORS_VERSION)
        self._db = Database(
            directory / "sqlite" / "index.db", _SCHEMA, version=SCHEMA_VERSION, attach={"v": self._vectors}
        )
        self._words = WarmWords(self._db, rows=4 * memory_rows, memory_bytes=memory_bytes // 4)
        self._warm = WarmScopes(self._db, memory_rows=memory_rows, memory_bytes=memory_bytes)
        self.mirror: Mirror | None = None
        self._model = ""

    @property
    def generation(self) -> str:
        """Which index this is: another value means that its rows are, or are to be, made anew."""
        query = "SELECT generation || ':' || value FROM birth, meta WHERE key = 'cleared'"
        return str(self._db.read(lambda db: db.execute(query).fetchone()[0]))

    @property
    def database(self) -> Database:
        return self._db

    @property
    def model(self) -> str:
        """The embedder whose vectors are served: the one chosen here, else the one the rows have; "" for none."""
        return self._model or self.wanted_model()

    def use_model(self, model: str) -> None:
        """Serve vectors of `model` only. Vectors of any other model are never compared with a query."""
        self._model = model

    # ---- reading -------------------------------------------------------------------------------------------

    def corpus(self, scope: Scope) -> Corpus:
        """The scope's rows as arrays; the same object until one of them changes."""
        return self._warm.get(scope, self.model)

    def lexical(self, scope: Scope, terms: Sequence[str], *, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Rowids and BM25 scores of the rows that hold any term, best first.

        From memory where the scope's words are held there, from the full text on disk otherwise.
        """
        import numpy as np

        postings = self._words.get(scope) if terms else None
        if postings is not None:
            return _best(*postings.scores(terms), limit)

        def ask(db: sqlite3.Connection) -> list[tuple[int, float]]:
            number = _scope_number(db, scope)
            if number is None:
                return []
            query = f'scope : "s{number}" AND tokens : ({" OR ".join(_quoted(term) for term in terms)})'
            found: list[tuple[int, float]] = []
            for table in _FULL_TEXT:
                asked = f"SELECT rowid, -rank FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?"
                found += db.execute(asked, (query, limit)).fetchall()
            return sorted(found, key=lambda pair: -pair[1])

        found = self._db.read(ask) if terms else []
        return (
            np.fromiter((row[0] for row in found), np.int64, len(found)),
            np.fromiter((row[1] for row in found), np.float64, len(found)),
        )

    def nearest(self, scope: Scope, vector: np.ndarray, *, limit: int) -> tuple[np.ndarray, np.ndarray]:
        """Rowids and cosines of the rows nearest to a unit vector, best first.

        Exact from memory where the scope is held there. A large scope is asked of the mirror; what the mirror
        has not seen yet is scored here, and what it holds of changed or removed rows is not counted.
        """
        import numpy as np

        corpus = self.corpus(scope)
        if corpus.vectors is not None:
            scores = corpus.vectors @ np.asarray(vector, np.float32)
            scores = np.where(corpus.has_vector, scores, -np.inf)
            return _best(corpus.rowid, scores, limit)
        if not corpus.has_vector.any():
            return np.empty(0, np.int64), np.empty(0, np.float32)
        return self._from_disk(scope, np.asarray(vector, np.float32), limit)

    def _from_disk(self, scope: Scope, vector: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
        import numpy as np

        seen, served = 0, self.model
        near: Mapping[int, bytes] = {}
        if self.mirror is not None:
            seen, near = self.mirror.nearest(scope, vector, limit, generation=self.generation, model=served)

        def ask(db: sqlite3.Connection) -> list[tuple[int, bytes]]:
            number = _scope_number(db, scope)
            model = _model_number(db, served)
            join = "JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            rows: list[tuple[int, bytes]] = []
            for part in _parts(list(near)):
                marks = ",".join("?" * len(part))
                found = db.execute(
                    f"SELECT r.id, e.data, r.embed_key FROM rows r {join} WHERE +r.scope_id = ? AND +r.version <= ?"
                    f" AND r.id IN ({marks})",
                    (model, number, seen, *part),
                )
                rows.extend((row[0], row[1]) for row in found if row[2] == near[row[0]])
            newer = f"SELECT r.id, e.data FROM rows r {join} WHERE r.scope_id = ? AND r.version > ?"
            rows.extend(db.execute(newer, (model, number, seen)).fetchall())
            return rows

        rows = self._db.read(ask)
        if not rows:
            return np.empty(0, np.int64), np.empty(0, np.float32)
        ids = np.fromiter((row[0] for row in rows), np.int64, len(rows))
        data = np.frombuffer(b"".join(row[1] for row in rows), np.float16).reshape(len(rows), -1)
        return _best(ids, data.astype(np.float32) @ vector, limit)

    def matching(self, scope: Scope, where: Group) -> np.ndarray:
        """Rowids of the scope's rows that pass a filter, ascending."""
        import numpy as np

        condition, values = where.to_sql()

        def ask(db: sqlite3.Connection) -> list[tuple[int]]:
            number = _scope_number(db, scope)
            query = f"SELECT id FROM rows WHERE scope_id = ? AND {condition} ORDER BY id"
            return db.execute(query, (number, *values)).fetchall()

        found = self._db.read(ask)
        return np.fromiter((row[0] for row in found), np.int64, len(found))

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        """The rows themselves, in the order asked; those of another scope and those gone are left out."""

        def ask(db: sqlite3.Connection) -> dict[int, Row]:
            number = _scope_number(db, scope)
            found: dict[int, Row] = {}
            for part in _parts([int(rowid) for rowid in rowids]):
                marks = ",".join("?" * len(part))
                # The plus keeps SQLite to the few rowids: an index on the scope would walk all of its rows.
                query = f"SELECT {_COLUMNS} {_FROM} WHERE +r.scope_id = ? AND r.id IN ({marks})"
                found.update((row[0], _row(row, scope)) for row in db.execute(query, (number, *part)))
            return found

        by_id = self._db.read(ask)
        return [by_id[int(rowid)] for rowid in rowids if int(rowid) in by_id]

    def find(self, scope: Scope, entry_ids: Sequence[str], kind: str | None = None) -> list[Row]:
        """Rows of `scope` by entry id (`E54`: an id alone names nothing; it is asked within its scope)."""

        def ask(db: sqlite3.Connection) -> list[Row]:
            number = _scope_number(db, scope)
            found: list[Row] = []
            for part in _parts(list(entry_ids)):
                marks = ",".join("?" * len(part))
                query = f"SELECT {_COLUMNS} {_FROM} WHERE r.scope_id = ? AND r.entry_id IN ({marks})"
                found.extend(_row(row, scope) for row in db.execute(query, (number, *part)))
            return [row for row in found if kind is None or row.kind == kind]

        return self._db.read(ask)

    def page(
        self,
        scope: Scope,
        kinds: Sequence[str],
        *,
        where: Group = NOTHING_ASKED,
        sort: str = "timestamp",
        descending: bool = True,
        offset: int = 0,
        limit: int = 20,
        hidden: bool = False,
    ) -> Page:
        """One page of rows with the exact total; deprecated and archived rows only with `hidden`."""
        condition, values = where.to_sql()
        column = PAGE_ORDER[sort]
        direction = "DESC" if descending else "ASC"
        visible = "" if hidden else " AND r.hidden = 0"
        marks = ",".join("?" * len(kinds))

        def ask(db: sqlite3.Connection) -> Page:
            number = _scope_number(db, scope)
            chosen = f"WHERE r.scope_id = ? AND r.kind IN ({marks}){visible} AND {condition}"
            bound = (number, *kinds, *values)
            total = int(db.execute(f"SELECT count(*) FROM rows r {chosen}", bound).fetchone()[0])
            if offset >= total:
                return Page((), total)
            ids = db.execute(
                f"SELECT r.id FROM rows r {chosen} ORDER BY r.{column} {direction}, r.entry_id {direction}"
                " LIMIT ? OFFSET ?",
                (*bound, limit, offset),
            ).fetchall()
            return Page(tuple(row[0] for row in ids), total)

        return self._db.read(ask)

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of the scope's rows each term occurs; terms that occur nowhere are missing.

        For a scope that is too large to hold in memory the whole index is counted instead.
        """
        wanted = list(terms)
        postings = self._words.get(scope)
        if postings is not None:
            return postings.frequencies(wanted)

        def ask(db: sqlite3.Connection) -> dict[str, int]:
            found: dict[str, int] = {}
            for table in _FULL_TEXT:
                query = f"SELECT doc FROM {table}_words WHERE term = ? AND col = 'tokens'"
                for term in wanted:
                    row = db.execute(query, (term,)).fetchone()
                    if row is not None:
                        found[term] = found.get(term, 0) + int(row[0])
            return found

        return self._db.read(ask)

    def scopes(self, space: Space | None = None) -> list[tuple[Scope, dict[str, int]]]:
        """Every scope that has rows, with their number by kind."""

        def ask(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(
                "SELECT s.app, s.project, s.track, s.owner, r.kind, count(*) FROM rows r JOIN scopes s"
                " ON s.id = r.scope_id GROUP BY s.id, r.kind ORDER BY 1, 2, 3, 4, 5"
            ).fetchall()

        found: dict[Scope, dict[str, int]] = {}
        for app, project, track, owner, kind, count in self._db.read(ask):
            scope = Scope(Space(app, project), track, owner)
            if space is None or scope.space == space:
                found.setdefault(scope, {})[kind] = count
        return list(found.items())

    # ---- writing (the holder of the indexer's lease only) ---------------------------------------------------

    def stored(self, path: str) -> dict[tuple[Scope, str], Stored]:
        """What the index holds of a file, by scope and entry id."""

        def ask(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(
                "SELECT s.app, s.project, s.track, s.owner, r.entry_id, r.id, r.source, r.damaged, r.cell_id"
                f" {_FROM} WHERE p.path = ?",
                (path,),
            ).fetchall()

        return {
            (Scope(Space(row[0], row[1]), row[2], row[3]), row[4]): Stored(
                row[5], row[6], bool(row[7]), row[8]
            )
            for row in self._db.read(ask)
        }

    def cursor(self, path: str) -> str | None:
        """What was noted for a session log when it was last read; None where nothing was."""
        found = self._db.read(
            lambda db: db.execute("SELECT cursor FROM paths WHERE path = ?", (path,)).fetchone()
        )
        return found[0] if found else None

    def apply(
        self,
        rows: Sequence[NewRow],
        *,
        removed: Sequence[int] = (),
        damaged: Sequence[int] = (),
        cursors: Mapping[str, str] | None = None,
    ) -> int:
        """Make `rows` the truth about their entries and drop `removed`, in one transaction; return the version.

        A row whose words did not change keeps its full text and its vector. `damaged` rows stay as they are
        and are marked.
        """
        made = [_prepared(new) for new in rows]
        model = self._model

        def change(db: sqlite3.Connection) -> int:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            scopes: dict[Scope, int] = {}
            paths: dict[str, int] = {}
            touched: set[int] = set()
            number = _model_number(db, model)
            for new, values in zip(rows, made, strict=True):
                scope_id = scopes.get(new.row.scope) or _scope_made(db, new.row.scope, scopes)
                path_id = paths.get(new.row.path) or _path_made(db, new.row.path, paths)
                touched.add(scope_id)
                _put(db, new, values, scope_id, path_id, number, version)
            for rowid in (*removed, *damaged):
                found = db.execute("SELECT scope_id FROM rows WHERE id = ?", (rowid,)).fetchone()
                if found:
                    touched.add(found[0])
            for rowid in removed:
                db.execute("INSERT INTO gone SELECT ?, scope_id, id FROM rows WHERE id = ?", (version, rowid))
                kind = db.execute("SELECT kind FROM rows WHERE id = ?", (rowid,)).fetchone()
                db.execute("DELETE FROM rows WHERE id = ?", (rowid,))
                if kind:
                    db.execute(f"DELETE FROM {_full_text(kind[0])} WHERE rowid = ?", (rowid,))
            db.executemany(
                "UPDATE rows SET damaged = 1, source = x'', version = ? WHERE id = ?",
                [(version, i) for i in damaged],
            )
            for path, cursor in (cursors or {}).items():
                _path_made(db, path, paths)
                db.execute("UPDATE paths SET cursor = ? WHERE path = ?", (cursor, path))
            db.executemany(
                "UPDATE scopes SET version = ?1, worded = ?1 WHERE id = ?2", [(version, i) for i in touched]
            )
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
            return version

        return self._db.write(change)

    def forget_paths(self, paths: Sequence[str]) -> None:
        """Drop what is noted about files that are gone."""
        marks = [(path,) for path in paths]
        self._db.write(
            lambda db: db.executemany(
                "DELETE FROM paths WHERE path = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE path_id = paths.id)",
                marks,
            )
        )

    def known_paths(self) -> list[str]:
        """Every file that has rows or a cursor."""
        return [row[0] for row in self._db.read(lambda db: db.execute("SELECT path FROM paths").fetchall())]

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

    def pending_count(self) -> int:
        return int(
            self._db.read(lambda db: db.execute("SELECT count(*) FROM rows WHERE pending = 1").fetchone()[0])
        )

    def have_vectors(self, keys: Sequence[bytes]) -> set[bytes]:
        """Which of these texts have a vector of the current model already."""

        def ask(db: sqlite3.Connection) -> set[bytes]:
            number = _model_number(db, self._model)
            found: set[bytes] = set()
            for part in _parts(list(keys)):
                query = f"SELECT key FROM v.vectors WHERE model = ? AND key IN ({','.join('?' * len(part))})"
                found.update(row[0] for row in db.execute(query, (number, *part)))
            return found

        return self._db.read(ask)

    def put_vectors(self, rows: Sequence[Pending], fresh: Mapping[bytes, np.ndarray]) -> int:
        """Keep `fresh` vectors by key and mark `rows` as having theirs; return the version."""
        import numpy as np

        wanted = self._still_wanted(rows) if fresh else frozenset()
        data = [
            (self._model, key, np.asarray(vector, np.float16).tobytes())
            for key, vector in fresh.items()
            if key in wanted
        ]

        def keep(db: sqlite3.Connection) -> None:
            dimensions = len(data[0][2]) // 2
            db.execute(
                "INSERT OR IGNORE INTO models(name, dimensions) VALUES (?, ?)", (self._model, dimensions)
            )
            db.executemany(
                "INSERT OR REPLACE INTO vectors(model, key, data) SELECT id, ?2, ?3 FROM models WHERE name = ?1",
                data,
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
            for part in _parts([row.rowid for row in rows]):
                marks = ",".join("?" * len(part))
                found.update(
                    row[0] for row in db.execute(f"SELECT embed_key FROM rows WHERE id IN ({marks})", part)
                )
            return frozenset(found)

        return self._db.read(ask)

    def clear(self) -> None:
        """Drop every row for a rebuild; vectors stay, since they are named by what was embedded.

        Anyone may ask: the generation changes, so the indexer sees that every file is to be read again.
        """

        def wipe(db: sqlite3.Connection) -> None:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            db.execute("DELETE FROM rows")
            for table in _FULL_TEXT:
                db.execute(f"DELETE FROM {table}")
            db.execute("DELETE FROM paths")
            db.execute("DELETE FROM gone")
            db.execute("UPDATE scopes SET version = ?1, worded = ?1", (version,))
            db.execute("UPDATE meta SET value = ? WHERE key IN ('version', 'trimmed')", (version,))
            db.execute("UPDATE meta SET value = value + 1 WHERE key = 'cleared'")

        self._db.write(wipe)

    # ---- maintenance ----------------------------------------------------------------------------------------

    def maintain(self, *, budget_seconds: float = 1.0) -> dict[str, int]:
        """Merge full-text segments, drop vectors nobody needs, trim the list of removals. Bounded in time."""
        until = time.monotonic() + budget_seconds
        merged = 0
        while time.monotonic() < until:
            before, after = self._db.write(_merge_step)
            merged += 1
            if after - before < 2:
                break
        done = {"merges": merged, "gone": self._db.write(_trim_gone), "vectors": self._drop_unused()}
        self._db.shrink()
        self._vectors.shrink()
        return done

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
                (_model_number(db, self._model),),
            ).fetchall()

        found = self._db.read(unused) if self._model else []
        if found:
            self._vectors.write(lambda db: db.executemany("DELETE FROM vectors WHERE id = ?", found))
        return len(found)

    def scrub(self) -> bool:
        """Leave no byte of removed rows on disk: full text, rows, vectors, logs. False if readers held on.

        For `forget`: costs a rewrite of the files, so it is not part of everyday maintenance.
        """

        def optimize(db: sqlite3.Connection) -> None:
            for table in _FULL_TEXT:
                db.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")

        self._db.write(optimize)
        query = "SELECT id FROM v.vectors WHERE key NOT IN (SELECT embed_key FROM rows)"
        found = self._db.read(lambda db: db.execute(query).fetchall())
        if found:
            self._vectors.write(lambda db: db.executemany("DELETE FROM vectors WHERE id = ?", found))
        scrubbed = self._vectors.scrub()
        return self._db.scrub() and scrubbed

    def size_bytes(self) -> int:
        """What the files take on disk."""
        folder = self._db.path.parent
        return sum(
            file.stat().st_size for base in ("index.db", "vectors.db") for file in folder.glob(f"{base}*")
        )

    def version(self) -> int:
        """The latest change of any scope."""
        return int(
            self._db.read(lambda db: db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0])
        )

    # ---- for the mirror -------------------------------------------------------------------------------------

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
        query = "SELECT (SELECT count(*) FROM rows WHERE version > ?1) + (SELECT count(*) FROM gone WHERE version > ?1)"
        return int(self._db.read(lambda db: db.execute(query, (since,)).fetchone()[0]))

    def since(self, version: int, model: str, limit: int) -> tuple[int, list[dict[str, Any]], list[int]]:
        """The next changes after `version`: up to which version they go, rows with their vectors, ids gone."""
        import numpy as np

        tokens = ", ".join(f"{table}.tokens" for table in _FULL_TEXT)
        texts = " ".join(f"LEFT JOIN {table} ON {table}.rowid = r.id" for table in _FULL_TEXT)

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

    def close(self) -> None:
        self._warm.clear()
        self._db.close()
        self._vectors.close()


def _prepared(new: NewRow) -> tuple[str, int, int, bytes, bool]:
    """Tokens, flags, length, embed key and whether hidden; made outside of the transaction."""
    row = new.row
    tokens = searched_words(row.kind, row.text, row.sender_ids[0] if row.sender_ids else "", row.sender_name)
    hidden = row.status in HIDDEN_STATUSES
    return (
        " ".join(tokens),
        text_flags(row.text, hidden=hidden),
        len(tokens),
        embed_key(new.embedded or row.text),
        hidden,
    )


def _put(
    db: sqlite3.Connection,
    new: NewRow,
    made: tuple[str, int, int, bytes, bool],
    scope_id: int,
    path_id: int,
    model: int | None,
    version: int,
) -> None:
    row = new.row
    tokens, flags, length, key, hidden = made
    has = (
        model is not None
        and db.execute("SELECT 1 FROM v.vectors WHERE model = ? AND key = ?", (model, key)).fetchone()
    )
    values: dict[str, Any] = {
        "scope_id": scope_id,
        "kind": row.kind,
        "entry_id": row.entry_id,
        "path_id": path_id,
        "text": row.text,
        "embedded": new.embedded if new.embedded != row.text else None,
        "fields": json.dumps(dict(row.fields), ensure_ascii=False, default=str),
        "content_sha256": row.content_sha256,
        "source": new.source,
        "timestamp_ms": row.timestamp_ms,
        "updated_ms": row.updated_ms,
        "session_id": row.session_id or None,
        "cell_id": row.cell_id or None,
        "parent_type": row.parent_type or None,
        "parent_id": row.parent_id or None,
        "sender_ids": packed_senders(row.sender_ids),
        "sender_name": row.sender_name,
        "ordinal": row.ordinal,
        "status": row.status,
        "hidden": hidden,
        "damaged": row.damaged,
        "flags": flags,
        "length": length,
        "embed_key": key,
        "pending": not has,
        "version": version,
        "worded": version,
    }
    table = _full_text(row.kind)
    old = db.execute(
        "SELECT id, text FROM rows WHERE path_id = ? AND scope_id = ? AND entry_id = ?",
        (path_id, scope_id, row.entry_id),
    ).fetchone()
    if old is None:
        names, marks = ", ".join(values), ", ".join(f":{name}" for name in values)
        rowid = db.execute(f"INSERT INTO rows({names}) VALUES ({marks})", values).lastrowid
    else:
        rowid = old[0]
        sets = ", ".join(f"{name} = :{name}" for name in values)
        db.execute(f"UPDATE rows SET {sets} WHERE id = :id", {**values, "id": rowid})
        if old[1] == row.text:
            return
        db.execute(f"DELETE FROM {table} WHERE rowid = ?", (rowid,))
    db.execute(f"INSERT INTO {table}(rowid, scope, tokens) VALUES (?, ?, ?)", (rowid, f"s{scope_id}", tokens))


def _full_text(kind: str) -> str:
    table = f"fts_{kind}"
    return table if table in _FULL_TEXT else "fts_entry"


def _merge_step(db: sqlite3.Connection) -> tuple[int, int]:
    before = db.total_changes
    for table in _FULL_TEXT:
        db.execute(f"INSERT INTO {table}({table}, rank) VALUES ('merge', 300)")
    return before, db.total_changes


def _trim_gone(db: sqlite3.Connection) -> int:
    """Keep the list of removals short; readers older than what was trimmed load their scope anew."""
    if int(db.execute("SELECT count(*) FROM gone").fetchone()[0]) <= _GONE_KEPT:
        return 0
    edge = int(db.execute("SELECT max(version) FROM gone").fetchone()[0])
    db.execute("UPDATE meta SET value = ? WHERE key = 'trimmed'", (edge,))
    return db.execute("DELETE FROM gone").rowcount


def _scope_number(db: sqlite3.Connection, scope: Scope) -> int | None:
    query = "SELECT id FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?"
    found = db.execute(query, (scope.space.app, scope.space.project, scope.track, scope.owner)).fetchone()
    return int(found[0]) if found else None


def _scope_made(db: sqlite3.Connection, scope: Scope, known: dict[Scope, int]) -> int:
    db.execute(
        "INSERT OR IGNORE INTO scopes(app, project, track, owner, version) VALUES (?, ?, ?, ?, 0)",
        (scope.space.app, scope.space.project, scope.track, scope.owner),
    )
    number = _scope_number(db, scope)
    assert number is not None
    known[scope] = number
    return number


def _path_made(db: sqlite3.Connection, path: str, known: dict[str, int]) -> int:
    db.execute("INSERT OR IGNORE INTO paths(path) VALUES (?)", (path,))
    known[path] = int(db.execute("SELECT id FROM paths WHERE path = ?", (path,)).fetchone()[0])
    return known[path]


def _model_number(db: sqlite3.Connection, model: str) -> int | None:
    if not model:
        return None
    found = db.execute("SELECT id FROM v.models WHERE name = ?", (model,)).fetchone()
    return int(found[0]) if found else None


def _row(row: Sequence[Any], scope: Scope) -> Row:
    return Row(
        rowid=row[0],
        kind=row[1],
        scope=scope,
        entry_id=row[6],
        path=row[7],
        text=row[8],
        timestamp_ms=row[9],
        session_id=row[10],
        cell_id=row[11],
        parent_type=row[12],
        parent_id=row[13],
        sender_ids=tuple(row[14].strip("\n").split("\n")) if row[14] else (),
        sender_name=row[15],
        fields=json.loads(row[16]),
        updated_ms=row[17],
        ordinal=row[18],
        status=row[19],
        content_sha256=row[20],
        damaged=bool(row[21]),
    )


def _quoted(term: str) -> str:
    return '"' + term.replace('"', '""').replace("\0", "") + '"'


def _parts(values: list[Any], size: int = 500) -> Iterable[list[Any]]:
    return (values[start : start + size] for start in range(0, len(values), size))


def _best(ids: np.ndarray, scores: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    if limit < len(ids):
        top = np.argpartition(-scores, limit)[:limit]
        ids, scores = ids[top], scores[top]
    order = np.argsort(-scores, kind="stable")
    ids, scores = ids[order], scores[order]
    real = scores > -np.inf
    return ids[real], scores[real]
