"""The HTTP server: one table of routes over `Memory`, one envelope for every answer.

`build_app` makes the ASGI application (tests drive it as it is); `serve` runs it until told to stop and lets
what was acknowledged finish. Every route exists under /api/v1 and /api/v2.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, cast

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route as StarletteRoute

from cairn.aio import AsyncMemory
from cairn.config import Settings
from cairn.errors import CairnError, Forbidden, Misconfigured
from cairn.retrieval.filters import plain_session
from cairn.surfaces import kept, memories_http, project_http, time_http, views
from cairn.surfaces.connections import Connections, share_of_handles
from cairn.surfaces.guard import App, Guard, Refusal, envelope, refusal_for
from cairn.surfaces.metrics import Metrics
from cairn.surfaces.routes import Call, Endpoint, JsonResponse, contract, read_body, read_query
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.surfaces import schemas

log = logging.getLogger("cairn.http")

VERSIONS = ("/api/v1", "/api/v2")


async def add(call: Call) -> Any:
    body = cast("schemas.AddBody", call.body)
    senders = [str(message.get("sender_id")) for message in body.messages if isinstance(message, dict)]
    call.grant.reach_owners(Space(body.app_id, body.project_id), senders, write=True)
    outcome = await call.memory.add(
        body.session_id,
        body.messages,
        app_id=body.app_id,
        project_id=body.project_id,
        defer_extraction=body.defer_extraction or body.async_mode,
        idempotency_key=body.idempotency_key,
        mode=body.mode,
        limited_to=call.grant.owners,
    )
    if body.async_mode:
        waiting = await call.memory.unprocessed(body.session_id, body.app_id, body.project_id)
        return JsonResponse(
            {"status": "queued", "message_count": outcome.message_count, "pending": len(waiting)}, 202
        )
    return {
        "message_count": outcome.message_count,
        "status": outcome.status,
        "lsn": outcome.lsn,
        "waiting": [str(one) for one in outcome.waiting],
    }


async def flush(call: Call) -> Any:
    body = cast("schemas.FlushRequest", call.body)
    space = Space(body.app_id, body.project_id)
    call.grant.reach_owners(space, call.grant.owners or (), write=True)
    outcome = await call.memory.flush(body.session_id, space.app, space.project, limited_to=call.grant.owners)
    return {
        "status": outcome.status,
        "lsn": outcome.lsn,
        "waiting": [str(one) for one in outcome.waiting],
    }


async def search(call: Call) -> Any:
    body = cast("schemas.SearchRequest", call.body)
    owner = body.user_id or body.agent_id or ""
    call.grant.reach_owners(Space(body.app_id, body.project_id), [owner])
    limit = call.memory.settings.server.max_query_chars
    if len(body.query) > limit:
        raise Refusal(
            422, "INVALID_INPUT", f"query has {len(body.query)} characters; at most {limit} are searched."
        )
    result = await call.memory.search(
        body.query,
        user_id=body.user_id,
        agent_id=body.agent_id,
        app_id=body.app_id,
        project_id=body.project_id,
        method=body.method,
        top_k=body.top_k,
        radius=body.radius,
        min_score=body.min_score,
        include_profile=body.include_profile,
        enable_llm_rerank=body.enable_llm_rerank,
        filters=body.filters,
        evidence=body.evidence,
        token_budget=body.token_budget,
        explain=body.explain,
        for_injection=body.for_injection,
        consistency=body.consistency,
        min_lsn=body.min_lsn,
        as_of=body.as_of,
    )
    session = plain_session(body.filters) or ""
    if result.unprocessed_messages and not await _sees_open_part(call, session, body):
        result = replace(result, unprocessed_messages=())
    zone = call.memory.settings.zone
    data = views.search_result(
        result,
        app=body.app_id,
        project=body.project_id,
        session_id=session,
        zone=zone,
    )
    if body.for_injection:
        data["prompt"] = kept.prompt(result, budget=body.token_budget, zone=zone)
    return data


async def _sees_open_part(call: Call, session: str, at: schemas.Spaced) -> bool:
    """Whether the caller may see what is not extracted yet: of sessions that hold nobody else's words."""
    try:
        await call.memory.unprocessed(session, at.app_id, at.project_id, limited_to=call.grant.owners)
    except Forbidden:
        return False
    return True


async def get(call: Call) -> Any:
    body = cast("schemas.GetRequest", call.body)
    call.grant.reach_owners(Space(body.app_id, body.project_id), [body.user_id or body.agent_id or ""])
    result = await call.memory.get(
        body.memory_type,
        user_id=body.user_id,
        agent_id=body.agent_id,
        app_id=body.app_id,
        project_id=body.project_id,
        page=body.page,
        page_size=body.page_size,
        sort_by=body.sort_by,
        sort_order=body.sort_order,
        filters=body.filters,
        consistency=body.consistency,
    )
    return views.get_result(result)


async def trigger(call: Call) -> Any:
    body = cast("schemas.TriggerRequest", call.body)
    call.grant.reach_root(write=True)  # a strategy runs over every space
    return await call.memory.trigger(body.name, timeout=body.timeout, force=body.force)


async def doctor(call: Call) -> Any:
    call.grant.reach_root()
    return {"findings": await call.memory.doctor()}


