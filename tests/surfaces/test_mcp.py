"""MCP: every tool through the official client, in both protocol modes, over standard input and output."""

from __future__ import annotations

import asyncio
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from mcp import Client, MCPError, StdioServerParameters

import cairn
from cairn.agents import link, tools
from cairn.agents.warm import answering
from cairn.config import load
from cairn.engines.locks import FileLocks
from cairn.memory import Memory
from cairn.projects import space_at
from cairn.retrieval.answers import tokens_of
from cairn.surfaces.mcp_quick import Front
from cairn.surfaces.mcp_server import build_server, in_thread, serve_rest
from cairn.testing.clock import FixedClock
from tests.crash.test_full_disk import fill, small_disk
from tests.waiting import LONG, until

MODES = ("auto", "legacy")
ME = {"sender_id": "me", "role": "user", "timestamp": 1_750_000_000_000}


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    """It stands still: how well something fits falls with its age, so that two answers would differ."""
    with Memory(load(tmp_path / "root"), background=False, clock=FixedClock(datetime.now(UTC))) as opened:
        yield opened


def host(
    memory: Memory, folder: Path | None, use: Callable[[Client], Coroutine[Any, Any, None]], mode: str
) -> None:
    """An agent's host that uses the server over an open memory."""

    async def run() -> None:
        answer = in_thread(lambda message: tools.reply(memory, message))
        server = build_server(answer, str(folder) if folder else None)
        async with Client(server, mode=mode) as client:
            await use(client)

    asyncio.run(run())


async def told(client: Client, name: str, **arguments: Any) -> tuple[str, Any]:
    """A tool's words and data; it must not refuse."""
    found = await client.call_tool(name, arguments)
    assert not found.is_error, found.content[0].text
    return found.content[0].text, found.structured_content


async def refused(client: Client, name: str, **arguments: Any) -> str:
    found = await client.call_tool(name, arguments)
    assert found.is_error
    return str(found.content[0].text)


def repository(at: Path) -> Path:
    at.mkdir()
    for command in (["init", "-q"], ["commit", "-q", "--allow-empty", "-m", "feat: begin"]):
        identity = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
        subprocess.run(["git", *identity, *command], cwd=at, check=True)
    return at


# ---------------------------------------------------------------- what is offered


def test_tools_are_few_short_and_fully_annotated(memory: Memory) -> None:
    """Schemas cost a model's context in every session; hints decide whether a person is asked."""

    async def use(client: Client) -> None:
        offered = (await client.list_tools()).tools
        assert {tool.name for tool in offered} == set(tools.TOOLS) and len(offered) <= 8
        wire = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in offered]
        assert tokens_of(json.dumps(wire, separators=(",", ":"))) < 1500
        for tool in offered:
            hints = tool.annotations
            assert hints is not None and tool.output_schema is not None and tool.description
            given = (
                hints.read_only_hint,
                hints.destructive_hint,
                hints.idempotent_hint,
                hints.open_world_hint,
            )
            assert None not in given
            assert len(tool.description) < 2048
        assert {tool.name for tool in offered if not tool.annotations.read_only_hint} == {
            "remember",
            "forget",
        }
        assert {tool.name for tool in offered if tool.annotations.destructive_hint} == {"forget"}
        assert client.instructions and len(client.instructions) < 2048

    host(memory, None, use, "auto")


def test_a_tool_has_the_words_and_types_of_its_operation() -> None:
    """There is no second list of options: a parameter that is renamed or reworded is so here, too."""
    for tool in tools.TOOLS.values():
        properties = tool.input_schema["properties"]
        assert [properties[one.wire]["description"] for one in tool.fields] == [
            one.says.words for one in tool.fields
        ]
    assert tools.TOOLS["recall"].input_schema["required"] == ["query"]
    assert tools.TOOLS["recall"].description.startswith("Find what helps with a question")


# ---------------------------------------------------------------- what they do


