"""The change queue in PostgreSQL: what `sqlite.SqliteState` keeps beside an index, kept in the database of all machines.

Each index has a queue of its own in there, since "done" says that the rows of this index have it; how far every machine is can
then be asked of one place. Whoever works on an index, in however many processes, claims with SKIP LOCKED, so that nobody waits
for what another has taken. Which queue is an index's own is said by a name in its folder: with the folder gone the queue is a
new one, and one that nobody has used for a week is dropped by the others.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.engines.changes import ChangeQueue
from cairn.engines.postgres import Postgres
from cairn.engines.sqlite import FAILURES_TOLD, TOMBSTONES_KEPT, TOMBSTONES_KEPT_FOR, failed_as
from cairn.errors import CairnError
from cairn.seams import Clock, Glance, Known, Noticed, QueueCounts, SystemClock
from cairn.types import Change

if TYPE_CHECKING:
    from psycopg import Connection

T = TypeVar("T")
_NAME = "queue.id"
_MINE = "root = %(root)s AND queue = %(queue)s"
_INSIDE = "(cardinality(%(within)s::text[]) = 0 OR path ^@ ANY(%(within)s::text[]))"
_BUSY = "status IN ('pending', 'processing')"
_NEXT_LSN = """
INSERT INTO cairn_queues AS q (root, queue, lsn, version) VALUES (%(root)s, %(queue)s, %(known)s + %(more)s, 1)
ON CONFLICT (root, queue) DO UPDATE SET lsn = greatest(q.lsn, %(known)s) + %(more)s, version = q.version + 1,
    used = clock_timestamp() RETURNING lsn
"""
_QUEUE = """
INSERT INTO cairn_changes AS c (root, queue, path, kind, change_type, mtime, last_changed_at, lsn, since, status)
SELECT %(root)s, %(queue)s, path, kind, change_type, mtime, %(now)s, lsn, lsn, 'pending' FROM unnest(%(paths)s::text[],
    %(kinds)s::text[], %(types)s::text[], %(mtimes)s::float8[], %(lsns)s::bigint[]) AS one(path, kind, change_type, mtime, lsn)
    ORDER BY path COLLATE "C"
ON CONFLICT (root, queue, path) DO UPDATE SET
    since = CASE WHEN c.status IN ('pending', 'processing') THEN c.since ELSE excluded.lsn END,
    later = CASE WHEN c.claimed IS NOT NULL THEN coalesce(c.later, excluded.lsn) END,
    kind = excluded.kind, change_type = excluded.change_type, mtime = excluded.mtime,
    last_changed_at = excluded.last_changed_at, lsn = excluded.lsn, status = 'pending', retryable = true, unread = false,
    retry_count = 0, error = NULL, not_before = 0, holder = NULL
"""
_CLAIM = f"""
WITH due AS (
    SELECT path FROM cairn_changes WHERE {_MINE} AND (status = 'pending' OR (status = 'failed' AND unread AND retryable))
    AND not_before <= %(now)s AND {_INSIDE} ORDER BY lsn LIMIT %(limit)s FOR UPDATE SKIP LOCKED)
UPDATE cairn_changes c SET status = 'processing', holder = %(holder)s, last_attempt_at = %(told)s, claimed = lsn, later = NULL
FROM due WHERE {_MINE} AND c.path = due.path RETURNING c.path, c.kind, c.change_type, c.lsn, c.retry_count
"""
_HOLD = f"SELECT FROM cairn_changes WHERE {_MINE} AND path = ANY(%(paths)s) ORDER BY path FOR UPDATE"
_DONE = f"""
UPDATE cairn_changes c SET status = 'done', holder = NULL, error = one.remark, retry_count = 0, unread = false, claimed = NULL,
    change_type = one.change_type, mtime = one.mtime, size = one.size, seen_at = %(now)s
FROM unnest(%(paths)s::text[], %(lsns)s::bigint[], %(types)s::text[], %(mtimes)s::float8[], %(sizes)s::bigint[],
    %(remarks)s::text[]) AS one(path, lsn, change_type, mtime, size, remark)
