"""Bringing in an `.agent-memory/` tree: its bundle, events, settings and sources, as far as they are sound."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from cairn.errors import Invalid, Misconfigured, NotFound
from cairn.project import options as settings
from cairn.project.bundle import Bundle, checked
from cairn.project.events import Draft, Signals
from cairn.project.layout import SCHEMA_VERSION, read_json
from cairn.seams import Locator, StorageBackend

OLD_HOME = Locator(".agent-memory")


@dataclass(frozen=True, slots=True)
class Legacy:
    """What an older tree holds that can be carried over; `notes` says what could not."""

    bundle: Bundle | None
    drafts: tuple[Draft, ...]
    config: dict[str, Any] | None
    notes: tuple[str, ...]


def read(storage: StorageBackend) -> Legacy | None:
    """The tree's content, or None where there is none. Damage is noted and left behind, never guessed at."""
    if not storage.exists(OLD_HOME):
        return None
    notes: list[str] = []
    bundle = None
    try:
        state = read_json(storage, OLD_HOME.child("state.json"))
        if isinstance(state, dict) and state.get("schemaVersion") == SCHEMA_VERSION:
            bundle = checked(state.get("bundle"))
        elif state is not None:
            notes.append(f"{OLD_HOME}/state.json: another schema, left behind")
    except Invalid as error:
        notes.append(f"{OLD_HOME}/state.json: {error}")
    drafts, bad = _events(storage)
    if bad:
        notes.append(f"{OLD_HOME}/history/events.jsonl: {bad} lines left behind")
    return Legacy(bundle, tuple(drafts), _config(storage, notes), tuple(notes))


def _events(storage: StorageBackend) -> tuple[list[Draft], int]:
    try:
        lines = storage.read(OLD_HOME.child("history/events.jsonl")).splitlines()
    except (NotFound, Invalid):
        return [], 0
    drafts, bad = [], 0
    for line in filter(str.strip, lines):
        try:
            row = json.loads(line)
            signals = row.get("signals") or {}
            drafts.append(
                Draft(
                    kind=row["kind"] if row.get("kind") in {"tool_run", "imported_session"} else "tool_run",
                    summary=str(row["summary"]),
                    signals=Signals.of({k: v for k, v in signals.items() if k in Signals.__slots__}),
                    sourceRef=str(row["sourceRef"]),
                    sourceId=str(row["sourceId"]),
                    externalItemId=row.get("externalItemId"),
                    contentHash=str(row["contentHash"]),
                    effect={"command": "import-agent-memory"} if row.get("kind") == "tool_run" else {},
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
                settings.merge(kept, {section: data[section]})
            except Misconfigured as error:
                notes.append(f"{OLD_HOME}/config.json: {error}")
    return kept
