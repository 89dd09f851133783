"""The append-only log of what happened in a repository: `history/events.jsonl`.

Every line is one event of one of two kinds, `tool_run` or `imported_session`. The number in an id orders the
log; the `contentHash` is what an event *is*. That split lets two branches append at the same time: git keeps
the lines of both (`merge=union`), and `normalised` drops what is there twice, numbers the rest anew where
numbers collide, and says which id became which. Lines that are no event (a torn write, a conflict marker)
are skipped and counted, never repaired by guessing.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from cairn.canonical import compact, from_json, json_hash, moment, stamp
from cairn.errors import Invalid
from cairn.governed.secrets import redact
from cairn.project.layout import CONFLICT_LINE, EVENTS, LOCAL_SOURCE, number_of
from cairn.seams import Journals
from cairn.types import with_texts

EventKind = Literal["tool_run", "imported_session"]
SIGNAL_KEYS = ("decisions", "gotchas", "nextStepHints", "keyPaths", "validationObservations")
MAX_SIGNAL_CHARS = 600
MAX_SIGNALS = 40
_TAIL_BYTES = 16384
_TOLD = ("id", "kind", "sourceId", "createdAt", "contentHash", "summary", "sourceRef")
_TOLD_IF_THERE = ("check", "occurredAt", "writer", "effect")


@dataclass(frozen=True, slots=True)
class Signals:
    """What consolidation and query work from: the lines of an event that are worth keeping."""

    decisions: tuple[str, ...] = ()
    gotchas: tuple[str, ...] = ()
    nextStepHints: tuple[str, ...] = ()
    keyPaths: tuple[str, ...] = ()
    validationObservations: tuple[str, ...] = ()

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Signals:
        """Check and bound what a caller or a file gives: lists of non-empty, single-line texts."""
        unknown = sorted(set(raw) - set(SIGNAL_KEYS))
        if unknown:
            raise Invalid(
                f'signals has no "{unknown[0]}". It has: {", ".join(SIGNAL_KEYS)}.', field=unknown[0]
            )
        checked: list[tuple[str, ...]] = []
        for key in SIGNAL_KEYS:
            value = raw.get(key) or ()
            if isinstance(value, str) or not isinstance(value, Sequence):
                raise Invalid(f"signals.{key} must be a list of texts.", field=key)
            if not all(isinstance(item, str) for item in value):
                raise Invalid(f"signals.{key} holds something that is not a text.", field=key)
            lines = dict.fromkeys(" ".join(item.split())[:MAX_SIGNAL_CHARS] for item in value)
            checked.append(tuple(filter(None, lines))[:MAX_SIGNALS])
        return cls(*checked)

    @classmethod
    def stored(cls, raw: Any) -> Signals:
        """Signals as they stand in a file: taken as they are where they have the shape, checked otherwise."""
        if not isinstance(raw, dict):
            return cls()
        lists = [raw.get(key) for key in SIGNAL_KEYS]
        if all(type(lines) is list and all(type(line) is str for line in lines) for lines in lists):
            return cls(*map(tuple, lists))  # type: ignore[arg-type]
        return cls.of({key: value for key, value in raw.items() if key in SIGNAL_KEYS})

    def to_json(self) -> dict[str, list[str]]:
        return {key: list(getattr(self, key)) for key in SIGNAL_KEYS}

    def __bool__(self) -> bool:
        return any(getattr(self, key) for key in SIGNAL_KEYS)


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened. `effect` holds what a writing command did, so that state can be recomputed."""

    id: str
    kind: EventKind
    sourceId: str
    createdAt: str
    summary: str
    signals: Signals
    sourceRef: str
    contentHash: str
    externalItemId: str | None = None
    writer: str = ""
    effect: Mapping[str, Any] = field(default_factory=dict)
    occurredAt: str | None = None
    check: str = ""

    @property
    def happened_at(self) -> str:
        """When it happened: an imported session's own time, or when it was recorded."""
        return self.occurredAt or self.createdAt

    @property
    def number(self) -> int:
        return number_of(self.id, "evt")

    @property
    def is_import(self) -> bool:
        return self.kind == "imported_session"

    @property
    def is_own(self) -> bool:
        """Written by a command whose result is in the bundle already: never part of the backlog."""
        return bool(self.effect)

    @property
    def identity(self) -> tuple[str, str | None, str]:
        return self.kind, self.externalItemId, self.contentHash

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in (*_TOLD, "externalItemId", *_TOLD_IF_THERE)}
        data = {name: value for name, value in data.items() if value or name not in _TOLD_IF_THERE}
        return data | {"signals": self.signals.to_json()}

    @classmethod
    def from_json(cls, data: Any) -> Event:
        """Read one parsed line; raises `Invalid` with the reason where it is not an event."""
        if not isinstance(data, dict):
            raise Invalid("an event must be a JSON object")
        for key in _TOLD:
            if not isinstance(data.get(key), str) or not data[key]:
                raise Invalid(f"event {data.get('id', '?')}: {key} is missing")
        if data["kind"] not in {"tool_run", "imported_session"}:
            raise Invalid(f'event {data["id"]}: "{data["kind"]}" is not a kind (tool_run, imported_session)')
        if not number_of(data["id"], "evt"):
            raise Invalid(f'event id "{data["id"]}" is not of the form evt-000001')
        effect = data.get("effect")
        return cls(
            **{key: data[key] for key in _TOLD},
            signals=Signals.stored(data.get("signals")),
            externalItemId=data.get("externalItemId"),
            writer=str(data.get("writer") or ""),
            effect=effect if isinstance(effect, dict) else {},
            occurredAt=str(data["occurredAt"]) if moment(data.get("occurredAt")) else None,
            check=str(data.get("check") or ""),
        )


