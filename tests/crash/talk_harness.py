"""Kills capture processes at random instants and counts what is lost or doubled."""

from __future__ import annotations

import json
import os
import random
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from cairn.seams import SystemClock
from tests.waiting import LONG
from tests.world import World

CHILDREN = 2
_TOKEN = re.compile(r"<r\d+c\d+t\d+n\d+k\d+>")


class Nursery:
    """The process that forks the victims, and what they told before they died."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.talk_worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=Path(__file__).parents[2],
            env={**os.environ, "PYTHONPATH": "src"},
        )
        self._rest = b""
        self._heard: dict[str, list[object]] = defaultdict(list)
        self.intents: dict[str, dict] = {}
        self.acked: set[str] = set()
        self.broken: list[str] = []

    def order(self, value: object) -> None:
        assert self._process.stdin is not None
        text = value if isinstance(value, str) else json.dumps(value)
        self._process.stdin.write(text.encode() + b"\n")
        self._process.stdin.flush()

    def listen(self, seconds: float, until: str = "", count: int = 1) -> list[object]:
        """Take in lines for `seconds`, or until `count` of the kind `until` came; those that came before count, too, once."""
        assert self._process.stdout is not None
        found = self._heard[until]
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0 and len(found) < count:
            if not select.select([self._process.stdout], [], [], left)[0]:
                break
            data = os.read(self._process.stdout.fileno(), 1 << 16)
            if not data:
                raise AssertionError("the nursery died")
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                kind, _, rest = line.decode().partition(" ")
                value = json.loads(rest)
                if kind == "intent":
                    self.intents[value["id"]] = value
                elif kind == "ack":
                    self.acked.add(value)
                elif kind == "broken":
                    self.broken.append(value)
                self._heard[kind].append(value)
        return [found.pop(0) for _ in range(min(count, len(found)))]

    def forget(self) -> None:
        """What was heard and not asked for is of those who are dead."""
        self._heard.clear()

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait(LONG)
        self._process.stdout.close()


def run(root: Path, kills: int, seed: int) -> dict[str, int]:
    """Kill `kills` processes over one root, then check every message. Raises AssertionError on a violation."""
    rng = random.Random(seed)
    nursery = Nursery()
    killed = rounds = 0
    try:
        while killed < kills:
            unacked = [i for key, i in nursery.intents.items() if key not in nursery.acked]
            for child in range(CHILDREN):
                order = {
                    "root": str(root),
                    "seed": seed,
                    "round": rounds,
                    "child": child,
                    "retry": unacked[child::CHILDREN],
                }
                nursery.order(order)
            pids = [int(str(pid)) for pid in nursery.listen(LONG, "pid", CHILDREN)]
            # Some kills hit recovery and retries, before the children are ready; others the thick of the work.
            moment = rng.random()
            if moment < 0.7:
                nursery.listen(LONG, "ready", 1)
            if moment < 0.4:
                nursery.listen(10, "ack", 10)
            nursery.listen(rng.random() * 0.12, "never")
            for pid in pids:
                os.kill(pid, signal.SIGKILL)
            nursery.order(f"reap {len(pids)}")
            nursery.listen(LONG, "reaped")
            nursery.forget()
            shutil.rmtree(root / ".index", ignore_errors=True)
            killed += len(pids)
            rounds += 1
    finally:
        nursery.close()
    assert not nursery.broken, nursery.broken[:3]
    return {"kills": killed, "rounds": rounds, **check(root, nursery)}


def check(root: Path, nursery: Nursery) -> dict[str, int]:
    """Finish what was left, then look every word up: in the log once, in one cell, in each owner's note once."""
    kit = World(root, clock=SystemClock())
    recovered = kit.capture.recover()
    sessions = {intent["session"] for intent in nursery.intents.values()}
    for session in sessions:
        kit.flush(session)
    assert kit.capture.recover(everywhere=True) == 0
    logged = Counter(
        token for s in sessions for message in kit.log(s).messages for token in _TOKEN.findall(message.text)
    )
    entries: Counter[tuple[str, str]] = Counter()
    told: dict[str, set[str]] = defaultdict(set)
    owners: dict[str, set[str]] = defaultdict(set)
    for owner, entry in kit.episodes():
        cell = entry.inline["parent_id"]
        entries[owner, cell] += 1
        owners[cell].add(owner)
        for token, times in Counter(_TOKEN.findall(entry.sections["Content"])).items():
            told[token].add(cell)
            assert times == 1, f"{token} stands {times} times in one episode"
    lost = doubled = 0
    for intent in nursery.intents.values():
        is_acked = intent["id"] in nursery.acked
        for who, role, _, token in intent["messages"]:
            cells = told[token]
            lost += is_acked and (logged[token] == 0 or not cells)
            doubled += logged[token] > 1 or len(cells) > 1
            if role == "user" and cells:
                assert who in owners[next(iter(cells))], f"{who} has no episode with {token}"
    doubled += sum(times > 1 for times in entries.values())
    assert lost == 0, f"{lost} acknowledged messages are lost"
    assert doubled == 0, f"{doubled} messages or episodes are doubled"
    return {
        "acknowledged": len(nursery.acked),
        "messages": len(logged),
        "episodes": sum(entries.values()),
        "recovered": recovered,
        "lost": lost,
        "doubled": doubled,
    }
