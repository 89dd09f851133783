"""Search in scopes too large for memory: LanceDB proposes the best rows, and only those are read and scored.

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from cairn.engines.database import Remembered
from cairn.engines.held_rows import Columns, HeldRows, HeldScopes, found_by
from cairn.engines.lance import LanceTables, Wish, marks_of
from cairn.engines.row_tables import AMONG, model_number, scope_number
from cairn.engines.rows import SqliteIndex, dot
from cairn.errors import Unavailable
from cairn.index.corpus import (
    ATTRIBUTES,
    KIND_CODES,
    PASSAGE,
    SAID,
    About,
    Ask,
    Corpus,
    Found,
    Moved,
    Row,
    SearchIndex,
    Sender,
    passing_rows,
)
from cairn.index.postings import GROUPS, gain, group_of, mark_number, norm, rarity, word_marks
from cairn.types import Scope

if TYPE_CHECKING:
    import numpy as np

_log = logging.getLogger(__name__)

# How many messages are asked for by words, and as many by meaning, for each one that an answer shows, and how many at
# most; of entries fewer, but more than an answer may show. What stands around the better half of these is looked at, too.
_EACH, _BEST = 10, 200
_EACH_ENTRY, _BEST_ENTRIES = 6, 110
_FEWEST = 10
_LEADING = 2
# Kinds with fewer rows than this are looked at whole, without asking a table.
_WHOLE_ROWS = 1000
_SAMPLE_ROWS, _SAMPLES_KEPT = 64, 1000
# More rows than this that no table holds yet: the tables are not ready to answer.
_FRESH_ROWS = 5000
# So many words are looked for one by one; more of them by halving.
_FEW_WORDS = 24


@dataclass(frozen=True, slots=True)
class _Scope:
    """What is counted of a scope: its number, in which state of which file, and by kind how many rows and words there are."""

    number: int
    state: tuple[str, int]
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
            count = self._memory.count(scope)
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
        best: How many rows of a kind are asked for by words, and as many by meaning; by kind unless given.
        whole_rows: Kinds with at most so many rows are looked at whole.
    """

    def __init__(
        self,
        rows: SqliteIndex,
        tables: LanceTables,
        *,
        best: int | None = None,
        whole_rows: int = _WHOLE_ROWS,
    ) -> None:
        self._rows = rows
        self._db = rows.database
        self._tables = tables
        self._best = best
        self._whole_rows = whole_rows
        self._samples: dict[tuple[str, int, str], tuple[int, set[int]]] = {}
        self._held = HeldScopes()
        self._known: Remembered[tuple[_Scope, About]] = Remembered(_SAMPLES_KEPT)

    # ---- what there is --------------------------------------------------------------------------------------------

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
        model = self._rows.model
        return self._known.get(
            self._db, (scope, model), lambda last: self._db.read(lambda db: _counts(db, scope, model, last))
        )

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
        import numpy as np

        held, about = self._counted(scope)
        state = self._tables.state()
        marks = marks_of(state, self._rows)
        large = [kind for kind, count in held.rows.items() if count > self._whole_rows and kind in KIND_CODES]
        words = _Words(held, self._db.read(lambda db: _spread(db, held.number, [*ask.terms, *ask.weights])))
        wishes = [self._wish(scope, state, kind, words, ask) for kind in large if kind in marks]
        kept = self._db.read(lambda db: self._current(db, held.number))
        found: dict[int, int] = {}
        lead: set[int] = set()
        for kind, ids in self._proposed(state, wishes):
            lead.update(ids[: self._limit(kind, ask.count) // _LEADING])
            found |= self._db.read(partial(kept.read, wanted=ids))

        def read(db: sqlite3.Connection) -> tuple[np.ndarray, Corpus, np.ndarray]:
            few = [kind for kind in held.rows if kind not in large]
            beside = _of_kinds(db, held.number, few) | _fresh(db, held.number, marks, large)
            beside.update(
                rowid for kind in large if kind in marks for rowid in state["kinds"][kind].get("beside", ())
            )
            rows = found | kept.read(db, beside)
            rows |= kept.read(db, _around(db, held.number, kept, rows, lead | beside) - rows.keys())
            more = {kind: kept.read(db, self._sample(db, held, kind) - rows.keys()) for kind in large}
            at, standing = _standing(kept.columns, rows, more, held.rows)
            corpus = _corpus(about, kept.columns, at, standing)
            passing = passing_rows(corpus, ask, lambda: _matching(db, corpus, ask))
            passing[
                corpus.places(np.array([one for sampled in more.values() for one in sampled], np.int64))
            ] = False
            return at, corpus, passing

        at, corpus, passing = self._db.read(read)
        return _scored(words, ask, kept.columns, at, corpus, passing)

    def _current(self, db: sqlite3.Connection, number: int) -> HeldRows:
        """What is held of a scope's rows, with the vectors of the model that is asked."""
        key = (self._rows.generation, number, model_number(db, self._rows.model))
        return self._held.current(db, key)

    def _proposed(self, state: Mapping[str, Any], wishes: Sequence[Wish]) -> Iterator[tuple[str, list[int]]]:
        """What the tables propose, list by list; rows of one can be read while the next is looked for."""
        try:
            yield from self._tables.best(state, wishes) if wishes else ()
        except Exception as error:  # a table may be dropped or half written at any moment
            self._tables.distrust(error)
            raise Moved(str(error)) from error

    def _wish(self, scope: Scope, state: Mapping[str, Any], kind: str, words: _Words, ask: Ask) -> Wish:
        number, rows = self._tables.number(scope, words.held.number), words.held.rows[kind]
        tests = []
        is_alone = state["kinds"][kind].get("alone") == number
        if not is_alone:
            tests += [f"scope = {number}"] if ask.hidden else [f"scope = {number}", "hidden = false"]
        if ask.until_ms is not None:
            tests.append(f"timestamp_ms <= {ask.until_ms}")
        if ask.where:
            tests.append(ask.where.to_lance())
        vector = ask.voiced if kind in SAID and ask.voiced is not None else ask.plain
        weights = words.weights_in(kind, ask.terms, int(state["kinds"][kind]["rows"]), number)
        filtered = bool(ask.where) or ask.until_ms is not None
        limit = self._limit(kind, ask.count)
        timely = (
            partial(_timely, ask) if is_alone and filtered and ask.where.fields() <= {"timestamp"} else None
        )
        return Wish(scope, kind, " AND ".join(tests), rows, filtered, weights, vector, limit, timely)

    def _limit(self, kind: str, count: int | None) -> int:
        """How many rows of a kind are asked for, by words and by meaning each, where an answer shows `count`."""
        each, most = (_EACH, _BEST) if kind in SAID else (_EACH_ENTRY, _BEST_ENTRIES)
        most = self._best or most
        return most if count is None else min(most, each * max(count, _FEWEST))

    def _sample(self, db: sqlite3.Connection, held: _Scope, kind: str) -> set[int]:
        """Ids of some rows of a kind, evenly spread over all of them, that show what is usual and are no answer themselves.

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
        return chosen[1]


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
    words: _Words, ask: Ask, columns: Columns, at: np.ndarray, corpus: Corpus, passing: np.ndarray
) -> Found:
    """What the question finds in each row of a corpus, whose rows stand at `at` in `columns`."""
    import numpy as np

    asked = list(words.spread)
    places, terms, counts = _holding(columns, at, asked)
    part = np.array([group_of(kind) for kind in KIND_CODES], np.int64)[corpus.kind]
    wanted = frozenset(ask.terms)
    weights = np.zeros((len(asked), len(words.groups)), np.float32)
    for number, term in enumerate(asked):
        if term in wanted:
            weights[number] = [words.weight(term, group) for group in range(len(words.groups))]
    usual = norm(corpus.length, np.array([mean for _, mean in words.groups], np.float32)[part])
    won = weights[terms, part[places]] * gain(counts.astype(np.float32), usual[places])
    share = np.array([ask.weights.get(term, 0.0) for term in asked], np.float32)[terms]
    cosine = None
    if ask.plain is not None:
        cosine = np.zeros(len(corpus), np.float32)
        if corpus.vectors is not None:
            cosine = dot(corpus.vectors, ask.plain)
            if ask.voiced is not None:
                cosine = np.where(corpus.sender >= 0, dot(corpus.vectors, ask.voiced), cosine)
    return Found(
        corpus=corpus,
        passing=passing,
        bm25=np.bincount(places, won, len(corpus)).astype(np.float32),
        cosine=cosine,
        covered=np.bincount(places, share, len(corpus)).astype(np.float32),
        holding={
            term: places[terms == (asked.index(term) if term in words.spread else -1)] for term in ask.rare
        },
    )


def _holding(
    columns: Columns, at: np.ndarray, asked: Sequence[str]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Which rows hold which of the words `asked`, and how often: place in `at`, place in `asked`, count."""
    import numpy as np

    row, said = columns.words_of(at)
    marks = np.frombuffer(word_marks(asked), np.int64)
    if len(marks) <= _FEW_WORDS:
        found = [np.flatnonzero(said == mark) for mark in marks]
        held = np.concatenate([np.zeros(0, np.int64), *found])
        term = np.repeat(np.arange(len(marks)), [len(one) for one in found])
    else:
        order = np.argsort(marks)
        near = np.minimum(np.searchsorted(marks[order], said), len(marks) - 1)
        held = np.flatnonzero(marks[order[near]] == said)
        term = order[near[held]]
    pairs, counts = np.unique(row[held] * max(1, len(asked)) + term, return_counts=True)
    return pairs // max(1, len(asked)), pairs % max(1, len(asked)), counts


def _standing(
    columns: Columns,
    rows: Mapping[int, int],
    more: Mapping[str, Mapping[int, int]],
    counts: Mapping[str, int],
) -> tuple[np.ndarray, np.ndarray]:
    """Where all the rows stand, by rowid, and for how many rows each stands: `more` of a kind for those not here."""
    import numpy as np

    whole = dict(rows)
    for sampled in more.values():
        whole |= sampled
    at = np.array([whole[rowid] for rowid in sorted(whole)], np.int64)
    standing = np.ones(len(at), np.float32)
    found = np.fromiter(rows.values(), np.int64, len(rows))
    here = np.bincount(columns["kind"][found], minlength=len(KIND_CODES)) if whole else ()
    for kind, sampled in more.items():
        each = (counts[kind] - here[KIND_CODES[kind]]) / max(1, len(sampled))
        standing[np.isin(at, list(sampled.values()))] = max(1.0, each)
    return at, standing


def _counts(
    db: sqlite3.Connection, scope: Scope, model: str, last: tuple[_Scope, About] | None
) -> tuple[_Scope, About]:
    """What is counted of a scope; `last` where none of its rows has changed since."""
    query = "SELECT s.id, b.generation, s.version FROM scopes s JOIN birth b WHERE s.id = ?"
    row = db.execute(query, (scope_number(db, scope),)).fetchone()
    number, state = (int(row[0]), (str(row[1]), int(row[2]))) if row else (-1, ("", 0))
    if last is not None and (last[0].number, last[0].state) == (number, state):
        return last
    if row is None:
        return _Scope(number, state, {}, {}), About(scope, 0, (), (), 0, model=model)
    found = db.execute(
        "SELECT kind, rows, words FROM tallies WHERE scope_id = ? AND rows > 0", (number,)
    ).fetchall()
    held = _Scope(number, state, {row[0]: row[1] for row in found}, {row[0]: row[2] for row in found})
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
    asked = {mark_number(term): term for term in terms}
    found: dict[str, dict[int, int]] = {}
    query = f"SELECT mark, part, rows FROM terms WHERE scope_id = ? AND mark {AMONG}"
    for mark, group, rows in db.execute(query, (number, json.dumps([*asked]))):
        found.setdefault(asked[mark], {})[group] = rows
    return found


def _of_kinds(db: sqlite3.Connection, number: int, kinds: Sequence[str]) -> set[int]:
    query = f"SELECT id FROM rows WHERE scope_id = ? AND kind {AMONG}"
    return {row[0] for row in db.execute(query, (number, json.dumps(kinds)))} if kinds else set()


def _fresh(db: sqlite3.Connection, number: int, marks: Mapping[str, int], kinds: Sequence[str]) -> set[int]:
    """Rows that are too new to be in their table."""
    oldest = min((marks.get(kind, 0) for kind in kinds), default=0)
    query = "SELECT id, kind, version FROM rows WHERE scope_id = ? AND version > ?"
    return {
        rowid
        for rowid, kind, version in (db.execute(query, (number, oldest)) if kinds else ())
        if kind in kinds and version > marks.get(kind, 0)
    }


def _timely(ask: Ask, times: np.ndarray) -> np.ndarray | None:
    """Which rows with these times pass a question's filter, which asks for nothing else; None where it cannot be told."""
    import numpy as np

    passing = np.ones(len(times), bool) if ask.until_ms is None else times <= ask.until_ms
    asked = ask.where.over(times, np.full(len(times), -1), ()) if ask.where else passing
    return None if asked is None else passing & asked


def _matching(db: sqlite3.Connection, corpus: Corpus, ask: Ask) -> np.ndarray:
    """Ids of the rows of a corpus that pass a question's filter."""
    import numpy as np

    condition, values = ask.where.to_sql()
    query = f"SELECT r.id FROM json_each(?) w CROSS JOIN rows r ON r.id = w.value WHERE {condition}"
    found = db.execute(query, (json.dumps(corpus.rowid.tolist()), *values)).fetchall()
    return np.fromiter((row[0] for row in found), np.int64, len(found))


_EPISODES = (
    # Left to itself SQLite walks all episodes of the scope.
    "SELECT r.id, w.value FROM json_each(?) w CROSS JOIN rows r INDEXED BY rows_episode ON r.kind = 'episode'"
    " AND r.scope_id = ? AND r.cell_id = w.value"
)
_WHOLES = (
    "SELECT r.id, w.value FROM json_each(?) w CROSS JOIN rows r INDEXED BY rows_entry"
    " ON r.scope_id = ? AND r.entry_id = w.value"
)
_NEAR = (
    "SELECT r.id FROM json_each(?) w CROSS JOIN rows r INDEXED BY rows_session ON r.scope_id = ?"
    " AND r.session_id = json_extract(w.value, '$[0]') AND r.ordinal = json_extract(w.value, '$[1]') WHERE r.kind = 'message'"
)


def _around(
    db: sqlite3.Connection, number: int, kept: HeldRows, rows: Mapping[int, int], lead: AbstractSet[int]
) -> set[int]:
    """Ids of what ranking looks at beside the rows that were found: what passages are parts of, and of those that lead their
    episodes and the messages next to them.
    """
    import numpy as np

    columns = kept.columns
    if not rows:
        return set()
    at = np.fromiter(rows.values(), np.int64, len(rows))
    leading = np.array([rows[rowid] for rowid in lead if rowid in rows], np.int64)
    message, passage = KIND_CODES["message"], KIND_CODES[PASSAGE]

    def said(places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        spoken = places[(columns["kind"][places] == message) & (columns["session"][places] >= 0)]
        return columns["session"][spoken].astype(np.int64) << 32, columns["ordinal"][spoken]

    session, ordinal = said(leading)
    here = np.add(*said(at))
    wanted = np.setdiff1d(np.concatenate([session + ordinal - 1, session + ordinal + 1]), here)
    names = columns.names["session"].names
    near = [(names[one >> 32], one & 0xFFFFFFFF) for one in wanted[(wanted & 0xFFFFFFFF) < 2**31].tolist()]
    found = {row[0] for row in db.execute(_NEAR, (json.dumps(near), number))} if near else set()

    cells = np.unique(columns["cell"][leading])
    named = [columns.names["cell"].names[cell] for cell in cells[cells >= 0].tolist()]
    found |= found_by(db, kept.episodes, named, _EPISODES, number)

    cut = at[columns["kind"][at] == passage]
    parts = np.concatenate([cut, leading[columns["from_episode"][leading]]])
    parents = {parent for place in parts.tolist() if (parent := columns.entries[place][2])}
    return found | found_by(db, kept.wholes, parents, _WHOLES, number)


def _corpus(about: About, columns: Columns, at: np.ndarray, standing: np.ndarray) -> Corpus:
    """The rows at `at` in `columns`, by rowid, as ranking reads them."""
    import numpy as np

    numbers = {name: columns[name][at] for name in (*ATTRIBUTES, "has_vector")}
    named = columns.names
    speakers = {(sender.id, sender.name): place for place, sender in enumerate(about.senders)}
    known = np.array([*(speakers.get(one, -1) for one in named["sender"].names), -1], np.int32)
    kind, rowid, cell = numbers["kind"], numbers["rowid"], numbers["cell"]
    places = at.tolist()
    episodes = {
        columns.entries[places[n]][0]: cell[n] for n in np.flatnonzero(kind == KIND_CODES["episode"]).tolist()
    }
    for n in np.flatnonzero((cell < 0) & columns["from_episode"][at]).tolist():
        cell[n] = episodes.get(columns.entries[places[n]][2], -1)
    whole, passages = rowid.copy(), np.flatnonzero(kind == KIND_CODES[PASSAGE]).tolist()
    if passages:
        entries = [columns.entries[place] for place in places]
        cut = set(passages)
        wholes = {entries[n][:2]: rowid[n] for n in range(len(places)) if n not in cut}
        for n in passages:
            whole[n] = wholes.get((entries[n][2], entries[n][1]), rowid[n])
    return Corpus(
        scope=about.scope,
        version=-1,
        **(numbers | {"sender": known[numbers["sender"]]}),
        whole=whole,
        vectors=columns.vectors_of(at),
        sessions=named["session"].names,
        senders=about.senders,
        cells=named["cell"].names,
        model=about.model,
        standing=standing,
    )
