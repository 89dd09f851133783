"""Which written files the index is told of: notes, session logs and documents, by the name of their kind."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from cairn.index.corpus import KNOWLEDGE, SKILL_FILE
from cairn.notes.kinds import place_of, scope_locator
from cairn.notes.notebook import ChangeType
from cairn.retrieval.library import document_at, skill_file_at
from cairn.seams import Locator, Noticed
from cairn.talk.sessions import SESSIONS, place_of_session, sessions_of
from cairn.types import Scope


def noticed(changes: Sequence[tuple[Locator, ChangeType]]) -> list[Noticed]:
    """The changes of `changes` that concern the index, as the queue takes them."""
    return [
        Noticed(locator.key, kind, change)
        for locator, change in changes
        if (kind := kind_of(locator)) is not None
    ]


@functools.lru_cache(maxsize=1024)
def places_of(scope: Scope) -> tuple[str, ...]:
    """Where the files lie that a scope's rows are made of: the owner's folder, and the session logs of the space.

    Documents are made of no talk.
    """
    if scope.track == "knowledge":
        return (f"{scope_locator(scope).key}/",)
    return f"{scope_locator(scope).key}/", f"{sessions_of(scope.space).key}/"


def kind_of(locator: Locator) -> str | None:
    """The kind of truth at `locator` ("session" for a session's log); None for anything else."""
    parts = locator.parts
    if len(parts) > 3 and parts[2] == SESSIONS:
        return "session" if place_of_session(locator) is not None else None
    if document_at(locator) is not None:
        return KNOWLEDGE
    if skill_file_at(locator) is not None:
        return SKILL_FILE
    place = place_of(locator)
    return place.kind.name if place is not None else None
