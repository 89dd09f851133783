"""The same work for a long time: memory, file handles, threads, the index's size and latency must not creep.

One process with all its background life writes, remembers, edits, searches and lets a person delete the oldest
days, so that the truth stays about the same size while the work goes on. `make chaos SOAK=1` runs nothing else.

The bound on the index: at most `INDEX_FLOOR` bytes plus `INDEX_BYTES_PER_BYTE` for each byte of truth (notes and
session logs), however often that truth was rewritten. Why that much: each line of talk is a row with its text,
its words and a vector of 384 numbers, and a short line is far smaller than its vector. The floor is mostly the
write-ahead logs of four SQLite files, about 4 MB each, whatever the size of the memory.
"""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

import cairn
from tests.chaos import _shrunk
from tests.chaos.world import DAY_MS, FIRST_DAY, Violation, _words

WINDOW = 12
INDEX_FLOOR = 32 * 2**20
INDEX_BYTES_PER_BYTE = 30
WARM_CYCLES = 3000  # by then the bounded caches (sessions, cells, notes just written) are full
MAX_RSS = 400 * 2**20
MAX_RSS_GROWTH = 64 * 2**20
FLAT_AFTER = 1000  # cycles; from there on memory has to stay level
FLAT_CYCLES = 1000  # so many more are needed to tell
MAX_SLOPE = 1024.0  # bytes a cycle
SAMPLE_EVERY = 50
TELL_EVERY = 250
BLOCK = 20  # calls
MAX_HANDLE_GROWTH = 48  # every thread of the pools opens its SQLite files once, when its turn first comes
MAX_THREAD_GROWTH = 6
MAX_SLOWDOWN = 3.0
SLACK_SECONDS = 0.02
TALK = [
    "the",
    "harbour",
    "was",
    "quiet",
    "and",
    "we",
    "carried",
    "the",
    "lantern",
    "up",
    "to",
    "the",
    "attic",
    "before",
    "the",
    "rain",
    "came",
    "over",
    "the",
    "orchard",
]


def rss() -> int:
    gc.collect()
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def handles() -> int:
    return len(os.listdir("/proc/self/fd"))


def tree_bytes(folder: Path) -> int:
    total = 0
    for place, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.stat(os.path.join(place, name)).st_blocks * 512
            except OSError:
                continue
    return total


def truth_bytes(root: Path) -> int:
    """What a person would call their memory: notes and the logs of what was said, by length."""
    return sum(
        path.stat().st_size
        for kind in ("*/*/users/**/*.md", "*/*/agents/**/*.md", "*/*/sessions/**/*.jsonl")
        for path in root.glob(kind)
    )


