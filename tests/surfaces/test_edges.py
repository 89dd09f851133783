"""The edge of the running server: odd headers, callers who hang up, forged log lines, idle connections."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import threading
import time
from types import SimpleNamespace

import pytest

from cairn.surfaces.connections import Connections, Watched
from tests.surfaces.served import free_port, serving
from tests.waiting import LONG, until

ENV = {"CAIRN_EMBEDDING__PROVIDER": "none", "CAIRN_STRATEGIES__ENABLED": "false"}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    """A server that logs every request, and the file it logs to."""
    base = tmp_path_factory.mktemp("edges")
    log = base / "log"
    env = {**ENV, "CAIRN_LOGGING__LEVEL": "info"}
    with serving(base / "root", env=env, log=log) as server:
        yield server, log


def status_of(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def request(*headers: str, path: str = "/health", method: str = "GET", body: bytes = b"") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", *headers, "Connection: close", "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


def counted(server, status: int) -> int:
    """How many answers with `status` the server has counted."""
    found = re.findall(
        rf'cairn_requests_total{{[^}}]*status="{status}"[^}}]*}} (\d+)',
        server.call("GET", "/metrics")[1],
    )
    return sum(map(int, found))


@pytest.mark.parametrize(
    "headers",
    [
        ("Host: [::1]evil.example",),
        ("Host: localhost:evil.example",),
        ("Host: localhost:80:80",),
        ("Host: localhost@evil.example",),
        ("Host: evil.example/localhost",),
        ("Host: evil.example", "Host: localhost"),
        ("Host: localhost", "Host: evil.example"),
        ("Host: [::1",),
        ("Host: localhost", "Origin: http://[::1"),
        ("Host: localhost", "Origin: http://localhost", "Origin: http://evil.example"),
        ("Host: localhost", "Origin: http://evil.example", "Origin: http://localhost"),
        ("Host: localhost", "Origin: http://localhost@evil.example"),
        ("Host: localhost", "Origin: http://localhost/evil.example"),
        ("Host: localhost", "Origin: ]["),
        ("Host: localhost", "Origin: \xff\xfe"),
        ("Host: localhost", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none"),
    ],
)
def test_malformed_and_doubled_headers_are_refused(served, headers):
    """Whoever calls says once, and readably, whom it calls and from where; or it is refused, by a 4xx."""
    server, log = served
    answer = server.raw(request(*headers))
    assert status_of(answer) in {400, 403}, answer
    assert b'"error"' in answer or b"Invalid HTTP request" in answer
    assert "Traceback" not in log.read_text()


def test_a_target_that_names_another_host_is_refused(served):
    """It overrules the Host header, so it is judged in its place; our own name in it is as good as a path."""
    server, log = served
    for target in (
        "http://evil.example/health",
        "HTTP://evil.example:80/health",
        "http://localhost@evil/health",
        "ftp://e",
    ):
        answer = server.raw(request("Host: localhost", path=target))
        assert status_of(answer) in {400, 403}, (target, answer)
    for method, target in (("OPTIONS", "*"), ("CONNECT", "evil.example:443"), ("GET", "evil.example/health")):
        assert 400 <= status_of(server.raw(request("Host: localhost", path=target, method=method))) < 500, (
            target
        )
    assert status_of(server.raw(request("Host: evil.example", path="http://localhost/health"))) == 200
    assert "Traceback" not in log.read_text()


def test_plain_callers_still_pass(served):
    """The names of this machine, in any case, with a page of our own."""
    server, _ = served
    port = server.port
    for headers in (
        (f"Host: localhost:{port}",),
        (f"Host: LOCALHOST:{port}",),
        ("Host: [::1]:1",),
        (f"Host: 127.0.0.1:{port}", f"Origin: http://127.0.0.1:{port}"),
    ):
        assert status_of(server.raw(request(*headers))) == 200, headers


def test_a_caller_who_hangs_up_is_no_fault_of_the_server(served):
    """In the middle of a body: no traceback, nothing counted as 500, nothing kept."""
    server, log = served
    before = counted(server, 499)
    heads = [
        ("Host: localhost", "Content-Type: application/json", "Content-Length: 5000"),
        ("Host: localhost", "Content-Type: application/json", "Transfer-Encoding: chunked"),
    ]
    for head in heads:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as connection:
            connection.sendall(request(*head, path="/api/v1/memory/add", method="POST"))
            connection.sendall(b'{"session_id": ' if "5000" in head[-1] else b'f\r\n{"session_id": \r\n')
    until(lambda: counted(server, 499) == before + len(heads), "they were not counted as ended by the caller")
    assert counted(server, 500) == 0
    assert "Traceback" not in log.read_text()
    assert not list((log.parent / "root").rglob("sessions/*"))


@pytest.mark.parametrize(
    "path",
    [
        "/api/v1/a%0aFORGED",
        "/api/v1/a%0d%0aFORGED",
        "/a%1b%5b2JFORGED",
        "/a%c2%9bFORGED",
        "/a%e2%80%a8FORGED",
    ],
)
def test_log_lines_cannot_be_forged(served, path):
    """What a caller sends stands inside its own line, with nothing a terminal would obey."""
    server, log = served
    assert status_of(server.raw(request("Host: localhost", path=path))) == 404
    text = log.read_bytes().decode("utf-8")
    assert "FORGED" in text
    for line in re.split("[\n\r\x85\u2028\u2029]", text):
        assert not line or re.match(r"\d\d:\d\d:\d\d \w+ +[\w.]+: |  ", line), line
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f]", text)


def test_a_forged_field_stays_in_its_value(served):
    """A path with blanks and an equals sign is one value, in quotes."""
    server, log = served
    assert status_of(server.raw(request("Host: localhost", path="/a%20status=200%20forged=yes"))) == 404
    [line] = [line for line in log.read_text().splitlines() if "forged=yes" in line]
    assert 'path="/a status=200 forged=yes"' in line
    assert line.endswith(tuple("0123456789"))


def test_json_logs_are_one_object_a_line(tmp_path):
    """The same in JSON: each line is one whole object."""
    log = tmp_path / "log"
    env = {**ENV, "CAIRN_LOGGING__LEVEL": "info", "CAIRN_LOGGING__FORMAT": "json"}
    with serving(tmp_path / "root", env=env, log=log) as server:
        server.raw(request("Host: localhost", path="/a%0a%7b%22level%22:%22error%22%7d%1b%c2%9b"))
    lines = [json.loads(line) for line in re.split("[\n\r\x85\u2028]", log.read_text()) if line]
    assert [line["path"] for line in lines if "level" in line.get("path", "")] == [
        '/a\n{"level":"error"}\x1b\x9b'
    ]
    assert "\x9b" not in log.read_text()


# ---------------------------------------------------------------- connections


def connect(port: int, data: bytes = b"") -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", port), timeout=LONG)
    if data:
        connection.sendall(data)
    return connection


def rest_of(connection: socket.socket) -> bytes:
    """All that comes until the server lets go."""
    answer = b""
    try:
        while piece := connection.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    finally:
        connection.close()
    return answer


def figure(server, name: str) -> int:
    return int(re.search(rf"^{name} (\d+)$", server.call("GET", "/metrics")[1], re.MULTILINE)[1])


def test_connections_without_a_request_are_let_go(tmp_path):
    """Idle ones, half a head, a head that drips, and a second request that never ends: closed and counted."""
    env = {**ENV, "CAIRN_SERVER__HEADER_TIMEOUT_SECONDS": "2"}
    half = b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
    with serving(tmp_path / "root", env=env) as server:
        idle = [connect(server.port) for _ in range(20)]
        begun = [connect(server.port, half) for _ in range(20)]
        assert [rest_of(one) for one in idle] == [b""] * 20
        assert {status_of(rest_of(one)) for one in begun} == {408}
        dripping = connect(server.port, half)
        dripping.settimeout(0.02)
        for _ in range(1000):  # a byte now and then does not start the clock again
            try:
                if not dripping.recv(65536):
                    break
            except TimeoutError:
                dripping.sendall(b"x")
            except ConnectionError:
                break
        else:
            pytest.fail("a dripping head kept its connection")
        dripping.close()
        second = connect(server.port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answer = b""
        while not answer.endswith(b"}"):
            answer += second.recv(65536)
        second.sendall(half)
        assert status_of(rest_of(second)) == 408
        assert figure(server, "cairn_connections_late") == 42
        assert figure(server, "cairn_connections") == 1


def test_a_body_that_drips_is_answered_once_and_the_connection_ends(tmp_path):
    """What of it comes after the answer is no next request that would be late in its turn."""
    env = {**ENV, "CAIRN_SERVER__BODY_TIMEOUT_SECONDS": "0.3", "CAIRN_SERVER__HEADER_TIMEOUT_SECONDS": "2"}
    head = b"POST /api/v1/memory/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 900\r\n\r\n{"
    with serving(tmp_path / "root", env=env) as server:
        dripping = connect(server.port, head)
        dripping.settimeout(0.05)
        answer = b""
        for _ in range(1000):
            try:
                if not (piece := dripping.recv(65536)):
                    break
                answer += piece
            except TimeoutError:
                dripping.sendall(b" ")
            except ConnectionError:
                break
        else:
            pytest.fail("the connection stayed open")
        dripping.close()
        assert answer.count(b"HTTP/1.1 408") == 1
        assert b"did not arrive in time" in answer


def test_a_caller_that_ends_its_sending_still_hears_the_answer(served):
    """A request that is all there is answered, however soon its sender says that no more will come; half a one is not."""
    server = served[0]
    asked = b'{"query": "anything", "user_id": "ann"}'
    head = b"POST /api/v1/memory/search HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    for _ in range(5):
        assert status_of(server.raw(head % len(asked) + asked, end=True)) == 200
        assert status_of(server.raw(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n", end=True)) == 200
    assert server.raw(head % len(asked) + asked[:9], end=True) == b""
    until(lambda: figure(server, "cairn_connections") == 1, "a connection stayed")


def test_a_head_without_an_end_is_refused(served):
    """However fast it comes: what a head may weigh is bounded, so it fills no memory while its time runs."""
    with connect(served[0].port, b"GET /health HTTP/1.1\r\nHost: localhost\r\n") as endless:
        with pytest.raises(ConnectionError):  # noqa: PT012 -- the server may close at any of them
            for _ in range(4000):
                endless.sendall(b"X-More: " + b"a" * 8000 + b"\r\n")
    long = request("Host: localhost", "X-Long: " + "a" * 30_000)
    assert status_of(rest_of(connect(served[0].port, long))) == 200


def test_the_longest_idle_connection_makes_room(tmp_path):
    """However many idle ones there are, a caller with a request gets its answer."""
    env = {**ENV, "CAIRN_SERVER__MAX_CONNECTIONS": "5", "CAIRN_SERVER__HEADER_TIMEOUT_SECONDS": "600"}
    with serving(tmp_path / "root", env=env) as server:
        idle = [connect(server.port) for _ in range(25)]
        assert server.post("memory/search", {"user_id": "a", "query": "x", "consistency": "strong"})[0] == 200
        assert [rest_of(one) for one in idle[:20]] == [b""] * 20
        assert figure(server, "cairn_connections_crowded") >= 20
        for one in idle[20:]:
            one.close()


def test_few_handles_and_many_idle_connections_at_the_start(tmp_path):
    """64 handles, 30 connections that wait before the server does: it comes up, what it cannot do is refused, and
    once they are gone every call works, embedding included.
    """
    port, waiting = free_port(), []

    def crowd() -> None:
        while len(waiting) < 30:
            try:
                waiting.append(connect(port))
            except OSError:
                time.sleep(0.001)

    crowding = threading.Thread(target=crowd)
    crowding.start()
    log = tmp_path / "log"
    env = {"CAIRN_EMBEDDING__PROVIDER": "hashing"}
    with serving(tmp_path / "root", env=env, port=port, handles=64, log=log) as server:
        crowding.join()
        messages = [{"sender_id": "a", "role": "user", "timestamp": 1780300000000, "content": "Tea at noon."}]
        calls = [
            ("memory/add", {"session_id": "s", "messages": messages}),
            ("memory/flush", {"session_id": "s"}),
            ("memory/search", {"user_id": "a", "query": "tea", "consistency": "strong", "method": "vector"}),
        ]

        def tried(one):
            try:
                return server.post(*one)
            except ConnectionError:  # the system had no handle left to take the call in with
                return 503, None

        assert {tried(one)[0] for one in calls} <= {200, 503}
        for one in waiting:
            one.close()

        def works() -> bool:
            answers = [tried(one) for one in calls]
            assert {status for status, _ in answers} <= {200, 503}
            return {status for status, _ in answers} == {200} and "Tea at noon." in str(answers[-1])

        until(works, "it did not recover")


# ---------------------------------------------------------------- long texts


def test_a_megabyte_of_password_signs_is_kept_like_any_other_text(served):
    """What looks like the beginning of secrets, over and over, is kept; the one secret in it is not."""
    server, log = served
    planted = "Xk29" + "vQz7" + "Lm31"
    said = {"sender_id": "kim", "role": "user", "timestamp": 1780300000000}
    said["content"] = "password=" * 116_000 + planted
    assert server.post("memory/add", {"session_id": "long", "messages": [said]})[0] == 200
    [kept] = (log.parent / "root").rglob("sessions/long.jsonl")
    assert "password=password=" in kept.read_text()
    assert planted not in kept.read_text()


def test_a_caller_who_takes_no_answer_keeps_no_place(tmp_path):
    """All places held by callers who ask and never read: they are cut off in time, and others are answered."""
    env = {**ENV, "CAIRN_SERVER__MAX_CONNECTIONS": "8", "CAIRN_SERVER__HEADER_TIMEOUT_SECONDS": "2"}
    many = b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 100

    def answered(server):
        try:
            return server.call("GET", "/health")[0] == 200
        except OSError:
            return False

    with serving(tmp_path / "root", env=env) as server, contextlib.ExitStack() as held:
        for _ in range(8):
            deaf = held.enter_context(socket.socket())
            deaf.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
            deaf.connect(("127.0.0.1", server.port))
            deaf.sendall(many)
        until(lambda: answered(server), "nobody else is answered")
        until(lambda: figure(server, "cairn_connections") == 1, "some kept their places")
        assert figure(server, "cairn_connections_late") > 0


class Answering(asyncio.Protocol):
    """A connection's protocol in the middle of an answer."""

    cycle = SimpleNamespace(response_complete=False)


