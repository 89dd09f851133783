"""Readers of other programs' session files. All of one shape: find the files, then stream their messages.

These formats are internal to the programs that write them and change without notice. So every reader keeps an
allow-list: record types it knows are read, all else is passed over, and a line that does not parse is counted
and skipped (the last one may still be in the writing). Nothing is held in memory beyond one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn.canonical import from_json, moment, storable
from cairn.errors import Invalid
from cairn.governed.framing import strip_recalled
from cairn.types import Message, ToolCall, with_texts

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
    folder: str = ""
    """Where the agent was at the record that was read last."""


@dataclass(frozen=True, slots=True)
class Importer:
    """How one kind of source is read: the names of its files and which of them count, what a session goes by, what was said."""

    glob: str
    counts: Callable[[Path], bool]
    item: Callable[[Path], str]
    messages: Callable[[Session], Iterator[Message]]

    def find(self, path: Path) -> list[Path]:
        """The session files below `path`, or that one file."""
        return (
            [path] if path.is_file() else [one for one in sorted(path.rglob(self.glob)) if self.counts(one)]
        )


def importer_for(kind: str) -> Importer:
    """The reader for a source type."""
    if kind not in IMPORTERS:
        raise Invalid(f'"{kind}" is not a source type ({", ".join(IMPORTERS)}).', field="type")
    return IMPORTERS[kind]


def said(text: str) -> str:
    """`text` without what was injected into it or recalled from memory."""
    return _INJECTED.sub("", strip_recalled(text)).strip()


def _text_in(content: Any) -> str:
    """The text of a message's content, which is one text or a list of blocks."""
    if isinstance(content, str):
        return content
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    parts = [block.get("text") for block in blocks if block.get("type") in _TEXT_BLOCKS]
    return "\n".join(part for part in parts if isinstance(part, str))


def _records(session: Session) -> Iterator[dict[str, Any]]:
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
                yield (
                    with_texts(value, storable) if b"\\u" in line else value
                )  # only an escape can say the others
            else:
                session.bad_lines += 1


_OWN_TOOL = re.compile(r"(?:^|_)cairn(?:_|$)", re.IGNORECASE)
MAX_RESULT_CHARS = 8_000


class _Tools:
    """Calls of tools and their results as messages; those of this memory itself are left out."""

    def __init__(self) -> None:
        self._own: set[str] = set()

    def called(
        self, ident: str, name: str, arguments: object, at: int, message_id: str, *, full_name: str = ""
    ) -> Iterator[Message]:
        """An assistant's call of a tool."""
        if _OWN_TOOL.search(full_name or name):
            self._own.add(ident)
            return
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        call = ToolCall(ident, name, text[:MAX_RESULT_CHARS])
        yield Message("assistant", "assistant", at, "", tool_calls=(call,), id=message_id)

    def returned(self, ident: str, result: str, at: int, message_id: str) -> Iterator[Message]:
        """What a tool gave back, shortened in the middle; nothing where only recalled text is in it."""
        text = said(result)
        if not text or ident in self._own:
            return
        if len(text) > MAX_RESULT_CHARS:
            half = MAX_RESULT_CHARS // 2
            text = f"{text[:half]}\n[… {len(text) - 2 * half} characters …]\n{text[-half:]}"
        yield Message("assistant", "tool", at, text, tool_call_id=ident, id=message_id)


def _millis(value: object, fallback: int = 0) -> int:
    """Epoch milliseconds from an ISO time or a number of seconds or milliseconds."""
    if isinstance(value, bool):
        return fallback
    if isinstance(value, int | float):
        return int(value if value > 10_000_000_000 else value * 1000)
    parsed = moment(value)
    return int(parsed.timestamp() * 1000) if parsed else fallback


def _file_time(path: Path) -> int:
    """When a file was last written, for sessions that carry no times."""
    return int(datetime.fromtimestamp(path.stat().st_mtime, UTC).timestamp() * 1000)


# ---------------------------------------------------------------- Claude Code: projects/<slug>/<session-id>.jsonl

_WRAPPERS = (
    "<command-name>",
    "<command-message>",
    "<local-command-stdout>",
    "<local-command-caveat>",
    "<bash-input>",
    "<bash-stdout>",
    "<task-notification>",
)


def _of_claude(session: Session) -> Iterator[Message]:
    """What the person and the assistant said, in file order.

    Only `user` and `assistant` records count. Sidechains, meta records, summaries, slash commands, thinking and
    request copies are not talk, tool calls and results only where the session asks for them; a record that
    appears twice (a resumed session) is taken once.
    """
    seen: set[str] = set()
    tools = _Tools()
    at = _file_time(session.path)
    for record in _records(session):
        if isinstance(record.get("cwd"), str):
            session.about.setdefault("cwd", record["cwd"])
            session.folder = record["cwd"]
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
        text = said(_text_in(content))
        if text and not text.startswith(_WRAPPERS):
            at = _millis(record.get("timestamp"), at)
            yield Message(sender_id=role, role=role, timestamp=at, content=text, id=ident)
        if session.tools and isinstance(content, list):
            at = _millis(record.get("timestamp"), at)
            yield from _of_blocks(content, at, ident, tools)


