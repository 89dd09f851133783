"""Postings: BM25 in memory agrees with BM25 by the book, whatever was added, changed and removed."""

import math
from collections import Counter
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.engines.row_tables import prepared
from cairn.index import postings
from cairn.index.corpus import Ask, Corpus, NewRow, Row, text_flags
from cairn.index.embedding_text import searched_words
from cairn.index.postings import Postings, group_of, rows_by_mark, word_marks
from tests.waiting import calls_of
from tests.world import ALICE

WORDS = ("ash", "birch", "cedar", "elm")
KINDS = ("message", "episode", "memory", "atomic_fact")


def by_the_book(rows: dict[int, tuple[str, str]], terms: list[str]) -> dict[int, float]:
    out: dict[int, float] = {}
    for group in range(3):
        mine = {n: Counter(tokens.split()) for n, (kind, tokens) in rows.items() if group_of(kind) == group}
        mean = max(1.0, sum(sum(c.values()) for c in mine.values()) / max(1, len(mine)))
        for n, have in mine.items():
            total = 0.0
            for term in set(terms) & set(have):
                spread = sum(term in c for c in mine.values())
                norm = 1.2 * (0.25 + 0.75 * sum(have.values()) / mean)
                rarity = math.log(1 + (len(mine) - spread + 0.5) / (spread + 0.5))
                total += rarity * have[term] * 2.2 / (have[term] + norm)
            if total > 0:
                out[n] = total
    return out


def worded(rows):
    """Rows as postings take them: their words by marks."""
    return [(rowid, kind, word_marks(tokens.split())) for rowid, kind, tokens in rows]


def found(held: Postings, terms: list[str]) -> dict[int, float]:
    """The rows that hold any of the terms, with their scores."""
    scores = held.scores(terms)
    return {int(rowid): float(score) for rowid, score in zip(held.rowids, scores, strict=True) if score > 0}


texts = st.lists(st.sampled_from(WORDS), min_size=1, max_size=8).map(" ".join)
steps = st.lists(
    st.tuples(
        st.dictionaries(st.integers(1, 12), st.tuples(st.sampled_from(KINDS), texts), max_size=6),
        st.sets(st.integers(1, 12), max_size=3),
    ),
    max_size=8,
)


@settings(max_examples=60, deadline=None)
@given(steps, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3))
def test_scores_agree_with_the_book_after_any_history(history, terms):
    """P2: postings kept up to date equal postings made anew and the formula."""
    held, truth = Postings(), {}
    kinds: dict[int, str] = {}
    for added, gone in history:
        added = {n: (kinds.setdefault(n, kind), text) for n, (kind, text) in added.items() if n not in gone}
        held = held.updated(worded((n, *row) for n, row in sorted(added.items())), gone)
        truth = {n: row for n, row in truth.items() if n not in gone} | added
    anew = Postings().updated(worded((n, *row) for n, row in sorted(truth.items())))
    expected = by_the_book(truth, terms)
    for one in (held, anew):
        assert found(one, terms) == pytest.approx(expected, rel=1e-4)
        assert one.frequencies(WORDS) == {
            w: n for w in WORDS if (n := sum(w in tokens.split() for _, tokens in truth.values()))
        }


def rows_of(rowids: list[int]) -> Corpus:
    """A corpus of these rows, of which nothing matters but where they stand."""
    some = np.zeros(len(rowids), np.int64)
    names = ("kind", "timestamp_ms", "session", "ordinal", "sender", "cell", "flags", "length", "whole")
    arrays = dict.fromkeys((*names, "has_vector"), some)
    rowid = np.array(rowids, np.int64)
    return Corpus(ALICE, 1, rowid, vectors=None, sessions=(), senders=(), cells=(), **arrays)


