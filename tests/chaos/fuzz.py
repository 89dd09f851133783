"""Hostile input at every edge: filters, settings and HTTP. A clear refusal or a right answer, nothing in between (P6).

The note parser has its own fuzzer in `notes.py`. HTTP is tried by what its own description generates, and by
bodies and raw bytes that no description would.
"""

from __future__ import annotations

import json
import random
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from cairn.config import SECTIONS, load, shown
from cairn.errors import Invalid, Misconfigured
from cairn.index import filters
from cairn.talk.messages import labels_of
from tests.surfaces.served import Server, serving

ODD = [
    "", " ", "\x00", "\ud800", "a", "ana", "s1", "é", "e\u0301", "日本", "👩‍👧", "\n", "'; DROP TABLE rows; --", "%", "_",
    "../..", "/etc/passwd", "CON", "a" * 300, "-1", "1e999", "NaN", "null", "true", "\u202e", "\ufeff", "2026-06-01", "{}",
]  # fmt: skip
NUMBERS: list[Any] = [
    0,
    1,
    -1,
    2**31,
    2**53,
    2**63,
    2**64,
    -(2**63) - 1,
    10**400,
    0.5,
    1e308,
    float("inf"),
    float("nan"),
]
KEYS = [
    *filters.FIELDS,
    "metadata.a",
    *filters.OPERATORS,
    "AND",
    "OR",
    "user_id",
    "app_id",
    "NOT",
    "and",
    "session_id.x",
    "",
]


QUIET = {"CAIRN_EMBEDDING__PROVIDER": "none", "CAIRN_LOGGING__LEVEL": "error"}


def anything(rng: random.Random, depth: int = 4) -> Any:
    """Some JSON-like value, mostly odd."""
    kind = rng.randrange(8 if depth else 5)
    if kind == 0:
        return rng.choice(ODD)
    if kind == 1:
        return rng.choice(NUMBERS)
    if kind in {2, 3}:
        return rng.choice([None, True, False, "s1", "ana", 1_780_000_000_000])
    if kind == 4:
        return rng.choice(["2026-06-01", "2026-06-01T10:00:00+00:00", "2026-13-01", "1780000000000"])
    if kind == 5:
        return [anything(rng, depth - 1) for _ in range(rng.randrange(4))]
    return {rng.choice(KEYS): anything(rng, depth - 1) for _ in range(rng.randrange(1, 4))}


def _has_words(error: Exception) -> None:
    assert str(error), "a refusal without words"


# ---------------------------------------------------------------- filters


def filter_case(rng: random.Random) -> bool:
    """A filter is refused by name, or SQL and the predicate judge every row alike. True if it was accepted."""
    value = anything(rng)
    asked = value if isinstance(value, dict) else {rng.choice(KEYS): value}
    try:
        parsed = filters.parse(asked)
    except Invalid as error:
        _has_words(error)
        return False
    sql, bound = parsed.to_sql()
    assert all(word not in sql for word in ("DROP", "ana", "s1", "'")), sql
    rows = [
        {
            "session_id": rng.choice(["s1", "s2", None]),
            "parent_type": rng.choice(["memcell", None]),
            "parent_id": rng.choice(["a", None]),
            "timestamp": rng.choice([0, 1, 1_780_000_000_000]),
            "sender_id": rng.sample(["ana", "bo", "a"], rng.randrange(3)),
            "labels": labels_of(["ana"], {"a": anything(rng)}) if rng.random() < 0.5 else (),
        }
        for _ in range(8)
    ]
    with sqlite3.connect(":memory:") as db:
        db.execute("CREATE TABLE t (n, session_id, parent_type, parent_id, timestamp_ms, sender_ids, labels)")
        db.executemany(
            "INSERT INTO t VALUES (?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    n,
                    row["session_id"],
                    row["parent_type"],
                    row["parent_id"],
                    row["timestamp"],
                    filters.packed(row["sender_id"]),
                    filters.packed(row["labels"]),
                )
                for n, row in enumerate(rows)
            ],
        )
        found = {n for (n,) in db.execute(f"SELECT n FROM t WHERE {sql}", bound)}
    db.close()
    expected = {n for n, row in enumerate(rows) if parsed.matches(row)}
    assert found == expected, (asked, sql, bound, found ^ expected, rows)
    return True


# ---------------------------------------------------------------- settings


def settings_case(rng: random.Random, folder: Path) -> bool:
    """Settings are refused by name, or every one of them has a value that can be shown. True if accepted."""
    names = [(section, key) for section, kind in SECTIONS.items() for key in kind.__dataclass_fields__]
    pick = lambda: str(rng.choice([*ODD, *map(str, NUMBERS), "8000", "chat", "UTC", "a;b", "0.5"]))  # noqa: E731
    lines = []
    for _ in range(rng.randrange(4)):
        section, key = rng.choice(names)
        value = rng.choice(
            [json.dumps(pick()), pick(), "[]", "[1, 'x']", "{a = 1}", "2026-06-01", "1e400", "-1", "8"]
        )
        lines += rng.choice(
            [[f"[{section}]", f"{key} = {value}"], [f"{key} = {value}"], [f"[{section}.{key}]"]]
        )
    text = "\n".join(lines).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        text += bytes(rng.randrange(256) for _ in range(5))
    (folder / "cairn.toml").write_bytes(text)
    environ = {}
    for _ in range(rng.randrange(3)):
        section, key = rng.choice(names)
        name = rng.choice([f"CAIRN_{section}__{key}".upper(), f"CAIRN_{key}".upper(), "CAIRN_", "CAIRN___X"])
        environ[name] = pick().replace("\x00", "")
    try:
        settings = load(folder, environ=environ)
    except Misconfigured as error:
        _has_words(error)
        return False
    for _, value, origin in shown(settings):
        assert isinstance(value, str) and origin
    assert settings.root == folder
    return True


