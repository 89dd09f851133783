"""The ASGI layer before every route: checks host, origin, token, size and rate, and forms refusals.

One pure ASGI layer, which everything that is served passes. In order: a request id; Host and Origin (a web page must not
reach a local server through DNS rebinding or a forged form); the bearer token and its rate; the size and speed of the
body; how many calls run at once. At the end the call goes into the audit log: what a route has told about itself by
`note_call`, and every refusal. Every refusal, also the framework's own, has the one envelope
`{request_id, error: {code, message, ...}}`.
"""

from __future__ import annotations

import asyncio
import errno
import hmac
import ipaddress
import json
import logging
import math
import re
import threading
import time
import uuid
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from cairn.config import ServerSettings
from cairn.engines.audit import AuditLog
from cairn.engines.tokens import TokenFile
from cairn.errors import (
    CairnError,
    Conflict,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    NotOffered,
    Unavailable,
)
from cairn.rights import OPEN, Grant, digest_of, parse_tokens
from cairn.surfaces.connections import HEAD_BYTES
from cairn.web.visitors import Visitors, is_page

ASGIScope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
App = Callable[[ASGIScope, Receive, Send], Awaitable[None]]

log = logging.getLogger("cairn.http")

_REQUEST_ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_OPEN_PATHS = frozenset({"/health", "/ready"})
_ONCE = (b"host", b"origin", b"authorization", b"sec-fetch-site", b"content-type", b"content-length")
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9._-]{1,253}))(?::\d{1,5})?")
_LAST = {"connection": "close"}  # the rest of the body may still come, and is no request
_HUNG_UP = 499  # nobody reads this answer; the figure says that it was not the server's fault


