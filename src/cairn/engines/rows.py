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
from cairn.engines.row_tables import (
    FULL_TEXT,
    SCHEMA,
    SCHEMA_VERSION,
    VECTORS,
    VECTORS_VERSION,
    drop_vectors,
    full_text,
    merge_step,
    model_number,
    parts,
    path_made,
    prepared,
    put_row,
    scope_made,
    scope_number,
    trim_gone,
)
from cairn.engines.row_vectors import RowVectors
from cairn.engines.warm import WarmScopes
from cairn.engines.warm_words import WarmWords
from cairn.retrieval.corpus import Corpus, Row
from cairn.retrieval.filters import NOTHING_ASKED, Group
from cairn.retrieval.rows import PAGE_ORDER, NewRow, Page, Stored
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

    from cairn.retrieval.rows import Mirror

_COLUMNS = (
    "r.id, r.kind, s.app, s.project, s.track, s.owner, r.entry_id, p.path, r.text, r.timestamp_ms, r.session_id,"
    " r.cell_id, r.parent_type, r.parent_id, r.sender_ids, r.sender_name, r.fields, r.updated_ms, r.ordinal,"
    " r.status, r.content_sha256, r.damaged"
)
_COVERED_ROWS = 4000
_FROM = "FROM rows r JOIN scopes s ON s.id = r.scope_id JOIN paths p ON p.id = r.path_id"


