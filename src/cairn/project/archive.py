"""Retention: copies old, consolidated history into an archive, then drops it; archives expire much later.

A batch is `archive/prune-<time>/` with the events, the checkpoints and, last, a manifest. The manifest is the
commit: a batch without one was interrupted while copying and is swept, since all it holds is still active; a
batch with one whose content is still active was interrupted while dropping and is finished by the next
command. So a crash at any point loses nothing and doubles nothing.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from cairn.canonical import compact, moment, pretty, stamp
from cairn.errors import Invalid, NotFound
from cairn.project.checkpoints import MARK_CHARS, Checkpoint, CheckpointStore, Story, number_in
from cairn.project.events import Event, EventLog, normalised, parse
from cairn.project.layout import ARCHIVE, CHECKPOINTS, number_of, read_json
from cairn.project.options import ProjectOptions
from cairn.seams import Locator, StorageBackend

_BATCH = re.compile(r"prune-\d{8}T\d{9}Z")


@dataclass(frozen=True, slots=True)
class PrunePlan:
    """What would leave the active store."""

    events: tuple[Event, ...] = ()
    checkpoints: tuple[Locator, ...] = ()
    expired: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.events or self.checkpoints or self.expired)

    def to_json(self) -> dict[str, Any]:
        return {
            "events": [event.id for event in self.events],
            "checkpoints": [at.name[:10] for at in self.checkpoints],
            "expiredBatches": list(self.expired),
            "warnings": list(self.warnings),
        }


class Archive:
    """`.cairn/archive/` and the rules of what goes there."""

    def __init__(self, storage: StorageBackend, log: EventLog, checkpoints: CheckpointStore) -> None:
        self._storage = storage
        self._log = log
        self._checkpoints = checkpoints

    def plan(self, story: Story, options: ProjectOptions, now: datetime) -> PrunePlan:
        """Old events at or below the `all` cursor, and old checkpoints beyond the recent tail.

        Kept whatever their age: events not consolidated under `all`, a consolidation whose events are still
        active, the newest checkpoint and the event it tells of.
        """
        if not options.get("retention.enabled"):
            return PrunePlan()
        cursor = number_of(story.cursor("all")["lastRecalledEventId"], "evt")
        waiting = {event.id for event in story.backlog("all")}
        cut = _before(now, options.number("retention.history.maxAgeDays"))
        old = [
            event
            for event in story.events
            if event.number <= cursor
            and event.id not in waiting
            and _older(event.createdAt, cut)
            and event.contentHash != story.checkpoint.event.contentHash
        ]
        leaving = {event.id for event in old}
        staying = {e.contentHash[:MARK_CHARS] for e in story.events if e.id not in leaving}
        events = tuple(event for event in old if not staying & set(event.effect.get("consumed", ())))
        expired, warnings = self._expired(options, now)
        return PrunePlan(events, tuple(self._old_checkpoints(options, now)), tuple(expired), tuple(warnings))

    def _old_checkpoints(self, options: ProjectOptions, now: datetime) -> list[Locator]:
        files = self._checkpoints.files()
        keep = max(1, int(options.number("retention.checkpoints.keepRecent")))
        cut = _before(now, options.number("retention.checkpoints.maxAgeDays"))
        out = []
        for at in files[:-keep]:
            try:
                if not _older(self._checkpoints.read(at).createdAt, cut):
                    # Numbers follow time: what comes after is younger still.
                    break
                out.append(at)
            except Invalid:
                continue
        return out

    def batches(self) -> list[str]:
        """Names of the batches, oldest first."""
        return sorted(at.name for at in self._storage.list(ARCHIVE) if _BATCH.fullmatch(at.name))

    def manifest(self, name: str) -> dict[str, Any] | None:
        """A batch's manifest; None while there is none. Raises `Invalid` where it cannot be read."""
        data = read_json(self._storage, ARCHIVE.child(name, "manifest.json"))
        if data is None:
            return None
        if not isinstance(data, dict) or not isinstance(data.get("archivedEventIds"), list):
            raise Invalid(f"{ARCHIVE.child(name, 'manifest.json')}: not a manifest.", path=name)
        return data

    def _expired(self, options: ProjectOptions, now: datetime) -> tuple[list[str], list[str]]:
        cut = _before(now, options.number("retention.archive.expireAfterDays"))
        expired, warnings = [], []
        for name in self.batches():
            try:
                manifest = self.manifest(name)
            except Invalid as error:
                warnings.append(f"{error} It is left alone.")
                continue
            if manifest is not None and _older(manifest.get("createdAt"), cut):
                expired.append(name)
        return expired, warnings

    def copy_out(self, plan: PrunePlan, options: ProjectOptions, now: datetime) -> str | None:
        """Write a batch with everything that will leave, its manifest last; return its name."""
        if not (plan.events or plan.checkpoints):
            return None
        while self._storage.exists(
            ARCHIVE.child(name := f"prune-{now:%Y%m%dT%H%M%S}{now.microsecond // 1000:03d}Z")
        ):
            now += timedelta(milliseconds=1)
        batch = ARCHIVE.child(name)
        lines = "".join(compact(event.to_json()) + "\n" for event in plan.events)
        self._storage.write(batch.child("events.jsonl"), lines)
        for at in plan.checkpoints:
            self._storage.write(batch.child("checkpoints", at.name), self._storage.read(at))
        manifest = {
            "createdAt": stamp(now),
            "archivedEventIds": [event.id for event in plan.events],
            "archivedCheckpointIds": [f"chk-{number_in(at):06d}" for at in plan.checkpoints],
            "historyMaxAgeDays": options.get("retention.history.maxAgeDays"),
            "checkpointMaxAgeDays": options.get("retention.checkpoints.maxAgeDays"),
            "keepRecent": options.get("retention.checkpoints.keepRecent"),
            "expireAfterDays": options.get("retention.archive.expireAfterDays"),
            "restoredAt": None,
        }
        self._storage.write(batch.child("manifest.json"), pretty(manifest))
        return name

    def drop(self, name: str) -> int:
        """Take what batch `name` holds out of the active store; doing it twice changes nothing."""
        gone = {event.identity for event in self.events_of(name)}
        active = self._log.read().events
        kept = [event for event in active if event.identity not in gone]
        if len(kept) != len(active):
            self._log.replace(kept)
        for at in self._storage.list(ARCHIVE.child(name, "checkpoints")):
            self._checkpoints.remove(CHECKPOINTS.child(at.name))
        return len(active) - len(kept)

    def events_of(self, name: str) -> tuple[Event, ...]:
        """The events in a batch."""
        try:
            text = self._storage.read(ARCHIVE.child(name, "events.jsonl"))
        except NotFound:
            return ()
        return parse(text.splitlines()).events

    def expire(self, names: Sequence[str]) -> None:
        """Remove batches for good, the manifest last so that a half-removed one is still known as one."""
        for name in names:
            batch = ARCHIVE.child(name)
            for at in [
                *self._storage.list(batch.child("checkpoints")),
                batch.child("events.jsonl"),
                batch.child("manifest.json"),
            ]:
                with suppress(NotFound):
                    self._storage.remove(at)

    def finish(self) -> list[str]:
        """Complete what an interrupted prune left: sweep batches without manifest, finish drops."""
        done = []
        # Only the newest can be unfinished: every command finishes before it begins.
        for name in self.batches()[-2:]:
            try:
                manifest = self.manifest(name)
            except Invalid:
                continue
            batch = ARCHIVE.child(name)
            if manifest is None:
                leftovers = [*self._storage.list(batch.child("checkpoints")), *self._storage.list(batch)]
                if any(not self._storage.info(at).is_dir for at in leftovers):
                    self.expire([name])
                    done.append(f"swept the unfinished batch {name}")
            elif not manifest.get("restoredAt") and self._is_half_dropped(name):
                self.drop(name)
                done.append(f"finished the batch {name}")
        return done

    def _is_half_dropped(self, name: str) -> bool:
        gone = {event.identity for event in self.events_of(name)}
        if gone and any(event.identity in gone for event in self._log.read().events):
            return True
        held = self._storage.list(ARCHIVE.child(name, "checkpoints"))
        return any(self._storage.exists(CHECKPOINTS.child(at.name)) for at in held)

    def restore(self, name: str, now: datetime) -> tuple[int, int]:
        """Put a batch's events and checkpoints back into the active store; the batch stays, marked as restored."""
        if name not in self.batches():
            known = ", ".join(self.batches()[-5:]) or "none"
            raise NotFound(f"There is no archive batch {name}. Known: {known}.", id=name)
        manifest = self.manifest(name)
        if manifest is None:
            raise Invalid(f"{name} has no manifest: it was never completed.", id=name)
        self._storage.write(
            ARCHIVE.child(name, "manifest.json"), pretty({**manifest, "restoredAt": stamp(now)})
        )
        active = self._log.read().events
        known_ids = {event.identity for event in active}
        back = [event for event in self.events_of(name) if event.identity not in known_ids]
        merged = sorted([*back, *active], key=lambda event: event.number)
        if back:
            self._log.replace(normalised(merged).events)
        count = 0
        for at in self._storage.list(ARCHIVE.child(name, "checkpoints")):
            place = CHECKPOINTS.child(at.name)
            if not self._storage.exists(place):
                Checkpoint.from_json(read_json(self._storage, at), at)
                self._storage.write(place, self._storage.read(at))
                count += 1
        return len(back), count


def _before(now: datetime, days: float) -> datetime:
    """`days` before now; a window longer than the calendar means the beginning of time."""
    try:
        return now - timedelta(days=days)
    except OverflowError:
        return datetime.min.replace(tzinfo=UTC)


def _older(text: object, cut: datetime) -> bool:
    at = moment(text)
    return at is not None and at < cut
