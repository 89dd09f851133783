"""`ome.db`: the jobs of the strategies: what is queued, what ran, what is counted, what is scheduled.

One SQLite file under the index directory, disposable at any moment. Anyone may enqueue; the holder of the
engine's lease claims. A file made anew says so (`is_new`) until the queue has been found again from the notes.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from cairn.engines.database import Database
from cairn.errors import Unavailable
from cairn.types import Job, JobRun, Queued, StrategyAsk

T = TypeVar("T")
_CALLER_SECONDS = 1.0  # somebody waits for his answer; what cannot be queued is found again

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


class SqliteJobs:
    """The queue of the strategies in SQLite. Synchronous, thread-safe, shared with other processes."""

    def __init__(self, directory: Path) -> None:
        self._database = Database(directory / "sqlite" / "ome.db", _SCHEMA, version=2)

    def close(self) -> None:
        self._database.close()

    @property
    def is_new(self) -> bool:
        """Whether this file was made since the queue was last found in the notes, by whatever process."""
        return not self._read("SELECT 1 FROM found_again")

    def set_found(self, *, now: float) -> None:
        """The queue has been found again from the notes: `is_new` is over."""
        self._database.write(
            lambda db: db.execute(
                "INSERT INTO found_again SELECT ? WHERE NOT EXISTS (SELECT 1 FROM found_again)", (now,)
            )
        )

    # -- the queue

    def enqueue(self, queued: Sequence[Queued], *, now: float) -> int:
        """Queue the asks that are not known yet, count them, and return how many were new."""

        def work(db: sqlite3.Connection) -> int:
            fresh = 0
            for item in queued:
                ask = item.ask
                done = db.execute(
                    "INSERT OR IGNORE INTO runs (strategy, input, payload, gate_key, status, due_at, enqueued_at)"
                    " VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (
                        ask.strategy,
                        ask.input,
                        json.dumps(ask.payload()),
                        item.key,
                        "held" if item.held else "pending",
                        item.due_at,
                        now,
                    ),
                )
                if not done.rowcount:
                    continue
                fresh += 1
                db.execute(
                    "INSERT INTO counters (strategy, key, value) VALUES (?, ?, 1)"
                    " ON CONFLICT (strategy, key) DO UPDATE SET value = value + 1",
                    (ask.strategy, item.key),
                )
                if item.due_at > now:
                    db.execute(
                        "UPDATE runs SET due_at = ? WHERE strategy = ? AND gate_key = ? AND attempts = 0"
                        " AND status IN ('held', 'pending')",
                        (item.due_at, ask.strategy, item.key),
                    )
            return fresh

        return self._database.write(work, patience=_CALLER_SECONDS)

    def open_gates(self, strategy: str, threshold: int, cooldown: float, *, now: float) -> int:
        """Let the held jobs of `strategy` go whose key has counted `threshold` events and is past its cooldown."""

        def work(db: sqlite3.Connection) -> int:
            ready = db.execute(
                "SELECT key FROM counters WHERE strategy = ? AND value >= ?"
                " AND (opened_at = 0 OR opened_at + ? <= ? OR opened_at > ?)",
                (strategy, threshold, cooldown, now, now),
            ).fetchall()
            freed = 0
            for (key,) in ready:
                freed += db.execute(
                    "UPDATE runs SET status = 'pending' WHERE status = 'held' AND strategy = ? AND gate_key = ?",
                    (strategy, key),
                ).rowcount
                db.execute(
                    "UPDATE counters SET value = 0, opened_at = ? WHERE strategy = ? AND key = ?",
                    (now, strategy, key),
                )
            return freed

        return self._database.write(work)

    def free_held(self, strategy: str, *, dead_too: bool, now: float) -> int:
        """Make the held jobs of `strategy` pending and due, and its dead ones too if wanted."""
        which = "('held', 'pending', 'dead')" if dead_too else "('held', 'pending')"
        return self._database.write(
            lambda db: (
                db.execute(
                    f"UPDATE runs SET status = 'pending', due_at = min(due_at, ?),"
                    f" attempts = CASE status WHEN 'dead' THEN 0 ELSE attempts END"
                    f" WHERE strategy = ? AND status IN {which}",
                    (now, strategy),
                ).rowcount
            )
        )

    def claim(self, strategies: Sequence[str], limit: int, *, now: float, far: float) -> list[Job]:
        """Take up to `limit` due jobs of one strategy and mark them running.

        Args:
            strategies: In order of preference; the first with due work is served.
            limit: The most jobs to take.
            now: Due means `due_at <= now`.
            far: A due time later than this cannot come from a backoff, so the clock was set back: also due.
        """

        def work(db: sqlite3.Connection) -> list[Job]:
            for strategy in strategies:
                rows = db.execute(
                    "SELECT id, input, payload, attempts FROM runs WHERE status = 'pending' AND strategy = ?"
                    " AND (due_at <= ? OR due_at > ?) ORDER BY id LIMIT ?",
                    (strategy, now, far, limit),
                ).fetchall()
                if rows:
                    db.executemany(
                        "UPDATE runs SET status = 'running', attempts = attempts + 1, started_at = ? WHERE id = ?",
                        [(now, row[0]) for row in rows],
                    )
                    return [
                        Job(r[0], StrategyAsk.of(strategy, r[1], json.loads(r[2])), r[3] + 1) for r in rows
                    ]
            return []

        return self._database.write(work)

    def finish(self, ended: Iterable[tuple[int, str, str, Sequence[str]]], *, now: float) -> None:
        """Record (job id, status, reason, outputs) for jobs that are still running."""
        rows = [
            (status, reason, json.dumps(list(outputs)), now, job_id)
            for job_id, status, reason, outputs in ended
        ]

        def work(db: sqlite3.Connection) -> None:
            db.executemany(
                "UPDATE runs SET status = ?, reason = ?, outputs = ?, finished_at = ?"
                " WHERE id = ? AND status = 'running'",
                rows,
            )

        self._database.write(work)

    def retry(self, failed: Iterable[tuple[int, str, float]], *, count: bool = True) -> None:
        """Put running jobs back: (job id, reason, due at). `count=False` takes the attempt back as well."""
        rows = [(due, reason, 0 if count else 1, job_id) for job_id, reason, due in failed]
        self._database.write(
            lambda db: db.executemany(
                "UPDATE runs SET status = 'pending', due_at = ?, reason = ?, attempts = attempts - ?"
                " WHERE id = ? AND status = 'running'",
                rows,
            )
        )

    def forget(self, names: Callable[[str], bool]) -> int:
        """Drop every record that `names` says is about who is forgotten, and its bytes; how many.

        Raises:
            Unavailable: readers held on to the file, so that the bytes are still there.
        """

        def work(db: sqlite3.Connection) -> int:
            dropped = 0
            for table, columns in (
                ("runs", "input, payload, gate_key, reason, outputs"),
                ("counters", "key"),
                ("seen", "session"),
            ):
                key = "id" if table == "runs" else columns
                rows = db.execute(f"SELECT {key}, {columns} FROM {table}").fetchall()
                doomed = [(row[0],) for row in rows if any(names(str(value)) for value in row[1:])]
                db.executemany(f"DELETE FROM {table} WHERE {key} = ?", doomed)
                dropped += len(doomed)
            return dropped

        dropped = self._database.write(work)
        if not self._database.scrub():
            raise Unavailable(
                "the queue of the strategies is in use just now; forget again to remove the freed bytes"
            )
        return dropped

    def revive(self) -> int:
        """Return every `running` job to the queue. For the lease holder at start: its predecessor is dead."""
        return self._database.write(
            lambda db: (
                db.execute("UPDATE runs SET status = 'pending', due_at = 0 WHERE status = 'running'").rowcount
            )
        )

    def prune(self, before: float, most: int) -> int:
        """Drop records of runs that ended before `before`, and all but the latest `most`; the journal knows of them."""
        ended = "status IN ('done', 'skipped')"
        later = f"SELECT id FROM runs WHERE {ended} ORDER BY id DESC LIMIT 1 OFFSET ?"
        return self._database.write(
            lambda db: (
                db.execute(
                    f"DELETE FROM runs WHERE {ended} AND (finished_at < ? OR id <= coalesce(({later}), -1))",
                    (before, most),
                ).rowcount
            )
        )

    # -- schedules and watermarks

    def schedule(self, strategy: str) -> tuple[str, float, float | None] | None:
        """(cron, next time, last time) of a strategy, if it has one."""
        rows = self._read("SELECT cron, next_at, last_at FROM schedules WHERE strategy = ?", (strategy,))
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None

    def set_schedule(self, strategy: str, cron: str, next_at: float | None, last_at: float | None) -> None:
        """Remember when a strategy is due; no time removes it."""

        def work(db: sqlite3.Connection) -> None:
            if next_at is None:
                db.execute("DELETE FROM schedules WHERE strategy = ?", (strategy,))
            else:
                db.execute(
                    "INSERT INTO schedules (strategy, cron, next_at, last_at) VALUES (?, ?, ?, ?)"
                    " ON CONFLICT (strategy) DO UPDATE SET cron = excluded.cron, next_at = excluded.next_at,"
                    " last_at = coalesce(excluded.last_at, last_at)",
                    (strategy, cron, next_at, last_at),
                )

        self._database.write(work)

    def seen(self) -> dict[str, int]:
        """How long each session log was when its cells were last looked at."""
        return dict(self._read("SELECT session, size FROM seen"))

    def forget_seen(self) -> None:
        """Let every session log be looked at again."""
        self._database.write(lambda db: db.execute("DELETE FROM seen"))

    def set_seen(self, sizes: dict[str, int]) -> None:
        self._database.write(
            lambda db: db.executemany("INSERT OR REPLACE INTO seen VALUES (?, ?)", list(sizes.items()))
        )

    # -- looking

    def due(self, strategies: Sequence[str], *, now: float, far: float) -> bool:
        """Whether any of `strategies` has work to claim, or work that somebody claimed, alive or dead."""
        marks = ", ".join("?" * len(strategies))
        return bool(
            self._read(
                f"SELECT 1 FROM runs WHERE status IN ('pending', 'running') AND strategy IN ({marks})"
                " AND (status = 'running' OR due_at <= ? OR due_at > ?) LIMIT 1",
                (*strategies, now, far),
            )
        )

    def counts(self) -> dict[str, dict[str, int]]:
        """How many jobs each strategy has in each status."""
        out: dict[str, dict[str, int]] = {}
        for strategy, status, number in self._read(
            "SELECT strategy, status, count(*) FROM runs GROUP BY 1, 2"
        ):
            out.setdefault(strategy, {})[status] = number
        return out

    def known(self, strategy: str, inputs: Collection[str]) -> set[str]:
        """Those of `inputs` that have a record for `strategy`."""
        query = "SELECT input FROM runs WHERE strategy = ? AND input IN (SELECT value FROM json_each(?))"
        return {row[0] for row in self._read(query, (strategy, json.dumps(list(inputs))))}

    def runs(self, *, strategy: str = "", status: str = "", limit: int = 50) -> list[JobRun]:
        """Run records, newest first."""
        rows = self._read(
            "SELECT id, strategy, input, status, attempts, due_at, enqueued_at, started_at, finished_at, reason,"
            " outputs, payload FROM runs WHERE (? = '' OR strategy = ?) AND (? = '' OR status = ?)"
            " ORDER BY coalesce(finished_at, started_at, enqueued_at) DESC, id DESC LIMIT ?",
            (strategy, strategy, status, status, limit),
        )
        return [
            JobRun(
                *row,
                outputs=tuple(json.loads(outputs)),
                ask=StrategyAsk.of(row[1], row[2], json.loads(payload)),
            )  # type: ignore[misc]
            for *row, outputs, payload in rows
        ]

    def _read(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        return self._database.read(lambda db: db.execute(sql, values).fetchall())
