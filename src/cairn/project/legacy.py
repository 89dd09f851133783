"""Bringing in an `.agent-memory/` tree: bundle, events with their times, checkpoints, cursors, settings and sources.

What is sound is carried over, what is not is named in `notes` and left where it lies. The tree itself is not
changed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from cairn.canonical import from_json, moment
from cairn.errors import Invalid, Misconfigured, NotFound
from cairn.project import options as settings
from cairn.project.bundle import Bundle, checked
from cairn.project.events import EventDraft, Signals
from cairn.project.layout import SCHEMA_VERSION, number_of, read_json
from cairn.project.sources import Source, sources_at
from cairn.seams import Locator, StorageBackend

OLD_HOME = Locator(".agent-memory")
OLD_SOURCES = OLD_HOME.child("sources.json")
_MADE_BUNDLE = {f"agent-memory:{command}" for command in ("init", "update", "recall")}


@dataclass(frozen=True, slots=True)
class Legacy:
    """What an older tree holds that can be carried over; `notes` says what could not."""

    bundle: Bundle | None
    drafts: tuple[EventDraft, ...]
    config: dict[str, Any] | None
    notes: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    checkpoints: tuple[OldCheckpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class OldCheckpoint:
    """A snapshot of the bundle that the older tree kept."""

    created: str
    bundle: Bundle
    summary: str


def read(storage: StorageBackend) -> Legacy | None:
    """The tree's content, or None where there is none. Damage is noted and left behind, never guessed at."""
    if not storage.exists(OLD_HOME):
        return None
    notes: list[str] = []
    bundle = None
    read_upto = 0
    try:
        state = read_json(storage, OLD_HOME.child("state.json"))
        if isinstance(state, dict) and state.get("schemaVersion") == SCHEMA_VERSION:
            bundle = checked(state.get("bundle"))
            maintenance = state.get("maintenance")
            if isinstance(maintenance, dict):
                read_upto = number_of(maintenance.get("lastRecalledEventId"), "evt")
        elif state is not None:
            notes.append(f"{OLD_HOME}/state.json: another schema, left behind")
    except Invalid as error:
        notes.append(f"{OLD_HOME}/state.json: {error}")
    drafts, bad = _events(storage, read_upto, told=bundle is not None)
    if bad:
        notes.append(f"{OLD_HOME}/history/events.jsonl: {bad} lines left behind")
    config, sources = _config(storage, notes), _sources(storage, notes)
    checkpoints = _checkpoints(storage, notes)
    return Legacy(bundle, tuple(drafts), config, tuple(notes), sources, checkpoints)


def _sources(storage: StorageBackend, notes: list[str]) -> tuple[Source, ...]:
    """The registered folders; one that is not on this machine is kept all the same."""
    try:
        return tuple(sources_at(storage, OLD_SOURCES))
    except (Invalid, TypeError) as error:
        notes.append(f"{OLD_SOURCES}: {error}")
        return ()


def _checkpoints(storage: StorageBackend, notes: list[str]) -> tuple[OldCheckpoint, ...]:
    found = []
    for at in storage.list(OLD_HOME.child("history/checkpoints")):
        if not at.name.endswith(".json"):
            continue
        try:
            data = read_json(storage, at)
            bundle = checked(data["bundle"])
            if moment(data["createdAt"]) is None:
                raise Invalid(f"{at}: createdAt is not a time")
            found.append(OldCheckpoint(str(data["createdAt"]), bundle, str(data.get("summary") or at.name)))
        except (Invalid, KeyError, TypeError) as error:
            notes.append(f"{at}: {error}; left behind")
    return tuple(sorted(found, key=lambda one: one.created))


def _events(storage: StorageBackend, read_upto: int, *, told: bool) -> tuple[list[EventDraft], int]:
    """The events, and how many lines are none. What was not recalled stays to be folded; so does what a command wrote that
    made the bundle, unless that bundle is `told` along with it.
    """
    try:
        lines = storage.read(OLD_HOME.child("history/events.jsonl")).splitlines()
    except (NotFound, Invalid):
        return [], 0
    drafts, bad = [], 0
    for line in filter(str.strip, lines):
        try:
            row = from_json(line)
            signals = row.get("signals") or {}
            is_made = told and row.get("sourceRef") in _MADE_BUNDLE
            folded = is_made or number_of(row.get("id"), "evt") <= read_upto
            drafts.append(
                EventDraft(
                    kind=row["kind"] if row.get("kind") in {"tool_run", "imported_session"} else "tool_run",
                    summary=str(row["summary"]),
                    signals=Signals.of({k: v for k, v in signals.items() if k in Signals.__slots__}),
                    sourceRef=str(row["sourceRef"]),
                    sourceId=str(row["sourceId"]),
                    externalItemId=row.get("externalItemId"),
                    contentHash=str(row["contentHash"]),
                    effect={"command": "import-agent-memory"} if folded else {},
                    occurredAt=str(row["createdAt"]) if moment(row.get("createdAt")) else None,
                )
            )
        except (ValueError, KeyError, TypeError, AttributeError, Invalid):
            bad += 1
    return drafts, bad


def _config(storage: StorageBackend, notes: list[str]) -> dict[str, Any] | None:
    try:
        data = read_json(storage, OLD_HOME.child("config.json"))
    except Invalid as error:
        notes.append(str(error))
        return None
    if not isinstance(data, dict):
        return None
    kept = settings.defaults()
    for section in ("recall", "query", "automation", "retention"):
        if isinstance(data.get(section), dict):
            try:
                kept[section] = settings.merged({section: data[section]})[section]
            except Misconfigured as error:
                notes.append(f"{OLD_HOME}/config.json: {error}")
    troubles: list[str] = []
    settings.settled(kept, troubles)
    notes += [f"{OLD_HOME}/config.json: {trouble}" for trouble in troubles]
    return kept
