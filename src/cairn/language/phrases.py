"""The forms that phrases of time have, and the days each stands for: "two weeks ago", "last Friday", "on 12 May".

A form needs the words of a language (`Words`, from `language/data/`), the day something was said on and which way its
sentence looks. What leaves two readings stands for no day.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from cairn.language import spans, tense, tongues
from cairn.language.spans import Days
from cairn.language.tense import Lead, Side, Tense
from cairn.language.tongues import Tongue, choice, compiled

# What is as near ahead as this is not left for a day of the year before, however plainly a past is told: the past may be
# that of an arrangement.
_SOON = 3  # days
_FAR = 10  # years
_YEAR = r"(?:1[89]|20|21)\d\d"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
# A place that is found but not read (an ambiguous "next Friday") keeps its words from being read in part.
UNREAD = None


@dataclass(frozen=True, slots=True)
class Reading:
    """What a form needs to read a match: the words of the language, today, and which way the sentence looks.

    `way` is -1 for back, 1 for ahead, 0 where the sentence does not say. `lean` is what to take then: 0 leaves
    the words alone, -1 and 1 choose (a question is better answered by a guess than by nothing). `year` is the one
    that the words beside the match name ("on 12 June next year").
    """

    words: Words
    today: date
    side: Side
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
        if self.lean or (self.way > 0 and not self.side.is_present):
            return True
        nearest = min(options, key=self._distance)
        return nearest == taken or (self.side.is_sure and self._distance(nearest) > _SOON)

    def _distance(self, days: Days) -> int:
        return max((days[0] - self.today).days, (self.today - days[1]).days, 0)


Form = Callable[[re.Match[str], Reading], "Days | None"]
_Rule = tuple[frozenset[str], Callable[[], re.Pattern[str]], Form, bool]
Rules = tuple[Mapping[str, re.Pattern[str]], Sequence[_Rule]]
_NOTHING: frozenset[str] = frozenset()
_PARTS = re.compile(r"\\.|\[(?:\\.|[^\]])*\]|\{(\w+)\}(?![?*]|\{0)|[()|]")


# "May" and "mars" are words of other kinds, too.
_SHORTEST_MONTH = 5
_WORD_BEFORE = re.compile(r"(?:([\w’'-]+)\s+)?([\w-]+)(?:\s+|['’]\s*)$")
_WORD_BEHIND = re.compile(r"\s+([\w-]+)")


class Beside:
    """The words right before and behind a phrase that make another time of it than the phrase alone would be.

    What a noun or a verb beside it is does not matter; the little words do: "not Friday", "the Friday after", "a day in May",
    "Sunday or Monday". A word for a time that no form has read beside it is a part of it that was not understood.
    """

    def __init__(self, tongue: Tongue, numbers: Collection[str], times: Collection[str]) -> None:
        table: Mapping[str, Any] = tongue.table("dates").get("beside", {})
        self._changes = frozenset(table.get("changes", "").split())
        self._belongs = frozenset(table.get("belongs", "").split())
        self._opens = frozenset(table.get("opens", "").split())
        names = {"count": rf"(?:\d{{1,3}}|{choice(numbers)})", "time": choice(times)}
        self._lets = _before(table.get("lets", ()))
        self._before = _before(table.get("before", ()))
        self._behind = compiled(table.get("behind", ()), tongue, names)
        self._numbers, self._times, self._has_blanks = numbers, times, tongue.has_blanks

    def changes(self, sentence: str, begin: int, stop: int) -> bool:
        """Whether what stands beside the words from `begin` to `stop` says that they are not the whole of a time."""
        return self._has_blanks and (
            self._is_changed_before(sentence, begin, stop) or self._is_changed_behind(sentence, stop)
        )

    def _is_changed_before(self, sentence: str, begin: int, stop: int) -> bool:
        before = sentence[max(0, begin - 40) : begin]
        found = _WORD_BEFORE.search(before)
        if found is None or self._lets.search(before):
            return False
        if self._before.search(before):
            return True
        counted, word = plain(found[1] or ""), plain(found[2])
        if word in self._changes:
            return True
        if word in self._times:
            return counted.isdecimal() or counted in self._numbers
        opening = re.split(r"[\s'’]", plain(sentence[begin:stop]), maxsplit=1)[0]
        return word in self._belongs and opening not in self._opens

    def _is_changed_behind(self, sentence: str, stop: int) -> bool:
        found = _WORD_BEHIND.match(sentence, stop)
        is_time = found is not None and plain(found[1]) in self._times
        return found is not None and (is_time or self._behind.match(sentence, found.start(1)) is not None)


def _before(patterns: Sequence[str]) -> re.Pattern[str]:
    return re.compile(rf"(?<!\w)(?:{tongues.widened(tongues.either(patterns))})\s*$", re.IGNORECASE)


@dataclass(frozen=True, eq=False, slots=True)
class Words:
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
    titled: Lead
    joins: re.Pattern[str]
    is_day_first: bool
    weeks_in_days: Mapping[int, int]
    hint: re.Pattern[str]
    beside: Beside

    @property
    def tense(self) -> Tense:
        return tense.tense_of(self.tongue)

    @property
    def rules(self) -> Rules:
        return _rules(self.tongue)

    def count(self, said: str) -> int:
        """A number as a digit or a word."""
        said = plain(said)
        return int(said) if said.isdecimal() else self.numbers[said]


@functools.cache
def words_of(tongue: Tongue) -> Words:
    table = tongue.table("dates")
    fixed = {plain(k): (v.split()[0], int(v.split()[1])) for k, v in table.get("fixed", {}).items()}
    numbers = _numbered(table.get("numbers", ()), 1)
    weekdays, months = _numbered(table.get("weekdays", ()), 0), _numbered(table.get("months", ()), 1)
    units = {word: unit for unit, said in table.get("units", {}).items() for word in _spelt(said)}
    seasons = {word: name for name, said in table.get("seasons", {}).items() for word in _spelt(said)}
    years = {plain(word): steps for word, steps in table.get("years", {}).items()}
    ordinals = _numbered(table.get("ordinals", ()), 1)
    ordinals |= dict.fromkeys(_spelt(table["ordinal_last"]) if "ordinal_last" in table else (), -1)
    holidays = {word: day for said, day in table.get("holidays", {}).items() for word in _spelt(said)}
    return Words(
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
        Lead(table.get("titled", ())),
        re.compile(rf"\s*(?:(?:{tongues.either(table.get('joins', ()))})\s*)?", re.IGNORECASE),
        bool(table.get("day_first")),
        {days: days // 7 for days in table.get("weeks_in_days", ())},
        _hint(tongue, fixed, weekdays, months, units, seasons, holidays),
        Beside(
            tongue, numbers, {*units, *weekdays, *seasons, *(m for m in months if len(m) > _SHORTEST_MONTH)}
        ),
    )


@functools.cache
def _rules(tongue: Tongue) -> Rules:
    """How a language names weekdays, months and the like, and each of its patterns: which of those it cannot do without,
    the form that reads what it matches, and whether that names its year.

    A pattern costs many times what its names cost, which most sentences with a word of time lack: it is compiled when
    the first sentence has them all. The names alone are looked for in small letters, which costs a quarter.
    """
    table, words = tongue.table("dates"), words_of(tongue)
    numbers, months, month_end = words.numbers, choice(words.months), table.get("month_end", "")
    names = {
        "weekday": f"(?P<weekday>{choice(words.weekdays)}){table.get('weekday_end', '')}",
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
        rules.append((_NOTHING, later(choice(words.fixed)), fixed, False))
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


def _numbered(names: Sequence[str], first: int) -> dict[str, int]:
    return {word: n for n, said in enumerate(names, first) for word in _spelt(said)}


def _spelt(said: str) -> list[str]:
    return [plain(word) for word in said.split("/")]


def plain(said: str) -> str:
    return re.sub(r"\s+", " ", said.strip().lower().replace("’", "'")).rstrip(".")


def fixed(match: re.Match[str], how: Reading) -> Days | None:
    unit, steps = how.words.fixed[plain(match.group())]
    if unit == "weekend":
        return _weekend(steps, how)
    return spans.shifted(unit, steps, how.today)


def _stepped(step: Callable[[date], Days]) -> Form:
    return lambda _match, how: step(how.today)


def _weekend(steps: int, how: Reading) -> Days | None:
    """Last, this and next weekend; "next weekend" on a weekday may be either of two."""
    on_it = how.today.weekday() >= 5
    if steps == 0 and how.way < 0 and not on_it:
        return spans.shifted("weekend", -1, how.today) if how.lean else None
    if steps == 1 and not on_it and not how.lean:
        return None
    return spans.shifted("weekend", steps, how.today)


def _weekend_bare(_match: re.Match[str], how: Reading) -> Days | None:
    if not how.taken or (how.today.weekday() >= 5 and not how.lean):
        return None
    return spans.shifted("weekend", 0 if how.taken > 0 else -1, how.today)


def _ago(match: re.Match[str], how: Reading) -> Days:
    return _counted(match, how, -1)


def _hence(match: re.Match[str], how: Reading) -> Days | None:
    unit = how.words.units[plain(match["unit"])]
    # "In two weekends": whether the coming one is the first of them, nobody can tell.
    if (unit == "weekend" and not how.lean) or how.way < 0:
        return None
    return _counted(match, how, 1)


def _counted(match: re.Match[str], how: Reading, way: int) -> Days:
    """So many units away; where a language counts weeks in days ("quinze jours"), the week."""
    unit, count = how.words.units[plain(match["unit"])], how.words.count(match["count"])
    weeks = how.words.weeks_in_days.get(count) if unit == "day" else None
    return (
        spans.shifted("week", way * weeks, how.today)
        if weeks
        else spans.shifted(unit, way * count, how.today)
    )


def _exact(way: int) -> Form:
    """For "exactly three weeks ago": the day, not the week."""

    def read(match: re.Match[str], how: Reading) -> Days | None:
        unit, count = how.words.units[plain(match["unit"])], how.words.count(match["count"])
        days = {"day": 1, "week": 7, "fortnight": 14}.get(unit)
        if days:
            return spans.one(how.today + timedelta(days=way * count * days))
        months = {"month": 1, "year": 12}.get(unit)
        return spans.one(spans.plus_months(how.today, way * count * months)) if months else UNREAD

    return read


def _last_day(match: re.Match[str], how: Reading) -> Days | None:
    """For "the last day of June"."""
    number = how.words.months[plain(match["month"])]
    return _in_year(lambda year: spans.one(spans.month_of(date(year, number, 1))[1]), match, how)


def _year_short(match: re.Match[str], how: Reading) -> Days | None:
    """For "in '97": the century that is over, where ours has not come so far."""
    year = int(match["short"])
    return spans.year_of(1900 + year) if 2000 + year > how.today.year + _FAR else UNREAD


def _within(match: re.Match[str], how: Reading) -> Days | None:
    # "in two weeks" looks ahead; "in a day", "in 3 years" are mostly spans, so the sentence must look ahead.
    return _hence(match, how) if how.way > 0 else None


def _past_span(match: re.Match[str], how: Reading) -> Days:
    """For "over the last two weeks": from the same day so long ago up to today."""
    unit = how.words.units[plain(match["unit"])]
    count = how.words.count(match["count"]) if match.groupdict().get("count") else 1
    months = {"month": count, "year": 12 * count, "decade": 120 * count}.get(unit)
    if months:
        return spans.plus_months(how.today, -months), how.today
    return how.today - timedelta(days=count * (7 if unit == "week" else 1)), how.today


def weekday(match: re.Match[str], how: Reading) -> Days | None:
    """A bare weekday: the last one or the coming one; today itself would be called so."""
    number = how.words.weekdays[plain(match["weekday"])]
    if not how.taken:
        return None
    return spans.one(spans.weekday_near(number, how.today, future=how.taken > 0))


def _weekday_and_date(match: re.Match[str], how: Reading) -> Days | None:
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
        return _only(day, how.words.short_weekdays[plain(match["weekday"])], today)
    days = [first.replace(day=day) for first in firsts if spans.exists(first.year, first.month, day)]
    if year is None:
        days = [one for one in days if (one - today).days * how.way >= 0]
    nearest = min(days, key=lambda one: abs(one - today), default=None)
    is_meant = nearest is not None and nearest.weekday() == how.words.short_weekdays[plain(match["weekday"])]
    return spans.one(nearest) if nearest is not None and is_meant else UNREAD


def _only(day: int, weekday: int, today: date) -> Days | None:
    """For "Thursday the 9th" without a tense: the one of this month and those beside it that is on that weekday.

    "Friday the 13th" may be a film.
    """
    firsts = [spans.plus_months(today.replace(day=1), n) for n in (-1, 0, 1)]
    days = [one.replace(day=day) for one in firsts if spans.exists(one.year, one.month, day)]
    found = [one for one in days if one.weekday() == weekday]
    return spans.one(found[0]) if len(found) == 1 and day != 13 else UNREAD


def _weekday_last(match: re.Match[str], how: Reading) -> Days | None:
    """For "last Friday": of the week before; on a Saturday it may be yesterday, so it is left alone."""
    number = how.words.weekdays[plain(match["weekday"])]
    if number < how.today.weekday() and not how.lean:
        return None
    return spans.one(spans.weekday_near(number, how.today, future=False))


def _weekday_past(match: re.Match[str], how: Reading) -> Days:
    """For "this past Friday": the one just gone."""
    return spans.one(spans.weekday_near(how.words.weekdays[plain(match["weekday"])], how.today, future=False))


def _weekday_next(match: re.Match[str], how: Reading) -> Days | None:
    """For "next Friday": said on a Monday it is one of two, said on a Saturday it is the coming one."""
    number = how.words.weekdays[plain(match["weekday"])]
    day = spans.weekday_near(number, how.today, future=True)
    if day <= spans.week_of(how.today)[1]:
        return spans.one(day + timedelta(days=7)) if how.lean else None
    return spans.one(day)


def _weekday_this(match: re.Match[str], how: Reading) -> Days | None:
    """For "this Friday": of this week, where it is still ahead, or behind and told as such."""
    number = how.words.weekdays[plain(match["weekday"])]
    day = spans.week_of(how.today)[0] + timedelta(days=number)
    if day > how.today:
        return spans.one(day) if how.way >= 0 else None
    if how.lean and day < how.today and how.way >= 0:
        return spans.one(day + timedelta(days=7))
    return spans.one(day) if day < how.today and how.way < 0 else None


def _weekday_coming(match: re.Match[str], how: Reading) -> Days:
    """For "the coming Friday": the next one."""
    number = how.words.weekdays[plain(match["weekday"])]
    return spans.one(spans.weekday_near(number, how.today, future=True))


def _weekday_in_a_week(match: re.Match[str], how: Reading) -> Days | None:
    """For "vendredi en huit": a week after the next one; said on a Friday, it may be either."""
    day = _weekday_coming(match, how)[0]
    return spans.one(day + timedelta(days=7)) if day.weekday() != how.today.weekday() else None


def _weekday_moved(match: re.Match[str], how: Reading) -> Days | None:
    """For "moved from Monday to Wednesday": next week's, where both have gone by this week; else it may be either week's."""
    first, last = (how.words.weekdays[plain(match[name])] for name in ("weekday", "to_weekday"))
    is_over = how.today.weekday() > max(first, last)
    return spans.one(spans.weekday_near(last, how.today, future=True)) if is_over else None


def _weekday_span(match: re.Match[str], how: Reading) -> Days | None:
    """For "from Monday to Thursday", said of what is done once; on one of its days it may be this week's or the next."""
    if not how.way or not how.words.tense.once.search(match.string):
        return None
    first, last = (how.words.weekdays[plain(match[name])] for name in ("weekday", "to_weekday"))
    days = timedelta(days=(last - first) % 7)
    gone = (how.today.weekday() - first) % 7
    if gone < days.days if how.way > 0 else 0 < gone <= days.days:
        return None
    start = spans.weekday_near(first, how.today, future=how.way > 0)
    return start, start + days


