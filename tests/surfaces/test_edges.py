"""The edge of the running server: odd headers, callers who hang up, forged log lines, idle connections."""

from __future__ import annotations

import json
import re
import socket

import pytest

from tests.surfaces.served import serving
from tests.waiting import until

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
        with socket.create_connection(("127.0.0.1", server.port), timeout=10) as connection:
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