class SqliteIndex(RowVectors):
    """Rows of every scope: `SearchIndex` and `Pages` for readers, `RowStore` for the indexer.

    Args:
        directory: The index directory; the files are below `sqlite/`.
        memory_rows: Scopes with more rows keep their vectors on disk.
        memory_bytes: How much the warm arrays of all scopes may take together.
    """

    def __init__(
        self, directory: Path, *, memory_rows: int = 120_000, memory_bytes: int = 256 * 1024 * 1024
    ) -> None:
        folder = directory / "sqlite"
        vectors = Database(folder / "vectors.db", VECTORS, version=VECTORS_VERSION)
        rows = Database(folder / "index.db", SCHEMA, version=SCHEMA_VERSION, attach={"v": vectors})
        super().__init__(rows, vectors)
        self._words = WarmWords(self._db, rows=4 * memory_rows, memory_bytes=memory_bytes // 4)
        self._warm = WarmScopes(self._db, memory_rows=memory_rows, memory_bytes=memory_bytes)
        self.mirror: Mirror | None = None

    @property
    def generation(self) -> str:
        """Which index this is: another value means that its rows are, or are to be, made anew."""
        query = "SELECT generation || ':' || value FROM birth, meta WHERE key = 'cleared'"
        return str(self._db.read(lambda db: db.execute(query).fetchone()[0]))

    @property
    def database(self) -> Database:
        return self._db

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
            number = scope_number(db, scope)
            if number is None:
                return []
            query = f'scope : "s{number}" AND tokens : ({" OR ".join(_quoted(term) for term in terms)})'
            found: list[tuple[int, float]] = []
            for table in FULL_TEXT:
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
            number = scope_number(db, scope)
            model = model_number(db, served)
            join = "JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            rows: list[tuple[int, bytes]] = []
            for part in parts(list(near)):
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
            number = scope_number(db, scope)
            query = f"SELECT id FROM rows WHERE scope_id = ? AND {condition} ORDER BY id"
            return db.execute(query, (number, *values)).fetchall()

        found = self._db.read(ask)
        return np.fromiter((row[0] for row in found), np.int64, len(found))

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        """The rows themselves, in the order asked; those of another scope and those gone are left out."""

        def ask(db: sqlite3.Connection) -> dict[int, Row]:
            number = scope_number(db, scope)
            found: dict[int, Row] = {}
            for part in parts([int(rowid) for rowid in rowids]):
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
            number = scope_number(db, scope)
            found: list[Row] = []
            for part in parts(list(entry_ids)):
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
            number = scope_number(db, scope)
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

    def covered(self, scope: Scope, weights: Mapping[str, float]) -> tuple[np.ndarray, np.ndarray]:
        """Rowids that hold any of these terms, and for each the sum of the weights of those it holds."""
        import numpy as np

        postings = self._words.get(scope) if weights else None
        if postings is not None:
            return postings.covered(weights)
        found: dict[int, float] = {}
        for term, weight in weights.items():
            for rowid in self.lexical(scope, [term], limit=_COVERED_ROWS)[0].tolist():
                found[rowid] = found.get(rowid, 0.0) + weight
        return np.array(list(found), np.int64), np.array(list(found.values()), np.float32)

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
            for table in FULL_TEXT:
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
        made = [prepared(new) for new in rows]
        model = self._model

        def change(db: sqlite3.Connection) -> int:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            scopes: dict[Scope, int] = {}
            paths: dict[str, int] = {}
            touched: set[int] = set()
            number = model_number(db, model)
            for new, values in zip(rows, made, strict=True):
                scope_id = scopes.get(new.row.scope) or scope_made(db, new.row.scope, scopes)
                path_id = paths.get(new.row.path) or path_made(db, new.row.path, paths)
                touched.add(scope_id)
                put_row(db, new, values, scope_id, path_id, number, version)
            for rowid in (*removed, *damaged):
                found = db.execute("SELECT scope_id FROM rows WHERE id = ?", (rowid,)).fetchone()
                if found:
                    touched.add(found[0])
            for rowid in removed:
                db.execute("INSERT INTO gone SELECT ?, scope_id, id FROM rows WHERE id = ?", (version, rowid))
                kind = db.execute("SELECT kind FROM rows WHERE id = ?", (rowid,)).fetchone()
                db.execute("DELETE FROM rows WHERE id = ?", (rowid,))
                if kind:
                    db.execute(f"DELETE FROM {full_text(kind[0])} WHERE rowid = ?", (rowid,))
            db.executemany(
                "UPDATE rows SET damaged = 1, source = x'', version = ? WHERE id = ?",
                [(version, i) for i in damaged],
            )
            for path, cursor in (cursors or {}).items():
                path_made(db, path, paths)
                db.execute("UPDATE paths SET cursor = ? WHERE path = ?", (cursor, path))
            db.executemany(
                "UPDATE scopes SET version = ?, worded = ? WHERE id = ?",
                [(version, version, i) for i in touched],
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

    def clear(self) -> None:
        """Drop every row for a rebuild; vectors stay, since they are named by what was embedded.

        Anyone may ask: the generation changes, so the indexer sees that every file is to be read again.
        """

        def wipe(db: sqlite3.Connection) -> None:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            db.execute("DELETE FROM rows")
            for table in FULL_TEXT:
                db.execute(f"DELETE FROM {table}")
            db.execute("DELETE FROM paths")
            db.execute("DELETE FROM gone")
            db.execute("UPDATE scopes SET version = ?, worded = ?", (version, version))
            db.execute("UPDATE meta SET value = ? WHERE key IN ('version', 'trimmed')", (version,))
            db.execute("UPDATE meta SET value = value + 1 WHERE key = 'cleared'")

        self._db.write(wipe)

    # ---- maintenance ----------------------------------------------------------------------------------------

    def maintain(self, *, budget_seconds: float = 1.0) -> dict[str, int]:
        """Merge full-text segments, drop vectors nobody needs, trim the list of removals. Bounded in time."""
        until = time.monotonic() + budget_seconds
        merged = 0
        while time.monotonic() < until:
            before, after = self._db.write(merge_step)
            merged += 1
            if after - before < 2:
                break
        done = {"merges": merged, "gone": self._db.write(trim_gone), "vectors": self._drop_unused()}
        self._db.shrink()
        self._vectors.shrink()
        return done

    def scrub(self) -> bool:
        """Leave no byte of removed rows on disk: full text, rows, vectors, logs. False if readers held on.

        For `forget`: costs a rewrite of the files, so it is not part of everyday maintenance.
        """

        def optimize(db: sqlite3.Connection) -> None:
            for table in FULL_TEXT:
                db.execute(f"INSERT INTO {table}({table}) VALUES ('optimize')")

        self._db.write(optimize)
        query = "SELECT id FROM v.vectors WHERE key NOT IN (SELECT embed_key FROM rows)"
        found = self._db.read(lambda db: db.execute(query).fetchall())
        if found:
            self._vectors.write(lambda db: drop_vectors(db, found))
        scrubbed = self._vectors.scrub()
        return self._db.scrub() and scrubbed

    def size_bytes(self) -> int:
        """What the files take on disk."""
        folder = self._db.path.parent
        return sum(
            file.stat().st_size for base in ("index.db", "vectors.db") for file in folder.glob(f"{base}*")
        )

    def close(self) -> None:
        self._warm.clear()
        self._db.close()
        self._vectors.close()


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


def _best(ids: np.ndarray, scores: np.ndarray, limit: int) -> tuple[np.ndarray, np.ndarray]:
    import numpy as np

    if limit < len(ids):
        top = np.argpartition(-scores, limit)[:limit]
        ids, scores = ids[top], scores[top]
    order = np.argsort(-scores, kind="stable")
    ids, scores = ids[order], scores[order]
    real = scores > -np.inf
    return ids[real], scores[real]
