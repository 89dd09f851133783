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
    if unit == "year":
        return year_of(today.year + steps)
    return year_of(today.year + 10 * steps)


def weekday_near(number: int, today: date, *, future: bool, same_day: bool = False) -> date:
    if future:
        ahead = (number - today.weekday()) % 7
        return today + timedelta(days=ahead or (0 if same_day else 7))
    back = (today.weekday() - number) % 7
    return today - timedelta(days=back or (0 if same_day else 7))


def exists(year: int, month: int, day: int) -> bool:
    return 1 <= day <= calendar.monthrange(year, month)[1]
