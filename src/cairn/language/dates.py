"""Dates as people say them, resolved against the day they were said, where only one reading is left.

"yesterday", said on 8 May 2023, is 7 May 2023. A bare "Friday", "in March" or "on 19 June" needs to know whether
the sentence looks back or ahead; where its words do not say so, or say both, the mention stays without a date:
silence beats a guess. A mention is a range of whole days: "last week" is seven, "in 2022" all of that year. The
words of each language are in `language/data/`, their forms and days in `phrases`, which way a sentence looks in `tense`.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta

from cairn.language import phrases, sentences, spans, tongues
from cairn.language.phrases import UNREAD, Form, Reading, Words, plain, words_of
from cairn.language.spans import Days, shown
from cairn.language.tense import Side

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

_MOST_MENTIONS = (
    400  # of one sentence; what has more is no sentence, and each costs a look at what is around it
)
_QUOTED = re.compile(
    r"\"[^\"]{1,200}\"|[“„][^”“\"]{1,200}[”“\"]|«[^»]{1,200}»|[「『《][^」』》]{1,200}[」』》]"
)
_POSSESSIVE = re.compile(r"['’]s\b")


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


_Match = tuple[re.Match[str], Form, bool, Side]


@dataclass(frozen=True, eq=False, slots=True)
class Times:
    """The times that a text names, found once; `mentions` tells which days they are for a day they were said on."""

    _sentences: Sequence[tuple[int, str, Words, Sequence[_Match]]]

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
        return {int(said) if said.isdecimal() else words.months[plain(said)] for words, said in named}

    def mentions(self, said_at: datetime, *, lean: int = 0) -> list[TimeMention]:
        """As `dates.mentions`."""
        today = said_at.date()
        read = [
            (begin, one)
            for begin, sentence, words, matches in self._sentences
            for one in _read(sentence, words, matches, today, lean)
        ]
        # "I'm there from 5 to 30 October, my sister marries on the 17th": of which month is said where both are one.
        months = {
            (one.days[0].year, one.days[0].month)
            for _, one in read
            if one.days and _holds(one.match, "month")
        }
        is_named = lean == 0 and any(_holds(one.match, "month") for _, one in read)
        return [
            TimeMention(
                one.match.string[one.begin : one.stop],
                *one.days,
                begin + one.begin,
                begin + one.stop,
                one.names_year,
                one.form is phrases.day_of_month,
            )
            for begin, one in read
            if one.days is not None and not (is_named and _is_elsewhere(one, months))
        ]


def _is_elsewhere(day: _Found, months: Collection[tuple[int, int]]) -> bool:
    """Whether a bare day was taken for one of another month than the one that is named beside it."""
    assert day.days is not None
    return day.form is phrases.day_of_month and months != {(day.days[0].year, day.days[0].month)}


def times_in(text: str) -> Times:
    """The times that are named in `text`, whenever it was said."""
    found = []
    quoted = [one.span() for one in _QUOTED.finditer(text)]
    for begin, stop in sentences.places(text):
        sentence = text[begin:stop]
        words = words_of(tongues.spoken_in(sentence))
        if words.hint.search(sentence.lower()) is not None:
            within = [(a - begin, b - begin) for a, b in quoted if a < stop and begin < b]
            found.append((begin, sentence, words, _matches(sentence, words, within)))
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
    tense = words_of(tongues.spoken_in(sentence)).tense
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
    form: Form
    how: Reading
    days: Days | None
    names_year: bool
    begin: int
    stop: int


def _names_month(match: re.Match[str]) -> bool:
    return _holds(match, "month")


def _holds(match: re.Match[str], name: str) -> bool:
    return match.groupdict().get(name) is not None


def _is_within_year(match: re.Match[str]) -> bool:
    return any(_holds(match, name) for name in ("month", "season", "holiday"))


def _matches(sentence: str, words: Words, quoted: Sequence[tuple[int, int]]) -> Sequence[_Match]:
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


def _read(sentence: str, words: Words, matches: Sequence[_Match], today: date, lean: int) -> Sequence[_Found]:
    found: list[_Found] = []
    for match, form, absolute, side in matches:
        how = Reading(words, today, side, lean)
        names_year = absolute or bool(match.groupdict().get("year"))
        found.append(_Found(match, form, how, _days_of(form, match, how), names_year, *match.span()))
    for n, one in enumerate(found if not lean else ()):
        if not one.names_year and _is_part(sentence, words, found, n):
            one.days = UNREAD
    for one in found:
        if (
            one.form is phrases.unread
            and _holds(one.match, "holiday")
            and len(one.match[0]) == len(one.match["holiday"])
        ):
            one.days = _confirmed(one, found)
    for left, right in itertools.pairwise(found):
        if plain(left.match[0]) == plain(right.match[0]) and _BETWEEN.fullmatch(
            sentence, left.stop, right.begin
        ):
            left.days = right.days = UNREAD  # "tomorrow, tomorrow, not today"
        if _is_beside(left, right, sentence):
            for one in (left, right):
                one.days = UNREAD if one.form is phrases.weekday else one.days
        is_touching = words.joins.fullmatch(sentence, left.match.end(), right.match.start()) is not None
        is_one = any(_is_of_year(*pair, words, is_touching) for pair in ((left, right), (right, left)))
        if is_touching and not is_one:
            _settle(left, right, words)
    return found


def _confirmed(holiday: _Found, found: Sequence[_Found]) -> Days | None:
    """The days of a bare holiday where another time of its sentence is one of them: "Halloween is tomorrow"."""
    for other in found:
        if other is not holiday and other.days and other.days[0] == other.days[1]:
            how = replace(holiday.how, year=other.days[0].year)
            days = phrases.holiday(holiday.match, how)
            if days is not None and days[0] <= other.days[0] <= days[1]:
                return days
    return UNREAD


def _is_part(sentence: str, words: Words, found: Sequence[_Found], n: int) -> bool:
    """Whether a mention is a part of a time that was not read to its end; one that touches another is settled with it."""
    one = found[n]
    before = sentence[found[n - 1].stop : one.begin] if n else sentence
    behind = sentence[one.stop : found[n + 1].begin] if n + 1 < len(found) else sentence
    if words.joins.fullmatch(before) or words.joins.fullmatch(behind):
        return False
    return words.beside.changes(sentence, one.begin, one.stop)


def _days_of(form: Form, match: re.Match[str], how: Reading) -> Days | None:
    try:
        return form(match, how)
    except (ValueError, OverflowError):
        return UNREAD


def _is_of_year(day: _Found, year: _Found, words: Words, is_touching: bool) -> bool:
    """Whether `year` is that of `day` ("on 12 June next year"), which is read so then: the two are one time.

    A year that stands apart must open or close the clause of the day: "Next year we sail on 12 June".
    """
    is_year = (
        year.form is phrases.fixed and year.days is not None and year.days == spans.year_of(year.days[0].year)
    )
    is_open = _is_within_year(day.match) and not day.names_year and day.how.year is None
    sentence = year.match.string
    if not is_year or not is_open or _POSSESSIVE.match(sentence, year.stop):
        return False
    if not is_touching and not _frames(year, day, words):
        return False
    assert year.days is not None
    day.how = replace(day.how, year=year.days[0].year)
    form = phrases.holiday if "holiday" in day.match.groupdict() else day.form
    day.days, year.days = _days_of(form, day.match, day.how), UNREAD
    if is_touching:
        day.begin, day.stop = min(day.begin, year.begin), max(day.stop, year.stop)
    return True


def _frames(year: _Found, day: _Found, words: Words) -> bool:
    """Whether the year opens the sentence of the day, or ends its clause."""
    sentence = year.match.string
    if year.stop <= day.begin:
        between = sentence[year.stop : day.begin]
        return not sentence[: year.begin].strip() and words.tense.clause.search(between.lstrip(" ,")) is None
    is_end = _ENDS.match(sentence, year.stop) is not None
    return is_end and words.tense.clause.search(sentence, day.stop, year.begin) is None


_ENDS = re.compile(r"\s*(?:$|[.,;:!?)])")
_BETWEEN = re.compile(r"[\s,，、(（]{1,3}")


def _is_beside(left: _Found, right: _Found, sentence: str) -> bool:
    """Whether a bare weekday stands beside a date, whose day is the one that is meant: "Monday, 3-7 May"."""
    forms = {left.form, right.form}
    is_pair = phrases.weekday in forms and not phrases.DATED.isdisjoint(forms)
    return is_pair and _BETWEEN.fullmatch(sentence, left.match.end(), right.match.start()) is not None


def _settle(left: _Found, right: _Found, words: Words) -> None:
    """Two times that touch ("Friday a week ago", "Monday of last week") are one: read together, or not at all."""
    for day, week in ((left, right), (right, left)):
        if (
            day.form is phrases.weekday
            and week.form is phrases.fixed
            and week.days
            and phrases.is_week(week.days)
        ):
            number = words.weekdays[plain(day.match["weekday"])]
            day.days = spans.one(week.days[0] + timedelta(days=number))
            return
    pair = (left, right)
    is_counted = any(one.form in phrases.COUNTED for one in pair)
    if left.days and right.days and not (is_counted and left.days != right.days):
        first, last = max(left.days[0], right.days[0]), min(left.days[1], right.days[1])
        if (first, last) in {left.days, right.days}:
            return
    for one in pair:
        one.days = one.days if one.names_year else UNREAD
