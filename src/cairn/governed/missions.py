"""The end of a mission: what it learned goes to the project, once; the rest is put away.

A mission's memories live in `missions/<run>/memories/`. On success the promoted ones that are sure enough are
copied to the project through the gate, each with a row in the capture ledger; then, and after a failure at
once, the mission's own are archived. `journal/missions.jsonl` records that it ended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from cairn.canonical import objects_in
from cairn.governed.ledger import CaptureLedger
from cairn.governed.memories import Keeper
from cairn.governed.records import UNTRUSTED, Record, stamp
from cairn.types import Scope, Space

QUALIFYING_CONFIDENCE = 0.7
_PROMOTION = "mission_promotion"


@dataclass(frozen=True, slots=True)
class MissionEnd:
    """What became of a mission's memories. `already` is True when everything had been done before."""

    run_id: str
    success: bool
    promoted: Sequence[str]
    archived: Sequence[str]
    already: bool


def end(keeper: Keeper, space: Space, run_id: str, *, success: bool) -> MissionEnd:
    """End a mission. Idempotent: run twice, or after a crash, it promotes and archives nothing twice."""
    with keeper.notebook.run("mission"):
        return _end(keeper, space, run_id, success=success)


def _end(keeper: Keeper, space: Space, run_id: str, *, success: bool) -> MissionEnd:
    scope = Scope(space, "mission", run_id)
    ledger = CaptureLedger(keeper)
    live = [record for record in keeper.records(scope) if record.is_live]
    promoted = []
    if success:
        for record in live:
            if qualifies(record):
                key = f"{run_id}/{record.entry_id}"
                row, ran = ledger.once(space, _PROMOTION, key, partial(_copy, keeper, space, record))
                if ran and row.memory_id:
                    promoted.append(row.memory_id)
    first = ended(keeper, space).get(run_id) is None
    if first:
        line = {"run_id": run_id, "success": success, "at": stamp(keeper.clock.now())}
        if (work := keeper.notebook.current_run) is not None:
            line["run"] = work.id
        keeper.journals.append(keeper.root.journal(space, "missions"), [json.dumps(line)])
    archived = put_away(keeper, scope, live, "the mission succeeded" if success else "the mission failed")
    return MissionEnd(
        run_id, success, promoted, archived, already=not first and not promoted and not archived
    )


def qualifies(record: Record) -> bool:
    """Whether a mission's memory is worth the project's attention (A88)."""
    return (
        record.status == "promoted"
        and record.confidence >= QUALIFYING_CONFIDENCE
        and record.origin not in UNTRUSTED
    )


def ended(keeper: Keeper, space: Space) -> Mapping[str, Mapping[str, Any]]:
    """The missions on record as ended, by run id; one whose end was taken back goes on."""
    out: dict[str, Mapping[str, Any]] = {}
    history = keeper.notebook.history
    undone = history.undone(space) if history is not None else frozenset()
    for value in objects_in(keeper.journals.read(keeper.root.journal(space, "missions")).lines):
        if isinstance(run := value.get("run_id"), str) and value.get("run") not in undone:
            out.setdefault(run, value)
    return out


def put_away(keeper: Keeper, scope: Scope, records: Sequence[Record], reason: str) -> list[str]:
    """Archive `records` of one scope, one rewrite per note."""
    now = keeper.clock.now()
    by_note: dict[Any, list[Record]] = {}
    for record in records:
        by_note.setdefault(record.locator, []).append(record)
    for locator, group in by_note.items():
        with keeper.locked(scope):
            keeper.note_histories(
                scope.space,
                [
                    keeper.history_line(record, "mission ended", by="mission", reason=reason)
                    for record in group
                ],
            )
            keeper.rewrite_many(
                locator,
                {
                    record.entry_id: lambda r: r.but(status="archived", pinned=False, updated_at=now)
                    for record in group
                },
                scope,
            )
    return [record.id for record in records]


def _copy(keeper: Keeper, space: Space, record: Record) -> tuple[str | None, Mapping[str, Any]]:
    """Copy one memory to the project; what a run cut short had copied already is found again."""
    project = Scope(space, "project", "")
    for known in keeper.records(project):
        if known.source_type == _PROMOTION and known.source_id == record.id:
            return known.id, {"run_id": record.scope.owner, "found": True}
    verdict = keeper.remember(
        record.content,
        record.category,
        scope=project,
        importance=record.importance,
        confidence=record.confidence,
        status="promoted",
        origin=record.origin,
        tier=2,
        source_type=_PROMOTION,
        source_id=record.id,
        source_run_id=record.scope.owner,
        source_session_id=record.source_session_id,
        agent_id=record.agent_id,
        file_scope_pattern=record.file_scope_pattern,
        trigger=record.trigger,
        procedure=record.procedure,
        gated=False,
    )
    memory_id = str(verdict.memory["id"]) if verdict.accepted and verdict.memory else None
    return memory_id, {"run_id": record.scope.owner, "deduped": verdict.deduped}
