"""Tokens that come and go while a server runs, their limits, and the log of what they did."""

from __future__ import annotations

import io
import json
import os
from contextlib import redirect_stderr, redirect_stdout
from datetime import UTC, datetime, timedelta
from unittest.mock import patch

import pytest

import cairn
from cairn.config import ServerSettings, load
from cairn.engines.audit import FILES, AuditLog
from cairn.engines.tokens import TokenFile
from cairn.errors import Conflict, Invalid, Misconfigured, NotFound
from cairn.rights import end_of, grant_of, parse_tokens
from cairn.surfaces import guard
from cairn.surfaces.cli import main
from cairn.surfaces.guard import Guard
from tests.surfaces.served import serving
from tests.test_guard import call, echo, error_of

OLD = "old-token-0123456789"
QUIET = {"CAIRN_EMBEDDING__PROVIDER": "none", "CAIRN_STRATEGIES__ENABLED": "false"}
CANARY = "quillheron"


def typed(root, *words):
    """One command line, beside whoever else has the root open: exit code, standard output, standard error."""
    said, told = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, QUIET), redirect_stdout(said), redirect_stderr(told):
        code = main(["--root", str(root), *words])
    return code, said.getvalue(), told.getvalue()


def bearer(secret):
    return {"authorization": f"Bearer {secret}"}


def test_tokens_come_and_go_under_a_running_server(tmp_path):
    """Added by the command line, by HTTP and from Python; revoked; all of it without a restart and with old ones."""
    root = tmp_path / "root"
    env = {**QUIET, "CAIRN_SERVER__TOKENS": f"{OLD} rw admin name=ops"}
    with serving(root, env=env) as server:

        def status(secret, method="POST", path="/api/v1/memory/search", body=None):
            said = body if body is not None or method == "GET" else {"user_id": "alice", "query": CANARY}
            return server.call(method, path, said, headers=bearer(secret))[0]

        code, secret, told = typed(
            root, "token", "add", "ci", "--rights", "r owner=alice", "--expires", "90d"
        )
        secret = secret.strip()
        assert (code, secret.startswith("cairn_"), "this once" in told) == (0, True, True)
        assert (status(secret), status(OLD), status("cairn_" + "x" * 43)) == (200, 200, 401)
        assert status(secret, path="/api/v1/recall", body={"query": "x", "user_id": "bob"}) == 403

        answer = server.call(
            "POST", "/api/v1/tokens", {"name": "web", "rights": "rw owner=bob rate=1"}, headers=bearer(OLD)
        )[1]["data"]
        with cairn.open_blocking(root) as memory:
            mine = memory.add_token("script", "rw -promote")
            assert {one["name"]: one["state"] for one in memory.tokens()} == dict.fromkeys(
                ("ci", "web", "script"), "active"
            )
        assert status(mine["secret"]) == 200
        kept = (root / ".server" / "tokens.json").read_text()
        assert not any(one in kept for one in (secret, answer["secret"], mine["secret"]))
        assert (root / ".server" / "tokens.json").stat().st_mode & 0o077 == 0

        # One call a minute: the next says when to come again, and others are not held up by it.
        asked = {"user_id": "bob", "query": "x"}
        got = [status(answer["secret"], body=asked) for _ in range(2)]
        assert got == [200, 429]
        assert status(secret) == 200

        assert typed(root, "token", "revoke", "ci")[0] == 0
        assert status(secret) == 401
        assert typed(root, "token", "revoke", "ci")[0] == 3
        assert [one["state"] for one in json.loads(typed(root, "token", "list", "--json")[1])] == [
            "revoked",
            "active",
            "active",
        ]

        forged = 'x"}\n{"at":"2020","token":"ops\x1b[31m'
        server.call("POST", "/api/v1/memory/flush", {"session_id": forged}, headers=bearer(OLD))
        found = server.call("GET", "/api/v1/audit?limit=500", headers=bearer(OLD))[1]["data"]["calls"]

    # Every call is there with its token, operation, owner and outcome, newest first; no word of any is.
    rows = [(one["token"], one["operation"], one["about"].get("user_id"), one["outcome"]) for one in found]
    assert rows[0] == ("ops", "flush", None, "INVALID_INPUT")
    assert found[0]["about"]["session_id"] == forged
    for row in (
        ("ci", "search", "alice", "done"),
        ("ci", "recall", "bob", "FORBIDDEN"),
        ("web", "search", "bob", "done"),
        ("web", "unmatched", None, "RATE_LIMITED"),
        ("ops", "add_token", None, "done"),
        ("", "unmatched", None, "UNAUTHORIZED"),
    ):
        assert row in rows, row
    lines = (root / ".server" / "audit.jsonl").read_bytes()
    assert CANARY.encode() not in lines and OLD.encode() not in lines and b"\x1b" not in lines
    assert all(json.loads(line)["at"] > "2020-" for line in lines.splitlines())
    code, told, _ = typed(root, "audit", "--token", "ci", "--refused")
    assert (code, len(told.splitlines())) == (0, 1)
    assert "recall" in told and "FORBIDDEN" in told
    assert "\x1b" not in typed(root, "audit")[1]
    assert typed(root, "audit", "--since", "yesterday")[0] == 2


