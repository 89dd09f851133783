"""Cairn behind the memory interfaces of agent frameworks; each module needs its own extra.

    langgraph      CairnStore             a LangGraph `BaseStore`: items by namespace and key, found by meaning
    langchain      CairnChatHistory       a LangChain `BaseChatMessageHistory`
    openai_agents  CairnSession           a `Session` of the OpenAI Agents SDK
    llamaindex     CairnMemoryBlock       a LlamaIndex `BaseMemoryBlock`: what is recalled, and what is kept

What a framework hands over is said to the memory like anything else: verbatim in a session's log, made into episodes,
found by `search` and `recall`. Nothing here is imported by the rest of Cairn.
"""

from __future__ import annotations

from typing import Any

from cairn.errors import Invalid, Misconfigured
from cairn.memory import Memory


def missing(package: str, extra: str) -> Misconfigured:
    """What to say where a framework's package is not installed."""
    return Misconfigured(
        f"This adapter needs the package {package}, which is not installed: pip install 'cairn-memory[{extra}]'.",
        setting=extra,
    )


def blocking(memory: Any) -> Memory:
    """The memory itself, also where its awaited twin is handed over: a framework calls an adapter from wherever it is."""
    found = getattr(memory, "memory", memory)
    if not isinstance(found, Memory):
        raise Invalid(
            f"An adapter stands on an open memory, not {type(memory).__name__}: hand it what `cairn.open_blocking(...)` or "
            "`cairn.open(...)` gives.",
            field="memory",
        )
    return found
