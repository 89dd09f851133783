"""Search in scopes too large to hold: LanceDB proposes the rows that fit best, and only those are looked at.

The tables of `lance.py` are asked for the best rows of each kind, by words and by meaning, with the caller's filter
inside the question. Beside them stand all rows that are too new to be in a table, all rows of kinds that have few, the
rows around those that were found, and a sample of the rest, each row of which stands for many, so that what is usual in
the scope is known. All of them are read from SQLite and scored here, exactly and against this owner's texts alone: a
table may be late or wrong, it can only propose.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.engines.lance import LanceTables, Wish, marks_of
from cairn.engines.postings import GROUPS, gain, group_of, norm, rarity
from cairn.engines.row_tables import FULL_TEXT, SAID, full_text, model_number, parts, scope_number
from cairn.engines.rows import SqliteIndex, dot
from cairn.errors import Unavailable
from cairn.index.corpus import (
    KIND_CODES,
    PASSAGE,
    About,
    Ask,
    Corpus,
    Found,
    Moved,
    Row,
    SearchIndex,
    Sender,
)
from cairn.index.filters import Group
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_log = logging.getLogger(__name__)

# How many rows of each kind are asked for by words, and as many by meaning.
_BEST = 200
# The messages next to the best few of these are looked at, too.
_BESIDE = 100
# Kinds with fewer rows than this are looked at whole, without asking a table.
_WHOLE_ROWS = 300
_SAMPLE_ROWS, _SAMPLES_KEPT = 64, 1000
_NOBODY = Ask(where=Group("OR", ()))
# More rows than this that no table holds yet: the tables are not ready to answer.
_FRESH_ROWS = 5000
_COLUMNS = (
    "r.id, r.kind, r.timestamp_ms, r.session_id, r.ordinal, r.sender_ids, r.sender_name, r.cell_id, r.parent_type,"
    " r.parent_id, r.flags, r.length, r.entry_id, r.path_id"
)
# Each kind has its words in one of the full-text tables.
_TOKENS = (
    "CASE "
    + " ".join(
        f"WHEN r.kind IN ({', '.join(repr(kind) for kind in KIND_CODES if full_text(kind) == table)})"
        f" THEN (SELECT c1 FROM {table}_content WHERE id = r.id)"
        for table in FULL_TEXT
    )
    + " END"
)


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is counted of a scope: its number and version, and by kind how many rows and words there are."""

    number: int
    version: int
    rows: Mapping[str, int]
    words: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class _Sample:
    """Rows of one kind that stand for all, chosen when there were `count`, as they were at `version`."""

    count: int
    ids: list[int]
    version: int
    model: int | None
    rows: list[Sequence[Any]]


class Answering:
    """Chooses who answers for a scope: its rows in memory, or the tables of LanceDB.

    Args:
        memory: The rows, which answer from memory.
        tables: The tables of LanceDB.
        engine: "memory", "lancedb" or "auto".
        memory_rows: Up to how many rows "auto" leaves a scope to memory.
        large: Asks the tables; one with the usual measures unless given.
    """

    def __init__(
        self,
        memory: SqliteIndex,
        tables: LanceTables,
        *,
        engine: str,
        memory_rows: int,
        large: LargeIndex | None = None,
    ) -> None:
        self._memory = memory
        self._tables = tables
        self._large = large or LargeIndex(memory, tables)
        self._engine = engine
        self._memory_rows = memory_rows

    def __call__(self, scope: Scope) -> SearchIndex:
        """The index to ask about `scope`. What LanceDB cannot answer yet comes from memory: slower, and the same.

        LanceDB is loaded beside the first answers; only a scope that memory would take longer to hold waits for it.
        """
        if self._engine == "memory":
            return self._memory
        try:
            count = self._large.count(scope)
        except Unavailable:
            return self._memory  # which cannot be asked either: the answer then comes from the notes
        if (self._engine == "auto" and count <= self._memory_rows) or not self._large.is_ready(scope):
            return self._memory
        return self._large if self._tables.load(wait=count > self._memory_rows) else self._memory


