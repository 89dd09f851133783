"""Readers of other programs' session files. All of one shape: find the files, then stream their messages.

These formats are internal to the programs that write them and change without notice. So every reader keeps an
allow-list: record types it knows are read, all else is passed over, and a line that does not parse is counted
and skipped (the last one may still be in the writing). Nothing is held in memory beyond one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn.canonical import from_json, moment
from cairn.errors import Invalid
from cairn.governed.framing import strip_recalled
from cairn.types import Message, ToolCall

MAX_LINE_BYTES = 32 * 1024 * 1024

# What hosts and hooks put into a prompt. It was injected, so it is not something a person said.
_TEXT_BLOCKS = frozenset({"text", "input_text", "output_text"})
_INJECTED = re.compile(
    r"<(?P<tag>system-reminder|user-prompt-submit-hook|session-start-hook|hook-output|environment_context|user_instructions|"
    r"command-name|command-message|command-args|local-command-stdout|local-command-stderr|local-command-caveat|bash-input|"
    r"bash-stdout|bash-stderr|task-notification|ide_selection|ide_opened_file|permissions instructions|collaboration_mode|"
    r"recalled-memory|recalled_memory|relevant-memories)\b[^>]*>.*?(?:</(?P=tag)\s*>|\Z)",
    re.DOTALL | re.IGNORECASE,
)
_RECALLED_COMMENT = re.compile(
    r"<!-- cairn:recalled.*?start -->.*?(?:<!-- cairn:recalled end -->|\Z)", re.DOTALL
)


@dataclass(slots=True)
class Session:
    """One session while it is read. `about` fills as records go by: cwd, remote, title, subagent.

    Reading begins at byte `start`; `end` is behind the last whole line that was read, so that a session that
    is still being written can be read on from there. With `tools` the calls of tools and their results come too.
    """

    path: Path
    item: str
    bad_lines: int = 0
    lines: int = 0
    start: int = 0
    end: int = 0
    tools: bool = False
    about: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Importer:
    """How one kind of source is read."""

    type: str
    find: Callable[[Path], Iterator[Path]]
    item: Callable[[Path], str]
    messages: Callable[[Session], Iterator[Message]]


def importer_for(kind: str) -> Importer:
    """The reader for a source type."""
    from cairn.project.importers import claude, codex, generic

    known = {"claude-local": claude.IMPORTER, "codex-local": codex.IMPORTER, "jsonl": generic.IMPORTER}
    if kind not in known:
        raise Invalid(f'"{kind}" is not a source type ({", ".join(known)}).', field="type")
    return known[kind]


def said(text: str) -> str:
    """`text` without what was injected into it or recalled from memory."""
    return _INJECTED.sub("", strip_recalled(text)).strip()


def text_in(content: Any) -> str:
    """The text of a message's content, which is one text or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [block.get("text") for block in blocks if block.get("type") in _TEXT_BLOCKS]
    return "\n".join(part for part in parts if isinstance(part, str))


def records(session: Session) -> Iterator[dict[str, Any]]:
    """The JSON objects of a file, one line at a time. Broken and monstrous lines are counted and skipped."""
    with session.path.open("rb") as handle:
        handle.seek(session.start)
        session.end = session.start
        while True:
            line = handle.readline(MAX_LINE_BYTES)
            if not line:
                return
            if line.endswith(b"\n"):
                session.end = handle.tell()
            if len(line) >= MAX_LINE_BYTES and not line.endswith(b"\n"):
                while line and not line.endswith(b"\n"):
                    line = handle.readline(MAX_LINE_BYTES)
                session.end = handle.tell()
                session.lines += 1
                session.bad_lines += 1
                continue
            if not line.strip():
                continue
            session.lines += 1
            try:
                value = from_json(line.decode("utf-8", "replace"))
            except ValueError:
                session.bad_lines += 1
                continue
            if isinstance(value, dict):
                yield value
            else:
                session.bad_lines += 1


OWN_TOOL = re.compile(r"(?:^|_)cairn(?:_|$)", re.IGNORECASE)
MAX_RESULT_CHARS = 8_000


def called(ident: str, name: str, arguments: object, at: int, message_id: str) -> Message:
    """An assistant's call of a tool as a message."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return Message(
        "assistant",
        "assistant",
        at,
        "",
        tool_calls=(ToolCall(ident, name, text[:MAX_RESULT_CHARS]),),
        id=message_id,
    )


def returned(ident: str, result: str, at: int, message_id: str) -> Message | None:
    """What a tool gave back, shortened in the middle; None where nothing but recalled text is in it."""
    text = said(result)
    if not text:
        return None
    if len(text) > MAX_RESULT_CHARS:
        half = MAX_RESULT_CHARS // 2
        text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
    return Message("assistant", "tool", at, text, tool_call_id=ident, id=message_id)


def millis(value: object, fallback: int = 0) -> int:
    """Epoch milliseconds from an ISO time or a number of seconds or milliseconds."""
    if isinstance(value, bool):
        return fallback
    if isinstance(value, int | float):
        return int(value if value > 10_000_000_000 else value * 1000)
    parsed = moment(value)
    return int(parsed.timestamp() * 1000) if parsed else fallback


def file_time(path: Path) -> int:
    """When a file was last written, for sessions that carry no times."""
    return int(datetime.fromtimestamp(path.stat().st_mtime, UTC).timestamp() * 1000)
