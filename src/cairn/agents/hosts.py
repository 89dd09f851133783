"""Turns the hook calls of each coding agent into one kind of event, and answers into the form each accepts.

Claude Code and Codex send the same JSON; Gemini and Cursor name things otherwise. Only the standard library is
imported here: this runs once for every prompt a person writes.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Literal

HOSTS = ("claude", "codex", "cursor", "gemini", "opencode")
Moment = Literal["start", "prompt", "turn", "compact", "end"]

_MOMENTS: dict[str, Moment] = {
    "SessionStart": "start",
    "sessionStart": "start",
    "UserPromptSubmit": "prompt",
    "BeforeAgent": "prompt",
    "beforeSubmitPrompt": "prompt",
    "Stop": "turn",
    "stop": "turn",
    "AfterAgent": "turn",
    "afterAgentResponse": "turn",
    "PreCompact": "compact",
    "PreCompress": "compact",
    "preCompact": "compact",
    "SessionEnd": "end",
    "sessionEnd": "end",
}
_GEMINI = {"BeforeAgent", "AfterAgent", "PreCompress"}


@dataclass(frozen=True, slots=True)
class HookEvent:
    """One call of a hook. `name` is the host's own name of it, `moment` what it means to a memory."""

    host: str
    name: str
    moment: Moment
    session: str
    folder: str
    prompt: str = ""
    reply: str = ""
    transcript: str = ""
    turn: str = ""

    def to_json(self) -> dict[str, str]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def of(cls, data: dict[str, Any]) -> HookEvent:
        """The event that `to_json` was made from."""
        return cls(**{name: str(data.get(name, "")) for name in cls.__slots__})  # type: ignore[arg-type]


def read_event(data: dict[str, Any], host: str = "auto") -> HookEvent | None:
    """The event in a hook's input; None for one that is not ours to act on (a subagent's, an unknown one)."""
    name = _text(data, "hook_event_name")
    moment = _MOMENTS.get(name)
    if moment is None or data.get("agent_id") or data.get("stop_hook_active") is True:
        return None
    return HookEvent(
        host=_host(data, name) if host == "auto" else host,
        name=name,
        moment=moment,
        session=_text(data, "session_id") or _text(data, "conversation_id"),
        folder=_text(data, "cwd") or _first(data.get("workspace_roots")),
        prompt=_text(data, "prompt"),
        reply=_text(data, "last_assistant_message") or _text(data, "prompt_response") or _text(data, "text"),
        transcript=_text(data, "transcript_path"),
        turn=_text(data, "prompt_id") or _text(data, "turn_id") or _text(data, "generation_id"),
    )


def answer(event: HookEvent, context: str) -> str:
    """What is printed: the context in the field that every host reads, and no other field; "" for nothing."""
    if not context or event.moment not in {"start", "prompt"} or event.host == "cursor":
        return ""
    return json.dumps({"hookSpecificOutput": {"hookEventName": event.name, "additionalContext": context}})


def _host(data: dict[str, Any], name: str) -> str:
    if "conversation_id" in data or name[:1].islower():
        return "cursor"
    if name in _GEMINI:
        return "gemini"
    return "codex" if "turn_id" in data or "codex" in _text(data, "transcript_path") else "claude"


def _text(data: dict[str, Any], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""


def _first(value: object) -> str:
    return value[0] if isinstance(value, list) and value and isinstance(value[0], str) else ""
