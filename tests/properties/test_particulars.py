"""Facts that differ in a particular are two facts, however alike the rest of their words."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cairn.language.near import particulars
from cairn.strategies.facts import KnownFacts
from cairn.strategies.reflection import Fact, fates_of
from cairn.types import Scope, Space

AROUND = (
    (
        "The nightly import in the warehouse reads",
        "from the shared folder before the whole team comes to work",
    ),
    (
        "Last spring the whole family went by train with",
        "and stayed in a small house near the water for weeks",
    ),
    (
        "ana wrote down for the people in her office that",
        "should be asked before anything in the list is changed",
    ),
    ("", "asked everyone in the office to bring their own cups and plates to the party in the garden"),
    ("Everyone in the office brings their own cups and plates to the party in the garden because of", ""),
)

word = st.text("abcdefghijklmnopqrstuvwxyz", min_size=2, max_size=9)
name = word.map(str.capitalize)
file_name = st.builds("{}.{}".format, word, st.sampled_from(["csv", "md", "py", "tar.gz", "toml"]))
identifier = st.one_of(
    st.builds("{}_{}".format, word, word),
    st.builds("{}{}".format, word, name),
    st.builds("{}/{}".format, word, word),
    st.builds("{}-{}".format, word, word),
    st.builds("{}{}".format, word, st.integers(0, 99)),
    st.builds("{}@{}.org".format, word, word),
    st.sampled_from(["C++", "C#", "F#", "C", "API", "SDK"]),
)
number = st.one_of(
    st.integers(-500, 5000).map(str),
    st.builds("{}.{}".format, st.integers(0, 99), st.integers(0, 99)),
    st.integers(0, 99).map("{}%".format),
    st.sampled_from(["one", "two", "three", "seven", "twelve", "hundred"]),
)
date = st.one_of(
    st.dates().map(str),
    st.builds("{} {}".format, st.integers(1, 28), st.sampled_from(["May", "june", "July", "August"])),
    st.sampled_from(["monday", "Tuesday", "friday", "yesterday", "tomorrow"]),
)
quoted = st.builds(
    "{0}{2}{1}".format, *(st.just('"'),) * 2, st.lists(word, min_size=1, max_size=3).map(" ".join)
)
full_name = st.lists(name, min_size=1, max_size=2).map(" ".join)
foreign = st.one_of(
    st.sampled_from(["Ελένη", "Γιώργος", "Иван", "Ольга", "Émile", "Øystein", "Ñuño"]),
    st.sampled_from(["東京", "大阪", "ソウル", "서울", "דוד", "علي", "राम", "王芳"]),
)
SLOTS = (file_name, identifier, number, date, quoted, full_name, foreign)
pairs = st.sampled_from(SLOTS).flatmap(lambda slot: st.tuples(slot, slot))


def told(around: tuple[str, str], what: str) -> str:
    return " ".join(part for part in (around[0], what, around[1]) if part)


@given(st.sampled_from(AROUND), pairs)
@settings(max_examples=400, deadline=None)
def test_what_differs_in_a_particular_is_never_merged(around: tuple[str, str], pair: tuple[str, str]) -> None:
    """File names, identifiers, numbers, dates, quoted words and names: reflection keeps both facts apart."""
    assume(pair[0].casefold() != pair[1].casefold())
    facts = [
        Fact(f"af_20260601_0000000{n}", "2026-06-01", "ep_20260601_00000001", told(around, what), "")
        for n, what in enumerate(pair, start=1)
    ]
    assert [fate.fate for fate in fates_of(facts)] == ["kept", "kept"], facts


@given(st.sampled_from(AROUND), pairs)
@settings(max_examples=400, deadline=None)
def test_what_differs_in_a_particular_is_not_known_already(
    around: tuple[str, str], pair: tuple[str, str]
) -> None:
    """Nor does a fact that is known swallow one with another name, number or file in it."""
    assume(pair[0].casefold() != pair[1].casefold())
    known = KnownFacts(Scope(Space(), "user", "ana"))
    assert known.add(told(around, pair[0]))
    assert known.add(told(around, pair[1])), pair
    assert not known.add(told(around, pair[1]))


@pytest.mark.parametrize(
    "pair", [("Aa", "Aa You"), ("Aa", "Aa If"), ("An", "The"), ("He", "She"), ("Elizabeth", "Elizabeth I")]
)
@pytest.mark.parametrize("around", AROUND)
def test_a_name_that_is_also_a_little_word_is_a_name(around: tuple[str, str], pair: tuple[str, str]) -> None:
    """You, If, An: a capital makes them somebody, and so does the first place."""
    known = KnownFacts(Scope(Space(), "user", "ana"))
    assert known.add(told(around, pair[0]))
    assert known.add(told(around, pair[1]))


def test_ordinary_words_still_make_no_difference() -> None:
    """A repeat in slightly other words is one fact."""
    one = "Ana takes the early train to the office in Porto because the later train is always so full"
    other = "Ana takes an early train to the office in Porto because the later train is always too full"
    assert particulars(one) == particulars(other) == ("ana", "porto")
    facts = [Fact(f"af_{n}", "2026-06-01", "ep", text, "") for n, text in enumerate((one, other))]
    assert [fate.fate for fate in fates_of(facts)] == ["kept", "merged"]


def test_what_counts_as_a_particular() -> None:
    """The kinds of words that tell statements apart, as they are read."""
    text = "Marta's script reads suppliers.csv (not customers.csv) on 3 May, runs loadRows in \"dry mode\" and isn't fast."
    assert particulars(text) == (
        "dry mode", "marta", "suppliers.csv", "not", "customers.csv", "3", "may", "loadRows", "isn't",
    )  # fmt: skip
    assert particulars("Ana gave Ben 3 books.") != particulars("Ben gave Ana 3 books.")
