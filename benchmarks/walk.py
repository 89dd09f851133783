"""The walk of one message, from POST /add to a hit: how many functions, modules and threads of ours it passes.

A real server runs in a process of its own with a hook in every thread (`sys.setprofile`), without a model. One session
warms it. Then each leg is counted alone: an add, its flush, what the background does in the three seconds after,
and the search that finds it. Functions are those of `cairn`; comprehensions, lambdas, generator expressions and module
bodies are not counted. The hook makes everything slower, so nothing here is timed.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from benchmarks._client import Client, free_port
from benchmarks._talk import Talk

BEHIND_SECONDS = 3.0
LEGS = ("add", "flush", "behind", "search")
Passed = Mapping[str, Iterable[str]]


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks walk")
    parser.add_argument("--list", action="store_true", help="also print every function, by leg and thread")
    options = parser.parse_args(args.rest)
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    try:
        found = walk(folder, 1.0 if args.quick else BEHIND_SECONDS)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if options.list:
        for leg, passed in found.items():
            for thread, names in passed.items():
                print(f"{leg}: {thread}", *sorted(names), sep="\n    ")
    figures = {leg: counted([passed]) for leg, passed in found.items()}
    figures["together"] = counted(found.values())
    for leg, one in figures.items():
        print(f"{leg:<10} {'  '.join(f'{name}: {value}' for name, value in one.items())}", flush=True)
    return figures


def counted(passed: Iterable[Passed]) -> dict[str, Any]:
    """How many functions, modules and threads some legs passed, and how many functions each thread ran."""
    threads: dict[str, set[str]] = {}
    for one in passed:
        for thread, names in one.items():
            threads.setdefault(thread, set()).update(names)
    functions = {name for names in threads.values() for name in names}
    return {
        "functions": len(functions),
        "modules": len({name.partition(":")[0] for name in functions}),
        "threads": len(threads),
        "by thread": {thread: len(names) for thread, names in sorted(threads.items())},
    }


def walk(root: Path, behind_seconds: float) -> dict[str, Passed]:
    """What each leg of one message's way passed: the names of functions, by thread."""
    port = free_port()
    server = subprocess.Popen(
        [sys.executable, "-m", "benchmarks._walked", str(root), str(port)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert server.stdin is not None
    assert server.stdout is not None
    told, heard = server.stdin, server.stdout

    def begin(leg: str) -> None:
        told.write(f"{leg}\n")
        told.flush()
        heard.readline()

    try:
        client, talk = Client(port), Talk(3)
        _wait(client, server)

        def say(session: str, word: str) -> None:
            client.post("add", session_id=session, messages=[talk.message(f"{talk.words()} {word}")])

        def find(word: str) -> None:
            until = time.monotonic() + 60
            while not _is_found(client, word):
                if time.monotonic() > until:
                    raise SystemExit(f"{word} was not found within a minute")
                time.sleep(0.1)

        for number in range(2):
            word = talk.mark()
            say(f"warm{number}", word)
            client.post("flush", session_id=f"warm{number}")
            find(word)
        time.sleep(behind_seconds + 2)
        word = talk.mark()
        begin("add")
        say("walk", word)
        begin("flush")
        client.post("flush", session_id="walk")
        begin("behind")
        time.sleep(behind_seconds)
        begin("search")
        find(word)
        told.write("end\n")
        told.flush()
        found: dict[str, dict[str, list[str]]] = json.loads(heard.readline())
        return {leg: found[leg] for leg in LEGS}
    finally:
        server.terminate()
        server.wait(40)


def _is_found(client: Client, word: str) -> bool:
    hits = client.post("search", user_id="ann", query=word, method="keyword", top_k=3)["episodes"]
    return any(word in hit["episode"] for hit in hits)


def _wait(client: Client, server: subprocess.Popen[str]) -> None:
    until = time.monotonic() + 180
    while True:
        try:
            if client.request("GET", "/health")[0] == 200:
                return
        except OSError:
            client.close()
        if server.poll() is not None or time.monotonic() > until:
            raise SystemExit("the server did not come up")
        time.sleep(0.05)
