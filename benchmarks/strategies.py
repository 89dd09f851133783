"""The offline engine: how fast a queue drains, how soon after a flush, and what it costs add beside it.

Every figure is taken in one run on one machine; the last two compare the same adds with and without strategies
at work in the same process. Run with `make bench PART=strategies`.
"""

from __future__ import annotations

import statistics
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from cairn.capture import Capture
from cairn.config import load
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.notebook import Notebook
from cairn.notes.root import MemoryRoot
from cairn.seams import SystemClock
from cairn.strategies import options as ome
from cairn.strategies.engine import Engine
from cairn.types import CellEvent, Message, Space

THINGS = (
    "lamp",
    "kettle",
    "ladder",
    "saddle",
    "violin",
    "wheel",
    "barrel",
    "anchor",
    "bucket",
    "candle",
    "drawer",
    "engine",
)
PLACES = (
    "Oslo",
    "Rome",
    "Lima",
    "Cairo",
    "Quito",
    "Perth",
    "Delhi",
    "Turin",
    "Accra",
    "Hanoi",
    "Sofia",
    "Leeds",
)
AT = 1_683_550_560_000


class _World:
    def __init__(self, root: Path) -> None:
        storage, self.journals = DeviceLocalBackend(root), FileJournals(root)
        locks, settings, clock = FileLocks(root / ".tmp" / "locks"), load(root, environ={}), SystemClock()
        notebook = Notebook(storage, locks)
        place = MemoryRoot(storage)
        place.ensure(ome.template())
        self.engine = Engine(
            root=place,
            notebook=notebook,
            journals=self.journals,
            locks=locks,
            clock=clock,
            settings=settings,
            index_dir=root / ".index",
        )
        self.events: list[CellEvent] = []
        self.hand_over = True
        self.capture = Capture(
            storage=storage,
            notebook=notebook,
            journals=self.journals,
            locks=locks,
            clock=clock,
            settings=settings,
            on_cell=self._told,
        )

    def _told(self, event: CellEvent) -> None:
        self.events.append(event)
        if self.hand_over:
            self.engine.handle(event)

    def say(self, number: int, users: int) -> None:
        user = f"user{number % users}"
        thing, place = THINGS[number % 12], PLACES[number // 12 % 12]
        stamp = AT + number * 60_000
        lines = [
            Message(user, "user", stamp, f"I bought {number} wooden {thing}s in {place} yesterday.", user),
            Message("bot", "assistant", stamp + 1, f"Noted: {number} {thing}s.", "bot"),
            Message(user, "user", stamp + 2, f"I love {place}. I'm going to visit {place} next month.", user),
        ]
        self.capture.add(Space(), f"s{number}", lines)
        self.capture.flush(Space(), f"s{number}")


def run(args: Any = None) -> dict[str, Any]:
    """Measure and print a small table."""
    events = int(getattr(args, "events", 0) or 2000)
    out: dict[str, Any] = {"events": events}
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        world = _World(Path(folder) / "drain")
        world.hand_over = False
        for number in range(events):
            world.say(number, 20)
        begun = time.perf_counter()
        world.engine.handle_many(world.events)
        out["queue events/s"] = round(events / (time.perf_counter() - begun))
        begun = time.perf_counter()
        while world.engine.run_due():
            pass
        out["drain events/s"] = round(events / (time.perf_counter() - begun))
        begun = time.process_time()
        for _ in range(200):
            world.engine.run_due()
        out["idle look, CPU ms"] = round((time.process_time() - begun) * 5, 3)
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        world = _World(Path(folder) / "latency")
        waits = []
        for number in range(150):
            world.say(number, 5)
            begun = time.perf_counter()
            while world.engine.run_due():
                pass
            waits.append(time.perf_counter() - begun)
        out["flush to derived, p50 ms"] = round(statistics.median(waits) * 1000, 1)
        out["flush to derived, p95 ms"] = round(statistics.quantiles(waits, n=20)[-1] * 1000, 1)
    out |= _beside()
    print("\n".join(f"{key:32} {value}" for key, value in out.items()))
    return out


def _beside() -> dict[str, Any]:
    """Adds with the engine asleep and at work, in turns, in one process."""
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        world = _World(Path(folder) / "beside")
        stop, working = threading.Event(), threading.Event()

        def work() -> None:
            while not stop.is_set():
                if not working.is_set() or not world.engine.run_due(16):
                    world.engine.wait(0.02)

        thread = threading.Thread(target=work)
        thread.start()
        times: dict[bool, list[float]] = {True: [], False: []}
        number = 0
        for turn in range(8):
            busy = bool(turn % 2)
            (working.set if busy else working.clear)()
            for _ in range(40):
                lines = [Message("ana", "user", AT + number * 1000, f"I saw {number} boats in Oslo.", "Ana")]
                begun = time.perf_counter()
                world.capture.add(Space(), f"add{number % 5}", lines, defer=True)
                times[busy].append(time.perf_counter() - begun)
                number += 1
                time.sleep(0.004)
            world.say(100_000 + turn, 5)
        stop.set()
        thread.join()
    idle, busy_ms = (statistics.median(times[b]) * 1000 for b in (False, True))
    return {"add p50 ms, engine asleep": round(idle, 2), "add p50 ms, engine at work": round(busy_ms, 2)}


if __name__ == "__main__":
    run()