def _weekday_span_of(steps: int) -> Form:
    def read(match: re.Match[str], how: Reading) -> Days | None:
        monday = spans.shifted("week", steps, how.today)[0]
        first, last = (how.words.weekdays[plain(match[name])] for name in ("weekday", "to_weekday"))
        return (monday + timedelta(days=first), monday + timedelta(days=last)) if first < last else None

    return read


def _weekday_of(steps: int) -> Form:
    def read(match: re.Match[str], how: Reading) -> Days:
        monday = spans.shifted("week", steps, how.today)[0]
        return spans.one(monday + timedelta(days=how.words.weekdays[plain(match["weekday"])]))

    return read


def _season(match: re.Match[str], how: Reading, which: int) -> Days | None:
    name = how.words.seasons[plain(match["season"])]
    options = [spans.season(name, how.today.year + n) for n in (-2, -1, 0, 1, 2)]
    return _nearest(options, which, how)


def _month(match: re.Match[str], how: Reading, which: int) -> Days | None:
    number = how.words.months[plain(match["month"])]
    options = [spans.month_of(date(how.today.year + n, number, 1)) for n in (-1, 0, 1)]
    return _nearest(options, which, how)


def _nearest(options: Sequence[Days], which: int, how: Reading) -> Days | None:
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


def _by_tense(options: Sequence[Days], how: Reading) -> Days | None:
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


