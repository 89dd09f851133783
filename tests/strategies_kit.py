"""A memory root with an engine, and talk that ends up in it the way capture leaves it."""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cairn.config import Settings, load
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.jobs import SqliteJobs
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.notes.kinds import KINDS
from cairn.notes.notebook import Draft, Notebook
from cairn.notes.root import MemoryRoot
from cairn.seams import Completion, Locator
from cairn.strategies import Strategy
from cairn.strategies import options as ome
from cairn.strategies.engine import Engine
from cairn.talk.lines import message_to
from cairn.talk.sessions import cell_id, message_id, session_locator
from cairn.timetravel.changes import TimeTravel
from cairn.timetravel.runs import Runs
from cairn.types import CellEvent, Message, Scope, Space, ToolCall

START = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)


class MovingClock:
    """A clock that a test sets."""

    def __init__(self, at: datetime = datetime(2026, 11, 15, 12, tzinfo=UTC)) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def forward(self, **by: float) -> None:
        self.at += timedelta(**by)


class ScriptedWriter:
    """A model that gives the answers it was told to, in order, then the last one again."""

    id = "scripted"

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.asked: list[tuple[str, str]] = []

    def complete(self, system: str, prompt: str, schema: Mapping[str, Any], *, purpose: str) -> Completion:
        self.asked.append((system, prompt))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return Completion(answer)


class World:
    """One root on disk with everything the engine needs."""

    def __init__(self, directory: Path, **more: Any) -> None:
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        self.clock = more.pop("clock", None) or MovingClock()
        self.storage = DeviceLocalBackend(directory)
        self.journals = FileJournals(directory)
        self.locks = FileLocks(directory / ".tmp" / "locks")
        self.settings: Settings = load(directory, environ={})
        self.root = MemoryRoot(self.storage)
        self.runs = Runs(self.root, self.journals, self.clock, self.travel)
        self.notebook = Notebook(self.storage, self.locks, clock=self.clock, history=self.runs)
        self.root.ensure(ome.template())
        self.more = more
        self.engine = self.fresh_engine()

    def travel(self, space: Space) -> TimeTravel:
        return TimeTravel(self.root.space(space), self.notebook, self.journals, self.locks, self.clock)

    def fresh_engine(self, strategies: Sequence[Strategy] | None = None) -> Engine:
        engine = Engine(
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            jobs=SqliteJobs(self.directory / ".index"),
            strategies=strategies,
            **self.more,
        )
        weakref.finalize(engine, engine.jobs.close)
        return engine

    def talk(
        self,
        lines: Sequence[tuple[Any, ...]],
        *,
        session: str = "s1",
        at: datetime = START,
        space: Space | None = None,
        mode: str = "chat",
    ) -> CellEvent:
        """Log `(sender, text)` or ready messages as one finished cell; a sender "agent:x" is an assistant."""
        space = space or Space()
        locator = session_locator(space, session)
        first = sum(
            len(json.loads(line)["messages"])
            for line in self.journals.read(locator).lines
            if json.loads(line)["t"] == "add"
        )
        messages = []
        for number, line in enumerate(lines):
            if isinstance(line[0], Message):
                messages.append(line[0])
                continue
            sender, text = line
            role = "assistant" if sender.startswith("agent:") else "user"
            sender = sender.removeprefix("agent:")
            stamp = int((at + timedelta(seconds=30 * number)).timestamp() * 1000)
            messages.append(Message(sender.lower(), role, stamp, text, sender))  # type: ignore[arg-type]
        upto = first + len(messages)
        cell = cell_id(space, session, first, upto)
        day = at.date().isoformat()
        users = sorted({m.sender_id for m in messages if m.role == "user"})
        agents = sorted({m.sender_id for m in messages if m.role == "assistant"})
        add = {"t": "add", "n": first, "messages": [message_to(m) for m in messages]}
        owners = [["user", u] for u in users] + [["agent", a] for a in agents]
        cut = {
            "t": "cut",
            "cell": cell,
            "first": first,
            "upto": upto,
            "day": day,
            "owners": owners,
            "mode": mode,
        }
        self.journals.append(locator, [json.dumps(add), json.dumps(cut)])
        episodes = []
        for user in users:
            scope = Scope(space, "user", user)
            draft = Draft(
                {
                    "owner_id": user,
                    "session_id": session,
                    "timestamp": at.isoformat(),
                    "parent_type": "memcell",
                    "parent_id": cell,
                    "sender_ids": [*users, *agents],
                },
                {
                    "Subject": messages[0].text[:60],
                    "Content": "\n".join(f"{m.speaker} said: {m.text}" for m in messages if m.text),
                },
            )
            written = self.notebook.append("episode", scope, day, [draft], once_by=("parent_id",))
            episodes.append((scope, written[0].entry_id))
        self.journals.append(locator, [json.dumps({"t": "done", "cell": cell})])
        return CellEvent(cell, space, session, day, tuple(episodes), tuple(agents), mode)

    def ids(self, session: str, *ordinals: int) -> list[str]:
        return [message_id(session, n) for n in ordinals]

    def run(self, *events: CellEvent) -> int:
        """Hand over the events and work until nothing is due."""
        for event in events:
            self.engine.handle(event)
        total = 0
        while ended := self.engine.run_due():
            total += ended
        return total

    def entries(self, kind: str, owner: str, *, track: str = "user") -> list[Any]:
        scope = Scope(Space(), track, owner)  # type: ignore[arg-type]
        return [
            entry
            for locator in self.notebook.notes(Space(), kind)
            if locator.key.startswith(self.root.scope(scope).key + "/")
            for entry in self.notebook.read(locator).entries
        ]

    def facts(self, owner: str) -> list[str]:
        return [entry.sections["Fact"] for entry in self.entries("atomic_fact", owner)]

    def configure(self, text: str) -> None:
        """Save `ome.toml`, and let the engine look at once."""
        self.storage.write(Locator("ome.toml"), text)
        self.engine._live.look_now()

    def tree(self) -> dict[str, bytes]:
        """Every note, byte for byte."""
        return {
            str(p.relative_to(self.directory)): p.read_bytes()
            for p in sorted(self.directory.rglob("*.md"))
            if ".index" not in p.parts
        }


