"""The strategies' job queue over any SQL database: queued jobs, run records, counters, schedules.

Statements name their values as `:name`; an engine says what its tables are called and which rows are its own. On SQLite they are
in `ome.db`, one file under the index directory, disposable at any moment. Anyone may enqueue; the holder of the
engine's lease claims. A file made anew says so (`is_new`) until the queue has been found again from the notes.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from cairn.engines.changes import Base, SqliteBase, Statements, plain
from cairn.engines.database import Database
from cairn.errors import Unavailable
from cairn.types import Job, JobRun, Queued, StrategyAsk

_CALLER_SECONDS = 1.0  # somebody waits for his answer; what cannot be queued is found again
_COUNT = """
INSERT INTO {counters} AS c ({own}strategy, key, value) VALUES ({me}:strategy, :key, :more)
ON CONFLICT ({own}strategy, key) DO UPDATE SET value = c.value + :more
"""
_LATER = """
UPDATE {runs} SET due_at = :later WHERE {mine} AND strategy = :strategy AND gate_key = :key AND attempts = 0
AND status IN ('held', 'pending')
"""
_OPEN = """
UPDATE {counters} SET value = 0, opened_at = :now WHERE {mine} AND strategy = :strategy AND value >= :threshold
AND (coalesce(opened_at, 0) = 0 OR opened_at + :cooldown <= :now OR opened_at > :now) RETURNING key
"""
_FREE = """
UPDATE {runs} SET status = 'pending', due_at = {least}(due_at, :now),
    attempts = CASE status WHEN 'dead' THEN 0 ELSE attempts END
WHERE {mine} AND strategy = :strategy AND status IN ('held', 'pending', :dead)
"""
_FINISH = "UPDATE {runs} SET status = :status, reason = :reason, outputs = :outputs, finished_at = :now"
_RETRY = "UPDATE {runs} SET status = 'pending', due_at = :due, reason = :reason, attempts = attempts - :back"
_ENDED = "{mine} AND status IN ('done', 'skipped')"
_PRUNE = f"""
DELETE FROM {{runs}} WHERE {_ENDED} AND (finished_at < :before OR id <= coalesce((
    SELECT id FROM {{runs}} WHERE {_ENDED} ORDER BY id DESC LIMIT 1 OFFSET :most), -1))
"""
_SCHEDULE = """
INSERT INTO {schedules} AS s ({own}strategy, cron, next_at, last_at) VALUES ({me}:strategy, :cron, :next, :last)
ON CONFLICT ({own}strategy) DO UPDATE SET cron = excluded.cron, next_at = excluded.next_at,
    last_at = coalesce(excluded.last_at, s.last_at)