class Slow(asyncio.Transport):
    """The way to a caller who leaves of an answer what `left` says, look by look."""

    def __init__(self, left: list[int]) -> None:
        super().__init__()
        self.left, self.aborted = left, asyncio.Event()

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return self.left.pop(0)

    def abort(self) -> None:
        self.aborted.set()


def test_a_caller_who_takes_an_answer_slowly_is_waited_for():
    """It is cut off when nothing was taken since the last look, however long the whole takes."""

    async def run() -> list[int]:
        transport = Slow([900, 600, 300, 300, 300])
        watched = Watched(Connections(limit=8, seconds=0.001), Answering())
        watched.connection_made(transport)
        watched.pause_writing()
        await transport.aborted.wait()
        return transport.left

    assert asyncio.run(run()) == [300]


def listening(server, token: str = "") -> tuple[socket.socket, int]:
    """A stream of events that has begun, or was refused, and the status it was answered with."""
    lines = [
        "GET /api/v1/events HTTP/1.1",
        "Host: localhost",
        "Accept: text/event-stream",
        *([f"Authorization: Bearer {token}"] if token else []),
    ]
    connection = connect(server.port, "\r\n".join([*lines, "", ""]).encode())
    answer = connection.recv(65536)
    while b"\r\n\r\n" not in answer or (status_of(answer) == 200 and b"retry: " not in answer):
        answer += connection.recv(65536)
    return connection, status_of(answer)