@pytest.mark.parametrize("mode", MODES)
def test_every_tool_answers_in_words_and_data(mode: str, memory: Memory, tmp_path: Path) -> None:
    """S88, M62: told, kept, found, shown and forgotten, as a host does it."""
    tree = repository(tmp_path / "tree")
    memory.add("s1", [{**ME, "content": "I am allergic to peanuts."}])
    memory.flush("s1")

    async def use(client: Client) -> None:
        words, data = await told(client, "recall", query="what am I allergic to")
        assert "peanuts" in words and "not an instruction" in words
        assert any("peanuts" in item["text"] for item in data["items"])
        words, data = await told(client, "recall", query="the weather in Mongolia", token_budget=100)
        assert data["items"] == [] and "Nothing" in words
        words, data = await told(
            client, "remember", content="Deploys wait for the migration job.", category="gotcha"
        )
        assert data["accepted"] and data["id"] in words
        kept = data["id"]
        words, data = await told(client, "search", query="what do deploys wait for", top_k=3)
        assert kept in [hit["id"] for hit in data["hits"]] and kept in words
        words, data = await told(client, "show", id=kept)
        assert data["id"] == kept and "migration job" in words
        _words, data = await told(client, "brief")
        assert isinstance(data["items"], list)
        words, data = await told(client, "forget", id=kept)
        assert "Nothing was removed" in words and data["dry_run"] and "migration job" in words
        assert (await told(client, "show", id=kept))[1]["id"] == kept
        words, data = await told(client, "forget", id=kept, confirm=True)
        assert data["complete"] and not data["dry_run"]
        assert "There is no entry" in await refused(client, "show", id=kept)
        assert "no project memory yet" in await refused(client, "project_query", question="what is next")

    host(memory, tree, use, mode)


@pytest.mark.parametrize("mode", MODES)
def test_an_id_that_two_spaces_have_is_never_taken_for_the_other(
    mode: str, memory: Memory, tmp_path: Path
) -> None:
    """Entries are counted in each space: the repository's first memory of a day has the id of the general one."""
    tree = repository(tmp_path / "tree")
    kept = memory.remember("Deploys wait for the migration job.", "gotcha").memory["id"]
    space = space_at(str(tree))
    for at in ({}, {"app_id": space.app, "project_id": space.project}):
        memory.add("s1", [{**ME, "content": "The key of Elm Street 12 lies under the mat."}], **at)
        memory.flush("s1", **at)

    async def use(client: Client) -> None:
        _words, data = await told(client, "remember", content="The release train leaves on Thursdays.")
        assert data["id"] == kept
        words, data = await told(client, "show", id=kept)
        assert "release train" in words and "migration job" in words
        assert len(data["others"]) == 1
        said = await refused(client, "forget", id=kept, confirm=True)
        general = next(one for one in re.findall(r"\S+#\w+", said) if "/default_project/" in one)
        words, _data = await told(client, "forget", id=general)
        assert "migration job" in words and "release train" not in words
        words, _data = await told(client, "forget", id=general, confirm=True)
        words, _data = await told(client, "show", id=kept)
        assert "release train" in words and "migration job" not in words
        words, data = await told(client, "forget", words=["Elm Street 12"], confirm=True)
        assert data["complete"] and data["removed"]
        assert "Nothing" in (await told(client, "recall", query="where lies the key of Elm Street 12"))[0]
        words, _data = await told(client, "recall", query="when does the release train leave", token_budget=9)
        assert "fits into a token_budget of 9" in words

    host(memory, tree, use, mode)


def test_the_repositorys_own_record_is_asked(memory: Memory, tmp_path: Path) -> None:
    """`project_query` answers from the repository the agent works in, with where it stands."""
    from cairn.projects import open_project

    tree = repository(tmp_path / "tree")
    (tree / "Makefile").write_text("test:\n\tpytest\n")
    open_project(tree).init()

    async def use(client: Client) -> None:
        words, data = await told(client, "project_query", question="how is this validated")
        assert data["answer"] and data["answer"].split()[0] in words

    host(memory, tree, use, "auto")
    host(memory, None, nowhere, "auto")


async def nowhere(client: Client) -> None:
    assert "no git repository" in await refused(client, "project_query", question="what is next")