class LargeIndex:
    """A `SearchIndex` over LanceDB tables and the rows they were made of.

    Args:
        rows: The rows.
        tables: The tables.
        best: How many rows of a kind are asked for by words, and as many by meaning.
        whole_rows: Kinds with at most so many rows are looked at whole.
    """

    def __init__(
        self, rows: SqliteIndex, tables: LanceTables, *, best: int = _BEST, whole_rows: int = _WHOLE_ROWS
    ) -> None:
        self._rows = rows
        self._db = rows.database
        self._tables = tables
        self._best = best
        self._whole_rows = whole_rows
        self._samples: dict[tuple[str, int, str], _Sample] = {}

    # ---- what there is --------------------------------------------------------------------------------------------

    def count(self, scope: Scope) -> int:
        """How many rows the scope has."""
        held = self._db.read(lambda db: _counted(db, scope))
        return 0 if held is None else sum(held.rows.values())

    def is_ready(self, scope: Scope) -> bool:
        """Whether the tables hold this scope but for a few fresh rows."""
        state = self._tables.state()
        marks = marks_of(state, self._rows)
        held = self._db.read(lambda db: _counted(db, scope))
        if held is None or not marks:
            return False
        large = [kind for kind, count in held.rows.items() if count > self._whole_rows]
        if any(kind not in marks for kind in large):
            return False
        return len(self._db.read(lambda db: _fresh(db, held.number, marks, large))) <= _FRESH_ROWS

    def about(self, scope: Scope) -> About:
        """Who speaks in the scope and how much there is, from counts that are kept as rows come and go."""
        model = self._rows.model

        def ask(db: sqlite3.Connection) -> About:
            held = _counted(db, scope)
            if held is None:
                return About(scope, 0, (), (), 0)
            speakers = db.execute(
                "SELECT id, name, rows FROM speakers WHERE scope_id = ? ORDER BY rows DESC, id, name",
                (held.number,),
            ).fetchall()
            latest = "SELECT max(timestamp_ms) FROM rows WHERE scope_id = ? AND kind = ? AND hidden = ?"
            times = [
                db.execute(latest, (held.number, kind, hidden)).fetchone()[0] or 0
                for kind in held.rows
                for hidden in (0, 1)
            ]
            rows = sum(held.rows.values())
            waiting = "SELECT count(*) FROM rows WHERE pending = 1 AND scope_id = ?"
            without = int(db.execute(waiting, (held.number,)).fetchone()[0]) if model else rows
            return About(
                scope=scope,
                rows=rows,
                senders=tuple(Sender(row[0], row[1] or None) for row in speakers),
                spoken=tuple(row[2] for row in speakers),
                latest_ms=max(times, default=0),
                embedded=rows - without,
                waiting=without,
                model=model,
            )

        return self._db.read(ask)

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of the scope's rows each term occurs; terms that occur nowhere are missing."""
        wanted = list(terms)
        held = self._db.read(lambda db: _counted(db, scope))
        return (
            {}
            if held is None
            else {
                term: sum(by_part.values())
                for term, by_part in self._db.read(lambda db: _spread(db, held, wanted)).items()
            }
        )

    def takes_part(self, scope: Scope, session_id: str) -> bool:
        """Whether the scope has rows of a session."""
        query = "SELECT 1 FROM rows WHERE scope_id = ? AND session_id = ? LIMIT 1"
        return self._db.read(
            lambda db: db.execute(query, (scope_number(db, scope), session_id)).fetchone() is not None
        )

    def token_vectors(self, scope: Scope, rowids: Sequence[int]) -> Mapping[int, np.ndarray]:
        return self._rows.token_vectors(scope, rowids)

    def rows(self, scope: Scope, rowids: Sequence[int]) -> list[Row]:
        return self._rows.rows(scope, rowids)

    # ---- one question ---------------------------------------------------------------------------------------------

    def legs(self, scope: Scope, ask: Ask) -> Found:
        """Words, meaning and filter, asked of the tables at once; what they propose is scored from the rows."""
        about = self.about(scope)
        state = self._tables.state()
        marks = marks_of(state, self._rows)
        held = self._db.read(lambda db: _counted(db, scope))
        if held is None:
            return self._scored(about, _Scope(-1, 0, {}, {}), ask, {}, {})
        large = [kind for kind, count in held.rows.items() if count > self._whole_rows and kind in KIND_CODES]
        wishes = [self._wish(kind, held, ask) for kind in large if kind in marks]
        lists = self._proposed(state, wishes, ask)
        found = {rowid for _, ids in lists for rowid in ids}
        first = {rowid for kind, ids in lists if kind == "message" for rowid in ids[:_BESIDE]}

        def read(db: sqlite3.Connection) -> tuple[dict[int, Sequence[Any]], dict[int, float]]:
            few = [kind for kind in held.rows if kind not in large]
            beside = _of_kinds(db, held.number, few) | _fresh(db, held.number, marks, large)
            model = model_number(db, self._rows.model)
            rows = _read(db, held.number, found | beside, ask, model)
            around = _around(db, held.number, rows, first | beside) - rows.keys()
            rows |= _read(db, held.number, around, ask, model)
            standing: dict[int, float] = {}
            for kind in large:
                known = sum(1 for row in rows.values() if row[1] == kind)
                more = {one[0]: one for one in self._sample(db, held, kind, model) if one[0] not in rows}
                rows |= more
                standing |= dict.fromkeys(more, max(1.0, (held.rows[kind] - known) / max(1, len(more))))
            return rows, standing

        rows, standing = self._db.read(read)
        return self._scored(about, held, ask, rows, standing)

    def _proposed(
        self, state: Mapping[str, Any], wishes: Sequence[Wish], ask: Ask
    ) -> list[tuple[str, list[int]]]:
        if not wishes:
            return []
        try:
            return self._tables.best(state, wishes, " ".join(ask.terms), self._best)
        except Exception as error:  # a table may be dropped or half written at any moment
            self._tables.distrust(error)
            raise Moved(str(error)) from error

    def _wish(self, kind: str, held: _Scope, ask: Ask) -> Wish:
        tests = [f"scope = {held.number}"]
        if not ask.hidden:
            tests.append("NOT hidden")
        if ask.until_ms is not None:
            tests.append(f"timestamp_ms <= {ask.until_ms}")
        if ask.where:
            tests.append(ask.where.to_lance())
        vector = ask.voiced if kind in SAID and ask.voiced is not None else ask.plain
        return Wish(kind, " AND ".join(tests), held.rows[kind], len(tests) > 1, vector)

    def _sample(
        self, db: sqlite3.Connection, held: _Scope, kind: str, model: int | None
    ) -> Sequence[Sequence[Any]]:
        """Some rows of a kind, evenly spread over all of them, that show what is usual and are no answer themselves.

        They are chosen anew when a quarter of the rows has come or gone, and read anew when any has changed.
        """
        key, count = (self._rows.generation, held.number, kind), held.rows[kind]
        sample = self._samples.get(key)
        if sample is not None and (sample.version, sample.model) == (held.version, model):
            return sample.rows
        ids = sample.ids if sample is not None and abs(count - sample.count) * 4 <= sample.count else None
        if ids is None:
            query = (
                "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY hidden, timestamp_ms, id) AS place FROM rows"
                " WHERE scope_id = ? AND kind = ?) WHERE place % ? = 0"
            )
            step = max(1, count // _SAMPLE_ROWS)
            ids = [row[0] for row in db.execute(query, (held.number, kind, step))]
        rows = _read(db, held.number, ids, _NOBODY, model).values()
        if len(self._samples) > _SAMPLES_KEPT:
            self._samples.clear()
        self._samples[key] = _Sample(count, ids, held.version, model, list(rows))
        return self._samples[key].rows

    def _scored(
        self,
        about: About,
        held: _Scope,
        ask: Ask,
        rows: Mapping[int, Sequence[Any]],
        standing: Mapping[int, float],
    ) -> Found:
        """The rows as a corpus, with what the question finds in each."""
        import numpy as np

        chosen = [rows[rowid] for rowid in sorted(rows)]
        corpus = _corpus(about, chosen, standing)
        spread = self._db.read(lambda db: _spread(db, held, [*ask.terms, *ask.weights])) if chosen else {}
        sizes = _groups(held)
        weight = {
            term: [float(rarity(count, by_part.get(part, 0))) for part, (count, _) in enumerate(sizes)]
            for term, by_part in spread.items()
        }
        asked, known = frozenset(ask.terms), frozenset(spread)
        bm25, covered = np.zeros(len(chosen), np.float32), np.zeros(len(chosen), np.float32)
        holding: dict[str, list[int]] = {term: [] for term in ask.rare}
        for at, row in enumerate(chosen):
            words = (row[-3] or "").split()
            hit = known.intersection(words)
            if not hit:
                continue
            part = group_of(row[1])
            usual = norm(len(words), sizes[part][1])
            for word in hit:
                if word in asked:
                    bm25[at] += weight[word][part] * gain(words.count(word), usual)
                covered[at] += ask.weights.get(word, 0.0)
                if word in holding:
                    holding[word].append(at)
        cosine = None
        if ask.plain is not None:
            cosine = np.zeros(len(chosen), np.float32)
            if corpus.vectors is not None:
                cosine = dot(corpus.vectors, ask.plain)
                if ask.voiced is not None:
                    cosine = np.where(corpus.sender >= 0, dot(corpus.vectors, ask.voiced), cosine)
        return Found(
            corpus=corpus,
            passing=np.fromiter((bool(row[-1]) for row in chosen), bool, len(chosen)),
            bm25=bm25,
            cosine=cosine,
            covered=covered,
            holding={term: np.array(places, np.int64) for term, places in holding.items()},
        )


def _counted(db: sqlite3.Connection, scope: Scope) -> _Scope | None:
    number = scope_number(db, scope)
    query = "SELECT kind, rows, words FROM tallies WHERE scope_id = ? AND rows > 0"
    found = db.execute(query, (number,)).fetchall()
    if number is None or not found:
        return None
    version = int(db.execute("SELECT version FROM scopes WHERE id = ?", (number,)).fetchone()[0])
    return _Scope(number, version, {row[0]: row[1] for row in found}, {row[0]: row[2] for row in found})


def _groups(held: _Scope) -> list[tuple[int, float]]:
    """For each group of kinds how many rows it has, and how long its texts are in the mean."""
    rows, words = [0] * (len(GROUPS) + 1), [0] * (len(GROUPS) + 1)
    for kind, count in held.rows.items():
        rows[group_of(kind)] += count
        words[group_of(kind)] += held.words[kind]
    return [(count, max(1.0, said / max(1, count))) for count, said in zip(rows, words, strict=True)]


def _spread(db: sqlite3.Connection, held: _Scope, terms: Sequence[str]) -> dict[str, dict[int, int]]:
    """In how many rows of each group a term occurs."""
    found: dict[str, dict[int, int]] = {}
    for part in parts(list(dict.fromkeys(terms))):
        query = (
            f"SELECT term, part, rows FROM terms WHERE scope_id = ? AND term IN ({','.join('?' * len(part))})"
        )
        for term, group, rows in db.execute(query, (held.number, *part)):
            found.setdefault(term, {})[group] = rows
    return found


def _of_kinds(db: sqlite3.Connection, number: int, kinds: Sequence[str]) -> set[int]:
    query = f"SELECT id FROM rows WHERE scope_id = ? AND kind IN ({','.join('?' * len(kinds))})"
    return {row[0] for row in db.execute(query, (number, *kinds))} if kinds else set()


def _fresh(db: sqlite3.Connection, number: int, marks: Mapping[str, int], kinds: Sequence[str]) -> set[int]:
    """Rows that are too new to be in their table."""
    oldest = min((marks.get(kind, 0) for kind in kinds), default=0)
    query = "SELECT id, kind, version FROM rows WHERE scope_id = ? AND version > ?"
    return {
        rowid
        for rowid, kind, version in (db.execute(query, (number, oldest)) if kinds else ())
        if kind in kinds and version > marks.get(kind, 0)
    }


def _read(
    db: sqlite3.Connection, number: int, wanted: Iterable[int], ask: Ask, model: int | None
) -> dict[int, Sequence[Any]]:
    """Rows by id as `_COLUMNS` and behind them tokens, vector and whether they pass."""
    condition, values = ask.where.to_sql()
    passes = [f"({condition})"]
    if not ask.hidden:
        passes.append("r.hidden = 0")
    if ask.until_ms is not None:
        passes.append("r.timestamp_ms <= ?")
        values.append(ask.until_ms)
    found: dict[int, Sequence[Any]] = {}
    for part in parts(list(wanted)):
        query = (
            f"SELECT {_COLUMNS}, {_TOKENS}, e.data, {' AND '.join(passes)} FROM rows r"
            " LEFT JOIN v.vectors e ON e.model = ? AND e.key = r.embed_key"
            f" WHERE +r.scope_id = ? AND r.id IN ({','.join('?' * len(part))})"
        )
        bound = (*values, model, number, *part)
        found.update((row[0], row) for row in db.execute(query, bound) if row[1] in KIND_CODES)
    return found


def _around(
    db: sqlite3.Connection, number: int, rows: Mapping[int, Sequence[Any]], first: AbstractSet[int]
) -> set[int]:
    """Ids of what ranking looks at beside the rows that were found: their episodes and wholes, and the messages next to `first`."""
    found: set[int] = set()
    said = {
        (row[3], row[4] + step)
        for row in (rows[rowid] for rowid in first if rowid in rows)
        if row[1] == "message" and row[3]
        for step in (-1, 1)
    }
    said -= {(row[3], row[4]) for row in rows.values() if row[1] == "message"}
    for part in parts(list(said)):
        query = (
            f"WITH near(session, place) AS (VALUES {','.join(['(?,?)'] * len(part))}) SELECT r.id FROM near JOIN rows r"
            " ON r.scope_id = ? AND r.session_id = near.session AND r.ordinal = near.place WHERE r.kind = 'message'"
        )
        found.update(
            row[0] for row in db.execute(query, (*(value for pair in part for value in pair), number))
        )
    for part in parts(list({row[7] for row in rows.values() if row[7] is not None})):
        query = f"SELECT id FROM rows WHERE kind = 'episode' AND scope_id = ? AND cell_id IN ({','.join('?' * len(part))})"
        found.update(row[0] for row in db.execute(query, (number, *part)))
    parents = {row[9] for row in rows.values() if row[9] and (row[8] == "episode" or row[1] == PASSAGE)}
    for part in parts(list(parents)):
        query = f"SELECT id FROM rows WHERE scope_id = ? AND entry_id IN ({','.join('?' * len(part))})"
        found.update(row[0] for row in db.execute(query, (number, *part)))
    return found


def _corpus(about: About, rows: Sequence[Sequence[Any]], standing: Mapping[int, float]) -> Corpus:
    import numpy as np

    count = len(rows)
    senders = {(sender.id, sender.name or ""): place for place, sender in enumerate(about.senders)}
    sessions: dict[str, int] = {}
    cells: dict[str, int] = {}
    episodes = {row[12]: row[7] for row in rows if row[1] == "episode"}
    wholes = {(row[12], row[13]): row[0] for row in rows if row[1] != PASSAGE}

    def code(table: dict[str, int], key: str | None) -> int:
        return table.setdefault(key, len(table)) if key else -1

    def sender(row: Sequence[Any]) -> int:
        return senders.get((row[5].strip("\n"), row[6] or ""), -1) if row[1] in SAID and row[5] else -1

    def cell(row: Sequence[Any]) -> int:
        return code(cells, row[7] or (episodes.get(row[9]) if row[8] == "episode" else None))

    def whole(row: Sequence[Any]) -> int:
        return int(wholes.get((row[9], row[13]), row[0]) if row[1] == PASSAGE else row[0])

    def array(values: Iterable[Any], kind: Any) -> np.ndarray:
        return np.fromiter(values, kind, count)

    has = array((row[-2] is not None for row in rows), np.bool_)
    vectors = None
    if has.any():
        data = np.frombuffer(b"".join(row[-2] for row in rows if row[-2] is not None), np.float16)
        data = data.reshape(int(has.sum()), -1)
        vectors = np.zeros((count, data.shape[1]), np.float32)
        vectors[has] = data
    return Corpus(
        scope=about.scope,
        version=-1,
        rowid=array((row[0] for row in rows), np.int64),
        kind=array((KIND_CODES[row[1]] for row in rows), np.int8),
        timestamp_ms=array((row[2] for row in rows), np.int64),
        session=array((code(sessions, row[3]) for row in rows), np.int32),
        ordinal=array((row[4] for row in rows), np.int32),
        sender=array((sender(row) for row in rows), np.int32),
        cell=array((cell(row) for row in rows), np.int32),
        flags=array((row[10] for row in rows), np.uint8),
        length=array((row[11] for row in rows), np.int32),
        whole=array((whole(row) for row in rows), np.int64),
        has_vector=has,
        vectors=vectors,
        sessions=tuple(sessions),
        senders=about.senders,
        cells=tuple(cells),
        model=about.model,
        standing=array((standing.get(row[0], 1.0) for row in rows), np.float32),
    )