def _month_bare(match: re.Match[str], how: Reading) -> Days | None:
    number = how.words.months[plain(match["month"])]
    return _in_year(lambda year: spans.month_of(date(year, number, 1)), match, how)


def _year_in(match: re.Match[str], how: Reading) -> int | None:
    """The year that a match or the words beside it name, by its number or as "last year"; None where they name none."""
    groups = match.groupdict()
    if groups.get("year"):
        return int(match["year"])
    if groups.get("relative"):
        return how.today.year + how.words.years[plain(match["relative"])]
    return how.year


def _in_year(make: Callable[[int], Days | None], match: re.Match[str], how: Reading) -> Days | None:
    """What `make` gives for the year that is named, else for the one the tense tells."""
    year = _year_in(match, how)
    if year is not None:
        return make(year)
    return _by_tense([span for n in (-1, 0, 1) if (span := make(how.today.year + n))], how)


def _season_bare(match: re.Match[str], how: Reading) -> Days | None:
    name = how.words.seasons[plain(match["season"])]
    return _in_year(lambda year: spans.season(name, year), match, how)


def holiday(match: re.Match[str], how: Reading, which: int | None = None) -> Days | None:
    """A holiday by its name; one that differs from country to country is taken only where a guess is wanted."""
    said = how.words.holidays[plain(match["holiday"])]
    if said.startswith("?") and not how.lean:
        return None
    day = said.removeprefix("?")
    if which is None:
        return _in_year(lambda year: spans.holiday(day, year), match, how)
    options = [spans.holiday(day, how.today.year + n) for n in (-1, 0, 1)]
    if which == 0 and how.way < 0 and options[1][0] > how.today:
        return options[0] if how.lean else None
    return _nearest(options, which, how)


