"""`ome.toml`: which strategies run, and how. Read from the root, checked whole, changed while running.

Every key is known or an error with its line. A file that does not check changes nothing: the settings that
were good stay, and the trouble is shown until it is mended. At start there is nothing good to fall back on,
so a broken file holds the strategies (events keep queueing) instead of running what it might have switched off.
A table for a strategy that is not there (another program's) is skipped alone, with a warning.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Misconfigured, NotFound
from cairn.seams import Locator
from cairn.strategies.cron import Cron

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
_COMMON = {"enabled", "max_retries", "cron", "idle_seconds", "scan_interval_seconds", "gate"}


def template() -> str:
    """The commented file that a new root gets."""
    return resources.files("cairn.strategies").joinpath(FILE_NAME).read_text(encoding="utf-8")


def parse(text: str, defaults: Mapping[str, Options]) -> tuple[dict[str, Options], dict[str, str]]:
    """Read `ome.toml` over `defaults` (one per known strategy); and by name, what is said of unknown strategies.

    Raises:
        Misconfigured: not TOML, an unknown key, or a value of the wrong kind, with its line.
    """
    try:
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        trouble = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise Misconfigured(
            f"{FILE_NAME}: {trouble}. The settings before this edit stay.", setting=FILE_NAME
        ) from None
    for top in data:
        if top != "strategies":
            raise _wrong(text, top, f'there is no "{top}" here; everything stands under [strategies.<name>]')
    tables = data.get("strategies", {})
    if not isinstance(tables, dict):
        raise _wrong(text, "strategies", '"strategies" must be a table: write [strategies.<name>]')
    out = dict(defaults)
    unknown: dict[str, str] = {}
    for name, table in tables.items():
        if name not in defaults:
            line = _line_of(text, name)
            unknown[name] = (
                f'{FILE_NAME}, line {line}: there is no strategy "{name}" (there are: {", ".join(sorted(defaults))}); '
                "its table is skipped."
            )
            continue
        if not isinstance(table, dict):
            raise _wrong(text, name, f'"{name}" must be a table: write [strategies.{name}]')
        out[name] = _options(name, table, out[name], text)
    return out, unknown


def _options(name: str, table: Mapping[str, Any], base: Options, text: str) -> Options:
    known = _COMMON | _OWN.get(name, set())
    updates: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise _wrong(
                text, key, f'[strategies.{name}] has no key "{key}" (it has: {", ".join(sorted(known))})'
            )
        if key == "gate":
            updates[key] = _gate(name, value, base.gate, text)
        else:
            updates[key] = _checked(f"strategies.{name}", key, value, getattr(base, key), text)
    made = replace(base, **updates)
    if made.cron:
        try:
            Cron.parse(made.cron)
        except Misconfigured as error:
            raise _wrong(text, "cron", f"[strategies.{name}] {str(error).rstrip('.')}") from None
    if not 0 < made.similarity <= 1:
        raise _wrong(text, "similarity", f"[strategies.{name}] similarity must be above 0 and at most 1")
    if made.min_cases < 2 or made.min_steps < 1 or made.window_days < 1:
        raise _wrong(text, name, f"[strategies.{name}] min_cases starts at 2, min_steps and window_days at 1")
    return made


def _gate(name: str, table: Any, base: Gate, text: str) -> Gate:
    if not isinstance(table, dict):
        raise _wrong(text, "gate", f"gate must be a table: write [strategies.{name}.gate]")
    known = [f.name for f in fields(Gate)]
    updates: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise _wrong(
                text, key, f'[strategies.{name}.gate] has no key "{key}" (it has: {", ".join(known)})'
            )
        updates[key] = _checked(f"strategies.{name}.gate", key, value, getattr(base, key), text)
    made = replace(base, **updates)
    if made.threshold < 1:
        raise _wrong(text, "threshold", f"[strategies.{name}.gate] threshold must be 1 or more")
    if made.event_field not in EVENT_FIELDS:
        raise _wrong(
            text,
            "event_field",
            f"[strategies.{name}.gate] event_field must be one of {', '.join(EVENT_FIELDS)}",
        )
    return made


def _checked(where: str, key: str, value: Any, base: Any, text: str) -> Any:
    kind = type(base)
    if kind is bool:
        good, wanted = isinstance(value, bool), "true or false"
    elif kind is int:
        good, wanted = (
            isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 10**6,
            "a whole number from 0",
        )
    elif kind is float:
        good = isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < 10**9
        wanted = "a number from 0"
    else:
        good, wanted = isinstance(value, str), "a text in quotes"
    if not good:
        raise _wrong(text, key, f"[{where}] {key} = {value!r} is not {wanted}")
    return kind(value)


def _line_of(text: str, word: str) -> int:
    return next((n for n, row in enumerate(text.splitlines(), start=1) if word in row.split("#")[0]), 1)


def _wrong(text: str, word: str, trouble: str) -> Misconfigured:
    line = _line_of(text, word)
    return Misconfigured(
        f"{FILE_NAME}, line {line}: {trouble}. The settings before this edit stay.",
        setting=FILE_NAME,
        line=line,
    )


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
            text = self._notebook.text(Locator(FILE_NAME))
        except NotFound:
            text = ""
        except (CairnError, UnicodeDecodeError) as error:
            self._error = Misconfigured(f"{FILE_NAME} cannot be read: {error}", setting=FILE_NAME)
            return
        if text == self._text:
            return
        self._text = text
        try:
            self._good, self._unknown = parse(text, self.defaults)
            self._error = None
        except Misconfigured as error:
            self._error = error