"""
_SEEN = """
INSERT INTO {seen} ({own}session, size) VALUES ({me}:session, :size)
ON CONFLICT ({own}session) DO UPDATE SET size = excluded.size
"""
_DUE = """
SELECT 1 FROM {runs} WHERE {mine} AND status IN ('pending', 'running') AND strategy {among}
AND (status = 'running' OR due_at <= :now OR due_at > :far) LIMIT 1
"""
_RUNS = """
SELECT id, strategy, input, status, attempts, due_at, enqueued_at, started_at, finished_at, reason, outputs, payload
FROM {runs} WHERE {mine} AND :strategy IN ('', strategy) AND :status IN ('', status)
ORDER BY coalesce(finished_at, started_at, enqueued_at) DESC, id DESC LIMIT :limit
"""


class SqlJobs(ABC):
    """The queue of the strategies in a database. Synchronous, thread-safe, shared with other processes; see `Jobs`."""

    _ahead = 0.0
    """By how much the clock of who asks is ahead of the database's."""
    named_in: ClassVar[Sequence[tuple[str, str, str]]] = (
        ("{runs}", "id", "input, payload, gate_key, reason, outputs"),
        ("{counters}", "key", "key"),
        ("{seen}", "session", "session"),
    )
    """Where somebody may be named: the table, its key, and what is looked at."""

    def __init__(self, base: Base) -> None:
        self._base = base

    # -- what an engine gives

    @abstractmethod
    def _queue(self, base: Statements, queued: Sequence[Queued], now: float) -> list[tuple[str, str, float]]:
        """Keep the asks that are not known yet: strategy, key of the gate and due time of each."""

    @abstractmethod
    def _end(self, change: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Change jobs that are running, and as they were claimed here."""

    def _there(self, at: float) -> float:
        """A caller's time by the clock of the database."""
        return at - self._ahead

    def _here(self, at: float | None) -> float | None:
        return None if at is None else at + self._ahead

    # -- the queue

    def enqueue(self, queued: Sequence[Queued], *, now: float) -> int:
        def work(base: Statements) -> int:
            fresh = self._queue(base, queued, self._there(now))
            counted: dict[tuple[str, str], list[float]] = {}
            for strategy, key, due in fresh:
                counted.setdefault((strategy, key), []).append(due)
            for (strategy, key), times in sorted(counted.items()):
                named: dict[str, object] = {"strategy": strategy, "key": key}
                base.do(_COUNT, named | {"more": len(times)})
                if max(times) > self._there(now):
                    base.do(_LATER, named | {"later": max(times)})
            return len(fresh)

        return self._base.work(work, patience=_CALLER_SECONDS)

    def open_gates(self, strategy: str, threshold: int, cooldown: float, *, now: float) -> int:
        given: dict[str, object] = {"threshold": threshold, "cooldown": cooldown, "now": self._there(now)}

        def work(base: Statements) -> int:
            ready = base.ask(_OPEN, strategy=strategy, **given)
            free = "UPDATE {runs} SET status = 'pending' WHERE {mine} AND status = 'held' AND strategy = :strategy"
            rows = [{"strategy": strategy, "key": row[0]} for row in ready]
            return base.do(f"{free} AND gate_key = :key", *rows) if rows else 0

        return self._base.work(work)

    def free_held(self, strategy: str, *, dead_too: bool, now: float) -> int:
        dead = "dead" if dead_too else "held"
        return self._base.do(_FREE, strategy=strategy, now=self._there(now), dead=dead)

    def finish(self, ended: Iterable[tuple[int, str, str, Sequence[str]]], *, now: float) -> None:
        self._end(
            _FINISH,
            [
                {
                    "id": id,
                    "status": status,
                    "reason": plain(reason),
                    "outputs": json.dumps([*made]),
                    "now": self._there(now),
                }
                for id, status, reason, made in ended
            ],
        )

    def retry(self, failed: Iterable[tuple[int, str, float]], *, count: bool = True) -> None:
        back = 0 if count else 1
        rows = [(id, plain(reason), self._there(due)) for id, reason, due in failed]
        self._end(_RETRY, [{"id": id, "due": due, "reason": why, "back": back} for id, why, due in rows])

    def forget(self, names: Callable[[str], bool]) -> int:
        def work(base: Statements) -> int:
            dropped = 0
            for table, key, columns in self.named_in:
                rows = base.ask(f"SELECT {key}, {columns} FROM {table} WHERE {{mine}}")
                doomed = [{"key": row[0]} for row in rows if any(names(str(value)) for value in row[1:])]
                if doomed:
                    base.do(f"DELETE FROM {table} WHERE {{mine}} AND {key} = :key", *doomed)
                dropped += len(doomed)
            return dropped

        return self._base.work(work)

    def prune(self, before: float, most: int) -> int:
        return self._base.do(_PRUNE, before=self._there(before), most=most)

    # -- schedules and watermarks

    def schedules(self) -> dict[str, tuple[str, float, float | None]]:
        rows = self._base.ask("SELECT strategy, cron, next_at, last_at FROM {schedules} WHERE {mine}")
        return {name: (cron, due + self._ahead, self._here(last)) for name, cron, due, last in rows}

    def set_schedule(self, strategy: str, cron: str, next_at: float | None, last_at: float | None) -> None:
        if next_at is None:
            self._base.do("DELETE FROM {schedules} WHERE {mine} AND strategy = :strategy", strategy=strategy)
        else:
            last = None if last_at is None else self._there(last_at)
            self._base.do(_SCHEDULE, strategy=strategy, cron=cron, next=self._there(next_at), last=last)

    def seen(self) -> dict[str, int]:
        return dict(self._base.ask("SELECT session, size FROM {seen} WHERE {mine}"))

    def forget_seen(self) -> None:
        self._base.do("DELETE FROM {seen} WHERE {mine}")

    def set_seen(self, sizes: dict[str, int]) -> None:
        rows = [{"session": session, "size": size} for session, size in sorted(sizes.items())]
        if rows:
            self._base.work(lambda base: base.do(_SEEN, *rows))

    # -- looking

    def due(self, strategies: Sequence[str], *, now: float, far: float) -> bool:
        given: dict[str, object] = {"now": self._there(now), "far": self._there(far)}
        return bool(self._base.ask(_DUE, these=list(strategies), **given))

    def counts(self) -> dict[str, dict[str, int]]:
        out: dict[str, dict[str, int]] = {}
        query = "SELECT strategy, status, count(*) FROM {runs} WHERE {mine} GROUP BY 1, 2"
        for strategy, status, number in self._base.ask(query):
            out.setdefault(strategy, {})[status] = number
        return out

    def known(self, strategy: str, inputs: Collection[str]) -> set[str]:
        query = "SELECT input FROM {runs} WHERE {mine} AND strategy = :strategy AND input {among}"
        return {row[0] for row in self._base.ask(query, strategy=strategy, these=list(inputs))}

    def runs(self, *, strategy: str = "", status: str = "", limit: int = 50) -> list[JobRun]:
        found = []
        for row in self._base.ask(_RUNS, strategy=strategy, status=status, limit=limit):
            ask = StrategyAsk.of(row[1], row[2], json.loads(row[11]))
            told = (*row[:5], *map(self._here, row[5:9]), row[9], tuple(json.loads(row[10])), ask)
            found.append(JobRun(*told))
        return found


_SCHEMA = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    strategy TEXT NOT NULL, input TEXT NOT NULL, payload TEXT NOT NULL, gate_key TEXT NOT NULL DEFAULT '',
    status TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0,
    due_at REAL NOT NULL, enqueued_at REAL NOT NULL, started_at REAL, finished_at REAL,
    reason TEXT NOT NULL DEFAULT '', outputs TEXT NOT NULL DEFAULT '[]',
    UNIQUE (strategy, input)
);
CREATE INDEX runs_by_status ON runs (status, strategy, due_at);
CREATE TABLE counters (
    strategy TEXT NOT NULL, key TEXT NOT NULL, value INTEGER NOT NULL DEFAULT 0, opened_at REAL NOT NULL DEFAULT 0,
    PRIMARY KEY (strategy, key)
) WITHOUT ROWID;
CREATE TABLE schedules (strategy TEXT PRIMARY KEY, cron TEXT NOT NULL, next_at REAL NOT NULL, last_at REAL);
CREATE TABLE found_again (at REAL NOT NULL);
CREATE TABLE seen (session TEXT PRIMARY KEY, size INTEGER NOT NULL) WITHOUT ROWID;
"""


_NAMES = {
    "runs": "runs",
    "counters": "counters",
    "schedules": "schedules",
    "seen": "seen",
    "own": "",
    "me": "",
    "least": "min",
}
_QUEUE = (
    "INSERT INTO runs (strategy, input, payload, gate_key, status, due_at, enqueued_at)"
    " VALUES (:strategy, :input, :payload, :key, :status, :due, :now)"
    " ON CONFLICT (strategy, input) DO NOTHING RETURNING strategy, gate_key, due_at"
)


class SqliteJobs(SqlJobs):
    """The queue of the strategies in SQLite."""

    def __init__(self, directory: Path) -> None:
        self._database = Database(directory / "sqlite" / "ome.db", _SCHEMA, version=2)
        super().__init__(SqliteBase(self._database, _NAMES))

    def close(self) -> None:
        self._database.close()

    def _queue(self, base: Statements, queued: Sequence[Queued], now: float) -> list[tuple[str, str, float]]:
        return [
            row
            for one in queued
            for row in base.ask(
                _QUEUE,
                strategy=one.ask.strategy,
                input=one.ask.input,
                payload=json.dumps(one.ask.payload()),
                key=one.key,
                status="held" if one.held else "pending",
                due=one.due_at,
                now=now,
            )
        ]

    def _end(self, change: str, rows: Sequence[Mapping[str, object]]) -> None:
        self._base.work(lambda base: base.do(f"{change} WHERE id = :id AND status = 'running'", *rows))

    @property
    def is_new(self) -> bool:
        return not self._base.ask("SELECT 1 FROM found_again")

    def set_found(self, *, now: float) -> None:
        self._base.do(
            "INSERT INTO found_again SELECT :now WHERE NOT EXISTS (SELECT 1 FROM found_again)", now=now
        )

    def claim(self, strategies: Sequence[str], limit: int, *, now: float, far: float) -> list[Job]:
        def work(base: Statements) -> list[Job]:
            for strategy in strategies:
                rows = base.ask(
                    "SELECT id, input, payload, attempts FROM runs WHERE status = 'pending' AND strategy = :strategy"
                    " AND (due_at <= :now OR due_at > :far) ORDER BY id LIMIT :limit",
                    strategy=strategy,
                    now=now,
                    far=far,
                    limit=limit,
                )
                if rows:
                    base.do(
                        "UPDATE runs SET status = 'running', attempts = attempts + 1, started_at = :now WHERE id = :id",
                        *({"now": now, "id": row[0]} for row in rows),
                    )
                    return [
                        Job(r[0], StrategyAsk.of(strategy, r[1], json.loads(r[2])), r[3] + 1) for r in rows
                    ]
            return []

        return self._base.work(work)

    def forget(self, names: Callable[[str], bool]) -> int:
        """Drop every record that `names` says is about who is forgotten, and its bytes; how many.

        Raises:
            Unavailable: readers held on to the file, so that the bytes are still there.
        """
        dropped = super().forget(names)
        if not self._database.scrub():
            raise Unavailable(
                "the queue of the strategies is in use just now; forget again to remove the freed bytes",
            )
        return dropped

    def revive(self) -> int:
        return self._base.do("UPDATE runs SET status = 'pending', due_at = 0 WHERE status = 'running'")