def _nth_week(match: re.Match[str], how: Reading) -> Days | None:
    month, nth = how.words.months[plain(match["month"])], how.words.ordinals[plain(match["nth"])]
    week = _in_year(lambda year: spans.nth_week(spans.month_of(date(year, month, 1)), nth), match, how)
    # From the 1st to the 7th, or the first one from a Monday to a Sunday: one reading where a month begins on a Monday.
    return week if week is None or how.lean or is_week(week) else UNREAD


def is_week(days: Days) -> bool:
    return spans.week_of(days[0]) == days


def _week_around(match: re.Match[str], how: Reading) -> Days | None:
    """For "the week of 3 July": a week for a question; a statement may mean the one that begins on that day."""
    days = _day_and_month(match, how) if how.lean else None
    return spans.week_of(days[0]) if days else UNREAD


def _nth_weekend(match: re.Match[str], how: Reading) -> Days | None:
    return _nth_day(match, how, weekday=5, days=2)


def _nth_weekday(match: re.Match[str], how: Reading) -> Days | None:
    return _nth_day(match, how, weekday=how.words.weekdays[plain(match["weekday"])], days=1)


def _nth_day(match: re.Match[str], how: Reading, *, weekday: int, days: int) -> Days | None:
    month, nth = how.words.months[plain(match["month"])], how.words.ordinals[plain(match["nth"])]

    def make(year: int) -> Days | None:
        day = spans.nth_weekday(spans.month_of(date(year, month, 1)), weekday, nth)
        return (day, day + timedelta(days=days - 1)) if day is not None else None

    return _in_year(make, match, how)


