"""The jobs of the strategies in PostgreSQL: one queue for all machines, claimed by partition.

A partition is an owner in a space. Whoever claims jobs takes their partitions with SKIP LOCKED, under a lease that it
renews while it lives, so an owner's work is done by one machine at a time and the work of all grows with machines. Each
claim has a number (the fence) that grows with the partition's claims: a machine that was stopped, lost its lease and goes
on ends nothing, since its number is no longer that of the job. Times are those of the database, whatever a machine's
clock says.
"""

from __future__ import annotations

import json
import threading
import uuid
from collections.abc import Callable, Collection, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.engines.postgres import Postgres
from cairn.errors import CairnError
from cairn.seams import Clock
from cairn.types import Job, JobRun, Queued, Scope, StrategyAsk

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
LEASE_SECONDS = 15.0
_FOUND = "the jobs were found"
_DUE = "(j.due_at <= %(now)s OR j.due_at > %(far)s)"
_FREE = "(p.holder = %(me)s OR p.until < clock_timestamp())"
_QUEUE = """
INSERT INTO cairn_jobs (root, strategy, input, part, payload, gate_key, status, due_at, enqueued_at)
SELECT %(root)s, strategy, input, part, payload, gate_key, status, due_at, %(now)s
FROM unnest(%(strategies)s::text[], %(inputs)s::text[], %(parts)s::text[], %(payloads)s::text[], %(keys)s::text[],
    %(statuses)s::text[], %(due)s::float8[]) AS one(strategy, input, part, payload, gate_key, status, due_at)
ON CONFLICT (root, strategy, input) DO NOTHING RETURNING strategy, gate_key, due_at
"""
_COUNT = """
INSERT INTO cairn_counters AS c (root, strategy, key, value) VALUES (%(root)s, %(strategy)s, %(key)s, %(more)s)
ON CONFLICT (root, strategy, key) DO UPDATE SET value = c.value + %(more)s
"""
_TAKE_PARTS = f"""
WITH free AS (
    SELECT p.name FROM cairn_jobs j JOIN cairn_parts p ON p.root = j.root AND p.name = j.part
    WHERE j.root = %(root)s AND j.strategy = %(strategy)s AND j.status = 'pending' AND {_DUE} AND {_FREE}
    ORDER BY j.id LIMIT %(limit)s FOR UPDATE OF p SKIP LOCKED)
UPDATE cairn_parts p SET holder = %(me)s, fence = p.fence + 1, until = clock_timestamp() + %(lease)s * interval '1 second'
WHERE p.root = %(root)s AND p.name IN (SELECT name FROM free) RETURNING p.name
"""
_TAKE_JOBS = f"""
WITH due AS (
    SELECT j.id FROM cairn_jobs j WHERE j.root = %(root)s AND j.strategy = %(strategy)s AND j.status = 'pending'
    AND {_DUE} AND j.part = ANY(%(parts)s) ORDER BY j.id LIMIT %(limit)s)
UPDATE cairn_jobs j SET status = 'running', attempts = j.attempts + 1, started_at = %(now)s, fence = p.fence
FROM cairn_parts p WHERE p.root = j.root AND p.name = j.part AND j.id IN (SELECT id FROM due)
RETURNING j.id, j.input, j.payload, j.attempts, j.part, j.fence
"""
_LET_ALL_GO = """
UPDATE cairn_parts p SET holder = '', until = '-infinity' WHERE p.root = %(root)s AND p.holder = %(me)s AND NOT EXISTS (
    SELECT FROM cairn_jobs j WHERE j.root = p.root AND j.part = p.name AND j.status = 'running')
"""
_LET_GO = _LET_ALL_GO + " AND p.name = ANY(%(parts)s)"
_REVIVE = f"""
UPDATE cairn_jobs j SET status = 'pending', due_at = 0 FROM cairn_parts p
WHERE j.root = %(root)s AND j.status = 'running' AND p.root = j.root AND p.name = j.part AND {_FREE}
"""


