"""What a question asks for, by the words of its language: whose words, when, how many, or nothing at all.

The words stand in `language/data/<code>.toml` under `[asking]`; a language without that table is read by its script
and words alone.

Some ask for everything: what was talked about, what happened last week, what is known of me. They name no matter that words
could be looked up by. What they are put in stands under `[asking.whole]`: `talk` asks what was said, `then` does so beside
a time that is named, `person` asks what is known of who asks, `latest` names the last talk alone, and `around` lists what
may stand beside all that without naming a matter.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Any, Literal

from cairn.language import dates, tongues, words

_QUERY_CHARS = 2000
_LEADING_CHARS = 24
_LONGEST_WHOLE = 240
_ANY_DAY = datetime(2026, 1, 1, tzinfo=UTC)  # which days a time stands for is not asked here

Kind = Literal["talk", "then", "person"]


@dataclass(frozen=True, slots=True)
class Whole:
    """How a question asks for everything.

    Attributes:
        kind: What it asks for.
        is_latest: It means the last talk alone.
        people: The tokens of whom it names as those who talked; they must be known where it is asked.
        matter: The tokens of what it is about all the same; it asks for everything where there are none.
    """

    kind: Kind
    is_latest: bool
    people: frozenset[str]
    matter: frozenset[str]


@dataclass(frozen=True, eq=False, slots=True)
class Asking:
    """How questions are put in one language."""

    first_person: re.Pattern[str]
    advice: re.Pattern[str]
    when: re.Pattern[str]
    when_not: re.Pattern[str]
    how_many: re.Pattern[str]
    who: re.Pattern[str]
    why: re.Pattern[str]
    several: re.Pattern[str]
    former: re.Pattern[str]
    orders: re.Pattern[str]
    how_to: re.Pattern[str]
    to_me: re.Pattern[str]
    general: re.Pattern[str]
    states: re.Pattern[str]
    fillers: frozenset[str]
    names_by_capital: bool
    articles: frozenset[str]
    stand_ins: re.Pattern[str]
    wholes: Sequence[tuple[Kind, re.Pattern[str]]]
    latest: re.Pattern[str]
    around: re.Pattern[str]


@functools.cache
def of_language(code: str) -> Asking:
    """The table of one language; its patterns match nothing where the file has none."""
    tongue = tongues.known()[code]
    table = tongue.table("asking")
    first = [re.escape(word) for word in str(table.get("first_person", "")).split("/") if word]
    whole = table.get("whole", {})
    around = sorted(str(whole.get("around", "")).split(), key=len, reverse=True)
    found: dict[str, Any] = {
        "first_person": tongues.compiled(first, tongue),
        "fillers": frozenset(words.tokens(str(table.get("fillers", "")))),
        "names_by_capital": table.get("capitals") == "names",
        "articles": frozenset(str(table.get("articles", "")).split()),
        "wholes": [
            (kind, tongues.compiled([pattern], tongue))
            for kind in ("person", "talk", "then")
            for pattern in whole.get(kind, ())
        ],
        "latest": tongues.compiled(whole.get("latest", ()), tongue),
        "around": tongues.compiled([re.escape(word).replace("_", " ") for word in around], tongue),
    }
    for name in (field.name for field in fields(Asking) if field.name not in found):
        found[name] = tongues.compiled(table.get(name, ()), tongue)
    return Asking(**found)


_WORD = re.compile(r"\w+(?:['’-]\w+)*")
_WORD_OR_STOP = re.compile(r"\w+(?:['’-]\w+)*|[.!?:;\n•\"“„«(*#>-]")
_TEXT_CHARS, _REMARK_CHARS, _LONGEST_CHANGE, _FEW_WORDS = 2000, 160, 500, 5
_CLAUSE = re.compile(r"[^,;.!…。！、，；?？\n]+")
# A word with a capital behind another, or one at the beginning that does something or is joined to another.
_NAME = re.compile(
    r"(?<=[\w,;:] )[A-ZÀ-ÞА-Я][\w’'-]+|(?:(?<=[.!?:] )|^)[A-ZÀ-ÞА-Я][\w’'-]+(?= (?:(?:is|was|has|and|or)\b|[a-z]+s\b))"
)
_CAPITAL = re.compile(r"(?<=[\w,;:] )[A-ZÀ-ÞА-Я][\w’'-]+")


@dataclass(frozen=True, slots=True)
class Asked:
    """What one question asks for.

    Attributes:
        language: The code of the language it is in.
        wants_time: It asks for a time.
        wants_number: It asks for a number.
        wants_name: It asks for a name, in a language that writes names with a capital.
        wants_reason: It asks why, or how something was mended.
        wants_several: It asks for a list: everything that fits, not the one thing.
        wants_former: It asks how something was before.
        wants_advice: It is about what an assistant said.
        of_oneself: It is about the one who asks.
        is_personal: And as somebody: "How do I ..." and "Give me ..." are said by anyone.
        is_for_anyone: It orders work, or asks what anyone may know: such may need nothing that is remembered.
        fillers: Tokens that ask nothing by themselves in its language; those of English always.
        stand_ins: Tokens of it that are there only for words which stand for whatever is meant: the event, what took place,
            "what did we talk about" before a matter.
        named: Its words that say whom or what it names, where its language tells that by a capital.
        may_name_in_small: It is typed without capitals, in such a language: any word may be a name.
        whole: How it asks for everything that was said or is known; None where it asks for something.
        times: The times it names.
    """

    language: str
    wants_time: bool
    wants_number: bool
    wants_name: bool
    wants_reason: bool
    wants_several: bool
    wants_former: bool
    wants_advice: bool
    of_oneself: bool
    is_personal: bool
    is_for_anyone: bool
    fillers: frozenset[str]
    stand_ins: frozenset[str]
    named: frozenset[str]
    may_name_in_small: bool
    whole: Whole | None
    times: dates.Times


@functools.lru_cache(maxsize=128)
def read(query: str) -> Asked:
    """What `query` asks for, by the words of its language.

    >>> read("When did she move?").wants_time, read("Which day did we meet?").wants_time, read("Who moved?").wants_time
    (True, True, False)
    >>> read("Which books has she read?").wants_several, read("Which book is she reading?").wants_several
    (True, False)
    >>> read("When does my sprint end?").of_oneself, read("When does the sprint end?").of_oneself
    (True, False)
    >>> read("What did you recommend for retries?").wants_advice
    True
    >>> [read(said).wants_reason for said in ("Why did she go?", "How was E12 fixed?", "How is she?")]
    [True, True, False]
    >>> read("Who was my dentist before?").wants_former, read("Who was there before Ann came?").wants_former
    (True, False)
    >>> [read(said).is_personal for said in ("How do I take my tea?", "How do I centre a div?", "Give me a hint")]
    [True, False, False]
    >>> [read(said).is_for_anyone for said in ("Translate good morning into Spanish", "Summarise what Ann said")]
    [True, False]
    >>> [read(said).is_for_anyone for said in ("My head hurts", "I'm stuck", "What am I stuck on?")]
    [False, True, False]
    >>> [read(f"{said}?").is_for_anyone for said in ("How can I cut a mango", "Why is the sky blue", "Why did she go")]
    [True, True, False]
    >>> sorted(read("上海的活动").stand_ins), sorted(read("上海的运动").stand_ins)
    (['动', '活', '活动', '的活'], [])
    >>> sorted(read("Where does Ann live?").named), sorted(read("Wo ist der Schlüssel?").named)
    (['ann'], [])
    >>> read("where does alice live").may_name_in_small, read("Where is lunch?").may_name_in_small
    (True, False)
    """
    said = query[:_QUERY_CHARS]
    tongue = tongues.spoken_in(said)
    asking = of_language(tongue.code)
    when = asking.when.search(said)
    bare = said.strip()
    # A few words that tell the listener something and ask nothing: "I'm stuck", "that broke it".
    states_little = (
        len(bare.split()) <= _FEW_WORDS
        and not bare.endswith(("?", "？"))
        and asking.states.search(bare) is not None
    )
    stand_ins = named = frozenset[str]()
    if asking.stand_ins.search(said):
        stand_ins = frozenset(words.tokens(said)) - frozenset(words.tokens(asking.stand_ins.sub(" ", said)))
    times = dates.times_in(said)
    asks_whole = read_whole(said, times)
    if asks_whole is not None and (asks_whole.matter or asks_whole.people):
        stand_ins |= frozenset(words.tokens(said)) - asks_whole.matter - asks_whole.people
    if asking.names_by_capital:
        named = frozenset(words.tokens(" ".join(_CAPITAL.findall(said))))
    return Asked(
        language=tongue.code,
        # "The place where I was when it rained?" names a time; it does not ask for one.
        wants_time=when is not None
        and not asking.when_not.search(said)
        and (when.start() <= _LEADING_CHARS or not tongue.has_blanks),
        wants_number=asking.how_many.search(said) is not None,
        wants_name=asking.names_by_capital and asking.who.search(said) is not None,
        wants_reason=asking.why.search(said) is not None,
        wants_several=asking.several.search(said) is not None,
        wants_former=asking.former.search(said) is not None,
        wants_advice=asking.advice.search(said) is not None,
        of_oneself=asking.first_person.search(said) is not None,
        is_personal=not states_little
        and asking.first_person.search(asking.to_me.sub(" ", asking.how_to.sub(" ", bare))) is not None,
        is_for_anyone=states_little
        or any(kind.search(bare) for kind in (asking.orders, asking.how_to, asking.general)),
        fillers=_fillers(tongue.code),
        stand_ins=stand_ins,
        named=named,
        may_name_in_small=asking.names_by_capital and not any(letter.isupper() for letter in said),
        whole=None if asks_whole is None or asks_whole.matter else asks_whole,
        times=times,
    )


def read_whole(query: str, times: dates.Times | None = None) -> Whole | None:
    """How `query` asks what was talked about or is known, by the words of its language; None where it does not.

    `times` are those it names, where they are known already.

    >>> read_whole("What did we talk about last week?") == Whole("talk", False, frozenset(), frozenset())
    True
    >>> read_whole("What did Ann and I discuss about the boat?").matter, read_whole("What did Ann cook?")
    (frozenset({'boat'}), None)
    >>> read_whole("Could you summarise our last meeting, please?").is_latest, read_whole("Summarise the French revolution")
    (True, None)
    >>> [read_whole(said).kind for said in ("What happened in May?", "What do you know about me?")]
    ['then', 'person']
    >>> read_whole("What happened?")
    """
    tongue = tongues.spoken_in(query)
    asking = of_language(tongue.code)
    if len(query) > _LONGEST_WHOLE or not asking.wholes:
        return None
    said, has_time = query, False
    times = dates.times_in(query) if times is None else times
    for mention in reversed(times.mentions(_ANY_DAY, lean=-1)):
        gap = " " if tongue.has_blanks else ""
        said, has_time = f"{said[: mention.begin]}{gap}{said[mention.stop :]}", True
    for kind, pattern in asking.wholes:
        found = pattern.search(said) if kind != "then" or has_time else None
        if found is None:
            continue
        people = " ".join(part for part in found.groupdict().values() if part)
        rest = asking.latest.sub(" ", f"{said[: found.start()]} , {said[found.end() :]}")
        named, matter = (_telling(text, asking) for text in (people, rest))
        return Whole(kind, asking.latest.search(said) is not None, named, matter)
    return None


def _telling(text: str, asking: Asking) -> frozenset[str]:
    """The tokens of a text that name something."""
    empty = words.stop_words() | asking.fillers | small_words()
    return frozenset(words.tokens(asking.around.sub(" ", text))) - empty


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
    told: dict[str, set[str]] = {}  # of each way of writing a word, which of the terms it is
    for text in texts:
        begins = True
        for found in _WORD_OR_STOP.finditer(text[:_TEXT_CHARS]):
            word = found[0]
            if not word[0].isalnum():
                begins = True
                continue
            here = told.get(word)
            if here is None:
                here = told[word] = wanted.intersection(words.tokens(word))
            if here:
                (small if not word[0].isupper() else first if begins else inside).update(here)
            begins = False
    # Right behind an article, or one word further on, stands no name.
    articles = of_language(read(query).language).articles
    said = [found[0] for found in _WORD.finditer(query[:_QUERY_CHARS].casefold())]
    close = [n for n in range(len(said)) if articles.intersection(said[max(0, n - 2) : n])]
    first -= {token for n in close for token in words.tokens(said[n])}
    return frozenset((first | inside) - small)


def names_another(query: str, text: str) -> bool:
    """Whether a text names somebody or something that a question for a name does not name itself, as capitals tell.

    >>> names_another("Who is the mayor of Graz?", "We opened in Graz."), names_another("Who is in charge?", "Ask Ann.")
    (False, True)
    """
    asked = frozenset(words.tokens(query))
    return any(not asked.issuperset(words.tokens(found[0])) for found in _NAME.finditer(text[:_TEXT_CHARS]))


def reason_given(text: str) -> int:
    """1 where a text says why, in any language; -1 where it asks why itself; 0 where it does neither.

    >>> [reason_given(said) for said in ("The disk was full, that's why.", "The import took hours, why", "It took hours.")]
    [1, -1, 0]
    """
    said = text[:_TEXT_CHARS]
    if not said.rstrip().endswith(("?", "？")) and _tells("reasons", said):
        return 1
    return -1 if of_language(tongues.spoken_in(said).code).why.search(said) else 0


def tells_change(text: str) -> bool:
    """Whether a text says that something is otherwise than it was, in any language.

    A long one tells of many things: what changed may be any of them.

    >>> tells_change("The demo is moved to the 22nd."), tells_change("The demo is on the 18th.")
    (True, False)
    >>> tells_change("The demo is moved to the 22nd." + " It rained all day." * 30)
    False
    """
    return len(text) <= _LONGEST_CHANGE and _tells("changes", text)


def said_changed(text: str) -> str:
    """Those clauses of a text that say something is otherwise than it was, in any language.

    >>> said_changed("The demo is moved to the 22nd, lunch is at noon.")
    'The demo is moved to the 22nd'
    """
    clauses = (clause.strip() for clause in _CLAUSE.findall(text[:_TEXT_CHARS]))
    return "\n".join(clause for clause in clauses if _tells("changes", clause))


def said_over(text: str) -> str:
    """Those clauses of a text that say something is over, or otherwise than it was, in any language.

    >>> said_over("Dr Moll retired, I like Dr Aydin. Lunch is at noon.")
    'Dr Moll retired'
    """
    clauses = (clause.strip() for clause in _CLAUSE.findall(text[:_TEXT_CHARS]))
    return "\n".join(clause for clause in clauses if _tells("changes", clause) or _tells("ends", clause))


def _tells(name: str, said: str) -> bool:
    return tongues.every_small_pattern("words", name).search(said.lower()) is not None


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
    codes = [tongues.spoken_in(text).code, *(tongues.known() if len(text.split()) <= _FEW_WORDS else ())]
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


@functools.cache
def _fillers(code: str) -> frozenset[str]:
    """Tokens that ask nothing by themselves in a language; those of English always."""
    stems = {words.stem(word) for word in words.stop_words()}
    return of_language(tongues.DEFAULT).fillers | words.stop_words() | stems | of_language(code).fillers
