"""A small load client and the server processes it talks to.

The client speaks just enough HTTP over one kept-alive socket per caller, so that its own cost stays small beside
what it measures. Servers are real processes, started with the same command a person would type.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

PREFIX = "/api/v1/memory"


class Client:
    """One caller: a socket that stays open, requests one after the other."""

    def __init__(self, port: int, prefix: str = PREFIX, timeout: float = 120.0) -> None:
        self.port, self.prefix, self.timeout = port, prefix, timeout
        self._socket: socket.socket | None = None

    def request(self, method: str, path: str, body: bytes = b"") -> tuple[int, bytes]:
        """Status and body; raises OSError where nobody answers."""
        if self._socket is None:
            self._socket = socket.create_connection(("127.0.0.1", self.port), timeout=self.timeout)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        head = (
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{self.port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        try:
            self._socket.sendall(head.encode() + body)
            return self._answer(self._socket)
        except OSError:
            self.close()
            raise

    def _answer(self, connection: socket.socket) -> tuple[int, bytes]:
        seen = b""
        while b"\r\n\r\n" not in seen:
            seen += self._more(connection)
        head, _, body = seen.partition(b"\r\n\r\n")
        lines = head.split(b"\r\n")
        fields = {name.lower(): value for name, _, value in (line.partition(b": ") for line in lines[1:])}
        parts, left = [body], int(fields.get(b"content-length", b"0")) - len(body)
        while left > 0:
            parts.append(self._more(connection))
            left -= len(parts[-1])
        if fields.get(b"connection") == b"close":
            self.close()
        return int(lines[0].split()[1]), b"".join(parts)

    @staticmethod
    def _more(connection: socket.socket) -> bytes:
        part = connection.recv(1 << 16)
        if not part:
            raise ConnectionError("the server closed the connection")
        return part

    def post(self, name: str, **body: Any) -> dict[str, Any]:
        """The data of a memory call; anything but success is an error of the run."""
        status, answer = self.request("POST", f"{self.prefix}/{name}", json.dumps(body).encode())
        if status not in {200, 202}:
            raise RuntimeError(f"{name}: {status} {answer[:300]!r}")
        return json.loads(answer)["data"]

    def close(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None


class Running:
    """A server that somebody else started; it costs what its port's answers cost, no more is known of it."""

    def __init__(self, port: int) -> None:
        self.port = port

    def client(self) -> Client:
        return Client(self.port)

    def cpu_seconds(self) -> float:
        return 0.0

    def resident_mb(self) -> float:
        return 0.0


class Server(Running):
    """A server process, from its start until it answers, to its end by SIGTERM."""

    def __init__(self, command: Sequence[str], port: int, **environ: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CAIRN_")}
        super().__init__(port)
        began = time.perf_counter()
        self.process = subprocess.Popen(
            command, env={**kept, **environ}, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        client = Client(port, timeout=5)
        while True:
            try:
                if client.request("GET", "/health")[0] == 200:
                    break
            except OSError:
                client.close()
            if self.process.poll() is not None or time.perf_counter() - began > 180:
                raise SystemExit(f"the server did not come up: {' '.join(command)}")
            time.sleep(0.005)
        self.started_seconds = time.perf_counter() - began
        client.close()

    @classmethod
    def cairn(cls, root: Path, **environ: str) -> Server:
        port = free_port()
        command = [str(Path(sys.executable).parent / "cairn"), "server", "start", "--root", str(root)]
        return cls([*command, "--port", str(port), "--log-level", "warning"], port, **environ)

    @classmethod
    def echo(cls) -> Server:
        port = free_port()
        return cls([sys.executable, "-m", "benchmarks._echo", str(port)], port)

    def cpu_seconds(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def resident_mb(self) -> float:
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return round(int(line.split()[1]) / 1024, 1)
        raise RuntimeError("no VmRSS in /proc")

    def stop(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(40)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def milliseconds(seconds: Sequence[float], share: float = 0.5) -> float:
    """The given quantile, in milliseconds."""
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, round(share * (len(ordered) - 1)))] * 1e3, 2)


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def until(true: Callable[[], bool], pause: float = 0.002, limit: float = 60.0) -> float:
    """Seconds until `true()`."""
    began = time.perf_counter()
    while not true():
        if time.perf_counter() - began > limit:
            raise TimeoutError(f"not so after {limit:.0f} s")
        time.sleep(pause)
    return time.perf_counter() - began


def together(
    callers: int, seconds: float, work: Callable[[int, Callable[[], bool]], int]
) -> tuple[float, int]:
    """Things done per second by so many threads; `work(number, go_on)` returns how many it did."""
    done = [0] * callers
    failures: list[BaseException] = []
    until_then = time.perf_counter() + seconds

    def run(number: int) -> None:
        try:
            done[number] = work(number, lambda: time.perf_counter() < until_then)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(callers)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return sum(done) / (time.perf_counter() - began), sum(done)
