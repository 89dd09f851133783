"""The HTTP server: the operations as routes, one envelope for every answer.

`build_app` makes the ASGI application (tests drive it as it is); `serve` runs it until told to stop and lets
what was acknowledged finish. Every route exists under /api/v1 and /api/v2.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route as StarletteRoute

from cairn.aio import AsyncMemory
from cairn.config import Settings
from cairn.engines.audit import AuditLog
from cairn.engines.tokens import tokens_of
from cairn.errors import CairnError, Misconfigured, Unavailable
from cairn.memory import Memory
from cairn.operations.table import Asked, Operation
from cairn.surfaces import stream
from cairn.surfaces.connections import Connections, share_of_handles
from cairn.surfaces.guard import (
    ASGIScope,
    Guard,
    Metrics,
    Receive,
    Refusal,
    Send,
    envelope,
    note_call,
    refusal_for,
)
from cairn.surfaces.mcp_http import McpEndpoint
from cairn.surfaces.routes import ROUTES, Route, as_json, fields_in, read_body, read_query
from cairn.types import Space
from cairn.version import VERSION
from cairn.web.visitors import Visitors

if TYPE_CHECKING:
    from cairn.engines.postgres_servers import Servers
    from cairn.web.pages import WebPages

log = logging.getLogger("cairn.http")

VERSIONS = ("/api/v1", "/api/v2")
EVENTS = "/events"


Handler = Callable[[Request], Awaitable[Response]]

_PREPARE_SECONDS = 2.0
_QUIET_SECONDS = 0.25
_LONGEST_WAIT_SECONDS = 20.0


_STREAMS = 512  # of a server that counts no connections


class _Routes:
    """Turns the table into Starlette routes bound to one memory."""

    def __init__(
        self,
        memory: AsyncMemory,
        metrics: Metrics,
        connections: Connections | None,
        stopping: Callable[[], bool],
        visitors: Visitors,
    ) -> None:
        self.memory = memory
        self.stopping = stopping
        self.streams = stream.Streams(max(1, (connections.limit if connections else _STREAMS) // 2))
        self.metrics = metrics
        self.connections = connections
        self.mcp = McpEndpoint(memory)
        self.visitors = visitors

    def apart(self) -> list[StarletteRoute]:
        """What is served beside the operations."""
        return [
            StarletteRoute("/mcp", self.mcp),
            StarletteRoute("/health", self.health, methods=["GET"]),
            StarletteRoute("/ready", self.ready, methods=["GET"]),
            StarletteRoute("/metrics", self.show_metrics, methods=["GET"]),
            StarletteRoute("/openapi.json", self.openapi, methods=["GET"]),
            StarletteRoute("/docs", self.docs, methods=["GET"]),
            StarletteRoute("/", self.page, methods=["GET"]),
            StarletteRoute("/view/{path:path}", self.page, methods=["GET", "POST"]),
        ]

    @cached_property
    def operations(self) -> dict[tuple[str, str], Handler]:
        """What serves the operations, by method and path."""
        handlers = {(route.method, route.path): self._handler(route) for route in ROUTES}
        return {
            (method, prefix + path): handler
            for (method, path), handler in handlers.items()
            for prefix in VERSIONS
        }

    def _handler(self, route: Route) -> Handler:
        row = route.operation
        room = row.room_in(self.memory.memory)

        async def handle(request: Request) -> Response:
            request.state.route = route.path
            query = read_query(request)
            body = await read_body(request, route) if route.body else {}
            grant, request_id = request.state.grant, request.state.request_id

            def work() -> Response:
                fields = fields_in(route, request.path_params, query, body)
                about = {name: value for name, value in fields.items() if name not in row.forgets}
                note_call(request.scope["state"], row.name, about)
                if route.path == EVENTS and stream.is_wanted(request.headers):
                    return self._stream(row, room, fields, request)
                data = row.ask(room, fields, grant)
                late = bool(row.late) and data.get("status") == row.late
                answer = {**(data if row.flat else {}), "request_id": request_id, "data": data}
                return as_json(answer, 202 if late else row.status)

            return await self.memory.pools.run(work, writes=row.writes, apart=row.apart)

        return handle

    def _stream(self, row: Operation, room: Any, fields: dict[str, Any], request: Request) -> Response:
        """Events that go on, for a caller who may ask for them at all."""
        if row.allow is not None:
            row.allow(Asked(room, fields, request.state.grant))
        after = stream.number_of(request.headers)
        space = Space(fields["app_id"], fields["project_id"])
        return stream.respond(
            room.parts.events,
            space,
            fields["owner"],
            fields["after"] if after is None else after,
            lambda: self.stopping() or not request.state.still(),
            self.streams,
        )

    async def health(self, request: Request) -> Response:
        request.state.route = "/health"
        return as_json(await self._standing())

    async def ready(self, request: Request) -> Response:
        """200 when calls should be sent here, 503 while the index is made or the server is about to end."""
        request.state.route = "/ready"
        status = await self._standing()
        is_ready = status["ready"] and not self.stopping()
        return as_json(status | {"ready": is_ready}, 200 if is_ready else 503)

    async def _standing(self) -> dict[str, Any]:
        """How the memory stands; where not even that can be looked up, why."""
        try:
            found: dict[str, Any] = await self.memory.health()
        except Unavailable as error:
            return {"status": "degraded", "version": VERSION, "reasons": [str(error)], "ready": False}
        return found

    async def show_metrics(self, request: Request) -> Response:
        request.state.route = "/metrics"
        gauges = await self.memory.gauges()
        if self.connections is not None:
            gauges |= self.connections.gauges()
        return PlainTextResponse(
            self.metrics.render(gauges), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @cached_property
    def pages(self) -> WebPages:
        """The page, loaded when somebody first looks at it."""
        from cairn.web.pages import WebPages

        return WebPages(
            self.memory,
            self.visitors,
            lambda error: refusal_for(error).status,
            self.stopping,
            self.streams.counted,
        )

    async def prepare(self) -> None:
        """Load the page while nobody waits for it, a moment after the server began."""
        await asyncio.sleep(_PREPARE_SECONDS)
        await _quiet(self.memory)
        with contextlib.suppress(CairnError, OSError):  # whoever asks is told
            pages = await asyncio.to_thread(lambda: self.pages)
            await self.memory.pools.run(pages.prepare, writes=False)
            await asyncio.to_thread(_import_what_hooks_need)

    async def page(self, request: Request) -> Response:
        pages = await asyncio.to_thread(lambda: self.pages)
        return await pages(request)

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI description, made when somebody asks for it."""
        from cairn.surfaces.openapi import describe

        return describe(ROUTES, VERSIONS)

    async def openapi(self, request: Request) -> Response:
        request.state.route = "/openapi.json"
        return as_json(self.document)

    async def docs(self, request: Request) -> Response:
        request.state.route = "/docs"
        return HTMLResponse(Path(__file__).with_name("docs.html").read_text(encoding="utf-8"))


