"""`state.json`: the active state, computed from checkpoints and events and written for others to read.

Nothing here is the only copy of anything: the bundle is the newest checkpoint's, cursors come from the
`consolidate` events, counts from the files. Deleting `state.json` and running any command brings back the
same bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cairn.project.checkpoints import Checkpoint
from cairn.project.events import Event
from cairn.project.layout import GENERATOR_VERSION, SCHEMA_VERSION, number_of
from cairn.project.options import SOURCE_SCOPES

MARK_CHARS = 16


@dataclass(frozen=True, slots=True)
class Story:
    """What a repository's record says at one moment: the newest checkpoint, the active events, the sources."""

    checkpoint: Checkpoint
    events: tuple[Event, ...]
    source_count: int

    def cursor(self, scope: str) -> dict[str, Any]:
        """How far `scope` was consolidated; the command's own event is passed as well."""
        for event in reversed(self.events):
            if event.effect.get("command") == "consolidate" and event.effect.get("source") == scope:
                return {"lastRecalledAt": event.createdAt, "lastRecalledEventId": event.id}
        carried = self.checkpoint.event.effect.get("cursors")
        known = carried.get(scope) if isinstance(carried, dict) else None
        return known if isinstance(known, dict) else {"lastRecalledAt": None, "lastRecalledEventId": None}

    def consumed(self, scope: str) -> set[str]:
        """Marks of the events that consolidations of `scope` have read."""
        return {
            str(mark)
            for event in self.events
            if event.effect.get("command") == "consolidate" and event.effect.get("source") == scope
            for mark in event.effect.get("consumed", ())
        }

    def read_in_part(self, scope: str) -> dict[str, set[str]]:
        """Marks of events that stay in the backlog, with the sections they were folded into already."""
        found: dict[str, set[str]] = {}
        for event in self.events:
            effect = event.effect
            if effect.get("command") == "consolidate" and effect.get("source") == scope:
                for mark in effect.get("partly", ()):
                    found.setdefault(str(mark), set()).update(effect.get("sections", ()))
        return found

    def backlog(self, scope: str) -> list[Event]:
        """Events of `scope` not consolidated yet, oldest first; what Cairn's own commands wrote is left out.

        An event counts as read when a consolidation of this scope says so. The position of the cursor alone
        would not do: a merge may place another branch's event before it.
        """
        done = self.consumed(scope)
        return [
            event
            for event in self.events
            if not event.is_own and in_scope(event, scope) and event.contentHash[:MARK_CHARS] not in done
        ]

    def to_json(self) -> dict[str, Any]:
        """The content of `state.json`."""
        cursors = {scope: self.cursor(scope) for scope in SOURCE_SCOPES}
        return {
            "schemaVersion": SCHEMA_VERSION,
            "generatorVersion": GENERATOR_VERSION,
            "provider": self.checkpoint.provider,
            "generatedAt": self.checkpoint.createdAt,
            "bundleHash": self.checkpoint.bundleHash,
            "bundle": self.checkpoint.bundle,
            "maintenance": {
                "lastRecalledAt": cursors["all"]["lastRecalledAt"],
                "lastRecalledEventId": cursors["all"]["lastRecalledEventId"],
                "latestCheckpointId": self.checkpoint.id,
                "historyEventCount": len(self.events),
                "importSourceCount": self.source_count,
                "recallCursors": cursors,
            },
        }

    def next_number(self) -> int:
        """The next event number: past everything active, recalled or named by the newest checkpoint."""
        known = [event.number for event in self.events]
        known += [number_of(self.cursor(scope)["lastRecalledEventId"], "evt") for scope in SOURCE_SCOPES]
        return max([0, self.checkpoint.event.number, *known]) + 1


def in_scope(event: Event, scope: str) -> bool:
    """Whether an event belongs to a source scope."""
    return scope == "all" or event.is_import == (scope == "imports")


def carried_cursors(story: Story | None) -> dict[str, Any]:
    """The cursors an event takes along, so that they survive the archiving of the events they came from."""
    if story is None:
        return {}
    known = {scope: story.cursor(scope) for scope in SOURCE_SCOPES}
    return {scope: value for scope, value in known.items() if value["lastRecalledEventId"]}


def mark_of(event: Event) -> str:
    """The short form of an event's content hash."""
    return event.contentHash[:MARK_CHARS]


def marks(events: Sequence[Event]) -> list[str]:
    """Short forms of content hashes, for the `consumed` list of a consolidation."""
    return [mark_of(event) for event in events]