def _of_blocks(content: list[Any], at: int, uuid: str, tools: _Tools) -> Iterator[Message]:
    """The tool calls and results among the blocks of a record."""
    for number, block in enumerate(content):
        if not isinstance(block, dict):
            continue
        ident, name = f"{uuid}.{number}", str(block.get("name"))
        if block.get("type") == "tool_use" and isinstance(block.get("id"), str):
            yield from tools.called(block["id"], name, block.get("input"), at, ident)
        elif block.get("type") == "tool_result" and isinstance(block.get("tool_use_id"), str):
            yield from tools.returned(block["tool_use_id"], _text_in(block.get("content")), at, ident)


# ---------------------------------------------------------------- Codex: sessions/YYYY/MM/DD/rollout-<time>-<thread id>.jsonl

_NAME = re.compile(r"rollout-\d{4}-\d{2}-\d{2}T\d{2}-\d{2}-\d{2}-(?P<id>.+)")
_NOT_SAID = (
    "<environment_context>",
    "<user_instructions>",
    "# AGENTS.md instructions",
    "<permissions",
    "<turn_aborted>",
)


def _thread(path: Path) -> str:
    """The thread id in the name: it stays when the file is moved to the archive."""
    stem = path.name.removesuffix(".zst").removesuffix(".jsonl")
    found = _NAME.fullmatch(stem)
    return found["id"] if found else stem


def _of_codex(session: Session) -> Iterator[Message]:
    """User and assistant messages from `response_item` records, which every version writes.

    Developer messages (instructions, hook context), reasoning, tool traffic and the summary that a compaction is made of
    are passed over. A thread that
    belongs to another one (a subagent) gives nothing.
    """
    at = _file_time(session.path)
    headed = False
    tools = _Tools()
    held: Message | None = None  # an answer that may be the summary of a compaction, which is no talk
    for record in _records(session):
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
            at = _millis(record.get("timestamp"), at)
            yield from _of_payload(payload, at, tools)
        if payload.get("type") != "message":
            continue
        role = payload.get("role")
        if role not in {"user", "assistant"}:
            continue
        raw = _text_in(payload.get("content"))
        if role == "user" and raw.lstrip().startswith(_NOT_SAID):
            continue
        text = said(raw)
        if text:
            at = _millis(record.get("timestamp"), at)
            found = Message(sender_id=role, role=role, timestamp=at, content=text)
            if role == "assistant":
                held = found
            else:
                yield found
    if held is not None:
        yield held


def _of_payload(payload: dict[str, Any], at: int, tools: _Tools) -> Iterator[Message]:
    """The tool call or result in a record."""
    kind, ident = payload.get("type"), payload.get("call_id")
    if not isinstance(ident, str):
        return
    if kind in {"function_call", "custom_tool_call", "local_shell_call"}:
        name = str(payload.get("name", kind))
        full = f"{payload.get('namespace', '')}_{name}".strip("_")
        arguments = payload.get("arguments", payload.get("input", payload.get("action")))
        yield from tools.called(ident, name, arguments, at, f"{ident}.call", full_name=full)
    elif kind in {"function_call_output", "custom_tool_call_output"}:
        yield from tools.returned(ident, _text_in(payload.get("output")), at, f"{ident}.result")


def _head(session: Session, payload: dict[str, Any]) -> None:
    if isinstance(payload.get("cwd"), str):
        session.about["cwd"] = payload["cwd"]
    git = payload.get("git")
    if isinstance(git, dict) and isinstance(git.get("repository_url"), str):
        session.about["remote"] = git["repository_url"]
    if payload.get("parent_thread_id"):
        session.about["subagent"] = str(payload["parent_thread_id"])


# ---------------------------------------------------------------- any lines of {"role": ..., "content": ..., "timestamp": ...}

_ROLES = {"user": "user", "human": "user", "assistant": "assistant", "ai": "assistant", "model": "assistant"}


def _of_lines(session: Session) -> Iterator[Message]:
    """Lines with a role and a text; `content`, `text` and `message` are known places for the text."""
    at = _file_time(session.path)
    for record in _records(session):
        role = _ROLES.get(str(record.get("role") or record.get("sender") or record.get("type")).lower())
        if role is None:
            continue
        if isinstance(record.get("cwd"), str):
            session.about.setdefault("cwd", record["cwd"])
        if text := said(_text(record)):
            times = (record[key] for key in ("timestamp", "createdAt", "created_at", "time") if key in record)
            at = _millis(next(times, None), at)
            yield Message(role, "user" if role == "user" else "assistant", at, text)


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


IMPORTERS: Mapping[str, Importer] = {
    # A subagent's talk is inside folders named after its session.
    "claude-local": Importer(
        "*.jsonl",
        lambda one: "subagents" not in one.parts and not one.name.startswith(("agent-", ".")),
        lambda one: one.stem,
        _of_claude,
    ),
    # Compressed ones come too, so that they are reported and not forgotten.
    "codex-local": Importer(
        "rollout-*", lambda one: one.name.endswith((".jsonl", ".jsonl.zst")), _thread, _of_codex
    ),
    "jsonl": Importer("*.jsonl", lambda one: not one.name.startswith("."), lambda one: one.stem, _of_lines),
}
