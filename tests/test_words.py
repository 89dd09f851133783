"""Words: one cut for the index and for the question."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

import cairn
from cairn.language import tongues
from cairn.language.near import NearSets, jaccard
from cairn.language.words import MAX_TOKEN, query_terms, stem, tokens, word_set


def shared(asked: str, written: str) -> set[str]:
    return set(tokens(asked)) & set(tokens(written))


@pytest.mark.parametrize(
    ("asked", "written"),
    [
        ("dogs", "a dog"),
        ("running", "she runs"),
        ("adopted", "adopting a child"),
        ("cafe", "the Café Müller"),
        ("CAFÉ", "cafe"),
        ("Müller", "mueller muller"),
        ("москва", "Я живу в Москве"),
        ("собаки", "У меня есть собака"),
        ("новый", "в новом доме"),
        ("寿司", "昨日、私は寿司を食べた"),
        ("北京", "我住在北京市"),
        ("서울", "나는 서울에서 산다"),
        ("กรุงเทพ", "ฉันอยู่ที่กรุงเทพมหานคร"),
        ("getUserName", "call getUserName() now"),
        ("user name", "call getUserName() now"),
        ("snake_case", "the snake_case rule"),
        ("snake", "the snake_case rule"),
        ("backup.env", "changed backup.env today"),
        ("backup", "changed backup.env today"),
        ("src/app/main.py", "see src/app/main.py:14"),
        ("main.py", "see src/app/main.py"),
        ("C++", "written in C++"),
        ("1000", "it cost 1,000 euros"),
        ("v1.2.3", "release v1.2.3"),
        ("Caroline", "Caroline's house"),
        ("ami", "l'ami de Paul"),
        ("qui appelle", "il m’appelle"),
        ("Est-ce", "qu'est-ce que c'est"),
        ("ＦＵＬＬ", "full width"),
        ("HTTPServer", "http server"),
        ("नमस्ते", "नमस्ते दुनिया"),
        ("2024-04-12", "会议的时间是2024-04-12。"),
        ("那个src/app/main.py的错误", "fixed src/app/main.py"),
    ],
)
def test_what_was_written_is_found_by_what_is_asked(asked, written):
    """Endings, accents, scripts, code names and widths meet in a token."""
    assert shared(asked, written)


def test_unrelated_words_do_not_meet():
    """Cutting endings does not make different words equal."""
    assert not shared("business card", "busy cars")
    assert stem("this") == "this"
    assert stem("bus") == "bus"


def test_an_elided_word_is_no_part_of_the_next():
    """A little French word that lost its end goes; an English contraction stays one word."""
    assert tokens("l'ami d’Alice") == ["ami", "alic"]
    assert tokens("don't, I'd, O'Neil's") == ["dont", "id", "oneil"]
    assert tokens("rock'n'roll-band")[0] == "rocknroll_band"


@pytest.mark.parametrize(
    ("text", "whole"),
    [
        ("那个时间是2024-04-12的活动", "2024_04_12"),
        ("バージョン4.2.17が必要", "4_2_17"),
        ("看src/app/main.py吗", "src_app_main_py"),
    ],
)
def test_a_number_or_path_ends_where_another_script_begins(text, whole):
    """Among words without blanks a date, version or path is one token, without the words around it."""
    assert whole in tokens(text)


def test_c_plus_plus_differs_from_c():
    """The marks that make a language's name are part of a token."""
    assert "cplusplus" in tokens("C++") and "cplusplus" not in tokens("C")
    assert "csharp" in tokens("C# code")


def test_the_mark_belongs_to_the_last_part():
    """What stands before an apostrophe, a point or a hyphen is no part of the language's name."""
    assert tokens("0'0#") == ["0_0", "0", "0sharp"]
    assert "cplusplus" in tokens("Objective-C++")
    assert tokens("a.b#")[-1] == "bsharp"
    assert tokens("_#") == []


