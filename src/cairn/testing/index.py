"""The index suite: one question for words, meaning and filter, whoever answers it.

An engine under test is a store that takes rows, an index that is asked, and `settle`, which lets the engine do in its
own time what it does behind the rows (fold them into tables, say). Every answer must be the same before and after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from cairn.index.corpus import Ask, Found, NewRow, Row, RowStore, SearchIndex
from cairn.index.filters import Group, parse
from cairn.testing.suite import Mixin, require
from cairn.types import Scope, Space

if TYPE_CHECKING:
    import numpy as np

__all__ = ["INDEX_CHECKS", "IndexConformance", "IndexUnderTest"]

ANA = Scope(Space(), "user", "ana")
BO = Scope(Space(), "user", "bo")
MODEL = "suite@16"
_HOSTILE = (
    "s1",
    "s2",
    "it's",
    'a"b',
    "back\\slash",
    "100%",
    "_",
    "ü",
    "naïve 雪",
    "x' OR '1'='1",
    "--",
    "$1",
    "?",
)


@dataclass(frozen=True, slots=True)
class IndexUnderTest:
    """What the suite asks an engine through."""

    store: RowStore
    index: SearchIndex
    settle: Callable[[], object] = lambda: None


def _row(number: int, text: str, scope: Scope = ANA, **given: Any) -> NewRow:
    row = Row(
        rowid=0, kind="message", scope=scope, entry_id=f"e{number}", path=f"{scope.owner}.md", text=text,
        timestamp_ms=1000 + number, session_id="s1", sender_ids=("ana",), sender_name="Ana", ordinal=number,
    )  # fmt: skip
    made = replace(row, **given)
    return NewRow(made, f"{number} {made}".encode())


def _vector(number: int) -> np.ndarray:
    """A unit vector that points nearer to the first axis the smaller `number` is."""
    import numpy as np

    angle = math.atan(number / 50)
    out = np.zeros(16, np.float32)
    out[0], out[1 + number % 15] = math.cos(angle), math.sin(angle)
    return out


def _put(under: IndexUnderTest, rows: Sequence[NewRow]) -> None:
    """Rows with a vector each, by the number in their id."""
    under.store.begin_model(MODEL)
    under.store.apply(rows)
    while waiting := under.store.pending(1000):
        found = {row.row.text: int(row.row.entry_id.strip("e")) for row in rows}
        under.store.put_vectors(waiting, {one.key: _vector(found.get(one.text, 0)) for one in waiting})


def _both_times(under: IndexUnderTest, check: Callable[[], None]) -> None:
    check()
    under.settle()
    check()


def _named(under: IndexUnderTest, found: Found, values: np.ndarray, least: float) -> dict[str, float]:
    """Entry ids that pass and have more than `least`, with their values, best first."""
    ids = {
        int(rowid): float(value)
        for rowid, value, passes in zip(found.corpus.rowid, values, found.passing, strict=True)
        if passes and value > least
    }
    rows = under.index.rows(found.corpus.scope, sorted(ids, key=lambda one: -ids[one]))
    return {row.entry_id: ids[row.rowid] for row in rows}


def _by_words(
    under: IndexUnderTest, terms: Sequence[str], scope: Scope = ANA, **ask: Any
) -> dict[str, float]:
    found = under.index.legs(scope, Ask(terms=terms, **ask))
    return _named(under, found, found.bm25, 0.0)


def _by_meaning(
    under: IndexUnderTest, vector: np.ndarray, scope: Scope = ANA, **ask: Any
) -> dict[str, float]:
    found = under.index.legs(scope, Ask(plain=vector, **ask))
    require(found.cosine is not None, "a vector was asked with and no nearness answered")
    assert found.cosine is not None
    return _named(under, found, found.cosine, -2.0)


def check_words_are_weighed_by_the_book(under: IndexUnderTest) -> None:
    """BM25 over the owner's own texts, each group of kinds by itself; more, rarer and shorter is better."""
    texts = ["amber", "amber amber basalt", "basalt cedar dune elder", "cedar", "dune fern"]
    _put(under, [_row(n, text, sender_ids=(), sender_name=None) for n, text in enumerate(texts)])
    mean = sum(len(text.split()) for text in texts) / len(texts)

    def score(text: str, terms: Sequence[str]) -> float:
        total = 0.0
        for term in terms:
            holding = sum(term in other.split() for other in texts)
            count = text.split().count(term)
            usual = 1.2 * (1 - 0.75 + 0.75 * len(text.split()) / mean)
            rarity = math.log1p((len(texts) - holding + 0.5) / (holding + 0.5))
            total += rarity * count * 2.2 / (count + usual) if count else 0.0
        return total

    def check() -> None:
        found = _by_words(under, ("amber", "cedar"))
        expected = {f"e{n}": score(text, ("amber", "cedar")) for n, text in enumerate(texts)}
        expected = {name: value for name, value in expected.items() if value}
        require(found.keys() == expected.keys(), f"found {sorted(found)}, not {sorted(expected)}")
        wrong = {name for name, value in expected.items() if abs(found[name] - value) > 1e-3}
        require(not wrong, f"{sorted(wrong)} are not weighed by the book: {found}, not {expected}")
        counts = under.index.frequencies(ANA, ("amber", "cedar", "nowhere"))
        require(dict(counts) == {"amber": 2, "cedar": 2}, f"words are counted as {dict(counts)}")

    _both_times(under, check)


