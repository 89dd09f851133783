"""The change queue in PostgreSQL: what `changes.SqliteState` keeps beside an index, kept in the database of all machines.

Each index has a queue of its own in there, since "done" says that the rows of this index have it; how far every machine is can
then be asked of one place. Whoever works on an index, in however many processes, claims with SKIP LOCKED, so that nobody waits
for what another has taken. Which queue is an index's own is said by a name in its folder: with the folder gone the queue is a
new one, and one that nobody has used for a week is dropped by the others.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from cairn.engines.changes import AGAIN, BUSY, FAILURES_TOLD, ChangeQueue, Statements
from cairn.engines.postgres import Postgres, PostgresBase
from cairn.errors import CairnError
from cairn.seams import Clock, Glance, Noticed

_NAME = "queue.id"
_MINE = "root = :root AND queue = :queue"
_NAMES = {
    "changes": "cairn_changes",
    "path": "path",
    "key": "root, queue, path",
    "mine": _MINE,
    "inside": "AND (cardinality(:within::text[]) = 0 OR path ^@ ANY(:within::text[]))",
    "free": "FOR UPDATE SKIP LOCKED",
    "among": "= ANY(:these)",
}
_NEXT_LSN = """
INSERT INTO cairn_queues AS q (root, queue, lsn, version) VALUES (:root, :queue, :known + :more, 1)
ON CONFLICT (root, queue) DO UPDATE SET lsn = greatest(q.lsn, :known) + :more, version = q.version + 1,
    used = clock_timestamp() RETURNING lsn
"""
_QUEUE = f"""
INSERT INTO cairn_changes AS c (root, queue, path, kind, change_type, mtime, last_changed_at, lsn, since, status)
SELECT :root, :queue, path, kind, change_type, mtime, :now, lsn, lsn, 'pending' FROM unnest(:paths::text[],
    :kinds::text[], :types::text[], :mtimes::float8[], :lsns::bigint[]) AS one(path, kind, change_type, mtime, lsn)
    ORDER BY path COLLATE "C" {AGAIN}
"""
_GLANCE = f"""
SELECT lsn, ready_for, (SELECT min(since) FROM cairn_changes WHERE {_MINE} AND {BUSY}),
    (SELECT count(*) FROM cairn_changes WHERE {_MINE} AND {BUSY} {{inside}}),
    (SELECT json_agg(json_build_array(path, coalesce(error, ''))) FROM (SELECT path, error FROM cairn_changes
        WHERE {_MINE} AND status = 'failed' {{inside}} ORDER BY path LIMIT :told) AS one)
