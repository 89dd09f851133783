"""Dates as people say them, resolved against the day they were said, where only one reading is left.

"yesterday", said on 8 May 2023, is 7 May 2023. A bare "Friday", "in March" or "on 19 June" needs to know whether
the sentence looks back or ahead; where its words do not say so, or say both, the mention stays without a date:
silence beats a guess. A mention is a range of whole days: "last week" is seven, "in 2022" all of that year. The
words of each language are in `language/data/`; here are the forms they are put into.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from typing import Any

from cairn.language import sentences, spans, tongues
from cairn.language.spans import Days, shown
from cairn.language.tongues import Tongue, choice, compiled

__all__ = [
    "TimeMention",
    "Times",
    "beside",
    "mentions",
    "names_time",
    "settled",
    "shown",
    "times_in",
    "undated",
    "without_lately",
]

_BEFORE, _AFTER = 240, 160
_MOST_MENTIONS = (
    400  # of one sentence; what has more is no sentence, and each costs a look at what is around it
)
_YEAR = r"(?:1[89]|20|21)\d\d"
_QUOTED = re.compile(
    r"\"[^\"]{1,200}\"|[“„][^”“\"]{1,200}[”“\"]|«[^»]{1,200}»|[「『《][^」』》]{1,200}[」』》]"
)
_POSSESSIVE = re.compile(r"['’]s\b")
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
# A place that is found but not read (an ambiguous "next Friday") keeps its words from being read in part.
_UNREAD = None


@dataclass(frozen=True, slots=True)
class TimeMention:
    """Words that name a time, and the days (both ends included) they stand for."""

    words: str
    start: date
    end: date
    begin: int
    stop: int
    is_absolute: bool = False
    is_bare_day: bool = False


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a form needs to read a match: the words of the language, today, and which way the sentence looks.

    `way` is -1 for back, 1 for ahead, 0 where the sentence does not say. `lean` is what to take then: 0 leaves
    the words alone, -1 and 1 choose (a question is better answered by a guess than by nothing). `year` is the one
    that the words beside the match name ("on 12 June next year").
    """

    words: _Words
    today: date
    side: _Side
    lean: int
    year: int | None = None

    @property
    def way(self) -> int:
        return self.side.way

    @property
    def taken(self) -> int:
        return self.way or self.lean

    def is_nearest(self, taken: Days, options: Sequence[Days]) -> bool:
        """Whether none of `options` is nearer to today than `taken`, as must be where a past or a plain present chooses.

        "I bought it for March", said in February, is not eleven months back; "we were in Rome in March" is.
        """
        is_told = self.way > 0 or self.side.is_sure or self.lean
        return bool(is_told) or min(options, key=self._distance) == taken

    def _distance(self, days: Days) -> int:
        return max((days[0] - self.today).days, (self.today - days[1]).days, 0)


