"""Claude Code transcripts: `projects/<slug>/<session-id>.jsonl`."""

from __future__ import annotations

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

_WRAPPERS = (
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<bash-input>",
    "<bash-stdout>",
    "<task-notification>",
)


def find(path: Path) -> Iterator[Path]:
    """Transcripts of main sessions; a subagent's talk is inside folders named after its session."""
    if path.is_file():
        yield path
        return
    for file in sorted(path.rglob("*.jsonl")):
        if "subagents" not in file.parts and not file.name.startswith(("agent-", ".")):
            yield file


def messages(session: Session) -> Iterator[Message]:
    """What the person and the assistant said, in file order.

    Only `user` and `assistant` records count. Sidechains, meta records, summaries, slash commands, thinking and
    request copies are not talk, tool calls and results only where the session asks for them; a record that
    appears twice (a resumed session) is taken once.
    """
    seen: set[str] = set()
    own: set[str] = set()
    at = file_time(session.path)
    for record in records(session):
        if isinstance(record.get("cwd"), str):
            session.about.setdefault("cwd", record["cwd"])
        for key in ("customTitle", "aiTitle"):
            if isinstance(record.get(key), str):
                session.about[key] = record[key]
        role = record.get("type")
        if role not in {"user", "assistant"} or any(
            record.get(flag) for flag in ("isSidechain", "isMeta", "isCompactSummary", "teamName")
        ):
            continue
        uuid = record.get("uuid")
        if isinstance(uuid, str):
            if uuid in seen:
                continue
            seen.add(uuid)
        body = record.get("message")
        content = body.get("content") if isinstance(body, dict) else None
        ident = uuid if isinstance(uuid, str) else ""
        text = said(text_in(content))
        if text and not text.startswith(_WRAPPERS):
            at = millis(record.get("timestamp"), at)
            yield Message(sender_id=role, role=role, timestamp=at, content=text, id=ident)
        if session.tools and isinstance(content, list):
            at = millis(record.get("timestamp"), at)
            yield from _tools(content, at, ident, own)


def _tools(content: list[Any], at: int, uuid: str, own: set[str]) -> Iterator[Message]:
    """The tool calls and results among the blocks; those of this memory itself are noted in `own` and left out."""
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            if OWN_TOOL.search(str(block.get("name"))):
                own.add(block["id"])
                continue
            yield called(block["id"], str(block.get("name")), block.get("input"), at, f"{uuid}.{number}")
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            if block["tool_use_id"] in own:
                continue
            result = returned(block["tool_use_id"], text_in(block.get("content")), at, f"{uuid}.{number}")
            if result is not None:
                yield result


IMPORTER = Importer("claude-local", find, lambda path: path.stem, messages)
