"""Search in scopes too large to hold: LanceDB proposes the rows that fit best, and only those are looked at.

The tables of `lance.py` are asked for the best rows of each kind, by words and by meaning, with the caller's filter
inside the question. Beside them stand all rows that are too new to be in a table, all rows of kinds that have few, the
rows around those that were found, and a sample of the rest, each row of which stands for many, so that what is usual in
the scope is known. All of them are read from SQLite and scored here, exactly and against this owner's texts alone: a
table may be late or wrong, it can only propose.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Unchanged
from cairn.engines.held_rows import HeldRows, HeldScopes
from cairn.engines.lance import LanceTables, Wish, marks_of
from cairn.engines.row_tables import SAID, model_number, parts, scope_number
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
from cairn.index.postings import GROUPS, gain, group_of, norm, rarity
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_log = logging.getLogger(__name__)

# How many messages are asked for by words, and as many by meaning; of entries fewer, but more than an answer may show.
_BEST, _BEST_ENTRIES = 200, 110
# The messages next to the best few of these are looked at, too.
_BESIDE = 100
# Kinds with fewer rows than this are looked at whole, without asking a table.
_WHOLE_ROWS = 300
_SAMPLE_ROWS, _SAMPLES_KEPT = 64, 1000
# More rows than this that no table holds yet: the tables are not ready to answer.
_FRESH_ROWS = 5000


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is counted of a scope: its number and version, and by kind how many rows and words there are."""

    number: int
    version: int
    rows: Mapping[str, int]
    words: Mapping[str, int]


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
        self._samples: dict[tuple[str, int, str], tuple[int, set[int]]] = {}
        self._held = HeldScopes()
        self._known: dict[Scope, tuple[str, _Scope, About, Unchanged]] = {}

    # ---- what there is --------------------------------------------------------------------------------------------

    def count(self, scope: Scope) -> int:
        """How many rows the scope has."""
        return self.about(scope).rows

    def is_ready(self, scope: Scope) -> bool:
        """Whether the tables hold this scope but for a few fresh rows."""
        marks = marks_of(self._tables.state(), self._rows)
        held, _ = self._counted(scope)
        if not held.rows or not marks:
            return False
        large = [kind for kind, count in held.rows.items() if count > self._whole_rows]
        if any(kind not in marks for kind in large):
            return False
        return len(self._db.read(lambda db: _fresh(db, held.number, marks, large))) <= _FRESH_ROWS

    def about(self, scope: Scope) -> About:
        """Who speaks in the scope and how much there is, from counts that are kept as rows come and go."""
        return self._counted(scope)[1]

    def _counted(self, scope: Scope) -> tuple[_Scope, About]:
        """What is counted of a scope; read anew when one of its rows has changed."""
        stamp, model, generation = self._db.stamp(), self._rows.model, self._rows.generation
        known = self._known.get(scope)
        if known is not None and (known[0], known[2].model) == (generation, model) and known[3].holds(stamp):
            return known[1], known[2]

        def ask(db: sqlite3.Connection) -> tuple[_Scope, About]:
            number = scope_number(db, scope)
            if number is None:
                return _Scope(-1, 0, {}, {}), About(scope, 0, (), (), 0)
            version = int(db.execute("SELECT version FROM scopes WHERE id = ?", (number,)).fetchone()[0])
            if known is not None and (known[0], known[1].number, known[1].version, known[2].model) == (
                generation, number, version, model,
            ):  # fmt: skip
                return known[1], known[2]
            return _counts(db, scope, number, version, model)

        held, about = self._db.read(ask)
        if len(self._known) > _SAMPLES_KEPT:
            self._known.clear()
        unchanged = known[3] if known is not None and known[1] is held else Unchanged()
        unchanged.note(stamp)
        self._known[scope] = (generation, held, about, unchanged)
        return held, about

    def frequencies(self, scope: Scope, terms: Iterable[str]) -> Mapping[str, int]:
        """In how many of the scope's rows each term occurs; terms that occur nowhere are missing."""
        wanted, number = list(terms), self._counted(scope)[0].number
        spread = self._db.read(lambda db: _spread(db, number, wanted))
        return {term: sum(by_part.values()) for term, by_part in spread.items()}

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
        held, about = self._counted(scope)
        state = self._tables.state()
        marks = marks_of(state, self._rows)
        large = [kind for kind, count in held.rows.items() if count > self._whole_rows and kind in KIND_CODES]
        words = _Words(held, self._db.read(lambda db: _spread(db, held.number, [*ask.terms, *ask.weights])))
        wishes = [self._wish(scope, state, kind, words, ask) for kind in large if kind in marks]
        lists = self._proposed(state, wishes)
        found = {rowid for _, ids in lists for rowid in ids}
        first = {rowid for kind, ids in lists if kind == "message" for rowid in ids[:_BESIDE]}

        def read(db: sqlite3.Connection) -> tuple[dict[int, Sequence[Any]], set[int], dict[int, float]]:
            few = [kind for kind in held.rows if kind not in large]
            beside = _of_kinds(db, held.number, few) | _fresh(db, held.number, marks, large)
            beside.update(
                rowid for kind in large if kind in marks for rowid in state["kinds"][kind].get("beside", ())
            )
            model = model_number(db, self._rows.model)
            kept = self._held.current(db, (self._rows.generation, held.number, model))
            rows = kept.read(db, found | beside)
            rows |= kept.read(db, _around(db, held.number, rows, first | beside) - rows.keys())
            passing = _passing(db, rows, ask)
            standing: dict[int, float] = {}
            for kind in large:
                known = sum(1 for row in rows.values() if row[1] == kind)
                more = {one[0]: one for one in self._sample(db, held, kind, kept) if one[0] not in rows}
                rows |= more
                standing |= dict.fromkeys(more, max(1.0, (held.rows[kind] - known) / max(1, len(more))))
            return rows, passing, standing

        rows, passing, standing = self._db.read(read)
        return _scored(about, words, ask, rows, passing, standing)

    def _proposed(self, state: Mapping[str, Any], wishes: Sequence[Wish]) -> list[tuple[str, list[int]]]:
        if not wishes:
            return []
        try:
            return self._tables.best(state, wishes)
        except Exception as error:  # a table may be dropped or half written at any moment
            self._tables.distrust(error)
            raise Moved(str(error)) from error

    def _wish(self, scope: Scope, state: Mapping[str, Any], kind: str, words: _Words, ask: Ask) -> Wish:
        number, rows = self._tables.number(scope, words.held.number), words.held.rows[kind]
        tests = [f"scope = {number}"]
        if not ask.hidden:
            tests.append("hidden = false")
        if ask.until_ms is not None:
            tests.append(f"timestamp_ms <= {ask.until_ms}")
        if ask.where:
            tests.append(ask.where.to_lance())
        vector = ask.voiced if kind in SAID and ask.voiced is not None else ask.plain
        weights = words.weights_in(kind, ask.terms, int(state["kinds"][kind]["rows"]), number)
        filtered = bool(ask.where) or ask.until_ms is not None
        limit = self._best if kind in SAID else min(self._best, _BEST_ENTRIES)
        return Wish(scope, kind, " AND ".join(tests), rows, filtered, weights, vector, limit)

    def _sample(
        self, db: sqlite3.Connection, held: _Scope, kind: str, kept: HeldRows
    ) -> Iterable[Sequence[Any]]:
        """Some rows of a kind, evenly spread over all of them, that show what is usual and are no answer themselves.

        They are chosen anew when a quarter of the rows has come or gone.
        """
        key, count = (self._rows.generation, held.number, kind), held.rows[kind]
        chosen = self._samples.get(key)
        if chosen is None or abs(count - chosen[0]) * 4 > chosen[0]:
            query = (
                "SELECT id FROM (SELECT id, row_number() OVER (ORDER BY hidden, timestamp_ms, id) AS place FROM rows"
                " WHERE scope_id = ? AND kind = ?) WHERE place % ? = 0"
            )
            step = max(1, count // _SAMPLE_ROWS)
            if len(self._samples) > _SAMPLES_KEPT:
                self._samples.clear()
            ids = {row[0] for row in db.execute(query, (held.number, kind, step))}
            chosen = self._samples[key] = (count, ids)
        return kept.read(db, chosen[1]).values()


class _Words:
    """What words weigh among the texts of a scope: in how many rows of each group of kinds they occur."""

    def __init__(self, held: _Scope, spread: Mapping[str, Mapping[int, int]]) -> None:
        self.held = held
        self.spread = spread
        self.groups = _groups(held)

    def weight(self, term: str, part: int) -> float:
        return float(rarity(self.groups[part][0], self.spread[term].get(part, 0)))

    def weights_in(self, kind: str, terms: Sequence[str], rows: int, number: int) -> dict[str, float]:
        """The words of a question as the table of a kind has them, and how much more each counts than it would there.

        There a word has the `number` of its scope before it.

        The table weighs a word by how rare it is among all its `rows`; divided by that, it weighs what it does here.
        """
        part, out = group_of(kind), {}
        for term in terms:
            holding = self.spread.get(term, {}).get(part, 0)
            if holding:
                there = float(rarity(max(rows, holding), holding))
                out[f"{number}:{term}"] = self.weight(term, part) / there
        return out


def _scored(
    about: About,
    words: _Words,
    ask: Ask,
    rows: Mapping[int, Sequence[Any]],
    passing: AbstractSet[int],
    standing: Mapping[int, float],
) -> Found:
    """The rows as a corpus, with what the question finds in each."""
    import numpy as np

    chosen = [rows[rowid] for rowid in sorted(rows)]
    corpus = _corpus(about, chosen, standing)
    known = frozenset(words.spread)
    numbers = {word: number for number, word in enumerate(words.spread)}
    at, held, counts = [], [], []
    for place, row in enumerate(chosen):
        for word in row[-2].keys() & known:
            at.append(place)
            held.append(numbers[word])
            counts.append(row[-2][word])
    places, terms = np.array(at, np.int64), np.array(held, np.int64)
    part = np.array([group_of(kind) for kind in KIND_CODES], np.int64)[corpus.kind]
    asked = frozenset(ask.terms)
    weights = np.zeros((len(numbers), len(words.groups)), np.float32)
    for term, number in numbers.items():
        if term in asked:
            weights[number] = [words.weight(term, group) for group in range(len(words.groups))]
    usual = norm(corpus.length, np.array([mean for _, mean in words.groups], np.float32)[part])
    won = weights[terms, part[places]] * gain(np.array(counts, np.float32), usual[places])
    share = np.array([ask.weights.get(term, 0.0) for term in numbers], np.float32)[terms]
    cosine = None
    if ask.plain is not None:
        cosine = np.zeros(len(chosen), np.float32)
        if corpus.vectors is not None:
            cosine = dot(corpus.vectors, ask.plain)
            if ask.voiced is not None:
                cosine = np.where(corpus.sender >= 0, dot(corpus.vectors, ask.voiced), cosine)
    return Found(
        corpus=corpus,
        passing=np.array([row[0] in passing for row in chosen], bool),
        bm25=np.bincount(places, won, len(chosen)).astype(np.float32),
        cosine=cosine,
        covered=np.bincount(places, share, len(chosen)).astype(np.float32),
        holding={term: places[terms == numbers.get(term, -1)] for term in ask.rare},
    )


def _counts(
    db: sqlite3.Connection, scope: Scope, number: int, version: int, model: str
) -> tuple[_Scope, About]:
    found = db.execute(
        "SELECT kind, rows, words FROM tallies WHERE scope_id = ? AND rows > 0", (number,)
    ).fetchall()
    held = _Scope(number, version, {row[0]: row[1] for row in found}, {row[0]: row[2] for row in found})
    speakers = db.execute(
        "SELECT id, name, rows FROM speakers WHERE scope_id = ? ORDER BY rows DESC, id, name", (number,)
    ).fetchall()
    latest = "SELECT max(timestamp_ms) FROM rows WHERE scope_id = ? AND kind = ? AND hidden = ?"
    times = [
        db.execute(latest, (number, kind, hidden)).fetchone()[0] or 0
        for kind in held.rows
        for hidden in (0, 1)
    ]
    rows = sum(held.rows.values())
    waiting = "SELECT count(*) FROM rows WHERE pending = 1 AND scope_id = ?"
    without = int(db.execute(waiting, (number,)).fetchone()[0]) if model else rows
    return held, About(
        scope=scope,
        rows=rows,
        senders=tuple(Sender(row[0], row[1] or None) for row in speakers),
        spoken=tuple(row[2] for row in speakers),
        latest_ms=max(times, default=0),
        embedded=rows - without,
        waiting=without,
        model=model,
    )


def _groups(held: _Scope) -> list[tuple[int, float]]:
    """For each group of kinds how many rows it has, and how long its texts are in the mean."""
    rows, words = [0] * (len(GROUPS) + 1), [0] * (len(GROUPS) + 1)
    for kind, count in held.rows.items():
        rows[group_of(kind)] += count
        words[group_of(kind)] += held.words[kind]
    return [(count, max(1.0, said / max(1, count))) for count, said in zip(rows, words, strict=True)]


def _spread(db: sqlite3.Connection, number: int, terms: Sequence[str]) -> dict[str, dict[int, int]]:
    """In how many rows of each group a term occurs."""
    found: dict[str, dict[int, int]] = {}
    for part in parts(list(dict.fromkeys(terms))):
        query = (
            f"SELECT term, part, rows FROM terms WHERE scope_id = ? AND term IN ({','.join('?' * len(part))})"
        )
        for term, group, rows in db.execute(query, (number, *part)):
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


def _passing(db: sqlite3.Connection, rows: Mapping[int, Sequence[Any]], ask: Ask) -> set[int]:
    """Ids of the rows that pass a question's filter, may be shown, and are old enough."""
    passing = {
        rowid
        for rowid, row in rows.items()
        if (ask.hidden or not row[14]) and (ask.until_ms is None or row[2] <= ask.until_ms)
    }
    if not ask.where:
        return passing
    condition, values = ask.where.to_sql()
    query = f"SELECT r.id FROM json_each(?) w CROSS JOIN rows r ON r.id = w.value WHERE {condition}"
    return {row[0] for row in db.execute(query, (json.dumps(sorted(passing)), *values))}


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
        # Left to itself SQLite walks all episodes of the scope.
        query = (
            "SELECT id FROM rows INDEXED BY rows_episode WHERE kind = 'episode' AND scope_id = ?"
            f" AND cell_id IN ({','.join('?' * len(part))})"
        )
        found.update(row[0] for row in db.execute(query, (number, *part)))
    parents = {row[9] for row in rows.values() if row[9] and (row[8] == "episode" or row[1] == PASSAGE)}
    for part in parts(list(parents)):
        query = f"SELECT id FROM rows WHERE scope_id = ? AND entry_id IN ({','.join('?' * len(part))})"
        found.update(row[0] for row in db.execute(query, (number, *part)))
    return found


def _corpus(about: About, rows: Sequence[Sequence[Any]], standing: Mapping[int, float]) -> Corpus:
    import numpy as np

    count = len(rows)
    (ids, kinds, times, sessions, ordinals, sent, names, cells, origins, parents, flags, lengths, _, paths,
     _, _, data) = zip(*rows, strict=True) if rows else [()] * 17  # fmt: skip
    speakers = {(sender.id, sender.name or ""): place for place, sender in enumerate(about.senders)}
    episodes = {row[12]: row[7] for row in rows if row[1] == "episode"}
    wholes = {(row[12], row[13]): row[0] for row in rows if row[1] != PASSAGE} if PASSAGE in kinds else {}
    of_cell = [
        cell or (episodes.get(parent) if origin == "episode" else None)
        for cell, origin, parent in zip(cells, origins, parents, strict=True)
    ]
    session, session_names = _coded(sessions)
    cell, cell_names = _coded(of_cell)
    has = np.fromiter((one is not None for one in data), np.bool_, count)
    vectors = None
    if has.any():
        found = np.frombuffer(b"".join(one for one in data if one is not None), np.float16)
        vectors = np.zeros((count, len(found) // int(has.sum())), np.float32)
        vectors[has] = found.reshape(int(has.sum()), -1)
    return Corpus(
        scope=about.scope,
        version=-1,
        rowid=np.array(ids, np.int64),
        kind=np.array([KIND_CODES[kind] for kind in kinds], np.int8),
        timestamp_ms=np.array(times, np.int64),
        session=session,
        ordinal=np.array(ordinals, np.int32),
        sender=np.array(
            [
                speakers.get((one.strip("\n"), name or ""), -1) if kind in SAID and one else -1
                for kind, one, name in zip(kinds, sent, names, strict=True)
            ],
            np.int32,
        ),
        cell=cell,
        flags=np.array(flags, np.uint8),
        length=np.array(lengths, np.int32),
        whole=np.array(
            [
                wholes.get((parent, path), rowid) if kind == PASSAGE else rowid
                for rowid, kind, parent, path in zip(ids, kinds, parents, paths, strict=True)
            ],
            np.int64,
        ),
        has_vector=has,
        vectors=vectors,
        sessions=session_names,
        senders=about.senders,
        cells=cell_names,
        model=about.model,
        standing=np.array([standing.get(rowid, 1.0) for rowid in ids], np.float32),
    )


def _coded(names: Iterable[str | None]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers in place of names (-1 where there is none), and the names in their order."""
    import numpy as np

    known: dict[str, int] = {}
    codes = [known.setdefault(name, len(known)) if name else -1 for name in names]
    return np.array(codes, np.int32), tuple(known)
