"""Forwards calls about an owner to the server that is its home.

Any server can answer any call. But then each of them reads what the others wrote to a session, indexes every owner's talk
and makes its vectors, and a second server adds little. So a call that names an owner or a session is sent on to its home
(`engines/postgres_servers.py`), once: what was sent on is answered where it arrives. A home that cannot be reached, ends in the
middle, or cannot answer just now costs a moment: the call is answered here. It may have been done there all the same; all of these
calls may be made twice, but for messages that say neither when they were said nor which call they are: those are refused then.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, cast

from cairn.canonical import object_in
from cairn.surfaces.guard import App, ASGIScope, Receive, Refusal, Send

FORWARDED = ("/memory/add", "/memory/flush", "/memory/search", "/memory/get", "/recall", "/brief")
HEADER = b"cairn-home"
_MOST_BYTES = 256 * 1024
_CONNECT_SECONDS, _AVOID_SECONDS, _LOOK_SECONDS, _QUICK_SECONDS = 1.0, 5.0, 0.5, 2.0
_IDLE_SECONDS = 10.0  # less than the other side keeps an idle connection
_MOST_IDLE = 64
_SESSIONS_KEPT = 16_384
_NOT_SENT_ON = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"content-length", b"x-request-id", b"expect"}
)
_NOT_TAKEN_BACK = frozenset(
    {b"connection", b"keep-alive", b"transfer-encoding", b"x-request-id", b"server", b"date"}
)
_log = logging.getLogger("cairn.http")


class Homes(Protocol):
    """What is known of the other servers."""

    name: str

    def home(self, name: str) -> tuple[str, str] | None: ...

    def is_up(self, server: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class _Answer:
    status: int
    headers: list[tuple[bytes, bytes]]
    body: bytes


class _Lost(Exception):
    """No answer came."""


class Forwarding:
    """The ASGI layer between the guard and the routes of a server that is one of several.

    Args:
        app: Answers here.
        paths: The paths of `FORWARDED`, by every version's full path.
        person: Who is meant where a call names nobody.
        homes: Which server is whose home.
    """

    def __init__(self, app: App, paths: Mapping[str, str], person: str, homes: Homes) -> None:
        self._app, self._paths, self._person = app, paths, person
        self._homes: Homes | None = homes
        self._idle: dict[str, list[tuple[float, _Wire]]] = {}
        self._avoided: dict[str, float] = {}
        self._owners: OrderedDict[tuple[str, str], str] = OrderedDict()
        self._asking: dict[_Wire, str] = {}
        self._look: asyncio.TimerHandle | None = None

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        homes = self._homes
        path = (
            self._paths.get(scope["path"]) if scope["type"] == "http" and scope["method"] == "POST" else None
        )
        if homes is None or path is None:
            await self._app(scope, receive, send)
            return
        headers = dict(scope["headers"])
        if (meant := headers.get(HEADER)) is not None:
            if meant.decode("latin-1") != homes.name:
                raise Refusal(
                    421,
                    "BAD_REQUEST",
                    "This call was sent on to another server than this one: send it again.",
                )
            await self._app(scope, receive, send)
            return
        size = headers.get(b"content-length", b"")
        if not size.isdigit() or int(size) > _MOST_BYTES:
            await self._app(scope, receive, send)
            return
        body = await _whole(receive)
        given = object_in(body)  # where it cannot be read, whoever answers says what is wrong with it
        home = homes.home(self._name(path, given)) if given is not None else None
        if home is not None and given is not None:
            answer = await self._asked(
                home, scope, body, twice=path != "/memory/add" or _is_told_apart(given)
            )
            if answer is not None:
                scope["state"]["route"] = "forwarded"
                await send(
                    {"type": "http.response.start", "status": answer.status, "headers": answer.headers}
                )
                await send({"type": "http.response.body", "body": answer.body})
                return
        await self._app(scope, _again(body, receive), send)

    def _name(self, path: str, given: Mapping[str, Any]) -> str:
        """The owner whom a call is about, in its space."""
        space = f"{given.get('app_id') or 'default'}/{given.get('project_id') or 'default'}"
        named = given.get("user_id") or given.get("agent_id")
        if path in {"/memory/add", "/memory/flush"}:
            named = self._speaker(space, given)
        return f"{space}/{named or self._person}"

    def _speaker(self, space: str, given: Mapping[str, Any]) -> str:
        """Whose session it is, as far as it is known here: who spoke in it first, else the session itself."""
        session = (space, str(given.get("session_id")))
        if (known := self._owners.get(session)) is not None:
            self._owners.move_to_end(session)
            return known
        messages = given.get("messages")
        speaker = given.get("user_id")
        for one in messages if not speaker and isinstance(messages, list) else ():
            if isinstance(one, dict) and one.get("role", "user") == "user" and one.get("sender_id"):
                speaker = one["sender_id"]
                break
        if not speaker:
            return f"session {session[1]}"
        self._owners[session] = str(speaker)
        while len(self._owners) > _SESSIONS_KEPT:
            self._owners.popitem(last=False)
        return str(speaker)

    async def _asked(
        self, home: tuple[str, str], scope: ASGIScope, body: bytes, *, twice: bool
    ) -> _Answer | None:
        """What the home of an owner answers; None where it has to be answered here.

        Raises:
            Refusal: nobody knows whether it was done, and it cannot be done `twice`.
        """
        server, address = home
        now = time.monotonic()
        if self._avoided.get(server, 0.0) > now:
            return None
        try:
            wire = self._free(address) or await _connected(address)
        except (OSError, TimeoutError) as error:
            self._avoid(server, error)
            return None
        try:
            answer = await self._heard(wire, server, _request(scope, server, address, body))
        except (_Lost, OSError) as error:
            self._avoid(server, error)
            if not twice:
                raise _unknown() from None
            return None
        idle = self._idle.setdefault(address, [])
        if wire.is_open and len(idle) < _MOST_IDLE:
            idle.append((time.monotonic(), wire))
        else:
            wire.close()
        if answer.status == 421:
            self._avoid(server, "another server is in its place")
            return None
        is_away = answer.status == 503 and time.monotonic() - now < _QUICK_SECONDS
        return None if is_away and twice else answer

    def _avoid(self, server: str, why: object) -> None:
        """Ask a server nothing for a while that could not be asked."""
        _log.info("a call is answered here, since its home cannot be asked: %s", why or type(why).__name__)
        if len(self._avoided) > _MOST_IDLE:
            self._avoided.clear()
        self._avoided[server] = time.monotonic() + _AVOID_SECONDS

    async def _heard(self, wire: _Wire, server: str, request: bytes) -> _Answer:
        """The answer to a request, as long as the one who was asked is up."""
        self._asking[wire] = server
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_around)
        try:
            return await wire.ask(request)
        except BaseException:
            wire.close()
            raise
        finally:
            del self._asking[wire]

    def _look_around(self) -> None:
        """Give up waiting for those that are gone."""
        self._look = None
        for wire, server in list(self._asking.items()):
            if self._homes is None or not self._homes.is_up(server):
                wire.lose("it is gone")
        if self._asking:
            self._look = asyncio.get_running_loop().call_later(_LOOK_SECONDS, self._look_around)

    def _free(self, address: str) -> _Wire | None:
        """A connection that nobody uses."""
        idle, oldest = self._idle.get(address, []), time.monotonic() - _IDLE_SECONDS
        while idle:
            since, wire = idle.pop()
            if since >= oldest and wire.is_open:
                return wire
            wire.close()
        return None

    def close(self) -> None:
        """Let go of all connections."""
        self._homes = None
        if self._look is not None:
            self._look.cancel()
        for idle in self._idle.values():
            for _, wire in idle:
                wire.close()
        self._idle.clear()


class _Wire(asyncio.Protocol):
    """One connection to another server: a request, then its answer."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[_Answer] | None = None
        self._data = bytearray()
        self._head: tuple[int, list[tuple[bytes, bytes]], int, int] | None = None

    @property
    def is_open(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def ask(self, request: bytes) -> asyncio.Future[_Answer]:
        self._waiting = asyncio.get_running_loop().create_future()
        self._data.clear()
        self._head = None
        assert self._transport is not None
        self._transport.write(request)
        return self._waiting

    def close(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.cancel()
        if self._transport is not None:
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        if self._waiting is None or self._waiting.done():
            self.close()  # nobody asked
            return
        self._data += data
        try:
            if self._head is None and (end := self._data.find(b"\r\n\r\n")) >= 0:
                self._head = (*_head(bytes(self._data[:end])), end + 4)
        except (ValueError, IndexError):
            self.lose("its answer cannot be read")
            return
        if self._head is not None:
            status, headers, size, begin = self._head
            if len(self._data) >= begin + size:
                self._waiting.set_result(_Answer(status, headers, bytes(self._data[begin : begin + size])))

    def connection_lost(self, exc: Exception | None) -> None:
        self.lose(str(exc or "the connection ended"))

    def lose(self, why: str) -> None:
        """End it, and the waiting for an answer."""
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_exception(_Lost(why))
        if self._transport is not None:
            self._transport.abort()


def _unknown() -> Refusal:
    return Refusal(
        503,
        "EXTERNAL_SERVICE_UNAVAILABLE",
        "The server that these messages were sent on to ended before it answered; they may have been kept. Send them with their "
        "timestamps or with an idempotency_key, which can be sent again without being kept twice.",
        headers={"retry-after": "1"},
    )


def _is_told_apart(given: Mapping[str, Any]) -> bool:
    """Whether the same messages, sent again, are known to be the same."""
    messages = given.get("messages")
    return bool(given.get("idempotency_key")) or (
        isinstance(messages, list)
        and all(isinstance(one, dict) and one.get("timestamp") is not None for one in messages)
    )


def _head(data: bytes) -> tuple[int, list[tuple[bytes, bytes]], int]:
    """Status, headers and the size of the body that follows."""
    first, *lines = data.split(b"\r\n")
    headers = []
    size = -1
    for line in lines:
        name, _, value = line.partition(b":")
        name, value = name.strip().lower(), value.strip()
        if name == b"content-length":
            size = int(value)
        if name not in _NOT_TAKEN_BACK:
            headers.append((name, value))
    if size < 0:
        raise ValueError
    return int(first.split(b" ", 2)[1]), headers, size


def _request(scope: ASGIScope, server: str, address: str, body: bytes) -> bytes:
    """The call as it came in, with the name of the server it is for."""
    path = scope.get("raw_path") or scope["path"].encode()
    target = path.partition(b"?")[0] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
    headers = [(name, value) for name, value in scope["headers"] if name not in _NOT_SENT_ON]
    if all(name != b"host" for name, _ in headers):
        headers.append((b"host", address.encode()))
    headers += [
        (b"content-length", str(len(body)).encode()),
        (b"x-request-id", scope["state"]["request_id"].encode()),
        (HEADER, server.encode()),
    ]
    return b"POST %b HTTP/1.1\r\n%b\r\n\r\n%b" % (
        target,
        b"\r\n".join(b"%b: %b" % one for one in headers),
        body,
    )


async def _connected(address: str) -> _Wire:
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(_CONNECT_SECONDS):
        _, wire = await asyncio.get_running_loop().create_connection(_Wire, host.strip("[]"), int(port))
    return wire


async def _whole(receive: Receive) -> bytes:
    """The body of a request, which the guard limits."""
    parts = []
    more = True
    while more:
        message = await receive()
        parts.append(message.get("body", b""))
        more = message.get("more_body", False)
    return b"".join(parts)


def _again(body: bytes, receive: Receive) -> Receive:
    """`receive` with a body that was read already."""
    given = False

    async def again() -> Any:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again
