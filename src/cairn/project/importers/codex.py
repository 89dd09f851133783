"""Codex rollouts: `sessions/YYYY/MM/DD/rollout-<time>-<thread id>.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cairn.project.importers import (
    OWN_TOOL,
    Importer,
    Session,
    called,
    file_time,
    millis,
    records,
    returned,
    said,
    text_in,
)
from cairn.types import Message

_NAME = re.compile(r"rollout-\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}-(?P<id>.+)")
_NOT_SAID = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions",
    "<turn_aborted>",
)


def find(path: Path) -> Iterator[Path]:
    """Rollout files below `path`; compressed ones come too, so that they are reported and not forgotten."""
    if path.is_file():
        yield path
        return
    yield from sorted(
        file for file in path.rglob("rollout-*") if file.name.endswith((".jsonl", ".jsonl.zst"))
    )


def item(path: Path) -> str:
    """The thread id in the name: it stays when the file is moved to the archive."""
    stem = path.name.removesuffix(".zst").removesuffix(".jsonl")
    found = _NAME.fullmatch(stem)
    return found["id"] if found else stem


def messages(session: Session) -> Iterator[Message]:
    """User and assistant messages from `response_item` records, which every version writes.

    Developer messages (instructions, hook context), reasoning, tool traffic and the summary that a compaction is made of
    are passed over. A thread that
    belongs to another one (a subagent) gives nothing.
    """
    at = file_time(session.path)
    headed = False
    own: set[str] = set()
    held: Message | None = None  # an answer that may be the summary of a compaction, which is no talk
    for record in records(session):
        payload = record.get("payload")
        if not isinstance(payload, dict):
            continue
        if record.get("type") == "compacted":
            if held is not None and held.text not in str(payload.get("message")):
                yield held
            held = None
        elif held is not None and (
            record.get("type") == "response_item" or payload.get("type") == "task_complete"
        ):
            yield held
            held = None
        if record.get("type") == "session_meta" and not headed:
            headed = True
            _head(session, payload)
            if session.about.get("subagent"):
                return
        if record.get("type") != "response_item":
            continue
        if session.tools and payload.get("type") != "message":
            at = millis(record.get("timestamp"), at)
            yield from _tool(payload, at, own)
        if payload.get("type") != "message":
            continue
        role = payload.get("role")
        if role not in {"user", "assistant"}:
            continue
        raw = text_in(payload.get("content"))
        if role == "user" and raw.lstrip().startswith(_NOT_SAID):
            continue
        text = said(raw)
        if text:
            at = millis(record.get("timestamp"), at)
            found = Message(sender_id=role, role=role, timestamp=at, content=text)
            if role == "assistant":
                held = found
            else:
                yield found
    if held is not None:
        yield held


def _tool(payload: dict[str, Any], at: int, own: set[str]) -> Iterator[Message]:
    """The tool call or result in a record; those of this memory itself are noted in `own` and left out."""
    kind, ident = payload.get("type"), payload.get("call_id")
    if not isinstance(ident, str):
        return
    if kind in {"function_call", "custom_tool_call", "local_shell_call"}:
        name = f"{payload.get('namespace', '')}_{payload.get('name', kind)}".strip("_")
        if OWN_TOOL.search(name):
            own.add(ident)
            return
        arguments = payload.get("arguments", payload.get("input", payload.get("action")))
        yield called(ident, str(payload.get("name", kind)), arguments, at, f"{ident}.call")
    elif kind in {"function_call_output", "custom_tool_call_output"} and ident not in own:
        result = returned(ident, text_in(payload.get("output")), at, f"{ident}.result")
        if result is not None:
            yield result


def _head(session: Session, payload: dict[str, Any]) -> None:
    if isinstance(payload.get("cwd"), str):
        session.about["cwd"] = payload["cwd"]
    git = payload.get("git")
    if isinstance(git, dict) and isinstance(git.get("repository_url"), str):
        session.about["remote"] = git["repository_url"]
    if payload.get("parent_thread_id"):
        session.about["subagent"] = str(payload["parent_thread_id"])


IMPORTER = Importer("codex-local", find, item, messages)
