"""A process that captures talk and runs strategies until it is killed: `python -m tests.crash.strategies_worker ROOT SEED CELLS`."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from cairn.config import load
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.jobs import SqliteJobs
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import MemoryRoot
from cairn.notes.notebook import Notebook
from cairn.seams import SystemClock
from cairn.strategies import options as ome
from cairn.strategies.engine import Engine
from cairn.talk import Capture
from cairn.talk.sessions import SessionLog
from cairn.types import Message, Space, ToolCall

AT = 1_683_550_560_000
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


def talk(number: int) -> list[Message]:
    """A cell of its own: two facts, one plan, one attribute, and an agent's work."""
    thing, place = THINGS[number % 12], PLACES[number // 12 % 12]
    stamp = AT + number * 3_600_000
    user = f"I bought {number + 2} wooden {thing}s in {place} yesterday. I'm going to sell them in {place} by 1 June. I live in {place}. Please fix the backup of server {number}."
    lines = [Message("ana", "user", stamp, user, "Ana")]
    for step, (tool, arguments, result) in enumerate(
        (("shell", {"command": "systemctl status backup"}, "failed: exit code 2"), ("edit_file", {"path": "/etc/backup.env"}, "saved"), ("shell", {"command": "systemctl start backup"}, "ok, exit code 0"))
    ):  # fmt: skip
        call = ToolCall(f"c{number}-{step}", tool, json.dumps(arguments))
        lines.append(Message("ops", "assistant", stamp + step * 10 + 1, "", "ops", (call,)))
        lines.append(Message("ops", "tool", stamp + step * 10 + 2, result, tool_call_id=f"c{number}-{step}"))
    lines.append(
        Message(
            "ops",
            "assistant",
            stamp + 100,
            "The cause was the old port in backup.env; it works again.",
            "ops",
        )
    )
    return lines


def parts(root: Path) -> tuple[Capture, Engine]:
    """Capture and the engine on one root, wired as the product wires them."""
    storage, journals = DeviceLocalBackend(root), FileJournals(root)
    locks = FileLocks(root / ".tmp" / "locks")
    settings = load(root, environ={})
    notebook = Notebook(storage, locks)
    place = MemoryRoot(storage)
    place.ensure(ome.template())
    engine = Engine(
        root=place,
        notebook=notebook,
        journals=journals,
        locks=locks,
        clock=SystemClock(),
        settings=settings,
        jobs=SqliteJobs(root / ".index"),
    )
    capture = Capture(
        storage=storage,
        notebook=notebook,
        sessions=SessionLog(journals),
        locks=locks,
        clock=SystemClock(),
        settings=settings,
        on_cell=lambda event: engine.handle(event) and None,
    )
    return capture, engine


def main(root: Path, first: int, count: int) -> None:
    capture, engine = parts(root)
    capture.recover()
    engine.recover()
    print("ready", flush=True)
    for number in range(first, first + count):
        capture.add(Space(), f"s{number}", talk(number), mode="agent")
        capture.flush(Space(), f"s{number}")
        engine.run_due(4)
    while engine.run_due(4):
        pass
    print("done", flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