class Soak:
    """The steady work and what is measured meanwhile."""

    def __init__(self, root: Path, seed: int) -> None:
        self.root = root
        self.rng = random.Random(seed)
        # The same words come back: caches of words and texts fill up early, and what still grows is a leak.
        words = _words()
        self.talk = [
            " ".join((*self.rng.choices(TALK, k=self.rng.randint(5, 40)), next(words))) for _ in range(300)
        ]
        self.facts = [
            " ".join("".join(self.rng.choices("abcdefghik", k=8)) for _ in range(6)) for _ in range(60)
        ]
        self.queries = [" ".join(self.rng.choices(TALK, k=4)) for _ in range(30)]
        self.took: dict[str, list[float]] = defaultdict(
            list
        )  # medians of `BLOCK` calls: the watcher must not grow
        self._last: dict[str, list[float]] = defaultdict(list)
        self.cycles = 0

    def timed(self, what: str, call: Any) -> Any:
        begin = time.perf_counter()
        out = call()
        last = self._last[what]
        last.append(time.perf_counter() - begin)
        if len(last) == BLOCK:
            self.took[what].append(statistics.median(last))
            last.clear()
        return out

    def cycle(self, memory: cairn.BlockingMemory) -> None:
        day, session = self.cycles, f"day-{self.cycles:05d}"
        at = FIRST_DAY + day * DAY_MS + 36_000_000
        for n in range(8):
            message = {
                "sender_id": "ana",
                "role": "user",
                "timestamp": at + n * 1000,
                "content": self.rng.choice(self.talk),
            }
            self.timed("add", lambda m=message: memory.add(session, [m]))
        self.timed("flush", lambda: memory.flush(session))
        fact = self.rng.choice(self.facts)
        keeper = memory.parts.keeper
        self.timed("remember", lambda: keeper.remember(fact, scope="user", owner="ana", gated=False))
        for _ in range(4):
            query = self.rng.choice(self.queries)
            self.timed("search", lambda q=query: memory.search(q, user_id="ana"))
        notes = sorted(self.root.glob("*/*/users/ana/episodes/*.md"))
        if notes:
            note = self.rng.choice(notes)
            text = note.read_text(encoding="utf-8")
            marked = text.replace("<!-- /entry:", f"Read again: {self.rng.randrange(100)}.\n<!-- /entry:", 1)
            note.write_text(
                marked if len(marked) < 20_000 else text.split("Read again:")[0], encoding="utf-8"
            )
        self._forget_old(day - WINDOW)
        self.cycles += 1

    def _forget_old(self, day: int) -> None:
        """The person deletes the oldest day and the log of its talk."""
        if day < 0:
            return
        date = time.strftime("%Y-%m-%d", time.gmtime(FIRST_DAY / 1000 + day * 86400))
        for path in (
            *self.root.glob(f"*/*/users/ana/**/*{date}.md"),
            *self.root.glob(f"*/*/sessions/**/*day-{day:05d}*"),
        ):
            path.unlink()
        for path in self.root.glob("*/*/users/ana/memories/*.md"):
            if path.stat().st_size > 40_000:
                path.unlink()

    def measure(self, memory: cairn.BlockingMemory) -> dict[str, int]:
        memory.sync()
        return {
            "rss": rss(),
            "handles": handles(),
            "threads": threading.active_count(),
            "index": tree_bytes(self.root / ".index"),
            "truth": truth_bytes(self.root),
        }


def check_growth(warm: dict[str, int], end: dict[str, int]) -> None:
    for name, most in (
        ("rss", MAX_RSS_GROWTH),
        ("handles", MAX_HANDLE_GROWTH),
        ("threads", MAX_THREAD_GROWTH),
    ):
        if end[name] - warm[name] > most:
            raise Violation(f"{name} grew from {warm[name]} to {end[name]}; {most} more are allowed")
    if end["rss"] > MAX_RSS:
        raise Violation(f"the process has {end['rss']} bytes in memory; {MAX_RSS} are allowed")
    allowed = INDEX_FLOOR + INDEX_BYTES_PER_BYTE * end["truth"]
    if end["index"] > allowed:
        raise Violation(
            f"the index has {end['index']} bytes over {end['truth']} of truth; {allowed} are allowed"
        )


