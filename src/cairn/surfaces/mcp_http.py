"""The memory over MCP beside the HTTP API, at /mcp: the same tools, under the same guard and the caller's own grant.

    POST /mcp -> Guard (token, Host, Origin, size) -> SDK, no session kept -> the tool, in a thread -> JSON, or a stream

A client that takes event streams gets one, one that takes JSON alone gets JSON. The SDK is imported when somebody asks
for the first time. `?user_id=`, `?app_id=` and `?project_id=` say whose memory and which space an agent works in.
"""

from __future__ import annotations

import asyncio
import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.requests import Request

from cairn.aio import AsyncMemory
from cairn.errors import NotOffered
from cairn.surfaces.guard import ASGIScope, Receive, Refusal, Send, note_call
from cairn.surfaces.routes import read_query

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

_ABOUT = ("user_id", "app_id", "project_id")


@dataclass
class _Running:
    """The two managers of the SDK (event streams, JSON) and the task that holds them open."""

    streams: StreamableHTTPSessionManager
    plain: StreamableHTTPSessionManager
    task: asyncio.Task[None]
    stop: asyncio.Event


class McpEndpoint:
    """An ASGI application for one path."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._running: _Running | None = None
        self._turn = asyncio.Lock()

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        request = Request(scope)
        request.state.route = "/mcp"
        if request.method != "POST":
            # No session is kept, so there is no stream to wait on and none to end.
            raise Refusal(
                405,
                "BAD_REQUEST",
                "MCP is spoken here with POST; no session is kept.",
                headers={"allow": "POST"},
            )
        unknown = [name for name in read_query(request) if name not in _ABOUT]
        if unknown:
            raise Refusal(
                422, "INVALID_INPUT", f"{unknown[0][:80]}: unknown; /mcp takes {', '.join(_ABOUT)}."
            )
        running = await self._started()
        takes_streams = "text/event-stream" in request.headers.get("accept", "")
        manager = running.streams if takes_streams else running.plain
        await manager.handle_request(scope, receive, send)

    async def close(self) -> None:
        """End what is open; calls that run are answered with an error by the SDK."""
        if self._running is not None:
            self._running.stop.set()
            await self._running.task

    async def _started(self) -> _Running:
        async with self._turn:
            if self._running is None:
                if importlib.util.find_spec("mcp") is None:
                    from cairn.surfaces.mcp_server import MISSING

                    raise NotOffered(MISSING)
                self._running = await self._start()
            return self._running

    async def _start(self) -> _Running:
        managers = await asyncio.to_thread(self._managers)
        ready, stop = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with managers[0].run(), managers[1].run():
                ready.set()
                await stop.wait()

        task = asyncio.create_task(hold())
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({task, waiting}, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        if task.done():
            task.result()
        return _Running(*managers, task, stop)

    def _managers(self) -> tuple[StreamableHTTPSessionManager, StreamableHTTPSessionManager]:
        from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

        from cairn.surfaces.mcp_server import build_server

        server = build_server(self._answer, None)
        size = self._memory.settings.server.max_body_bytes
        streams, plain = (
            StreamableHTTPSessionManager(
                server, json_response=plain, stateless=True, max_request_body_size=size
            )
            for plain in (False, True)
        )
        return streams, plain

    async def _answer(self, message: dict[str, Any], request: Request | None) -> Mapping[str, Any]:
        from cairn.agents import tools

        assert request is not None
        about = {name: value for name, value in read_query(request).items() if value}
        grant, state = request.state.grant, request.scope["state"]
        given = message.get("arguments")
        if tool := tools.TOOLS.get(str(message.get("name"))):
            note_call(state, tool.operation, {**(given if isinstance(given, dict) else {}), **about})
        told: Mapping[str, Any] = await self._memory.pools.run(
            lambda: tools.reply(self._memory.memory, {**message, "about": about}, grant),
            writes=tools.may_write(message),
        )
        if "error" in told:  # MCP tells of it in an answer that is a success to HTTP
            state["code"] = "REFUSED"
        return told
