"""A LlamaIndex memory block: adds what leaves the short-term memory, and recalls for the last question."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from cairn.adapters import blocking, missing
from cairn.adapters.history import SessionView

try:
    from llama_index.core.base.llms.types import ChatMessage, MessageRole
    from llama_index.core.memory.memory import BaseMemoryBlock
except ImportError as error:
    raise missing("llama-index-core", "llama-index") from error


class CairnMemoryBlock(BaseMemoryBlock[str]):
    """Long-term memory for `Memory.from_defaults(memory_blocks=[...])`.

    Attributes:
        memory: The open memory, blocking or awaited.
        session_id: The session that messages go to where LlamaIndex names none.
        user_id: Whose memory; the settings' person where nobody is named.
        token_budget: The most tokens of what is recalled.
    """

    name: str = "cairn"
    memory: Any
    session_id: str = "llama-index"
    user_id: str | None = None
    app_id: str = "default"
    project_id: str = "default"
    token_budget: int = 800

    async def _aget(self, messages: Sequence[ChatMessage] | None = None, **_options: Any) -> str:
        asked = next(
            (str(one.content or "") for one in reversed(messages or ()) if one.role == MessageRole.USER), ""
        )
        if not asked.strip():
            return ""
        project = self.project_id if self.project_id != "default" else None
        found = await asyncio.to_thread(
            blocking(self.memory).recall,
            asked[: self.memory.settings.server.max_query_chars],
            user_id=self.user_id,
            app_id=self.app_id,
            project_id=project,
            token_budget=self.token_budget,
        )
        return str(found.prompt)

    async def _aput(self, messages: Sequence[ChatMessage]) -> None:
        by_session: dict[str, list[ChatMessage]] = {}
        for one in messages:
            named = str(one.additional_kwargs.get("session_id") or self.session_id)
            by_session.setdefault(named, []).append(one)
        for session, said in by_session.items():
            history = SessionView(
                self.memory, session, user_id=self.user_id, app_id=self.app_id, project_id=self.project_id
            )
            await asyncio.to_thread(history.add, said)
