"""Rows as callers see them: one item per memory, with the names the outside knows.

`search` adds a score to these items, `get` gives them as they are. Nothing here reads a file: a row carries
all that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

from cairn.notes.format import list_items
from cairn.retrieval.corpus import Row

# The array of an answer that each kind goes into.
ARRAYS: Mapping[str, str] = {
    "episode": "episodes",
    "profile": "profiles",
    "agent_case": "agent_cases",
    "agent_skill": "agent_skills",
}
_STRUCTURE = frozenset({"id", "type", "file_type", "schema_version", "user_id", "agent_id", "track", "body"})


def shown_time(milliseconds: int, zone: tzinfo = UTC) -> str:
    """An instant as ISO text in the display zone."""
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).astimezone(zone).isoformat()
    except (ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(0, UTC).astimezone(zone).isoformat()


def shown(row: Row, zone: tzinfo = UTC) -> dict[str, Any]:
    """`row` as an item of the array of its kind.

    >>> from cairn.types import Scope, Space
    >>> row = Row(1, "agent_skill", Scope(Space(), "agent", "bot"), "deploy", "p", "", 0, fields={"name": "deploy"})
    >>> shown(row)["id"], shown(row)["confidence"]
    ('bot_deploy', 0.0)
    """
    item: dict[str, Any] = {"id": row.id}
    fields = row.fields
    if row.kind in {"agent_case", "agent_skill"}:
        item["agent_id"] = row.scope.owner
    else:
        item["user_id"] = row.scope.owner if row.scope.track == "user" else None
    item |= {"app_id": row.scope.space.app, "project_id": row.scope.space.project}
    if row.kind == "profile":
        data = {key: value for key, value in fields.items() if key not in _STRUCTURE}
        return item | {"profile_data": data | {"content": str(fields.get("body") or "").strip()}}
    if row.kind == "agent_skill":
        return item | {
            "name": str(fields.get("name") or row.entry_id),
            "description": str(fields.get("description") or ""),
            "content": str(fields.get("body") or "").strip(),
            "confidence": _number(fields.get("confidence")),
            "maturity_score": _number(fields.get("maturity_score")),
            "source_case_ids": _texts(fields.get("source_case_ids")),
        }
    item |= {"session_id": row.session_id or "", "timestamp": shown_time(row.timestamp_ms, zone)}
    if row.kind == "agent_case":
        return item | {
            "task_intent": fields.get("TaskIntent", ""),
            "approach": fields.get("Approach", ""),
            "quality_score": _number(fields.get("quality_score")),
            "key_insight": fields.get("KeyInsight") or None,
        }
    return item | {
        "sender_ids": list(row.sender_ids),
        "summary": fields.get("Summary", ""),
        "subject": fields.get("Subject", ""),
        "episode": fields.get("Content", ""),
        "type": "Conversation",
    }


def _number(value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]  # what cannot be a number is caught
    except (TypeError, ValueError):
        return 0.0
    return number if abs(number) < float("inf") else 0.0


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return list_items(value)
    return [str(part) for part in value] if isinstance(value, list | tuple) else []
