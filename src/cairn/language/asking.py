"""What a question asks for, by the words of its language: whose words, when, how many, or nothing at all.

The words stand in `language/data/<code>.toml` under `[asking]`; a language without that table is read by its script
and words alone.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass

from cairn.language import tongues, words

_QUERY_CHARS = 2000
_LEADING_CHARS = 24


@dataclass(frozen=True, eq=False, slots=True)
class Asking:
    """How questions are put in one language."""

    first_person: re.Pattern[str]
    advice: re.Pattern[str]
    when: re.Pattern[str]
    when_not: re.Pattern[str]
    how_many: re.Pattern[str]
    several: re.Pattern[str]
    orders: re.Pattern[str]
    how_to: re.Pattern[str]
    to_me: re.Pattern[str]
    general: re.Pattern[str]
    states: re.Pattern[str]
    fillers: frozenset[str]
    names_by_capital: bool
    articles: frozenset[str]
    stand_ins: re.Pattern[str]


@functools.cache
def of_language(code: str) -> Asking:
    """The table of one language; its patterns match nothing where the file has none."""
    tongue = tongues.known()[code]
    table = tongue.table("asking")
    first = [re.escape(word) for word in str(table.get("first_person", "")).split("/") if word]

    def pattern(name: str) -> re.Pattern[str]:
        return tongues.compiled(table.get(name, ()), tongue)

    return Asking(
        tongues.compiled(first, tongue),
        pattern("advice"),
        pattern("when"),
        pattern("when_not"),
        pattern("how_many"),
        pattern("several"),
        pattern("orders"),
        pattern("how_to"),
        pattern("to_me"),
        pattern("general"),
        pattern("states"),
        frozenset(words.tokens(str(table.get("fillers", "")))),
        table.get("capitals") == "names",
        frozenset(str(table.get("articles", "")).split()),
        pattern("stand_ins"),
    )


@functools.lru_cache(maxsize=128)
def _tongue(said: str) -> tongues.Tongue:
    # One question is read a dozen times, each for something else.
    return tongues.spoken_in(said)


def tongue_of(query: str) -> tongues.Tongue:
    """The language a question is in."""
    return _tongue(query[:_QUERY_CHARS])


def read(query: str) -> Asking:
    """The words of the language `query` is in."""
    return of_language(tongue_of(query).code)


_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_WORD_OR_STOP = re.compile(r"\w+(?:['’-]\w+)*|[.!?:;\n•\"“„«(*#>-]")
_TEXT_CHARS, _REMARK_CHARS, _FEW_WORDS = 2000, 160, 5
_CLAUSE = re.compile(r"[^,;.!…。！、，；?？\n]+")
_CAPITAL = re.compile(r"(?<=[\w,;:] )[A-ZÀ-ÞА-Я][\w’'-]+")


def named_in(query: str) -> frozenset[str]:
    """The words of a question that say whom or what it names, where its language tells that by a capital.

    >>> sorted(named_in("Where does Ann live?")), sorted(named_in("Wo ist der Schlüssel?"))
    (['ann'], [])
    """
    if not read(query).names_by_capital:
        return frozenset()
    return frozenset(words.tokens(" ".join(_CAPITAL.findall(query[:_QUERY_CHARS]))))


def may_name_in_small(query: str) -> bool:
    """Whether a question is typed without capitals, in a language that tells names by them: any word may be a name.

    >>> may_name_in_small("where does alice live"), may_name_in_small("Where is lunch?")
    (True, False)
    """
    return not any(letter.isupper() for letter in query[:_QUERY_CHARS]) and read(query).names_by_capital


def names_as_written(query: str, terms: Iterable[str], texts: Iterable[str]) -> frozenset[str]:
    """Those of a question's words that are names by how `texts` write them: with a capital wherever they stand.

    A sentence begins with a capital whatever its first word is. A word that is seen nowhere else counts as a name unless the
    question has an article or "my" before it.

    >>> notes = ["Ann drinks tea.", "Dentist on Friday."]
    >>> sorted(names_as_written("where does ann drink tea", ["ann", "drink", "tea"], notes))
    ['ann']
    >>> sorted(names_as_written("when is my dentist there", ["dentist"], notes))
    []
    """
    wanted = set(terms)
    first, inside, small = set[str](), set[str](), set[str]()
    for text in texts:
        begins = True
        for found in _WORD_OR_STOP.finditer(text[:_TEXT_CHARS]):
            if not found[0][0].isalnum():
                begins = True
                continue
            for token in wanted.intersection(words.tokens(found[0])):
                if not found[0][0].isupper():
                    small.add(token)
                else:
                    (first if begins else inside).add(token)
            begins = False
    return frozenset((first - _words_behind(query, read(query).articles) | inside) - small)


def _words_behind(query: str, articles: frozenset[str]) -> frozenset[str]:
    """The tokens of a query that stand right behind one of these words, or one word further on."""
    said = [found[0] for found in _WORD.finditer(query[:_QUERY_CHARS].casefold())]
    close = [n for n, word in enumerate(said) if articles.intersection(said[max(0, n - 2) : n])]
    return frozenset(token for n in close for token in words.tokens(said[n]))


def asks_when(query: str) -> bool:
    """Whether a question asks for a time.

    >>> asks_when("When did she move?"), asks_when("Which day did we meet?"), asks_when("Who moved?")
    (True, True, False)
    """
    asking, said = read(query), query[:_QUERY_CHARS]
    found = asking.when.search(said)
    if found is None or asking.when_not.search(said):
        return False
    # "The place where I was when it rained?" names a time; it does not ask for one.
    return found.start() <= _LEADING_CHARS or not tongue_of(query).has_blanks


def asks_how_many(query: str) -> bool:
    """Whether a question asks for a number."""
    return read(query).how_many.search(query[:_QUERY_CHARS]) is not None


def asks_for_several(query: str) -> bool:
    """Whether a question asks for a list: everything that fits, not the one thing.

    >>> asks_for_several("Which books has she read?"), asks_for_several("Which book is she reading?")
    (True, False)
    """
    return read(query).several.search(query[:_QUERY_CHARS]) is not None


def about_oneself(query: str) -> bool:
    """Whether a question is about the one who asks.

    >>> about_oneself("When does my sprint end?"), about_oneself("When does the sprint end?")
    (True, False)
    """
    return read(query).first_person.search(query[:_QUERY_CHARS]) is not None


def asks_for_advice_given(query: str) -> bool:
    """Whether a question is about what an assistant said.

    >>> asks_for_advice_given("What did you recommend for retries?")
    True
    """
    return read(query).advice.search(query[:_QUERY_CHARS]) is not None


def is_personal(query: str) -> bool:
    """Whether a question is about the one who asks, as somebody: "How do I ..." and "Give me ..." are said by anyone.

    >>> is_personal("How do I take my tea?"), is_personal("How do I centre a div?"), is_personal("Give me a hint")
    (True, False, False)
    """
    asking, said = read(query), query[:_QUERY_CHARS].strip()
    if _states_little(said, asking):
        return False
    return asking.first_person.search(asking.to_me.sub(" ", asking.how_to.sub(" ", said))) is not None


def is_remark(text: str, *, by_prompt: bool = False) -> bool:
    """Whether a text is nothing but remarks on the talk itself, to whoever listens: nothing is told or asked by it.

    Of a prompt (`by_prompt`) it is enough that it asks nothing in words that are about nothing. What somebody said in such
    words may still be an answer: "I love it". A few words hardly show a language: there a remark of any counts.

    >>> is_remark("OK, are you still there?"), is_remark("I'm back in Rome", by_prompt=True)
    (True, False)
    >>> is_remark("Well, I tried"), is_remark("Well, I tried", by_prompt=True)
    (False, True)
    """
    if len(text) > _REMARK_CHARS:
        return False
    clauses = [clause.strip() for clause in _CLAUSE.findall(text)]
    codes = [tongue_of(text).code, *(tongues.known() if len(text.split()) <= _FEW_WORDS else ())]
    return bool(clauses) and all(
        any(_is_remark(clause, code, by_prompt=by_prompt) for code in codes) for clause in clauses
    )


def _is_remark(clause: str, code: str, *, by_prompt: bool) -> bool:
    remarks, opens, light = _remarks(code)
    if remarks.fullmatch(clause) is not None:
        return True
    empty = light if by_prompt and opens.match(clause) is None else small_words()
    return all(token in empty or token in words.stop_words() for token in words.tokens(clause))


@functools.cache
def small_words() -> frozenset[str]:
    """What people say without saying anything, in every language."""
    return frozenset(words.tokens(" ".join(tongues.every_word("words", "small"))))


@functools.cache
def _remarks(code: str) -> tuple[re.Pattern[str], re.Pattern[str], frozenset[str]]:
    """The remarks of a language, how its questions open, and the words that say nothing where nothing is asked."""
    tongue = tongues.known()[code]
    table = tongue.table("asking")
    patterns = [tongues.compiled(table.get(name, ()), tongue) for name in ("remarks", "opens")]
    return patterns[0], patterns[1], small_words() | frozenset(words.tokens(str(table.get("light", ""))))


def is_for_anyone(query: str) -> bool:
    """Whether a prompt orders work, or asks what anyone may know: such may need nothing that is remembered.

    >>> is_for_anyone("Translate good morning into Spanish"), is_for_anyone("Summarise what Ann said")
    (True, False)
    >>> is_for_anyone("My head hurts"), is_for_anyone("I'm stuck"), is_for_anyone("What am I stuck on?")
    (False, True, False)
    >>> is_for_anyone("How can I cut a mango?"), is_for_anyone("Why is the sky blue?"), is_for_anyone("Why did she go?")
    (True, True, False)
    """
    asking, said = read(query), query[:_QUERY_CHARS].strip()
    return _states_little(said, asking) or any(
        kind.search(said) for kind in (asking.orders, asking.how_to, asking.general)
    )


def _states_little(said: str, asking: Asking) -> bool:
    """Whether a few words tell the listener something and ask nothing: "I'm stuck", "that broke it"."""
    return (
        len(said.split()) <= _FEW_WORDS
        and not said.endswith(("?", "？"))
        and asking.states.search(said) is not None
    )


def fillers(query: str) -> frozenset[str]:
    """Tokens that ask nothing by themselves in the language of `query`; those of English always."""
    return _fillers(tongue_of(query).code)


def standing_in(query: str) -> frozenset[str]:
    """Tokens of a question that are there only for words which stand for whatever is meant: the event, what took place.

    >>> sorted(standing_in("上海的活动")), sorted(standing_in("上海的运动"))
    (['动', '活', '活动', '的活'], [])
    """
    stand_ins, said = read(query).stand_ins, query[:_QUERY_CHARS]
    if stand_ins.search(said) is None:
        return frozenset()
    return frozenset(words.tokens(said)) - frozenset(words.tokens(stand_ins.sub(" ", said)))


@functools.cache
def _fillers(code: str) -> frozenset[str]:
    stems = {words.stem(word) for word in words.stop_words()}
    return of_language(tongues.DEFAULT).fillers | words.stop_words() | stems | of_language(code).fillers