class Refusal(Exception):
    """An answer that is not a success: status, code of the contract, and words for a person."""

    def __init__(
        self, status: int, code: str, message: str, *, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.headers = dict(headers or {})


# The one table from the exception tree to HTTP. The first match wins.
_STATUSES: Sequence[tuple[type[BaseException], int, str]] = (
    (NotOffered, 403, "CAPABILITY_UNAVAILABLE"),
    (Forbidden, 403, "FORBIDDEN"),
    (NotFound, 404, "NOT_FOUND"),
    (Conflict, 409, "CONFLICT"),
    (Invalid, 422, "INVALID_INPUT"),
    (Misconfigured, 503, "CONFIGURATION_ERROR"),
    (Unavailable, 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
    (CairnError, 500, "INTERNAL_ERROR"),
)


def refusal_for(error: BaseException) -> Refusal:
    """The answer to give for `error`; anything unknown is an internal error that shows nothing of itself."""
    if isinstance(error, Refusal):
        return error
    for kind, status, code in _STATUSES:
        if isinstance(error, kind):
            return Refusal(status, code, str(error))
    if isinstance(error, OSError) and error.errno in {errno.EMFILE, errno.ENFILE}:
        return Refusal(
            503,
            "EXTERNAL_SERVICE_UNAVAILABLE",
            "The server has too many files open. Try again shortly, or raise its limit.",
            headers={"retry-after": "1"},
        )
    return Refusal(
        500,
        "INTERNAL_ERROR",
        "The server met an error of its own. Its log has the details under this request_id.",
    )


def envelope(refusal: Refusal, request_id: str, path: str) -> bytes:
    body = {
        "request_id": request_id,
        "error": {
            "code": refusal.code,
            "message": refusal.message,
            "timestamp": datetime.now(UTC).isoformat(),
            "path": path,
        },
    }
    return json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")


def is_loopback(host: str) -> bool:
    """Whether binding to `host` keeps the server on this machine."""
    if host in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


# What a call is about, by the names of its fields; everything else may be content.
_ABOUT = (
    "app_id", "project_id", "scope", "owner", "user_id", "agent_id", "agent", "run_id", "session_id", "memory_id",
    "entry_id", "name",
)  # fmt: skip
_REFUSALS_EACH = 1.0  # seconds; callers without a token cannot fill the audit log faster than that


def note_call(state: MutableMapping[str, Any], operation: str, fields: Mapping[str, Any]) -> None:
    """Tell the guard which operation a call is and about whom, for the audit log. Whatever serves operations calls it.

    An id that holds a credential is about to be refused; it stays out of the log, too.
    """
    from cairn.governed.secrets import redact

    about = {
        name: str(value)[:128] for name in _ABOUT if isinstance(value := fields.get(name), str) and value
    }
    long = [name for name, value in about.items() if len(value) >= 16]
    for name in long if long and redact("\n".join(about[name] for name in long)).findings else ():
        about[name] = "[redacted]"
    state["operation"], state["about"] = operation, about


BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)


class Metrics:
    """Request counts and times, and how the memory is doing, as Prometheus text. Routes are names of the route table, so label values stay few."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: dict[tuple[str, int], int] = defaultdict(int)
        self._buckets: dict[str, list[int]] = defaultdict(lambda: [0] * (len(BUCKETS) + 1))
        self._seconds: dict[str, float] = defaultdict(float)

    def observe(self, route: str, status: int, seconds: float) -> None:
        with self._lock:
            self._requests[route, status] += 1
            self._seconds[route] += seconds
            place = next((i for i, bound in enumerate(BUCKETS) if seconds <= bound), len(BUCKETS))
            self._buckets[route][place] += 1

    def render(self, gauges: Mapping[str, tuple[str, float]]) -> str:
        """The exposition text. `gauges` maps a metric name to its help and value."""
        lines = [
            "# HELP cairn_requests_total Requests by route and status.",
            "# TYPE cairn_requests_total counter",
        ]
        with self._lock:
            for (route, status), count in sorted(self._requests.items()):
                lines.append(f'cairn_requests_total{{route="{route}",status="{status}"}} {count}')
            lines += [
                "# HELP cairn_request_seconds Time per request.",
                "# TYPE cairn_request_seconds histogram",
            ]
            for route, counts in sorted(self._buckets.items()):
                running = 0
                for bound, count in zip(BUCKETS, counts, strict=False):
                    running += count
                    lines.append(f'cairn_request_seconds_bucket{{route="{route}",le="{bound}"}} {running}')
                total = running + counts[-1]
                lines.append(f'cairn_request_seconds_bucket{{route="{route}",le="+Inf"}} {total}')
                lines.append(f'cairn_request_seconds_sum{{route="{route}"}} {self._seconds[route]:.6f}')
                lines.append(f'cairn_request_seconds_count{{route="{route}"}} {total}')
        for name, (help_text, value) in sorted(gauges.items()):
            lines += [f"# HELP {name} {help_text}", f"# TYPE {name} gauge", f"{name} {value:g}"]
        return "\n".join(lines) + "\n"


@dataclass
class _Bucket:
    """How many calls a token may still make now; a minute fills it."""

    left: float
    at: float


_ENDED = "The server was stopped and this call took longer than it waits; it may still be done. Look before you call again."


@dataclass
class Guard:
    """The ASGI layer itself. `state["grant"]` and `state["request_id"]` are left for the routes."""

    app: App
    settings: ServerSettings
    grants: tuple[Grant, ...] = ()
    observe: Callable[[str, int, float], None] = lambda _route, _status, _seconds: None
    tokens: TokenFile | None = None
    audit: AuditLog | None = None
    visitors: Visitors | None = None
    running: int = field(default=0, init=False)
    _buckets: dict[bytes, _Bucket] = field(default_factory=dict, init=False)
    _told: tuple[float, int] = field(default=(0.0, 0), init=False)

    def __post_init__(self) -> None:
        self.take(self.settings)

    @property
    def begun(self) -> bool:
        """Whether there are or were tokens beside the settings: then nobody comes in without one."""
        return self.tokens is not None and self.tokens.begun

    def take(self, settings: ServerSettings) -> None:
        """Go by these settings from the next call on.

        Raises:
            Misconfigured: they are not possible; then nothing has changed.
        """
        grants = parse_tokens(settings.tokens)
        if not is_loopback(settings.host) and not grants and not self.begun:
            raise Misconfigured(
                f"The server would listen on {settings.host}, beyond this machine, without a token. "
                "Make one with `cairn token add`, set server.tokens, or bind to 127.0.0.1.",
                setting="server.tokens",
            )
        named = (settings.host.strip("[]"), *settings.allowed_hosts)
        self.settings, self.grants = settings, grants
        self._hosts = _LOOPBACK_NAMES | {name.lower() for name in named}
        self._origins = set(settings.allowed_origins)

    async def __call__(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers: dict[bytes, bytes] = dict(scope["headers"])
        given = headers.get(b"x-request-id", b"").decode("latin-1")
        request_id = given if _REQUEST_ID.fullmatch(given) else uuid.uuid4().hex
        state = scope.setdefault("state", {})
        state["request_id"] = request_id
        started = time.perf_counter()
        status, code = 500, ""
        begun = False

        async def send_with_id(message: MutableMapping[str, Any]) -> None:
            nonlocal status, begun
            if message["type"] == "http.response.start":
                begun = True
                status = message["status"]
                message["headers"] = [*message["headers"], (b"x-request-id", request_id.encode())]
            await send(message)

        try:
            _check_head(scope["headers"])
            self._check_caller(headers)
            if not scope["path"].startswith("/"):
                raise Refusal(400, "BAD_REQUEST", "The target is malformed: ask for a path, such as /health.")
            if self.visitors is not None and is_page(scope["path"]) and b"authorization" not in headers:
                self._let_visit(self.visitors, state, headers)
            else:
                state["visit"], state["grants"] = None, ()
                state["grant"] = self._grant(scope["path"], headers)
                state["still"] = lambda: self._is_let_in(scope["path"], headers)
            if state["grant"] is not None:
                self._pace(state["grant"])
            limited = _BodyLimit(receive, headers, self.settings)
            if scope["path"] in _OPEN_PATHS or scope["method"] == "GET":
                await self.app(scope, limited, send_with_id)
            else:
                await self._within_limit(scope, limited, send_with_id)
        except Exception as error:
            refusal = refusal_for(error)
            code = refusal.code
            if refusal.status >= 500 and not isinstance(error, Refusal | CairnError):
                log.exception("request failed", extra={"request_id": request_id, "path": scope["path"]})
            if not begun:
                await _send_refusal(send_with_id, refusal, request_id, scope["path"])
        except asyncio.CancelledError:
            code = "EXTERNAL_SERVICE_UNAVAILABLE"
            if begun:
                raise
            await _send_refusal(send_with_id, Refusal(503, code, _ENDED), request_id, scope["path"])
        finally:
            seconds = time.perf_counter() - started
            route = state.get("route", "unmatched")
            self.observe(route, status, seconds)
            self._record(scope, status, code, seconds)
            if log.isEnabledFor(logging.INFO):
                facts = {
                    "request_id": request_id,
                    "method": scope["method"],
                    "path": scope["path"],
                    "status": status,
                }
                log.info("request", extra={**facts, "ms": round(seconds * 1e3, 2)})

    async def _within_limit(self, scope: ASGIScope, receive: Receive, send: Send) -> None:
        if self.running >= self.settings.max_concurrency:
            raise Refusal(
                429,
                "EXTERNAL_SERVICE_UNAVAILABLE",
                f"{self.running} calls run already, the limit of this server. Try again shortly.",
                headers={"retry-after": "1"},
            )
        self.running += 1
        try:
            await self.app(scope, receive, send)
        finally:
            self.running -= 1

    def _record(self, scope: ASGIScope, status: int, code: str, seconds: float) -> None:
        """Put a call into the audit log: operations, and what was refused on the way to one."""
        state = scope["state"]
        if asked := state.get("asked"):  # by the page, which knows no guard
            note_call(state, *asked)
        operation = state.get("operation")
        if self.audit is None or (operation is None and status < 400):
            return
        grant: Grant | None = state.get("grant")
        line: dict[str, Any] = {"at": datetime.now(UTC).isoformat(timespec="milliseconds")}
        if grant is None:  # nobody we know: one line a second, and how many more there were
            last, more = self._told
            now = time.monotonic()
            if now - last < _REFUSALS_EACH:
                self._told = (last, more + 1)
                return
            self._told = (now, 0)
            line |= {"unlogged": more} if more else {}
        line |= {
            "token": "" if grant is None else grant.name,
            "operation": operation or state.get("route", "unmatched"),
            "about": state.get("about", {}),
            "status": status,
            "outcome": code or state.get("code") or ("done" if status < 400 else "refused"),
            "ms": round(seconds * 1e3, 1),
            "request_id": state["request_id"],
        }
        self.audit.write(line)

    def _pace(self, grant: Grant) -> None:
        """Count a call of a token with a rate.

        Raises:
            Refusal: 429, with the seconds until the next one is possible.
        """
        if not grant.rate:
            return
        now = time.monotonic()
        bucket = self._buckets.setdefault(grant.digest, _Bucket(grant.rate, now))
        bucket.left = min(bucket.left + (now - bucket.at) * grant.rate / 60, grant.rate)
        bucket.at = now
        if bucket.left < 1:
            wait = math.ceil((1 - bucket.left) * 60 / grant.rate)
            raise Refusal(
                429,
                "RATE_LIMITED",
                f'The token "{grant.name}" may make {grant.rate} calls a minute and has made them. '
                f"Try again in {wait} s; nothing was written.",
                headers={"retry-after": str(wait)},
            )
        bucket.left -= 1

    def _check_caller(self, headers: Mapping[bytes, bytes]) -> None:
        host = headers.get(b"host", b"").decode("latin-1")
        parts = _HOST.fullmatch(host.lower())
        if host and parts is None:
            raise Refusal(
                400, "BAD_REQUEST", f'Host "{_shown(host)}" is malformed: send a name or address and a port.'
            )
        name = (parts["six"] or parts["name"]) if parts is not None else ""
        # With tokens on a public address the name in Host is not known beforehand, and the token protects.
        if name not in self._hosts and (is_loopback(self.settings.host) or self.settings.allowed_hosts):
            raise Refusal(
                403,
                "FORBIDDEN",
                f'Host "{_shown(host)}" is not served here. Add it to server.allowed_hosts if it is yours.',
            )
        origin = headers.get(b"origin")
        if origin is not None:
            text = origin.decode("latin-1")
            own = {f"http://{host}", f"https://{host}"} if host else set()
            if text not in own and text not in self._origins:
                raise Refusal(
                    403,
                    "FORBIDDEN",
                    f'Pages from "{_shown(text)}" may not call this server. See server.allowed_origins.',
                )
        elif headers.get(b"sec-fetch-site", b"none") not in {b"none", b"same-origin"}:
            raise Refusal(403, "FORBIDDEN", "Pages of other sites may not call this server.")

    def _let_visit(self, visitors: Visitors, state: dict[str, Any], headers: Mapping[bytes, bytes]) -> None:
        """Tell the page who the visitor is, and which tokens could sign in."""
        visit = visitors.of(headers)

        def granted() -> tuple[list[Grant], Grant | None]:
            kept = self.tokens.grants() if self.tokens is not None else ()
            now = datetime.now(UTC)
            valid = [one for one in (*self.grants, *kept) if one.expires is None or one.expires > now]
            return valid, visitors.grant(visit, valid, guarded=bool(self.grants or self.begun))

        state["visit"], (state["grants"], state["grant"]) = visit, granted()
        state["still"] = lambda: granted()[1] is not None

    def _is_let_in(self, path: str, headers: Mapping[bytes, bytes]) -> bool:
        """Whether the same caller would be let in now, for what goes on for long."""
        try:
            self._grant(path, headers)
        except Refusal:
            return False
        return True

    def _grant(self, path: str, headers: Mapping[bytes, bytes]) -> Grant:
        kept = self.tokens.grants() if self.tokens is not None else ()
        if path in _OPEN_PATHS or not (self.grants or self.begun):
            return OPEN
        scheme, _, secret = headers.get(b"authorization", b"").partition(b" ")
        digest = digest_of(secret.strip())
        found = None
        for grant in (*self.grants, *kept):  # every token is compared, so that time tells nothing
            if hmac.compare_digest(grant.digest, digest):
                found = grant
        if scheme.lower() != b"bearer" or found is None:
            raise Refusal(
                401,
                "UNAUTHORIZED",
                "This server needs a token: send 'Authorization: Bearer <token>'.",
                headers={"www-authenticate": "Bearer"},
            )
        if found.expires is not None and found.expires <= datetime.now(UTC):
            raise Refusal(
                401,
                "UNAUTHORIZED",
                f'The token "{found.name}" ended at {found.expires.isoformat(timespec="seconds")}: use another.',
                headers={"www-authenticate": "Bearer"},
            )
        return found


class _BodyLimit:
    """`receive` with a size limit and a time limit, so that a slow or huge body harms only its sender."""

    def __init__(self, receive: Receive, headers: Mapping[bytes, bytes], settings: ServerSettings) -> None:
        self._receive = receive
        self._limit = settings.max_body_bytes
        self._deadline = time.monotonic() + settings.body_timeout_seconds
        self._seen = 0
        self._done = False
        declared = headers.get(b"content-length", b"0")
        if declared.isdigit() and int(declared) > self._limit:
            raise self._too_large()

    async def __call__(self) -> MutableMapping[str, Any]:
        if self._done:
            return await self._receive()
        try:
            async with asyncio.timeout(max(0.01, self._deadline - time.monotonic())):
                message = await self._receive()
        except TimeoutError:
            raise Refusal(
                408, "BAD_REQUEST", "The body did not arrive in time; nothing was written.", headers=_LAST
            ) from None
        if message["type"] == "http.request":
            self._seen += len(message.get("body", b""))
            self._done = not message.get("more_body", False)
            if self._seen > self._limit:
                raise self._too_large()
        elif message["type"] == "http.disconnect":
            raise Refusal(
                _HUNG_UP, "BAD_REQUEST", "The connection ended before the body did; nothing was written."
            )
        return message

    def _too_large(self) -> Refusal:
        return Refusal(
            413,
            "BAD_REQUEST",
            f"The body is larger than {self._limit} bytes; send fewer or smaller messages.",
            headers=_LAST,
        )


def _check_head(headers: Iterable[tuple[bytes, bytes]]) -> None:
    """Refuse a head that is too large, and a header that says who calls or what follows twice: two readers could each
    believe another one.
    """
    names, size = [], 0
    for name, value in headers:
        names.append(name)
        size += len(name) + len(value) + 4
    if size > HEAD_BYTES:
        raise Refusal(
            431,
            "BAD_REQUEST",
            f"The headers have {size} bytes, more than the {HEAD_BYTES} a request may have.",
        )
    for name in _ONCE:
        if names.count(name) > 1:
            raise Refusal(400, "BAD_REQUEST", f"The header {name.decode()} is there more than once.")


def _shown(text: str) -> str:
    """The beginning of a header's value, harmless wherever it is printed."""
    return text[:80].encode("unicode_escape").decode("ascii")


async def _send_refusal(send: Send, refusal: Refusal, request_id: str, path: str) -> None:
    body = envelope(refusal, request_id, path)
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    headers += [(name.encode(), value.encode()) for name, value in refusal.headers.items()]
    await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
