"""An engine that does not answer is waited for once; what a store refuses is told in words that say what to do."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from cairn.engines.objects import ObjectBackend
from cairn.engines.outages import Outage
from cairn.errors import NotFound, StorageFailed, Unavailable
from cairn.seams import Locator


def test_those_who_come_after_are_told_at_once_and_one_asks_again():
    """The engine is asked once for each moment that it is away; a refusal is an answer, and ends it."""
    now, asked, trouble = [0.0], [], [Unavailable("The store is away.")]
    outage = Outage(1.0, clock=lambda: now[0])

    def ask() -> str:
        try:
            with outage.watched():
                asked.append(now[0])
                if trouble:
                    raise trouble[0]
        except (Unavailable, NotFound) as error:
            return str(error)
        return "answered"

    assert [ask() for _ in range(5)] == ["The store is away."] * 5 and asked == [0.0]
    now[0] = 1.5
    assert ask() == outage.words == "The store is away." and asked == [0.0, 1.5]
    trouble[0] = StorageFailed("The key is wrong.")
    now[0] = 3.0
    assert ask() == ask() == "The key is wrong." and not outage.words and len(asked) == 4
    trouble[0] = NotFound("Nothing is there.")
    assert ask() == ask() == "Nothing is there." and len(asked) == 6
    trouble.clear()
    assert ask() == "answered" and outage.words == ""


def test_only_one_waits_while_it_is_away():
    """Somebody who asks while another waits for the answer is refused, in the words known so far."""
    now = [0.0]
    outage = Outage(1.0, clock=lambda: now[0])
    with pytest.raises(Unavailable), outage.watched():
        raise Unavailable("away")
    now[0] = 2.0
    with outage.watched():
        with pytest.raises(Unavailable, match="away"), outage.watched():
            raise AssertionError("it was asked twice")
    with outage.watched():
        pass
    assert outage.words == ""


class Refusing(BaseHTTPRequestHandler):
    """An S3 server that refuses everything, as `status` and `code` say."""

    status, code = 200, ""

    def do(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = f"<?xml version='1.0'?><Error><Code>{self.code}</Code></Error>" if self.code else ""
        self.send_response(self.status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body.encode())

    do_GET = do_PUT = do_HEAD = do_DELETE = do

    def log_message(self, *_: object) -> None:
        pass


REFUSALS = (
    (403, "RequestTimeTooSkewed", StorageFailed, "the clock of this machine"),
    (403, "SignatureDoesNotMatch", StorageFailed, "the secret key is wrong"),
    (403, "InvalidAccessKeyId", StorageFailed, "the access key is unknown"),
    (404, "NoSuchBucket", StorageFailed, "there is no such bucket"),
    (400, "ExpiredToken", StorageFailed, "the session token has run out"),
    (400, "AuthorizationHeaderMalformed", StorageFailed, "correct storage.region"),
    (403, "QuotaExceeded", StorageFailed, "no room left"),
    (403, "", StorageFailed, "refuses this machine"),
    (400, "OddRequest", StorageFailed, "OddRequest"),
    (503, "SlowDown", Unavailable, "wants fewer requests"),
    (429, "", Unavailable, "wants fewer requests"),
    (500, "", Unavailable, "does not answer or is busy"),
)


def test_what_a_store_refuses_is_told_by_its_cause(monkeypatch):
    """Keys, clocks, regions and room are named; only a store that is busy or silent is worth another try."""
    from obstore.store import S3Store

    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        bucket = S3Store(
            "cairn", endpoint=f"http://127.0.0.1:{server.server_port}", access_key_id="key",
            secret_access_key="secret", client_options={"allow_http": True}, retry_config={"max_retries": 0},
        )  # fmt: skip
        store = ObjectBackend(bucket, "s3://cairn/x")
        for status, code, kind, words in REFUSALS:
            monkeypatch.setattr(Refusing, "status", status)
            monkeypatch.setattr(Refusing, "code", code)
            for ask in (store.probe, lambda: store.read(Locator("a.md")), lambda: store.list(Locator())):
                store.outage = Outage()
                with pytest.raises(kind, match=words):
                    ask()
            if status == 403:  # the answer to a HEAD has no code
                with pytest.raises(StorageFailed, match="refuses this machine"):
                    store.exists(Locator("a.md"))
        server.shutdown()
    store.outage = Outage()
    with pytest.raises(Unavailable, match="does not answer"):
        store.list(Locator())
