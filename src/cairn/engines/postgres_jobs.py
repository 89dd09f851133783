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
from collections.abc import Mapping, Sequence

from cairn.engines.changes import Statements
from cairn.engines.jobs import SqlJobs
from cairn.engines.postgres import Postgres, PostgresBase
from cairn.errors import CairnError
from cairn.seams import Clock
from cairn.types import Job, Queued, Scope, StrategyAsk

LEASE_SECONDS = 15.0
_NAMES = {
    "runs": "cairn_jobs",
    "counters": "cairn_counters",
    "schedules": "cairn_schedules",
    "seen": "cairn_seen",
    "own": "root, ",
    "me": ":root, ",
    "mine": "root = :root",
    "least": "least",
    "among": "= ANY(:these)",
}
_FOUND = "the jobs were found"
_DUE = "(j.due_at <= :now OR j.due_at > :far)"
_FREE = "(p.holder = :me OR p.until < clock_timestamp())"
_QUEUE = """
INSERT INTO cairn_jobs (root, strategy, input, part, payload, gate_key, status, due_at, enqueued_at)
SELECT :root, strategy, input, part, payload, gate_key, status, due_at, :now
FROM unnest(:strategies::text[], :inputs::text[], :parts::text[], :payloads::text[], :keys::text[],
    :statuses::text[], :due::float8[]) AS one(strategy, input, part, payload, gate_key, status, due_at)
ON CONFLICT (root, strategy, input) DO NOTHING RETURNING strategy, gate_key, due_at
"""
_TAKE_PARTS = f"""
WITH free AS (
    SELECT p.name FROM cairn_jobs j JOIN cairn_parts p ON p.root = j.root AND p.name = j.part
    WHERE j.root = :root AND j.strategy = :strategy AND j.status = 'pending' AND {_DUE} AND {_FREE}
    ORDER BY j.id LIMIT :limit FOR UPDATE OF p SKIP LOCKED)
UPDATE cairn_parts p SET holder = :me, fence = p.fence + 1, until = clock_timestamp() + :lease * interval '1 second'
WHERE p.root = :root AND p.name IN (SELECT name FROM free) RETURNING p.name
"""
_TAKE_JOBS = f"""
WITH due AS (
    SELECT j.id FROM cairn_jobs j WHERE j.root = :root AND j.strategy = :strategy AND j.status = 'pending'
    AND {_DUE} AND j.part = ANY(:parts) ORDER BY j.id LIMIT :limit)
UPDATE cairn_jobs j SET status = 'running', attempts = j.attempts + 1, started_at = :now, fence = p.fence
FROM cairn_parts p WHERE p.root = j.root AND p.name = j.part AND j.id IN (SELECT id FROM due)
RETURNING j.id, j.input, j.payload, j.attempts, j.part, j.fence
"""
_LET_ALL_GO = """
UPDATE cairn_parts p SET holder = '', until = '-infinity' WHERE p.root = :root AND p.holder = :me AND NOT EXISTS (
    SELECT FROM cairn_jobs j WHERE j.root = p.root AND j.part = p.name AND j.status = 'running')
"""
_LET_GO = _LET_ALL_GO + " AND p.name = ANY(:parts)"
_REVIVE = f"""
UPDATE cairn_jobs j SET status = 'pending', due_at = 0 FROM cairn_parts p
WHERE j.root = :root AND j.status = 'running' AND p.root = j.root AND p.name = j.part AND {_FREE}
"""