@dataclass(frozen=True, slots=True)
class EventDraft:
    """An event before it has its number."""

    kind: EventKind
    summary: str
    signals: Signals
    sourceRef: str
    sourceId: str = LOCAL_SOURCE
    externalItemId: str | None = None
    contentHash: str = ""
    effect: Mapping[str, Any] = field(default_factory=dict)
    occurredAt: str | None = None

    def event(self, number: int, at: datetime) -> Event:
        """The event this becomes as number `number`."""
        # The log is committed and pushed: credentials are cut out before the first byte is written.
        told = replace(self, summary=" ".join(self.summary.split())[:MAX_SIGNAL_CHARS])
        told = with_texts(told, lambda text: redact(text).text, skip=("kind", "contentHash", "occurredAt"))
        if not told.summary:
            raise Invalid("An event needs a summary.", field="summary")
        said = {name: getattr(told, name) for name in EventDraft.__slots__}
        event = Event(f"evt-{number:06d}", createdAt=stamp(at), writer=secrets.token_hex(4), **said)
        mark = "check" if event.contentHash else "contentHash"
        return replace(event, **{mark: content_hash(event)})  # type: ignore[arg-type]


def content_hash(event: Event) -> str:
    """What an event says and when, without its number: two branches never make the same one by chance."""
    data = event.to_json()
    for volatile in ("id", "contentHash", "effect", "check"):
        data.pop(volatile, None)
    return json_hash(data)


def is_changed(event: Event) -> bool:
    """Whether an event's words no longer fit the hash it was recorded with; one without such a hash never is."""
    if event.check:
        return event.check != content_hash(event)
    return bool(event.writer) and not event.is_import and event.contentHash != content_hash(event)


@dataclass(frozen=True, slots=True)
class Parsed:
    """The events of a log as they stand, and the lines that are none (1-based number, reason)."""

    events: tuple[Event, ...]
    bad: tuple[tuple[int, str], ...] = ()
    markers: int = 0