@pytest.mark.parametrize("mode", MODES)
def test_bad_arguments_are_named_and_change_nothing(mode: str, memory: Memory) -> None:
    """The model reads the refusal and can do better: the argument, the trouble, what would be right."""

    async def use(client: Client) -> None:
        assert await refused(client, "recall") == "query: is missing."
        assert await refused(client, "recall", query=5) == "query: must be a text, not 5."
        assert "colour: unknown argument" in await refused(client, "recall", query="x", colour="red")
        assert "must be a whole number" in await refused(client, "recall", query="x", token_budget=True)
        assert "blank" in await refused(client, "recall", query="  ")
        assert "top_k is 1000" in await refused(client, "search", query="x", top_k=1000)
        assert "words: must be a list" in await refused(client, "forget", words="peanuts")
        words, data = await told(client, "remember", content="x is y", category="nonsense")
        assert not data["accepted"] and words.startswith("Not kept")
        assert "there are recall" in await refused(client, "dance")
        assert "There is no entry" in await refused(client, "show", id="nobody_ep_20260101_00000001")

    host(memory, None, use, mode)
    assert memory.memories.list().total == 0


def test_a_held_lock_is_said_and_the_next_try_works(memory: Memory) -> None:
    """Another process is writing the same note: the tool says so, and nothing is half done."""
    memory.parts.notebook._lock_seconds = 0.05

    async def use(client: Client) -> None:
        kept = (await told(client, "remember", content="Port 8000 is taken by the proxy."))[1]["id"]
        path = (await told(client, "show", id=kept))[1]["path"]
        with FileLocks(memory.parts.locks._directory).hold(path):
            assert "was not free" in await refused(
                client, "remember", content="Backups run at three at night."
            )
        assert (await told(client, "remember", content="Backups run at three at night."))[1]["accepted"]

    host(memory, None, use, "auto")


# ---------------------------------------------------------------- resources and prompts


@pytest.mark.parametrize("mode", MODES)
def test_pages_and_entries_are_resources(mode: str, memory: Memory) -> None:
    """A host can attach a page or an entry without a tool call."""
    kept = memory.remember("Deploys wait for the migration job.", "gotcha", mode="strict").memory["id"]
    memory.memories.refresh()

    async def use(client: Client) -> None:
        pages = (await client.list_resources()).resources
        assert any(str(page.uri).endswith("MEMORY.md") for page in pages)
        page = next(page for page in pages if str(page.uri).endswith("MEMORY.md"))
        assert "migration job" in (await client.read_resource(str(page.uri))).contents[0].text
        assert "migration job" in (await client.read_resource(f"cairn://entry/{kept}")).contents[0].text
        templates = (await client.list_resource_templates()).resource_templates
        assert {one.uri_template for one in templates} == {"cairn://entry/{id}", "cairn://page/{+path}"}
        for wrong in (
            "cairn://entry/mem_20200101_00000001",
            "file:///etc/passwd",
            "cairn://page/../../etc/passwd",
        ):
            with pytest.raises(MCPError):
                await client.read_resource(wrong)
        found = await client.get_prompt("recall", {"topic": "what do deploys wait for"})
        assert "migration job" in found.messages[0].content.text
        assert {one.name for one in (await client.list_prompts()).prompts} == {"brief", "recall"}
        assert "migration job" in (await client.get_prompt("brief")).messages[0].content.text
        for name, given in (("recall", {}), ("dance", {})):
            with pytest.raises(MCPError):
                await client.get_prompt(name, given)

    host(memory, None, use, mode)


# ---------------------------------------------------------------- the quick half

NEWER = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": {"name": "h", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {},
}
PLAIN = (
    ("tools/list", {}),
    ("resources/list", {}),
    ("resources/templates/list", {}),
    ("prompts/list", {}),
    ("tools/call", {"name": "recall", "arguments": {"query": "what do deploys wait for"}}),
    ("tools/call", {"name": "recall", "arguments": {"qery": "x"}}),
    ("tools/call", {"name": "brief"}),
    ("tools/call", {"name": "dance", "arguments": None}),
)
ODD = (
    ("tools/call", {"name": 7}),
    ("tools/call", {"name": "recall", "arguments": [1]}),
    ("tools/list", {"cursor": "next"}),
    ("prompts/get", {"name": "recall", "arguments": {"topic": "what do deploys wait for"}}),
    ("nonsense", {}),
)


