"""What stands before every route: Host, Origin, token, body and load, all with one envelope."""

import asyncio
import json
from dataclasses import replace

import pytest

from cairn.config import ServerSettings
from cairn.errors import Conflict, Forbidden, Invalid, Misconfigured, NotFound, Unavailable
from cairn.rights import parse_tokens
from cairn.surfaces.guard import Guard, is_loopback, refusal_for
from cairn.types import Space
from tests.waiting import LONG

SECRET, READER = "s" * 24, "r" * 24


async def echo(scope, receive, send):
    """An app that reads the body and answers with its size."""
    size, more = 0, True
    while more:
        message = await receive()
        size += len(message.get("body", b""))
        more = message.get("more_body", False)
    await send({"type": "http.response.start", "status": 200, "headers": []})
    await send({"type": "http.response.body", "body": str(size).encode()})


def call(app, *, method="POST", path="/x", headers=None, chunks=(b"{}",), delay=0.0):
    """Drive an ASGI app with one request; returns (status, headers, body)."""
    given = {"host": "127.0.0.1:8000", **(headers or {})}
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "headers": [(name.encode(), value.encode()) for name, value in given.items() if value is not None],
    }
    parts, sent = list(chunks), []

    async def receive():
        await asyncio.sleep(delay)
        body = parts.pop(0)
        return {"type": "http.request", "body": body, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    asyncio.run(app(scope, receive, send))
    body = b"".join(m.get("body", b"") for m in sent)
    return sent[0]["status"], dict(sent[0]["headers"]), body


def guarded(app=echo, **settings):
    return Guard(app, replace(ServerSettings(), **settings))


def error_of(body):
    value = json.loads(body)
    assert set(value) == {"request_id", "error"}
    assert set(value["error"]) == {"code", "message", "timestamp", "path"}
    return value["error"]


def test_plain_call_passes_and_has_an_id():
    """A local call passes and its answer names the request."""
    status, headers, body = call(guarded())
    assert (status, body) == (200, b"2")
    assert len(headers[b"x-request-id"]) == 32


def test_a_call_that_the_end_of_the_server_cuts_off_is_told_so():
    """What takes longer than a stop waits for is cancelled: its caller is told that it may still be done, and to look."""

    async def cut(scope, receive, send):
        task = asyncio.ensure_future(asyncio.sleep(LONG))
        asyncio.get_running_loop().call_soon(task.cancel)
        await task

    status, headers, body = call(guarded(cut))
    assert status == 503 and len(headers[b"x-request-id"]) == 32
    assert "may still be done" in error_of(body)["message"]


def test_given_request_id_is_kept_when_it_is_harmless():
    """A caller may choose the id; one with odd characters is replaced."""
    assert call(guarded(), headers={"x-request-id": "abc-1"})[1][b"x-request-id"] == b"abc-1"
    assert call(guarded(), headers={"x-request-id": 'a"b'})[1][b"x-request-id"] != b'a"b'


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example:8000", "", "169.254.1.1"])
def test_other_hosts_are_refused(host):
    """DNS rebinding: a name that is not ours never reaches a route."""
    status, _, body = call(guarded(), headers={"host": host})
    assert status == 403
    assert error_of(body)["code"] == "FORBIDDEN"


@pytest.mark.parametrize("host", ["localhost:8000", "127.0.0.1", "[::1]:8000"])
def test_loopback_names_are_served(host):
    """Every name of this machine's loopback works."""
    assert call(guarded(), headers={"host": host})[0] == 200


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "http://127.0.0.1:9999", "file://"])
def test_foreign_origins_are_refused(origin):
    """CSRF: a page of another origin cannot call, also not from another local port."""
    assert call(guarded(), headers={"origin": origin})[0] == 403


def test_own_and_allowed_origins_pass():
    """Our own page and the configured ones may call."""
    assert call(guarded(), headers={"origin": "http://127.0.0.1:8000"})[0] == 200
    allowed = guarded(allowed_origins=("https://app.example",))
    assert call(allowed, headers={"origin": "https://app.example"})[0] == 200


def test_cross_site_fetch_without_origin_is_refused():
    """A browser that marks the request as cross-site is believed."""
    assert call(guarded(), headers={"sec-fetch-site": "cross-site"})[0] == 403