def parse(lines: Iterable[str]) -> Parsed:
    """Read lines into events; conflict markers are dropped, other unreadable lines are reported."""
    events: list[Event] = []
    bad: list[tuple[int, str]] = []
    markers = 0
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        if CONFLICT_LINE.match(line):
            markers += 1
            continue
        try:
            events.append(Event.from_json(from_json(line)))
        except Invalid as error:
            bad.append((number, str(error)))
        except ValueError:
            bad.append((number, "not valid JSON (a torn or edited line)"))
    return Parsed(tuple(events), tuple(bad), markers)


@dataclass(frozen=True, slots=True)
class Normal:
    """A log whose ids strictly increase. `renamed` maps (old id, contentHash) to the new id."""

    events: tuple[Event, ...]
    renamed: Mapping[tuple[str, str], str]
    dropped: int


def normalised(events: Sequence[Event]) -> Normal:
    """Make ids strictly increasing, in file order, and drop what a merge brought in twice.

    The result depends on the lines alone, so two clones that meet the same merge number it alike.
    """
    seen: set[tuple[str, str | None, str]] = set()
    out: list[Event] = []
    renamed: dict[tuple[str, str], str] = {}
    last = 0
    for event in events:
        if event.identity in seen:
            continue
        seen.add(event.identity)
        number = event.number
        if number <= last:
            number = last + 1
            renamed[event.id, event.contentHash] = f"evt-{number:06d}"
            event = replace(event, id=f"evt-{number:06d}")
        last = number
        out.append(event)
    return Normal(tuple(out), renamed, len(events) - len(out))


class EventLog:
    """`history/events.jsonl` over a journal. The caller holds the repository lock while appending."""

    def __init__(self, journals: Journals, file: Path) -> None:
        self._journals = journals
        self._file = file
        self._known: tuple[tuple[int, int, int], Parsed] | None = None
        self._ordered: tuple[Parsed, Normal] | None = None

    def read(self) -> Parsed:
        """Every readable event, in file order; parsed again only when the file is another."""
        try:
            found = self._file.stat()
        except OSError:
            return parse(self._journals.read(EVENTS).lines)
        key = (found.st_ino, found.st_size, found.st_mtime_ns)
        if self._known is None or self._known[0] != key:
            self._known = (key, parse(self._journals.read(EVENTS).lines))
        return self._known[1]

    def ordered(self, parsed: Parsed) -> Normal:
        """`normalised` of what `read` gave, worked out once per reading."""
        if self._ordered is None or self._ordered[0] is not parsed:
            self._ordered = (parsed, normalised(parsed.events))
        return self._ordered[1]

    def is_torn(self) -> bool:
        """Whether the last line was cut off in writing."""
        try:
            with self._file.open("rb") as handle:
                if not handle.seek(0, 2):
                    return False
                handle.seek(-1, 2)
                return handle.read(1) != b"\n"
        except OSError:
            return False

    def last_number(self) -> int:
        """The highest number in the log, from its tail where that is enough."""
        tail = parse(self._journals.read(EVENTS, self._tail_start()).lines).events
        return max((event.number for event in tail or self.read().events), default=0)

    def _tail_start(self) -> int:
        """Where a line begins, some way before the end."""
        try:
            with self._file.open("rb") as handle:
                end = handle.seek(0, 2)
                if end <= _TAIL_BYTES:
                    return 0
                start = handle.seek(end - _TAIL_BYTES)
                found = handle.read().find(b"\n")
                return start + found + 1 if found >= 0 else 0
        except OSError:
            return 0

    def append(self, events: Sequence[Event]) -> None:
        """Add events durably, all or none."""
        self._journals.append(EVENTS, [compact(event.to_json()) for event in events])
        self._known = None

    def replace(self, events: Sequence[Event]) -> None:
        """Make `events` the whole log, atomically."""
        self._journals.replace(EVENTS, [compact(event.to_json()) for event in events])
        self._known = None
