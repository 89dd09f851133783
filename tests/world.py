"""One root in a folder, on real engines: what the tests of every room open.

Each part is made when it is first asked for, by the constructors that the product uses. Two worlds over one folder are
two processes. `faults` stand between the parts and the disk: a test says there at which write something happens.
"""

from __future__ import annotations

import json
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from cairn import config
from cairn.engines.changes import SqliteState
from cairn.engines.embedders import HashingEmbedder
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.inmemory import InMemoryBackend, InMemoryLocks
from cairn.engines.jobs import SqliteJobs
from cairn.engines.lance import LanceTables
from cairn.engines.large import LargeIndex
from cairn.engines.locks import FileLocks
from cairn.engines.rows import SqliteIndex
from cairn.governed.memories import Keeper
from cairn.index.corpus import Ask, Found, NewRow, Row, SearchIndex
from cairn.index.embedding_text import spoken_names
from cairn.language.words import tokens
from cairn.notes.kinds import MemoryRoot, place_of
from cairn.notes.notebook import Draft, Notebook
from cairn.retrieval.answers import SearchRequest, SearchResult
from cairn.retrieval.indexer import Indexer
from cairn.retrieval.reading import in_passages
from cairn.retrieval.search import Searcher
from cairn.retrieval.waits import Waits
from cairn.seams import Completion, Embedder, Locator
from cairn.strategies import Strategy
from cairn.strategies import options as ome
from cairn.strategies.engine import Engine
from cairn.talk import Capture
from cairn.talk.lines import message_to
from cairn.talk.sessions import SessionLog, SessionState, cell_id, message_id, session_locator
from cairn.testing.faults import Call, Fault, Faults, FaultyBackend
from cairn.timetravel.changes import TimeTravel
from cairn.timetravel.runs import Runs
from cairn.traffic import Traffic
from cairn.types import CellEvent, Entry, Message, Scope, Space, ToolCall
from tests import held
from tests.waiting import LONG

SPACE = Space()
PROJECT = Scope(SPACE, "project", "")
ALICE, BOB = Scope(SPACE, "user", "alice"), Scope(SPACE, "user", "bob")
NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
DAY = "2026-06-01"
TALKED = datetime(2023, 5, 8, 13, 56, tzinfo=UTC)
MAY_8 = int(TALKED.timestamp() * 1000)


