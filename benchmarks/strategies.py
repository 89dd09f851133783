"""The offline engine: how fast a queue drains, how soon after a flush, and what it costs add beside it.

Every figure is taken in one run on one machine; the last two compare the same adds with and without strategies
at work in the same process. Run with `make bench PART=strategies`.
"""

from __future__ import annotations

import json
import statistics
import tempfile
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cairn import open_blocking
from cairn.config import load
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.jobs import SqliteJobs
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import MemoryRoot
from cairn.notes.notebook import Draft, Notebook
from cairn.retrieval.answers import SearchRequest
from cairn.seams import SystemClock
from cairn.strategies import options as ome
from cairn.strategies.engine import Engine
from cairn.talk import Capture
from cairn.talk.lines import message_to
from cairn.talk.sessions import SessionLog, cell_id, session_locator
from cairn.types import CellEvent, Message, Scope, Space

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
            jobs=SqliteJobs(root / ".index"),
        )
        self.notebook = notebook
        self.capture = Capture(
            storage=storage,
            notebook=notebook,
            sessions=SessionLog(self.journals),
            locks=locks,
            clock=clock,
            settings=settings,
            on_cell=self._told,
        )

    def _told(self, event: CellEvent) -> None:
        self.engine.handle(event)

    def say(self, number: int, users: int) -> None:
        self.capture.add(Space(), f"s{number}", _lines(number, users))
        self.capture.flush(Space(), f"s{number}")

    def lay_down(self, count: int, users: int) -> list[CellEvent]:
        """Cells and episodes as capture leaves them, written in bulk; the events nobody was told of yet."""
        events: list[CellEvent] = []
        episodes: dict[tuple[str, str], list[tuple[str, str, Draft]]] = {}
        for first in range(0, count, 100):
            session = f"bulk{first}"
            log: list[dict[str, Any]] = []
            for number in range(first, min(first + 100, count)):
                lines, at = _lines(number, users), (number - first) * 3
                cell = cell_id(Space(), session, at, at + 3)
                day = datetime.fromtimestamp(lines[0].timestamp / 1000, UTC).date().isoformat()
                user = lines[0].sender_id
                cut = {"t": "cut", "cell": cell, "first": at, "upto": at + 3, "day": day}
                log += [
                    {"t": "add", "n": at, "messages": [message_to(m) for m in lines]},
                    {**cut, "owners": [["user", user]]},
                    {"t": "done", "cell": cell},
                ]
                text = " ".join(f"{m.speaker} said: {m.text}" for m in lines)
                draft = Draft(
                    {"session_id": session, "parent_type": "memcell", "parent_id": cell}, {"Content": text}
                )
                episodes.setdefault((user, day), []).append((cell, session, draft))
            self.journals.append(session_locator(Space(), session), [json.dumps(line) for line in log])
        for (user, day), found in episodes.items():
            scope = Scope(Space(), "user", user)
            written = self.notebook.append("episode", scope, day, [draft for _, _, draft in found])
            events += [
                CellEvent(cell, Space(), session, day, ((scope, entry.entry_id),), ("bot",))
                for (cell, session, _), entry in zip(found, written, strict=True)
            ]
        return events


def _lines(number: int, users: int) -> list[Message]:
    user = f"user{number % users}"
    thing, place = THINGS[number % 12], PLACES[number // 12 % 12]
    stamp = AT + number * 60_000
    return [
        Message(user, "user", stamp, f"I bought {number} wooden {thing}s in {place} yesterday.", user),
        Message("bot", "assistant", stamp + 1, f"Noted: {number} {thing}s.", "bot"),
        Message(user, "user", stamp + 2, f"I love {place}. I'm going to visit {place} next month.", user),
    ]


def run(args: Any = None) -> dict[str, Any]:
    """Measure and print a small table."""
    events = 500 if getattr(args, "quick", False) else 10_000
    out: dict[str, Any] = {"events": events}
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        world = _World(Path(folder) / "drain")
        laid = world.lay_down(events, 50)
        begun = time.perf_counter()
        world.engine.handle(*laid)
        out["queue events/s"] = round(events / (time.perf_counter() - begun))
        begun, spent = time.perf_counter(), time.process_time()
        while world.engine.run_due():
            pass
        out["drain events/s"] = round(events / (time.perf_counter() - begun))
        out["drain events/s of CPU"] = round(events / (time.process_time() - spent))
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
    """Adds and keyword searches with the engine asleep and at work on a long queue, in turns.

    Searches go to the searcher itself, so that indexing what the engine writes is not counted as its cost.
    """
    out: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="cairn-bench-") as folder:
        root = Path(folder) / "beside"
        laid = _World(root).lay_down(2000, 5)
        with open_blocking(root, background=False, embedding__provider="none") as memory:
            memory.search("lamps", user_id="user0", method="keyword")
            engine = memory.parts.engine
            engine.handle(*laid)
            stop, working = threading.Event(), threading.Event()

            def work() -> None:
                while not stop.is_set():
                    if not working.wait(0.01) or not engine.run_due(32, seconds=0.2):
                        time.sleep(0.001)

            thread = threading.Thread(target=work)
            thread.start()
            times: dict[tuple[str, bool], list[float]] = {}
            number = 0
            for turn in range(10):
                busy = bool(turn % 2)
                (working.set if busy else working.clear)()
                time.sleep(0.25)
                for _ in range(30):
                    number += 1
                    line = {
                        "sender_id": "ana",
                        "role": "user",
                        "timestamp": AT + number * 1000,
                        "content": f"Boat {number}.",
                    }
                    begun = time.perf_counter()
                    memory.add(f"add{number % 5}", [line], defer_extraction=True)
                    times.setdefault(("add", busy), []).append(time.perf_counter() - begun)
                    begun = time.perf_counter()
                    with memory.parts.traffic:
                        memory.parts.searcher.search(
                            SearchRequest(
                                f"{THINGS[number % 12]}s in {PLACES[number % 11]}",
                                Scope(Space(), "user", "user1"),
                                method="keyword",
                            )
                        )
                    times.setdefault(("search", busy), []).append(time.perf_counter() - begun)
                    time.sleep(0.004)
            stop.set()
            thread.join()
    for what in ("add", "search"):
        asleep, at_work = (statistics.median(times[what, busy]) * 1000 for busy in (False, True))
        out[f"{what} asleep, p50 ms"] = round(asleep, 3)
        out[f"{what} at work, p50 ms"] = round(at_work, 3)
        out[f"{what} at work, share of asleep"] = round(at_work / asleep, 3)
    return out


if __name__ == "__main__":
    run()
