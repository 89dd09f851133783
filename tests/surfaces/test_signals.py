"""What signals do to a real server: SIGHUP reloads and says so, a lost terminal and SIGTERM let it finish first."""

import json
import os
import signal
import socket
import subprocess
import sys

from cairn.surfaces.hangup import RELOADED, changed
from tests.surfaces.served import free_port, serving
from tests.waiting import LONG, until

OLD, NEW = "old-token-0123456789", "new-token-0123456789"


def settings(root, *, tokens, level="warning", top_k=10):
    root.mkdir(exist_ok=True)
    (root / "cairn.toml").write_text(
        f'[server]\ntokens = {json.dumps(tokens)}\n[logging]\nlevel = "{level}"\nformat = "json"\n'
        f"[search]\ntop_k = {top_k}\n",
        encoding="utf-8",
    )


def said(log):
    return [json.loads(line) for line in log.read_text(encoding="utf-8").splitlines() if line.startswith("{")]


def hang_up(server, log, words):
    """Send SIGHUP and return the line of the log that answers it."""
    before = len(said(log))
    server.process.send_signal(signal.SIGHUP)
    until(lambda: any(words in line["message"] for line in said(log)[before:]), f"no line says: {words}")
    return next(line["message"] for line in said(log)[before:] if words in line["message"])


def status_for(server, token):
    return server.call("GET", "/metrics", headers={"Authorization": f"Bearer {token}"})[0]


def test_sighup_reloads_and_says_so(tmp_path):
    """Tokens and the log's level change without a restart; what needs one is named; what is wrong changes nothing."""
    root, log = tmp_path / "root", tmp_path / "log"
    settings(root, tokens=[OLD])
    with serving(root, log=log) as server:
        assert (status_for(server, OLD), status_for(server, NEW)) == (200, 401)
        assert not [line for line in said(log) if line["message"] == "request"]

        settings(root, tokens=[NEW], level="info", top_k=3)
        answer = hang_up(server, log, "settings reloaded")
        assert answer == (
            "settings reloaded: logging.level, server.tokens; search.top_k changed, too, and wait for a restart"
        )
        assert (status_for(server, OLD), status_for(server, NEW)) == (401, 200)
        until(
            lambda: [line for line in said(log) if line["message"] == "request"], "the level did not change"
        )

        settings(root, tokens=["short"])
        assert "at least 16 characters" in hang_up(server, log, "were not reloaded")
        settings(root, tokens=[])
        assert "would let everybody in" in hang_up(server, log, "were not reloaded")
        (root / "cairn.toml").write_text("[server\n", encoding="utf-8")
        assert "cairn.toml" in hang_up(server, log, "were not reloaded")
        assert (status_for(server, OLD), status_for(server, NEW)) == (401, 200)
    assert server.process.returncode is not None
    assert OLD not in log.read_text() and NEW not in log.read_text()


def test_what_is_reloaded_are_settings():
    """Every name in the list is a setting of its section."""
    from dataclasses import fields

    from cairn.config import SECTIONS, Settings

    known = {f"{section}.{one.name}" for section, kind in SECTIONS.items() for one in fields(kind)}
    assert known >= RELOADED
    assert changed(Settings(), Settings()) == set()


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), timeout=LONG).close()
    except ConnectionRefusedError:
        return False
    return True


def test_sigterm_answers_what_has_begun(tmp_path):
    """A call whose body is halfway here when SIGTERM comes is answered, and what it said is kept."""
    body = json.dumps(
        {
            "session_id": "s1",
            "messages": [
                {"sender_id": "ann", "role": "user", "timestamp": 1767225600000, "content": "Tea, no milk."}
            ],
        }
    ).encode()
    head = (
        f"POST /api/v1/memory/add HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    ).encode()
    with serving(tmp_path / "root") as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=LONG) as caller:
            caller.sendall(head + body[:20])
            assert server.call("GET", "/health")[0] == 200  # the loop has read what was sent before
            server.process.send_signal(signal.SIGTERM)
            until(lambda: not listens(server.port), "the server still listens")
            assert server.process.poll() is None
            caller.sendall(body[20:])
            answer = b""
            while piece := caller.recv(65536):
                answer += piece
        assert answer.startswith(b"HTTP/1.1 200 ")
        server.process.wait(LONG)
    with serving(tmp_path / "root") as server:
        assert server.post("memory/flush", {"session_id": "s1"})[1]["data"]["status"] == "extracted"


def test_a_server_whose_terminal_is_gone_stops(tmp_path):
    """Closing the window ends a server that was started in it: nobody could stop it otherwise."""
    port = free_port()
    command = [sys.executable, "-m", "cairn.surfaces.cli", "--root", str(tmp_path / "root")]
    command += ["server", "start", "--port", str(port)]
    window = subprocess.Popen(
        [sys.executable, "-c", f"import pty; pty.spawn({command!r})"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        env={name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")},
    )
    try:
        until(lambda: listens(port), "the server did not come up")
    finally:
        window.kill()
        window.wait()
    until(lambda: not listens(port), "the server goes on without its terminal")
