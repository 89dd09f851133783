"""Claude Code transcripts: `projects/<slug>/<session-id>.jsonl`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cairn.project.importers import Importer, Session, file_time, millis, records, said
from cairn.types import Message


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

    Only `user` and `assistant` records count. Sidechains, meta records, summaries, tool results, thinking and
    request copies are not talk; a record that appears twice (a resumed session) is taken once.
    """
    seen: set[str] = set()
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
        text = said(_text(body.get("content") if isinstance(body, dict) else None))
        if text:
            at = millis(record.get("timestamp"), at)
            yield Message(
                sender_id=role,
                role=role,
                timestamp=at,
                content=text,
                id=uuid if isinstance(uuid, str) else "",
            )


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        return ""
    parts = [
        block.get("text") for block in content if isinstance(block, dict) and block.get("type") == "text"
    ]
    return "\n".join(part for part in parts if isinstance(part, str))


IMPORTER = Importer("claude-local", find, lambda path: path.stem, messages)