@given(st.text(max_size=400))
def test_tokens_are_bounded_and_storable(text):
    """No input breaks the cut; each token survives being joined by blanks and never exceeds its bound."""
    found = tokens(text)
    unsafe = set(string.punctuation + string.whitespace) - {"_"}
    assert all(0 < len(token) <= MAX_TOKEN + 10 for token in found)
    assert not any(set(token) & unsafe for token in found)
    assert " ".join(found).split(" ") == (found or [""])


def test_a_blob_costs_little():
    """A megabyte without blanks gives a handful of short tokens."""
    assert len(tokens("A1b2" * 250_000)) < 10


def test_many_terms_keep_the_longest():
    """A long question is looked up by its longest terms only, in their order."""
    text = " ".join(f"word{n}" for n in range(92, 1000))
    assert query_terms(text, limit=8) == [f"word{n}" for n in range(100, 108)]


def test_stop_words_alone_are_still_a_question():
    """Stop words are dropped only where something better remains."""
    assert query_terms("who are you", limit=8) == ["who", "are", "you"]
    assert query_terms("who painted it", limit=8) == [stem("painted")]
    assert query_terms("Caroline", limit=8, without=["carolin"]) == ["carolin"]


def test_word_set_compares_texts():
    """Plain words, no endings cut, order and case forgotten."""
    assert word_set("The Dog, the dog!") == {"the", "dog"}
    assert word_set("寿司を") == {"寿司", "司を"}


@given(
    st.lists(st.frozensets(st.sampled_from("abcdefgh"), max_size=7), max_size=25),
    st.sampled_from([0.5, 0.7, 0.9]),
)
def test_near_sets_are_found_as_if_each_was_compared(sets, threshold):
    """The lookup through rare words gives what comparing with every set gives, also after some were let go."""
    known: NearSets[int] = NearSets()
    for n, one in enumerate(sets):
        known.put(n, one)
    for n in range(0, len(sets), 3):
        known.drop(n)
    held = {n: one for n, one in enumerate(sets) if n % 3}
    assert len(known) == len(held)
    for asked in sets:
        everywhere = {n: score for n, one in held.items() if (score := jaccard(asked, one)) >= threshold}
        assert dict(known.near(asked, threshold)) == everywhere


@pytest.mark.parametrize(
    "text", ["On MONDAY", "Twice", "ЗАВТРА", "明天见", "Mañana!", "İ 2019", "nothing of it", "Mayor"]
)
def test_a_text_in_small_letters_is_matched_as_it_was_written(text):
    """The quick patterns of the index find what the patterns for any case find, in every language."""
    for name in ("times", "numbers"):
        quick, any_case = tongues.every_small_pattern("words", name), tongues.every_pattern("words", name)
        assert bool(quick.search(text.lower())) == bool(any_case.search(text)), name


@pytest.mark.parametrize("unit", ["l'", "qu’", "'s", "a's", "d'l'", "c++'s"])
def test_little_words_that_hang_on_each_other_are_taken_off_however_many(unit):
    """However long such a run is, it is read; the word at its end is found as ever."""
    assert len(tokens(unit * 50_000)) <= 40
    if unit in ("l'", "qu’", "d'l'"):
        assert tokens(unit * 50_000 + "ami") == tokens("ami")


def test_a_run_of_little_words_keeps_nobody_from_being_found(tmp_path):
    with cairn.open_blocking(tmp_path) as memory:
        memory.add("one", [{"sender_id": "ana", "role": "user", "content": "l'" * 25_000}])
        memory.add("two", [{"sender_id": "bo", "role": "user", "content": "The ferry leaves at nine."}])
        memory.flush("one")
        memory.flush("two")
        memory.sync()
        found = memory.search("ferry", user_id="bo", method="keyword", consistency="strong")
        assert found.episodes and found.freshness.state == "fresh"
        assert not memory.search("l'" * 10_000, user_id="bo", method="keyword").episodes