def spoken(version: str | None, requests: Iterable[tuple[str, dict[str, Any]]]) -> list[bytes]:
    """The lines of a host that speaks one version; None is the one without a greeting."""
    hello = {
        "protocolVersion": version,
        "capabilities": {"roots": {}},
        "clientInfo": {"name": "h", "version": "1"},
    }
    said: list[dict[str, Any]] = (
        [{"id": "hi", "method": "initialize", "params": hello}, {"method": "notifications/initialized"}]
        if version
        else [{"id": "hi", "method": "server/discover", "params": {"_meta": NEWER}}]
    )
    more = {} if version else {"_meta": NEWER}
    said += [
        {"id": number, "method": method, "params": {**params, **more}}
        for number, (method, params) in enumerate(requests)
    ]
    return [json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in said]


class Waiting(io.BytesIO):
    """A host's lines; it hangs up when so many answers are there."""

    def __init__(self, lines: Iterable[bytes], written: io.BytesIO, answered: int) -> None:
        super().__init__(b"".join(lines))
        self._done = lambda: written.getvalue().count(b"\n") >= answered

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        if not line:
            until(self._done)
        return line


def answers(written: io.BytesIO) -> dict[Any, Any]:
    """What was answered by id, without how fresh the index was: it goes on between two halves."""
    found = {one["id"]: one for one in map(json.loads, written.getvalue().splitlines())}
    for one in found.values():
        one.get("result", {}).get("structuredContent", {}).pop("freshness", None)
    return found


@pytest.mark.parametrize("version", ["2024-11-05", "2025-11-25", None])
def test_the_quick_half_answers_as_the_sdk_does(version: str | None, memory: Memory) -> None:
    """The same lines to both halves: the same answers; what is not plain goes to the SDK with the greeting before it."""
    memory.remember("Deploys wait for the migration job.", "gotcha", mode="strict")
    memory.memories.refresh()

    def reply(message: dict[str, Any]) -> Mapping[str, Any]:
        return tools.reply(memory, message)

    lines = spoken(version, PLAIN)
    quick, whole = io.BytesIO(), io.BytesIO()
    assert Front(reply, None, quick).run(lines) == []
    asked = len(PLAIN) + 1
    serve_rest(reply, None, [lines[0]], Waiting(lines[1:], whole, asked), whole)
    assert answers(quick) == answers(whole)
    assert len(answers(quick)) == asked

    lines = spoken(version, (*PLAIN[:1], *ODD, *PLAIN))
    mixed, whole = io.BytesIO(), io.BytesIO()
    source = iter(lines)
    rest = Front(reply, None, mixed).run(source)
    assert json.loads(rest[-1])["id"] == 1  # the first odd one
    asked = len(PLAIN) + len(ODD) + 2
    serve_rest(reply, None, rest, Waiting(source, mixed, asked), mixed)
    serve_rest(reply, None, [lines[0]], Waiting(lines[1:], whole, asked), whole)
    assert answers(mixed) == answers(whole)
    assert mixed.getvalue().count(b'"id":"hi"') == 1


@pytest.mark.parametrize(
    "line",
    [
        b"not json\n",
        b"\n",
        b"[]\n",
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}\n',  # before any greeting
        b'{"jsonrpc": "2.0", "id": true, "method": "ping"}\n',
        spoken("1999-01-01", ())[0],
        b'{"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {"_meta": {"io.modelcontextprotocol/protocolVersion": "2027-01-01"}}}\n',
    ],
)
def test_the_quick_half_answers_nothing_it_does_not_know(line: bytes) -> None:
    """Whatever is not plain is left to the SDK, as it came."""
    written = io.BytesIO()
    assert Front(lambda _: {}, None, written).run([line]) == [line]
    assert written.getvalue() == b""


# ---------------------------------------------------------------- as a host starts it


def started(root: Path, folder: Path, **more: str) -> StdioServerParameters:
    environment = {"CAIRN_MEMORY__ROOT": str(root), "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"], **more}
    return StdioServerParameters(
        command=sys.executable, args=["-m", "cairn.surfaces.cli", "mcp"], env=environment, cwd=folder
    )


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    yield tmp_path / "root"
    link.ask(tmp_path / "root", {"op": "end"}, LONG)