WHERE {_MINE} AND c.path = one.path AND c.lsn = one.lsn AND status = 'processing' AND holder = %(holder)s
"""
_COVERED = f"""
UPDATE cairn_changes c SET since = later, later = NULL, claimed = NULL
FROM unnest(%(paths)s::text[], %(lsns)s::bigint[]) AS one(path, lsn)
WHERE {_MINE} AND c.path = one.path AND claimed = one.lsn AND status = 'pending' AND later IS NOT NULL
"""
_FAIL = f"""
UPDATE cairn_changes SET status = %(status)s, retryable = %(retryable)s, unread = %(unread)s, retry_count = %(attempts)s,
    error = %(reason)s, not_before = %(again)s, holder = NULL, claimed = NULL, mtime = coalesce(%(mtime)s, mtime),
    size = coalesce(%(size)s, size), seen_at = %(now)s
WHERE {_MINE} AND path = %(path)s AND lsn = %(lsn)s AND status = 'processing' AND holder = %(holder)s
"""
_GLANCE = f"""
SELECT lsn, ready_for, (SELECT min(since) FROM cairn_changes WHERE {_MINE} AND {_BUSY}),
    (SELECT count(*) FROM cairn_changes WHERE {_MINE} AND {_BUSY} AND {_INSIDE}),
    (SELECT json_agg(json_build_array(path, coalesce(error, ''))) FROM (SELECT path, error FROM cairn_changes
        WHERE {_MINE} AND status = 'failed' AND {_INSIDE} ORDER BY path LIMIT %(told)s) AS one)