class PostgresJobs(SqlJobs):
    """`Jobs` for all machines of a root.

    Args:
        database: Where they are.
        clock: The time by which callers say what is due.
        lease_seconds: After how long without a sign of life a machine's claims are free.
    """

    named_in = (*SqlJobs.named_in, ("cairn_parts", "name", "name"))

    def __init__(self, database: Postgres, clock: Clock, *, lease_seconds: float = LEASE_SECONDS) -> None:
        me = uuid.uuid4().hex
        super().__init__(PostgresBase(database, _NAMES, lambda: {"me": me}))
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
        return not self._base.ask("SELECT FROM cairn_marks WHERE root = :root AND name = :name", name=_FOUND)

    def set_found(self, *, now: float) -> None:
        del now  # the database knows
        self._base.do(
            "INSERT INTO cairn_marks VALUES (:root, :name, clock_timestamp()) ON CONFLICT DO NOTHING",
            name=_FOUND,
        )

    # -- the queue

    def _queue(self, base: Statements, queued: Sequence[Queued], now: float) -> list[tuple[str, str, float]]:
        # In one order on every machine: two that queue the same work then wait for each other in one direction.
        items = sorted(queued, key=lambda one: (one.ask.strategy, one.ask.input))
        parts = [_part(one.ask.scope) for one in items]
        base.ask(
            "INSERT INTO cairn_parts SELECT DISTINCT :root, name FROM unnest(:parts::text[]) AS name"
            " ORDER BY name ON CONFLICT DO NOTHING RETURNING true",
            parts=parts,
        )
        return base.ask(
            _QUEUE,
            strategies=[one.ask.strategy for one in items],
            inputs=[one.ask.input for one in items],
            parts=parts,
            payloads=[json.dumps(one.ask.payload()) for one in items],
            keys=[one.key for one in items],
            statuses=["held" if one.held else "pending" for one in items],
            due=[self._there(one.due_at) for one in items],
            now=now,
        )

    def claim(self, strategies: Sequence[str], limit: int, *, now: float, far: float) -> list[Job]:
        given = {"limit": limit, "now": self._there(now), "far": self._there(far), "lease": self._lease}

        def work(base: Statements) -> list[Job]:
            for strategy in strategies:
                parts = [row[0] for row in base.ask(_TAKE_PARTS, strategy=strategy, **given)]
                if not parts:
                    continue
                # Whoever takes the partition has its jobs to himself: what another took just before is not taken again.
                rows = sorted(base.ask(_TAKE_JOBS, strategy=strategy, parts=parts, **given))
                base.do(_LET_GO, {"parts": parts})
                if rows:
                    with self._mutex:
                        self._claims.update((row[0], (row[4], row[5])) for row in rows)
                    return [
                        Job(row[0], StrategyAsk.of(strategy, row[1], json.loads(row[2])), row[3])
                        for row in rows
                    ]
            return []

        jobs = self._base.work(work)
        if jobs and self._living is None:
            self._living = threading.Thread(target=self._live, name="cairn-claims", daemon=True)
            self._living.start()
        return jobs

    def _live(self) -> None:
        """Renew the lease of what is claimed. What has lapsed stays so: another may have it."""
        while not self._ending.wait(self._lease / 3):
            try:
                self._base.do(
                    "UPDATE cairn_parts SET until = clock_timestamp() + :lease * interval '1 second'"
                    " WHERE root = :root AND holder = :me AND until >= clock_timestamp()",
                    lease=self._lease,
                )
            except CairnError:
                continue  # nothing can be claimed by anybody either

    def _end(self, change: str, rows: Sequence[Mapping[str, object]]) -> None:
        """Change jobs that are running under this machine's claim, and let go of what nothing runs in any more."""
        with self._mutex:
            claims = [self._claims.pop(int(str(row["id"])), ("", -1)) for row in rows]
        fenced = [{**row, "fence": fence} for row, (_, fence) in zip(rows, claims, strict=True)]
        parts = sorted({part for part, _ in claims})

        def work(base: Statements) -> None:
            base.ask(
                "SELECT FROM cairn_parts WHERE {mine} AND name = ANY(:parts) ORDER BY name FOR UPDATE",
                parts=parts,
            )
            base.do(
                f"{change} WHERE {{mine}} AND id = :id AND status = 'running' AND fence = :fence", *fenced
            )
            base.do(_LET_GO, {"parts": parts})

        if fenced:
            self._base.work(work)

    def revive(self) -> int:
        def work(base: Statements) -> int:
            back = base.do(_REVIVE, {})
            base.do(_LET_ALL_GO, {})
            return back

        return self._base.work(work)


def _part(scope: Scope) -> str:
    return f"{scope.space}/{scope.track}/{scope.owner}"