def check_meaning_is_nearness(under: IndexUnderTest) -> None:
    """The nearest rows come with their cosine; rows that wait for a vector are there without one."""
    rows = [_row(n, f"text number{n}") for n in range(30)]
    _put(under, rows)

    def check() -> None:
        found = _by_meaning(under, _vector(0))
        nearest = list(found)[:5]
        require(nearest == [f"e{n}" for n in range(5)], f"the nearest are {nearest}")
        require(
            abs(found["e3"] - float(_vector(3) @ _vector(0))) < 2e-3, f"the cosine of e3 is {found['e3']}"
        )

    _both_times(under, check)


def check_a_filter_loses_nothing(under: IndexUnderTest) -> None:
    """However many rows fit better, the one that passes the filter is found: by its words, and by its meaning."""
    crowd = [_row(n, f"fern fern {n}", session_id="crowd") for n in range(700)]
    _put(under, [*crowd, _row(5000, "a long way from any fern " + "tree " * 40, session_id="rare")])
    where = parse({"session_id": "rare"})

    def check() -> None:
        for found in (_by_words(under, ("fern",), where=where), _by_meaning(under, _vector(0), where=where)):
            require(list(found) == ["e5000"], f"the filter found {sorted(found)[:5]}")

    _both_times(under, check)


def check_filters_mean_the_same(under: IndexUnderTest) -> None:
    """Every filter chooses what its plain evaluation chooses, whatever quotes and signs its values hold."""
    import numpy as np

    random = np.random.default_rng(7)

    def one(values: Sequence[Any]) -> Any:
        return values[int(random.integers(len(values)))]

    rows = [
        _row(
            n, "word", session_id=one((*_HOSTILE, None)), parent_type=one(("memcell", "episode", None)),
            parent_id=one((*_HOSTILE, None)), sender_ids=tuple({one(_HOSTILE), one(_HOSTILE)}),
        )
        for n in range(60)
    ]  # fmt: skip
    _put(under, rows)

    def made(depth: int) -> dict[str, Any]:
        if depth and random.random() < 0.4:
            return {one(("AND", "OR")): [made(depth - 1) for _ in range(1 + int(random.integers(3)))]}
        field = one(("session_id", "parent_type", "parent_id", "timestamp", "sender_id"))
        signs = ("eq", "ne", "in") if field == "sender_id" else ("eq", "ne", "in", "gt", "gte", "lt", "lte")
        sign = one(signs)
        value = 1000 + int(random.integers(60)) if field == "timestamp" else one((*_HOSTILE, "memcell"))
        return {
            field: {sign: [value, one(_HOSTILE) if field != "timestamp" else 1003] if sign == "in" else value}
        }

    asked = [parse(made(2)) for _ in range(60)]

    def passes(where: Group, row: Row) -> bool:
        plain = {
            "session_id": row.session_id, "parent_type": row.parent_type, "parent_id": row.parent_id,
            "timestamp": row.timestamp_ms, "sender_id": row.sender_ids,
        }  # fmt: skip
        return where.matches(plain)

    def check() -> None:
        for where in asked:
            expected = {new.row.entry_id for new in rows if passes(where, new.row)}
            found = set(_by_words(under, ("word",), where=where))
            require(found == expected, f"{where}: {sorted(found ^ expected)} are judged differently")

    _both_times(under, check)