# ---------------------------------------------------------------- HTTP


def http_case(rng: random.Random, server: Server) -> int:
    """One body no description would generate; never a 5xx."""
    route = rng.choice(["memory/add", "memory/flush", "memory/search", "memory/get", "ome/trigger"])
    sound: dict[str, Any] = {
        "memory/add": {
            "session_id": "s1",
            "messages": [
                {"sender_id": "ana", "role": "user", "timestamp": 1_780_000_000_000, "content": "hello"}
            ],
        },
        "memory/flush": {"session_id": "s1"},
        "memory/search": {"query": "hello", "user_id": "ana"},
        "memory/get": {"memory_type": "episode", "user_id": "ana"},
        "ome/trigger": {"name": "nothing", "timeout": 1},
    }[route]
    body = json.loads(json.dumps(sound))
    for _ in range(rng.randrange(1, 3)):
        where = body
        while True:
            key = rng.choice(
                [*where, *("filters", "app_id", "top_k", "page", "extra")]
                if isinstance(where, dict)
                else range(len(where))
            )
            inner = where.get(key) if isinstance(where, dict) else where[key]
            if isinstance(inner, dict | list) and inner and rng.random() < 0.7:
                where = inner
                continue
            where[key] = anything(rng)
            break
    raw = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.1:
        raw = raw[: rng.randrange(len(raw))] + bytes(rng.randrange(256) for _ in range(4))
    if rng.random() < 0.03:
        raw = b"[" * 50_000
    status, answer = server.call("POST", f"/api/v1/{route}", raw=raw)
    assert status < 500, (route, status, answer, raw[:2000])
    if status >= 400:
        assert answer["error"]["message"], answer
    return status


def garbage(rng: random.Random, server: Server) -> None:
    """Bytes that are not HTTP, and requests that stop halfway: the next caller is served."""
    with socket.create_connection(("127.0.0.1", server.port), timeout=5) as wire:
        wire.sendall(
            rng.choice(
                [
                    bytes(rng.randrange(256) for _ in range(200)),
                    b"POST /api/v1/memory/add HTTP/1.1\r\nHost: localhost\r\nContent-Length: 999999999999\r\n\r\n{",
                    b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n",
                    b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n\r\n",
                    b"POST /api/v1/memory/add HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
                ]
            )
        )
    assert server.call("GET", "/health")[0] == 200


def by_description(server: Server, seed: int, examples: int, phases: str = "coverage,fuzzing") -> int:
    """What the server's own OpenAPI description generates: no 5xx, and answers as described."""
    program = shutil.which("st", path=str(Path(sys.executable).parent))
    assert program, "schemathesis is not installed: run make setup"
    done = subprocess.run(
        [
            program, "run", f"http://127.0.0.1:{server.port}/openapi.json",
            "--checks", "not_a_server_error,content_type_conformance,response_schema_conformance",
            "--phases", phases, "--max-examples", str(examples), "--seed", str(seed),
            "--suppress-health-check", "all", "--request-timeout", "60", "--generation-database", "none", "--exclude-path-regex", "/api/v2/.*",
        ],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    return examples


def _each(name: str, seed: int, number: int, case: Any, *more: Any) -> Any:
    try:
        return case(random.Random(f"{name}-{seed}-{number}"), *more)
    except Exception as error:
        error.add_note(f"{name} case {number}: PART=fuzz SEED={seed} CHAOS_SECONDS=1 make chaos")
        raise


def run(seconds: float, seed: int) -> dict[str, int]:
    """A fifth of the time for filters, a fifth for settings, the rest for HTTP."""
    report: Counter[str] = Counter()
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as place:
        folder = Path(place).resolve()
        while report["filters"] < 2000 or time.monotonic() - begin < seconds * 0.2:
            report["filters accepted"] += _each("filter", seed, report["filters"], filter_case)
            report["filters"] += 1
        while report["settings"] < 500 or time.monotonic() - begin < seconds * 0.4:
            report["settings accepted"] += _each("settings", seed, report["settings"], settings_case, folder)
            report["settings"] += 1
        with serving(folder / "root", env=QUIET) as server:
            while report["bodies"] < 200 or time.monotonic() - begin < seconds * 0.7:
                status = _each("http", seed, report["bodies"], http_case, server)
                report["bodies accepted"] += status < 300
                report["bodies"] += 1
                if report["bodies"] % 25 == 0:
                    _each("garbage", seed, report["bodies"], garbage, server)
            report["described"] += by_description(server, seed, max(20, int(seconds)))
    return dict(report)
