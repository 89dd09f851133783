"""Tells listeners what changed as it happens: Python callbacks and HTTP event streams.

An event has a number, a kind and a scope. "changed" says that a file of the truth is indexed as it is now, whoever
wrote it; "memory_inserted" and "memory_upserted" carry the row of a governed memory. The last few are kept, so that a
listener who was away for a moment misses nothing; one who was away longer is told so ("missed") and looks itself.
Nothing here is kept on disk, and nobody waits for a listener.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cairn.index.corpus import knowledge_scope
from cairn.notes.kinds import place_of, space_of
from cairn.retrieval.library import document_at
from cairn.seams import Locator
from cairn.types import Change, Scope, Space

CHANGED, INSERTED, UPSERTED, MISSED = "changed", "memory_inserted", "memory_upserted", "missed"
KEPT = 1000
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that happened. `scope` is None for what belongs to a space as a whole, such as a session's log."""

    number: int
    kind: str
    space: Space
    scope: Scope | None = None
    data: Mapping[str, Any] = field(default_factory=dict)

    def concerns(self, space: Space, owner: str | None = None) -> bool:
        """Whether it belongs to a space, and there to `owner` if one is named. That some were missed concerns all."""
        if self.kind == MISSED:
            return True
        return self.space == space and (
            owner is None or (self.scope is not None and self.scope.owner == owner)
        )

    def as_data(self) -> dict[str, Any]:
        """The event as the outside knows it."""
        owner = self.scope.owner if self.scope is not None else ""
        return {
            "id": self.number,
            "event": self.kind,
            "app_id": self.space.app,
            "project_id": self.space.project,
            "scope": self.scope.track if self.scope is not None else None,
            "owner": owner or None,
            **self.data,
        }


Listener = Callable[[Notice], None]


class Events:
    """Tells listeners what happened, in order. A listener that fails is logged and told of the next one all the same.

    Args:
        last: The number before the first event; by a clock, so that a number of an earlier life is never given again.
    """

    def __init__(self, last: int = 0) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._kept: deque[Notice] = deque(maxlen=KEPT)
        self._last = last

    @property
    def last(self) -> int:
        """The number of the last event."""
        return self._last

    def listen(self, listener: Listener) -> Callable[[], None]:
        """Call `listener` with every event from now on, on the thread it happens in; returns what ends that."""
        with self._lock:
            self._listeners = [*self._listeners, listener]

        def stop() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not listener]

        return stop

    def after(self, number: int) -> list[Notice]:
        """The events after `number`; the first says so where some are gone, or where that number was never given."""
        with self._lock:
            kept, last = list(self._kept), self._last
        first = kept[0].number if kept else last + 1
        missed = number > last or number + 1 < first
        told = [Notice(last, MISSED, Space())] if missed else []
        return told + [one for one in kept if one.number > number and not missed]

    def publish(
        self, kind: str, space: Space, scope: Scope | None = None, data: Mapping[str, Any] | None = None
    ) -> None:
        """Tell everybody. Never raises."""
        with self._lock:
            self._last += 1
            event = Notice(self._last, kind, space, scope, dict(data or {}))
            self._kept.append(event)
            listeners = self._listeners
        for listener in listeners:
            try:
                listener(event)
            except Exception:
                _log.exception("a listener to events failed")

    def changed(self, changes: Iterable[Change]) -> None:
        """Tell of files that are indexed as they are now."""
        for change in changes:
            at = Locator(change.path)
            space, place = space_of(at), place_of(at)
            if space is not None:
                scope = place.scope if place is not None else None
                scope = knowledge_scope(space) if document_at(at) is not None else scope
                data = {
                    "path": change.path,
                    "kind": change.kind,
                    "change": change.change_type,
                    "lsn": change.lsn,
                }
                self.publish(CHANGED, space, scope, data)

    def memory(self, kind: str, scope: Scope, row: Mapping[str, Any]) -> None:
        """Tell of a governed memory."""
        self.publish(kind, scope.space, scope, {"memory": dict(row)})
