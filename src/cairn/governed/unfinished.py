"""Forgettings that have begun: on record until nothing is left to do.

What is named goes first (a session's log, an entry), so after a kill nobody could say again what to forget, while copies of
it were still there. So before the first word goes, a copy of what leads to the rest is put away; it goes last. The same
call made again takes it up, and so does the next start.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cairn.canonical import object_in
from cairn.errors import CairnError, NotFound
from cairn.seams import Locator
from cairn.seams.storage import StorageBackend, children
from cairn.types import Scope, Space

FOLDER = Locator(".tmp/forgetting")
_KEPT = "what to look for is kept there, so that the same call can be made again; it goes when nothing else is left"


class ForgetAgain(str):
    """Why something stays that the same call, made again, would take: its record stays, too."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Begun:
    """One forgetting: the call that asked for it, and what it found."""

    storage: StorageBackend
    call: Mapping[str, Any]

    def found(self) -> dict[str, Any]:
        """What an earlier try of the same call had found; empty where there was none."""
        try:
            value = object_in(self.storage.read(self._place()))
        except CairnError:
            return {}
        found = value.get("found") if value is not None else None
        return found if isinstance(found, dict) else {}

    def keep(self, found: Mapping[str, Any]) -> None:
        """Put away what leads to the rest, before anything goes."""
        self.storage.write(self._place(), json.dumps({"call": self.call, "found": found}))

    def stays(self, left: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
        """The record, named like everything else that is left, where something of that asks to forget again."""
        is_needed = any(isinstance(why, ForgetAgain) for _, why in left)
        return [(self._place().key, _KEPT)] if is_needed else []

    def end(self, left: Iterable[tuple[str, str]]) -> None:
        """Take the record away, unless it is needed again."""
        if not self.stays(left):
            with suppress(NotFound):
                self.storage.remove(self._place())

    def _place(self) -> Locator:
        told = json.dumps(self.call, sort_keys=True)
        return FOLDER.child(f"{hashlib.sha256(told.encode()).hexdigest()[:32]}.json")


def calls(storage: StorageBackend) -> Iterator[dict[str, Any]]:
    """The calls that were begun and not finished."""
    for at in children(storage, FOLDER):
        with suppress(CairnError):
            value = object_in(storage.read(at))
            if value is not None and isinstance(value.get("call"), dict):
                yield value["call"]


def as_names(entries: Iterable[tuple[Scope, str]]) -> list[list[str]]:
    """Entries as JSON."""
    return [[scope.track, scope.owner, entry] for scope, entry in entries]


def from_names(space: Space, names: Iterable[list[Any]]) -> list[tuple[Scope, str]]:
    """Entries of `as_names`."""
    return [(Scope(space, track, owner), entry) for track, owner, entry in names]
