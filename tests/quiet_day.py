"""A day with the product, from nothing: `python -m tests.quiet_day ROOT [SECONDS]`, run under a trace by a test.

Every command is the real one in a process of its own; so is the server, which is left alone for SECONDS after its
search. Ends with 0 only if the memory was found each time, so a trace of a day that did nothing proves nothing.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

from cairn.engines import lance
from tests.surfaces.served import serving
from tests.waiting import LONG

TALK = "I keep two hives of bees in Lisbon."


def cairn(root: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "cairn.surfaces.cli", "--root", root, *words], capture_output=True, text=True
    )
    assert done.returncode == 0, (words, done.stdout, done.stderr)
    return done.stdout


def follow(root: str) -> None:
    """What a running server starts when the index has moved: LanceDB in a process of its own."""
    command = [sys.executable, "-m", lance.__name__, str(Path(root) / ".index")]
    subprocess.run(command, check=True)
    assert list((Path(root) / ".index").rglob("*.lance")), "the follower wrote no table"


def served(root: str, seconds: float) -> None:
    with serving(root, env=dict(os.environ)) as server:
        message = {"role": "user", "content": "My sister Ines paints boats.", "sender_id": "alice"}
        message["timestamp"] = int(time.time() * 1000)
        assert server.post("memory/add", {"session_id": "s2", "messages": [message]})[0] == 200
        assert server.post("memory/flush", {"session_id": "s2"})[0] == 200
        asked = {"user_id": "alice", "query": "who makes pictures of ships", "method": "vector"}
        until = time.monotonic() + LONG
        while "boats" not in json.dumps(
            server.post("memory/search", asked)[1]
        ):  # vectors come in the background
            assert time.monotonic() < until, "nothing was found by its meaning"
            time.sleep(0.05)
        time.sleep(seconds)


def main(root: str, seconds: float) -> int:
    cairn(root, "init")
    cairn(root, "add", "--session", "s1", "--sender", "alice", TALK)
    cairn(root, "flush", "--session", "s1")
    assert "hives" in cairn(root, "search", "--user", "alice", "--method", "vector", "where are the insects")
    served(root, seconds)
    follow(root)
    cairn(root, "doctor")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 0.0))
