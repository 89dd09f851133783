"""MCP at /mcp beside the API: the official client in both protocols, with streams and with JSON, under the guard."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx2
import pytest
import uvicorn
from mcp import Client, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client

from cairn.agents import link
from cairn.aio import AsyncMemory
from cairn.config import load
from cairn.engines.locks import FileLocks
from cairn.surfaces.http import build_app
from tests.crash.test_full_disk import fill, small_disk
from tests.surfaces.served import free_port, serving
from tests.surfaces.test_mcp import MODES, refused, told
from tests.waiting import LONG, until

SECRETS = {
    "all": "all-0123456789abcdef",
    "reader": "reader-0123456789abcdef",
    "alice": "alice-0123456789abcdef",
    "tides": "s3cret-token-for-tides-alone",
}
FORMS = ("streams", "json")


@contextlib.asynccontextmanager
async def host(
    port: int, mode: str = "auto", form: str = "streams", token: str = "", query: str = ""
) -> AsyncIterator[Client]:
    """The official client; with the form "json" it says that it takes nothing else."""

    async def only_json(request: httpx2.Request) -> None:
        if form == "json":
            request.headers["accept"] = "application/json"

    headers = {"Authorization": f"Bearer {SECRETS[token]}"} if token else {}
    hooks = {"request": [only_json]}
    async with httpx2.AsyncClient(headers=headers, event_hooks=hooks, trust_env=False, timeout=LONG) as web:
        line = streamable_http_client(f"http://127.0.0.1:{port}/mcp{query}", http_client=web)
        async with Client(line, mode=mode) as client:
            yield client


@contextlib.contextmanager
def beside(root: Path) -> Iterator[tuple[AsyncMemory, int]]:
    """A real server in a thread of this process, so that a test can reach into the memory it serves."""
    memory = AsyncMemory(load(root))
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(build_app(memory), port=port, log_config=None, access_log=False))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        until(lambda: server.started, "the server did not come up")
        yield memory, port
    finally:
        server.should_exit = True
        thread.join()


def test_every_tool_in_both_protocols_as_stream_and_as_json(tmp_path: Path) -> None:
    """Told, found, shown and forgotten; what is wrong is named; a held lock is said, and the next try works."""

    async def use(memory: AsyncMemory, port: int, mode: str, form: str) -> None:
        async with host(port, mode, form) as client:
            assert len((await client.list_tools()).tools) == 7
            words, data = await told(client, "remember", content=f"Deploys wait for job {mode} {form}.")
            kept = data["id"]
            assert (await told(client, "show", id=kept))[1]["id"] == kept
            until(lambda: not memory.memory.parts.indexer.status().pending, "it is indexed")
            assert kept in (await told(client, "search", query=f"job {mode} {form}"))[0]
            assert isinstance((await told(client, "brief"))[1]["items"], list)
            assert isinstance((await told(client, "recall", query="deploys"))[1]["items"], list)
            assert (await client.read_resource(f"cairn://entry/{kept}")).contents
            assert await refused(client, "recall", query=5) == "query: must be a text, not 5."
            assert "no git repository" in await refused(client, "project_query", question="what is next")
            path = (await told(client, "show", id=kept))[1]["path"]
            with FileLocks(memory.memory.parts.locks._directory).hold(path):
                words = await refused(client, "remember", content=f"Backups run at {mode} {form}.")
                assert "was not free" in words
            assert (await told(client, "forget", id=kept, confirm=True))[1]["complete"]

    with beside(tmp_path / "root") as (memory, port):
        memory.memory.parts.notebook._lock_seconds = 0.05
        for mode in MODES:
            for form in FORMS:
                asyncio.run(use(memory, port, mode, form))


def test_a_full_disk_is_said_and_passes(tmp_path: Path) -> None:
    """P9: the tool says what is wrong and keeps nothing by halves; with room again the same call is done, in either
    protocol.
    """

    async def use(port: int, disk: Path, mode: str) -> None:
        async with host(port, mode) as client:
            ballast = fill(disk)
            long = f"The lantern of {mode} hangs in the hall." + " It is lit at night." * 400
            words = await refused(client, "remember", content=long)
            assert "space" in words.lower()
            ballast.unlink()
            assert (await told(client, "remember", content=long))[1]["accepted"]

    with small_disk(tmp_path / "disk") as disk, beside(disk / "root") as (_memory, port):
        for mode in MODES:
            asyncio.run(use(port, disk, mode))


def test_under_the_same_guard_and_by_the_callers_own_grant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No token, a foreign page or a strange host: refused; a token reads, writes and sees what it may, no more."""
    (tmp_path / "run").mkdir()
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "run"))
    root = tmp_path / "root"
    reach = {"all": "", "reader": " r", "alice": " rw owner=alice", "tides": " rw project=tides"}
    tokens = ";".join(SECRETS[name] + reach[name] for name in SECRETS)
    with serving(root, env={"CAIRN_SERVER__TOKENS": tokens, "CAIRN_EMBEDDING__PROVIDER": "none"}) as server:
        call = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
        own = {"Authorization": f"Bearer {SECRETS['all']}", "Accept": "application/json"}

        def status(path: str = "/mcp", method: str = "POST", **more: str) -> int:
            found, _ = server.call(method, path, call, headers={**own, **more})
            return int(found)

        assert status() == 200
        assert status(Authorization="Bearer wrong") == 401
        assert status(Host="evil.example") == 403
        assert status(Origin="http://evil.example") == 403
        assert status(method="GET") == status(method="DELETE") == 405
        assert status("/mcp?colour=red") == 422

        def indexed() -> None:
            """What was kept is found from here on; an agent's search waits for nothing."""
            until(lambda: not server.call("GET", "/health", headers=own)[1]["cascade"]["pending"])

        async def use() -> None:
            async with host(server.port, token="all") as client:
                await told(
                    client, "remember", content="Deploys wait for the migration job.", category="gotcha"
                )
            indexed()
            async with host(server.port, token="reader") as client:
                assert "migration" in (await told(client, "search", query="migration job"))[0]
                assert "may only read" in await refused(client, "remember", content="Ports are open.")
            async with host(server.port, token="all", query="?project_id=tides&user_id=bob") as client:
                await told(client, "remember", content="Tides turn at noon.", category="fact")
                indexed()
                assert "tides" in (await told(client, "search", query="tides"))[1]["hits"][0]["project_id"]
            async with host(server.port, token="alice") as client:
                await told(client, "remember", content="I sail on Sundays.", scope="user")
                indexed()
                _words, data = await told(client, "search", query="sail job tides")
                assert [hit["owner_id"] for hit in data["hits"]] == ["alice"]
                assert "Sundays" in (await told(client, "recall", query="when do I sail"))[0]
                # What is the project's own is not there for this token.
                assert (await told(client, "recall", query="what do deploys wait for"))[1]["items"] == []
                assert "migration" not in (await told(client, "brief"))[0]
            async with host(server.port, token="alice", query="?user_id=bob") as client:
                assert "token does not reach" in await refused(client, "recall", query="tides")
            # A token of one project gets nothing from the general space, which others are told of, too.
            async with host(server.port, token="tides", query="?project_id=tides") as client:
                assert "noon" in (await told(client, "recall", query="when do tides turn"))[0]
                tides = (await told(client, "search", query="tides"))[1]["hits"][0]["id"]
                assert "noon" in (await told(client, "show", id=tides))[0]
                words = (await told(client, "forget", id=tides))[0]
                assert "would go" in words and "migration" not in words
                assert (await told(client, "recall", query="what do deploys wait for"))[1]["items"] == []
            # A host that starts `cairn mcp` speaks to this server: no second process opens the memory.
            stdio = StdioServerParameters(
                command=sys.executable,
                args=["-m", "cairn.surfaces.cli", "mcp"],
                env={"CAIRN_MEMORY__ROOT": str(root), "XDG_RUNTIME_DIR": os.environ["XDG_RUNTIME_DIR"]},
                cwd=tmp_path,
            )
            async with Client(stdio) as client:
                assert "migration" in (await told(client, "search", query="migration job"))[0]

        asyncio.run(use())
        log = root / ".server" / "audit.jsonl"

        def seen() -> set[tuple[str, str, str]]:
            lines = log.read_text(encoding="utf-8").split("\n")[:-1]  # a call is logged once it is answered
            return {(one["token"], one["operation"], one["outcome"]) for one in map(json.loads, lines)}

        wanted = {
            ("settings-1", "remember", "done"),
            ("settings-2", "search", "done"),
            ("settings-2", "remember", "REFUSED"),
            ("settings-3", "recall", "REFUSED"),
        }
        until(lambda: seen() >= wanted, "the audit log has what was asked here")
        assert "migration" not in log.read_text(encoding="utf-8")
        assert (link.ask(root, {"op": "ping"}, LONG) or {})["pid"] == server.process.pid
        assert "error" not in json.dumps(server.call("GET", "/health", headers=own)[1])