def _quarter(match: re.Match[str], how: Reading) -> Days | None:
    groups = match.groupdict()
    number = int(groups["quarter"]) if groups.get("quarter") else how.words.ordinals[plain(match["nth"])]
    number = 4 if number < 0 else number
    if number > 4:
        return None
    return _in_year(lambda year: spans.quarter_of(date(year, 3 * number, 1)), match, how)


def _month_span(match: re.Match[str], how: Reading) -> Days | None:
    """For "between March and June": from the first day of the one to the last of the other; the year is the end's."""
    first, last = (how.words.months[plain(match[name])] for name in ("month", "to_month"))

    def make(year: int) -> Days:
        return date(year - (first > last), first, 1), spans.month_of(date(year, last, 1))[1]

    return _in_year(make, match, how)


def _day_span(match: re.Match[str], how: Reading) -> Days | None:
    """For "from 28 May to 3 June"; the year is the end's."""
    first, last = (how.words.months[plain(match[name])] for name in ("month", "to_month"))
    day, until = how.words.count(match["day"]), how.words.count(match["until"])

    if how.words.tense.moves(match.string, match.start(), match.end()):
        return UNREAD

    def make(year: int) -> Days | None:
        early = year - ((first, day) > (last, until))
        is_real = spans.exists(early, first, day) and spans.exists(year, last, until)
        return (date(early, first, day), date(year, last, until)) if is_real else None

    return _in_year(make, match, how)


