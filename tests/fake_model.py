"""A scripted model endpoint: a real HTTP server on loopback that speaks chat completions and embeddings.

    with FakeModel(["429", "garbage"]) as model:      # the third request on is answered properly
        OpenAIWriter(LlmSettings(base_url=model.url, model="fake"))

Text in is text out: a proper answer fills every string the schema asks for with the words of the prompt, so a
test can look for them. Misbehaviours are named in `MISBEHAVIOURS`.
"""

from __future__ import annotations

import json
import threading
import zlib
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

GOOD = "good"
MISBEHAVIOURS = (
    "garbage", "empty", "html", "not-chat", "truncated", "braces-broken", "wrong-shape", "number", "deep", "refusal", "filtered",
    "cut-off", "400", "401", "404", "429", "500", "503", "hang", "drip", "drip-header", "disconnect", "huge-header", "nul", "empty-fields",
)  # fmt: skip


class FakeModel:
    """Start with `with`. `script` names what each request in turn gets; after its end every answer is good.

    `always` is given instead of the script's end. `requests` holds the bodies received, `paths` their paths.
    """

    def __init__(
        self, script: Sequence[str] = (), *, always: str = GOOD, answer: Callable[[dict], dict] | None = None
    ):
        self._script = list(script)
        self._always = always
        self._answer = answer or _episode_like
        self._guard = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.released = threading.Event()  # set by a test: what hangs or drips ends

    def __enter__(self) -> FakeModel:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                behaviour = fake._next(self.path, body, dict(self.headers))
                try:
                    _serve(fake, self, body, behaviour)
                except (BrokenPipeError, ConnectionResetError):
                    pass
                self.close_connection = True

            def log_message(self, *args: object) -> None:
                pass

        class Server(ThreadingHTTPServer):
            daemon_threads = True

            def handle_error(self, request: object, address: object) -> None:
                pass

        self._server = Server(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True
        )
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def _next(self, path: str, body: dict[str, Any], headers: dict[str, str]) -> str:
        with self._guard:
            self.paths.append(path)
            self.requests.append(body)
            self.headers.append(headers)
            return self._script.pop(0) if self._script else self._always


def _episode_like(schema: dict[str, Any], prompt: str = "") -> dict[str, Any]:
    return dict.fromkeys(schema.get("properties", {}), prompt)


def _serve(fake: FakeModel, handler: BaseHTTPRequestHandler, body: dict[str, Any], behaviour: str) -> None:
    if behaviour.startswith("redirect "):
        _, status, where = behaviour.split()
        return _send(handler, int(status), "", {"Location": where})
    if handler.path.endswith("/embeddings"):
        texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
        data = [{"index": n, "embedding": _vector(text)} for n, text in enumerate(texts)]
        return _send(handler, 200, json.dumps({"data": data}))
    system, prompt = body["messages"][0]["content"], body["messages"][1]["content"]
    schema = json.loads(system.rpartition("schema:\n")[2])
    good = json.dumps(
        fake._answer(body) if fake._answer is not _episode_like else _episode_like(schema, prompt),
        ensure_ascii=False,
    )
    if behaviour in {"400", "401", "404", "429", "500", "503"}:
        extra = {"Retry-After": "0"} if behaviour == "429" else {}
        return _send(handler, int(behaviour), '{"error": {"message": "scripted"}}', extra)
    if behaviour == "no-schema" and "response_format" in body:
        return _send(handler, 400, '{"error": {"message": "response_format is not supported"}}')
    if behaviour == "no-strict" and body.get("response_format", {}).get("type") == "json_schema":
        return _send(handler, 422, '{"error": {"message": "json_schema is not supported"}}')
    if behaviour == "hang":
        fake.released.wait()
        return None
    if behaviour == "disconnect":
        handler.connection.close()
        return None
    if behaviour == "drip":
        handler.send_response(200)
        handler.send_header("Content-Length", "100000")
        handler.end_headers()
        while not fake.released.wait(0.05):
            handler.wfile.write(b" ")
            handler.wfile.flush()
        return None
    if behaviour == "drip-header":
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Slow: ")
        while not fake.released.wait(0.05):
            handler.wfile.write(b"x")
            handler.wfile.flush()
        return None
    if behaviour == "huge-header":
        return _send(handler, 200, _chat(good), {"X-Big": "x" * 200_000})
    if behaviour == "html":
        return _send(handler, 200, "<html>Welcome to the proxy</html>")
    if behaviour == "not-chat":
        return _send(handler, 200, '{"choices": []}')
    texts = {
        "garbage": "I would rather not use JSON today.",
        "empty": "",
        "truncated": good[: len(good) * 2 // 3],
        "braces-broken": "{}{{}}}{" + good[1:-1].replace('": "', '": }"{') + "}}}{",
        "wrong-shape": '{"subject": 7, "summary": ["a"]}',
        "number": "42",
        "deep": "[" * 5000 + "{" * 5000,
        "cut-off": good[:20],
        "nul": json.dumps(dict.fromkeys(schema.get("properties", {}), chr(0) + chr(0xD800))),
        "empty-fields": json.dumps(dict.fromkeys(schema.get("properties", {}), "  ")),
        "fenced": f"Here you are:\n```json\n{good}\n```\nAnything else?",
        "thinking": f'<think>maybe {{"subject": 1}}?</think>{good}',
        "late-thinking": f'so {{"x": }} hmm</think>\n{good}',
        "braces": f"Some {{ text }} first: {{}} {good} and }} after {{",
    }
    message: dict[str, Any] = {"role": "assistant", "content": texts.get(behaviour, good)}
    if behaviour == "refusal":
        message = {"role": "assistant", "content": None, "refusal": "I cannot help with that."}
    finish = {"cut-off": "length", "filtered": "content_filter"}.get(behaviour, "stop")
    return _send(handler, 200, _chat("", message=message, finish=finish, usage=behaviour != "no-usage"))


def _chat(
    text: str, *, message: dict[str, Any] | None = None, finish: str = "stop", usage: bool = True
) -> str:
    choice = {
        "index": 0,
        "message": message or {"role": "assistant", "content": text},
        "finish_reason": finish,
    }
    body: dict[str, Any] = {"id": "x", "object": "chat.completion", "choices": [choice]}
    if usage:
        body["usage"] = {"prompt_tokens": 100, "completion_tokens": 20, "total_tokens": 120}
    return json.dumps(body)


def _send(
    handler: BaseHTTPRequestHandler, status: int, text: str, headers: dict[str, str] | None = None
) -> None:
    data = text.encode("utf-8", "surrogatepass")
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(data)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    handler.wfile.write(data)


def _vector(text: str, size: int = 32) -> list[float]:
    out = [0.0] * size
    for word in text.lower().split():
        code = zlib.crc32(word.encode())
        out[code % size] += 1.0 if code & 0x80000000 else -1.0
    return out if any(out) else [1.0, *out[1:]]