def test_binding_elsewhere_needs_a_token():
    """A server beyond loopback without a token does not start."""
    with pytest.raises(Misconfigured, match="token"):
        guarded(host="0.0.0.0")
    assert is_loopback("127.0.0.2")
    assert not is_loopback("0.0.0.0")


def test_tokens_are_required_and_compared():
    """Without the token, or with a wrong one, nothing is reached; /health stays open."""
    app = guarded(tokens=(SECRET,))
    status, headers, body = call(app)
    assert status == 401
    assert headers[b"www-authenticate"] == b"Bearer"
    assert SECRET not in body.decode()
    assert call(app, headers={"authorization": "Bearer nope"})[0] == 401
    assert call(app, headers={"authorization": f"Basic {SECRET}"})[0] == 401
    assert call(app, headers={"authorization": f"Bearer {SECRET}"})[0] == 200
    assert call(app, path="/health", method="GET")[0] == 200


def test_grants_limit_reading_writing_and_scopes():
    """A token reaches only the apps, projects and owners it names, and may be for reading only."""
    full, reader = parse_tokens((SECRET, f"{READER} r app=acme project=web,api owner=alice"))
    full.reach_owners(Space("x", "y"), ["z"], write=True)
    reader.reach_owners(Space("acme", "web"), ["alice"])
    for space, owners, write in (
        (Space("other", "web"), ["alice"], False),
        (Space("acme", "db"), ["alice"], False),
        (Space("acme", "web"), ["alice", "bob"], False),
        (Space("acme", "web"), [], False),
        (Space("acme", "web"), ["alice"], True),
    ):
        with pytest.raises(Forbidden) as caught:
            reader.reach_owners(space, owners, write=write)
        assert refusal_for(caught.value).status == 403


@pytest.mark.parametrize(
    "line", ["short", f"{SECRET} rwx", f"{SECRET} owner=", f"{SECRET} -owner", f"{SECRET} share=all"]
)
def test_malformed_tokens_are_named(line):
    """A token setting that cannot be read stops the start."""
    with pytest.raises(Misconfigured, match=r"server\.tokens"):
        parse_tokens((line,))


def test_large_bodies_are_refused_by_header_and_by_count():
    """413 both when the length is declared and when it is not."""
    app = guarded(max_body_bytes=10)
    status, _, body = call(app, headers={"content-length": "11"})
    assert status == 413
    assert "10 bytes" in error_of(body)["message"]
    assert call(app, chunks=(b"123456", b"7890ab"))[0] == 413


def test_a_whole_head_that_is_too_large_is_refused():
    """One that came in a single read was never seen without its end: it is weighed when it is whole."""
    many = {f"x-{n}": "a" * 1000 for n in range(70)}
    status, _, body = call(guarded(), headers=many)
    assert (status, error_of(body)["code"]) == (431, "BAD_REQUEST")
    assert call(guarded(), headers=dict(list(many.items())[:60]))[0] == 200


def test_slow_bodies_time_out():
    """A client that never finishes its body is answered and let go."""
    app = guarded(body_timeout_seconds=0.05)
    assert call(app, delay=0.5)[0] == 408


def test_too_many_calls_at_once_are_told_to_come_back():
    """Over the limit: 429 with Retry-After, and the count goes down again."""
    app = guarded(max_concurrency=1)
    app.running = 1
    status, headers, _ = call(app)
    assert status == 429
    assert headers[b"retry-after"] == b"1"
    app.running = 0
    assert call(app)[0] == 200
    assert app.running == 0


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (NotFound("no"), 404, "NOT_FOUND"),
        (Conflict("no"), 409, "CONFLICT"),
        (Invalid("no"), 422, "INVALID_INPUT"),
        (Unavailable("no"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
        (Misconfigured("no"), 503, "CONFIGURATION_ERROR"),
        (OSError(24, "Too many open files", "/secret/path"), 503, "EXTERNAL_SERVICE_UNAVAILABLE"),
        (OSError(5, "Input/output error", "/secret/path"), 500, "INTERNAL_ERROR"),
        (ZeroDivisionError("/secret/path"), 500, "INTERNAL_ERROR"),
    ],
)
def test_every_error_has_its_status_and_shows_nothing_inside(error, status, code):
    """The exception tree maps to the contract; an unknown error shows neither text nor trace."""

    async def failing(scope, receive, send):
        raise error

    got, _, body = call(guarded(failing))
    assert got == status
    assert error_of(body)["code"] == code
    assert "secret" not in body.decode()
    assert "Traceback" not in body.decode()
