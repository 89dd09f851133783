"""How long the gate, the sweep and the pages take: medians over many calls on a real folder, flush included."""

from __future__ import annotations

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn import config
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.governed import lifecycle, pages
from cairn.governed.gate import dedupe_hash
from cairn.governed.memories import Keeper
from cairn.governed.records import KIND, Record, Status
from cairn.governed.secrets import redact
from cairn.notes.kinds import MemoryRoot
from cairn.notes.notebook import Draft, Notebook
from cairn.types import Scope, Space

SPACE = Space()
PROJECT = Scope(SPACE, "project", "")


class _Clock:
    def __init__(self) -> None:
        self.at = datetime(2026, 6, 1, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


def _words(seed: int) -> list[str]:
    rng = random.Random(seed)
    return [
        "".join(rng.choice("abcdefghijklmnoprstuvw") for _ in range(rng.randint(3, 9))) for _ in range(4000)
    ]


def _sentence(rng: random.Random, words: list[str]) -> str:
    return " ".join(words[min(int(rng.paretovariate(0.6)), 3999)] for _ in range(rng.randint(10, 24))) + "."


def make_keeper(path: Path, clock: Any) -> Keeper:
    storage = DeviceLocalBackend(path)
    locks = FileLocks(path / ".tmp" / "locks")
    return Keeper(
        storage=storage,
        root=MemoryRoot(storage),
        notebook=Notebook(storage, locks, clock=clock, on_change=len),
        journals=FileJournals(path),
        locks=locks,
        clock=clock,
        settings=config.load(path, environ={}, keeping__limit_project=1_000_000),
    )


def fill(
    keeper: Keeper,
    count: int,
    *,
    per_day: int = 40,
    seed: int = 1,
    confidence: float = 1.0,
    status: Status = "candidate",
) -> None:
    """Write `count` memories, `per_day` to a note, straight into the notebook."""
    rng, words = random.Random(seed), _words(seed)
    day = datetime(2026, 5, 31, tzinfo=UTC)
    for start in range(0, count, per_day):
        drafts = []
        for _ in range(min(per_day, count - start)):
            text = _sentence(rng, words)
            record = Record(
                PROJECT, text, status=status, dedupe=dedupe_hash(text), created_at=day, updated_at=day,
                confidence=confidence,
            )  # fmt: skip
            drafts.append(Draft(record.inline(), record.sections()))
        keeper.notebook.append(KIND, PROJECT, day.date().isoformat(), drafts)
        day -= timedelta(days=1)


def gate(count: int, calls: int) -> dict[str, float]:
    rng, words = random.Random(99), _words(1)
    with tempfile.TemporaryDirectory() as name:
        keeper = make_keeper(Path(name), _Clock())
        fill(keeper, count)
        begin = time.perf_counter()
        keeper.remember(_sentence(rng, words), origin="agent")
        cold = time.perf_counter() - begin
        fresh, again, kept = [], [], []
        for n in range(calls):
            text = _sentence(rng, words)
            begin = time.perf_counter()
            verdict = keeper.remember(text, origin="agent")
            fresh.append(time.perf_counter() - begin)
            if verdict.accepted:
                kept.append(text)
            if n % 4 == 0 and kept:
                begin = time.perf_counter()
                keeper.remember(rng.choice(kept), origin="human")
                again.append(time.perf_counter() - begin)
        return {
            "cold_ms": cold * 1e3,
            "fresh_p50_ms": statistics.median(fresh) * 1e3,
            "fresh_p95_ms": sorted(fresh)[int(len(fresh) * 0.95)] * 1e3,
            "merge_p50_ms": statistics.median(again) * 1e3,
        }


def sweep(count: int) -> dict[str, float]:
    """A sweep in which a quarter of the memories change tier, with a writer beside it.

    As in the server, threads hand over the interpreter within half a millisecond.
    """
    rng, words = random.Random(7), _words(1)
    with tempfile.TemporaryDirectory() as name:
        clock = _Clock()
        keeper = make_keeper(Path(name), clock)
        fill(keeper, count * 3 // 4, per_day=count // 40, confidence=1.0)
        fill(keeper, count // 4, per_day=count // 40, seed=2, confidence=0.1)
        clock.at += timedelta(days=70)
        waits: list[float] = []
        done = threading.Event()

        def write() -> None:
            while not done.is_set():
                begin = time.perf_counter()
                keeper.remember(_sentence(rng, words), origin="agent")
                waits.append(time.perf_counter() - begin)
                time.sleep(0.02)

        keeper.records(PROJECT)
        patience = sys.getswitchinterval()
        sys.setswitchinterval(0.0005)
        writer = threading.Thread(target=write)
        writer.start()
        begin = time.perf_counter()
        report = lifecycle.sweep(keeper, SPACE)
        seconds = time.perf_counter() - begin
        done.set()
        writer.join()
        sys.setswitchinterval(patience)
        assert report is not None
        return {
            "seconds": seconds,
            "demoted": report.entries_demoted,
            "write_beside_p50_ms": statistics.median(waits) * 1e3,
            "write_beside_max_ms": max(waits) * 1e3,
        }


def page(count: int) -> float:
    """Milliseconds to make MEMORY.md and the other pages anew after one more memory."""
    rng, words = random.Random(11), _words(1)
    with tempfile.TemporaryDirectory() as name:
        keeper = make_keeper(Path(name), _Clock())
        fill(keeper, count, status="promoted")
        pages.refresh(keeper, SPACE)
        times = []
        for _ in range(5):
            keeper.remember(_sentence(rng, words), origin="human")
            begin = time.perf_counter()
            pages.refresh(keeper, SPACE)
            times.append(time.perf_counter() - begin)
        return statistics.median(times) * 1e3


def flush_alone(reps: int = 100) -> float:
    """Milliseconds of an append with fdatasync: what the disk asks of every durable write."""
    with tempfile.TemporaryDirectory() as name:
        file = os.open(Path(name) / "floor", os.O_CREAT | os.O_WRONLY | os.O_APPEND)
        times = []
        for _ in range(reps):
            begin = time.perf_counter()
            os.write(file, b"x" * 400)
            os.fdatasync(file)
            times.append(time.perf_counter() - begin)
        os.close(file)
    return statistics.median(times) * 1e3


def run(args: Any = None) -> dict[str, Any]:
    """Measure and print a small table."""
    scale = 20 if getattr(args, "quick", False) else 1
    message = "I went to the market with Caroline yesterday and we bought apples. " * 3
    begin = time.perf_counter()
    for _ in range(2000):
        redact(message)
    result: dict[str, Any] = {
        "redact_200_chars_us": (time.perf_counter() - begin) / 2000 * 1e6,
        "flush_ms": flush_alone(),
        "gate_2000": gate(2_000 // scale, 200 // scale),
        "gate_20000": gate(20_000 // scale, 200 // scale),
        "sweep_10000": sweep(10_000 // scale),
        "page_2000_ms": page(2_000 // scale),
    }
    for name, value in result.items():
        shown = value if not isinstance(value, dict) else "  ".join(f"{k} {v:.2f}" for k, v in value.items())
        print(f"{name:22} {shown}")
    return result


if __name__ == "__main__":
    run()