@pytest.mark.slow
def test_over_stdio_two_hosts_share_one_warm_process(root: Path, tmp_path: Path) -> None:
    """The process that hooks use answers, so both hosts see what either was told, in either protocol."""

    async def run() -> None:
        async with (
            Client(started(root, tmp_path)) as one,
            Client(started(root, tmp_path), mode="legacy") as other,
        ):
            assert one.protocol_version > other.protocol_version
            await told(one, "remember", content="Deploys wait for the migration job.", category="gotcha")
            pid = until(lambda: link.ask(root, {"op": "ping"}, LONG))["pid"]
            asked = {"op": "tool", "name": "recall", "arguments": {"query": "what do deploys wait for"}}
            until(lambda: "migration job" in str(link.ask(root, asked, LONG)), "it is indexed")
            words, _ = await told(other, "recall", query="what do deploys wait for")
            assert "migration job" in words
            assert "query: is missing" in await refused(other, "recall")
            assert (link.ask(root, {"op": "ping"}, LONG) or {})["pid"] == pid
            # It ends under a host's feet: the next call starts another.
            link.ask(root, {"op": "end"}, LONG)
            words, _ = await told(one, "recall", query="what do deploys wait for")
            assert "migration job" in words
            # And what the person said is told by its words before that is up.
            with cairn.open_blocking(root, background=False) as memory:
                memory.add("s1", [{**ME, "content": "The deploy key of osprey lives in the vault."}])
                memory.flush("s1")
                memory.sync()
            link.ask(root, {"op": "end"}, LONG)
            until(lambda: not link.socket_path(root).exists())
            words, data = await told(one, "recall", query="where does the deploy key of osprey live")
            assert "vault" in words and "by its words alone" in words and data["items"]
            until(lambda: link.ask(root, {"op": "ping"}, LONG), "the one that it started comes up")

    asyncio.run(run())


@pytest.mark.slow
def test_however_often_it_ends_no_call_is_refused(root: Path, tmp_path: Path) -> None:
    """Calls of two hosts meet its end at any moment: each is answered, by that process or the next."""
    kept: list[str] = []
    ended = threading.Event()

    async def use(client: Client) -> None:
        while not ended.is_set():
            kept.append((await told(client, "remember", content=f"Crate {uuid4()} holds lamps."))[1]["id"])
            await told(client, "brief")

    async def run() -> None:
        async with Client(started(root, tmp_path)) as one, Client(started(root, tmp_path)) as other:
            ending = asyncio.create_task(asyncio.to_thread(end_often))
            try:
                await asyncio.gather(use(one), use(one), use(other))
            finally:
                ended.set()
                await ending

    def pid() -> int:
        return int((link.ask(root, {"op": "ping"}, LONG) or {"pid": 0})["pid"])

    def end_often() -> None:
        for _ in range(3):
            was, enough = until(pid), len(kept) + 3
            until(lambda enough=enough: len(kept) > enough or ended.is_set())
            link.ask(root, {"op": "end"}, LONG)
            until(lambda was=was: pid() not in {0, was} or ended.is_set())
        ended.set()

    asyncio.run(run())
    with cairn.open_blocking(root, background=False) as memory:
        assert all(memory.show(one) for one in kept)


@contextmanager
def held_open(root: Path) -> Iterator[Memory]:
    """The process that holds the memory open, in this one, so that a test can reach into it."""
    with cairn.open_blocking(root, background=False) as memory, answering(memory):
        yield memory


def test_over_stdio_every_tool_in_both_protocols(root: Path, tmp_path: Path) -> None:
    """A host's own process each: told, found, shown and forgotten; what is wrong is named; a held lock is said."""
    tree = repository(tmp_path / "tree")

    async def use(memory: Memory, mode: str) -> None:
        async with Client(started(root, tree), mode=mode) as client:
            assert {tool.name for tool in (await client.list_tools()).tools} == set(tools.TOOLS)
            kept = (await told(client, "remember", content=f"Deploys wait for job {mode}."))[1]["id"]
            path = (await told(client, "show", id=kept))[1]["path"]
            assert kept in (await told(client, "search", query=f"job {mode}"))[0]
            assert "Deploys wait" in (await told(client, "recall", query="what do deploys wait for"))[0]
            assert isinstance((await told(client, "brief"))[1]["items"], list)
            assert "no project memory yet" in await refused(client, "project_query", question="what is next")
            assert await refused(client, "recall", query=5) == "query: must be a text, not 5."
            assert "colour: unknown argument" in await refused(client, "brief", colour="red")
            assert "top_k is 1000" in await refused(client, "search", query="x", top_k=1000)
            assert "there are recall" in await refused(client, "dance")
            with FileLocks(memory.parts.locks._directory).hold(path):
                late = await refused(client, "remember", content=f"Backups run at {mode}.")
                assert "was not free" in late
            assert (await told(client, "remember", content=f"Backups run at {mode}."))[1]["accepted"]
            assert (
                await client.read_resource(f"cairn://entry/{kept}")
            ).contents  # the SDK answers from here on
            assert await refused(client, "recall", query=5) == "query: must be a text, not 5."
            assert (await told(client, "forget", id=kept, confirm=True))[1]["complete"]
            assert "There is no entry" in await refused(client, "show", id=kept)

    with held_open(root) as memory:
        memory.parts.notebook._lock_seconds = 0.05
        for mode in MODES:
            asyncio.run(use(memory, mode))