class _Direct:
    """Serves operations whose path is the same for every call from a table; the framework matches all others.

    The framework tries one route after another, and there are hundreds: it gets those of the operations with the first
    call it has to match.
    """

    def __init__(self, app: Starlette, handlers: Mapping[tuple[str, str], Handler]) -> None:
        self._app = app
        self._handlers = handlers
        self._is_whole = False

    def _complete(self) -> None:
        self._is_whole = True
        for (method, path), handler in self._handlers.items():
            self._app.router.routes.append(StarletteRoute(path, handler, methods=[method]))

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        # A path with a variable in it is no key that a call could name.
        known = scope["type"] == "http" and self._handlers.get((scope["method"], scope["path"]))
        if not known or "{" in scope["path"]:
            if not self._is_whole and scope["type"] == "http" and scope["path"].startswith(VERSIONS):
                self._complete()
            await self._app(scope, receive, send)
            return
        # A form that is no form is the caller's fault (400) only where the framework sees that it runs inside an app.
        scope["app"] = self._app
        request = Request(scope, receive)
        try:
            response = await known(request)
        except (HTTPException, Refusal, CairnError) as error:
            response = await _framework_refusal(request, error)
        await response(scope, receive, send)


async def _framework_refusal(request: Request, error: Exception) -> Response:
    """The framework's own 404 and 405, and anything a route raised, in the one envelope."""
    if isinstance(error, HTTPException):
        words = {
            404: f"There is nothing at {request.url.path}. See /docs for the routes.",
            405: f"{request.method} is not possible at {request.url.path}. See /docs for the routes.",
        }
        code = {404: "NOT_FOUND"}.get(error.status_code, "BAD_REQUEST")
        message = words.get(error.status_code, str(error.detail))
        refusal = Refusal(error.status_code, code, message, headers=dict(error.headers or {}))
    else:
        refusal = refusal_for(error)
    request.state.code = refusal.code
    body = envelope(refusal, request.state.request_id, request.url.path)
    return Response(body, refusal.status, headers=refusal.headers, media_type="application/json")


