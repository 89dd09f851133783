"""`ome.toml`: which strategies run, and how. Read from the root, checked whole, changed while running.

Every key is known or an error with its line. A file that does not check changes nothing: the settings that
were good stay, and the trouble is shown until it is mended. At start there is nothing good to fall back on,
so a broken file holds the strategies (events keep queueing) instead of running what it might have switched off.
A table for a strategy that is not there (another program's) is skipped alone, with a warning.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Misconfigured, NotFound
from cairn.seams import Locator
from cairn.settings_files import check_choice, laid_over, line_of, parse_toml

if TYPE_CHECKING:
    from cairn.notes.notebook import Notebook

FILE_NAME = "ome.toml"
RELOAD_SECONDS = 1.0
EVENT_FIELDS = ("owner_id", "session_id", "space")


@dataclass(frozen=True, slots=True)
class Gate:
    """When counted events let a strategy run: at `threshold` events of one `event_field` value, and no
    sooner than `cooldown_seconds` after the last time.
    """

    threshold: int = 1
    cooldown_seconds: float = 0.0
    event_field: str = "owner_id"


@dataclass(frozen=True, slots=True)
class Options:
    """The switches of one strategy. The last group is read only by the strategies that name them."""

    enabled: bool = True
    max_retries: int = 4
    cron: str = ""
    idle_seconds: float = 0.0
    scan_interval_seconds: float = 0.0
    gate: Gate = field(default_factory=Gate)
    similarity: float = 0.65
    window_days: int = 7
    max_clusters: int = 10
    min_cases: int = 2
    min_steps: int = 2
    max_facts: int = 200


_OWN = {
    "extract_atomic_facts": {"max_facts"},
    "reflect_episodes": {"similarity", "window_days", "max_clusters"},
    "extract_agent_skill": {"similarity", "min_cases"},
    "extract_agent_case": {"min_steps"},
}
_COMMON = {"enabled", "max_retries", "cron", "idle_seconds", "scan_interval_seconds"}


def template() -> str:
    """The commented file that a new root gets."""
    return resources.files("cairn.strategies").joinpath(FILE_NAME).read_text(encoding="utf-8")


def parse(text: str, defaults: Mapping[str, Options]) -> tuple[dict[str, Options], dict[str, str]]:
    """Read `ome.toml` over `defaults` (one per known strategy); and by name, what is said of unknown strategies.

    Raises:
        Misconfigured: not TOML, an unknown key, or a value of the wrong kind, with its line.
    """
    data = parse_toml(text, FILE_NAME)
    for top in data:
        if top != "strategies":
            raise _wrong(
                text, "", top, f'there is no "{top}" here; everything stands under [strategies.<name>]'
            )
    tables = data.get("strategies", {})
    if not isinstance(tables, dict):
        raise _wrong(text, "", "strategies", '"strategies" must be a table: write [strategies.<name>]')
    out = dict(defaults)
    unknown: dict[str, str] = {}
    for name, table in tables.items():
        if name not in defaults:
            unknown[name] = (
                f'{FILE_NAME}, line {line_of(text, "", f"[strategies.{name}")}: there is no strategy "{name}" '
                f"(there are: {', '.join(sorted(defaults))}); its table is skipped."
            )
        else:
            out[name] = _options(f"strategies.{name}", table, out[name], text)
    return out, unknown


def switched(text: str, name: str, *, enabled: bool) -> str:
    r"""`ome.toml` with a strategy on or off, comments and all else as they were.

    >>> switched("[strategies.a]\nenabled = true # why\n", "a", enabled=False)
    '[strategies.a]\nenabled = false # why\n'
    """
    value = "true" if enabled else "false"
    head = re.search(rf"^\[strategies\.{re.escape(name)}\][ \t]*(?:#[^\n]*)?$", text, re.MULTILINE)
    if head is None:
        gap = "\n" if text and not text.endswith("\n") else ""
        return f"{text}{gap}\n[strategies.{name}]\nenabled = {value}\n"
    end = re.compile(r"^\[", re.MULTILINE).search(text, head.end())
    table = text[head.end() : end.start() if end else len(text)]
    said, count = re.subn(
        r"^(enabled[ \t]*=[ \t]*)(?:true|false)", rf"\g<1>{value}", table, flags=re.MULTILINE
    )
    if not count:
        said = f"\nenabled = {value}{table}"
    return text[: head.end()] + said + (text[end.start() :] if end else "")


def _options(at: str, table: Any, base: Options, text: str) -> Options:
    if not isinstance(table, dict):
        raise _wrong(text, "", at.rpartition(".")[2], f'"{at}" must be a table: write [{at}]')

    def origin(section: str, key: str) -> str:
        return f"{FILE_NAME}, line {line_of(text, section, key)}"

    known = [*sorted(_COMMON | _OWN.get(at.partition(".")[2], set())), "gate"]
    made = laid_over(base, table, at, origin, known=known)
    if made.cron:
        try:
            Cron.parse(made.cron)
        except Misconfigured as error:
            raise _wrong(text, at, "cron", f"[{at}] {str(error).rstrip('.')}") from None
    if not 0 < made.similarity <= 1:
        raise _wrong(text, at, "similarity", f"[{at}] similarity must be above 0 and at most 1")
    if made.min_cases < 2 or made.min_steps < 1 or not 1 <= made.window_days <= 10**5:
        raise _wrong(text, at, "", f"[{at}] min_cases starts at 2, min_steps and window_days at 1")
    gate = f"{at}.gate"
    if made.gate.threshold < 1:
        raise _wrong(text, gate, "threshold", f"[{gate}] threshold must be 1 or more")
    check_choice(made.gate.event_field, EVENT_FIELDS, f"{gate}.event_field", origin(gate, "event_field"))
    return made


def _wrong(text: str, section: str, key: str, trouble: str) -> Misconfigured:
    return Misconfigured(f"{FILE_NAME}, line {line_of(text, section, key)}: {trouble}.", setting=FILE_NAME)


class LiveOptions:
    """The settings in force: `ome.toml` as it was when it last checked.

    Args:
        notebook: Reads the file.
        defaults: One per strategy.
    """

    def __init__(self, notebook: Notebook, defaults: Mapping[str, Options]) -> None:
        self.defaults = dict(defaults)
        self._notebook = notebook
        self._good: dict[str, Options] | None = None
        self._text: str | None = None
        self._error: Misconfigured | None = None
        self._unknown: dict[str, str] = {}
        self._looked = -RELOAD_SECONDS

    def of(self, name: str) -> Options:
        """The settings of one strategy."""
        self._look()
        return (self._good or self.defaults)[name]

    def active(self) -> list[str]:
        """The strategies that are switched on; none while no good file has been seen."""
        self._look()
        return (
            [name for name, chosen in self._good.items() if chosen.enabled] if self._good is not None else []
        )

    @property
    def trouble(self) -> str:
        """What is wrong with the file, or "" when it is good."""
        self._look()
        return str(self._error or "")

    @property
    def unknown(self) -> Mapping[str, str]:
        """Strategies the file names and there are not, each with what is said of it."""
        self._look()
        return self._unknown

    def switch(self, name: str, *, enabled: bool) -> None:
        """Write into the file that a strategy runs or not; whatever else stands there stays.

        Raises:
            NotFound: there is no such strategy.
            Misconfigured: the file cannot be read as it is, so nothing was written.
        """
        if name not in self.defaults:
            known = ", ".join(sorted(self.defaults))
            raise NotFound(f'There is no strategy "{name[:60]}". There are: {known}.', name=name)

        def edit(text: str | None) -> str:
            parse(text or "", self.defaults)
            new = switched(text or "", name, enabled=enabled)
            parse(new, self.defaults)
            return new

        self._notebook.rewrite(Locator(FILE_NAME), edit)
        self.look_now()

    def look_now(self) -> None:
        """Read the file at the next question, however short ago the last look was."""
        self._looked = -RELOAD_SECONDS

    def _look(self) -> None:
        """Look at the file at most once a second; take it over if it is new and good."""
        now = time.monotonic()
        if now - self._looked < RELOAD_SECONDS:
            return
        self._looked = now
        try:
            text = self._notebook.storage.read(Locator(FILE_NAME))
        except NotFound:
            text = ""
        except (CairnError, UnicodeDecodeError) as error:
            self._error = Misconfigured(f"{FILE_NAME} cannot be read: {error}", setting=FILE_NAME)
            self._text = None  # once it can be read again, it is taken over, be it as it was
            return
        if text == self._text:
            return
        self._text = text
        try:
            self._good, self._unknown = parse(text, self.defaults)
            self._error = None
        except Misconfigured as error:
            self._error = Misconfigured(
                f"{error} The settings before this edit stay until it is corrected.", **error.facts
            )


# ---------------------------------------------------------------- cron
#
# Cron expressions of five fields: minute, hour, day of month, month, day of week.
#
# `*`, lists, ranges, steps and three-letter names. Sunday is 0 or 7. As in every cron, a day matches if either
# day field does when both are restricted. Times are read in the zone of the moment they are asked about; an
# hour that a clock change skips is not made up for, one that it repeats counts once.

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