def check_no_answer_leaves_its_scope(under: IndexUnderTest) -> None:
    """Another owner's rows are in no answer, and what they say moves no score."""
    mine = [_row(n, text) for n, text in enumerate(("garnet", "garnet opal", "opal"))]
    _put(under, mine)
    alone = _by_words(under, ("garnet",))
    _put(under, [_row(n, "garnet " * (1 + n % 5), BO) for n in range(40)])

    def check() -> None:
        require(_by_words(under, ("garnet",)) == alone, "another owner's texts move the scores")
        found = under.index.legs(ANA, Ask(terms=("garnet",), plain=_vector(0)))
        theirs = under.index.rows(BO, found.corpus.rowid.tolist())
        require(not theirs, f"{len(theirs)} rows of another owner are in the answer")
        require(under.index.about(ANA).rows == 3, "another owner's rows are counted")
        require(not under.index.rows(ANA, [10**9]), "a row that does not exist was given")
        nobody = under.index.legs(Scope(Space(), "user", "nobody"), Ask(terms=("garnet",), plain=_vector(0)))
        require(not len(nobody.corpus), "an owner without rows has some")

    _both_times(under, check)


def check_changes_are_seen_at_once(under: IndexUnderTest) -> None:
    """A row that was written, rewritten or removed is answered as it is now, before the engine has settled, too."""
    _put(under, [_row(n, f"lapis number{n}") for n in range(40)])
    under.settle()
    _put(under, [_row(3, "onyx instead"), _row(90, "a newer lapis")])
    held = under.store.stored("ana.md")
    under.store.apply([], removed=[held[ANA, "e5"].rowid])

    def check() -> None:
        found = set(_by_words(under, ("lapis",)))
        require(found == {f"e{n}" for n in (*range(40), 90)} - {"e3", "e5"}, f"lapis is in {sorted(found)}")
        require(set(_by_words(under, ("onyx",))) == {"e3"}, "the rewritten row is not found by its new words")
        require("e5" not in _by_meaning(under, _vector(5)), "the removed row is still near")
        require(
            next(iter(_by_meaning(under, _vector(90)))) == "e90", "the new row is not found by its meaning"
        )
        require(dict(under.index.frequencies(ANA, ("lapis",))) == {"lapis": 39}, "words are counted wrongly")

    _both_times(under, check)


def check_hidden_and_later_rows_stay_out(under: IndexUnderTest) -> None:
    """Rows that are hidden, or younger than asked for, pass only for those who ask for them."""
    rows = [_row(n, "kelp", status="archived" if n % 3 == 0 else "") for n in range(30)]
    _put(under, rows)

    def check() -> None:
        shown = set(_by_words(under, ("kelp",), hidden=False, until_ms=1009))
        require(shown == {f"e{n}" for n in range(10) if n % 3}, f"shown are {sorted(shown)}")
        require(len(_by_words(under, ("kelp",))) == 30, "whoever asks for hidden rows sees them")

    _both_times(under, check)


def check_a_scope_is_described(under: IndexUnderTest) -> None:
    """Who speaks how often, until when, in which sessions, and how many rows there are."""
    said = [
        _row(n, "hello", sender_ids=("bo",) if n % 4 == 0 else ("ana",), sender_name=None) for n in range(20)
    ]
    _put(under, [*said, _row(20, "an entry", kind="episode", session_id="s2")])

    def check() -> None:
        about = under.index.about(ANA)
        spoken = {sender.id: count for sender, count in zip(about.senders, about.spoken, strict=True)}
        require((about.rows, spoken) == (21, {"ana": 15, "bo": 5}), f"{about.rows} rows, spoken {spoken}")
        require(about.latest_ms == 1020, f"the latest is {about.latest_ms}")
        require((about.embedded, about.waiting, about.model) == (21, 0, MODEL), f"vectors: {about}")
        require(under.index.takes_part(ANA, "s2"), "a session with rows is unknown")
        require(not under.index.takes_part(ANA, "s9"), "a session without rows is known")

    _both_times(under, check)


INDEX_CHECKS: Mapping[str, Callable[[IndexUnderTest], None]] = {
    "words_are_weighed_by_the_book": check_words_are_weighed_by_the_book,
    "meaning_is_nearness": check_meaning_is_nearness,
    "a_filter_loses_nothing": check_a_filter_loses_nothing,
    "filters_mean_the_same": check_filters_mean_the_same,
    "no_answer_leaves_its_scope": check_no_answer_leaves_its_scope,
    "changes_are_seen_at_once": check_changes_are_seen_at_once,
    "hidden_and_later_rows_stay_out": check_hidden_and_later_rows_stay_out,
    "a_scope_is_described": check_a_scope_is_described,
}


class IndexConformance(Mixin, checks=INDEX_CHECKS, make="make_index"):
    """The index suite as test methods; give `make_index`."""

    def make_index(self) -> IndexUnderTest:
        raise NotImplementedError
