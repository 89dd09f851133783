"""Operations on history: what changed, checkpoints, restoring.

Changes are recorded beside the write path (`timetravel/changes.py`); each call here first makes sure that
everything is recorded, edits by hand included.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Unpack

from cairn.errors import Invalid
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import DryRun, InSpace, space_named
from cairn.operations.table import Room, operation, says
from cairn.timetravel.changes import difference, words_of
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.timetravel.changes import TimeTravel
    from cairn.timetravel.runs import Undone

answers = Answers("time")

MAX_CHANGES = 10_000


def _plan(plan: list[dict[str, Any]], _room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"dry_run": asked["dry_run"], "entries": plan}


def _undone(done: Undone, _room: Room, asked: Mapping[str, Any]) -> dict[str, Any]:
    actions = Counter(one.action for one in done.entries)
    return {
        "run_id": done.run_id,
        "kind": done.kind,
        "dry_run": asked["dry_run"],
        "restored": actions["write"] + actions["remove"],
        "kept": actions["kept"],
        "entries": [{"path": one.path, "entry": one.entry, "action": one.action} for one in done.entries],
    }


class Time(Room):
    """The history of a root's entries."""

    @operation("POST /history/fold", answers.FoldData, rules.whole_space(write=True), apart=True)
    def fold_history(
        self,
        days: Annotated[int, says("keep every old text of this many days", 365, low=0, high=36_500)] = 365,
        *,
        dry_run: DryRun = False,
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Drop former texts of entries that nothing needs: not standing now, in no checkpoint, older than `days`.

        What changed and when stays on record. Bringing back a moment before then names what cannot come back.
        """
        self.parts.observer.settle()
        before = self.parts.clock.now().astimezone(UTC) - timedelta(days=days)
        gone, freed = self.parts.observer.of(space_named(**at)).fold(before, dry_run=dry_run)
        return {"dry_run": dry_run, "texts": gone, "characters": freed}

    @operation("GET /log", answers.LogData, rules.one_entry(write=False), apart=True)
    def log(
        self,
        entry_id: Annotated[
            str | None,
            says(
                "an entry by the id that search gives, or path#id",
                "alice_ep_20260601_00000001",
                low=1,
                high=4096,
                wire="id",
            ),
        ] = None,
        *,
        limit: Annotated[int, says("at most this many", 50, low=1, high=MAX_CHANGES)] = 100,
        diffs: Annotated[bool, says("add a line-by-line diff to each change", True)] = False,
        **at: Unpack[InSpace],
    ) -> list[dict[str, Any]]:
        """Changes of entries, newest first: of one entry by the id `search` gives or `path#id`, or of all."""
        if entry_id is not None and not isinstance(entry_id, str):
            raise Invalid(f"id must be a text, not {type(entry_id).__name__}.", field="id")
        if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_CHANGES:
            raise Invalid(f"limit is {limit}: use 1 to {MAX_CHANGES}.", field="limit")
        travel = self._recorded(space_named(**at))
        found = travel.log(entry_id, limit=limit)
        texts = travel.texts([one for change in found for one in (change.before, change.after) if one])
        told = []
        for change in found:
            before, after = texts.get(change.before or ""), texts.get(change.after or "")
            one = {**asdict(change), "action": change.action, "words": words_of(before, after)}
            if diffs:
                one["diff"] = difference(before or "", after or "")
            told.append(one)
        return told

    @operation("POST /checkpoints", answers.CheckpointData, rules.whole_space(write=True))
    def checkpoint(
        self,
        label: Annotated[str, says("what it is called", "before the move", high=500)] = "",
        **at: Unpack[InSpace],
    ) -> dict[str, Any]:
        """Make a checkpoint of this moment, to compare with or restore later."""
        return asdict(self._recorded(space_named(**at)).checkpoint(label))

    @operation("GET /checkpoints", answers.CheckpointsData, rules.whole_space(write=False))
    def checkpoints(self, **at: Unpack[InSpace]) -> list[dict[str, Any]]:
        """Every checkpoint."""
        return [asdict(made) for made in self._recorded(space_named(**at)).checkpoints()]

    @operation("GET /diff", answers.DiffData, rules.whole_space(write=False), apart=True)
    def diff(
        self,
        target: Annotated[
            str, says("a checkpoint or its label, or a time with a zone", "chk-000001", low=1, high=100)
        ],
        *,
        until: Annotated[
            str | None,
            says("a later checkpoint or time; now where none is named", "chk-000002", low=1, high=100),
        ] = None,
        **at: Unpack[InSpace],
    ) -> list[dict[str, Any]]:
        """What is different now, or at a later checkpoint or time, from an earlier one."""
        later = None if until is None else _checked(until)
        return self._recorded(space_named(**at)).diff(_checked(target), later)

    @operation("POST /restore", answers.RestoreData, rules.whole_space(write=True), data=_plan, apart=True)
    def restore(
        self,
        target: Annotated[
            str,
            says("a checkpoint or its label, a time with a zone, or a change", "chk-000001", low=1, high=100),
        ],
        *,
        dry_run: DryRun = False,
        **at: Unpack[InSpace],
    ) -> list[dict[str, Any]]:
        """Bring entries back to a checkpoint, a time, or before one change; this too can be undone."""
        travel, target = self._recorded(space_named(**at)), _checked(target)
        plan = travel.restore_plan(target) if dry_run else travel.restore(target)
        if not dry_run:
            self.parts.observer.settle()
        return [
            {"path": item.path, "entry": item.entry, "action": item.action, "words": item.words}
            for item in plan
        ]

    @operation(
        "POST /undo",
        answers.UndoneData,
        rules.whole_space(write=True, promotes="undo"),
        data=_undone,
        apart=True,
    )
    def undo(
        self,
        run_id: Annotated[
            str,
            says(
                "a run, one change (ent-000001), or a kind of run for the latest of it",
                "con_0123456789ab",
                low=1,
                high=100,
            ),
        ],
        *,
        dry_run: DryRun = False,
        **at: Unpack[InSpace],
    ) -> Undone:
        """Take back exactly what a run wrote: a consolidation, sweep, reflection, correction, import, mission or undo.

        An entry that was changed since stays as it is and is told; a second time changes nothing. It is a run itself,
        so an undo can be undone. `runs` lists them.

        Raises:
            NotFound: there is no such run; the message names the latest.
        """
        space = space_named(**at)
        self._recorded(space)
        done = self.parts.runs.undo(self.parts.notebook, space, run_id, dry_run=dry_run)
        self.parts.observer.settle()
        return done

    def _recorded(self, space: Space) -> TimeTravel:
        self.parts.observer.look_around(space)
        return self.parts.observer.of(space)


def _checked(target: str) -> str:
    if not isinstance(target, str):
        raise Invalid(f"target must be a text, not {type(target).__name__}.", field="target")
    return target
