"""The history of an open root's entries: what changed, moments to come back to, and coming back.

Changes are recorded beside the write path (`timetravel/observer.py`); each call here first makes sure that
everything is recorded, edits by hand included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid
from cairn.parts import Parts
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.timetravel.changes import TimeTravel

MAX_CHANGES = 10_000


def log(parts: Parts, space: Space, entry_id: str | None, limit: int) -> list[dict[str, Any]]:
    """Changes of entries, newest first; of one entry by its id, or `path#id`.

    Raises:
        Invalid: a limit that is none.
    """
    if entry_id is not None and not isinstance(entry_id, str):
        raise Invalid(f"id must be a text, not {type(entry_id).__name__}.", field="id")
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CHANGES:
        raise Invalid(f"limit is {limit}: use 1 to {MAX_CHANGES}.", field="limit")
    found = _recorded(parts, space).log(entry_id, limit=limit)
    return [{**change.to_json(), "action": change.action} for change in found]


def checkpoint(parts: Parts, space: Space, label: str) -> dict[str, Any]:
    """Mark this moment."""
    return _recorded(parts, space).checkpoint(label).to_json()


def checkpoints(parts: Parts, space: Space) -> list[dict[str, Any]]:
    """Every marked moment, oldest first."""
    return [made.to_json() for made in _recorded(parts, space).checkpoints()]


def diff(parts: Parts, space: Space, target: str) -> list[dict[str, Any]]:
    """What is different now from a checkpoint or a time."""
    return _recorded(parts, space).diff(_checked(target))


def restore(parts: Parts, space: Space, target: str, *, dry_run: bool) -> list[dict[str, Any]]:
    """Bring entries back to a checkpoint, a time, or before one change; restoring can itself be undone.

    `action` is "write", "remove", or "purged" for one whose text was forgotten since: it stays as it is.
    """
    travel, target = _recorded(parts, space), _checked(target)
    plan = travel.restore_plan(target) if dry_run else travel.restore(target)
    if not dry_run:
        parts.observer.settle()
    return [{"path": item.path, "entry": item.entry, "action": item.action} for item in plan]


def _checked(target: str) -> str:
    if not isinstance(target, str):
        raise Invalid(f"target must be a text, not {type(target).__name__}.", field="target")
    return target


def _recorded(parts: Parts, space: Space) -> TimeTravel:
    parts.observer.look_around()
    return parts.observer.of(space)