FROM cairn_queues WHERE {_MINE}
"""
_READY = f"""
UPDATE cairn_queues q SET ready_for = %(generation)s, version = version + 1 WHERE {_MINE} AND scan_of = %(generation)s
AND NOT EXISTS (SELECT FROM cairn_changes c WHERE c.root = q.root AND c.queue = q.queue AND {_BUSY} AND c.since <= q.scan_lsn)
"""
_DROP_OLD = """
WITH gone AS (DELETE FROM cairn_queues WHERE root = %(root)s AND used < clock_timestamp() - interval '7 days' RETURNING queue)
DELETE FROM cairn_changes WHERE root = %(root)s AND queue IN (SELECT queue FROM gone)
"""


class PostgresState(ChangeQueue):
    """The change queue of one index. Safe from many threads, processes and, though nobody needs it, machines.

    Args:
        database: Where it is.
        directory: The index directory, which has its name.
        clock: Time for the stamps and the retry pauses.
    """

    def __init__(self, database: Postgres, directory: Path, clock: Clock | None = None) -> None:
        super().__init__()
        self._database, self._directory, self._clock = database, directory, clock or SystemClock()

    def close(self) -> None:
        """The connections are their owner's."""

    def scrub(self) -> bool:
        """What was deleted leaves PostgreSQL's files with its own vacuum."""
        with suppress(CairnError), self._database.connection() as one:
            one.execute("VACUUM cairn_changes")
            return True
        return False

    # -- the queue

    def _put(self, changes: Sequence[Noticed]) -> int:
        latest = list({one.path: one for one in changes}.values())
        given = {
            "paths": [one.path for one in latest],
            "kinds": [one.kind for one in latest],
            "types": [one.change_type for one in latest],
            "mtimes": [one.mtime for one in latest],
        }

        def put(one: Connection[Any], values: dict[str, object]) -> int:
            found = one.execute(_NEXT_LSN, values).fetchone()
            assert found is not None
            last = int(found[0])
            one.execute(_QUEUE, values | {"lsns": [*range(last - len(latest) + 1, last + 1)]})
            return last

        return self._work(put, known=self._lsn, more=len(latest), **given)

    def claim(self, limit: int, *, holder: str, within: Sequence[str] = ()) -> list[Change]:
        told = self._clock.now().isoformat()
        try:
            found = self._ask(_CLAIM, limit=limit, holder=holder, within=list(within), told=told)
        finally:
            self._claimed()
        return sorted((Change(*row) for row in found), key=lambda change: change.lsn)

    def finish(
        self,
        changes: Sequence[Change],
        *,
        holder: str,
        seen: Mapping[str, tuple[float, int] | None],
        remarks: Mapping[str, str] | None = None,
    ) -> int:
        was = [seen.get(one.path) or (None, None) for one in changes]
        said = remarks or {}
        given = {
            "paths": [one.path for one in changes],
            "lsns": [one.lsn for one in changes],
            "types": [
                "deleted" if one.path in seen and seen[one.path] is None else one.change_type
                for one in changes
            ],
            "mtimes": [mtime for mtime, _ in was],
            "sizes": [size for _, size in was],
            "remarks": [_plain(said[one.path]) if one.path in said else None for one in changes],
        }

        def end(one: Connection[Any], values: dict[str, object]) -> int:
            one.execute(_HOLD, values)
            count = one.execute(_DONE, values).rowcount
            if count < len(changes):
                one.execute(_COVERED, values)
            return count

        return self._work(end, holder=holder, **given) if changes else 0

    def fail(
        self,
        change: Change,
        reason: str,
        *,
        holder: str,
        retryable: bool,
        seen: tuple[float, int] | None = None,
        unread: bool = False,
    ) -> None:
        attempts = change.retry_count + 1
        mtime, size = seen or (None, None)
        status, pause = failed_as(attempts, retryable=retryable, unread=unread)
        self._do(
            _FAIL,
            status=status,
            retryable=retryable,
            unread=unread,
            attempts=attempts,
            reason=_plain(reason[:500]),
            again=self._clock.now().timestamp() + pause if pause else 0.0,
            mtime=mtime,
            size=size,
            path=change.path,
            lsn=change.lsn,
            holder=holder,
        )

    def recover(self, *, holder: str) -> int:
        self._claimed()
        return self._do(
            "UPDATE cairn_changes SET status = 'pending', holder = NULL, claimed = NULL, not_before = 0"
            f" WHERE {_MINE} AND status = 'processing' AND holder IS DISTINCT FROM %(holder)s",
            holder=holder,
        )

    def retry_failed(self) -> int:
        count = self._do(
            "UPDATE cairn_changes SET status = 'pending', retry_count = 0, not_before = 0"
            f" WHERE {_MINE} AND status = 'failed' AND retryable"
        )
        if count:
            self._do(f"UPDATE cairn_queues SET version = version + 1 WHERE {_MINE}")
            if self.on_enqueue is not None:
                self.on_enqueue(("failed before",))
        return count

    # -- looking

    def failures(self) -> list[dict[str, Any]]:
        names = [
            "path",
            "kind",
            "change_type",
            "lsn",
            "retryable",
            "retry_count",
            "last_attempt_at",
            "error",
            "status",
        ]
        rows = self._ask(
            f"SELECT {', '.join(names)} FROM cairn_changes WHERE {_MINE}"
            " AND (status = 'failed' OR (status = 'pending' AND error IS NOT NULL)) ORDER BY lsn"
        )
        return [dict(zip(names, row, strict=True)) for row in rows]

    def set_aside(self) -> list[dict[str, str]]:
        rows = self._ask(
            f"SELECT path, error FROM cairn_changes WHERE {_MINE} AND status = 'done' AND error IS NOT NULL ORDER BY path"
        )
        return [{"path": path, "trouble": trouble} for path, trouble in rows]

    def counts(self) -> QueueCounts:
        rows = self._ask(
            f"SELECT status, count(*), min(since) FROM cairn_changes WHERE {_MINE} GROUP BY status"
        )
        found = {status: number for status, number, _ in rows}
        oldest = [since for status, _, since in rows if status in {"pending", "processing"}]
        last = self.last_lsn()
        return QueueCounts(
            pending=found.get("pending", 0) + found.get("processing", 0),
            done=found.get("done", 0),
            failed=found.get("failed", 0),
            last_lsn=last,
            applied_lsn=min(oldest) - 1 if oldest else last,
        )

    def waiting(self, lsn: int | None = None, within: Sequence[str] = ()) -> int:
        [[count]] = self._ask(
            f"SELECT count(*) FROM cairn_changes WHERE {_MINE} AND {_BUSY} AND since <= %(lsn)s AND {_INSIDE}",
            lsn=lsn if lsn is not None else 2**62,
            within=list(within),
        )
        return int(count)

    def last_lsn(self) -> int:
        rows = self._ask(f"SELECT lsn FROM cairn_queues WHERE {_MINE}")
        return int(rows[0][0]) if rows else 0

    def known(self, paths: Sequence[str] | None = None, within: Sequence[str] = ()) -> Mapping[str, Known]:
        chosen = (
            "path = ANY(%(paths)s)"
            if paths is not None
            else f"NOT (change_type = 'deleted' AND status = 'done') AND {_INSIDE}"
        )
        rows = self._ask(
            "SELECT path, status, change_type, mtime, size, seen_at, retryable, unread FROM cairn_changes"
            f" WHERE {_MINE} AND {chosen}",
            paths=list(paths or ()),
            within=list(within),
        )
        return {row[0]: Known(*row[1:]) for row in rows}

    def glance(self, within: Sequence[str] = ()) -> Glance:
        rows = self._ask(_GLANCE, within=list(within), told=FAILURES_TOLD)
        if not rows:
            return Glance(0, 0, "")
        lsn, ready_for, oldest, pending, failed = rows[0]
        return Glance(
            lsn if oldest is None else oldest - 1,
            pending,
            ready_for,
            tuple((path, why) for path, why in failed or ()),
        )

    def data_version(self) -> tuple[int, int]:
        rows = self._ask(f"SELECT version, lsn FROM cairn_queues WHERE {_MINE}")
        return (rows[0][0], rows[0][1]) if rows else (0, 0)

    # -- which index is complete

    def ready_for(self) -> str:
        rows = self._ask(f"SELECT ready_for FROM cairn_queues WHERE {_MINE}")
        return str(rows[0][0]) if rows else ""

    def clear(self) -> str:
        def wipe(one: Connection[Any], values: dict[str, object]) -> str:
            one.execute(_NEXT_LSN, values)
            one.execute(f"DELETE FROM cairn_changes WHERE {_MINE}", values)
            query = f"UPDATE cairn_queues SET ready_for = '', scan_of = '', scan_lsn = 0 WHERE {_MINE} RETURNING birth"
            found = one.execute(query, values).fetchone()
            return str(found[0]) if found else ""

        try:
            return self._work(wipe, known=self._lsn, more=0)
        finally:
            self._claimed()

    def note_scan(self, generation: str, lsn: int, *, queue: str) -> None:
        self._do(
            f"UPDATE cairn_queues SET scan_of = %(generation)s, scan_lsn = %(lsn)s WHERE {_MINE} AND birth = %(birth)s",
            generation=generation,
            lsn=lsn,
            birth=queue,
        )

    def has_scan(self, generation: str) -> bool:
        query = f"SELECT FROM cairn_queues WHERE {_MINE} AND scan_of = %(generation)s"
        return bool(generation and self._ask(query, generation=generation))

    def set_ready(self, generation: str) -> bool:
        return bool(self._do(_READY, generation=generation))

    # -- keeping it small

    def maintain(self) -> None:
        before = (self._clock.now() - TOMBSTONES_KEPT_FOR).timestamp()
        gone = f"{_MINE} AND change_type = 'deleted' AND status = 'done'"
        later = f"SELECT lsn FROM cairn_changes WHERE {gone} ORDER BY lsn DESC LIMIT 1 OFFSET %(most)s"
        self._do(
            f"DELETE FROM cairn_changes WHERE {gone}"
            f" AND (last_changed_at < %(before)s OR lsn <= coalesce(({later}), -1))",
            before=before,
            most=TOMBSTONES_KEPT,
        )
        self._do(f"UPDATE cairn_queues SET used = clock_timestamp() WHERE {_MINE}")
        self._do(_DROP_OLD)

    def forget(self, paths: Sequence[str]) -> None:
        self._do(
            f"DELETE FROM cairn_changes WHERE {_MINE} AND path = ANY(%(paths)s) AND change_type = 'deleted'"
            " AND status = 'done'",
            paths=list(paths),
        )

    # -- asking

    def _named(self) -> dict[str, object]:
        """The values that every question has. Where the folder of the index went, its queue is a new one."""
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
        return {"root": self._database.root, "queue": name, "now": self._clock.now().timestamp()}

    def _ask(self, query: str, **values: object) -> list[tuple[Any, ...]]:
        return self._database.ask(query, **self._named(), **values)

    def _do(self, query: str, **values: object) -> int:
        return self._work(lambda one, named: one.execute(query, named).rowcount, **values)

    def _work(self, work: Callable[[Connection[Any], dict[str, object]], T], **values: object) -> T:
        """All of `work` in one transaction."""
        named = self._named() | values
        with self._database.connection() as one, one.transaction():
            return work(one, named)


def _plain(text: str) -> str:
    """PostgreSQL takes no NUL."""
    return text.replace("\0", " ")