def test_a_server_with_tokens_is_never_open_again(tmp_path):
    """Neither the last revocation, nor a lost file, nor a broken one lets everybody in."""
    settings = load(tmp_path)
    with cairn.open_blocking(tmp_path) as memory:
        secret = memory.add_token("only")["secret"]
        app = Guard(echo, ServerSettings(host="0.0.0.0"), tokens=TokenFile(settings.server_dir))
        assert call(app, headers=bearer(secret))[0] == 200
        place = settings.server_dir / "tokens.json"
        good = place.read_text()
        place.write_text("{")
        assert (call(app, headers=bearer(secret))[0], call(app)[0]) == (200, 401)
        place.unlink()
        assert (call(app, headers=bearer(secret))[0], call(app)[0]) == (401, 401)
        place.write_text(good)
        memory.revoke_token("only")
        assert (call(app, headers=bearer(secret))[0], call(app)[0]) == (401, 401)
        assert call(Guard(echo, ServerSettings(), tokens=TokenFile(settings.server_dir)))[0] == 401
        place.write_text("{")
        with pytest.raises(Misconfigured, match=r"tokens\.json"):
            TokenFile(settings.server_dir)
        assert any("tokens.json cannot be read" in one["what"] for one in memory.doctor())


def test_what_ends_ends(tmp_path):
    """A token past its end is refused by name; the words of a token are checked, and "admin" goes with no limit."""
    now = datetime(2026, 6, 1, tzinfo=UTC)
    assert end_of("90d", now) == now + timedelta(days=90)
    assert end_of("2026-06-30") == datetime(2026, 7, 1, tzinfo=UTC)
    app = Guard(echo, ServerSettings(tokens=(f"{OLD} rw expires=2020-01-01 name=past",)))
    status, _, body = call(app, headers=bearer(OLD))
    assert (status, error_of(body)["code"]) == (401, "UNAUTHORIZED")
    assert '"past" ended at 2020-01-02' in error_of(body)["message"]
    for words in (
        "rate=0",
        "rate=x",
        "expires=soon",
        "name=a/b",
        "r admin",
        "admin owner=a",
        "admin -pin",
        "root",
        "owner=,",
        "owner=alice,",
        "app=,,",
        "r rw",
        "r r",
        "owner=a owner=b",
        "promote -promote",
    ):
        with pytest.raises(Invalid):
            grant_of(b"", "x", words.split())
        with pytest.raises(Misconfigured, match=r"server\.tokens"):
            parse_tokens([f"{OLD} {words}"])
    with cairn.open_blocking(tmp_path) as memory:
        for name, rights, expires in (("a b", "", ""), ("x", "admin r", ""), ("x", "", "soon")):
            with pytest.raises(Invalid):
                memory.add_token(name, rights, expires=expires)
        assert memory.tokens() == []
        assert not (tmp_path / ".server").exists()
        memory.add_token("x", expires="1h")
        with pytest.raises(Conflict, match='"x"'):
            memory.add_token("x")
        with pytest.raises(NotFound, match="There are: x"):
            memory.revoke_token("y")


