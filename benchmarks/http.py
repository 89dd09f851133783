"""The HTTP server under load, from outside: a real process, a small client, floors in the same run.

What is timed is what a caller sees: from the first byte sent to the last byte read. Beside it stand the same call
to a bare Starlette route (the cost of HTTP alone), the same add in process (the cost of memory alone), and what the
disk asks for the same bytes. `--entries 1000,10000` chooses how many entries are searched, `--clients 1,8` how many
callers there are, `--seconds N` how long each load lasts.

`--beside PORT --beside-root DIR` measures, right after ours and with the same client, another server on this machine
that speaks the same API and keeps the same notes (EverOS, say, in an environment of its own behind a scripted model
endpoint); without it that is skipped.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from benchmarks._client import Client, Running, Server, milliseconds, timed, together, until
from benchmarks._talk import Talk
from cairn import config, open_blocking
from cairn.engines.embedders import choose
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.locks import FileLocks
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

OPEN_COUNTS = (10, 50, 100, 200, 300, 400)
METHODS = ("keyword", "vector", "hybrid")


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks http")
    parser.add_argument("--entries", default="200" if args.quick else "1000,10000")
    parser.add_argument("--clients", default="1,8" if args.quick else "1,2,4,8,16,32")
    parser.add_argument("--seconds", type=float, default=0.5 if args.quick else 4.0)
    parser.add_argument("--reps", type=int, default=20 if args.quick else 200)
    parser.add_argument(
        "--beside", type=int, metavar="PORT", help="another server to measure in the same run"
    )
    parser.add_argument("--beside-root", metavar="DIR", help="its memory root")
    options = parser.parse_args(args.rest)
    sizes = [int(size) for size in options.entries.split(",")]
    clients = [int(count) for count in options.clients.split(",")]
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    figures: dict[str, Any] = {}

    def take(name: str, value: Any, into: dict[str, Any] = figures) -> None:
        into[name] = value
        shown = value if not isinstance(value, dict) else "  ".join(f"{k}: {v}" for k, v in value.items())
        print(f"{name:<34} {shown}", flush=True)

    try:
        take("cold start", cold_starts(folder, 1 if args.quick else 3))
        take("floor: append + fdatasync ms", disk_floor(folder, options.reps))
        with Server.echo() as echo:
            take("floor: bare Starlette route ms", echo_floor(echo, options.reps))
            take("floor: bare Starlette, calls/s", echo_load(echo, clients, options.seconds))
        take("floor: add in process ms", add_in_process(folder / "inside", options.reps))
        take("floor: embedder alone, entries/s", embedder_floor(20 if args.quick else 300))
        with Server.cairn(folder / "adds") as server:
            take("add", adds(server, options.reps))
            take("add ms by open messages", growth(server))
            take("adds/s by clients", adds_load(server, clients, options.seconds))
        with Server.cairn(folder / "flushes") as server:
            take("flush of 4", flushes(server, folder / "flushes", options.reps // 4))
            take("add + flush, 8 clients", sessions_load(server, options.seconds))
            take("edit to searchable ms", edits(server, folder / "flushes", 5 if args.quick else 20))
            take("1 MB message ms", large_message(server))
        for size in sizes:
            root = folder / f"search{size}"
            with Server.cairn(root) as server:
                take(f"bulk of {size}", bulk(server, root, size))
                take(f"search of {size}", searches(server, size, options.reps // 2))
                take(
                    f"hybrid queries/s of {size} by clients",
                    search_load(server, size, clients, options.seconds),
                )
                take(f"4,000-word query of {size}", long_query(server))
                take(f"RSS MB with model and {size}", server.resident_mb())
            take(f"cold CLI keyword of {size} s", cold_command(root, size))
        if options.beside:
            print("-- the other server", flush=True)
            other: dict[str, Any] = {}
            measure_beside(options, clients, sizes, lambda name, value: take(name, value, other))
            figures["beside"] = other
        else:
            print("the other server: skipped: none was named (--beside PORT)", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return figures


def measure_beside(
    options: argparse.Namespace, clients: list[int], sizes: list[int], take: Callable[[str, Any], None]
) -> None:
    """The same calls to a server that is there already; fewer rounds, since it may be slow."""
    server, root = Running(options.beside), Path(options.beside_root)
    run = f"{random.Random().getrandbits(24):06x}"
    take("add", adds(server, max(20, options.reps // 4), run))
    take("add ms by open messages", growth(server, run))
    take("adds/s by clients", adds_load(server, [n for n in clients if n in {1, 8}], options.seconds))
    take("flush of 4", flushes(server, root, max(8, options.reps // 16), f"ann{run}"))
    take("edit to searchable ms", edits(server, root, 5, f"ed{run}"))
    for size in sizes:
        owner = f"bench{run}{size}"
        take(f"bulk of {size}", bulk(server, root, size, owner))
        take(f"search of {size}", searches(server, size, max(10, options.reps // 8), owner))
        take(
            f"hybrid queries/s of {size} by clients",
            search_load(server, size, [n for n in clients if n in {1, 8}], options.seconds, owner),
        )


def cold_starts(folder: Path, rounds: int) -> dict[str, Any]:
    """Seconds from the command to the first 200 of /health on an empty root; memory two seconds later."""
    seconds, memory = [], []
    for number in range(rounds):
        with Server.cairn(folder / f"cold{number}") as server:
            seconds.append(server.started_seconds)
            time.sleep(2)
            memory.append(server.resident_mb())
    return {"seconds": round(statistics.median(seconds), 2), "idle RSS MB": statistics.median(memory)}


def disk_floor(folder: Path, reps: int, size: int = 300) -> float:
    file = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append() -> None:
        os.write(file, b"x" * size)
        os.fdatasync(file)

    try:
        return milliseconds([timed(append) for _ in range(reps)])
    finally:
        os.close(file)


def echo_floor(echo: Server, reps: int) -> float:
    talk, client = Talk(), Client(echo.port, prefix="")
    bodies = [{"session_id": "s", "messages": [talk.message(talk.words())]} for _ in range(reps)]
    return milliseconds([timed(lambda body=body: client.post("echo", **body)) for body in bodies][5:])


def echo_load(echo: Server, clients: list[int], seconds: float) -> dict[str, float]:
    def work(number: int, go_on: Callable[[], bool]) -> int:
        talk, client, done = Talk(number), Client(echo.port, prefix=""), 0
        while go_on():
            client.post("echo", session_id="s", messages=[talk.message(talk.words())])
            done += 1
        return done

    return {str(count): round(together(count, seconds / 2, work)[0]) for count in clients}


def add_in_process(root: Path, reps: int) -> float:
    talk = Talk(2)
    with open_blocking(root) as memory:
        times = [
            timed(lambda n=n: memory.add(f"s{n // 10}", [talk.message(talk.words())])) for n in range(reps)
        ]
    return milliseconds(times[5:])


def embedder_floor(count: int) -> float | None:
    """Entries per second that the local model embeds when nothing else is asked of it; None without a model."""
    embedder = choose(config.load("/nonexistent", environ={}))
    if embedder is None:
        return None
    texts = ["\n".join(sections(entry_text(number)).values()) for number in range(count)]
    embedder.embed(texts[:2])
    return round(count / timed(lambda: embedder.embed(texts)), 1)


def adds(server: Running, reps: int, run: str = "") -> dict[str, float]:
    """One message and ten, ten adds to a session."""
    talk, client, out = Talk(3), server.client(), {}
    for count in (1, 10):
        times, cpu = [], server.cpu_seconds()
        for number in range(reps):
            said = [
                talk.message(talk.words(), *(("ann", "user") if n % 2 == 0 else ("bot", "assistant")))
                for n in range(count)
            ]
            times.append(
                timed(
                    lambda said=said, n=number, c=count: client.post(
                        "add", session_id=f"a{run}{c}-{n // 10}", messages=said
                    )
                )
            )
        out[f"{count} p50 ms"] = milliseconds(times[5:])
        out[f"{count} p95 ms"] = milliseconds(times[5:], 0.95)
        out[f"{count} cpu ms"] = round((server.cpu_seconds() - cpu) / reps * 1e3, 2)
    return out


def growth(server: Running, run: str = "") -> dict[str, float]:
    """A one-message add as the open stretch of one session grows (median of the last ten)."""
    talk, client, times, out = Talk(4), server.client(), [], {}
    for number in range(1, OPEN_COUNTS[-1] + 1):
        said = [talk.message(talk.words(30))]
        times.append(timed(lambda said=said: client.post("add", session_id=f"grow{run}", messages=said)))
        if number in OPEN_COUNTS:
            out[str(number)] = milliseconds(times[-10:])
    return out


def adds_load(server: Running, clients: list[int], seconds: float) -> dict[str, float]:
    """Adds per second, each client on its own session, a new one every 20 adds."""

    def work(number: int, go_on: Callable[[], bool]) -> int:
        talk, client, done = Talk(number), server.client(), 0
        run = random.Random().getrandbits(32)
        while go_on():
            said = [talk.message(talk.words(), f"u{number}")]
            client.post("add", session_id=f"w{run}-{done // 20}", messages=said)
            done += 1
        client.close()
        return done

    return {str(count): round(together(count, seconds, work)[0]) for count in clients}


def found(client: Client, user: str, word: str) -> bool:
    data = client.post("search", user_id=user, query=word, method="keyword", top_k=3)
    return any(word in hit["episode"] for hit in data["episodes"])


def flushes(server: Running, root: Path, reps: int, user: str = "ann") -> dict[str, float]:
    """A flush of four messages, and how long after its answer a keyword search finds them.

    The floor is one atomic, flushed rewrite of the day's note as it stands at the end.
    """
    talk, client = Talk(5), server.client()
    spent, lags, cpu = [], [], []
    for number in range(reps + 3):
        word = talk.mark()
        said = [talk.message(f"{talk.words()} {word if n == 0 else ''}", user) for n in range(4)]
        client.post("add", session_id=f"f{user}{number}", messages=said, defer_extraction=True)
        before = server.cpu_seconds()
        spent.append(timed(lambda n=number: client.post("flush", session_id=f"f{user}{n}")))
        lags.append(until(lambda word=word: found(client, user, word)))
        cpu.append(server.cpu_seconds() - before)
        time.sleep(0.05)
    note = max(
        (root / "default_app/default_project/users" / user / "episodes").glob("*.md"), key=os.path.getsize
    )
    storage = DeviceLocalBackend(root / ".tmp" / "floor")
    at, text = storage.resolve("note.md"), note.read_text()
    return {
        "p50 ms": milliseconds(spent[3:]),
        "p95 ms": milliseconds(spent[3:], 0.95),
        "floor: atomic rewrite ms": milliseconds(
            [timed(lambda: storage.write(at, text)) for _ in range(reps)]
        ),
        "searchable p50 ms": milliseconds(lags[3:]),
        "searchable p95 ms": milliseconds(lags[3:], 0.95),
        "cpu ms, indexing and strategies included": round(statistics.mean(cpu[3:]) * 1e3, 1),
    }


def sessions_load(server: Running, seconds: float) -> dict[str, float]:
    """Whole sessions (one add, one flush) per second: eight clients of one user, then of eight."""
    out = {}
    for name, users in (("one user", 1), ("eight users", 8)):
        spent: list[float] = []

        def work(number: int, go_on: Callable[[], bool], users: int = users, spent: Any = spent) -> int:
            talk, client, done = Talk(100 + number), server.client(), 0
            while go_on():
                session, said = (
                    f"l{users}-{number}-{done}",
                    [talk.message(talk.words(20), f"u{number % users}")],
                )
                client.post("add", session_id=session, messages=said, defer_extraction=True)
                spent.append(timed(lambda session=session: client.post("flush", session_id=session)))
                done += 1
            return done

        out[f"{name}, sessions/s"] = round(together(8, seconds, work)[0], 1)
        out[f"{name}, flush p50 ms"] = milliseconds(spent)
    return out


def edits(server: Running, root: Path, rounds: int, user: str = "editor") -> dict[str, float]:
    """A word replaced in a note by an editor, until search finds the new one."""
    talk, client, times = Talk(6), server.client(), []
    for number in range(rounds):
        old, new = talk.mark(), talk.mark()
        said = [talk.message(f"{talk.words()} {old}", user)]
        client.post("add", session_id=f"e{user}{number}", messages=said, defer_extraction=True)
        client.post("flush", session_id=f"e{user}{number}")
        until(lambda old=old: found(client, user, old))
        time.sleep(0.3)
        folder = root / "default_app/default_project/users" / user / "episodes"
        note = next(file for file in folder.glob("*.md") if old in file.read_text())
        note.write_text(note.read_text().replace(old, new))
        times.append(until(lambda new=new: found(client, user, new)))
    return {"p50": milliseconds(times), "p95": milliseconds(times, 0.95)}


def large_message(server: Running) -> dict[str, float]:
    talk, client = Talk(7, wide=True), server.client()
    said = [talk.message(". ".join(talk.words(12) for _ in range(12_000))[: 1 << 20], "large")]
    add = timed(lambda: client.post("add", session_id="large", messages=said, defer_extraction=True))
    return {
        "add": round(add * 1e3),
        "flush": round(timed(lambda: client.post("flush", session_id="large")) * 1e3),
    }


def entry_text(number: int) -> str:
    return f"note{number:06d} {Talk(number).words(40)}"


def sections(text: str) -> dict[str, str]:
    return {"Subject": text[:60], "Summary": text[:120], "Content": text}


def bulk(server: Running, root: Path, size: int, user: str = "bench", per_note: int = 50) -> dict[str, float]:
    """Notes that appear in the folder, as from a sync or a git pull; seconds until words, then vectors, are found."""
    notebook = Notebook(DeviceLocalBackend(root), FileLocks(root / ".tmp" / "locks"))
    owner, client = Scope(Space(), "user", user), server.client()
    began = time.perf_counter()
    for first in range(0, size, per_note):
        day = (date(2026, 1, 1) - timedelta(days=first // per_note)).isoformat()
        drafts = []
        for number in range(first, min(first + per_note, size)):
            text = entry_text(number)
            about = {"owner_id": user, "session_id": f"b{number}", "timestamp": f"{day}T10:00:00+00:00"}
            about |= {"parent_type": "memcell", "parent_id": f"mc_{number:012x}"}
            drafts.append(Draft(about, sections(text)))
        notebook.append("episode", owner, day, drafts)
    written = time.perf_counter() - began

    def indexed() -> bool:
        data = client.post("get", user_id=user, memory_type="episode", page_size=1)
        return bool(data["total_count"] >= size)

    def embedded() -> bool:
        data = client.post("search", user_id=user, query="anything", method="vector", top_k=1)
        told = data.get("freshness", {"state": "fresh", "notes": []})
        return told["state"] == "fresh" and not told["notes"]

    until(indexed, pause=0.05, limit=600)
    words = time.perf_counter() - began
    soon = ask(client, "hybrid", size, 30, 11, user)
    until(embedded, pause=0.2, limit=1200)
    vectors = time.perf_counter() - began
    time.sleep(2)
    settled = ask(client, "hybrid", size, 30, 12, user)
    return {
        "written s": round(written, 2),
        "indexed, entries/s": round(size / words),
        "embedded, entries/s": round(size / vectors),
        "hybrid right after p50 ms": milliseconds(soon),
        "hybrid settled p50 ms": milliseconds(settled),
    }


def question(talk: Talk, size: int) -> str:
    words = entry_text(talk.random.randrange(size)).split()
    start = talk.random.randrange(1, 30)
    return " ".join(words[start : start + 8])


def ask(client: Client, method: str, size: int, reps: int, seed: int, user: str) -> list[float]:
    questions = [question(talk, size) for talk in [Talk(seed)] for _ in range(reps)]
    return [
        timed(lambda q=q: client.post("search", user_id=user, query=q, method=method, top_k=10))
        for q in questions
    ]


def searches(server: Running, size: int, reps: int, user: str = "bench") -> dict[str, float]:
    """Every question is new: eight words in a row of some entry. Also whether that entry is among the ten hits."""
    client, out = server.client(), {}
    for seed, method in enumerate(METHODS, start=20):
        ask(client, method, size, 3, seed + 100, user)
        cpu, times = server.cpu_seconds(), ask(client, method, size, reps, seed, user)
        out[f"{method} p50 ms"] = milliseconds(times)
        out[f"{method} p95 ms"] = milliseconds(times, 0.95)
        out[f"{method} cpu ms"] = round((server.cpu_seconds() - cpu) / reps * 1e3, 1)
    talk, hits = Talk(31), 0
    for _ in range(reps):
        number = talk.random.randrange(size)
        words = " ".join(entry_text(number).split()[5:13])
        data = client.post("search", user_id=user, query=words, method="hybrid", top_k=10)
        hits += any(f"note{number:06d}" in hit["episode"] for hit in data["episodes"])
    out["found among ten, hybrid"] = round(hits / reps, 3)
    return out


def search_load(
    server: Running, size: int, clients: list[int], seconds: float, user: str = "bench"
) -> dict[str, float]:
    def work(number: int, go_on: Callable[[], bool]) -> int:
        talk, client, done = Talk(random.Random().getrandbits(32) + number), server.client(), 0
        while go_on():
            client.post("search", user_id=user, query=question(talk, size), method="hybrid", top_k=10)
            done += 1
        client.close()
        return done

    return {str(count): round(together(count, seconds, work)[0], 1) for count in clients}


def long_query(server: Running, user: str = "bench") -> dict[str, float]:
    talk, client, before = Talk(40, wide=True), server.client(), server.resident_mb()
    times = []
    for _ in range(5):
        query = talk.words(4000)
        times.append(timed(lambda q=query: client.post("search", user_id=user, query=q, method="hybrid")))
    return {"p50 ms": milliseconds(times), "RSS grows by MB": round(server.resident_mb() - before, 1)}


def cold_command(root: Path, size: int, rounds: int = 5) -> float:
    """Seconds of a whole `cairn search --method keyword` process with no server running.

    The first call is not counted: it finishes what the stopped server left.
    """
    command = [str(Path(sys.executable).parent / "cairn"), "search", "--root", str(root), "--user", "bench"]

    def call() -> None:
        subprocess.run(
            [*command, "--method", "keyword", question(Talk(50), size)], check=True, capture_output=True
        )

    call()
    return round(statistics.median(timed(call) for _ in range(rounds)), 2)