def build_app(
    memory: AsyncMemory,
    *,
    own: bool = True,
    hooks: bool = False,
    connections: Connections | None = None,
    stopping: Callable[[], bool] = lambda: False,
) -> Guard:
    """The ASGI application over `memory`; with `own` its lifetime follows the server's.

    With `hooks` it answers hooks and `cairn mcp` of this user, too, as the warm process does. The figures of `connections`
    are added to those of /metrics. What would go on for ever ends when `stopping` says so.
    """
    metrics = Metrics()
    visitors = Visitors(memory.settings.server_dir, writes=memory.settings.server.page_writes)
    routes = _Routes(memory, metrics, connections, stopping, visitors)

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        async with contextlib.AsyncExitStack() as open_now:
            if own:
                await open_now.enter_async_context(memory)
            if hooks:
                held = await asyncio.to_thread(_answer_hooks, memory.memory)
                open_now.push_async_callback(asyncio.to_thread, held.close)
                preparing = asyncio.create_task(routes.prepare())
                open_now.callback(preparing.cancel)
            open_now.push_async_callback(routes.mcp.close)
            yield

    inner = Starlette(
        routes=routes.apart(),
        lifespan=lifespan,
        exception_handlers={
            HTTPException: _framework_refusal,
            Refusal: _framework_refusal,
            CairnError: _framework_refusal,
            Exception: _framework_refusal,
        },
    )
    # Redirects to a path with a slash would hide a wrong address behind a 307.
    inner.router.redirect_slashes = False
    place, server = memory.settings.server_dir, memory.settings.server
    direct = _Direct(inner, routes.operations)
    return Guard(
        direct,
        server,
        observe=metrics.observe,
        tokens=tokens_of(memory.settings),
        audit=AuditLog(place, server.audit_bytes),
        visitors=visitors,
    )


def _listeners(host: str, port: int, backlog: int) -> list[socket.socket]:
    """Sockets that listen at an address, taken before anything else is opened.

    Raises:
        Misconfigured: the address is taken, not of this machine, or not allowed.
    """
    made: list[socket.socket] = []
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, address in dict.fromkeys((info[0], info[4]) for info in found):
            made.append(socket.create_server(address, family=family, backlog=backlog))
    except (OSError, OverflowError) as error:
        for one in made:
            one.close()
        trouble = getattr(error, "strerror", None) or str(error)
        raise Misconfigured(
            f"The server could not start on {host}:{port}: {trouble.lower()}. Choose another with --port or --host.",
            setting="server.port",
        ) from None
    return made


def _answer_hooks(memory: Memory) -> contextlib.ExitStack:
    """Answer hooks and `cairn mcp` of this user over the root's socket, where it can be had; until it is closed."""
    from cairn.agents.warm import answering

    held = contextlib.ExitStack()
    try:
        if held.enter_context(answering(memory)) is None:
            log.info("another process answers the hooks of this root")
    except OSError as error:
        log.warning("hooks are not answered here: %s", error)
    return held


async def _quiet(memory: AsyncMemory) -> None:
    """Wait until nobody has been served for a moment, for some seconds at most: what is loaded ahead slows nobody down."""
    await asyncio.to_thread(memory.parts.traffic.give_way, _QUIET_SECONDS, _LONGEST_WAIT_SECONDS)


def _join_servers(memory: Memory, is_up: Callable[[], bool]) -> Servers | None:
    """Take part in the servers of a root that several share, once the index is there; None where there are none."""
    settings = memory.settings.server
    database = memory.parts.database()
    if database is None or settings.advertise == "none":
        return None
    from cairn.engines.postgres_servers import Servers, reached_at

    address, place = (
        (settings.advertise, "")
        if settings.advertise
        else reached_at(settings.host, settings.port, database.url)
    )
    made = Servers(
        database, address, place, lambda: is_up() and memory.parts.indexer.status().state != "rebuilding"
    )
    made.start()
    return made


def _read_languages() -> None:
    """The words of each language, from their files: the first call would wait for them."""
    from cairn.language import tongues

    tongues.known()


