"""A LangChain chat history that is a session of the memory."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from cairn.adapters import missing
from cairn.adapters.history import SessionView, pictured
from cairn.aio import AsyncMemory
from cairn.memory import Memory
from cairn.types import Message

try:
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
except ImportError as error:
    raise missing("langchain-core", "langchain") from error


class CairnChatHistory(BaseChatMessageHistory):
    """The messages of one session. System messages are instructions and no talk: they are not kept.

    `clear` empties what the chain sees; what was said stays remembered. The options are those of `SessionView`.
    """

    def __init__(self, memory: Memory | AsyncMemory, session_id: str, **options: Any) -> None:
        self._history = SessionView(memory, session_id, **options)

    @property
    def messages(self) -> list[BaseMessage]:
        """What was said, oldest first."""
        return [_told(one) for one in self._history.messages()]

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Keep messages, durably."""
        self._history.add(list(messages))

    def clear(self) -> None:
        """Begin anew."""
        self._history.clear()


def _told(message: Message) -> BaseMessage:
    said: Any = pictured(message)
    if message.role == "tool":
        return ToolMessage(content=said, tool_call_id=message.tool_call_id or "", id=message.id)
    if message.role == "user":
        return HumanMessage(content=said, name=message.sender_name, id=message.id)
    calls = [
        {"name": call.name, "args": _arguments(call.arguments), "id": call.id, "type": "tool_call"}
        for call in message.tool_calls
    ]
    return AIMessage(content=said, tool_calls=calls, id=message.id)


def _arguments(text: str) -> dict[str, Any]:
    """The arguments of a call; what is no JSON object is told as it is, under one name."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"arguments": text}
    return found if isinstance(found, dict) else {"arguments": found}
