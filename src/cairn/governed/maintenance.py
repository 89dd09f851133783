"""One call for everything that keeps memories in order: what the daemon runs, and `sweep` by hand.

Core memory is reconciled, crowded scopes are consolidated, the sweep runs, and the pages are made anew.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from cairn.governed import consolidation, core, lifecycle, pages, procedures
from cairn.governed.memories import Keeper
from cairn.language.words import word_set
from cairn.notes.kinds import place_of
from cairn.seams import Writer
from cairn.types import Scope, Space

_NUMBERED = re.compile(r"^(?:\d+[.)]|[-*])\s+")


@dataclass(frozen=True, slots=True)
class Maintenance:
    """What was done in one space."""

    sweep: lifecycle.SweepReport
    consolidations: Sequence[consolidation.ConsolidationReport]
    pages: pages.PagesReport


def run(
    keeper: Keeper, space: Space, *, trigger: lifecycle.Trigger = "manual", writer: Writer | None = None
) -> Maintenance | None:
    """Keep one space in order; None where it is not due ("startup", "schedule") or another is at it.

    Consolidation comes before the sweep, so that a crowded scope is first relieved of what is said several
    times and only then of what fits no more.
    """
    if trigger != "manual" and not lifecycle.is_due(keeper, space):
        return None
    core.reconcile_all(keeper, space)
    propose_procedures(keeper, space)
    merged = consolidation.consolidate_crowded(keeper, space, writer=writer)
    report = lifecycle.sweep(keeper, space, trigger=trigger)
    if report is None:
        return None
    return Maintenance(report, merged, pages.refresh(keeper, space))


def propose_procedures(keeper: Keeper, space: Space) -> int:
    """Note ways of working that recur in an agent's cases as candidates, once each; how many were noted."""
    found: dict[Scope, list[procedures.Signal]] = {}
    for locator in keeper.notebook.notes(space, "agent_case"):
        place = place_of(locator)
        for entry in keeper.notebook.read(locator).entries if place is not None else ():
            task, steps = entry.sections.get("TaskIntent", ""), entry.sections.get("Approach", "")
            lines = [line.strip() for line in steps.splitlines() if line.strip()]
            if place is not None and task.strip() and lines:
                signal = procedures.Signal(
                    place.scope.public_id(entry.id),
                    entry.inline.get("session_id") or entry.id,
                    word_set(task),
                    " ".join(task.split()),
                    [_NUMBERED.sub("", line) for line in lines],
                )
                found.setdefault(place.scope, []).append(signal)
    return sum(len(procedures.propose(keeper, space, mine, scope=scope)) for scope, mine in found.items())
