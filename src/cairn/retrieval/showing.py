"""Turns what was found into the dictionaries that callers see; the only such projection.

`get` gives rows as they are; `search` adds to the same items what belongs to a hit: its score, its place and its
facts. Nothing here reads a file: a row carries all that is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Any

from cairn.index.corpus import AGENT_DOCUMENTS, SKILL_FILE, Row
from cairn.notes.format import list_items
from cairn.talk.messages import read_inline
from cairn.types import Evidence, Freshness, Hit, Message

# The array of an answer that each kind goes into.
ARRAYS: Mapping[str, str] = {
    "episode": "episodes",
    "profile": "profiles",
    "agent_case": "agent_cases",
    "agent_skill": "agent_skills",
    "foresight": "foresights",
    "atomic_fact": "atomic_facts",
    "agent_document": "agent_documents",
}
# Which kinds of rows one of these types stands for, where that is more than its own.
ROWS_OF: Mapping[str, tuple[str, ...]] = {"agent_document": AGENT_DOCUMENTS}
_STRUCTURE = frozenset({"id", "type", "file_type", "schema_version", "user_id", "agent_id", "track", "body"})
_EPOCH = datetime.fromtimestamp(0, UTC)


def shown_time(moment: int | datetime | None, zone: tzinfo = UTC) -> str:
    """An instant as ISO text in the display zone; the epoch where none is known, so that the field stays a date."""
    try:
        if isinstance(moment, int):
            moment = datetime.fromtimestamp(moment / 1000, UTC)
        return (moment or _EPOCH).astimezone(zone).isoformat()
    except (ValueError, OverflowError, OSError):
        return _EPOCH.astimezone(zone).isoformat()


def shown(found: Row | Hit, zone: tzinfo = UTC) -> dict[str, Any]:
    """A row or a hit as an item of the array of its kind.

    >>> from cairn.types import Scope, Space
    >>> row = Row(1, "agent_skill", Scope(Space(), "agent", "bot"), "deploy", "p", "", 0, fields={"name": "deploy"})
    >>> shown(row)["id"], shown(row)["confidence"]
    ('bot_deploy', 0.0)
    """
    shape = _SHAPES[found.kind]
    item = {"id": found.id, **shape(found, zone)}
    return item | _of_hit(found) if isinstance(found, Hit) else item


def _of_hit(hit: Hit) -> dict[str, Any]:
    more: dict[str, Any] = {"path": hit.path, "score": hit.score}
    if hit.kind == "episode":
        if "of" in hit.fields:
            more["episode_length"] = hit.fields["of"]
        more["atomic_facts"] = [
            {
                "id": fact.id,
                "content": _text(fact.fields.get("Fact")) or fact.text,
                "score": fact.score,
                **ended(fact),
            }
            for fact in hit.facts
        ]
    if hit.message_ids:
        more["message_ids"] = list(hit.message_ids)
    if hit.explain is not None:
        more["explain"] = dict(hit.explain)
    return more


def ended(fact: Row | Hit) -> dict[str, str]:
    """Since when a fact is over, and by which other; nothing for one that stands."""
    by, until = _text(fact.fields.get("superseded_by")), _text(fact.fields.get("until"))
    return {"superseded_by": fact.scope.public_id(by), "until": until} if by and until else {}


def as_told(fact: Hit) -> str:
    """A fact in an answer that is read, with the day since which it is over."""
    over = ended(fact)
    return f"{fact.text} (earlier, until {over['until']})" if over else fact.text


def as_said(item: Evidence) -> str:
    """A message in an answer that is read, with the day since which what it says is over.

    Of a message that says more than that, what is over is named.
    """
    over = ended(item.earlier) if item.earlier is not None else {}
    if not over or item.earlier is None:
        return item.text
    fact = item.earlier.text.partition(": ")[2] or item.earlier.text
    is_all = 2 * len(fact) > len(item.text)
    return f"{item.text} ({'' if is_all else f'“{fact}” is '}earlier, until {over['until']})"


def _space(found: Row | Hit) -> dict[str, Any]:
    return {"app_id": found.scope.space.app, "project_id": found.scope.space.project}


def _when(found: Row | Hit, zone: tzinfo) -> str:
    return shown_time(found.timestamp if isinstance(found, Hit) else found.timestamp_ms, zone)


def _episode(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    body = _text(fields.get("Content")) or found.text
    senders = found.sender_ids if isinstance(found, Row) else _texts(fields.get("sender_ids"))
    return {
        "user_id": found.scope.owner if found.scope.track == "user" else None,
        **_space(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "sender_ids": list(senders),
        "summary": _text(fields.get("Summary")) or body[:200],
        "subject": _text(fields.get("Subject")) or body[:80],
        "episode": body,
        "type": "Conversation",
        **_labelled(*read_inline({key: str(value) for key, value in fields.items()})),
    }


def _labelled(tags: Sequence[str], metadata: Mapping[str, Any] | None) -> dict[str, Any]:
    """Tags and metadata, where there are any."""
    return ({"tags": list(tags)} if tags else {}) | ({"metadata": dict(metadata)} if metadata else {})


def _profile(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    data = {name: value for name, value in found.fields.items() if name not in _STRUCTURE}
    return {
        "user_id": found.scope.owner if found.scope.track == "user" else None,
        **_space(found),
        "profile_data": data | {"content": _text(found.fields.get("body")).strip()},
    }


def _agent_case(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "task_intent": _text(fields.get("TaskIntent")),
        "approach": _text(fields.get("Approach")),
        "outcome": _text(fields.get("outcome")) or None,
        "quality_score": _number(fields.get("quality_score")),
        "key_insight": fields.get("KeyInsight") or None,
        **_labelled(*read_inline({key: str(value) for key, value in fields.items()})),
    }


def _agent_skill(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "name": _text(fields.get("name")) or found.entry_id,
        "description": _text(fields.get("description")),
        "content": (_text(fields.get("body")) or found.text).strip(),
        "confidence": _number(fields.get("confidence")),
        "maturity_score": _number(fields.get("maturity_score")),
        "source_case_ids": _texts(fields.get("source_case_ids")),
    }


def _memory(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    inline = {
        name: value
        for name, value in found.fields.items()
        if name.isascii() and name.replace("_", "").islower()
    }
    return {
        **_space(found),
        "scope": found.scope.track,
        "owner_id": found.scope.owner or None,
        "content": _text(found.fields.get("Content")) or found.text,
        "timestamp": _when(found, zone),
        **inline,
    }


def _knowledge(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_space(found),
        "doc_id": _text(fields.get("doc_id")),
        "topic_id": _text(fields.get("topic_id")),
        "title": _text(fields.get("title")),
        "category_id": _text(fields.get("category")),
        "heading": _text(fields.get("topic_path")),
        "line": int(_number(fields.get("line"))),
        "content": found.text.partition("\n")[2],
    }


def _foresight(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_owner(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "foresight": _text(fields.get("Foresight")) or found.text,
        "evidence": _text(fields.get("Evidence")),
        "start_time": fields.get("start_time") or None,
        "end_time": fields.get("end_time") or None,
    }


def _atomic_fact(found: Row | Hit, zone: tzinfo) -> dict[str, Any]:
    fields = found.fields
    return {
        **_owner(found),
        "session_id": found.session_id or "",
        "timestamp": _when(found, zone),
        "content": _text(fields.get("Fact")) or found.text,
        "parent_type": fields.get("parent_type") or None,
        "parent_id": fields.get("parent_id") or None,
        **ended(found),
    }


def _agent_document(found: Row | Hit, _zone: tzinfo) -> dict[str, Any]:
    return {
        "agent_id": found.scope.owner,
        **_space(found),
        "name": found.kind,
        "content": _text(found.fields.get("body")).strip() or found.text,
    }


def _owner(found: Row | Hit) -> dict[str, Any]:
    mine = found.scope
    return {
        "user_id": mine.owner if mine.track == "user" else None,
        "agent_id": mine.owner if mine.track == "agent" else None,
        **_space(found),
    }


_SHAPES = {
    "knowledge": _knowledge,
    "foresight": _foresight,
    "atomic_fact": _atomic_fact,
    **dict.fromkeys(AGENT_DOCUMENTS, _agent_document),
    "episode": _episode,
    "profile": _profile,
    "agent_case": _agent_case,
    "agent_skill": _agent_skill,
    SKILL_FILE: _agent_skill,
    "memory": _memory,
}


def shown_message(
    said: Message, *, app: str, project: str, session_id: str, zone: tzinfo = UTC
) -> dict[str, Any]:
    """A message as it was said, with where it was said."""
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
        "timestamp": shown_time(said.timestamp, zone),
        "tool_calls": calls or None,
        "tool_call_id": said.tool_call_id,
        **_labelled(said.tags, said.metadata),
    }


def shown_evidence(item: Evidence, zone: tzinfo = UTC) -> dict[str, Any]:
    """A verbatim message behind an answer."""
    out: dict[str, Any] = {
        "session_id": item.session_id,
        "message_id": item.message_id,
        "timestamp": shown_time(item.timestamp, zone),
        "sender_id": item.sender_id,
        "sender_name": item.sender_name,
        "text": item.text,
        "score": item.score,
        "entry_ids": list(item.entry_ids),
        "unflushed": item.unflushed,
        **_labelled(item.tags, item.metadata),
    }
    if item.earlier is not None:
        out["earlier"] = {"fact": item.earlier.text, **ended(item.earlier)}
    if item.passage is not None:
        out["passage"] = dict(zip(("start", "end", "of"), item.passage, strict=True))
    return out if item.explain is None else out | {"explain": dict(item.explain)}


def shown_freshness(value: Freshness) -> dict[str, Any]:
    """How far the index was behind."""
    return {"lsn": value.lsn, "pending": value.pending, "state": value.state, "notes": list(value.notes)}


def _text(value: object) -> str:
    return "" if value is None else str(value)


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