def _days_listed(match: re.Match[str], how: Reading) -> Days | None:
    """For "on 3 and 4 May": days that follow each other are one stretch; others are two mentions, and left alone."""
    is_stretch = how.words.count(match["until"]) == how.words.count(match["day"]) + 1
    return _day_and_month(match, how) if is_stretch else UNREAD


def _month_of_year(match: re.Match[str], how: Reading) -> Days | None:
    year = _year_in(match, how)
    return spans.month_of(date(year, how.words.months[plain(match["month"])], 1)) if year else None


def _month_number(said: str, how: Reading) -> int:
    return int(said) if said.isdecimal() else how.words.months[plain(said)]


def _day_and_month(match: re.Match[str], how: Reading) -> Days | None:
    groups = match.groupdict()
    month, first = _month_number(match["month"], how), how.words.count(match["day"])
    last = max(first, int(groups.get("until") or first))
    if last > first and how.words.tense.moves(match.string, match.start(), match.end()):
        return UNREAD
    named = _year_in(match, how)
    year = _year_near(month, first, last, how) if named is None else named
    if year is None:
        return None
    return date(year, month, first), date(year, month, last)


def _year_near(month: int, first: int, last: int, how: Reading) -> int | None:
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


def day_of_month(match: re.Match[str], how: Reading) -> Days | None:
    """For "on the 5th": the last or the next day of that number."""
    day, today = how.words.count(match["day"]), how.today
    months = [spans.plus_months(today.replace(day=1), n) for n in (-2, -1, 0, 1, 2)]
    days = [m.replace(day=day) for m in months if spans.exists(m.year, m.month, day)]
    if not how.taken or (day == today.day and not how.lean):
        return None
    return spans.one(
        min(d for d in days if d >= today) if how.taken > 0 else max(d for d in days if d <= today)
    )


