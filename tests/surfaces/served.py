"""A real server for tests: in a process of its own, or in a thread of this one where no promise is about processes."""

from __future__ import annotations

import asyncio
import atexit
import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from contextlib import contextmanager, nullcontext

import uvicorn

import cairn
from cairn import config
from cairn.aio import AsyncMemory
from cairn.surfaces.http import build_app
from tests.waiting import LONG, until

_kept: dict[int, socket.socket] = {}


def free_port() -> int:
    """A port that nobody else is given until this process ends: a socket stays bound to it and never listens, beside
    which a server can.
    """
    probe = socket.socket()
    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    probe.bind(("127.0.0.1", 0))
    port = int(probe.getsockname()[1])
    _kept[port] = probe
    return port


@atexit.register
def _free_ports() -> None:
    while _kept:
        _kept.popitem()[1].close()


class Server:
    """Speaks to one running server."""

    def __init__(self, process: subprocess.Popen | None, port: int) -> None:
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
        with socket.create_connection(("127.0.0.1", self.port), timeout=LONG) as connection:
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
def serving_here(root, *, env=None):
    """The application of `cairn server start` on a real socket, in a thread of this process: half a second less to start."""
    made = uvicorn.Server(
        uvicorn.Config(
            build_app(AsyncMemory(config.load(root, environ=env or {}))),
            log_config=None,
            access_log=False,
            ws="none",
        )
    )
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = int(listener.getsockname()[1])
        thread = threading.Thread(target=lambda: asyncio.run(made.serve(sockets=[listener])))
        thread.start()
        try:
            until(lambda: made.started or not thread.is_alive(), "the server did not come up")
            assert made.started, "the server ended by itself"
            yield Server(None, port)
        finally:
            made.should_exit = True
            thread.join(LONG)
            assert not thread.is_alive(), "the server did not end"


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


def repository(at):
    """A repository with a readme and a project memory."""
    at.mkdir(parents=True)
    (at / "README.md").write_text("# Tides\n\nReads tide tables.\n")
    clean = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull, "PATH": os.environ["PATH"]}
    subprocess.run(["git", "init", "-q", str(at)], check=True, env=clean)
    cairn.open_project(at).init()
    return at