def test_a_token_of_empty_words_is_refused_not_made_for_everything(tmp_path):
    """An unset variable gives no right and no endless life, at the command line, over HTTP and in Python; nothing is made."""
    root = tmp_path / "root"
    for words in (("--rights", ""), ("--rights", "  "), ("--rights", "r", "--expires", "")):
        code, made, told = typed(root, "token", "add", "ci", *words)
        assert (code, made) == (2, "")
        assert ('"rw" for all but admin' in told) or ('expires "" is no end' in told)
    with serving(root, env={**QUIET, "CAIRN_SERVER__TOKENS": f"{OLD} rw admin name=ops"}) as server:
        for body in ({"name": "web", "rights": ""}, {"name": "web", "rights": "r", "expires": ""}):
            status, answer = server.call("POST", "/api/v1/tokens", body, headers=bearer(OLD))[:2]
            assert (status, answer["error"]["code"]) == (422, "INVALID_INPUT")
    with cairn.open_blocking(root) as memory:
        with pytest.raises(Invalid, match=r"\[owner=o\]"):
            memory.add_token("script", " ")
        assert memory.tokens() == []
        assert memory.add_token("script")["rights"] == "rw"


def test_every_token_is_compared_whichever_is_right(monkeypatch):
    """Time tells nothing: each digest is compared, in constant time, for the first token, the last and a wrong one."""
    secrets = [f"{name}-token-0123456789" for name in ("first", "middle", "last")]
    app = Guard(echo, ServerSettings(tokens=tuple(secrets)))
    compared = []
    monkeypatch.setattr(guard.hmac, "compare_digest", lambda one, other: compared.append(one) or one == other)
    for secret, status in ((secrets[0], 200), (secrets[2], 200), ("wrong-token-0123456789", 401)):
        compared.clear()
        assert call(app, headers=bearer(secret))[0] == status
        assert len(compared) == 3


def test_the_rate_says_when_to_come_again():
    """429 with the seconds until the next call is possible."""
    app = Guard(echo, ServerSettings(tokens=(f"{OLD} rate=1 name=slow",)))
    assert call(app, headers=bearer(OLD))[0] == 200
    status, headers, body = call(app, headers=bearer(OLD))
    assert (status, error_of(body)["code"]) == (429, "RATE_LIMITED")
    assert 1 <= int(headers[b"retry-after"]) <= 60
    assert '"slow" may make 1 calls a minute' in error_of(body)["message"]


def test_the_audit_log_is_bounded(tmp_path):
    """The oldest lines make room; a full disk stops no call and is told; what is no line of ours is passed over."""
    log = AuditLog(tmp_path / "server", 4000)
    for number in range(400):
        log.write({"at": f"{number:05}", "operation": "x" * 20})
    sizes = [path.stat().st_size for path in log.files]
    assert len(sizes) == FILES
    assert sum(sizes) < 4000 + FILES * 100
    seen = [one["at"] for one in log.read()]
    assert seen == [f"{number:05}" for number in range(399, 399 - len(seen), -1)]
    assert len(seen) > 50
    log.files[0].write_bytes(b'\xff\n[]\n{"at":"1"}\n')
    assert next(log.read())["at"] == "1"
    assert log.rewrite(lambda line: {**line, "at": "0"} if line["at"] == "1" else line) == 1
    assert next(log.read())["at"] == "0"
    blocked = AuditLog(tmp_path / "server" / "audit.jsonl" / "in", 4000)
    blocked.write({"at": "1"})
    assert blocked.trouble
    off = AuditLog(tmp_path / "off", 0)
    off.write({"at": "1"})
    assert not (tmp_path / "off").exists()