def check_drift(took: dict[str, list[float]]) -> dict[str, float]:
    drift = {}
    for what, times in took.items():
        quarter = max(len(times) // 4, 1)
        early, late = (
            statistics.median(times[quarter : 2 * quarter] or times),
            statistics.median(times[-quarter:]),
        )
        if late > early * MAX_SLOWDOWN + SLACK_SECONDS:
            raise Violation(f"{what} took {early * 1000:.1f} ms at first and {late * 1000:.1f} ms in the end")
        drift[f"{what} ms"] = round(late * 1000, 2)
    return drift


def slope(samples: list[tuple[int, int]]) -> float:
    """Bytes a cycle, by least squares."""
    middle, level = (statistics.fmean(one[axis] for one in samples) for axis in (0, 1))
    spread = sum((at - middle) ** 2 for at, _ in samples)
    return sum((at - middle) * (held - level) for at, held in samples) / spread if spread else 0.0


def draw(samples: list[tuple[int, int]]) -> None:
    """The memory of the process over the cycles, as a picture, where PICTURE names a file."""
    place = os.environ.get("PICTURE")
    if not place or len(samples) < 2:
        return
    last, top = samples[-1][0], max(held for _, held in samples) * 1.1
    points = " ".join(f"{60 + 720 * at / last:.1f},{260 - 230 * held / top:.1f}" for at, held in samples)
    marks = "".join(
        f'<text x="52" y="{264 - 230 * part / 4:.0f}" text-anchor="end">{top * part / 4 / 2**20:.0f} MB</text>'
        for part in range(5)
    )
    Path(place).write_text(
        '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 800 300" font-family="sans-serif" font-size="11">'
        '<rect width="800" height="300" fill="white"/><path d="M60 30V260H780" fill="none" stroke="#888"/>'
        f'{marks}<text x="780" y="280" text-anchor="end">{last} cycles</text><text x="60" y="20">'
        f'resident memory of one process</text><polyline points="{points}" fill="none" stroke="#06c"/></svg>\n',
        encoding="utf-8",
    )


def soak(
    root: Path, seconds: float, seed: int, *, min_cycles: int = 3 * WINDOW, timed: bool = True
) -> dict[str, Any]:
    """Work for `seconds`, and at least until the oldest days have been deleted for a while."""
    from cairn.engines import allocator

    if shrunk_by := int(os.environ.get("SHRINK") or 0):
        _shrunk.shrink(shrunk_by)
    allocator.settle()  # as a server does
    work = Soak(root, seed)
    until = time.monotonic() + seconds
    most = int(os.environ.get("CYCLES") or 0) or 2**62
    warm: dict[str, int] = {}
    samples: list[tuple[int, int]] = []
    with cairn.open_blocking(root, embedding__provider="hashing", index__scan_seconds=2.0) as memory:
        while work.cycles < min_cycles or (work.cycles < most and time.monotonic() < until):
            work.cycle(memory)
            if work.cycles % SAMPLE_EVERY == 0:
                allocator.trim()
                samples.append((work.cycles, rss()))
                if work.cycles % TELL_EVERY == 0:
                    print(f"soak: {work.cycles} cycles, {samples[-1][1]} bytes", file=sys.stderr, flush=True)
                    draw(samples)
            late = work.cycles >= WARM_CYCLES or time.monotonic() > until - seconds * 0.4
            if not warm and ((late and work.cycles >= 2 * WINDOW) or work.cycles >= min_cycles - WINDOW // 2):
                warm = work.measure(memory)
        end = work.measure(memory)
        check_growth(warm, end)
    report: dict[str, Any] = {"cycles": work.cycles, **(check_drift(work.took) if timed else {})}
    for name in ("rss", "index", "truth"):
        report[f"{name} kB"] = end[name] // 1024
    report |= {"rss growth kB": (end["rss"] - warm["rss"]) // 1024, "handles": end["handles"]}
    draw(samples)
    late = [one for one in samples if one[0] >= FLAT_AFTER]
    if len(late) > 2:
        report["bytes a cycle after 1000"] = round(slope(late))
        if late[-1][0] - late[0][0] >= FLAT_CYCLES and slope(late) > MAX_SLOPE:
            raise Violation(f"memory grows by {slope(late):.0f} bytes a cycle after the first {FLAT_AFTER}")
    report["index/truth"] = round(end["index"] / end["truth"], 1)
    return report


def run(seconds: float, seed: int) -> dict[str, Any]:
    """One long life."""
    folder = tempfile.mkdtemp(prefix="cairn-chaos-")
    try:
        return soak(Path(folder) / "root", seconds, seed)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":  # the short form, in a process that has done nothing else
    print(json.dumps(soak(Path(sys.argv[1]), 0, seed=1, min_cycles=2 * WINDOW, timed=False)))
