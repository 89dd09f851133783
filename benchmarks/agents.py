"""Coding agents: what a hook costs in time and tokens, and how often it says something that does not belong.

A root with 10,000 memories of one person, a warm process, and `cairn hook` as a host calls it: one small process a prompt.
The root has been told and thought about; prompts come back to back, and half a second apart. Then `cairn mcp` with nothing
running: how long a host waits for its first `recall`.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import cairn
from cairn.agents import link
from cairn.retrieval.answers import tokens_of

MEMORIES = 10_000
CALLS = 200
_SETTLES_S = 5.0
_APART_S = 0.5
_CORE = 40
_NAMES = ("heron", "osprey", "kestrel", "plover", "curlew", "teal", "wigeon", "dunlin", "avocet", "godwit")
_THINGS = (
    "database",
    "queue",
    "bucket",
    "proxy",
    "cache",
    "scheduler",
    "mirror",
    "gateway",
    "ledger",
    "index",
)
_FACTS = (
    "rotates its password on day {n}",
    "listens on port {n}",
    "is backed up at minute {n}",
    "keeps {n} replicas",
)
_UNRELATED = (
    "Rename the variable in this loop", "Write a haiku about rain", "What is the capital of Mongolia",
    "Explain quicksort to a child", "Translate good morning into Finnish", "Sort these numbers please",
    "Why is the sky blue", "Convert this list to a tuple", "Make the button green", "Fix the typo in the heading",
)  # fmt: skip
_ENDINGS = (
    "",
    " today",
    " in one line",
    " and nothing else",
    " for me",
    " quickly",
    " again",
    " in plain words",
    " now",
    " step by step",
)


def fill(root: Path, memories: int) -> None:
    """So many sentences, ten a session, indexed with their vectors."""
    now = 1_790_000_000_000
    with cairn.open_blocking(root, background=False) as memory:
        for session in range(memories // 10):
            messages = []
            for one in range(10):
                n = session * 10 + one
                fact = _FACTS[n % len(_FACTS)].format(n=n)
                text = f"The {_THINGS[(n // 10) % 10]} {_NAMES[n % 10]}-{n} {fact}."
                messages.append(
                    {"sender_id": "me", "role": "user", "timestamp": now + n * 1000, "content": text}
                )
            memory.add(f"s{session}", messages)
            memory.flush(f"s{session}")
        for n in range(_CORE):
            rule = f"Changes of the {_THINGS[n % 10]} at {_NAMES[n // 4]} wait for approval number {n * 31}."
            memory.remember(rule, "convention", mode="strict")
        memory.memories.refresh()
        while memory.parts.engine.run_due(seconds=60.0):  # a memory that has been in use for a while
            pass
        memory.parts.catch_up(1800.0, embed=True)


def call(root: Path, data: dict[str, Any], env: dict[str, str]) -> tuple[float, str]:
    """One hook: its wall time in milliseconds, and the context it printed."""
    began = time.perf_counter()
    done = subprocess.run(
        [str(Path(sys.executable).with_name("cairn")), "hook", "--root", str(root)],
        input=json.dumps(data), capture_output=True, text=True, env=env, check=False, timeout=60,
    )  # fmt: skip
    took = (time.perf_counter() - began) * 1000
    out = json.loads(done.stdout)["hookSpecificOutput"]["additionalContext"] if done.stdout.strip() else ""
    return took, out


def prompt(text: str, number: int) -> dict[str, Any]:
    return {"hook_event_name": "UserPromptSubmit", "session_id": f"b{number}", "prompt": text}


def _cpu_ms(root: Path, env: dict[str, str], calls: int = 20) -> float:
    """Processor time of one hook's own process, user and system, which says more than a clock on a busy machine."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    for number in range(calls):
        call(root, prompt("which port does the queue listen on", number), env)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return round((after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) / calls * 1000, 1)


