"""Verdicts, receipts and reports of governed memories as JSON, and recalled memories as a prompt.

HTTP answers with these shapes, and the command line prints them with `--json`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, tzinfo
from typing import TYPE_CHECKING, Any

from cairn.governed.consolidation import ConsolidationReport
from cairn.governed.forget import Receipt
from cairn.governed.framing import frame
from cairn.governed.lifecycle import SweepReport
from cairn.governed.memories import HistoryLine
from cairn.governed.pages import PagesReport
from cairn.governed.records import UNTRUSTED
from cairn.governed.skills import ScanReport
from cairn.retrieval.answers import SearchResult, tokens_of
from cairn.types import Hit

if TYPE_CHECKING:
    from cairn.governed.migrate import ImportReport


def history(lines: Sequence[HistoryLine]) -> list[dict[str, Any]]:
    return [{name: value for name, value in asdict(line).items() if value} for line in lines]


def receipt(value: Receipt) -> dict[str, Any]:
    return {
        "id": value.id,
        "at": value.at,
        "dry_run": value.dry_run,
        "complete": value.complete,
        "removed": dict(value.removed),
        "places": list(value.places),
        "left": [{"where": where, "why": why} for where, why in value.left],
        "taken": [asdict(one) for one in value.taken],
        "alike": [asdict(one) for one in value.alike],
    }


def sweep(report: SweepReport) -> dict[str, Any]:
    moves = [
        {
            "id": one.before.id,
            "move": one.move,
            "reason": one.reason,
            "from": {"status": one.before.status, "tier": one.before.tier},
            "to": {"status": one.after.status, "tier": one.after.tier},
        }
        for one in report.transitions
    ]
    return {**report.columns(), "dry_run": report.dry_run, "transitions": moves}


def consolidation(report: ConsolidationReport) -> dict[str, Any]:
    merged = [
        {
            "scope": one.scope.track,
            "owner": one.scope.owner,
            "category": one.category,
            "new_id": one.new_id or None,
            "originals": list(one.originals),
        }
        for one in report.merged
    ]
    return {"run_id": report.run_id, "dry_run": report.dry_run, "merged": merged}


def imported(report: ImportReport) -> dict[str, Any]:
    return {**asdict(report), "refused": [{"key": key, "reason": why} for key, why in report.refused]}


def scan(report: ScanReport) -> dict[str, Any]:
    refused = [{"path": path, "reason": reason} for path, reason in report.refused]
    return {**{name: list(value) for name, value in asdict(report).items()}, "refused": refused}


def pages(report: PagesReport) -> dict[str, Any]:
    return {
        "written": list(report.written),
        "unchanged": list(report.unchanged),
        "edited": [{"page": page, "kept_as": aside} for page, aside in report.edited],
    }


def prompt(result: SearchResult, *, budget: int | None = None, zone: tzinfo = UTC) -> str:
    """What was found as text for an agent's context: framed as data, best first, within `budget` tokens.

    What came from a tool or a page and no person has promoted is left out. "" for nothing.
    """
    lines: list[str] = []
    for line in _prompt_lines(result, zone):
        if budget is not None and tokens_of(frame([*lines, line])) > budget:
            break
        lines.append(line)
    return frame(lines)


def _prompt_lines(result: SearchResult, zone: tzinfo) -> Iterator[str]:
    for hit in result.hits:
        if hit.kind == "memory" and not _is_vouched_for(hit):
            continue
        day = f"{hit.timestamp.astimezone(zone).date().isoformat()}: " if hit.timestamp else ""
        words = str(hit.fields.get("Content") or hit.fields.get("Summary") or hit.text)
        facts = " ".join(fact.text for fact in hit.facts)
        yield f"{day}{facts if hit.kind == 'episode' and facts else words} ({hit.id})"
    for item in result.evidence or ():
        day = item.timestamp.astimezone(zone).date().isoformat()
        yield f"{day}, {item.sender_name or item.sender_id} said: {item.text}"


def _is_vouched_for(hit: Hit) -> bool:
    return hit.fields.get("origin", "human") not in UNTRUSTED or hit.fields.get("status") == "promoted"