FROM cairn_queues WHERE {_MINE}
"""
_READY = f"""
UPDATE cairn_queues q SET ready_for = :generation, version = version + 1 WHERE {_MINE} AND scan_of = :generation
AND NOT EXISTS (SELECT FROM cairn_changes c WHERE c.root = q.root AND c.queue = q.queue AND {BUSY} AND c.since <= q.scan_lsn)
"""
_DROP_OLD = """
WITH gone AS (DELETE FROM cairn_queues WHERE root = :root AND used < clock_timestamp() - interval '7 days' RETURNING queue)
DELETE FROM cairn_changes WHERE root = :root AND queue IN (SELECT queue FROM gone)
"""


class PostgresState(ChangeQueue):
    """The change queue of one index. Safe from many threads, processes and, though nobody needs it, machines.

    Args:
        database: Where it is.
        directory: The index directory, which has its name.
        clock: Time for the stamps and the retry pauses.
    """

    # In one order, so that two who end the same changes wait for each other in one direction.
    _holds = "SELECT FROM cairn_changes WHERE {mine} AND path {among} ORDER BY path FOR UPDATE"

    def __init__(self, database: Postgres, directory: Path, clock: Clock | None = None) -> None:
        super().__init__(PostgresBase(database, _NAMES, self._queue), clock)
        self._database, self._directory = database, directory

    def close(self) -> None:
        """The connections are their owner's."""

    def scrub(self) -> bool:
        """What was deleted leaves PostgreSQL's files with its own vacuum."""
        with suppress(CairnError), self._database.connection() as one:
            one.execute("VACUUM cairn_changes")
            return True
        return False

    def maintain(self) -> None:
        super().maintain()
        self._base.do(f"UPDATE cairn_queues SET used = clock_timestamp() WHERE {_MINE}")
        self._base.do(_DROP_OLD)

    # -- asking

    def _queue(self) -> dict[str, object]:
        """Which queue every question is about. Where the folder of the index went, its queue is a new one."""
        at = self._directory / _NAME
        while True:
            try:
                name = at.read_text(encoding="ascii")
                break
            except FileNotFoundError:
                self._directory.mkdir(parents=True, exist_ok=True)
                made = at.with_name(f"{_NAME}.{uuid.uuid4().hex}")
                made.write_text(uuid.uuid4().hex, encoding="ascii")
                with suppress(FileExistsError):
                    os.link(made, at)  # whole, and once, whoever else makes one
                made.unlink(missing_ok=True)
        return {"queue": name}

    def _inside(self, within: Sequence[str]) -> tuple[str, dict[str, object]]:
        return "{inside}", {"within": list(within)}

    def _when(self, at: datetime) -> object:
        return at.timestamp()

    # -- the queue

    def _put(self, changes: Sequence[Noticed]) -> int:
        latest = list({one.path: one for one in changes}.values())
        values: dict[str, object] = {
            "known": self._lsn,
            "more": len(latest),
            "now": self._clock.now().timestamp(),
            "paths": [one.path for one in latest],
            "kinds": [one.kind for one in latest],
            "types": [one.change_type for one in latest],
            "mtimes": [one.mtime for one in latest],
        }

        def put(base: Statements) -> int:
            [[last]] = base.ask(_NEXT_LSN, **values)
            base.do(_QUEUE, values | {"lsns": [*range(last - len(latest) + 1, last + 1)]})
            return int(last)

        return self._base.work(put)

    def retry_failed(self) -> int:
        count = super().retry_failed()
        if count:
            self._base.do(f"UPDATE cairn_queues SET version = version + 1 WHERE {_MINE}")
        return count

    # -- looking

    def _of_queue(self, column: str) -> Any:
        """What is noted of this queue; None while there is nothing."""
        rows = self._base.ask(f"SELECT {column} FROM cairn_queues WHERE {_MINE}")
        return rows[0][0] if rows else None

    def last_lsn(self) -> int:
        return int(self._of_queue("lsn") or 0)

    def data_version(self) -> tuple[int, int]:
        version, lsn = self._of_queue("ARRAY[version, lsn]") or (0, 0)
        return version, lsn

    def glance(self, within: Sequence[str] = ()) -> Glance:
        rows = self._base.ask(_GLANCE, within=list(within), told=FAILURES_TOLD)
        if not rows:
            return Glance(0, 0, "")
        lsn, ready_for, oldest, pending, failed = rows[0]
        return Glance(
            lsn if oldest is None else oldest - 1,
            pending,
            ready_for,
            tuple((path, why) for path, why in failed or ()),
        )

    # -- which index is complete

    def ready_for(self) -> str:
        return str(self._of_queue("ready_for") or "")

    def clear(self) -> str:
        query = f"UPDATE cairn_queues SET ready_for = '', scan_of = '', scan_lsn = 0 WHERE {_MINE} RETURNING birth"

        def wipe(base: Statements) -> str:
            base.ask(_NEXT_LSN, known=self._lsn, more=0)
            base.do(f"DELETE FROM cairn_changes WHERE {_MINE}", {})
            [[birth]] = base.ask(query)
            return str(birth)

        try:
            return self._base.work(wipe)
        finally:
            self._claimed()

    def note_scan(self, generation: str, lsn: int, *, queue: str) -> None:
        self._base.do(
            f"UPDATE cairn_queues SET scan_of = :generation, scan_lsn = :lsn WHERE {_MINE} AND birth = :birth",
            generation=generation,
            lsn=lsn,
            birth=queue,
        )

    def has_scan(self, generation: str) -> bool:
        return bool(generation) and self._of_queue("scan_of") == generation

    def set_ready(self, generation: str) -> bool:
        return bool(self._base.do(_READY, generation=generation))
