"""Cron expressions of five fields: minute, hour, day of month, month, day of week.

`*`, lists, ranges, steps and three-letter names. Sunday is 0 or 7. As in every cron, a day matches if either
day field does when both are restricted. Times are read in the zone of the moment they are asked about; an
hour that a clock change skips is not made up for, one that it repeats counts once.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cairn.errors import Misconfigured

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: tuple[tuple[str, int, int, dict[str, int]], ...] = (
    ("minute", 0, 59, {}),
    ("hour", 0, 23, {}),
    ("day of month", 1, 31, {}),
    ("month", 1, 12, {name: number for number, name in enumerate(_MONTHS, start=1)}),
    ("day of week", 0, 7, {name: number for number, name in enumerate(_DAYS)}),
)
_NEVER_AFTER = timedelta(days=366 * 9)


@dataclass(frozen=True, slots=True)
class Cron:
    """A parsed expression.

    >>> Cron.parse("0 2 * * 1").next(datetime(2026, 11, 15, 12, tzinfo=UTC))
    datetime.datetime(2026, 11, 16, 2, 0, tzinfo=datetime.timezone.utc)
    """

    text: str
    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool

    @classmethod
    def parse(cls, text: str) -> Cron:
        """Read an expression. Raises `Misconfigured` naming the field that is wrong."""
        parts = text.split()
        if len(parts) != len(_FIELDS):
            raise Misconfigured(
                f'cron = "{text}" has {len(parts)} fields; it needs 5: minute hour day month weekday.',
                setting="cron",
            )
        sets = [
            _numbers(part, what, low, high, names, text)
            for part, (what, low, high, names) in zip(parts, _FIELDS, strict=True)
        ]
        weekdays = frozenset(day % 7 for day in sets[4])
        both_restricted = not parts[2].startswith("*") and not parts[4].startswith("*")
        cron = cls(text, sets[0], sets[1], sets[2], sets[3], weekdays, both_restricted)
        if cron.next(datetime(2023, 12, 31, tzinfo=UTC)) is None:
            raise Misconfigured(f'cron = "{text}" names a day that never comes.', setting="cron")
        return cron

    def next(self, after: datetime) -> datetime | None:
        """The first matching minute strictly after `after` (aware; answered in its zone), if there is one."""
        moment = after.replace(second=0, microsecond=0) + timedelta(minutes=1)
        limit = after + _NEVER_AFTER
        while moment <= limit:
            if moment.month not in self.months or not self._is_day(moment):
                moment = moment.replace(hour=0, minute=0) + timedelta(days=1)
            elif moment.hour not in self.hours:
                moment = moment.replace(minute=0) + timedelta(hours=1)
            elif moment.minute not in self.minutes or not _exists(moment):
                moment += timedelta(minutes=1)
            else:
                return moment
        return None

    def _is_day(self, moment: datetime) -> bool:
        by_date = moment.day in self.days
        by_week = (moment.weekday() + 1) % 7 in self.weekdays
        return (by_date or by_week) if self.either_day else (by_date and by_week)


def _exists(moment: datetime) -> bool:
    """Whether this wall-clock minute happens at all in its zone (a clock change may skip it)."""
    return moment.astimezone(UTC).astimezone(moment.tzinfo).replace(fold=0) == moment.replace(fold=0)


def _numbers(part: str, what: str, low: int, high: int, names: dict[str, int], text: str) -> frozenset[int]:
    found: set[int] = set()
    for item in part.split(","):
        span, slash, step_text = item.partition("/")
        first_text, dash, last_text = span.partition("-")
        try:
            step = int(step_text) if slash else 1
            if span == "*":
                first, last = low, high
            else:
                first = _number(first_text, names)
                last = _number(last_text, names) if dash else (high if slash else first)
        except ValueError:
            first, last, step = 1, 0, 1
        if not (low <= first <= last <= high and step >= 1):
            raise Misconfigured(
                f'cron = "{text}": "{item}" is not a {what} ({low} to {high}, "a-b", "*/n" or a list).',
                setting="cron",
            )
        found.update(range(first, last + 1, step))
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int:
    if text.lower() in names:
        return names[text.lower()]
    if not (text.isascii() and text.isdigit()):
        raise ValueError(text)
    return int(text)