def test_over_stdio_a_full_disk_is_said_and_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept by halves; with room again the same call is done, in either protocol."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))

    async def use(disk: Path, mode: str) -> None:
        async with Client(started(disk / "root", tmp_path), mode=mode) as client:
            await told(client, "remember", content=f"The boat of {mode} lies in the harbour.")
            assert "harbour" in (await told(client, "recall", query="where does the boat lie"))[0]
            ballast = fill(disk)
            long = f"The lantern of {mode} hangs in the hall." + " It is lit at night." * 400
            assert "space" in (await refused(client, "remember", content=long)).lower()
            assert "harbour" in (await told(client, "recall", query="where does the boat lie"))[0]
            ballast.unlink()
            assert (await told(client, "remember", content=long))[1]["accepted"]

    with small_disk(tmp_path / "disk") as disk, held_open(disk / "root"):
        for mode in MODES:
            asyncio.run(use(disk, mode))


@pytest.mark.slow
def test_a_root_that_cannot_be_had_is_said_in_every_call(root: Path, tmp_path: Path) -> None:
    """A file stands where the root should be: the server runs, and each call says what is wrong."""
    root.write_text("not a folder")

    async def run() -> None:
        async with Client(started(root, tmp_path)) as client:
            assert len((await client.list_tools()).tools) == len(tools.TOOLS)
            assert str(root) in await refused(client, "recall", query="anything")
            assert str(root) in await refused(client, "remember", content="Deploys wait.")

    asyncio.run(run())
    assert root.read_text() == "not a folder"


@pytest.mark.slow
def test_switched_off_it_offers_nothing(root: Path, tmp_path: Path) -> None:
    """CAIRN_DISABLE, or a repository that wants no memory: no tools, and a call says why."""
    (tmp_path / ".cairn").mkdir()
    (tmp_path / ".cairn" / "agents-off").touch()

    async def run() -> None:
        async with Client(started(root, tmp_path)) as client:
            assert (await client.list_tools()).tools == []
            assert "switched off" in await refused(client, "recall", query="anything")

    asyncio.run(run())


@pytest.mark.slow
def test_a_host_that_hangs_up_at_once_has_every_answer(root: Path, tmp_path: Path) -> None:
    """`cairn mcp < requests`: what was asked before the end is answered, whichever half of the server it came to."""
    lines = spoken(
        "2025-11-25",
        [
            ("nonsense", {}),
            ("tools/call", {"name": "remember", "arguments": {"content": "The kiln is fired at dusk."}}),
            ("ping", {}),
        ],
    )
    asked = started(root, tmp_path)
    done = subprocess.run(
        [asked.command, *asked.args],
        env={**os.environ, **(asked.env or {})}, cwd=tmp_path, input=b"".join(lines), capture_output=True, timeout=120,
    )  # fmt: skip
    found = {one["id"]: one for one in map(json.loads, done.stdout.splitlines())}
    assert found.keys() == {"hi", 0, 1, 2}
    assert "error" in found[0]
    assert "is kept" in found[1]["result"]["content"][0]["text"]


def test_without_the_extra_it_says_what_to_install() -> None:
    """The package is an extra: its absence is one sentence with the command to mend it."""
    program = (
        "import sys; sys.modules['mcp'] = None; from cairn.surfaces.cli import main; sys.exit(main(['mcp']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, stdin=subprocess.DEVNULL
    )
    assert done.returncode == 6
    assert done.stdout == "" and "pip install 'cairn-memory[mcp]'" in done.stderr
