"""The index on SQLite: rows, full text and vectors in `.index/sqlite/`.

`index.db` has one row per searchable thing and an FTS5 table over our own token stream; `vectors.db` holds
each vector once, by model and by hash of the embedded text, so that it outlives a rebuild. Only the holder of
the indexer's lease writes; every change carries a growing version, so that readers refresh what they hold.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Database, Remembered, beginning_with
from cairn.engines.row_tables import (
    AMONG,
    COUNTS,
    FULL_TEXT,
    SCHEMA,
    SCHEMA_VERSION,
    VECTORS,
    VECTORS_VERSION,
    drop_vectors,
    full_text,
    merge_step,
    meta,
    model_number,
    next_version,
    prepared,
    put_rows,
    scope_number,
    trim_gone,
    with_vectors,
)
from cairn.engines.warm import WarmScopes, WarmState
from cairn.index.corpus import (
    PAGE_ORDER,
    TOKEN_DIMENSIONS,
    About,
    Ask,
    Corpus,
    Found,
    NewRow,
    Page,
    Pending,
    Row,
    Stored,
    about_corpus,
    passing_rows,
)
from cairn.index.filters import NOTHING_ASKED, Group, unpacked
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

_COLUMNS = (
    "r.id, r.kind, r.entry_id, p.path, r.text, r.timestamp_ms, r.session_id,"
    " r.cell_id, r.parent_type, r.parent_id, r.sender_ids, r.sender_name, r.fields, r.updated_ms, r.ordinal,"
    " r.status, r.content_sha256, r.damaged, r.labels"
)
_WHOLE = (
    "id", "scope", "app", "project", "track", "owner", "entry_id", "session_id", "cell_id", "parent_type", "parent_id",
    "senders", "labels", "sender_name", "timestamp_ms", "updated_ms", "ordinal", "status", "hidden", "text", "tokens", "metadata",
    "vector", "path", "source",
)  # fmt: skip
_BLOCK_ROWS = 8192
_WARM_BYTES = 320 * 1024 * 1024  # of the arrays and words of all scopes together
_UNUSED_KEPT = 1000
_COUNTS_KEPT = 1000
_OPEN_TALK = "cell_id IS NULL AND session_id IS NOT NULL AND kind IN ('message', 'passage')"
_AT_ONCE = 2048
_PLACED = "FROM rows r JOIN paths p ON p.id = r.path_id"
_FROM = f"{_PLACED} JOIN scopes s ON s.id = r.scope_id"


class SqliteIndex:
    """Rows of every scope: `SearchIndex` and `Pages` for readers, `RowStore` for the indexer.

    Args:
        directory: The index directory; the files are below `sqlite/`.
        memory_rows: Scopes with more rows keep their vectors on disk.
    """

    def __init__(self, directory: Path, *, memory_rows: int = 120_000) -> None:
        folder = directory / "sqlite"
        self._vectors = Database(folder / "vectors.db", VECTORS, version=VECTORS_VERSION)
        self._db = Database(folder / "index.db", SCHEMA, version=SCHEMA_VERSION, attach={"v": self._vectors})
        self._model = ""
        self._counts: Remembered[int] = Remembered(_COUNTS_KEPT)
        self._warm = WarmScopes(self._db, memory_rows=memory_rows, memory_bytes=_WARM_BYTES)

    @property
    def generation(self) -> str:
        """Which index this is: another value means that its rows are, or are to be, made anew."""
        query = "SELECT generation || ':' || value FROM birth, meta WHERE key = 'cleared'"
        return self._db.kept("generation", lambda: str(self._ask(query)[0][0]))

    def _ask(self, query: str, *values: object) -> list[Any]:
        return self._db.read(lambda db: db.execute(query, values).fetchall())

    def _ask_of(self, scope: Scope, query: str, *values: object) -> list[Any]:
        """The rows of a question about a scope, whose number is its first value."""
        return self._db.read(lambda db: db.execute(query, (scope_number(db, scope), *values)).fetchall())

    def _meta(self, key: str) -> Any:
        return self._db.read(lambda db: meta(db, key))

    @property
    def database(self) -> Database:
        return self._db

    @property
    def model(self) -> str:
        """The embedder whose vectors are served: the one chosen here, else the one the rows have; "" for none."""
        return self._model or self._db.kept("model", lambda: str(self._meta("model")))

    def use_model(self, model: str) -> None:
        """Serve vectors of `model` only. Vectors of any other model are never compared with a query."""
        self._model = model

    # ---- reading -------------------------------------------------------------------------------------------

    def corpus(self, scope: Scope) -> Corpus:
        """The scope's rows as arrays; the same object until one of them changes, and within one look."""
        return self._held(scope).rows

    def _held(self, scope: Scope) -> WarmState:
        return self._db.kept(scope, lambda: self._warm.get(scope, self.model))

    def count(self, scope: Scope) -> int:
        """How many rows there are in the scope, from counts that are kept as rows come and go."""
        query = "SELECT coalesce(sum(rows), 0) FROM tallies WHERE scope_id = ?"

        def look(last: int | None) -> int:
            found = int(self._ask_of(scope, query)[0][0])
            return last if last is not None and found == last else found

        return self._counts.get(self._db, scope, look)

    def about(self, scope: Scope) -> About:
        """Who speaks in the scope and how much there is."""
        return about_corpus(self.corpus(scope))

    def legs(self, scope: Scope, ask: Ask) -> Found:
        """Words, meaning and filter over all rows of the scope: exact, and nothing is cut.

        Words and arrays are held in memory. So are vectors, up to `memory_rows`; those of a larger scope are read
        through once for each question.
        """
        _, _, _, corpus, words = self._held(scope)
        bm25, covered, holding = words.legs(corpus, ask)
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

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> dict[int, np.ndarray]:
        """The vectors of the word pieces of these rows, by rowid; rows without them are missing."""
        import numpy as np

        query = (
            "SELECT r.id, t.data FROM v.models m JOIN rows r ON +r.scope_id = ?1 JOIN v.tokens t ON t.model = m.id"
            f" AND t.key = r.embed_key WHERE m.name = ?2 AND r.id {AMONG}"
        )
        asked = json.dumps([int(rowid) for rowid in rowids])
        rows = self._ask_of(scope, query, self.model, asked) if rowids else []
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

    def takes_part(self, scope: Scope, session_id: str) -> bool:
        """Whether the scope has rows of a session."""
        return session_id in self.corpus(scope).sessions

    def _matching(self, scope: Scope, where: Group) -> np.ndarray:
        """Rowids of the scope's rows that pass a filter, ascending."""
        import numpy as np

        condition, values = where.to_sql()

        query = f"SELECT id FROM rows WHERE scope_id = ? AND {condition} ORDER BY id"
        found = self._ask_of(scope, query, *values)
        return np.fromiter((row[0] for row in found), np.int64, len(found))

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        """The rows themselves, in the order asked; those of another scope and those gone are left out."""
        asked = [int(rowid) for rowid in rowids]
        # The plus keeps SQLite to the few rowids: an index on the scope would walk all of its rows.
        query = f"SELECT {_COLUMNS} {_PLACED} WHERE +r.scope_id = ? AND r.id {AMONG}"
        by_id = {row[0]: _row(row, scope) for row in self._ask_of(scope, query, json.dumps(asked))}
        return [by_id[rowid] for rowid in asked if rowid in by_id]

    def find(self, scope: Scope, entry_ids: Sequence[str], kind: str | None = None) -> list[Row]:
        """Rows of `scope` by entry id (`E54`: an id alone names nothing; it is asked within its scope)."""
        query = f"SELECT {_COLUMNS} {_PLACED} WHERE r.scope_id = ? AND r.entry_id {AMONG}"
        found = self._ask_of(scope, query, json.dumps([*entry_ids]))
        return [_row(row, scope) for row in found if kind is None or row[1] == kind]

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
        chosen = f"FROM rows r WHERE r.scope_id = ? AND r.kind IN ({marks}){visible} AND {condition}"
        total = int(self._ask_of(scope, f"SELECT count(*) {chosen}", *kinds, *values)[0][0])
        if offset >= total:
            return Page((), total)
        order = f"ORDER BY r.{column} {direction}, r.entry_id {direction} LIMIT ? OFFSET ?"
        ids = self._ask_of(scope, f"SELECT r.id {chosen} {order}", *kinds, *values, limit, offset)
        return Page(tuple(row[0] for row in ids), total)

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of the scope's rows each term occurs; terms that occur nowhere are missing."""
        return self._held(scope).words.frequencies(terms)

    def scopes(self, space: Space | None = None) -> list[tuple[Scope, dict[str, int]]]:
        """Every scope that has rows, with their number by kind."""
        query = (
            "SELECT s.app, s.project, s.track, s.owner, t.kind, t.rows FROM tallies t JOIN scopes s"
            " ON s.id = t.scope_id WHERE t.rows > 0 ORDER BY 1, 2, 3, 4, 5"
        )
        found: dict[Scope, dict[str, int]] = {}
        for app, project, track, owner, kind, count in self._ask(query):
            scope = Scope(Space(app, project), track, owner)
            if space is None or scope.space == space:
                found.setdefault(scope, {})[kind] = count
        return list(found.items())

    def hours(self, scope: Scope, kinds: Sequence[str]) -> dict[int, int]:
        """How many rows of these kinds fall into each hour since 1970; hidden ones and those without a time left out."""
        query = (
            f"SELECT timestamp_ms / 3600000, count(*) FROM rows WHERE scope_id = ? AND kind {AMONG}"
            " AND hidden = 0 AND timestamp_ms > 0 GROUP BY 1"
        )
        return dict(self._ask_of(scope, query, json.dumps([*kinds])))

    # ---- writing (the holder of the indexer's lease only) ---------------------------------------------------

    def stored(self, path: str) -> dict[tuple[Scope, str], Stored]:
        """What the index holds of a file, by scope and entry id."""
        query = (
            "SELECT s.app, s.project, s.track, s.owner, r.entry_id, r.id, r.source, r.damaged, r.cell_id"
            f" {_FROM} WHERE p.path = ?"
        )
        return {
            (Scope(Space(app, project), track, owner), entry): Stored(rowid, source, bool(damaged), cell)
            for app, project, track, owner, entry, rowid, source, damaged, cell in self._ask(query, path)
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
            version = next_version(db)
            tally, touched = put_rows(db, given, version, model_number(db, model))
            for rowid in removed:
                was = tally.take_out(db, "id = ?", rowid)
                if was is None:
                    continue
                touched.add(was.scope_id)
                db.execute("INSERT INTO gone VALUES (?, ?, ?, ?)", (version, was.scope_id, rowid, was.kind))
                db.execute("DELETE FROM rows WHERE id = ?", (rowid,))
                db.execute(f"DELETE FROM {full_text(was.kind)} WHERE rowid = ?", (rowid,))
            tally.write(db)
            mark = "UPDATE rows SET damaged = 1, source = x'', version = ? WHERE id = ? RETURNING scope_id"
            for rowid in damaged:
                touched.update(number for (number,) in db.execute(mark, (version, rowid)))
            db.executemany(
                "UPDATE scopes SET version = ?, worded = ? WHERE id = ?",
                [(version, version, i) for i in touched],
            )
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
            version = next_version(db)
            db.execute("DELETE FROM rows")
            for table in (*FULL_TEXT, *COUNTS):
                db.execute(f"DELETE FROM {table}")
            db.execute("DELETE FROM paths")
            db.execute("DELETE FROM gone")
            db.execute("UPDATE scopes SET version = ?, worded = ?", (version, version))
            db.execute("UPDATE meta SET value = ? WHERE key = 'trimmed'", (version,))
            db.execute("UPDATE meta SET value = value + 1 WHERE key = 'cleared'")

        self._db.write(wipe)

    # ---- vectors: each is kept once, by model and by hash of what was embedded ----------------------------------

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
        return [Pending(*row) for row in self._ask(query, limit)]

    def pending_count(self, scope: Scope | None = None) -> int:
        """How many rows wait for their vector, in all or in one scope."""
        query = "SELECT count(*) FROM rows WHERE pending = 1"
        found = self._ask(query) if scope is None else self._ask_of(scope, f"{query} AND scope_id = ?")
        return int(found[0][0])

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
        import numpy as np

        ids = json.dumps([row.rowid for row in rows])
        # Only of rows that say what they said: a text forgotten meanwhile leaves no vector behind.
        there = self._ask(f"SELECT embed_key FROM rows WHERE id {AMONG}", ids) if fresh else ()
        wanted = {row[0] for row in there}
        keys = [key for key in fresh if key in wanted]
        halves = np.array([fresh[key] for key in keys], np.float16)
        data = [(key, one.tobytes()) for key, one in zip(keys, halves, strict=True)]
        pieces = [(key, found.tobytes()) for key, found in (tokens or {}).items() if key in wanted]

        def keep(db: sqlite3.Connection) -> None:
            [[model]] = db.execute(
                "INSERT INTO models(name, dimensions) VALUES (?, ?) ON CONFLICT DO UPDATE SET dimensions = dimensions RETURNING id",
                (self._model, len(data[0][1]) // 2),
            )
            for table, found in (("vectors", data), ("tokens", pieces)):
                put = f"INSERT OR REPLACE INTO {table}(model, key, data) VALUES ({model}, ?, ?)"
                db.executemany(put, found)

        def mark(db: sqlite3.Connection) -> int:
            version = next_version(db)
            # A row that was rewritten meanwhile has another text and stays pending.
            db.executemany(
                f"UPDATE rows SET pending = 0, version = {version} WHERE id = ? AND embed_key = ?",
                [(row.rowid, row.key) for row in rows],
            )
            touched = f"SELECT scope_id FROM rows WHERE id {AMONG}"
            db.execute(f"UPDATE scopes SET version = {version} WHERE id IN ({touched})", (ids,))
            return version

        if data:
            self._vectors.write(keep)
        return self._db.write(mark, rows=len(rows))

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

    # ---- changes, for the tables of LanceDB ------------------------------------------------------------------

    def trimmed_version(self) -> int:
        """Removals up to this version are no longer listed one by one."""
        return int(self._meta("trimmed"))

    def stamp(self) -> dict[str, Any]:
        """Which rows and vectors these are: what was made of others is not believed."""
        query = (
            "SELECT b.generation || ':' || c.value, m.value, coalesce(v.dimensions, 0) FROM birth b JOIN meta c"
            " ON c.key = 'cleared' JOIN meta m ON m.key = 'model' LEFT JOIN v.models v ON v.name = m.value"
        )
        return dict(zip(("generation", "model", "dimensions"), self._ask(query)[0], strict=True))

    def kinds(self) -> list[str]:
        """The kinds that have rows."""
        return [row[0] for row in self._ask("SELECT DISTINCT kind FROM tallies WHERE rows > 0")]

    def has_changed(self, kind: str, version: int) -> bool:
        """Whether a row of a kind went, or was written, after `version`."""
        gone = "SELECT 1 FROM gone WHERE kind = ? AND version > ? LIMIT 1"
        written = "SELECT 1 FROM rows WHERE kind = ? AND version > ? AND worded > ? LIMIT 1"
        return bool(self._ask(gone, kind, version) or self._ask(written, kind, version, version))

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
            upto = int(edge[0]) if edge else int(meta(db, "version"))
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

    def last_row(self) -> int:
        """The highest number that a row has: there are no more rows than that."""
        return int(self._ask("SELECT coalesce(max(id), 0) FROM rows")[0][0])

    def version(self) -> int:
        """The latest change of any scope."""
        return int(self._meta("version"))

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
        found = self._ask("SELECT id FROM v.vectors WHERE key NOT IN (SELECT embed_key FROM rows)")
        if found:
            self._vectors.write(lambda db: drop_vectors(db, found))
        scrubbed = self._vectors.scrub()
        return self._db.scrub() and scrubbed

    def close(self) -> None:
        self._warm.clear()
        self._db.close()
        self._vectors.close()


def _row(row: Sequence[Any], scope: Scope) -> Row:
    """A row from `_COLUMNS`, which are the fields of `Row` in their order, but for the scope."""
    senders, name, fields, *more, damaged, labels = row[10:]
    told: list[Any] = [unpacked(senders), name, json.loads(fields), *more, bool(damaged), unpacked(labels)]
    return Row(row[0], row[1], scope, *row[2:10], *told)


def dot(vectors: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """Row by row products. Not `@`: a threaded BLAS makes eight callers wait for each other, 40 times longer."""
    import numpy as np

    return np.asarray(np.einsum("ij,j->i", vectors, np.asarray(vector, np.float32)))


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