def _days_of_month(match: re.Match[str], how: Reading) -> Days | None:
    """For "from the 14th to the 21st": the last or the next such stretch."""
    day, until = how.words.count(match["day"]), how.words.count(match["until"])
    if not how.taken or how.words.tense.moves(match.string, match.start(), match.end()):
        return UNREAD
    options = []
    for n in (-2, -1, 0, 1, 2):
        first = spans.plus_months(how.today.replace(day=1), n)
        last = first if until > day else spans.plus_months(first, 1)
        if spans.exists(first.year, first.month, day) and spans.exists(last.year, last.month, until):
            options.append((first.replace(day=day), last.replace(day=until)))
    return _by_tense(options, how)


def _day_of_shifted_month(steps: int) -> Form:
    def read(match: re.Match[str], how: Reading) -> Days:
        first = spans.shifted("month", steps, how.today)[0]
        return spans.one(first.replace(day=how.words.count(match["day"])))

    return read


def _year_alone(match: re.Match[str], _how: Reading) -> Days:
    return spans.year_of(int(match["year"]))


def _year_span(match: re.Match[str], _how: Reading) -> Days | None:
    first, last = int(match["first"]), int(match["last"])
    return (date(first, 1, 1), date(last, 12, 31)) if first <= last else None


def _iso(match: re.Match[str], _how: Reading) -> Days:
    return spans.one(date(int(match[1]), int(match[2]), int(match[3])))


def _slashed(match: re.Match[str], how: Reading) -> Days | None:
    first, second, year = int(match[1]), int(match[2]), int(match[3])
    if first > 12 >= second or (how.words.is_day_first and second <= 12):
        return spans.one(date(year, second, first))
    # 5/7/2023 in English is May in one country and July in another; only the unambiguous are read.
    return spans.one(date(year, first, second)) if second > 12 or first == second else None


def unread(_match: re.Match[str], _how: Reading) -> Days | None:
    return UNREAD


_FORMS: Mapping[str, tuple[Form, bool]] = {
    "ago": (_ago, False),
    "hence": (_hence, False),
    "within": (_within, False),
    "exact_ago": (_exact(-1), False),
    "exact_hence": (_exact(1), False),
    "last_day": (_last_day, False),
    "year_short": (_year_short, False),
    "past_span": (_past_span, False),
    "weekend": (_weekend_bare, False),
    "weekday": (weekday, False),
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
    "holiday": (holiday, False),
    "holiday_last": (functools.partial(holiday, which=-1), False),
    "holiday_this": (functools.partial(holiday, which=0), False),
    "holiday_next": (functools.partial(holiday, which=1), False),
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
    "day": (day_of_month, False),
    "days": (_days_of_month, False),
    "day_of_last_month": (_day_of_shifted_month(-1), False),
    "day_of_this_month": (_day_of_shifted_month(0), False),
    "day_of_next_month": (_day_of_shifted_month(1), False),
    "year": (_year_alone, True),
    "year_span": (_year_span, True),
    "unread": (unread, False),
}
"""The forms a language file may use, and whether what they name is absolute whatever was said when."""

DATED = frozenset({_day_and_month, _days_listed, _day_span, day_of_month, _iso, _slashed})
"""The forms beside which a bare weekday is not another day."""

COUNTED = frozenset({_ago, _hence, _within})
"""The forms that count from today."""

_NUMERIC: tuple[tuple[re.Pattern[str], Form, bool], ...] = (
    (re.compile(rf"(?<![\w-])({_YEAR})-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])(?!\w)"), _iso, True),
    (re.compile(r"(?<![\w./])(\d{1,2})[/.](\d{1,2})[/.]((?:19|20)\d\d)(?!\w)"), _slashed, True),
    (re.compile(rf"(?<![\w-])(?P<first>{_YEAR})\s*(?:-|–)\s*(?P<last>{_YEAR})(?![\w-])"), _year_span, True),
)