class MovedClock:
    """Stands still until moved."""

    def __init__(self, at: datetime = NOON) -> None:
        self.at = at

    def now(self) -> datetime:
        return self.at

    def move(self, **by: float) -> None:
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
    """A root with whatever a test asks of it.

    Args:
        folder: The root.
        clock: The time; one that stands still by default.
        in_memory: Whether storage and locks are those that survive no process; for what no second one looks at.
        faults: What goes wrong, or happens, at writes.
        index_dir: Where the index lies, if not in the root.
        embedder: Gives the model that makes vectors.
        writer: The language model.
        redact: What is done with a text before it is written.
        local: Where this machine keeps its own files, if not in the root.
        on_cell: Hears of finished cells instead of `cells`.
        sessions_bytes: How much of the session logs is kept in memory.
        settings: "section__key" settings.
    """

    def __init__(
        self,
        folder: Path,
        *,
        clock: Any = None,
        in_memory: bool = False,
        faults: Faults | None = None,
        index_dir: Path | None = None,
        embedder: Callable[[], Embedder | None] | None = None,
        writer: Any = None,
        redact: Callable[[str], str] | None = None,
        local: Any = None,
        on_cell: Callable[[CellEvent], None] | None = None,
        sessions_bytes: int = 32 * 1024 * 1024,
        **settings: Any,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.clock = clock or MovedClock()
        self.in_memory = in_memory
        self.faults = faults
        self.index_dir = index_dir or folder / ".index"
        self.embedder, self.writer, self.redact, self.local = embedder, writer, redact, local
        self.on_cell = on_cell
        self.sessions_bytes = sessions_bytes
        self.settings = config.load(folder, environ={}, **settings)
        self.changes: list[tuple[str, str]] = []
        self.cells: list[CellEvent] = []
        self.events: list[tuple[str, Mapping[str, Any]]] = []
        self.edited: list[str] = []
        self._own = set(vars(self))

    def reopen(self) -> Keeper:
        """A second process, as far as the parts can tell: nothing is held over in memory."""
        for name in set(vars(self)) - self._own - {"_own"}:
            del vars(self)[name]
        return self.keeper

    def close(self) -> None:
        for name in ("state", "index", "jobs"):
            if name in vars(self):
                getattr(self, name).close()

    def _closing(self, made: Any) -> Any:
        weakref.finalize(self, made.close)
        return made

    # ------------------------------------------------------------ parts

    @cached_property
    def storage(self) -> Any:
        disk = InMemoryBackend() if self.in_memory else DeviceLocalBackend(self.folder)
        return disk if self.faults is None else FaultyBackend(disk, self.faults)

    @cached_property
    def journals(self) -> Any:
        return self.storage.journals

    @cached_property
    def locks(self) -> Any:
        if self.in_memory:
            return InMemoryLocks()
        inside = self.index_dir.parent == self.folder
        return FileLocks(self.folder / ".tmp" / "locks" if inside else self.index_dir / "locks")

    @cached_property
    def root(self) -> MemoryRoot:
        return MemoryRoot(self.storage)

    @cached_property
    def runs(self) -> Runs:
        return Runs(self.root, self.journals, self.clock, self.travel)

    def travel(self, space: Space) -> TimeTravel:
        return TimeTravel(self.root.space(space), self.notebook, self.journals, self.locks, self.clock)

    @cached_property
    def notebook(self) -> Notebook:
        return Notebook(
            self.storage, self.locks, clock=self.clock, on_change=self._changed, history=self.runs
        )

    def _changed(self, changes: Sequence[tuple[Locator, Any]]) -> int:
        self.changes += [(locator.key, change) for locator, change in changes]
        return self.indexer.note_change(changes) if "indexer" in vars(self) else len(self.changes)

    @cached_property
    def sessions(self) -> SessionLog:
        return SessionLog(self.journals, budget_bytes=self.sessions_bytes)

    @cached_property
    def keeper(self) -> Keeper:
        return Keeper(
            storage=self.storage,
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            sessions=self.sessions,
            on_event=lambda name, row: self.events.append((name, row)),
        )

    @cached_property
    def capture(self) -> Capture:
        return Capture(
            storage=self.storage,
            notebook=self.notebook,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            writer=self.writer,
            on_cell=self.on_cell or self.cells.append,
            redact=self.redact or (lambda text: text),
            local=self.local,
            sessions=self.sessions,
        )

    @cached_property
    def state(self) -> SqliteState:
        return self._closing(SqliteState(self.index_dir))

    @cached_property
    def index(self) -> SqliteIndex:
        return self._closing(SqliteIndex(self.index_dir))

    @cached_property
    def given_embedder(self) -> Callable[[], Embedder | None]:
        one = HashingEmbedder(64)
        return self.embedder or (lambda: one)

    @cached_property
    def waits(self) -> Waits:
        return Waits(self.indexer, self.state, self.index, self.given_embedder)

    @cached_property
    def indexer(self) -> Indexer:
        return Indexer(
            storage=self.storage,
            sessions=SessionLog(self.journals),
            locks=self.locks,
            queue=self.state,
            index=self.index,
            embedder=self.given_embedder,
            on_edit=lambda rows: self.edited.extend(row.entry_id for row in rows),
            own=self.notebook.own,
        )

    @cached_property
    def jobs(self) -> SqliteJobs:
        return self._closing(SqliteJobs(self.index_dir))

    @cached_property
    def traffic(self) -> Traffic:
        return Traffic()

    @cached_property
    def engine(self) -> Engine:
        return self.fresh_engine()

    def fresh_engine(self, strategies: Sequence[Strategy] | None = None) -> Engine:
        self.root.ensure(ome.template())
        given = {"writer": self.writer, "embedder": self.embedder, "redact": self.redact}
        return Engine(
            root=self.root,
            notebook=self.notebook,
            journals=self.journals,
            locks=self.locks,
            clock=self.clock,
            settings=self.settings,
            jobs=self._closing(SqliteJobs(self.index_dir)),
            give_way=self.traffic.give_way,
            strategies=strategies,
            **{name: value for name, value in given.items() if value is not None},
        )

    # ------------------------------------------------------------ what is on disk

    def files(self) -> set[str]:
        return {
            str(at.relative_to(self.folder))
            for at in self.folder.rglob("*")
            if at.is_file() and ".tmp" not in at.parts
        }

    def notes(self) -> list[str]:
        return sorted(name for name in self.files() if name.endswith(".md"))

    def tree(self) -> dict[str, bytes]:
        """Every note, byte for byte."""
        return {name: (self.folder / name).read_bytes() for name in self.notes() if ".index" not in name}

    def bytes_holding(self, needle: str) -> list[str]:
        """Every file below the root that holds `needle`, in any of its bytes."""
        return held.holding(self.folder, needle)

    def note_path(self, scope: Scope = ALICE, day: str = DAY, kind: str = "episode") -> Path:
        return self.folder / self.root.note(kind, scope, day).key

    def undo(self, run: str) -> list[str]:
        """Take a run back, as the operation does; what became of each entry."""
        return [one.action for one in self.runs.undo(self.notebook, SPACE, run).entries]

    # ------------------------------------------------------------ talk

    def add(self, session: str, *messages: Message, **options: Any) -> Any:
        return self.capture.add(SPACE, session, messages, **options)

    def flush(self, session: str = "s1") -> Any:
        return self.capture.flush(SPACE, session)

    def log(self, session: str = "s1", space: Space = SPACE) -> SessionState:
        return SessionLog(self.journals).load(session_locator(space, session))

    def episodes(self) -> Iterator[tuple[str, Entry]]:
        """Every episode on disk, with its owner."""
        for locator in self.notebook.notes(kind="episode"):
            place = place_of(locator)
            assert place is not None
            for entry in self.notebook.read(locator).entries:
                yield place.scope.owner, entry

    def told(self, owner: str | None = None) -> str:
        """The content of all episodes, joined."""
        return "\n".join(e.sections["Content"] for who, e in self.episodes() if owner in {None, who})

    def episode(self, text: str, scope: Scope = ALICE, day: str = DAY, **inline: object) -> str:
        """Write one as capture would; its id."""
        fields = {"owner_id": scope.owner, "session_id": "s1", "timestamp": f"{day}T10:00:00+00:00", **inline}
        [written] = self.notebook.append("episode", scope, day, [Draft(fields, {"Content": text})])
        return written.entry_id

    # ------------------------------------------------------------ strategies

    def talk(
        self,
        lines: Sequence[tuple[Any, ...]],
        *,
        session: str = "s1",
        at: datetime = TALKED,
        space: Space = SPACE,
        mode: str = "chat",
    ) -> CellEvent:
        """Log `(sender, text)` or ready messages as one finished cell; a sender "agent:x" is an assistant."""
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
        upto, day = first + len(messages), at.date().isoformat()
        cell = cell_id(space, session, first, upto)
        users = sorted({m.sender_id for m in messages if m.role == "user"})
        agents = sorted({m.sender_id for m in messages if m.role == "assistant"})
        owners = [["user", u] for u in users] + [["agent", a] for a in agents]
        add = {"t": "add", "n": first, "messages": [message_to(m) for m in messages]}
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
            fields = {
                "owner_id": user,
                "session_id": session,
                "timestamp": at.isoformat(),
                "parent_type": "memcell",
                "parent_id": cell,
                "sender_ids": [*users, *agents],
            }
            said = "\n".join(f"{m.speaker} said: {m.text}" for m in messages if m.text)
            draft = Draft(fields, {"Subject": messages[0].text[:60], "Content": said})
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
        scope = Scope(SPACE, track, owner)  # type: ignore[arg-type]
        return [
            entry
            for locator in self.notebook.notes(SPACE, kind)
            if locator.key.startswith(self.root.scope(scope).key + "/")
            for entry in self.notebook.read(locator).entries
        ]

    def facts(self, owner: str) -> list[str]:
        return [entry.sections["Fact"] for entry in self.entries("atomic_fact", owner)]

    def configure(self, text: str) -> None:
        """Save `ome.toml`, and let the engine look at once."""
        self.storage.write(Locator("ome.toml"), text)
        self.engine._live.look_now()


class Indexed(World):
    """A world whose notes are indexed as they are written.

    Args:
        folder: The root.
        min_chars: From which length on a file that only grew is read from where it ended.
        given: As for `World`.
    """

    def __init__(self, folder: Path, *, min_chars: int = 16_384, **given: Any) -> None:
        super().__init__(folder, **given)
        self.indexer._recent.min_chars = min_chars

    def sync(self) -> None:
        self.waits.catch_up(LONG)

    def hits(self, words: str, scope: Scope = ALICE) -> list[str]:
        found = by_words(self.index, scope, tokens(words))
        return sorted(row.entry_id for row in self.index.rows(scope, found))

    def all_rows(self, *, damaged: bool = False) -> list[Row]:
        found = []
        for scope, kinds in self.index.scopes():
            page = self.index.page(scope, list(kinds), limit=10**6, hidden=True)
            found.extend(self.index.rows(scope, page.rowids))
        return [row for row in found if damaged or not row.damaged]


class SearchWorld(World):
    """Rows of any scope put straight into the index, and a searcher. `say` adds a session with its episode."""

    def __init__(self, folder: Path, model: Embedder | None = None, **options: Any) -> None:
        super().__init__(folder)
        self.model = model if model is not None else HashingEmbedder(256)
        self.index.begin_model(self.model.id)
        self.count = 0
        self.options = options
        self.asked: SearchIndex | None = None  # another engine over the same rows
        self.embeds = True  # False leaves new rows waiting for their vectors

    def searcher(self, **options: Any) -> Searcher:
        given = {"embedder": lambda: self.model, **self.options, **options}
        return Searcher(self.asked or self.index, settings=self.settings, clock=self.clock, **given)

    def ask(self, query: str, **options: Any) -> SearchResult:
        track, owner = next(
            ((track, options.pop(f"{track}_id")) for track in ("agent", "user") if f"{track}_id" in options),
            ("user", "alice"),
        )
        return self.searcher().search(SearchRequest(query, Scope(Space(), track, owner), **options))

    def entry(self, kind: str, text: str, scope: Scope = ALICE, **fields: Any) -> str:
        self.count += 1
        titles = {"episode": "Content", "atomic_fact": "Fact", "memory": "Content"}
        row = Row(
            rowid=0, kind=kind, scope=scope, entry_id=f"{kind}_{self.count}", path=f"{kind}.md", text=text,
            timestamp_ms=ms("2026-05-01T10:00:00"), updated_ms=ms("2026-05-01T10:00:00"),
            fields={titles.get(kind, "Content"): text},
        )  # fmt: skip
        row = replace(row, **fields)
        new = NewRow(row, str(self.count).encode())
        self.put([new] if kind == "episode" else list(in_passages(new)))
        return row.entry_id

    def say(
        self,
        session: str,
        said: list[tuple[str, str]],
        scope: Scope = ALICE,
        day: str = "2026-05-01",
        roles: Mapping[str, str] | None = None,
    ) -> None:
        names = spoken_names(tuple(sorted({(who, who) for who, _ in said})))
        senders = tuple(dict.fromkeys(who for who, _ in said))
        whole = "\n".join(f"{who} said: {text}" for who, text in said)
        cell = f"mc_{session}"
        at = ms(f"{day}T10:00:00")
        self.entry(
            "episode", whole, scope, session_id=session, cell_id=cell, parent_type="memcell", parent_id=cell,
            timestamp_ms=at, sender_ids=senders, entry_id=f"ep_{session}",
        )  # fmt: skip
        made = []
        for place, (who, text) in enumerate(said):
            row = Row(
                rowid=0, kind="message", scope=scope, entry_id=f"m_{session}_{place}", path="s.jsonl", text=text,
                timestamp_ms=at + place * 1000, updated_ms=at, session_id=session, cell_id=cell, ordinal=place,
                parent_type="memcell", parent_id=cell, sender_ids=(who,), sender_name=who.title(),
                fields={"role": (roles or {}).get(who, "user")},
            )  # fmt: skip
            made += in_passages(NewRow(row, f"{session}{place}{text}".encode()), names)
        self.put(made)

    def put(self, rows: list[NewRow]) -> None:
        self.index.apply(rows)
        if not self.embeds:
            return
        waiting = self.index.pending(10_000)
        texts = [one.text for one in waiting]
        keys = [one.key for one in waiting]
        pieces: dict[bytes, Any] = {}
        if self.model.token_dimensions:
            vectors, said = self.model.embed_tokens(texts)
            pieces = {key: found.vectors for key, found in zip(keys, said, strict=True)}
        else:
            vectors = self.model.embed(texts)
        self.index.put_vectors(waiting, dict(zip(keys, vectors, strict=True)), pieces)


# ---------------------------------------------------------------- words the tests share


class Death(BaseException):
    """The process ends here."""


def die() -> None:
    raise Death


def happens(faults: Faults, when: Callable[[Call], bool], act: Callable[[], object]) -> None:
    """Let `act` happen once, right before the first write that `when` is true of; what was said before holds, too."""
    before, waiting = faults.schedule, [act]

    def schedule(call: Call) -> Fault | None:
        fault = before(call)
        if waiting and when(call):
            waiting.pop()()
        return fault

    faults.schedule = schedule


def is_episode(call: Call) -> bool:
    return "/episodes/" in call.key


def said(
    text: str, n: int = 0, *, who: str = "ann", role: str = "user", at: int = MAY_8, **fields: Any
) -> Message:
    """A message; `n` counts seconds from `at`."""
    return Message(who, role, at + n * 1000, text, **fields)  # type: ignore[arg-type]


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def from_tables(index: SqliteIndex, folder: Path, **options: Any) -> LargeIndex:
    """The same rows, asked of the tables of LanceDB, where each kind counts as too large to be looked at whole."""
    tables = LanceTables(folder / ".index", **options)
    tables.fold(index)
    tables.load(wait=True)
    return LargeIndex(index, tables, whole_rows=0)


def by_words(index: SearchIndex, scope: Scope, terms: Sequence[str], **ask: Any) -> list[int]:
    """The rowids that hold any of the terms and pass, best first."""
    found = index.legs(scope, Ask(terms=terms, **ask))
    return _best(found, found.bm25, found.bm25 > 0)


def by_meaning(index: SearchIndex, scope: Scope, vector: Any, **ask: Any) -> list[int]:
    """The rowids that pass, nearest first."""
    found = index.legs(scope, Ask(plain=vector, **ask))
    return _best(found, found.cosine, found.corpus.has_vector)


def _best(found: Found, scores: Any, fits: Any) -> list[int]:
    order = np.argsort(-scores, kind="stable")
    return [int(found.corpus.rowid[at]) for at in order if fits[at] and found.passing[at]]


def trajectory(
    task: str,
    *,
    agent: str = "ops_agent",
    steps: Sequence[tuple[str, Mapping[str, Any], str]],
    final: str,
    thanks: str = "",
    at: datetime = TALKED,
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
    failed = f"backup.service failed: exit code 2 on port {port}"
    return [
        ("shell", {"command": "systemctl status backup"}, failed),
        ("read_file", {"path": "/etc/backup.env"}, f"PGPORT={port}"),
        ("edit_file", {"path": "/etc/backup.env", "text": "PGPORT=5433"}, "saved"),
        ("shell", {"command": "systemctl start backup"}, "ok, exit code 0"),
    ]
