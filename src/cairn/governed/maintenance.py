"""One call for everything that keeps memories in order: what the daemon runs, and `sweep` by hand.

Core memory is reconciled, crowded scopes are consolidated, the sweep runs, and the pages are made anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cairn.governed import consolidation, core, lifecycle, pages
from cairn.governed.memories import Keeper
from cairn.seams import Writer
from cairn.types import Space


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
    merged = consolidation.consolidate_crowded(keeper, space, writer=writer)
    report = lifecycle.sweep(keeper, space, trigger=trigger)
    if report is None:
        return None
    return Maintenance(report, merged, pages.refresh(keeper, space))
