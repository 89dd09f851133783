"""A real server in a process of its own, for tests."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import contextmanager, nullcontext

from tests.waiting import LONG, until


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Server:
    """Speaks to one running server."""

    def __init__(self, process: subprocess.Popen, port: int) -> None:
        self.process = process
        self.port = port

    def call(self, method, path, body=None, headers=None, raw=None):
        """One request; returns (status, parsed body or text)."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LONG)
        data = raw if raw is not None else (json.dumps(body).encode() if body is not None else None)
        given = {"Content-Type": "application/json", **(headers or {})}
        try:
            connection.request(method, path, body=data, headers=given)
            answer = connection.getresponse()
            text = answer.read()
        finally:
            connection.close()
        try:
            return answer.status, json.loads(text)
        except ValueError:
            return answer.status, text.decode("utf-8", "replace")

    def raw(self, data, *, end=False):
        """Send bytes as they are, end the sending side if told to, and return all that is answered."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=60) as connection:
            connection.sendall(data)
            if end:
                connection.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        return answer

    def post(self, name, body, **kwargs):
        return self.call("POST", f"/api/v1/{name}", body, **kwargs)


def _answers(server: Server) -> bool:
    try:
        return server.call("GET", "/health")[0] == 200
    except OSError:
        assert server.process.poll() is None, "the server ended by itself"
        return False


@contextmanager
def serving(root, *options, env=None, log=None, port=None, handles=None):
    """Start `cairn server start` on `root`; stop it with SIGTERM and check that it ended well.

    What it logs goes to the file `log`, if one is named. `handles` is how many files it may have open.
    """
    port = port or free_port()
    command = [
        sys.executable,
        "-m",
        "cairn.surfaces.cli",
        "--root",
        str(root),
        "server",
        "start",
        "--port",
        str(port),
    ]
    if handles is not None:
        command = ["sh", "-c", f'ulimit -n {handles}; exec "$0" "$@"', *command]
    clean = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
    with open(log, "ab") if log else nullcontext() as errors:
        process = subprocess.Popen(
            [*command, *options], env={**clean, **(env or {})}, stdout=subprocess.DEVNULL, stderr=errors
        )
    server = Server(process, port)
    try:
        until(lambda: _answers(server), "the server did not come up")
        yield server
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(LONG)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise


@contextmanager
def serving_tokens(base, env):
    """A server on `base`/root with tokens of four reaches, told of the repositories in `base`/repos.

    Gives a function that calls it as one of "all", "reader", "alice" (an owner) or "acme" (an app).
    """
    secrets = {name: f"{name}-0123456789abcdef" for name in ("all", "reader", "alice", "acme")}
    reach = {"all": "", "reader": " r", "alice": " rw owner=alice", "acme": " rw app=acme"}
    more = {
        "CAIRN_SERVER__TOKENS": ";".join(secrets[name] + reach[name] for name in secrets),
        "CAIRN_SERVER__PROJECT_ROOTS": str(base / "repos"),
    }
    with serving(base / "root", env={**env, **more}) as server:

        def call(who, method, path, body=None):
            status, answer = server.call(
                method, f"/api/v1/{path}", body, headers={"Authorization": f"Bearer {secrets[who]}"}
            )
            return status, answer.get("data") or answer["error"]

        yield call