ENDPOINTS: list[Endpoint] = [
    Endpoint(
        "POST",
        "/memory/add",
        add,
        "Add messages to a session",
        "AddRequest",
        "AddData",
        "AddBody",
    ),
    Endpoint("POST", "/memory/flush", flush, "Close the open stretch now", "FlushRequest", "FlushData"),
    Endpoint(
        "POST",
        "/memory/search",
        search,
        "Find what answers a query",
        "SearchRequest",
        "SearchData",
    ),
    Endpoint("POST", "/memory/get", get, "List memories, page by page", "GetRequest", "GetData"),
    Endpoint("POST", "/ome/trigger", trigger, "Run a strategy now", "TriggerRequest", "TriggerAnswer"),
    Endpoint(
        "GET",
        "/doctor",
        doctor,
        "Look for trouble; each finding names the next step",
        None,
        "DoctorData",
    ),
    *memories_http.ENDPOINTS,
    *time_http.ENDPOINTS,
    *project_http.ENDPOINTS,
]


class _Routes:
    """Turns the table into Starlette routes bound to one memory."""

    def __init__(self, memory: AsyncMemory, metrics: Metrics, connections: Connections | None) -> None:
        self.memory = memory
        self.metrics = metrics
        self.connections = connections

    def all(self) -> list[StarletteRoute]:
        routes = [
            StarletteRoute("/health", self.health, methods=["GET"]),
            StarletteRoute("/metrics", self.show_metrics, methods=["GET"]),
            StarletteRoute("/openapi.json", self.openapi, methods=["GET"]),
            StarletteRoute("/docs", self.docs, methods=["GET"]),
        ]
        for endpoint in ENDPOINTS:
            for prefix in VERSIONS:
                handler = self._handler(endpoint)
                routes.append(StarletteRoute(prefix + endpoint.path, handler, methods=[endpoint.method]))
        return routes

    def _handler(self, endpoint: Endpoint) -> Callable[[Request], Awaitable[Response]]:
        async def handle(request: Request) -> Response:
            request.state.route = endpoint.path
            reads = endpoint.reads or endpoint.body
            query = read_query(request, contract(endpoint.query) if endpoint.query else None)
            body = await read_body(request, contract(reads)) if reads else None
            call = Call(self.memory, body, request.state.grant, dict(request.path_params), query)
            data = await endpoint.handler(call)
            if isinstance(data, JsonResponse):
                return JsonResponse(
                    {"request_id": request.state.request_id, "data": json.loads(bytes(data.body))},
                    data.status_code,
                )
            return JsonResponse({"request_id": request.state.request_id, "data": data})

        return handle

    async def health(self, request: Request) -> Response:
        request.state.route = "/health"
        status = await self.memory.health()
        return JsonResponse(status)

    async def show_metrics(self, request: Request) -> Response:
        request.state.route = "/metrics"
        gauges = await self.memory.gauges()
        if self.connections is not None:
            gauges |= self.connections.gauges()
        return PlainTextResponse(
            self.metrics.render(gauges), media_type="text/plain; version=0.0.4; charset=utf-8"
        )

    @cached_property
    def document(self) -> dict[str, Any]:
        """The OpenAPI description, made when somebody asks for it."""
        from cairn.surfaces.openapi import describe

        return describe(ENDPOINTS, VERSIONS)

    async def openapi(self, request: Request) -> Response:
        request.state.route = "/openapi.json"
        return JsonResponse(self.document)

    async def docs(self, request: Request) -> Response:
        request.state.route = "/docs"
        from cairn.surfaces.openapi import DOCS_PAGE

        return HTMLResponse(DOCS_PAGE)


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
    body = envelope(refusal, request.state.request_id, request.url.path)
    return Response(body, refusal.status, headers=refusal.headers, media_type="application/json")


def build_app(memory: AsyncMemory, *, own: bool = True, connections: Connections | None = None) -> App:
    """The ASGI application over `memory`; with `own` its lifetime follows the server's.

    The figures of `connections` are added to those of /metrics.
    """
    metrics = Metrics()

    @contextlib.asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        if not own:
            yield
            return
        async with memory:
            yield

    inner = Starlette(
        routes=_Routes(memory, metrics, connections).all(),
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
    return Guard(inner, memory.settings.server, observe=metrics.observe)


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


def _import_what_calls_need() -> None:
    """Load what the first calls use. An import that runs out of handles halfway cannot be made again."""
    import numpy  # noqa: F401, ICN001 -- searching and embedding

    contract("AddBody")


def serve(settings: Settings, *, ready: Callable[[str], None] | None = None) -> None:
    """Run the server until SIGINT or SIGTERM.

    Raises:
        Misconfigured: the address is taken, or binding beyond this machine without a token.
    """
    import uvicorn

    from cairn.engines import allocator
    from cairn.surfaces.logs import configure

    allocator.settle()
    configure(settings.logging)
    limit, backlog = share_of_handles(settings.server.max_connections)
    connections = Connections(limit, settings.server.header_timeout_seconds)
    listeners = _listeners(settings.server.host, settings.server.port, backlog)
    # A request re-takes the interpreter lock after each flush to disk; it should not wait 5 ms for background text work.
    sys.setswitchinterval(0.0005)
    memory = AsyncMemory(settings)
    app = build_app(memory, connections=connections)
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
    server = uvicorn.Server(config)

    async def run() -> None:
        if (
            limit < settings.server.max_connections
        ):  # handles are few: nobody is let in before this has its own
            await asyncio.to_thread(_import_what_calls_need)
        await memory.__aenter__()  # here, where what fails is said plainly
        task = asyncio.create_task(server.serve(sockets=listeners))
        while not server.started and not task.done():
            await asyncio.sleep(0.01)
        if server.started and ready is not None:
            ready(f"http://{settings.server.host}:{settings.server.port}")
        await asyncio.to_thread(_import_what_calls_need)
        gc.freeze()  # what the start made stays: collections need not walk it again
        await task

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