def first_recall(root: Path, env: dict[str, str]) -> dict[str, float]:
    """A host starts `cairn mcp` where nothing runs, greets it and asks: seconds until the answer, and its processor time."""
    hello = {
        "protocolVersion": "2025-06-18",
        "capabilities": {},
        "clientInfo": {"name": "bench", "version": "1"},
    }
    asked = {"name": "recall", "arguments": {"query": f"what do we know about {_NAMES[0]}-10"}}
    said: tuple[dict[str, Any], ...] = (
        {"id": 1, "method": "initialize", "params": hello},
        {"method": "notifications/initialized"},
        {"id": 2, "method": "tools/call", "params": asked},
    )
    began = time.perf_counter()
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with subprocess.Popen(
        [str(Path(sys.executable).with_name("cairn")), "mcp"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, env={**env, "CAIRN_MEMORY__ROOT": str(root)},
    ) as host:  # fmt: skip
        assert host.stdin is not None and host.stdout is not None
        host.stdin.write(b"".join(json.dumps({"jsonrpc": "2.0", **one}).encode() + b"\n" for one in said))
        host.stdin.flush()
        host.stdout.readline()
        answer = json.loads(host.stdout.readline())
        took = time.perf_counter() - began
        host.stdin.close()
    assert f"{_NAMES[0]}-10 " in json.dumps(answer), answer
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"wall_s": round(took, 2), "cpu_s": round(spent, 2)}


def end(root: Path) -> None:
    link.ask(root, {"op": "end"}, 10.0)
    while link.socket_path(root).exists():
        time.sleep(0.05)


def spread(times: list[float]) -> dict[str, float]:
    ordered = sorted(times)
    return {
        "p50_ms": round(statistics.median(ordered), 1),
        "p95_ms": round(ordered[int(len(ordered) * 0.95) - 1], 1),
    }


def run(args: Any) -> dict[str, Any]:
    """All of it, once."""
    memories, calls = (500, 20) if args.quick else (MEMORIES, CALLS)
    with tempfile.TemporaryDirectory(prefix="cairn-bench-", ignore_cleanup_errors=True) as folder:
        root = Path(folder) / "root"
        runtime = Path(folder) / "run"
        runtime.mkdir()
        os.environ["XDG_RUNTIME_DIR"] = str(runtime)
        env = dict(os.environ)
        fill(root, memories)
        began = time.perf_counter()
        link.start_warm(root)
        while link.ask(root, {"op": "ping"}, 1.0) is None:
            time.sleep(0.01)
        warm_after = time.perf_counter() - began
        # What the first prompts wait for while the model and the index are read, and then a process that is warm.
        opening = [
            call(root, prompt("which port does the queue listen on", number), env)[0] for number in range(5)
        ]
        time.sleep(_SETTLES_S)
        tokens, hits = [], 0
        times: dict[float, list[float]] = {0.0: [], _APART_S: []}
        for apart, found in times.items():
            for _ in range(calls):
                n = (len(tokens) * 157 + 3) % memories
                asked = prompt(f"What do we know about {_NAMES[n % 10]}-{n}?", len(tokens))
                took, out = call(root, asked, env)
                found.append(took)
                tokens.append(tokens_of(out))
                hits += f"-{n} " in out
                time.sleep(apart)
        bare = []
        for _ in range(20):
            began = time.perf_counter()
            subprocess.run([sys.executable, "-c", "import json"], check=True)
            bare.append((time.perf_counter() - began) * 1000)
        spent = _cpu_ms(root, env)
        false = 0
        for number, text in enumerate(one + end for one in _UNRELATED for end in _ENDINGS):
            false += bool(call(root, prompt(text, number), env)[1])
        _, start = call(
            root, {"hook_event_name": "SessionStart", "session_id": "x", "source": "startup"}, env
        )
        end(root)
        cold = first_recall(root, env)
        until_up = time.monotonic() + 60.0
        while link.ask(root, {"op": "ping"}, 1.0) is None and time.monotonic() < until_up:
            time.sleep(0.05)
        end(root)
        return {
            "memories": memories,
            "load": round(os.getloadavg()[0], 1),
            "warm_after_s": round(warm_after, 2),
            "first_prompt_ms": round(opening[0], 1),
            "prompt": spread(times[0.0]),
            "prompt_apart": spread(times[_APART_S]),
            "python_alone": spread(bare),
            "client_cpu_ms": spent,
            "found": hits / len(tokens),
            "mcp_first_recall": cold,
            "tokens_per_prompt": {"p50": statistics.median(tokens), "max": max(tokens)},
            "tokens_at_start": tokens_of(start),
            "false_injections": false,
        }
