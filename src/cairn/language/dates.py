"""Dates as people say them, resolved against the day they were said.

"yesterday", said on 8 May 2023, is 7 May 2023. English is covered widely; German, French, Spanish, Chinese and
Japanese in their everyday words. A mention is a range of whole days: "last week" is seven, "in 2022" all of
that year. What cannot be placed ("recently", "the other day") is not a mention: silence beats a guess.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, datetime, timedelta

from cairn.language import abroad, spans
from cairn.language.spans import Days, shown

__all__ = ["TimeMention", "mentions", "shown", "with_absolute"]


@dataclass(frozen=True, slots=True)
class TimeMention:
    """Words that name a time, and the days (both ends included) they stand for."""

    words: str
    start: date
    end: date
    begin: int
    stop: int
    is_absolute: bool = False


_Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], Days | None], bool]

_MONTH_NUMBERS = {name: n for n, name in enumerate(spans.MONTHS, 1)} | {
    **{name[:3]: n for n, name in enumerate(spans.MONTHS, 1)},
    "sept": 9,
}
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_WEEKDAY_NUMBERS = {name: n for n, name in enumerate(_WEEKDAYS)} | {
    "mon": 0,
    "tue": 1,
    "tues": 1,
    "wed": 2,
    "thu": 3,
    "thur": 3,
    "thurs": 3,
    "fri": 4,
}
_NUMBERS = {
    word: n
    for n, word in enumerate(
        [
            "zero",
            "one",
            "two",
            "three",
            "four",
            "five",
            "six",
            "seven",
            "eight",
            "nine",
            "ten",
            "eleven",
            "twelve",
            "thirteen",
            "fourteen",
            "fifteen",
            "sixteen",
            "seventeen",
            "eighteen",
            "nineteen",
            "twenty",
        ]
    )
} | {"a": 1, "an": 1, "thirty": 30, "couple": 2}

_MONTH = "(?:" + "|".join(sorted(_MONTH_NUMBERS, key=len, reverse=True)) + r")\b\.?"
_WEEKDAY = "(?:" + "|".join(sorted(_WEEKDAY_NUMBERS, key=len, reverse=True)) + ")"
_COUNT = (
    r"(?:\d{1,4}|an?\s+couple(?:\s+of)?|a\s+few|several|an?|"
    + "|".join(w for w in _NUMBERS if len(w) > 2)
    + r")"
)
_UNIT = "(?:day|weekend|week|fortnight|month|year|decade)s?"
_DAY_NUMBER = r"(?:0?[1-9]|[12]\d|3[01])"
_YEAR = r"(?:1[89]|20|21)\d\d"
_LETTERS = re.compile(r"[^\W\d_]+")
_FUTURE = re.compile(
    r"\b(?:will|won't|'ll|going to|gonna|plan(?:s|ning)?|hope|hoping|upcoming|coming up|next|soon|shall|"
    r"can't wait|looking forward|scheduled|see you|let's|invite|is on|are on|due)\b",
    re.IGNORECASE,
)

# A present tense that only makes sense ahead: "I start on Monday", "we have an exam on Friday".
_SCHEDULED = re.compile(
    r"\b(?:starts?|begins?|arrives?|leaves?|meets?|visits?|travels?|go|goes|drives?|hosts?|celebrates?|presents?|departs?|opens?|closes?|ships?|launch(?:es)?|fly|flies|lands?|ends?|"
    r"returns?|moves?|am|is|are|'m|'re|have|has|need|needs|must|should|by|before|until|appointment|exam|interview|"
    r"deadline|flight|hearing|surgery|wedding)\b",
    re.IGNORECASE,
)
# "I promised it by Wednesday" looks ahead although the verb is past; "by Wednesday I was tired" does not.
_DEADLINE = re.compile(r"\b(?:by|no later than)\s+(?:the\s+end\s+of\s+)?$", re.IGNORECASE)
# "Every Friday" is no Friday in particular.
_EACH = re.compile(r"\b(?:every|each|most)\s+(?:other\s+|second\s+)?$", re.IGNORECASE)
_WAS = re.compile(r"\b(?:was|were|had|got|felt)\b", re.IGNORECASE)
_PAST = re.compile(
    r"\b(?:was|were|had|did|didn't|went|met|got|came|saw|took|made|said|told|gave|found|felt|spent|bought|ran|ate|"
    r"read|left|began|flew|drove|wrote|won|lost|held|(?<!\bbe )(?!need)[a-z]{2,}ed|been|ago|since|last)\b",
    re.IGNORECASE,
)


def mentions(text: str, said_at: datetime) -> list[TimeMention]:
    """Every time named in `text`, in order, none overlapping another.

    Args:
        text: What was said.
        said_at: When it was said, aware, in the zone whose calendar the speaker means.
    """
    today = said_at.date()
    found: list[TimeMention] = []
    for pattern, resolve, is_absolute in _rules_for(text):
        for match in pattern.finditer(text):
            try:
                days = resolve(match, today)
            except (ValueError, OverflowError):
                continue
            if days is not None:
                named_year = is_absolute or bool(match.groupdict().get("year"))
                found.append(TimeMention(match.group(), *days, match.start(), match.end(), named_year))
    found.sort(key=lambda m: (m.begin, -m.stop))
    kept: list[TimeMention] = []
    for mention in found:
        if not kept or mention.begin >= kept[-1].stop:
            kept.append(mention)
    return kept


def with_absolute(text: str, said_at: datetime) -> str:
    """`text` with the date beside each relative time; every original word is kept.

    >>> from datetime import UTC, datetime
    >>> with_absolute("We met yesterday.", datetime(2023, 5, 8, tzinfo=UTC))
    'We met yesterday (7 May 2023).'
    """
    parts: list[str] = []
    at = 0
    for mention in mentions(text, said_at):
        if mention.is_absolute or text[mention.stop : mention.stop + 2] == " (":
            continue
        parts += [text[at : mention.stop], f" ({shown(mention.start, mention.end)})"]
        at = mention.stop
    return "".join(parts) + text[at:] if parts else text


def _range_shifted(unit: str, count: str, sign: int, today: date) -> Days:
    """`count` units before (-1) or after (1) today; "a few" and "several" become a span."""
    words = count.lower().split()
    if words[-1] in {"few", "several"}:
        near, far = (2, 4) if words[-1] == "few" else (3, 7)
        ends = (spans.shifted(unit, sign * near, today), spans.shifted(unit, sign * far, today))
        return min(ends)[0], max(ends)[1]
    number = next((int(w) if w.isdigit() else _NUMBERS[w] for w in reversed(words) if w != "of"), 0)
    return spans.shifted(unit, sign * number, today)


def _is_future(match: re.Match[str]) -> bool:
    """Whether the sentence around a bare weekday, month or day number looks ahead."""
    text = match.string
    begin = max(text.rfind(stop, max(0, match.start() - 160), match.start()) for stop in ".!?\n")
    end = min(len(text), match.end() + 40)
    if _DEADLINE.search(text, begin + 1, match.start()) and not _WAS.search(text, begin + 1, end):
        return True
    if _FUTURE.search(text, begin + 1, end) is not None:
        return True
    return _SCHEDULED.search(text, begin + 1, end) is not None and _PAST.search(text, begin + 1, end) is None


# English rules, each beside the words it reads.


def _fixed(match: re.Match[str], today: date) -> Days:
    words = re.sub(r"\s+", " ", match.group().lower())
    steps = {
        "the day before yesterday": -2,
        "day before yesterday": -2,
        "the day after tomorrow": 2,
        "day after tomorrow": 2,
        "yesterday": -1,
        "last night": -1,
        "tomorrow": 1,
    }
    for start, days in steps.items():
        if words.startswith(start):
            return spans.one(today + timedelta(days=days))
    return spans.one(today)


def _which_unit(match: re.Match[str], today: date) -> Days:
    which, unit = match["which"].lower(), match["unit"].lower()
    if unit == "weekend":
        # On a weekend the last one is a week ago; on a weekday it is the one just gone.
        steps = {"last": -1, "past": -1, "previous": -1, "next": 1, "coming": 0}.get(which.split()[-1], 0)
        return spans.shifted("weekend", steps, today)
    if which.endswith("past"):
        # "the past month" runs up to today; "last month" is the calendar's.
        months = {"month": -1, "year": -12, "decade": -120}.get(unit)
        return (spans.plus_months(today, months) if months else today - timedelta(days=7)), today
    steps = {"this": 0, "next": 1, "coming": 1, "following": 1}.get(which.split()[-1], -1)
    return spans.shifted(unit, steps, today)


def _weekend(match: re.Match[str], today: date) -> Days:
    return spans.shifted("weekend", 0 if _is_future(match) else -1, today)


def _before_after(match: re.Match[str], today: date) -> Days:
    unit, order = match["unit"].lower(), match["order"].lower()
    which = match["which"].lower()
    return spans.shifted(unit, -2 if (order, which) == ("before", "last") else 2, today)


def _counted(match: re.Match[str], today: date) -> Days:
    sign = -1 if match["ago"].lower() in {"ago", "back"} else 1
    return _range_shifted(match["unit"].lower().rstrip("s"), match["count"], sign, today)


def _in_counted(match: re.Match[str], today: date) -> Days | None:
    # "in two weeks" looks ahead; "in a day", "in 3 years" are mostly spans, so the sentence must look ahead.
    return (
        _range_shifted(match["unit"].lower().rstrip("s"), match["count"], 1, today)
        if _is_future(match)
        else None
    )


def _past_span(match: re.Match[str], today: date) -> Days:
    start = _range_shifted(match["unit"].lower().rstrip("s"), match["count"], -1, today)[0]
    return start, today


def _which_weekday(match: re.Match[str], today: date) -> Days:
    number = _WEEKDAY_NUMBERS[match["weekday"].lower()]
    which = match["which"].lower()
    if which in {"last", "past", "previous"}:
        return spans.one(spans.weekday_near(number, today, future=False))
    day = spans.weekday_near(number, today, future=True, same_day=which == "this")
    # "next Friday", said on a Monday, is the Friday of the following week.
    if which == "next" and day <= spans.week_of(today)[1]:
        day += timedelta(days=7)
    return spans.one(day)


def _weekday_of_week(match: re.Match[str], today: date) -> Days:
    steps = -1 if match["which"].lower() == "last" else 1
    monday = spans.shifted("week", steps, today)[0]
    return spans.one(monday + timedelta(days=_WEEKDAY_NUMBERS[match["weekday"].lower()]))


def _bare_weekday(match: re.Match[str], today: date) -> Days | None:
    if _EACH.search(match.string, max(0, match.start() - 16), match.start()):
        return None
    number = _WEEKDAY_NUMBERS[match["weekday"].lower()]
    return spans.one(spans.weekday_near(number, today, future=_is_future(match), same_day=False))


def _which_season(match: re.Match[str], today: date) -> Days:
    name, which = match["season"].lower(), match["which"].lower()
    return _nearest([spans.season(name, today.year + n) for n in (-2, -1, 0, 1, 2)], which, today)


def _which_month(match: re.Match[str], today: date) -> Days:
    number, which = _MONTH_NUMBERS[match["month"].lower().rstrip(".")], match["which"].lower()
    return _nearest([spans.month_of(date(today.year + n, number, 1)) for n in (-1, 0, 1)], which, today)


def _nearest(options: list[Days], which: str, today: date) -> Days:
    """The span meant by last, this or next: wholly past, around or nearest to today, wholly ahead."""
    if which in {"last", "past", "previous"}:
        return max(span for span in options if span[1] < today)
    if which in {"next", "coming"}:
        return min(span for span in options if span[0] > today)
    around = [span for span in options if span[0] <= today <= span[1]]
    return around[0] if around else min(span for span in options if span[0].year == today.year)


def _month_alone(match: re.Match[str], today: date) -> Days:
    number = _MONTH_NUMBERS[match["month"].lower().rstrip(".")]
    options = [spans.month_of(date(today.year + n, number, 1)) for n in (-1, 0, 1)]
    if _is_future(match):
        return min(span for span in options if span[1] >= today)
    return max(span for span in options if span[0] <= today)


def _day_and_month(match: re.Match[str], today: date) -> Days:
    month = _MONTH_NUMBERS[match["month"].lower().rstrip(".")]
    first = int(match["day"])
    last = int(match["until"] or first)
    if match["year"]:
        year = int(match["year"])
    else:
        options = [y for y in (today.year - 1, today.year, today.year + 1) if spans.exists(y, month, first)]
        if _is_future(match):
            year = min(y for y in options if date(y, month, first) >= today)
        else:
            # Up to a month ahead still counts as this year's: plans are named by their bare date.
            near = today + timedelta(days=31)
            year = max(y for y in options if date(y, month, first) <= near)
    return date(year, month, first), date(year, month, max(first, last))


def _month_and_year(match: re.Match[str], _today: date) -> Days:
    return spans.month_of(date(int(match["year"]), _MONTH_NUMBERS[match["month"].lower().rstrip(".")], 1))


def _season_and_year(match: re.Match[str], _today: date) -> Days:
    return spans.season(match["season"].lower(), int(match["year"]))


def _year_alone(match: re.Match[str], _today: date) -> Days:
    return spans.year_of(int(match["year"]))


def _year_span(match: re.Match[str], _today: date) -> Days | None:
    first, last = int(match["first"]), int(match["last"])
    return (date(first, 1, 1), date(last, 12, 31)) if first <= last else None


def _iso(match: re.Match[str], _today: date) -> Days:
    return spans.one(date(int(match[1]), int(match[2]), int(match[3])))


def _slashed(match: re.Match[str], _today: date) -> Days | None:
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    if first > 12 >= second:
        return spans.one(date(year, second, first))
    # 5/7/2023 is May in one country and July in another; only the unambiguous are read.
    return spans.one(date(year, first, second)) if second > 12 or first == second else None


def _day_of_month(match: re.Match[str], today: date) -> Days:
    day = int(match["day"])
    months = [spans.plus_months(today.replace(day=1), n) for n in (-2, -1, 0, 1, 2)]
    days = [m.replace(day=day) for m in months if spans.exists(m.year, m.month, day)]
    if _is_future(match):
        return spans.one(min(d for d in days if d >= today))
    return spans.one(max(d for d in days if d <= today))


def _rule(
    pattern: str, resolve: Callable[[re.Match[str], date], Days | None], *, is_absolute: bool = False
) -> _Rule:
    return re.compile(pattern, re.IGNORECASE), resolve, is_absolute


_ORDINAL = r"(?:st|nd|rd|th)"
_Family = tuple[re.Pattern[str], tuple[_Rule, ...]]
_ENGLISH: tuple[_Family, ...] = (
    (re.compile(r"day|night|morrow|morning|afternoon|evening|week|month|year|decade"), (
        _rule(r"\b(?:(?:the\s+)?day\s+(?:before\s+yesterday|after\s+tomorrow)|(?:yesterday|tomorrow)"
              r"(?:\s+(?:morning|afternoon|evening|night))?|today|tonight|last\s+night|"
              r"this\s+(?:morning|afternoon|evening))\b", _fixed),
        _rule(r"\b(?:the\s+)?(?P<unit>week|month|year)\s+(?P<order>before|after)\s+(?P<which>last|next)\b", _before_after),
        _rule(r"\b(?:the\s+)?(?P<which>last|past|previous|this(?:\s+(?:past|coming))?|next|coming|following)\s+"
              r"(?P<unit>week|weekend|month|year|decade)\b(?!\s+(?:before|after)\b)", _which_unit),
        _rule(r"\b(?:over|at|on|for)\s+the\s+weekend\b", _weekend),
        _rule(r"\b(?:the\s+)(?P<unit>week|month|year|weekend)\s+(?P<which>before|prior)\b(?!\s+\w)", _which_unit),
        _rule(rf"\b(?:about\s+|around\s+)?(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\s+(?P<ago>ago|back|from\s+now|from\s+today)\b",
              _counted),
        _rule(rf"\bin\s+(?:about\s+)?(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\b(?!\s+ago)", _in_counted),
        _rule(rf"\b(?:over|in|for|during)\s+the\s+(?:last|past)\s+(?P<count>{_COUNT})\s+(?P<unit>{_UNIT})\b", _past_span),
    )),
    (re.compile(r"mon|tue|wed|thu|fri|sat|sun"), (
        _rule(rf"\b(?P<which>last|past|previous|this|next|coming)\s+(?P<weekday>{_WEEKDAY})\b", _which_weekday),
        _rule(rf"\b(?P<weekday>{_WEEKDAY})\s+(?P<which>last|next)\s+week\b", _weekday_of_week),
        _rule(rf"\b(?:on\s+)?(?P<weekday>{'|'.join(_WEEKDAYS)})(?:\s+(?:morning|afternoon|evening|night))?\b(?!s)", _bare_weekday),
    )),
    (re.compile(r"spring|summer|fall|autumn|winter"), (
        _rule(rf"\b(?P<which>last|past|previous|this|next|coming)\s+(?P<season>{'|'.join(spans.SEASONS)})\b", _which_season),
    )),
    (re.compile(r"jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"), (
        _rule(rf"\b(?P<which>last|past|previous|this|next|coming)\s+(?P<month>{_MONTH})(?!\s*\d)", _which_month),
        _rule(rf"\b(?:early|mid|late|(?:back\s+)?in|since|during|until|till|by|from|through)\s+(?:early\s+|mid\s+|late\s+|mid-)?"
              rf"(?P<month>{_MONTH})(?!\s*\d)", _month_alone),
    )),
    (re.compile(r"\d"), (
        _rule(rf"\b(?:on\s+)?(?:the\s+)?(?P<day>{_DAY_NUMBER}){_ORDINAL}?(?:\s*(?:-|–|to)\s*(?P<until>{_DAY_NUMBER}){_ORDINAL}?)?"
              rf"\s+(?:of\s+)?(?P<month>{_MONTH})(?:,?\s+(?P<year>{_YEAR}))?\b", _day_and_month),
        _rule(rf"\b(?P<month>{_MONTH})\s+(?:the\s+)?(?P<day>{_DAY_NUMBER}){_ORDINAL}?(?:\s*(?:-|–|to)\s*(?P<until>{_DAY_NUMBER}){_ORDINAL}?)?\b"
              rf"(?!\d|:\d)(?:,?\s+(?P<year>{_YEAR})\b)?", _day_and_month),
        _rule(rf"\b(?P<month>{_MONTH}),?\s+(?:of\s+)?(?P<year>{_YEAR})\b", _month_and_year, is_absolute=True),
        _rule(rf"\b(?P<season>{'|'.join(spans.SEASONS)})\s+(?:of\s+|in\s+)?(?P<year>{_YEAR})\b", _season_and_year),
        _rule(rf"\b(?:in|since|by|during|until|till|from|of|around|year|circa)\s+(?P<year>{_YEAR})\b(?![-/.]\d)", _year_alone, is_absolute=True),
        _rule(rf"\b(?:from\s+|between\s+)?(?P<first>{_YEAR})\s*(?:-|–|to|until|and)\s*(?P<last>{_YEAR})\b", _year_span, is_absolute=True),
        _rule(r"\b((?:1[89]|20|21)\d\d)-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])\b", _iso, is_absolute=True),
        _rule(r"\b(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)\d\d)\b", _slashed, is_absolute=True),
        _rule(rf"\b(?:on|by|until|till|before|after|since|from|through)\s+the\s+(?P<day>{_DAY_NUMBER}){_ORDINAL}\b"
              rf"(?!\s+(?:of|{_MONTH}|\w+(?:day|week|month|year|floor|time|birthday|anniversary|century|grade)\b))", _day_of_month),
    )),
)  # fmt: skip
"""Rules by what a text must hold for any of them to apply: most texts hold little, and cost little."""


def _rules_for(text: str) -> Iterator[_Rule]:
    """The rules worth trying on `text`: those whose words, or whose language, show in it."""
    lowered = text.lower()
    for evidence, rules in _ENGLISH:
        if evidence.search(lowered):
            yield from rules
    if abroad.WITHOUT_BLANKS.search(text):
        yield from abroad.CHINESE_JAPANESE
    spoken = frozenset(_LETTERS.findall(lowered))
    for stop_words, rules in abroad.LANGUAGES:
        if not stop_words.isdisjoint(spoken):
            yield from rules
