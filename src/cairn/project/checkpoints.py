"""Snapshots of the bundle, what changed between two, and the active state, which is computed from them and from events.

A checkpoint is written before anything else of its command and carries the event that will be written last,
so it doubles as the record from which an interrupted command is finished. Its number orders the store; its
`key` (a hash of what it holds) is what it *is*, and is part of the file name: two branches that both made
`chk-000007` keep both files through a merge. `parents` then tells which of them are heads.

`state.json` is written for others to read, and nothing in it is the only copy of anything: the bundle is the newest
checkpoint's, cursors come from the `consolidate` events, counts from the files. Deleting it and running any command
brings back the same bytes.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from cairn.canonical import json_hash, pretty
from cairn.errors import Invalid, NotFound
from cairn.project.bundle import SECTIONS, Bundle
from cairn.project.events import Event
from cairn.project.layout import CHECKPOINTS, GENERATOR_VERSION, SCHEMA_VERSION, number_of, read_json
from cairn.project.options import SOURCE_SCOPES
from cairn.seams import Locator, StorageBackend

_NAME = re.compile(r"(chk-\d{6,})(?:-([0-9a-f]{8}))?\.json")


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The bundle after a meaningful write, with the event that tells of it.

    `evidence` is what the repository alone said when it was last read: the base against which `update` tells a
    line someone learned or corrected from one that merely went stale. `files` are the pages with their hashes.
    """

    id: str
    createdAt: str
    bundle: Bundle
    bundleHash: str
    summary: str
    event: Event
    parents: tuple[str, ...] = ()
    provider: str = "none"
    files: tuple[Mapping[str, str], ...] = ()
    evidence: Bundle | None = None
    key: str = ""

    @property
    def number(self) -> int:
        return number_of(self.id, "chk")

    @property
    def file(self) -> Locator:
        return CHECKPOINTS.child(f"{self.id}-{self.key[:8]}.json")

    def to_json(self) -> dict[str, Any]:
        data = {name: getattr(self, name) for name in self.__slots__}
        files = [dict(item) for item in self.files]
        data |= {"parents": list(self.parents), "files": files, "event": self.event.to_json()}
        return data | {"eventId": self.event.id}

    @classmethod
    def from_json(cls, data: Any, at: Locator) -> Checkpoint:
        """Read a parsed file; raises `Invalid` naming it where it is not a checkpoint."""
        try:
            if not number_of(data["id"], "chk") or not isinstance(data["bundle"], dict):
                raise Invalid("no id or no bundle")
            return cls(
                **{name: str(data[name]) for name in ("id", "createdAt", "bundleHash", "summary", "key")},
                bundle=data["bundle"],
                event=Event.from_json(data["event"]),
                parents=tuple(str(key) for key in data.get("parents", ())),
                provider=str(data.get("provider", "none")),
                files=tuple(data.get("files", ())),
                evidence=data.get("evidence"),
            )
        except (KeyError, TypeError, Invalid) as error:
            raise Invalid(f"{at}: not a checkpoint ({error}).", path=str(at)) from None


def made(
    number: int,
    event: Event,
    bundle: Bundle,
    summary: str,
    *,
    parents: Sequence[str],
    provider: str,
    files: Sequence[Mapping[str, str]] = (),
    evidence: Bundle | None = None,
) -> Checkpoint:
    """A new checkpoint with its key."""
    draft = Checkpoint(
        id=f"chk-{number:06d}",
        createdAt=event.createdAt,
        bundle=bundle,
        bundleHash=json_hash(bundle),
        summary=summary,
        event=event,
        parents=tuple(parents),
        provider=provider,
        files=tuple(files),
        evidence=evidence,
    )
    return replace(draft, key=checkpoint_key(draft))


def checkpoint_key(checkpoint: Checkpoint) -> str:
    """What a checkpoint is, whatever number a merge gives it."""
    return json_hash(
        {
            "createdAt": checkpoint.createdAt,
            "bundleHash": checkpoint.bundleHash,
            "event": checkpoint.event.contentHash,
            "parents": list(checkpoint.parents),
            "summary": checkpoint.summary,
        }
    )


class CheckpointStore:
    """`history/checkpoints/` through the storage seam."""

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage

    def files(self) -> list[Locator]:
        """Checkpoint files, oldest first; other files in the folder are left alone."""
        found = [at for at in self._storage.list(CHECKPOINTS) if _NAME.fullmatch(at.name)]
        return sorted(found, key=lambda at: (number_in(at), at.name))

    def read(self, at: Locator) -> Checkpoint:
        data = read_json(self._storage, at)
        if data is None:
            raise NotFound(f"{at}: no such checkpoint.", path=str(at))
        return Checkpoint.from_json(data, at)

    def latest(self) -> Checkpoint | None:
        """The newest readable checkpoint."""
        return next(iter(self.newest(1)), None)

    def newest(self, count: int) -> list[Checkpoint]:
        """Up to `count` readable checkpoints, newest first."""
        return [*islice(self._read(reversed(self.files())), count)]

    def readable(self) -> list[Checkpoint]:
        """Every readable checkpoint, oldest first."""
        return [*self._read(self.files())]

    def _read(self, files: Iterable[Locator]) -> Iterator[Checkpoint]:
        """Damaged files are passed over (validate names them)."""
        for at in files:
            with suppress(Invalid):
                yield self.read(at)

    def find(self, ident: str) -> Checkpoint:
        """The checkpoint named by id or by the start of its key."""
        for at in self.files():
            match = _NAME.fullmatch(at.name)
            if match and (
                match.group(1) == ident or (len(ident) >= 6 and (match.group(2) or "").startswith(ident[:8]))
            ):
                return self.read(at)
        raise NotFound(
            f"There is no checkpoint {ident} here. `cairn project status` names the latest one.", id=ident
        )

    def write(self, checkpoint: Checkpoint) -> None:
        self._storage.write(checkpoint.file, pretty(checkpoint.to_json()))

    def remove(self, at: Locator) -> None:
        with suppress(NotFound):
            self._storage.remove(at)

    def collides(self) -> bool:
        """Whether two files carry one number: a merge brought in another branch's checkpoints."""
        numbers = [number_in(at) for at in self.files()]
        return len(numbers) != len(set(numbers))


def number_in(at: Locator) -> int:
    """The number in a checkpoint's file name."""
    match = _NAME.fullmatch(at.name)
    return number_of(match.group(1), "chk") if match else 0


def heads_of(checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
    """Those no other one builds on, oldest first."""
    known = {parent for checkpoint in checkpoints for parent in checkpoint.parents}
    heads = [checkpoint for checkpoint in checkpoints if checkpoint.key not in known]
    return sorted(heads, key=lambda checkpoint: (checkpoint.createdAt, checkpoint.key))


def changed_sections(before: Bundle, after: Bundle) -> list[str]:
    """Names of the sections whose content differs, in the order of the bundle."""
    return [name for name, key in SECTIONS.items() if before.get(key) != after.get(key)]


def section_diffs(before: Bundle, after: Bundle) -> dict[str, str]:
    """A unified diff per changed section, over the canonical JSON."""
    diffs = {}
    for name in changed_sections(before, after):
        old = pretty(before.get(SECTIONS[name])).splitlines()
        new = pretty(after.get(SECTIONS[name])).splitlines()
        diffs[name] = "\n".join(
            difflib.unified_diff(old, new, f"{name} before", f"{name} after", lineterm="", n=2)
        )
    return diffs


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