def trajectory(
    task: str,
    *,
    agent: str = "ops_agent",
    steps: Sequence[tuple[str, Mapping[str, Any], str]],
    final: str,
    thanks: str = "",
    at: datetime = START,
) -> list[tuple[Message]]:
    """Messages of an agent that works on `task` with `(tool, arguments, result)` steps."""
    stamp = int(at.timestamp() * 1000)
    out = [Message("dana", "user", stamp, task, "Dana")]
    for number, (tool, arguments, result) in enumerate(steps):
        call = ToolCall(f"c{number}", tool, json.dumps(arguments))
        out.append(Message(agent, "assistant", stamp + number * 1000 + 1, "", agent, (call,)))
        out.append(Message(agent, "tool", stamp + number * 1000 + 2, result, tool_call_id=f"c{number}"))
    out.append(Message(agent, "assistant", stamp + 60_000, final, agent))
    if thanks:
        out.append(Message("dana", "user", stamp + 70_000, thanks, "Dana"))
    return [(m,) for m in out]


def case_steps(port: str = "5432") -> list[tuple[str, Mapping[str, Any], str]]:
    return [
        (
            "shell",
            {"command": "systemctl status backup"},
            f"backup.service failed: exit code 2 on port {port}",
        ),
        ("read_file", {"path": "/etc/backup.env"}, f"PGPORT={port}"),
        ("edit_file", {"path": "/etc/backup.env", "text": "PGPORT=5433"}, "saved"),
        ("shell", {"command": "systemctl start backup"}, "ok, exit code 0"),
    ]


Act = Callable[[], Any]
KINDS_DERIVED = ("atomic_fact", "foresight")
__all__ = [
    "KINDS",
    "KINDS_DERIVED",
    "START",
    "MovingClock",
    "ScriptedWriter",
    "World",
    "case_steps",
    "trajectory",
]
