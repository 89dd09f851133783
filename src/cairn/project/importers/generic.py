"""Any JSON-lines file of messages: `{"role": ..., "content": ..., "timestamp": ...}` per line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from cairn.project.importers import Importer, Session, file_time, millis, records, said
from cairn.types import Message

_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "model": "assistant"}


def find(path: Path) -> Iterator[Path]:
    if path.is_file():
        yield path
        return
    yield from sorted(file for file in path.rglob("*.jsonl") if not file.name.startswith("."))


def messages(session: Session) -> Iterator[Message]:
    """Lines with a role and a text; `content`, `text` and `message` are known places for the text."""
    at = file_time(session.path)
    for record in records(session):
        role = _ROLES.get(str(record.get("role") or record.get("sender") or record.get("type")).lower())
        if role is None:
            continue
        if isinstance(record.get("cwd"), str):
            session.about.setdefault("cwd", record["cwd"])
        text = said(_text(record))
        if text:
            at = millis(
                next(
                    (
                        record[key]
                        for key in ("timestamp", "createdAt", "created_at", "time")
                        if key in record
                    ),
                    None,
                ),
                at,
            )
            yield Message(
                sender_id=role, role="user" if role == "user" else "assistant", timestamp=at, content=text
            )


def _text(record: Any) -> str:
    for key in ("content", "text", "message"):
        value = record.get(key)
        if isinstance(value, str):
            return value
        if isinstance(value, dict):
            return _text(value)
        if isinstance(value, list):
            parts = [
                block if isinstance(block, str) else block.get("text")
                for block in value
                if isinstance(block, str | dict)
            ]
            return "\n".join(part for part in parts if isinstance(part, str))
    return ""


IMPORTER = Importer("jsonl", find, lambda path: path.stem, messages)
