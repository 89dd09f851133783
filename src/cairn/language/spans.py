"""Spans of whole days: the calendar arithmetic under `dates`. Weeks run from Monday to Sunday."""

from __future__ import annotations

import calendar
from datetime import date, timedelta

Days = tuple[date, date]
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
SEASONS = {"spring": (3, 5), "summer": (6, 8), "fall": (9, 11), "autumn": (9, 11), "winter": (12, 2)}


def shown(start: date, end: date) -> str:
    """A range of days as a person would write it: a day, a month, a year, or from one day to another."""
    if start == end:
        return f"{start.day} {_month_name(start)} {start.year}"
    if (start.month, start.day, end.month, end.day) == (1, 1, 12, 31):
        return f"{start.year}" if start.year == end.year else f"{start.year}-{end.year}"
    whole_months = start.day == 1 and end == month_of(end)[1]
    if whole_months and (start.year, start.month) == (end.year, end.month):
        return f"{_month_name(start)} {start.year}"
    if start.year != end.year:
        if whole_months:
            return f"{_month_name(start)} {start.year} - {_month_name(end)} {end.year}"
        return f"{shown(start, start)} - {shown(end, end)}"
    if whole_months:
        return f"{_month_name(start)}-{_month_name(end)} {end.year}"
    if start.month == end.month:
        return f"{start.day}-{end.day} {_month_name(end)} {end.year}"
    return f"{start.day} {_month_name(start)} - {end.day} {_month_name(end)} {end.year}"


def _month_name(day: date) -> str:
    return MONTHS[day.month - 1].capitalize()


def one(day: date) -> Days:
    return day, day


def week_of(day: date) -> Days:
    monday = day - timedelta(days=day.weekday())
    return monday, monday + timedelta(days=6)


def weekend_of(day: date) -> Days:
    monday, sunday = week_of(day)
    return monday + timedelta(days=5), sunday


def month_of(day: date) -> Days:
    return day.replace(day=1), day.replace(day=calendar.monthrange(day.year, day.month)[1])


def year_of(year: int) -> Days:
    return date(year, 1, 1), date(year, 12, 31)


def quarter_of(day: date) -> Days:
    first = day.replace(month=3 * ((day.month - 1) // 3) + 1, day=1)
    return first, month_of(plus_months(first, 2))[1]


def nth_week(month: Days, nth: int) -> Days:
    """The n-th seven days of a month; -1 for the last seven."""
    start = month[1] - timedelta(days=6) if nth < 0 else month[0] + timedelta(days=7 * (nth - 1))
    return start, min(start + timedelta(days=6), month[1])


def nth_weekday(month: Days, weekday: int, nth: int) -> date | None:
    """The n-th Monday, Tuesday ... of a month, -1 for the last; None where it has no fifth."""
    if nth < 0:
        return month[1] - timedelta(days=(month[1].weekday() - weekday) % 7)
    day = month[0] + timedelta(days=(weekday - month[0].weekday()) % 7 + 7 * (nth - 1))
    return day if day <= month[1] else None


def easter(year: int) -> date:
    """Easter Sunday of the western churches.

    >>> easter(2026)
    datetime.date(2026, 4, 5)
    """
    moon = _epact_moon(year)
    return moon + timedelta(days=7 - (moon.weekday() + 1) % 7)


def _epact_moon(year: int) -> date:
    """The day of the church's full moon in spring."""
    golden, century = year % 19 + 1, year // 100 + 1
    epact = (11 * golden + 20 + (8 * century + 5) // 25 - 5 - (3 * century // 4 - 12)) % 30
    epact += epact == 24 or (epact == 25 and golden > 11)
    full = 44 - epact + (30 if epact > 23 else 0)
    return date(year, 3, 1) + timedelta(days=full - 1)


def holiday(said: str, year: int) -> Days:
    """A holiday of a year: "12-25", "12-24..12-26", "easter -2", "easter 0..1", "weekday 3 4 11" (Thursday, 4th, November)."""
    name, _, rest = said.partition(" ")
    if name == "weekday":
        number, nth, month = map(int, rest.split())
        day = nth_weekday(month_of(date(year, month, 1)), number, nth)
        assert day is not None
        return one(day)
    first, _, last = (rest if name == "easter" else name).partition("..")
    days = [_holiday_day(name, part, year) for part in (first, last or first)]
    return days[0], days[1]


def _holiday_day(name: str, part: str, year: int) -> date:
    if name == "easter":
        return easter(year) + timedelta(days=int(part))
    month, day = part.split("-")
    return date(year, int(month), int(day))


def plus_months(day: date, months: int) -> date:
    index = day.year * 12 + day.month - 1 + months
    year, month = divmod(index, 12)
    return date(year, month + 1, min(day.day, calendar.monthrange(year, month + 1)[1]))


def season(name: str, year: int) -> Days:
    first, last = SEASONS[name]
    return date(year, first, 1), month_of(date(year + (last < first), last, 1))[1]


def shifted(unit: str, steps: int, today: date) -> Days:
    """The day, week, month, year or decade `steps` away: as exact as the unit is."""
    if unit == "day":
        return one(today + timedelta(days=steps))
    if unit == "week":
        return week_of(today + timedelta(days=7 * steps))
    if unit == "fortnight":
        return week_of(today + timedelta(days=14 * steps))
    if unit == "weekend":
        return weekend_of(today + timedelta(days=7 * steps))
    if unit == "month":
        return month_of(plus_months(today, steps))
    if unit == "quarter":
        return quarter_of(plus_months(today.replace(day=1), 3 * steps))
    if unit == "year":
        return year_of(today.year + steps)
    return year_of(today.year + 10 * steps)


def weekday_near(number: int, today: date, *, future: bool) -> date:
    if future:
        ahead = (number - today.weekday()) % 7
        return today + timedelta(days=ahead or 7)
    back = (today.weekday() - number) % 7
    return today - timedelta(days=back or 7)


def exists(year: int, month: int, day: int) -> bool:
    return 1 <= day <= calendar.monthrange(year, month)[1]
