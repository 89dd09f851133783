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
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database, beginning_with
from cairn.engines.row_tables import (
    COUNTS,
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
    prepared,
    put_rows,
    scope_number,
    trim_gone,
)
from cairn.engines.row_vectors import RowVectors
from cairn.engines.warm import WarmRows, WarmScopes, WarmWords
from cairn.index.corpus import About, Ask, Corpus, Found, Row, about_corpus, passing_rows
from cairn.index.filters import NOTHING_ASKED, Group, unpacked
from cairn.index.postings import Postings
from cairn.index.rows import PAGE_ORDER, NewRow, Page, Stored
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = (
    "r.id, r.kind, r.entry_id, p.path, r.text, r.timestamp_ms, r.session_id,"
    " r.cell_id, r.parent_type, r.parent_id, r.sender_ids, r.sender_name, r.fields, r.updated_ms, r.ordinal,"
    " r.status, r.content_sha256, r.damaged, r.labels"
)
_AT_ONCE = 2048
_PLACED = "FROM rows r JOIN paths p ON p.id = r.path_id"
_FROM = f"{_PLACED} JOIN scopes s ON s.id = r.scope_id"


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
        self._words = WarmScopes(self._db, WarmWords, memory_bytes=memory_bytes // 4)
        self._warm = WarmScopes(
            self._db, partial(WarmRows, memory_rows=memory_rows), memory_bytes=memory_bytes
        )

    @property
    def generation(self) -> str:
        """Which index this is: another value means that its rows are, or are to be, made anew."""
        query = "SELECT generation || ':' || value FROM birth, meta WHERE key = 'cleared'"
        return self._db.kept(
            "generation", lambda: str(self._db.read(lambda db: db.execute(query).fetchone()[0]))
        )

    @property
    def database(self) -> Database:
        return self._db

    def one_look(self) -> AbstractContextManager[None]:
        """Inside, what this thread reads is of one file, and a scope's arrays are those of the first question."""
        return self._db.one_look()

    # ---- reading -------------------------------------------------------------------------------------------

    def corpus(self, scope: Scope) -> Corpus:
        """The scope's rows as arrays; the same object until one of them changes, and within one look."""
        return self._db.kept(("rows", scope), lambda: self._warm.get(scope, self.model))

    def _postings(self, scope: Scope) -> Postings:
        return self._db.kept(("words", scope), lambda: self._words.get(scope))

    def about(self, scope: Scope) -> About:
        """Who speaks in the scope and how much there is."""
        return about_corpus(self.corpus(scope))

    def legs(self, scope: Scope, ask: Ask) -> Found:
        """Words, meaning and filter over all rows of the scope: exact, and nothing is cut.

        Words and arrays are held in memory. So are vectors, up to `memory_rows`; those of a larger scope are read
        through once for each question.
        """
        corpus = self.corpus(scope)
        bm25, covered, holding = self._postings(scope).legs(corpus, ask)
        return Found(
            corpus=corpus,
            passing=passing_rows(corpus, ask, lambda: self._matching(scope, ask.where)),
            bm25=bm25,
            cosine=None if ask.plain is None else self._cosines(corpus, ask.plain, ask.voiced),
            covered=covered,
            holding=holding,
        )

    def _cosines(self, corpus: Corpus, plain: np.ndarray, voiced: np.ndarray | None) -> np.ndarray:
        """Nearness of each row: messages to `voiced`, all others to `plain`."""
        import numpy as np

        near = np.zeros(len(corpus), np.float32)
        if corpus.vectors is not None:
            # Stretch by stretch: what is compared twice is fetched once.
            for start in range(0, len(near), _AT_ONCE):
                here = slice(start, start + _AT_ONCE)
                near[here] = dot(corpus.vectors[here], plain)
                if voiced is not None:
                    said = corpus.sender[here] >= 0
                    near[here][said] = dot(corpus.vectors[here], voiced)[said]
            return near
        for rowids, vectors in self.stored_vectors(corpus.scope) if corpus.has_vector.any() else ():
            at = corpus.positions(rowids)
            vectors, at = vectors[at >= 0], at[at >= 0]
            near[at] = dot(vectors, plain)
            if voiced is not None:
                near[at] = np.where(corpus.sender[at] >= 0, dot(vectors, voiced), near[at])
        return near

    def takes_part(self, scope: Scope, session_id: str) -> bool:
        """Whether the scope has rows of a session."""
        return session_id in self.corpus(scope).sessions

    def _matching(self, scope: Scope, where: Group) -> np.ndarray:
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
                query = f"SELECT {_COLUMNS} {_PLACED} WHERE +r.scope_id = ? AND r.id IN ({marks})"
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
                query = f"SELECT {_COLUMNS} {_PLACED} WHERE r.scope_id = ? AND r.entry_id IN ({marks})"
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

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of the scope's rows each term occurs; terms that occur nowhere are missing."""
        return self._postings(scope).frequencies(terms)

    def scopes(self, space: Space | None = None) -> list[tuple[Scope, dict[str, int]]]:
        """Every scope that has rows, with their number by kind."""

        def ask(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            return db.execute(
                "SELECT s.app, s.project, s.track, s.owner, t.kind, t.rows FROM tallies t JOIN scopes s"
                " ON s.id = t.scope_id WHERE t.rows > 0 ORDER BY 1, 2, 3, 4, 5"
            ).fetchall()

        found: dict[Scope, dict[str, int]] = {}
        for app, project, track, owner, kind, count in self._db.read(ask):
            scope = Scope(Space(app, project), track, owner)
            if space is None or scope.space == space:
                found.setdefault(scope, {})[kind] = count
        return list(found.items())

    def hours(self, scope: Scope, kinds: Sequence[str]) -> dict[int, int]:
        """How many rows of these kinds fall into each hour since 1970; hidden ones and those without a time left out."""
        marks = ",".join("?" * len(kinds))

        def ask(db: sqlite3.Connection) -> list[tuple[int, int]]:
            return db.execute(
                f"SELECT timestamp_ms / 3600000, count(*) FROM rows WHERE scope_id = ? AND kind IN ({marks})"
                " AND hidden = 0 AND timestamp_ms > 0 GROUP BY 1",
                (scope_number(db, scope), *kinds),
            ).fetchall()

        return dict(self._db.read(ask))

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

    def apply(
        self,
        rows: Sequence[NewRow],
        *,
        removed: Sequence[int] = (),
        damaged: Sequence[int] = (),
    ) -> int:
        """Make `rows` the truth about their entries and drop `removed`, in one transaction; return the version.

        A row whose words did not change keeps its full text and its vector. `damaged` rows stay as they are
        and are marked.
        """
        given = [(new, prepared(new)) for new in rows]
        model = self._model

        def put(db: sqlite3.Connection) -> int:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            tally, touched = put_rows(db, given, version, model_number(db, model))
            there = "SELECT scope_id, kind FROM rows WHERE id = ?"
            touched.update(found[0] for i in damaged if (found := db.execute(there, (i,)).fetchone()))
            for rowid in removed:
                found = db.execute(there, (rowid,)).fetchone()
                if found is None:
                    continue
                touched.add(found[0])
                tally.take_out(db, rowid)
                db.execute("INSERT INTO gone VALUES (?, ?, ?, ?)", (version, found[0], rowid, found[1]))
                db.execute("DELETE FROM rows WHERE id = ?", (rowid,))
                db.execute(f"DELETE FROM {full_text(found[1])} WHERE rowid = ?", (rowid,))
            tally.write(db)
            db.executemany(
                "UPDATE rows SET damaged = 1, source = x'', version = ? WHERE id = ?",
                [(version, i) for i in damaged],
            )
            db.executemany(
                "UPDATE scopes SET version = ?, worded = ? WHERE id = ?",
                [(version, version, i) for i in touched],
            )
            db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))
            return version

        return self._db.write(put, rows=len(given))

    def forget_paths(self, paths: Sequence[str]) -> None:
        """Drop what is noted about files that are gone."""
        marks = [(path,) for path in paths]
        self._db.write(
            lambda db: db.executemany(
                "DELETE FROM paths WHERE path = ? AND NOT EXISTS (SELECT 1 FROM rows WHERE path_id = paths.id)",
                marks,
            )
        )

    def known_paths(self, within: Sequence[str] = ()) -> list[str]:
        """Every file that has rows or a cursor; with `within`, those alone that begin with one of these."""
        inside, bounds = beginning_with("path", within)
        query = f"SELECT path FROM paths WHERE 1{inside}"
        return [row[0] for row in self._db.read(lambda db: db.execute(query, bounds).fetchall())]

    def clear(self) -> None:
        """Drop every row for a rebuild; vectors stay, since they are named by what was embedded.

        Anyone may ask: the generation changes, so the indexer sees that every file is to be read again.
        """

        def wipe(db: sqlite3.Connection) -> None:
            version = int(db.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]) + 1
            db.execute("DELETE FROM rows")
            for table in (*FULL_TEXT, *COUNTS):
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
        while time.monotonic() < until and self._db.write(merge_step):
            merged += 1
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
            db.execute("DELETE FROM scopes WHERE id NOT IN (SELECT scope_id FROM rows)")

        self._db.write(optimize)
        query = "SELECT id FROM v.vectors WHERE key NOT IN (SELECT embed_key FROM rows)"
        found = self._db.read(lambda db: db.execute(query).fetchall())
        if found:
            self._vectors.write(lambda db: drop_vectors(db, found))
        scrubbed = self._vectors.scrub()
        return self._db.scrub() and scrubbed

    def close(self) -> None:
        self._warm.clear()
        self._db.close()
        self._vectors.close()


def _row(row: Sequence[Any], scope: Scope) -> Row:
    return Row(
        rowid=row[0],
        kind=row[1],
        scope=scope,
        entry_id=row[2],
        path=row[3],
        text=row[4],
        timestamp_ms=row[5],
        session_id=row[6],
        cell_id=row[7],
        parent_type=row[8],
        parent_id=row[9],
        sender_ids=unpacked(row[10]),
        sender_name=row[11],
        fields=json.loads(row[12]),
        updated_ms=row[13],
        ordinal=row[14],
        status=row[15],
        content_sha256=row[16],
        damaged=bool(row[17]),
        labels=unpacked(row[18]),
    )


def dot(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Row by row products. Not `@`: a threaded BLAS makes eight callers wait for each other, 40 times longer."""
    import numpy as np

    return np.asarray(np.einsum("ij,j->i", vectors, np.asarray(vector, np.float32)))
