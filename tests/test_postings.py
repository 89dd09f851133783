"""Postings: BM25 in memory agrees with BM25 by the book, whatever was added, changed and removed."""

import math
from collections import Counter
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.index import postings
from cairn.index.postings import Postings, group_of

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
@given(steps, st.lists(st.sampled_from(WORDS), min_size=1, max_size=3), st.sampled_from([0, 1024]))
def test_scores_agree_with_the_book_after_any_history(history, terms, most_gone):
    """P2: postings kept up to date, with words numbered anew or not, equal postings made anew and the formula."""
    held, truth = Postings.empty(), {}
    kinds: dict[int, str] = {}
    for added, gone in history:
        added = {n: (kinds.setdefault(n, kind), text) for n, (kind, text) in added.items() if n not in gone}
        with mock.patch.object(postings, "_GONE_ROWS", most_gone):
            held = held.updated([(n, kind, text) for n, (kind, text) in sorted(added.items())], gone)
        truth = {n: row for n, row in truth.items() if n not in gone} | added
    anew = Postings.empty().updated([(n, kind, text) for n, (kind, text) in sorted(truth.items())])
    expected = by_the_book(truth, terms)
    for one in (held, anew):
        assert found(one, terms) == pytest.approx(expected, rel=1e-4)
        assert one.frequencies(WORDS) == {
            w: n for w in WORDS if (n := sum(w in tokens.split() for _, tokens in truth.values()))
        }


def test_an_older_view_does_not_change():
    """Postings are values: an update leaves the one it came from as it was."""
    first = Postings.empty().updated([(1, "message", "ash birch")])
    second = first.updated([(1, "message", "cedar"), (2, "message", "ash")])
    assert list(found(first, ["ash"])) == [1]
    assert list(found(second, ["ash"])) == [2]
    assert list(found(first, ["cedar"])) == []


def test_many_small_updates_stay_few_segments():
    """A thousand single writes end in a handful of segments."""
    held = Postings.empty()
    for n in range(1000):
        held = held.updated([(n, "message", f"ash word{n}")])
    assert len(held.segments) <= 6
    assert len(found(held, ["ash"])) == 1000
    assert held.nbytes > 0
