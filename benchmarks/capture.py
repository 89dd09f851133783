"""What an add and a flush cost in process, beside what the disk alone costs.

Each figure stands next to a floor measured in the same run: appending the same bytes to a file and flushing
them with `fdatasync`. Run with `make bench PART=capture`.
"""

from __future__ import annotations

import os
import random
import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cairn.config import MemorySettings, Settings
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.notebook import Notebook
from cairn.seams import SystemClock
from cairn.talk import Capture
from cairn.talk.sessions import SessionLog
from cairn.types import Message, Space

SPACE = Space()
WORDS = [
    "garden",
    "bicycle",
    "lantern",
    "harbor",
    "violin",
    "copper",
    "meadow",
    "winter",
    "planet",
    "cheese",
    "rocket",
    "silver",
    "forest",
    "market",
    "doctor",
    "pencil",
    "summer",
    "bridge",
    "kitchen",
    "orange",
    "guitar",
    "island",
    "camera",
    "ladder",
    "mirror",
    "pepper",
    "castle",
    "button",
    "ticket",
    "window",
]
OPEN_COUNTS = (10, 50, 100, 200, 300, 400)
THREADS = 8


def capture_over(folder: Path) -> Capture:
    """A Capture on the default engines."""
    storage = DeviceLocalBackend(folder)
    locks = FileLocks(folder / ".tmp" / "locks")
    return Capture(
        storage=storage,
        notebook=Notebook(storage, locks),
        sessions=SessionLog(FileJournals(folder)),
        locks=locks,
        clock=SystemClock(),
        settings=Settings(memory=MemorySettings(root=str(folder))),
    )


class Talk:
    """Messages of a dozen words, a millisecond apart."""

    def __init__(self, seed: int = 1) -> None:
        self._rng = random.Random(seed)
        self._at = 1_700_000_000_000

    def message(self, who: str = "ann", words: int = 12) -> Message:
        self._at += 1
        return Message(who, "user", self._at, " ".join(self._rng.choices(WORDS, k=words)))


def milliseconds(seconds: list[float], share: float = 0.5) -> float:
    ordered = sorted(seconds)
    return round(ordered[min(len(ordered) - 1, int(share * len(ordered)))] * 1e3, 3)


def floor(folder: Path, count: int = 300, size: int = 280) -> list[float]:
    """Seconds per append of `size` bytes with `fdatasync`."""
    took = []
    file = os.open(folder / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    try:
        for _ in range(count):
            started = time.perf_counter()
            os.write(file, b"x" * size)
            os.fdatasync(file)
            took.append(time.perf_counter() - started)
    finally:
        os.close(file)
    return took


def adds(folder: Path) -> dict[str, float]:
    """Milliseconds per one-message add with so many messages open (median of the last 20)."""
    out = {}
    for name, defer in (("default", False), ("defer", True)):
        capture, talk, took, worked = capture_over(folder / name), Talk(2), [], []
        for n in range(1, OPEN_COUNTS[-1] + 1):
            batch = [talk.message(words=30)]
            started, cpu = time.perf_counter(), time.thread_time()
            capture.add(SPACE, "grow", batch, defer=defer)
            worked.append(time.thread_time() - cpu)
            took.append(time.perf_counter() - started)
            if n in OPEN_COUNTS:
                out[f"{name} with {n} open"] = milliseconds(took[-20:])
                out[f"{name} with {n} open, cpu"] = milliseconds(worked[-20:])
    return out


def throughput(folder: Path, seconds: float = 3.0) -> dict[str, float]:
    """Adds per second of 8 threads on 8 sessions, one session each."""
    capture = capture_over(folder)
    until = time.perf_counter() + seconds
    counts = [0] * THREADS

    def run(number: int) -> None:
        talk = Talk(number)
        while time.perf_counter() < until:
            capture.add(SPACE, f"w{number}-{counts[number] // 20}", [talk.message(f"u{number}")])
            counts[number] += 1

    started, cpu = time.perf_counter(), time.process_time()
    threads = [threading.Thread(target=run, args=(n,)) for n in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - started
    return {
        "adds/s": round(sum(counts) / took),
        "cpu ms/add": round((time.process_time() - cpu) / max(sum(counts), 1) * 1e3, 3),
    }


def flushes(folder: Path, count: int = 100) -> dict[str, float]:
    """Milliseconds per deterministic flush of four messages, each session new, one user's day growing."""
    capture, talk, took, worked = capture_over(folder), Talk(3), [], []
    for n in range(count + 5):
        capture.add(SPACE, f"f{n}", [talk.message() for _ in range(4)], defer=True)
        started, cpu = time.perf_counter(), time.thread_time()
        capture.flush(SPACE, f"f{n}")
        worked.append(time.thread_time() - cpu)
        took.append(time.perf_counter() - started)
    took = took[5:]
    return {
        "p50": milliseconds(took),
        "p50 cpu": milliseconds(worked[5:]),
        "p95": milliseconds(took, 0.95),
        "first 20": round(statistics.median(took[:20]) * 1e3, 3),
        "last 20": round(statistics.median(took[-20:]) * 1e3, 3),
    }


def run(args: object = None) -> dict[str, Any]:
    """Measure, print a small table, return the figures."""
    quick = bool(getattr(args, "quick", False))
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as place:
        folder = Path(place)
        for name in ("grow", "many", "flush"):
            (folder / name).mkdir()
        before = floor(folder)
        figures: dict[str, Any] = {
            "add ms": adds(folder / "grow"),
            "8 threads": throughput(folder / "many", 0.3 if quick else 3.0),
            "flush of 4 ms": flushes(folder / "flush", 10 if quick else 100),
        }
        figures["append + fdatasync alone ms"] = {
            "p50 before": milliseconds(before),
            "p50 after": milliseconds(floor(folder)),
        }
    for part, values in figures.items():
        print(part)
        for name, value in values.items():
            print(f"  {name:<30} {value:>10}")
    return figures


if __name__ == "__main__":
    run()