def test_streams_leave_places_for_calls(tmp_path):
    """One caller who opens as many streams as there are connections gets half of them; calls go on."""
    with serving(tmp_path / "root", env={**ENV, "CAIRN_SERVER__MAX_CONNECTIONS": "8"}) as server:
        streams = [listening(server) for _ in range(7)]
        assert [status for _, status in streams] == [200] * 4 + [429] * 3
        assert server.call("GET", "/health")[0] == 200
        for connection, _ in streams:
            connection.close()
        until(lambda: figure(server, "cairn_connections") == 1)
        until(lambda: _ends(listening(server)) == 200, "their places are free again")


def _ends(stream: tuple[socket.socket, int]) -> int:
    stream[0].close()
    return stream[1]


def test_a_stream_ends_with_its_token(tmp_path):
    """What is told goes to nobody whose token was revoked meanwhile."""
    chief = "chief-0123456789abcdef"
    rights = {"Authorization": f"Bearer {chief}"}
    with serving(tmp_path / "root", env={**ENV, "CAIRN_SERVER__TOKENS": f"{chief} rw admin"}) as server:
        made = server.post("tokens", {"name": "guest", "rights": "r"}, headers=rights)[1]["data"]
        guest, _ = listening(server, made["secret"])
        other, _ = listening(server, chief)
        assert server.call("DELETE", "/api/v1/tokens/guest", headers=rights)[0] == 200
        rest_of(guest)  # comes to its end
        said = {"content": "The lighthouse keeper whistles at noon."}
        assert server.post("memories", said, headers=rights)[0] == 200
        heard = b""
        while b"lighthouse" not in heard:
            heard += other.recv(65536)
        other.close()
