"""The client for model endpoints goes where the settings say and nowhere else, whatever it is told on the way."""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

import cairn
from cairn.config import LlmSettings
from cairn.engines.embedders import ServiceEmbedder
from cairn.engines.model_http import ModelEndpoint, NoAnswer
from cairn.engines.writers import OpenAIWriter
from cairn.errors import Misconfigured, Unavailable
from tests.fake_model import FakeModel
from tests.waiting import LONG

KEY = "sk-mine-0123456789"
SCHEMA = {"type": "object", "properties": {"subject": {"type": "string"}}, "required": ["subject"]}


def write(url: str, **settings: str) -> None:
    writer = OpenAIWriter(LlmSettings(base_url=url, model="m", api_key=KEY, timeout_seconds=LONG, **settings))
    writer.complete("You summarise.", "the words", SCHEMA, purpose="test")


def embed(url: str, **settings: str) -> None:
    ServiceEmbedder(url, "m", api_key=KEY, timeout_seconds=LONG, **settings).embed(["the words"])


BOTH = pytest.mark.parametrize("ask", [write, embed])


class Proxy:
    """A proxy that writes down what it is asked for and passes nothing on."""

    def __enter__(self):
        asked = self.asked = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                asked.append((self.path, self.headers.get("Authorization")))
                self.send_response(403)
                self.send_header("Content-Length", "0")
                self.end_headers()

            do_CONNECT = do_POST

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        return self

    def __exit__(self, *exc):
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


@BOTH
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_a_redirect_is_refused_by_name_and_nothing_goes_there(ask, status, host):
    """Another port or host gets neither words nor key; the error says where it pointed and what to do."""
    with FakeModel() as thief:
        there = thief.url.replace("127.0.0.1", host)
        with FakeModel(always=f"redirect {status} {there}/chat/completions?x=1") as model:
            with pytest.raises(Unavailable) as caught:
                ask(model.url)
            assert len(model.requests) == 1, "a redirect is not asked again"
        assert thief.requests == []
    assert f"redirect to {there.removesuffix('/v1')} that is not followed" in str(caught.value)
    assert KEY not in str(caught.value)


@BOTH
@pytest.mark.parametrize("where", ["http://[::1", "//x\x1b[31m/", "/elsewhere", "http://me:pw@h/"])
def test_a_redirect_is_named_without_harm(ask, where):
    """Whatever stands in the header: no password, no escape, no crash."""
    with FakeModel(always=f"redirect 302 {where}") as model, pytest.raises(Unavailable) as caught:
        ask(model.url)
    assert not re.search(r"\x1b|pw", str(caught.value))


@BOTH
def test_a_proxy_of_the_environment_is_not_used(ask, monkeypatch):
    """http_proxy and its kin may have been set by anybody's shell; the settings name none."""
    with FakeModel() as model, Proxy() as proxy:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        for name in ("no_proxy", "NO_PROXY"):
            monkeypatch.delenv(name, raising=False)
        ask(model.url)
        assert (len(model.requests), proxy.asked) == (1, [])


@BOTH
def test_a_proxy_of_the_settings_is_used(ask):
    """Named in the settings, it gets the request instead of the endpoint."""
    with FakeModel() as model, Proxy() as proxy:
        with pytest.raises(Unavailable, match="403"):
            ask(model.url, proxy=proxy.url)
        assert model.requests == []
        assert proxy.asked[0][0].startswith(model.url)


def test_no_password_of_the_environment_is_sent(tmp_path, monkeypatch):
    """A .netrc for the host is somebody's, not ours; neither is one in the address."""
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login me password pw\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with FakeModel() as model:
        ModelEndpoint("llm", model.url.replace("//", "//me:pw@"), "embeddings").post(b'{"input": ["x"]}', 5)
        assert "Authorization" not in model.headers[0]


def test_an_answer_has_a_longest_length():
    """More than that is not read."""
    with FakeModel() as model:
        small = ModelEndpoint("llm", model.url, "embeddings", max_bytes=20)
        with pytest.raises(NoAnswer, match="larger than 20 bytes"):
            small.post(b'{"input": ["x"]}', 5)


@pytest.mark.parametrize(
    "url", ["ftp://x", "http://", "http://h:99999", "http://[::1", "file:///etc", "http://me:hunter2@h:99999"]
)
def test_an_unusable_address_is_refused_at_the_start(url):
    """Endpoint and proxy alike; a password in it is not said again."""
    for section, more in (("llm", {}), ("embedding", {"proxy": url})):
        with pytest.raises(Misconfigured) as caught:
            ModelEndpoint(section, "http://127.0.0.1:1" if more else url, "x", **more)
        assert f"[{section}]" in str(caught.value)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h/v1", "http://h/v1/embeddings"),
        ("http://h/v1/", "http://h/v1/embeddings"),
        ("https://h:8443/v1?api-version=3", "https://h:8443/v1/embeddings?api-version=3"),
        ("http://[::1]:80/v1", "http://[::1]:80/v1/embeddings"),
    ],
)
def test_the_address_is_made_from_the_base(base, url):
    """The operation goes after the path, a query stays at the end."""
    assert ModelEndpoint("embedding", base, "embeddings").url == url


ERRORS = [
    error
    for error in vars(httpx2).values()
    if isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, Warning)
]


@pytest.mark.parametrize("error", [*ERRORS, OSError, UnicodeError], ids=lambda error: error.__name__)
def test_every_error_of_the_library_is_translated(error, monkeypatch):
    """A new version may bring a new one: all of them are walked."""

    def fail(*args, **kwargs):
        raise error.__new__(error)

    monkeypatch.setattr(httpx2.Client, "stream", fail)
    with pytest.raises(NoAnswer):
        ModelEndpoint("llm", "http://127.0.0.1:1", "x").post(b"", 5)


def test_one_module_speaks_http_and_only_when_asked():
    """No second client (but for who asks whether a server is up here), and none is imported before the first request."""
    source = Path(cairn.__file__).parent
    clients = re.compile(
        r"^\s*(import|from) (httpx2?|http\.client|urllib\.request|urllib3|requests|aiohttp)\b", re.M
    )
    found = sorted(path.name for path in source.rglob("*.py") if clients.search(path.read_text()))
    assert found == ["browse_cli.py", "model_http.py"]
    code = "import sys, cairn.engines.writers, cairn.engines.embedders; sys.exit('httpx2' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