def _import_what_calls_need() -> None:
    """Load what the first calls use. An import that runs out of handles halfway cannot be made again."""
    import numpy  # noqa: F401, ICN001 -- searching and embedding

    _read_languages()


def _import_what_hooks_need() -> None:
    """Load what the first hook uses: a prompt would wait for it."""
    import cairn.agents.taking  # noqa: F401


def _settle_down() -> None:
    """What the start left behind goes; what it made stays, and collections need not walk it again."""
    from cairn.engines import allocator

    gc.collect()
    allocator.trim()
    gc.freeze()


def _address(host: str, port: int) -> str:
    """Where a browser of this machine finds what listens on `host`.

    >>> _address("0.0.0.0", 8000), _address("::1", 8000)
    ('http://127.0.0.1:8000', 'http://[::1]:8000')
    """
    near = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)  # noqa: S104 -- what to show, not to bind
    return f"http://[{near}]:{port}" if ":" in near else f"http://{near}:{port}"


def serve(
    settings: Settings,
    *,
    ready: Callable[[str], None] | None = None,
    reread: Callable[[], Settings] | None = None,
) -> None:
    """Run the server until SIGINT or SIGTERM; calls that have begun are answered before it ends.

    Args:
        settings: What holds at the start.
        ready: Told the address once the server listens.
        reread: Reads the settings again, for SIGHUP; without it that signal changes nothing.

    Raises:
        Misconfigured: the address is taken, or binding beyond this machine without a token.
    """
    import uvicorn

    from cairn.engines import allocator
    from cairn.surfaces.hangup import Draining, Hangup
    from cairn.surfaces.logs import configure

    allocator.settle()
    configure(settings.logging)
    limit, backlog = share_of_handles(settings.server.max_connections)
    connections = Connections(limit, settings.server.header_timeout_seconds)
    listeners = _listeners(settings.server.host, settings.server.port, backlog)
    # A request re-takes the interpreter lock after each flush to disk; it should not wait 5 ms for background text work.
    sys.setswitchinterval(0.0005)
    memory = AsyncMemory(settings)
    servers: list[Draining] = []
    app = build_app(
        memory, hooks=True, connections=connections, stopping=lambda: any(one.is_ending() for one in servers)
    )
    config = uvicorn.Config(
        cast("Any", app),
        host=settings.server.host,
        port=settings.server.port,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=20,
        h11_max_incomplete_event_size=65536,
        ws="none",
        http=cast("Any", connections.protocol),
        backlog=backlog,
    )
    server = Draining(config, settings.server.drain_seconds)
    servers.append(server)

    def finish() -> None:
        server.should_exit = True

    async def run() -> None:
        Hangup(settings, reread or (lambda: settings), app, connections, finish).listen()
        if (
            limit < settings.server.max_connections
        ):  # handles are few: nobody is let in before this has its own
            await asyncio.to_thread(_import_what_calls_need)
        async with memory:  # here, where what fails is said plainly
            await attended()

    async def attended() -> None:
        task = asyncio.create_task(server.serve(sockets=listeners))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started:
            address = _address(settings.server.host, settings.server.port)
            if app.visitors is not None:
                app.visitors.announce(address)
            if ready is not None:
                ready(address)
        joined = await asyncio.to_thread(_join_servers, memory.memory, lambda: not server.is_ending())
        forwarding: Forwarding | None = None
        if joined is not None:
            from cairn.surfaces.forwarding import FORWARDED, Forwarding

            paths = {prefix + path: path for prefix in VERSIONS for path in FORWARDED}
            app.app = forwarding = Forwarding(app.app, paths, settings.memory.person, joined)
        await asyncio.sleep(_QUIET_SECONDS)
        await _quiet(memory)
        # Not what searching needs: a server of which nothing was asked yet does without (15 MB of numpy).
        await asyncio.to_thread(_read_languages)
        await asyncio.to_thread(_settle_down)
        try:
            await task
        finally:
            if joined is not None and forwarding is not None:
                forwarding.close()
                await asyncio.to_thread(joined.stop)
            if app.visitors is not None:
                app.visitors.leave()

    try:
        with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
            runner.run(run())
    except SystemExit as stop:
        if stop.code:
            raise Misconfigured(
                f"The server could not start on {settings.server.host}:{settings.server.port}. "
                "Is the port taken? Choose another with --port.",
                setting="server.port",
            ) from None