class PostgresJobs:
    """`Jobs` for all machines of a root.

    Args:
        database: Where they are.
        clock: The time by which callers say what is due.
        lease_seconds: After how long without a sign of life a machine's claims are free.
    """

    def __init__(self, database: Postgres, clock: Clock, *, lease_seconds: float = LEASE_SECONDS) -> None:
        self._database = database
        self._me = uuid.uuid4().hex
        self._lease = lease_seconds
        [[there]] = database.ask("SELECT extract(epoch FROM clock_timestamp())::float8")
        self._ahead: float = clock.now().timestamp() - there
        self._claims: dict[int, tuple[str, int]] = {}
        self._mutex = threading.Lock()
        self._ending = threading.Event()
        self._living: threading.Thread | None = None

    def close(self) -> None:
        self._ending.set()
        if self._living is not None:
            self._living.join()

    @property
    def is_new(self) -> bool:
        return not self._ask("SELECT FROM cairn_marks WHERE root = %(root)s AND name = %(name)s", name=_FOUND)

    def set_found(self, *, now: float) -> None:
        del now  # the database knows
        self._do(
            "INSERT INTO cairn_marks VALUES (%(root)s, %(name)s, clock_timestamp()) ON CONFLICT DO NOTHING",
            name=_FOUND,
        )

    # -- the queue

    def enqueue(self, queued: Sequence[Queued], *, now: float) -> int:
        # In one order on every machine: two that queue the same work then wait for each other in one direction.
        items = sorted(queued, key=lambda one: (one.ask.strategy, one.ask.input))
        given = {
            "strategies": [one.ask.strategy for one in items],
            "inputs": [one.ask.input for one in items],
            "parts": [_part(one.ask.scope) for one in items],
            "payloads": [json.dumps(one.ask.payload()) for one in items],
            "keys": [one.key for one in items],
            "statuses": ["held" if one.held else "pending" for one in items],
            "due": [self._there(one.due_at) for one in items],
        }

        def work(one: Connection[Any], values: dict[str, object]) -> int:
            one.execute(
                "INSERT INTO cairn_parts SELECT DISTINCT %(root)s, name FROM unnest(%(parts)s::text[]) AS name"
                " ORDER BY name ON CONFLICT DO NOTHING",
                values,
            )
            fresh = one.execute(_QUEUE, values).fetchall()
            counted: dict[tuple[str, str], list[float]] = {}
            for strategy, key, due in fresh:
                counted.setdefault((strategy, key), []).append(due)
            for (strategy, key), due in sorted(counted.items()):
                named = values | {"strategy": strategy, "key": key, "more": len(due), "later": max(due)}
                one.execute(_COUNT, named)
                if max(due) > self._there(now):
                    one.execute(
                        "UPDATE cairn_jobs SET due_at = %(later)s WHERE root = %(root)s AND strategy = %(strategy)s"
                        " AND gate_key = %(key)s AND attempts = 0 AND status IN ('held', 'pending')",
                        named,
                    )
            return len(fresh)

        return self._work(work, now=self._there(now), **given)

    def open_gates(self, strategy: str, threshold: int, cooldown: float, *, now: float) -> int:
        def work(one: Connection[Any], values: dict[str, object]) -> int:
            ready = one.execute(
                "UPDATE cairn_counters SET value = 0, opened_at = %(now)s WHERE root = %(root)s AND strategy = %(strategy)s"
                " AND value >= %(threshold)s AND (opened_at IS NULL OR opened_at + %(cooldown)s <= %(now)s"
                " OR opened_at > %(now)s) RETURNING key",
                values,
            ).fetchall()
            return one.execute(
                "UPDATE cairn_jobs SET status = 'pending' WHERE root = %(root)s AND status = 'held'"
                " AND strategy = %(strategy)s AND gate_key = ANY(%(keys)s)",
                values | {"keys": [row[0] for row in ready]},
            ).rowcount

        return self._work(
            work, strategy=strategy, threshold=threshold, cooldown=cooldown, now=self._there(now)
        )

    def free_held(self, strategy: str, *, dead_too: bool, now: float) -> int:
        return self._do(
            "UPDATE cairn_jobs SET status = 'pending', due_at = least(due_at, %(now)s),"
            " attempts = CASE status WHEN 'dead' THEN 0 ELSE attempts END"
            " WHERE root = %(root)s AND strategy = %(strategy)s AND status = ANY(%(which)s)",
            strategy=strategy,
            now=self._there(now),
            which=["held", "pending", *(["dead"] if dead_too else [])],
        )

    def claim(self, strategies: Sequence[str], limit: int, *, now: float, far: float) -> list[Job]:
        def work(one: Connection[Any], values: dict[str, object]) -> list[Job]:
            for strategy in strategies:
                named = values | {"strategy": strategy}
                parts = [row[0] for row in one.execute(_TAKE_PARTS, named).fetchall()]
                if not parts:
                    continue
                # Whoever takes the partition has its jobs to himself: what another took just before is not taken again.
                rows = sorted(one.execute(_TAKE_JOBS, named | {"parts": parts}).fetchall())
                one.execute(_LET_GO, named | {"parts": parts})
                if rows:
                    with self._mutex:
                        self._claims.update((row[0], (row[4], row[5])) for row in rows)
                    return [
                        Job(row[0], StrategyAsk.of(strategy, row[1], json.loads(row[2])), row[3])
                        for row in rows
                    ]
            return []

        jobs = self._work(work, limit=limit, now=self._there(now), far=self._there(far), lease=self._lease)
        if jobs and self._living is None:
            self._living = threading.Thread(target=self._live, name="cairn-claims", daemon=True)
            self._living.start()
        return jobs

    def _live(self) -> None:
        """Renew the lease of what is claimed. What has lapsed stays so: another may have it."""
        while not self._ending.wait(self._lease / 3):
            try:
                self._do(
                    "UPDATE cairn_parts SET until = clock_timestamp() + %(lease)s * interval '1 second'"
                    " WHERE root = %(root)s AND holder = %(me)s AND until >= clock_timestamp()",
                    lease=self._lease,
                )
            except CairnError:
                continue  # nothing can be claimed by anybody either

    def finish(self, ended: Iterable[tuple[int, str, str, Sequence[str]]], *, now: float) -> None:
        self._end(
            "UPDATE cairn_jobs SET status = %(status)s, reason = %(reason)s, outputs = %(outputs)s, finished_at = %(now)s",
            [
                {
                    "id": job_id,
                    "status": status,
                    "reason": _plain(reason),
                    "outputs": json.dumps(list(outputs)),
                    "now": self._there(now),
                }
                for job_id, status, reason, outputs in ended
            ],
        )

    def retry(self, failed: Iterable[tuple[int, str, float]], *, count: bool = True) -> None:
        self._end(
            "UPDATE cairn_jobs SET status = 'pending', due_at = %(due)s, reason = %(reason)s, attempts = attempts - %(back)s",
            [
                {"id": job_id, "due": self._there(due), "reason": _plain(reason), "back": 0 if count else 1}
                for job_id, reason, due in failed
            ],
        )

    def _end(self, change: str, rows: Sequence[dict[str, object]]) -> None:
        """Change jobs that are running under this machine's claim, and let go of what nothing runs in any more."""
        with self._mutex:
            claims = [self._claims.pop(int(str(row["id"])), ("", -1)) for row in rows]
        fenced = [row | {"fence": fence} for row, (_, fence) in zip(rows, claims, strict=True)]

        def work(one: Connection[Any], values: dict[str, object]) -> None:
            one.execute(
                "SELECT FROM cairn_parts WHERE root = %(root)s AND name = ANY(%(parts)s) ORDER BY name FOR UPDATE",
                values,
            )
            one.cursor().executemany(
                f"{change} WHERE root = %(root)s AND id = %(id)s AND status = 'running' AND fence = %(fence)s",
                [values | row for row in fenced],
            )
            one.execute(_LET_GO, values)

        if fenced:
            self._work(work, parts=sorted({part for part, _ in claims}))

    def forget(self, names: Callable[[str], bool]) -> int:
        def work(one: Connection[Any], values: dict[str, object]) -> int:
            dropped = 0
            for table, key, columns in (
                ("cairn_jobs", "id", "input, payload, gate_key, reason, outputs"),
                ("cairn_counters", "key", "key"),
                ("cairn_seen", "session", "session"),
                ("cairn_parts", "name", "name"),
            ):
                rows = one.execute(
                    f"SELECT {key}, {columns} FROM {table} WHERE root = %(root)s", values
                ).fetchall()
                doomed = [row[0] for row in rows if any(names(str(value)) for value in row[1:])]
                one.execute(
                    f"DELETE FROM {table} WHERE root = %(root)s AND {key} = ANY(%(doomed)s)",
                    values | {"doomed": doomed},
                )
                dropped += len(doomed)
            return dropped

        return self._work(work)

    def revive(self) -> int:
        def work(one: Connection[Any], values: dict[str, object]) -> int:
            back = one.execute(_REVIVE, values).rowcount
            one.execute(_LET_ALL_GO, values)
            return back

        return self._work(work)

    def prune(self, before: float, most: int) -> int:
        ended = "root = %(root)s AND status IN ('done', 'skipped')"
        later = f"SELECT id FROM cairn_jobs WHERE {ended} ORDER BY id DESC LIMIT 1 OFFSET %(most)s"
        return self._do(
            f"DELETE FROM cairn_jobs WHERE {ended} AND (finished_at < %(before)s OR id <= coalesce(({later}), -1))",
            before=self._there(before),
            most=most,
        )

    # -- schedules and watermarks

    def schedule(self, strategy: str) -> tuple[str, float, float | None] | None:
        rows = self._ask(
            "SELECT cron, next_at, last_at FROM cairn_schedules WHERE root = %(root)s AND strategy = %(strategy)s",
            strategy=strategy,
        )
        return (rows[0][0], rows[0][1] + self._ahead, self._here(rows[0][2])) if rows else None

    def set_schedule(self, strategy: str, cron: str, next_at: float | None, last_at: float | None) -> None:
        if next_at is None:
            self._do(
                "DELETE FROM cairn_schedules WHERE root = %(root)s AND strategy = %(strategy)s",
                strategy=strategy,
            )
            return
        self._do(
            "INSERT INTO cairn_schedules AS s VALUES (%(root)s, %(strategy)s, %(cron)s, %(next)s, %(last)s::float8)"
            " ON CONFLICT (root, strategy) DO UPDATE SET cron = excluded.cron, next_at = excluded.next_at,"
            " last_at = coalesce(excluded.last_at, s.last_at)",
            strategy=strategy,
            cron=cron,
            next=self._there(next_at),
            last=None if last_at is None else self._there(last_at),
        )

    def seen(self) -> dict[str, int]:
        return dict(self._ask("SELECT session, size FROM cairn_seen WHERE root = %(root)s"))

    def forget_seen(self) -> None:
        self._do("DELETE FROM cairn_seen WHERE root = %(root)s")

    def set_seen(self, sizes: dict[str, int]) -> None:
        self._do(
            "INSERT INTO cairn_seen SELECT %(root)s, session, size FROM"
            " unnest(%(sessions)s::text[], %(sizes)s::bigint[]) AS one(session, size) ORDER BY session"
            " ON CONFLICT (root, session) DO UPDATE SET size = excluded.size",
            sessions=list(sizes),
            sizes=list(sizes.values()),
        )

    # -- looking

    def due(self, strategies: Sequence[str], *, now: float, far: float) -> bool:
        return bool(
            self._ask(
                "SELECT FROM cairn_jobs j WHERE root = %(root)s AND strategy = ANY(%(strategies)s)"
                f" AND (status = 'running' OR (status = 'pending' AND {_DUE})) LIMIT 1",
                strategies=list(strategies),
                now=self._there(now),
                far=self._there(far),
            )
        )

    def counts(self) -> dict[str, dict[str, int]]:
        out: dict[str, dict[str, int]] = {}
        for strategy, status, number in self._ask(
            "SELECT strategy, status, count(*) FROM cairn_jobs WHERE root = %(root)s GROUP BY 1, 2"
        ):
            out.setdefault(strategy, {})[status] = number
        return out

    def known(self, strategy: str, inputs: Collection[str]) -> set[str]:
        return {
            row[0]
            for row in self._ask(
                "SELECT input FROM cairn_jobs WHERE root = %(root)s AND strategy = %(strategy)s AND input = ANY(%(inputs)s)",
                strategy=strategy,
                inputs=list(inputs),
            )
        }

    def runs(self, *, strategy: str = "", status: str = "", limit: int = 50) -> list[JobRun]:
        rows = self._ask(
            "SELECT id, strategy, input, status, attempts, due_at, enqueued_at, started_at, finished_at, reason, outputs,"
            " payload FROM cairn_jobs WHERE root = %(root)s AND %(strategy)s IN ('', strategy)"
            " AND %(status)s IN ('', status) ORDER BY coalesce(finished_at, started_at, enqueued_at) DESC, id DESC"
            " LIMIT %(limit)s",
            strategy=strategy,
            status=status,
            limit=limit,
        )
        return [
            JobRun(
                id=row[0],
                strategy=row[1],
                input=row[2],
                status=row[3],
                attempts=row[4],
                due_at=row[5] + self._ahead,
                enqueued_at=row[6] + self._ahead,
                started_at=self._here(row[7]),
                finished_at=self._here(row[8]),
                reason=row[9],
                outputs=tuple(json.loads(row[10])),
                ask=StrategyAsk.of(row[1], row[2], json.loads(row[11])),
            )
            for row in rows
        ]

    # -- asking

    def _there(self, at: float) -> float:
        """A caller's time by the clock of the database."""
        return at - self._ahead

    def _here(self, at: float | None) -> float | None:
        return None if at is None else at + self._ahead

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        return self._database.ask(query, me=self._me, **values)

    def _do(self, query: str, **values: object) -> int:
        return self._work(lambda one, named: one.execute(query, named).rowcount, **values)

    def _work(self, work: Callable[[Connection[Any], dict[str, object]], T], **values: object) -> T:
        """All of `work` in one transaction, with the values every question has."""
        named = {"root": self._database.root, "me": self._me, **values}
        with self._database.connection() as one, one.transaction():
            return work(one, named)


def _part(scope: Scope) -> str:
    return f"{scope.space.app}/{scope.space.project}/{scope.track}/{scope.owner}"


def _plain(text: str) -> str:
    """PostgreSQL takes no NUL."""
    return text.replace("\0", " ")
