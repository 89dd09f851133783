"""Values as the JSON of the HTTP contract. The command line prints the same shapes with `--json`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, tzinfo
from typing import Any

from cairn.retrieval.answers import SearchResult
from cairn.retrieval.listing import GetResult
from cairn.types import Evidence, Freshness, Hit, Message

_PROFILE_CHASSIS = frozenset({"id", "type", "file_type", "schema_version", "user_id", "agent_id", "track"})


def iso(moment: datetime | None, zone: tzinfo = UTC) -> str:
    """A time as text in the display zone; the epoch where none is known, so that the field stays a date."""
    return (moment or datetime.fromtimestamp(0, UTC)).astimezone(zone).isoformat()


def listed(value: object) -> list[str]:
    """The items of a list, or of its text form `[a, b]`."""
    if isinstance(value, list | tuple):
        return [str(item) for item in value]
    text = str(value or "").strip()
    if not (text.startswith("[") and text.endswith("]")):
        return [text] if text else []
    return [item.strip() for item in text[1:-1].split(",") if item.strip()]


def number(value: object, default: float = 0.0) -> float:
    """A number from a field that is text in the note."""
    try:
        return float(str(value))
    except ValueError:
        return default


def section(fields: Mapping[str, Any], *titles: str) -> str:
    """The first of the named sections or inline fields that is there."""
    for title in titles:
        value = fields.get(title)
        if value:
            return str(value)
    return ""


def _placed(hit: Hit) -> dict[str, Any]:
    return {"id": hit.id, "app_id": hit.scope.space.app, "project_id": hit.scope.space.project}


def _extras(hit: Hit) -> dict[str, Any]:
    extra: dict[str, Any] = {"path": hit.path, "score": hit.score}
    if hit.message_ids:
        extra["message_ids"] = list(hit.message_ids)
    if hit.explain is not None:
        extra["explain"] = dict(hit.explain)
    return extra


def episode(hit: Hit, zone: tzinfo = UTC) -> dict[str, Any]:
    body = section(hit.fields, "Content", "content") or hit.text
    return {
        **_placed(hit),
        "user_id": hit.scope.owner if hit.scope.track == "user" else None,
        "session_id": hit.session_id or "",
        "timestamp": iso(hit.timestamp, zone),
        "sender_ids": listed(hit.fields.get("sender_ids")),
        "summary": section(hit.fields, "Summary") or body[:200],
        "subject": section(hit.fields, "Subject") or body[:80],
        "episode": body,
        "type": "Conversation",
        **_extras(hit),
        "atomic_facts": [{"id": fact.id, "content": fact.text, "score": fact.score} for fact in hit.facts],
    }


def profile(hit: Hit) -> dict[str, Any]:
    data = {name: value for name, value in hit.fields.items() if name not in _PROFILE_CHASSIS}
    return {**_placed(hit), "user_id": hit.scope.owner or None, "profile_data": data, **_extras(hit)}


def agent_case(hit: Hit, zone: tzinfo = UTC) -> dict[str, Any]:
    return {
        **_placed(hit),
        "agent_id": hit.scope.owner,
        "session_id": hit.session_id or "",
        "task_intent": section(hit.fields, "TaskIntent"),
        "approach": section(hit.fields, "Approach"),
        "quality_score": number(hit.fields.get("quality_score")),
        "key_insight": section(hit.fields, "KeyInsight") or None,
        "timestamp": iso(hit.timestamp, zone),
        **_extras(hit),
    }


def agent_skill(hit: Hit) -> dict[str, Any]:
    return {
        **_placed(hit),
        "agent_id": hit.scope.owner,
        "name": section(hit.fields, "name"),
        "description": section(hit.fields, "description"),
        "content": section(hit.fields, "body", "content") or hit.text,
        "confidence": number(hit.fields.get("confidence")),
        "maturity_score": number(hit.fields.get("maturity_score")),
        "source_case_ids": listed(hit.fields.get("source_case_ids")),
        **_extras(hit),
    }


def memory(hit: Hit, zone: tzinfo = UTC) -> dict[str, Any]:
    inline = {name: value for name, value in hit.fields.items() if re.fullmatch(r"[a-z_]+", name)}
    return {
        **_placed(hit),
        "scope": hit.scope.track,
        "owner_id": hit.scope.owner or None,
        "content": section(hit.fields, "Content") or hit.text,
        "timestamp": iso(hit.timestamp, zone),
        **inline,
        **_extras(hit),
    }


def message(said: Message, *, app: str, project: str, session_id: str, zone: tzinfo = UTC) -> dict[str, Any]:
    content: str | list[dict[str, Any]]
    if isinstance(said.content, str):
        content = said.content
    else:
        names = ("type", "text", "uri", "base64", "ext", "name", "extras")
        content = [
            {name: getattr(item, name) for name in names if getattr(item, name) is not None}
            for item in said.content
        ]
    calls = [
        {"id": call.id, "type": call.type, "function": {"name": call.name, "arguments": call.arguments}}
        for call in said.tool_calls
    ]
    return {
        "id": said.id,
        "app_id": app,
        "project_id": project,
        "session_id": session_id,
        "sender_id": said.sender_id,
        "sender_name": said.sender_name,
        "role": said.role,
        "content": content,
        "timestamp": iso(datetime.fromtimestamp(said.timestamp / 1000, UTC), zone),
        "tool_calls": calls or None,
        "tool_call_id": said.tool_call_id,
    }


def evidence(item: Evidence, zone: tzinfo = UTC) -> dict[str, Any]:
    return {
        "session_id": item.session_id,
        "message_id": item.message_id,
        "timestamp": iso(item.timestamp, zone),
        "sender_id": item.sender_id,
        "sender_name": item.sender_name,
        "text": item.text,
        "score": item.score,
        "entry_ids": list(item.entry_ids),
    }


def freshness(value: Freshness) -> dict[str, Any]:
    return {"lsn": value.lsn, "pending": value.pending, "state": value.state, "notes": list(value.notes)}


def search_result(
    result: SearchResult, *, app: str, project: str, session_id: str = "", zone: tzinfo = UTC
) -> dict[str, Any]:
    """The `data` of a search: five arrays always, and what was asked for beside them."""
    data: dict[str, Any] = {
        "episodes": [episode(hit, zone) for hit in result.episodes],
        "profiles": [profile(hit) for hit in result.profiles],
        "agent_cases": [agent_case(hit, zone) for hit in result.agent_cases],
        "agent_skills": [agent_skill(hit) for hit in result.agent_skills],
        "unprocessed_messages": [
            message(said, app=app, project=project, session_id=session_id, zone=zone)
            for said in result.unprocessed_messages
        ],
        "memories": [memory(hit, zone) for hit in result.memories],
        "freshness": freshness(result.freshness),
    }
    if result.evidence is not None:
        data["evidence"] = [evidence(item, zone) for item in result.evidence]
    return data


def get_result(result: GetResult) -> dict[str, Any]:
    """The `data` of a get: four arrays, the exact total and the size of this page."""
    return {
        "episodes": result.episodes,
        "profiles": result.profiles,
        "agent_cases": result.agent_cases,
        "agent_skills": result.agent_skills,
        "total_count": result.total_count,
        "count": result.count,
        "freshness": freshness(result.freshness),
    }
