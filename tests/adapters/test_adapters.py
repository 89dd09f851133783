"""The adapters with the real packages: LangGraph, LangChain, OpenAI Agents, LlamaIndex (`make adapters`).

In the development environment these packages are missing: then each test is skipped, and says so.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cairn
from cairn.errors import Invalid
from cairn.memory import Memory

PACKAGES = {
    "langgraph": "langgraph",
    "langchain": "langchain_core",
    "openai_agents": "agents",
    "llamaindex": "llama_index.core",
}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with cairn.open_blocking(tmp_path / "root", background=False) as opened:
        yield opened


def adapter(name: str):
    """The module of an adapter; the test is skipped without its package, and fails where that must be there."""
    try:
        importlib.import_module(PACKAGES[name])
    except ImportError:
        if os.environ.get("ADAPTERS"):
            raise
        pytest.skip(f"{PACKAGES[name]} is not installed: `make adapters` tries it")
    return importlib.import_module(f"cairn.adapters.{name}")


@pytest.mark.parametrize("name", PACKAGES)
def test_without_its_package_an_adapter_says_what_to_install(name: str) -> None:
    """The package is an extra: its absence is one sentence with the command to mend it."""
    top = PACKAGES[name].partition(".")[0]
    program = f"import sys; sys.modules['{top}'] = None; import cairn.adapters.{name}"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Misconfigured" in done.stderr and "pip install 'cairn-memory[" in done.stderr


def test_the_example_of_the_page_runs(tmp_path: Path) -> None:
    """What docs/agents.md shows can be pasted, and prints what was remembered."""
    for name in PACKAGES:
        adapter(name)
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text()
    example = page.split("```py\n")[1].split("```")[0]
    home = {**os.environ, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", example], capture_output=True, text=True, env=home, check=True
    )
    assert "jasmine" in done.stdout and "Miso" in done.stdout.splitlines()[-2]


def test_a_langgraph_store_keeps_finds_and_lets_go(memory: Memory) -> None:
    """Items by namespace and key: the last value counts, filters and prefixes hold, a question finds by its words."""
    module = adapter("langgraph")
    store = module.CairnStore(memory, user_id="ann")
    store.put(("prefs", "ann"), "tea", {"text": "Ann drinks jasmine tea in the morning."})
    store.put(("prefs", "ann"), "pet", {"text": "The cat is called Miso.", "age": 3})
    store.put(("prefs", "bob"), "tea", {"text": "Bob drinks no tea, only coffee."})
    store.put(("raw",), "blob", {"text": "jasmine tea, never searched"}, index=False)
    item = store.get(("prefs", "ann"), "pet")
    assert (item.value, item.namespace, item.key) == (
        {"text": "The cat is called Miso.", "age": 3},
        ("prefs", "ann"),
        "pet",
    )
    found = store.search(("prefs", "ann"), query="what does she drink, jasmine tea?")
    assert found[0].key == "tea" and found[0].score > 0
    assert {one.namespace for one in found} == {("prefs", "ann")}
    assert store.search(("raw",), query="jasmine tea") == []
    assert [one.key for one in store.search(("prefs",), filter={"age": {"$gte": 3}})] == ["pet"]
    assert len(store.search(("prefs",), limit=2)) == 2
    assert store.list_namespaces(prefix=("prefs",)) == [("prefs", "ann"), ("prefs", "bob")]
    assert store.list_namespaces(max_depth=1) == [("prefs",), ("raw",)]
    store.put(("prefs", "ann"), "tea", {"text": "Ann drinks rooibos now."})
    later = store.get(("prefs", "ann"), "tea")
    assert later.value == {"text": "Ann drinks rooibos now."} and later.updated_at >= later.created_at
    found = store.search(("prefs", "ann"), query="drinks rooibos jasmine tea")
    assert found[0].value["text"] == "Ann drinks rooibos now."
    store.delete(("prefs", "ann"), "pet")
    again = module.CairnStore(memory, user_id="ann")
    assert again.get(("prefs", "ann"), "pet") is None
    assert asyncio.run(again.aget(("prefs", "bob"), "tea")).key == "tea"
    with pytest.raises(Invalid, match="JSON"):
        store.put(("prefs", "ann"), "odd", {"text": object()})
    told = memory.recall("what does Bob drink", user_id="ann")
    assert "coffee" in told.prompt


def test_a_graph_uses_the_store(memory: Memory) -> None:
    """A compiled LangGraph graph writes and reads through it."""
    module = adapter("langgraph")
    from langgraph.graph import END, START, StateGraph
    from langgraph.runtime import Runtime

    def node(state: dict, runtime: Runtime) -> dict:
        runtime.store.put(("notes",), "n1", {"text": state["said"]})
        return {"said": runtime.store.get(("notes",), "n1").value["text"].upper()}

    graph = StateGraph(dict)
    graph.add_node("node", node)
    graph.add_edge(START, "node")
    graph.add_edge("node", END)
    app = graph.compile(store=module.CairnStore(memory))
    assert app.invoke({"said": "the bridge is open"})["said"] == "THE BRIDGE IS OPEN"


def test_a_langchain_history_is_a_session(memory: Memory) -> None:
    """What a chain says comes back as it was, with calls and pictures; cleared, the chain begins anew and it is remembered."""
    module = adapter("langchain")
    from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage

    history = module.CairnChatHistory(memory, "chat-1", user_id="ann")
    picture = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": "https://pictures.example/cat.png"}},
    ]
    history.add_messages(
        [
            SystemMessage("Be brief."),
            HumanMessage("My cat is called Miso."),
            HumanMessage(picture),
            AIMessage("", tool_calls=[{"name": "look", "args": {"at": "cat"}, "id": "c1"}]),
            ToolMessage("a cat", tool_call_id="c1"),
            AIMessage("A cat."),
        ]
    )
    history.add_messages([SystemMessage("Only an instruction.")])
    seen = module.CairnChatHistory(memory, "chat-1", user_id="ann").messages
    assert [one.type for one in seen] == ["human", "human", "ai", "tool", "ai"]
    assert seen[0].content == "My cat is called Miso." and seen[1].content == picture
    assert seen[2].tool_calls[0]["args"] == {"at": "cat"} and seen[3].tool_call_id == "c1"
    history.clear()
    assert history.messages == []
    history.add_user_message("Again from the start.")
    assert [one.content for one in asyncio.run(history.aget_messages())] == ["Again from the start."]
    assert "Miso" in memory.recall("what is the cat called", user_id="ann").prompt


def test_an_openai_agents_session_runs_an_agent(memory: Memory) -> None:
    """A runner reads and writes it turn by turn; items are taken back and cleared without being forgotten."""
    module = adapter("openai_agents")
    from agents import Agent, ModelResponse, Runner, Usage, set_tracing_disabled
    from agents.memory.session import Session
    from agents.models.interface import Model
    from openai.types.responses import ResponseOutputMessage, ResponseOutputText

    set_tracing_disabled(True)
    asked: list[list] = []

    class Scripted(Model):
        """Answers each turn with a fixed sentence; only the model is not real."""

        async def get_response(self, *given, **options):
            items = given[1] if len(given) > 1 else options["input"]
            asked.append(list(items))
            text = ResponseOutputText(text="Noted.", type="output_text", annotations=[])
            said = ResponseOutputMessage(
                id="m1", content=[text], role="assistant", status="completed", type="message"
            )
            return ModelResponse(output=[said], usage=Usage(), response_id=None)

        def stream_response(self, *given, **options):
            raise NotImplementedError

    session = module.CairnSession(memory, "run-1", user_id="ann")
    assert isinstance(session, Session)
    agent = Agent(name="helper", model=Scripted())

    async def talk() -> None:
        await Runner.run(agent, "My cat is called Miso.", session=session)
        await Runner.run(agent, "What is she called?", session=session)

    asyncio.run(talk())
    assert [one["content"] for one in asked[1] if one.get("role") == "user"] == [
        "My cat is called Miso.",
        "What is she called?",
    ]

    async def use() -> None:
        await session.add_items(
            [
                {"type": "reasoning", "id": "r1", "summary": []},
                {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "c1", "output": "a cat"},
            ]
        )
        items = await session.get_items()
        assert len(items) == 6 and items[-1]["output"] == "a cat"
        assert await session.get_items(limit=2) == items[-2:]
        assert (await session.pop_item())["type"] == "function_call_output"
        assert (await session.get_items())[-1]["type"] == "function_call"
        await session.clear_session()
        assert await session.get_items() == [] and await session.pop_item() is None

    asyncio.run(use())
    assert "Miso" in memory.recall("what is the cat called", user_id="ann").prompt


def test_a_llamaindex_block_recalls_and_keeps(memory: Memory) -> None:
    """What falls out of the short-term memory is kept, and comes back where a question needs it."""
    module = adapter("llamaindex")
    from llama_index.core.base.llms.types import ChatMessage
    from llama_index.core.memory import Memory as LlamaMemory

    block = module.CairnMemoryBlock(memory=memory, user_id="ann")

    async def use() -> None:
        held = LlamaMemory.from_defaults(
            session_id="llama-1", token_limit=60, chat_history_token_ratio=0.5, memory_blocks=[block]
        )
        await held.aput(ChatMessage(role="user", content="My cat is called Miso and sleeps on the radiator."))
        await held.aput(ChatMessage(role="assistant", content="Noted, a warm place for a cat."))
        for number in range(6):
            await held.aput(ChatMessage(role="user", content=f"Filler number {number} about nothing at all."))
            await held.aput(ChatMessage(role="assistant", content=f"Fine, filler {number}."))
        await held.aput(ChatMessage(role="user", content="What is my cat called?"))
        told = "\n".join(str(one.content) for one in await held.aget())
        assert "Miso" in told and "not an instruction" in told

    asyncio.run(use())
    assert memory.session_owners("llama-1")
    assert asyncio.run(block.aget([ChatMessage(role="user", content="the weather in Mongolia?")])) == ""


def test_the_awaited_memory_serves_as_well(tmp_path: Path) -> None:
    """An async program hands over the memory it has: what is said is kept, and nothing else than a memory is taken."""
    for name in PACKAGES:
        adapter(name)
    from langchain_core.messages import HumanMessage
    from llama_index.core.base.llms.types import ChatMessage

    async def use() -> list[str]:
        async with cairn.open(tmp_path / "root", background=False) as memory:
            history = adapter("langchain").CairnChatHistory(memory, "chat", user_id="ann")
            await history.aadd_messages([HumanMessage("My cat is called Miso.")])
            session = adapter("openai_agents").CairnSession(memory, "run", user_id="ann")
            await session.add_items([{"role": "user", "content": "The bridge opens at nine."}])
            store = adapter("langgraph").CairnStore(memory, user_id="ann")
            await store.aput(("prefs",), "tea", {"text": "Ann drinks jasmine tea."})
            assert (await store.aget(("prefs",), "tea")).value["text"] == "Ann drinks jasmine tea."
            block = adapter("llamaindex").CairnMemoryBlock(memory=memory, user_id="ann")
            await block.aput([ChatMessage(role="user", content="The harbour is closed.")])
            asked = ChatMessage(role="user", content="What is my cat called?")
            assert "Miso" in await block.aget([asked])
            said = [await memory.unprocessed(one) for one in ("chat", "run", "llama-index")]
            return [one.text for (one,) in said]

    assert asyncio.run(use()) == [
        "My cat is called Miso.",
        "The bridge opens at nine.",
        "The harbour is closed.",
    ]
    with pytest.raises(Invalid, match=r"hand it what `cairn.open_blocking"):
        adapter("langchain").CairnChatHistory(str(tmp_path), "chat")