@settings(max_examples=60, deadline=None)
@given(
    steps, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3, unique=True), st.sets(st.integers(1, 12))
)
def test_a_question_finds_each_row_at_its_place(history, terms, missing):
    """What words find stands where a row stands among those asked about, whatever segments it came in; others are nowhere."""
    held, truth = Postings(), {}
    for added, gone in history:
        added = {n: row for n, row in added.items() if n not in gone}
        held = held.updated(worded((n, *row) for n, row in sorted(added.items())), gone)
        truth = {n: row for n, row in truth.items() if n not in gone} | added
    for rowids in (sorted(truth), sorted(truth.keys() - missing | {77})):
        weights = {term: 0.5 + place for place, term in enumerate(terms)}
        bm25, covered, holding = held.legs(rows_of(rowids), Ask(terms=terms, weights=weights, rare=WORDS))
        said = [set(truth[n][1].split()) if n in truth else set() for n in rowids]
        assert covered.tolist() == [sum(weights[w] for w in terms if w in one) for one in said]
        assert (bm25 > 0).tolist() == [bool(one & set(terms)) for one in said]
        scores = found(held, terms)
        assert bm25.tolist() == [scores.get(n, 0.0) for n in rowids]
        assert {w: at.tolist() for w, at in holding.items()} == {
            w: [place for place, one in enumerate(said) if w in one] for w in WORDS
        }


def test_an_older_view_does_not_change():
    """Postings are values: an update leaves the one it came from as it was."""
    first = Postings().updated(worded([(1, "message", "ash birch")]))
    second = first.updated(worded([(1, "message", "cedar"), (2, "message", "ash")]))
    assert list(found(first, ["ash"])) == [1]
    assert list(found(second, ["ash"])) == [2]
    assert list(found(first, ["cedar"])) == []


@settings(max_examples=60, deadline=None)
@given(steps, st.integers(1, 9))
def test_words_are_gone_through_in_rounds_of_any_size(history, at_once):
    """However few postings fit into one round, scores and counts are those of a single one."""
    held = Postings()
    for added, gone in history:
        held = held.updated(
            worded((n, *row) for n, row in sorted(added.items()) if n not in gone), gone - added.keys()
        )
    scores, counts = held.scores(WORDS), held.frequencies(WORDS)
    with patch.object(postings, "_POSTINGS_AT_ONCE", at_once):
        assert held.scores(WORDS) == pytest.approx(scores, rel=1e-6)
        assert held.frequencies(WORDS) == counts


def test_many_words_cost_no_more_calls_than_few():
    """A question of hundreds of words is as many operations on arrays as one of three."""
    held = Postings().updated(worded((n, "message", f"ash word{n}") for n in range(400)))
    held.scores(WORDS)
    few, many = (
        calls_of(lambda terms=terms: held.scores(terms))["bincount"]
        for terms in (["word1", "ash", "word3"], [f"word{n}" for n in range(300)])
    )
    assert few == many > 0


def test_many_small_updates_stay_few_segments():
    """A thousand single writes end in a handful of segments."""
    held = Postings()
    for n in range(1000):
        held = held.updated(worded([(n, "message", f"ash word{n}")]))
    assert len(held.segments) <= 6
    assert len(found(held, ["ash"])) == 1000
    assert held.nbytes > 0


def test_how_many_rows_hold_a_word_is_counted_alike_for_few_and_for_many():
    """Each row counts once for a word, however often it says it."""
    rows = [word_marks(["ash", "ash", f"word{n % 3}"]) for n in range(120)]
    few = rows_by_mark(rows[:9])
    for part in range(1, 12):
        few += rows_by_mark(rows[9 * part : 9 * part + 9])
    assert few + rows_by_mark(rows[108:]) == rows_by_mark(rows)
    assert sorted(rows_by_mark(rows).values()) == [40, 40, 40, 120]


pieces = st.sampled_from(
    ["last", "May", "weeks,", "1,000", "(today)", "don't", "getUserName", "a/b.py", "c++", "-", "\u6628\u65e5", "na\u00efve", "x" * 80,
     "two.", "\n", "seventy", "_"]
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(
    st.lists(pieces | st.text(max_size=6), max_size=8).map(" ".join),
    st.sampled_from(["message", "episode"]),
    st.sampled_from(["", "May", "Ana Lima", "\u041f\u0435\u0442\u044f"]),
)
def test_a_row_is_read_word_by_word_as_it_is_whole(text, kind, name):
    """Tokens, marks and flags of a row are those of its text read at once; who said it adds a word and no flag."""
    row = Row(0, kind, ALICE, "m1", "s.jsonl", text, 1, sender_ids=("u_1",), sender_name=name)
    made, words = prepared(NewRow(row, b"")), searched_words(kind, text, "u_1", name)
    assert (made.tokens.split(), made.words, made.length) == (words, word_marks(words), len(words))
    assert made.flags == text_flags(text)
