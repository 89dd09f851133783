"""Time: what changed, moments to come back to, and coming back.

Changes are recorded beside the write path (`timetravel/observer.py`); each call here first makes sure that
everything is recorded, edits by hand included.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid
from cairn.operations.table import Room, operation
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.timetravel.changes import TimeTravel

MAX_CHANGES = 10_000


class Time(Room):
    """The history of a root's entries."""

    @operation(writes=False)
    def log(
        self,
        entry_id: str | None = None,
        *,
        limit: int = 100,
        app_id: str = "default",
        project_id: str = "default",
    ) -> list[dict[str, Any]]:
        """Changes of entries, newest first: of one entry by the id `search` gives or `path#id`, or of all."""
        if entry_id is not None and not isinstance(entry_id, str):
            raise Invalid(f"id must be a text, not {type(entry_id).__name__}.", field="id")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CHANGES:
            raise Invalid(f"limit is {limit}: use 1 to {MAX_CHANGES}.", field="limit")
        found = self._recorded(Space(app_id, project_id)).log(entry_id, limit=limit)
        return [{**change.to_json(), "action": change.action} for change in found]

    @operation(writes=True)
    def checkpoint(
        self, label: str = "", *, app_id: str = "default", project_id: str = "default"
    ) -> dict[str, Any]:
        """Mark this moment, to compare with or come back to."""
        return self._recorded(Space(app_id, project_id)).checkpoint(label).to_json()

    @operation(writes=False)
    def checkpoints(self, *, app_id: str = "default", project_id: str = "default") -> list[dict[str, Any]]:
        """Every marked moment."""
        return [made.to_json() for made in self._recorded(Space(app_id, project_id)).checkpoints()]

    @operation(writes=False)
    def diff(
        self, target: str, *, app_id: str = "default", project_id: str = "default"
    ) -> list[dict[str, Any]]:
        """What is different now from a checkpoint or a time."""
        return self._recorded(Space(app_id, project_id)).diff(_checked(target))

    @operation(writes=True)
    def restore(
        self, target: str, *, dry_run: bool = False, app_id: str = "default", project_id: str = "default"
    ) -> list[dict[str, Any]]:
        """Bring entries back to a checkpoint, a time, or before one change; this too can be undone."""
        travel, target = self._recorded(Space(app_id, project_id)), _checked(target)
        plan = travel.restore_plan(target) if dry_run else travel.restore(target)
        if not dry_run:
            self.parts.observer.settle()
        return [{"path": item.path, "entry": item.entry, "action": item.action} for item in plan]

    def _recorded(self, space: Space) -> TimeTravel:
        self.parts.observer.look_around()
        return self.parts.observer.of(space)


def _checked(target: str) -> str:
    if not isinstance(target, str):
        raise Invalid(f"target must be a text, not {type(target).__name__}.", field="target")
    return target
