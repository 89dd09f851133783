"""A session of the OpenAI Agents SDK that is a session of the memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from cairn.adapters import missing
from cairn.adapters.history import SessionView, pictured
from cairn.aio import AsyncMemory
from cairn.memory import Memory
from cairn.types import Message

try:
    from agents.memory.session import SessionABC
    from agents.memory.session_settings import SessionSettings, resolve_session_limit
except ImportError as error:
    raise missing("openai-agents", "openai-agents") from error

_TALK = ("message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output")


class CairnSession(SessionABC):
    """The items of one session: what was said, and tools that were called with what they answered.

    Not kept: instructions, reasoning, and calls of tools that run at the provider. `pop_item` and `clear_session` change what
    the agent sees; what was said stays remembered. The options are those of `SessionView`.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        session_id: str,
        *,
        session_settings: SessionSettings | None = None,
        **options: Any,
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self._history = SessionView(memory, session_id, **options)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The items, oldest first; with a limit the latest of them."""
        most = resolve_session_limit(limit, self.session_settings)
        seen = await asyncio.to_thread(self._history.messages)
        items = [item for one in seen for item in _items(one)]
        return (
            items
            if most is None
            else items[len(items) - most :]
            if 0 < most < len(items)
            else items[: most or 0]
        )

    async def add_items(self, items: list[Any]) -> None:
        """Keep items, durably."""
        talk = [one for one in items if "role" in one or one.get("type") in _TALK]
        await asyncio.to_thread(self._history.add, talk)

    async def pop_item(self) -> Any | None:
        """Take the last item back; of an answer that says something and calls tools, all of it."""
        gone = await asyncio.to_thread(self._history.pop)
        return list(_items(gone))[-1] if gone is not None else None

    async def clear_session(self) -> None:
        """Begin anew."""
        await asyncio.to_thread(self._history.clear)


def _items(message: Message) -> Iterator[dict[str, Any]]:
    """A message as input items of the Responses API."""
    if message.role == "tool":
        yield {"type": "function_call_output", "call_id": message.tool_call_id, "output": message.text}
        return
    said = pictured(message)
    if said or not message.tool_calls:
        yield {
            "role": message.role,
            "content": said if isinstance(said, str) else [_block(one) for one in said],
        }
    for call in message.tool_calls:
        yield {
            "type": "function_call",
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }


def _block(block: dict[str, Any]) -> dict[str, Any]:
    if block["type"] == "text":
        return {"type": "input_text", "text": block["text"]}
    return {"type": "input_image", "image_url": block["image_url"]["url"], "detail": "auto"}