_Form = Callable[[re.Match[str], _Reading], "Days | None"]
_Rule = tuple[frozenset[str], Callable[[], re.Pattern[str]], _Form, bool]
_Match = tuple[re.Match[str], _Form, bool, "_Side"]
_Rules = tuple[Mapping[str, re.Pattern[str]], Sequence[_Rule]]
_NOTHING: frozenset[str] = frozenset()
_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\{(\w+)\}(?![?*]|\{0)|[()|]")


@dataclass(frozen=True, eq=False, slots=True)
class Times:
    """The times that a text names, found once; `mentions` tells which days they are for a day they were said on."""

    _sentences: Sequence[tuple[int, str, _Words, Sequence[_Match]]]

    def __bool__(self) -> bool:
        """Whether any sentence has a word that times are named with; without one there are no mentions."""
        return bool(self._sentences)

    @property
    def is_any(self) -> bool:
        """Whether a time is named, be it understood or not."""
        return any(matches for *_, matches in self._sentences)

    def months(self) -> set[int]:
        """The months that are named, in whatever year."""
        named = (
            (words, match["month"])
            for *_, words, matches in self._sentences
            for match, *_ in matches
            if _names_month(match)
        )
        return {int(said) if said.isdecimal() else words.months[_plain(said)] for words, said in named}

    def mentions(self, said_at: datetime, *, lean: int = 0) -> list[TimeMention]:
        """As `dates.mentions`."""
        today = said_at.date()
        read = [
            (begin, one)
            for begin, sentence, words, matches in self._sentences
            for one in _read(sentence, words, matches, today, lean)
        ]
        # "I'm there from 5 to 30 October, my sister marries on the 17th": of which month is not said.
        is_bare = lean == 0 and any(one.form is _day_of_month for _, one in read)
        is_bare = is_bare and any(_names_month(one.match) for _, one in read)
        return [
            TimeMention(
                one.match.string[one.begin : one.stop],
                *one.days,
                begin + one.begin,
                begin + one.stop,
                one.names_year,
                one.form is _day_of_month,
            )
            for begin, one in read
            if one.days is not None and not (is_bare and one.form is _day_of_month)
        ]


def times_in(text: str) -> Times:
    """The times that are named in `text`, whenever it was said."""
    found = []
    for begin, stop in sentences.places(text):
        sentence = text[begin:stop]
        words = _words_of(tongues.spoken_in(sentence))
        if words.hint.search(sentence.lower()) is not None:
            found.append((begin, sentence, words, _matches(sentence, words)))
    return Times(found)


def mentions(text: str, said_at: datetime, *, lean: int = 0) -> list[TimeMention]:
    """Every time named in `text` that leaves one reading, in order, none overlapping another.

    Args:
        text: What was said.
        said_at: When it was said, aware, in the zone whose calendar the speaker means.
        lean: For what leaves two readings: 0 nothing, -1 the one in the past, 1 the one ahead.
    """
    return times_in(text).mentions(said_at, lean=lean)


def settled(found: Sequence[TimeMention], others: Iterable[str]) -> list[TimeMention]:
    """`found` without bare days ("until the 25th") where `others`, the texts around, name another month than was taken."""
    if not any(one.is_bare_day for one in found):
        return list(found)
    months = set[int]().union(*(times_in(text).months() for text in others))
    return [one for one in found if not one.is_bare_day or months <= {one.start.month}]


def names_time(text: str) -> bool:
    """Whether `text` names a time, be it understood or not."""
    return times_in(text).is_any


def looks_back(sentence: str) -> bool:
    """Whether a sentence has a word by which its language tells of what was."""
    tense = _words_of(tongues.spoken_in(sentence)).tense
    return tense.past.search(tense.neutral.sub(" ", sentence)) is not None


def beside(text: str, found: Sequence[TimeMention]) -> str:
    """`text` with the date in brackets behind each of `found` that does not name its year already."""
    parts: list[str] = []
    at = 0
    for mention in found:
        if (
            mention.is_absolute
            or text[mention.stop : mention.stop + 2] == " ("
            or text[mention.begin - 1 : mention.begin] == "("
        ):
            continue
        stop = mention.stop + (2 if _POSSESSIVE.match(text, mention.stop) else 0)
        parts += [text[at:stop], f" ({shown(mention.start, mention.end)})"]
        at = stop
    return "".join(parts) + text[at:] if parts else text


_BESIDE = re.compile(
    rf" \((?=[^()]*\d{{4}}\))(?:(?:{'|'.join(spans.MONTHS)}|\d{{1,4}})(?: - |[ -])?){{1,6}}\)", re.IGNORECASE
)


def undated(text: str) -> str:
    """`text` without the dates that `beside` puts into it."""
    return _BESIDE.sub("", text)


# Two days in different halves of a year: what is as far off from both is named by its distance.
_SOME_DAYS = (datetime(2026, 6, 15, 12, tzinfo=UTC), datetime(2026, 11, 16, 12, tzinfo=UTC))
_LATELY, _MONTHS_DIFFER = 62, 3  # days


def without_lately(text: str) -> str:
    """`text` without the times of the last weeks that it names by their distance: "last week", "on Friday", not "in 2019"."""
    times = times_in(text)
    parts: list[str] = []
    at = 0
    for one, other in zip(*(times.mentions(day, lean=-1) for day in _SOME_DAYS), strict=False):
        off, also = (
            (day.date() - found.start).days for day, found in zip(_SOME_DAYS, (one, other), strict=True)
        )
        if one.begin == other.begin and 0 <= off <= _LATELY and abs(off - also) <= _MONTHS_DIFFER:
            parts.append(text[at : one.begin])
            at = one.stop
    if not parts:
        return text
    left = "".join(parts) + text[at:]
    return re.sub(r"  +", " ", left).lstrip(" ,，、")


@dataclass(slots=True)
class _Found:
    """One match in a sentence, and the days it stands for as far as it can be told."""

    match: re.Match[str]
    form: _Form
    how: _Reading
    days: Days | None
    names_year: bool
    begin: int
    stop: int


def _names_month(match: re.Match[str]) -> bool:
    return match.groupdict().get("month") is not None


def _matches(sentence: str, words: _Words) -> Sequence[_Match]:
    """The places of a sentence that name a time, in order, each with its form and which way the sentence looks there."""
    named, rules = words.rules
    small = sentence.lower()
    there = {name for name, pattern in named.items() if pattern.search(small)}
    matches = [
        (m, form, absolute)
        for needs, pattern, form, absolute in rules
        if needs <= there
        for m in pattern().finditer(sentence)
    ]
    if not matches or words.unreal.search(sentence):
        return ()
    matches.sort(key=lambda one: (one[0].start(), -one[0].end()))
    del matches[_MOST_MENTIONS:]
    quoted = [one.span() for one in _QUOTED.finditer(sentence)]
    found: list[_Match] = []
    free = 0
    for match, form, absolute in matches:
        if match.start() < free or words.each.search(sentence, max(0, match.start() - 24), match.start()):
            continue
        if any(a < match.start() and match.end() < b for a, b in quoted):
            continue  # a title, or somebody else's day
        if words.titled.leads(sentence, match.start(), opens=False) and sentence[match.start()].isupper():
            continue
        free = match.end()
        found.append((match, form, absolute, words.tense.side(sentence, match.start(), match.end())))
    return found


def _read(
    sentence: str, words: _Words, matches: Sequence[_Match], today: date, lean: int
) -> Sequence[_Found]:
    found: list[_Found] = []
    for match, form, absolute, side in matches:
        how = _Reading(words, today, side, lean)
        names_year = absolute or bool(match.groupdict().get("year"))
        found.append(_Found(match, form, how, _days_of(form, match, how), names_year, *match.span()))
    for left, right in itertools.pairwise(found):
        if _is_beside(left, right, sentence):
            for one in (left, right):
                one.days = _UNREAD if one.form is _weekday else one.days
        if words.joins.fullmatch(sentence, left.match.end(), right.match.start()) and not (
            _is_of_year(left, right) or _is_of_year(right, left)
        ):
            _settle(left, right, words)
    return found


def _days_of(form: _Form, match: re.Match[str], how: _Reading) -> Days | None:
    try:
        return form(match, how)
    except (ValueError, OverflowError):
        return _UNREAD


def _is_of_year(day: _Found, year: _Found) -> bool:
    """Whether `year` is that of `day` ("on 12 June next year"), which is read so then: the two are one time."""
    is_year = year.form is _fixed and year.days is not None and year.days == spans.year_of(year.days[0].year)
    is_open = _names_month(day.match) and not day.names_year and day.how.year is None
    if not is_year or not is_open or _POSSESSIVE.match(year.match.string, year.stop):
        return False
    assert year.days is not None
    day.how = replace(day.how, year=year.days[0].year)
    day.days, year.days = _days_of(day.form, day.match, day.how), _UNREAD
    day.begin, day.stop = min(day.begin, year.begin), max(day.stop, year.stop)
    return True


_BETWEEN = re.compile(r"[\s,，、(（]{1,3}")


def _is_beside(left: _Found, right: _Found, sentence: str) -> bool:
    """Whether a bare weekday stands beside a date, whose day is the one that is meant: "Monday, 3-7 May"."""
    dated = {_day_and_month, _days_listed, _day_span, _day_of_month, _iso, _slashed}
    forms = {left.form, right.form}
    is_pair = _weekday in forms and not dated.isdisjoint(forms)
    return is_pair and _BETWEEN.fullmatch(sentence, left.match.end(), right.match.start()) is not None


def _settle(left: _Found, right: _Found, words: _Words) -> None:
    """Two times that touch ("Friday a week ago", "Monday of last week") are one: read together, or not at all."""
    for day, week in ((left, right), (right, left)):
        if day.form is _weekday and week.form is _fixed and week.days and _is_week(week.days):
            number = words.weekdays[_plain(day.match["weekday"])]
            day.days = spans.one(week.days[0] + timedelta(days=number))
            return
    pair = (left, right)
    is_counted = any(one.form in {_ago, _hence, _within} for one in pair)
    if left.days and right.days and not (is_counted and left.days != right.days):
        first, last = max(left.days[0], right.days[0]), min(left.days[1], right.days[1])
        if (first, last) in {left.days, right.days}:
            return
    for one in pair:
        one.days = one.days if one.names_year else _UNREAD


def _is_week(days: Days) -> bool:
    return spans.week_of(days[0]) == days


# -- which way a sentence looks


# A clause of so few words beside its date has no verb of its own: "on Friday, at the fair, we met them". "Starting 1 June"
# has one, and a plural of a past is not borrowed for it.
_WITHOUT_VERB = 0


# Where the words of a mention stood, in a clause that is read for what is around it.
_HERE = "¤"


@dataclass(frozen=True, slots=True)
class _Side:
    """On which side of today a clause puts its days: -1 behind, 1 ahead, 0 where it says neither or both.

    `is_sure` is said by what leaves no doubt ("we were there", "I will go"): only then is a year long past taken where
    the coming one is nearer. `is_present` is a plain present ("from 3 to 7 March I'm in Rome"): the nearest day is meant.
    """

    way: int
    is_sure: bool = False
    is_present: bool = False


_OPEN = _Side(0)


@dataclass(frozen=True, eq=False, slots=True)
class _Tense:
    """The words by which a language says whether a clause tells of what was or of what is to come.

    What was arranged ("booked", "promised") may lie on either side of the day that is named with it, so such a
    clause is read only where a target stands before the day ("for", "by"). What was told or thought, and a day that
    belongs to a thing ("tickets for the concert on 8 May"), says nothing by the tense of the verb before it.
    """

    clause: re.Pattern[str]
    past: re.Pattern[str]
    future: re.Pattern[str]
    lived: re.Pattern[str]
    sure: re.Pattern[str]
    present: re.Pattern[str]
    once: re.Pattern[str]
    told: re.Pattern[str]
    of_thing: re.Pattern[str]
    neutral: re.Pattern[str]
    arranged: re.Pattern[str]
    shifted: re.Pattern[str]
    recurring: re.Pattern[str]
    target: _Lead
    since: _Lead
    until: _Lead

    def side(self, sentence: str, begin: int, stop: int) -> _Side:
        """Which way the clause around a mention looks, or the one beside it where that does not say."""
        start, end = max(0, begin - _BEFORE), min(len(sentence), stop + _AFTER)
        edges = [start, *(m.start() for m in self.clause.finditer(sentence, start, end)), end]
        edges = [edge for edge in edges if not begin < edge < stop]
        pieces = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
        here = next((n for n, (a, b) in enumerate(pieces) if a <= begin < b), len(pieces) - 1)
        # "The exam is on Friday": the little word belongs to the mention and to the clause.
        opening = " ".join(sentence[begin:stop].split()[:-1][:1])
        since, target = self.since.leads(sentence, begin), self.target.leads(sentence, begin)
        is_open = self.until.leads(sentence, begin)
        for reach in (here, here + 1, here - 1):
            if 0 <= reach < len(pieces):
                a, b = pieces[min(here, reach)][0], pieces[max(here, reach)][1]
                marked = f"{sentence[a:begin]} {opening} {_HERE} {sentence[stop:b]}"
                answer = self._of_clause(marked, is_target=target, is_since=since)
                if answer is not None:
                    # "The API ends v1 on 30 June, clients were told in April": what it says itself is not known.
                    own = f"{sentence[pieces[here][0] : begin]} {sentence[stop : pieces[here][1]]}".split()
                    is_borrowed = reach != here and len(own) > _WITHOUT_VERB
                    # "We've had a permit until March": what began then may hold still.
                    return _OPEN if answer.way < 0 and (is_borrowed or is_open) else answer
        return _Side(0, is_present=self.present.search(sentence, start, end) is not None)

    def _of_clause(self, marked: str, *, is_target: bool, is_since: bool) -> _Side | None:
        """Which way one clause looks, neither for a contradiction; None where it has no word that would tell."""
        clause = marked.replace(f" {_HERE}", "", 1)
        if self.recurring.search(clause):
            return _OPEN
        if is_target and self.shifted.search(clause):
            return _Side(1)
        if self.arranged.search(clause):
            # "They gave me leave from 10 June" was given before.
            return _Side(1) if is_target else _OPEN
        future, is_sure = self.future.search(clause), self.sure.search(clause) is not None
        lived = self.lived.search(clause) is not None
        if is_since and (lived or not is_sure):
            return _Side(-1, lived)
        past = self.past.search(self.neutral.sub(" ", clause))
        if past is None and future is None:
            return None
        if past and self.told.search(marked):
            return _Side(1) if future and is_sure else _OPEN
        if past and future:
            return _OPEN
        if past and not lived and self.of_thing.search(marked):
            return _OPEN
        return _Side(-1, lived) if past else _Side(1, is_sure)


class _Lead:
    """Words that stand right before a mention, or open it: "until Friday", "since March"."""

    def __init__(self, patterns: Sequence[str]) -> None:
        body = tongues.widened(tongues.either(patterns))
        self._before = re.compile(rf"(?:{body})\s*$", re.IGNORECASE)
        self._opens = re.compile(rf"(?:{body})(?=\W|$)", re.IGNORECASE)

    def leads(self, sentence: str, begin: int, *, opens: bool = True) -> bool:
        before = self._before.search(sentence[max(0, begin - 24) : begin])
        return bool(before or (opens and self._opens.match(sentence, begin)))


# -- the words of a language, as the forms want them


@dataclass(frozen=True, eq=False, slots=True)
class _Words:
    """What one language calls days, months, seasons and numbers. The patterns it puts them into are many: they are made
    when a sentence first has a word of them.
    """

    tongue: Tongue
    fixed: Mapping[str, tuple[str, int]]
    numbers: Mapping[str, int]
    units: Mapping[str, str]
    weekdays: Mapping[str, int]
    short_weekdays: Mapping[str, int]
    months: Mapping[str, int]
    seasons: Mapping[str, str]
    years: Mapping[str, int]
    ordinals: Mapping[str, int]
    holidays: Mapping[str, str]
    each: re.Pattern[str]
    unreal: re.Pattern[str]
    titled: _Lead
    joins: re.Pattern[str]
    is_day_first: bool
    hint: re.Pattern[str]

    @property
    def tense(self) -> _Tense:
        return _tense(self.tongue)

    @property
    def rules(self) -> _Rules:
        return _rules(self.tongue)

    def count(self, said: str) -> int:
        """A number as a digit or a word."""
        said = _plain(said)
        return int(said) if said.isdecimal() else self.numbers[said]


@functools.cache
def _words_of(tongue: Tongue) -> _Words:
    table = tongue.table("dates")
    fixed = {_plain(k): (v.split()[0], int(v.split()[1])) for k, v in table.get("fixed", {}).items()}
    numbers = _numbered(table.get("numbers", ()), 1)
    weekdays, months = _numbered(table.get("weekdays", ()), 0), _numbered(table.get("months", ()), 1)
    units = {word: unit for unit, said in table.get("units", {}).items() for word in _spelt(said)}
    seasons = {word: name for name, said in table.get("seasons", {}).items() for word in _spelt(said)}
    years = {_plain(word): steps for word, steps in table.get("years", {}).items()}
    ordinals = _numbered(table.get("ordinals", ()), 1)
    ordinals |= dict.fromkeys(_spelt(table["ordinal_last"]) if "ordinal_last" in table else (), -1)
    holidays = {word: day for said, day in table.get("holidays", {}).items() for word in _spelt(said)}
    return _Words(
        tongue,
        fixed,
        numbers,
        units,
        weekdays,
        _numbered(table.get("short_weekdays", ()), 0) | weekdays,
        months,
        seasons,
        years,
        ordinals,
        holidays,
        re.compile(rf"(?:{tongues.either(table.get('each', ()))})\s*$", re.IGNORECASE),
        compiled(table.get("unreal", ()), tongue),
        _Lead(table.get("titled", ())),
        re.compile(rf"\s*(?:(?:{tongues.either(table.get('joins', ()))})\s*)?", re.IGNORECASE),
        bool(table.get("day_first")),
        _hint(tongue, fixed, weekdays, months, units, seasons, holidays),
    )


@functools.cache
def _rules(tongue: Tongue) -> _Rules:
    """How a language names weekdays, months and the like, and each of its patterns: which of those it cannot do without,
    the form that reads what it matches, and whether that names its year.

    A pattern costs many times what its names cost, which most sentences with a word of time lack: it is compiled when
    the first sentence has them all. The names alone are looked for in small letters, which costs a quarter.
    """
    table, words = tongue.table("dates"), _words_of(tongue)
    numbers, months, month_end = words.numbers, choice(words.months), table.get("month_end", "")
    names = {
        "weekday": f"(?P<weekday>{choice(words.weekdays)})",
        "any_weekday": rf"(?P<weekday>{choice(words.short_weekdays)})(?:\.(?!\s*$))?",
        "to_weekday": f"(?P<to_weekday>{choice(words.weekdays)})",
        "month": f"(?P<month>{months}){month_end}",
        "season": f"(?P<season>{choice(words.seasons)})",
        "unit": f"(?P<unit>{choice(words.units)})",
        "count": rf"(?P<count>\d{{1,3}}|{choice(numbers)})",
        "days": rf"(?P<day>{_DAY}|{choice(w for w in numbers if numbers[w] <= 31 and not tongue.has_blanks)})",
        "until": rf"(?P<until>{_DAY})",
        "relative": f"(?P<relative>{choice(words.years)})",
        "year": f"(?P<year>{_YEAR})",
        "first": f"(?P<first>{_YEAR})",
        "last": f"(?P<last>{_YEAR})",
        "nth": f"(?P<nth>{choice(words.ordinals)})",
        "month_number": "(?P<month>0?[1-9]|1[0-2])",
        "to_month": f"(?P<to_month>{months}){month_end}",
        "holiday": f"(?P<holiday>{choice(words.holidays)})",
        "quarter": "(?P<quarter>[1-4])",
    }

    def later(pattern: str) -> Callable[[], re.Pattern[str]]:
        return functools.cache(lambda: compiled([pattern], tongue, names))

    rules: list[_Rule] = []
    if words.fixed:
        rules.append((_NOTHING, later(choice(words.fixed)), _fixed, False))
    for pattern, said in table.get("patterns", {}).items():
        step = functools.partial(spans.shifted, said.split()[0], int(said.split()[1]))
        rules.append((_NOTHING, later(pattern), _stepped(step), False))
    for name, patterns in table.get("forms", {}).items():
        form, absolute = _FORMS[name]
        for pattern in patterns:
            rules.append((_needs(pattern, names), later(pattern), form, absolute))
    rules += [
        (_NOTHING, functools.partial(re.compile, it), form, absolute) for it, form, absolute in _NUMERIC
    ]
    wanted = frozenset[str]().union(*(needs for needs, *_ in rules))
    return {name: re.compile(tongues.widened(names[name])) for name in wanted}, rules


def _needs(pattern: str, names: Collection[str]) -> frozenset[str]:
    """The names in braces without which `pattern` matches nothing: those outside of any group that may not be left out.

    >>> sorted(_needs("(?:on )?{month} (?:the )?{days}(?:,? {year})?", {"month", "days", "year"}))
    ['days', 'month']
    """
    depth, found = 0, set[str]()
    for part in _PARTS.finditer(pattern):
        depth += (part[0] == "(") - (part[0] == ")")
        if part[0] == "|" and not depth:
            return _NOTHING
        if part[1] in names and not depth:
            found.add(part[1])
    return frozenset(found)


def _hint(tongue: Tongue, *groups: Mapping[str, Any]) -> re.Pattern[str]:
    """What a sentence in small letters must hold for any rule to apply: most hold nothing of it, and cost little.

    It is tried at the beginnings of words alone and does not fold case, either of which would cost several times as much.
    """
    table = tongue.table("dates")
    words = {word for group in (*groups, table.get("years", {}), table.get("hints", ())) for word in group}
    body = choice({word.lower() for word in words})
    return re.compile(rf"\d|(?<!\w){body}" if tongue.has_blanks else rf"\d|{body}")


@functools.cache
def _tense(tongue: Tongue) -> _Tense:
    table: Mapping[str, Any] = tongue.table("dates").get("tense", {})
    clause = re.compile(tongues.widened(tongues.either(table.get("clause", ("[,;:]",)))), re.IGNORECASE)
    cues = (
        "past",
        "future",
        "lived",
        "sure",
        "present",
        "once",
        "told",
        "of_thing",
        "neutral",
        "arranged",
        "shifted",
    )
    patterns = {name: compiled(table.get(name, ()), tongue) for name in (*cues, "recurring")}
    return _Tense(
        clause,
        target=_Lead(table.get("target", ())),
        since=_Lead(table.get("since", ())),
        until=_Lead(table.get("until", ())),
        **patterns,
    )


def _numbered(names: Sequence[str], first: int) -> dict[str, int]:
    return {word: n for n, said in enumerate(names, first) for word in _spelt(said)}


def _spelt(said: str) -> list[str]:
    return [_plain(word) for word in said.split("/")]


def _plain(said: str) -> str:
    return re.sub(r"\s+", " ", said.strip().lower().replace("’", "'")).rstrip(".")


# -- forms


def _fixed(match: re.Match[str], how: _Reading) -> Days | None:
    unit, steps = how.words.fixed[_plain(match.group())]
    if unit == "weekend":
        return _weekend(steps, how)
    return spans.shifted(unit, steps, how.today)


def _stepped(step: Callable[[date], Days]) -> _Form:
    return lambda _match, how: step(how.today)


def _weekend(steps: int, how: _Reading) -> Days | None:
    """Last, this and next weekend; "next weekend" on a weekday may be either of two."""
    on_it = how.today.weekday() >= 5
    if steps == 0 and how.way < 0 and not on_it:
        return spans.shifted("weekend", -1, how.today) if how.lean else None
    if steps == 1 and not on_it and not how.lean:
        return None
    return spans.shifted("weekend", steps, how.today)


def _weekend_bare(_match: re.Match[str], how: _Reading) -> Days | None:
    if not how.taken or (how.today.weekday() >= 5 and not how.lean):
        return None
    return spans.shifted("weekend", 0 if how.taken > 0 else -1, how.today)


def _ago(match: re.Match[str], how: _Reading) -> Days:
    unit = how.words.units[_plain(match["unit"])]
    return spans.shifted(unit, -how.words.count(match["count"]), how.today)


def _hence(match: re.Match[str], how: _Reading) -> Days | None:
    unit = how.words.units[_plain(match["unit"])]
    # "In two weekends": whether the coming one is the first of them, nobody can tell.
    if (unit == "weekend" and not how.lean) or how.way < 0:
        return None
    return spans.shifted(unit, how.words.count(match["count"]), how.today)


def _within(match: re.Match[str], how: _Reading) -> Days | None:
    # "in two weeks" looks ahead; "in a day", "in 3 years" are mostly spans, so the sentence must look ahead.
    return _hence(match, how) if how.way > 0 else None


def _past_span(match: re.Match[str], how: _Reading) -> Days:
    """For "over the last two weeks": from the same day so long ago up to today."""
    unit = how.words.units[_plain(match["unit"])]
    count = how.words.count(match["count"]) if match.groupdict().get("count") else 1
    months = {"month": count, "year": 12 * count, "decade": 120 * count}.get(unit)
    if months:
        return spans.plus_months(how.today, -months), how.today
    return how.today - timedelta(days=count * (7 if unit == "week" else 1)), how.today


def _weekday(match: re.Match[str], how: _Reading) -> Days | None:
    """A bare weekday: the last one or the coming one; today itself would be called so."""
    number = how.words.weekdays[_plain(match["weekday"])]
    if not how.taken:
        return None
    return spans.one(spans.weekday_near(number, how.today, future=how.taken > 0))


def _weekday_and_date(match: re.Match[str], how: _Reading) -> Days | None:
    """For "Thursday, 19 February" or "Friday the 5th": the date, where it is on that weekday in the year or month meant."""
    groups, today, day = match.groupdict(), how.today, how.words.count(match["day"])
    year = _year_in(match, how)
    if groups.get("month"):
        month = _month_number(groups["month"], how)
        years = (today.year - 1, today.year, today.year + 1) if year is None else (year,)
        firsts = [date(one, month, 1) for one in years]
    elif how.taken:
        firsts = [spans.plus_months(today.replace(day=1), n) for n in (-2, -1, 0, 1, 2)]
    else:
        return _UNREAD  # "Friday the 13th" may be a film
    days = [first.replace(day=day) for first in firsts if spans.exists(first.year, first.month, day)]
    if year is None:
        days = [one for one in days if (one - today).days * how.way >= 0]
    nearest = min(days, key=lambda one: abs(one - today), default=None)
    is_meant = nearest is not None and nearest.weekday() == how.words.short_weekdays[_plain(match["weekday"])]
    return spans.one(nearest) if nearest is not None and is_meant else _UNREAD


def _weekday_last(match: re.Match[str], how: _Reading) -> Days | None:
    """For "last Friday": of the week before; on a Saturday it may be yesterday, so it is left alone."""
    number = how.words.weekdays[_plain(match["weekday"])]
    if number < how.today.weekday() and not how.lean:
        return None
    return spans.one(spans.weekday_near(number, how.today, future=False))


def _weekday_past(match: re.Match[str], how: _Reading) -> Days:
    """For "this past Friday": the one just gone."""
    return spans.one(
        spans.weekday_near(how.words.weekdays[_plain(match["weekday"])], how.today, future=False)
    )


def _weekday_next(match: re.Match[str], how: _Reading) -> Days | None:
    """For "next Friday": said on a Monday it is one of two, said on a Saturday it is the coming one."""
    number = how.words.weekdays[_plain(match["weekday"])]
    day = spans.weekday_near(number, how.today, future=True)
    if day <= spans.week_of(how.today)[1]:
        return spans.one(day + timedelta(days=7)) if how.lean else None
    return spans.one(day)


def _weekday_this(match: re.Match[str], how: _Reading) -> Days | None:
    """For "this Friday": of this week, where it is still ahead, or behind and told as such."""
    number = how.words.weekdays[_plain(match["weekday"])]
    day = spans.week_of(how.today)[0] + timedelta(days=number)
    if day > how.today:
        return spans.one(day) if how.way >= 0 else None
    if how.lean and day < how.today and how.way >= 0:
        return spans.one(day + timedelta(days=7))
    return spans.one(day) if day < how.today and how.way < 0 else None


def _weekday_coming(match: re.Match[str], how: _Reading) -> Days:
    """For "the coming Friday": the next one."""
    number = how.words.weekdays[_plain(match["weekday"])]
    return spans.one(spans.weekday_near(number, how.today, future=True))


def _weekday_in_a_week(match: re.Match[str], how: _Reading) -> Days | None:
    """For "vendredi en huit": a week after the next one; said on a Friday, it may be either."""
    day = _weekday_coming(match, how)[0]
    return spans.one(day + timedelta(days=7)) if day.weekday() != how.today.weekday() else None


def _weekday_moved(match: re.Match[str], how: _Reading) -> Days | None:
    """For "moved from Monday to Wednesday": next week's, where both have gone by this week; else it may be either week's."""
    first, last = (how.words.weekdays[_plain(match[name])] for name in ("weekday", "to_weekday"))
    is_over = how.today.weekday() > max(first, last)
    return spans.one(spans.weekday_near(last, how.today, future=True)) if is_over else None


def _weekday_span(match: re.Match[str], how: _Reading) -> Days | None:
    """For "from Monday to Thursday", said of what is done once; on one of its days it may be this week's or the next."""
    if not how.way or not how.words.tense.once.search(match.string):
        return None
    first, last = (how.words.weekdays[_plain(match[name])] for name in ("weekday", "to_weekday"))
    days = timedelta(days=(last - first) % 7)
    gone = (how.today.weekday() - first) % 7
    if gone < days.days if how.way > 0 else 0 < gone <= days.days:
        return None
    start = spans.weekday_near(first, how.today, future=how.way > 0)
    return start, start + days


def _weekday_span_of(steps: int) -> _Form:
    def read(match: re.Match[str], how: _Reading) -> Days | None:
        monday = spans.shifted("week", steps, how.today)[0]
        first, last = (how.words.weekdays[_plain(match[name])] for name in ("weekday", "to_weekday"))
        return (monday + timedelta(days=first), monday + timedelta(days=last)) if first < last else None

    return read


def _weekday_of(steps: int) -> _Form:
    def read(match: re.Match[str], how: _Reading) -> Days:
        monday = spans.shifted("week", steps, how.today)[0]
        return spans.one(monday + timedelta(days=how.words.weekdays[_plain(match["weekday"])]))

    return read


def _season(match: re.Match[str], how: _Reading, which: int) -> Days | None:
    name = how.words.seasons[_plain(match["season"])]
    options = [spans.season(name, how.today.year + n) for n in (-2, -1, 0, 1, 2)]
    return _nearest(options, which, how)


def _month(match: re.Match[str], how: _Reading, which: int) -> Days | None:
    number = how.words.months[_plain(match["month"])]
    options = [spans.month_of(date(how.today.year + n, number, 1)) for n in (-1, 0, 1)]
    return _nearest(options, which, how)


def _nearest(options: Sequence[Days], which: int, how: _Reading) -> Days | None:
    """The span meant by last (-1), this (0) or next (1).

    "Last March", said in May, is this year's to some and the year before to others: left alone, as is "next
    March", said in January.
    """
    today = how.today
    if which < 0:
        gone = max(span for span in options if span[1] < today)
        return None if gone[0].year == today.year and not how.lean else gone
    if which > 0:
        ahead = min(span for span in options if span[0] > today)
        now = any(span[0] <= today <= span[1] for span in options)
        return None if ahead[0].year == today.year and not now and not how.lean else ahead
    around = [span for span in options if span[0] <= today <= span[1]]
    if around:
        return around[0]
    named = min(span for span in options if span[0].year == today.year)
    # "I learned it this summer", said in April, is not the summer ahead.
    return None if how.way * (1 if named[0] > today else -1) < 0 and not how.lean else named


def _by_tense(options: Sequence[Days], how: _Reading) -> Days | None:
    """The coming one of several spans where the sentence looks ahead, the last where it looks back.

    The one that is now may be meant either way, and is left alone.
    """
    is_now = any(start <= how.today <= end for start, end in options)
    if not how.taken or (is_now and not how.lean):
        return None
    if how.taken > 0:
        taken = min((span for span in options if span[1] >= how.today), default=None)
    else:
        taken = max((span for span in options if span[0] <= how.today), default=None)
    return taken if taken is not None and how.is_nearest(taken, options) else None


def _month_bare(match: re.Match[str], how: _Reading) -> Days | None:
    number = how.words.months[_plain(match["month"])]
    return _in_year(lambda year: spans.month_of(date(year, number, 1)), match, how)


def _year_in(match: re.Match[str], how: _Reading) -> int | None:
    """The year that a match or the words beside it name, by its number or as "last year"; None where they name none."""
    groups = match.groupdict()
    if groups.get("year"):
        return int(match["year"])
    if groups.get("relative"):
        return how.today.year + how.words.years[_plain(match["relative"])]
    return how.year


def _in_year(make: Callable[[int], Days | None], match: re.Match[str], how: _Reading) -> Days | None:
    """What `make` gives for the year that is named, else for the one the tense tells."""
    year = _year_in(match, how)
    if year is not None:
        return make(year)
    return _by_tense([span for n in (-1, 0, 1) if (span := make(how.today.year + n))], how)


def _season_bare(match: re.Match[str], how: _Reading) -> Days | None:
    name = how.words.seasons[_plain(match["season"])]
    return _in_year(lambda year: spans.season(name, year), match, how)


def _holiday(match: re.Match[str], how: _Reading, which: int | None = None) -> Days | None:
    """A holiday by its name; one that differs from country to country is taken only where a guess is wanted."""
    said = how.words.holidays[_plain(match["holiday"])]
    if said.startswith("?") and not how.lean:
        return None
    day = said.removeprefix("?")
    if which is None:
        return _in_year(lambda year: spans.holiday(day, year), match, how)
    options = [spans.holiday(day, how.today.year + n) for n in (-1, 0, 1)]
    if which == 0 and how.way < 0 and options[1][0] > how.today:
        return options[0] if how.lean else None
    return _nearest(options, which, how)


def _nth_week(match: re.Match[str], how: _Reading) -> Days | None:
    month, nth = how.words.months[_plain(match["month"])], how.words.ordinals[_plain(match["nth"])]
    return _in_year(lambda year: spans.nth_week(spans.month_of(date(year, month, 1)), nth), match, how)


def _week_around(match: re.Match[str], how: _Reading) -> Days | None:
    """For "the week of 3 July": a week for a question; a statement may mean the one that begins on that day."""
    days = _day_and_month(match, how) if how.lean else None
    return spans.week_of(days[0]) if days else _UNREAD


def _nth_weekend(match: re.Match[str], how: _Reading) -> Days | None:
    return _nth_day(match, how, weekday=5, days=2)


def _nth_weekday(match: re.Match[str], how: _Reading) -> Days | None:
    return _nth_day(match, how, weekday=how.words.weekdays[_plain(match["weekday"])], days=1)


def _nth_day(match: re.Match[str], how: _Reading, *, weekday: int, days: int) -> Days | None:
    month, nth = how.words.months[_plain(match["month"])], how.words.ordinals[_plain(match["nth"])]

    def make(year: int) -> Days | None:
        day = spans.nth_weekday(spans.month_of(date(year, month, 1)), weekday, nth)
        return (day, day + timedelta(days=days - 1)) if day is not None else None

    return _in_year(make, match, how)


def _quarter(match: re.Match[str], how: _Reading) -> Days | None:
    groups = match.groupdict()
    number = int(groups["quarter"]) if groups.get("quarter") else how.words.ordinals[_plain(match["nth"])]
    number = 4 if number < 0 else number
    if number > 4:
        return None
    return _in_year(lambda year: spans.quarter_of(date(year, 3 * number, 1)), match, how)


def _month_span(match: re.Match[str], how: _Reading) -> Days | None:
    """For "between March and June": from the first day of the one to the last of the other; the year is the end's."""
    first, last = (how.words.months[_plain(match[name])] for name in ("month", "to_month"))

    def make(year: int) -> Days:
        return date(year - (first > last), first, 1), spans.month_of(date(year, last, 1))[1]

    return _in_year(make, match, how)


def _day_span(match: re.Match[str], how: _Reading) -> Days | None:
    """For "from 28 May to 3 June"; the year is the end's."""
    first, last = (how.words.months[_plain(match[name])] for name in ("month", "to_month"))
    day, until = how.words.count(match["day"]), how.words.count(match["until"])

    if _is_moved(match, how):
        return _UNREAD

    def make(year: int) -> Days | None:
        early = year - ((first, day) > (last, until))
        is_real = spans.exists(early, first, day) and spans.exists(year, last, until)
        return (date(early, first, day), date(year, last, until)) if is_real else None

    return _in_year(make, match, how)


def _is_moved(match: re.Match[str], how: _Reading) -> bool:
    """Whether what has two days was moved from the one to the other, "from 14 to 21 April", and does not last so long."""
    text, tense = match.string, how.words.tense
    begin, stop = max(0, match.start() - _BEFORE), min(len(text), match.end() + _AFTER)
    edges = [one.start() for one in tense.clause.finditer(text, begin, stop)]
    begin = max((edge for edge in edges if edge <= match.start()), default=begin)
    stop = min((edge for edge in edges if edge >= match.end()), default=stop)
    before, behind = text[begin : match.start()], text[match.end() : stop]
    return tense.shifted.search(before) is not None or tense.shifted.search(behind) is not None


def _days_listed(match: re.Match[str], how: _Reading) -> Days | None:
    """For "on 3 and 4 May": days that follow each other are one stretch; others are two mentions, and left alone."""
    is_stretch = how.words.count(match["until"]) == how.words.count(match["day"]) + 1
    return _day_and_month(match, how) if is_stretch else _UNREAD


def _month_of_year(match: re.Match[str], how: _Reading) -> Days | None:
    year = _year_in(match, how)
    return spans.month_of(date(year, how.words.months[_plain(match["month"])], 1)) if year else None


def _month_number(said: str, how: _Reading) -> int:
    return int(said) if said.isdecimal() else how.words.months[_plain(said)]


def _day_and_month(match: re.Match[str], how: _Reading) -> Days | None:
    groups = match.groupdict()
    month, first = _month_number(match["month"], how), how.words.count(match["day"])
    last = max(first, int(groups.get("until") or first))
    if last > first and _is_moved(match, how):
        return _UNREAD
    named = _year_in(match, how)
    year = _year_near(month, first, last, how) if named is None else named
    if year is None:
        return None
    return date(year, month, first), date(year, month, last)


def _year_near(month: int, first: int, last: int, how: _Reading) -> int | None:
    """The year of a day and a month: the next one where the sentence looks ahead, the last where it looks back."""
    today = how.today
    years = [y for y in (today.year - 1, today.year, today.year + 1) if spans.exists(y, month, last)]
    options = [(date(y, month, first), date(y, month, last)) for y in years]
    # What was done tomorrow was hardly done a year ago: the clock is a day off, here or where it was said.
    if not how.lean and any((start - today).days == -how.way for start, _ in options):
        return None
    way = how.way or (1 if how.side.is_present or how.lean > 0 else 0)
    if way > 0:
        taken = min((days for days in options if days[1] >= today), default=None)
    elif way < 0:
        taken = max((days for days in options if days[0] <= today), default=None)
    elif how.lean:
        # A month ahead still counts as near: plans are named by their bare date.
        taken = max((days for days in options if days[0] <= today + timedelta(days=31)), default=None)
    else:
        taken = None
    return taken[0].year if taken is not None and how.is_nearest(taken, options) else None


def _day_of_month(match: re.Match[str], how: _Reading) -> Days | None:
    """For "on the 5th": the last or the next day of that number."""
    day, today = how.words.count(match["day"]), how.today
    months = [spans.plus_months(today.replace(day=1), n) for n in (-2, -1, 0, 1, 2)]
    days = [m.replace(day=day) for m in months if spans.exists(m.year, m.month, day)]
    if not how.taken or (day == today.day and not how.lean):
        return None
    return spans.one(
        min(d for d in days if d >= today) if how.taken > 0 else max(d for d in days if d <= today)
    )


def _day_of_shifted_month(steps: int) -> _Form:
    def read(match: re.Match[str], how: _Reading) -> Days:
        first = spans.shifted("month", steps, how.today)[0]
        return spans.one(first.replace(day=how.words.count(match["day"])))

    return read


def _year_alone(match: re.Match[str], _how: _Reading) -> Days:
    return spans.year_of(int(match["year"]))


def _year_span(match: re.Match[str], _how: _Reading) -> Days | None:
    first, last = int(match["first"]), int(match["last"])
    return (date(first, 1, 1), date(last, 12, 31)) if first <= last else None


def _iso(match: re.Match[str], _how: _Reading) -> Days:
    return spans.one(date(int(match[1]), int(match[2]), int(match[3])))


def _slashed(match: re.Match[str], how: _Reading) -> Days | None:
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    if first > 12 >= second or (how.words.is_day_first and second <= 12):
        return spans.one(date(year, second, first))
    # 5/7/2023 in English is May in one country and July in another; only the unambiguous are read.
    return spans.one(date(year, first, second)) if second > 12 or first == second else None


def _unread(_match: re.Match[str], _how: _Reading) -> Days | None:
    return _UNREAD


_FORMS: Mapping[str, tuple[_Form, bool]] = {
    "ago": (_ago, False),
    "hence": (_hence, False),
    "within": (_within, False),
    "past_span": (_past_span, False),
    "weekend": (_weekend_bare, False),
    "weekday": (_weekday, False),
    "weekday_and_date": (_weekday_and_date, False),
    "weekday_last": (_weekday_last, False),
    "weekday_past": (_weekday_past, False),
    "weekday_next": (_weekday_next, False),
    "weekday_this": (_weekday_this, False),
    "weekday_coming": (_weekday_coming, False),
    "weekday_in_a_week": (_weekday_in_a_week, False),
    "weekday_moved": (_weekday_moved, False),
    "weekday_span": (_weekday_span, False),
    "weekday_span_of_last_week": (_weekday_span_of(-1), False),
    "weekday_span_of_this_week": (_weekday_span_of(0), False),
    "weekday_span_of_next_week": (_weekday_span_of(1), False),
    "weekday_of_last_week": (_weekday_of(-1), False),
    "weekday_of_this_week": (_weekday_of(0), False),
    "weekday_of_next_week": (_weekday_of(1), False),
    "weekday_of_week_before_last": (_weekday_of(-2), False),
    "weekday_of_week_after_next": (_weekday_of(2), False),
    "season_last": (functools.partial(_season, which=-1), False),
    "season_this": (functools.partial(_season, which=0), False),
    "season_next": (functools.partial(_season, which=1), False),
    "season_year": (_season_bare, False),
    "season": (_season_bare, False),
    "holiday": (_holiday, False),
    "holiday_last": (functools.partial(_holiday, which=-1), False),
    "holiday_this": (functools.partial(_holiday, which=0), False),
    "holiday_next": (functools.partial(_holiday, which=1), False),
    "nth_week": (_nth_week, False),
    "week_around": (_week_around, False),
    "nth_weekend": (_nth_weekend, False),
    "nth_weekday": (_nth_weekday, False),
    "quarter": (_quarter, False),
    "month_span": (_month_span, False),
    "day_span": (_day_span, False),
    "days_listed": (_days_listed, False),
    "month_last": (functools.partial(_month, which=-1), False),
    "month_this": (functools.partial(_month, which=0), False),
    "month_next": (functools.partial(_month, which=1), False),
    "month": (_month_bare, False),
    "month_year": (_month_of_year, False),
    "day_month": (_day_and_month, False),
    "day": (_day_of_month, False),
    "day_of_last_month": (_day_of_shifted_month(-1), False),
    "day_of_this_month": (_day_of_shifted_month(0), False),
    "day_of_next_month": (_day_of_shifted_month(1), False),
    "year": (_year_alone, True),
    "year_span": (_year_span, True),
    "unread": (_unread, False),
}
"""The forms a language file may use, and whether what they name is absolute whatever was said when."""

_NUMERIC: tuple[tuple[re.Pattern[str], _Form, bool], ...] = (
    (re.compile(rf"(?<![\w-])({_YEAR})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\w)"), _iso, True),
    (re.compile(r"(?<![\w./])(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)\d\d)(?!\w)"), _slashed, True),
    (re.compile(rf"(?<![\w-])(?P<first>{_YEAR})\s*(?:-|–)\s*(?P<last>{_YEAR})(?![\w-])"), _year_span, True),
)
