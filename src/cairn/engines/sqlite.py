"""State on SQLite: the change queue `md_change_state` in `.index/sqlite/system.db`.

One row per path. Queueing a path again moves it to the back with a new LSN and frees it from whoever works on
it, so a stale worker's "done" finds nothing to finish. The file may be deleted while in use: what is lost is
a list of work that a scan of the notes finds again, so no caller is ever refused because of it.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from cairn.engines.changes import ChangeQueue
from cairn.engines.database import Database, Unchanged, beginning_with
from cairn.seams import Clock, Glance, Known, Noticed, QueueCounts, SystemClock
from cairn.types import Change

TOMBSTONES_KEPT_FOR = timedelta(days=1)
TOMBSTONES_KEPT = 5_000
_STANDING = "NOT (change_type = 'deleted' AND status = 'done')"
_SCHEMA = """
CREATE TABLE md_change_state(
    md_path TEXT PRIMARY KEY,
    kind TEXT NOT NULL,
    change_type TEXT NOT NULL CHECK (change_type IN ('added', 'modified', 'deleted')),
    mtime REAL,
    first_seen_at TEXT NOT NULL,
    last_changed_at TEXT NOT NULL,
    lsn INTEGER NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('pending', 'processing', 'done', 'failed')),
    retryable INTEGER NOT NULL DEFAULT 1,
    unread INTEGER NOT NULL DEFAULT 0,
    last_attempt_at TEXT,
    retry_count INTEGER NOT NULL DEFAULT 0,
    error TEXT,
    size INTEGER,
    seen_at REAL,
    not_before REAL NOT NULL DEFAULT 0,
    holder TEXT,
    since INTEGER NOT NULL,
    claimed INTEGER,
    later INTEGER
) WITHOUT ROWID;
CREATE INDEX md_change_due ON md_change_state(status, lsn);
CREATE TABLE meta(key TEXT PRIMARY KEY, value) WITHOUT ROWID;
INSERT INTO meta VALUES ('lsn', 0), ('ready_for', '')
"""
_DUE = "(status = 'pending' OR (status = 'failed' AND unread = 1 AND retryable = 1))"
FAILURES_TOLD = 20
_GLANCES_KEPT = 256
MAX_RETRIES = 12
BACKOFF_SECONDS = 2.0
_MAX_BACKOFF_SECONDS = 60.0


def failed_as(attempts: int, *, retryable: bool, unread: bool) -> tuple[str, float]:
    """The status of a change that failed for so many times, and for how long it is left alone; 0 where nothing is tried again.

    >>> failed_as(1, retryable=True, unread=False)
    ('pending', 2.0)
    """
    again = retryable and (attempts < MAX_RETRIES or unread)
    pause = min(BACKOFF_SECONDS * attempts, _MAX_BACKOFF_SECONDS) if again else 0.0
    return "pending" if again and not unread else "failed", pause


class SqliteState(ChangeQueue):
    """The change queue. Safe from many threads and processes.

    A path that is queued again gets a new `lsn`, the place in the queue. `since` is the first one that is not
    indexed yet: a reader who waits for an LSN waits for that. Work on a path covers what was queued before it
    was `claimed`; what came `later` remains.

    Args:
        directory: The index directory; the file is `sqlite/system.db` below it.
        clock: Time for the stamps and the retry pauses.
        on_enqueue: Called with the kinds of what was queued, after each `enqueue` of this process.
    """

    def __init__(
        self,
        directory: Path,
        *,
        clock: Clock | None = None,
        on_enqueue: Callable[[Collection[str]], None] | None = None,
    ) -> None:
        self._db = Database(directory / "sqlite" / "system.db", _SCHEMA, version=3)
        super().__init__(on_enqueue)
        self._clock = clock or SystemClock()
        self._glances: dict[tuple[str, ...], tuple[Unchanged, Glance]] = {}

    def scrub(self) -> bool:
        """Leave no byte of removed rows on disk; False if readers held on."""
        return self._db.scrub()

    def _put(self, changes: Sequence[Noticed]) -> int:
        at = self._clock.now().isoformat()

        def put(db: sqlite3.Connection) -> int:
            lsn = int(db.execute("SELECT value FROM meta WHERE key = 'lsn'").fetchone()[0])
            lsn = max(lsn, self._lsn)
            rows = [
                (c.path, c.kind, c.change_type, c.mtime, at, at, lsn + n, lsn + n)
                for n, c in enumerate(changes, 1)
            ]
            db.executemany(
                "INSERT INTO md_change_state(md_path, kind, change_type, mtime, first_seen_at, last_changed_at,"
                " lsn, since, status) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 'pending') ON CONFLICT(md_path) DO UPDATE SET"
                " since = CASE WHEN status IN ('pending', 'processing') THEN since ELSE excluded.lsn END,"
                " later = CASE WHEN claimed IS NOT NULL THEN coalesce(later, excluded.lsn) END,"
                " kind = excluded.kind, change_type = excluded.change_type, mtime = excluded.mtime,"
                " last_changed_at = excluded.last_changed_at, lsn = excluded.lsn, status = 'pending',"
                " retryable = 1, unread = 0, retry_count = 0, error = NULL, not_before = 0, holder = NULL",
                rows,
            )
            db.execute("UPDATE meta SET value = ? WHERE key = 'lsn'", (lsn + len(rows),))
            return lsn + len(rows)

        return self._db.write(put, patience=3.0)

    def claim(self, limit: int, *, holder: str, within: Sequence[str] = ()) -> list[Change]:
        now = self._clock.now()
        inside, bounds = beginning_with("md_path", within)
        due = f"{_DUE} AND not_before <= ?{inside}"

        def take(db: sqlite3.Connection) -> list[Change]:
            found = db.execute(
                "UPDATE md_change_state SET status = 'processing', holder = ?, last_attempt_at = ?, claimed = lsn,"
                " later = NULL WHERE md_path"
                f" IN (SELECT md_path FROM md_change_state WHERE {due}"
                " ORDER BY lsn LIMIT ?) RETURNING md_path, kind, change_type, lsn, retry_count",
                (holder, now.isoformat(), now.timestamp(), *bounds, limit),
            ).fetchall()
            return sorted((Change(*row) for row in found), key=lambda change: change.lsn)

        def has_due(db: sqlite3.Connection) -> bool:
            query = f"SELECT 1 FROM md_change_state WHERE {due} LIMIT 1"
            return db.execute(query, (now.timestamp(), *bounds)).fetchone() is not None

        if not self._db.read(has_due):
            return []
        try:
            return self._db.write(take)
        finally:
            self._claimed()

    def finish(
        self,
        changes: Sequence[Change],
        *,
        holder: str,
        seen: Mapping[str, tuple[float, int] | None],
        remarks: Mapping[str, str] | None = None,
    ) -> int:
        now = self._clock.now().timestamp()
        said = remarks or {}

        def finish(db: sqlite3.Connection) -> int:
            count = 0
            for change in changes:
                mtime, size = seen.get(change.path) or (None, None)
                finished = db.execute(
                    "UPDATE md_change_state SET status = 'done', holder = NULL, error = ?, retry_count = 0, unread = 0,"
                    " claimed = NULL, change_type = ?, mtime = ?, size = ?, seen_at = ? WHERE md_path = ? AND lsn = ?"
                    " AND status = 'processing' AND holder = ?",
                    (
                        said.get(change.path),
                        "deleted" if change.path in seen and mtime is None else change.change_type,
                        mtime,
                        size,
                        now,
                        change.path,
                        change.lsn,
                        holder,
                    ),
                ).rowcount
                if not finished:
                    db.execute(
                        "UPDATE md_change_state SET since = later, later = NULL, claimed = NULL"
                        " WHERE md_path = ? AND claimed = ? AND status = 'pending' AND later IS NOT NULL",
                        (change.path, change.lsn),
                    )
                count += finished
            return count

        return self._db.write(finish)

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
        """Record why `change` could not be indexed.

        A retryable failure returns after a pause that grows; after `MAX_RETRIES` of them, and at once where
        it is not retryable, the change stands as failed until the file is edited or `retry_failed` is asked.
        A file that cannot be read (`unread`) stands as failed at once, so that nobody waits for it; where that may
        pass, it is tried again as long as it is there.
        """
        attempts = change.retry_count + 1
        now = self._clock.now().timestamp()
        status, pause = failed_as(attempts, retryable=retryable, unread=unread)

        def note(db: sqlite3.Connection) -> None:
            mtime, size = seen or (None, None)
            db.execute(
                "UPDATE md_change_state SET status = ?, retryable = ?, unread = ?, retry_count = ?, error = ?, not_before = ?,"
                " holder = NULL, claimed = NULL, mtime = coalesce(?, mtime), size = coalesce(?, size), seen_at = ?"
                " WHERE md_path = ? AND lsn = ? AND status = 'processing' AND holder = ?",
                (
                    status,
                    retryable,
                    unread,
                    attempts,
                    reason[:500],
                    now + pause if pause else 0,
                    mtime,
                    size,
                    now,
                    change.path,
                    change.lsn,
                    holder,
                ),
            )

        self._db.write(note)

    def recover(self, *, holder: str) -> int:
        """Free every claim of another holder. Only the process that has the indexer's lease may ask."""

        def free(db: sqlite3.Connection) -> int:
            return db.execute(
                "UPDATE md_change_state SET status = 'pending', holder = NULL, claimed = NULL, not_before = 0"
                " WHERE status = 'processing' AND holder IS NOT ?",
                (holder,),
            ).rowcount

        self._claimed()
        return self._db.write(free)

    def retry_failed(self) -> int:
        """Put the retryable failures back in the queue; returns how many."""

        def free(db: sqlite3.Connection) -> int:
            return db.execute(
                "UPDATE md_change_state SET status = 'pending', retry_count = 0, not_before = 0"
                " WHERE status = 'failed' AND retryable = 1"
            ).rowcount

        count = self._db.write(free)
        if count and self.on_enqueue is not None:
            self.on_enqueue(("failed before",))
        return count

    def failures(self) -> list[dict[str, Any]]:
        """Every failed change with its reason, oldest first; also those still waiting for another try."""
        query = (
            "SELECT md_path, kind, change_type, lsn, retryable, retry_count, last_attempt_at, error, status"
            " FROM md_change_state WHERE status = 'failed' OR (status = 'pending' AND error IS NOT NULL) ORDER BY lsn"
        )
        names = (
            "path",
            "kind",
            "change_type",
            "lsn",
            "retryable",
            "retry_count",
            "last_attempt_at",
            "error",
            "status",
        )
        rows = self._db.read(lambda db: db.execute(query).fetchall())
        return [dict(zip(names, row, strict=True)) | {"retryable": bool(row[4])} for row in rows]

    def set_aside(self) -> list[dict[str, str]]:
        """Files that are indexed but for a part that cannot be read, by path, and what that is."""
        query = "SELECT md_path, error FROM md_change_state WHERE status = 'done' AND error IS NOT NULL ORDER BY md_path"
        rows = self._db.read(lambda db: db.execute(query).fetchall())
        return [{"path": path, "trouble": trouble} for path, trouble in rows]

    def counts(self) -> QueueCounts:
        def ask(db: sqlite3.Connection) -> QueueCounts:
            found = dict(
                db.execute("SELECT status, count(*) FROM md_change_state GROUP BY status").fetchall()
            )
            last = int(db.execute("SELECT value FROM meta WHERE key = 'lsn'").fetchone()[0])
            return QueueCounts(
                pending=found.get("pending", 0) + found.get("processing", 0),
                done=found.get("done", 0),
                failed=found.get("failed", 0),
                last_lsn=last,
                applied_lsn=self._applied(db, last),
            )

        return self._db.read(ask)

    def waiting(self, lsn: int | None = None, within: Sequence[str] = ()) -> int:
        """How many changes up to `lsn` (all of them without one) are not yet done or given up.

        With `within`, only of places that begin with one of these.
        """
        inside, bounds = beginning_with("md_path", within)
        query = (
            "SELECT count(*) FROM md_change_state WHERE status IN ('pending', 'processing') AND since <= ?"
            f"{inside}"
        )
        limit = lsn if lsn is not None else 2**62
        return int(self._db.read(lambda db: db.execute(query, (limit, *bounds)).fetchone()[0]))

    def last_lsn(self) -> int:
        found = self._db.read(lambda db: db.execute("SELECT value FROM meta WHERE key = 'lsn'").fetchone()[0])
        return int(found)

    @staticmethod
    def _applied(db: sqlite3.Connection, last: int) -> int:
        query = "SELECT min(since) FROM md_change_state WHERE status IN ('pending', 'processing')"
        oldest = db.execute(query).fetchone()[0]
        return last if oldest is None else int(oldest) - 1

    def data_version(self) -> tuple[int, int]:
        """Changes when another connection committed, so that an idle indexer can poll for next to nothing."""
        return self._db.stamp()

    def known(self, paths: Sequence[str] | None = None, within: Sequence[str] = ()) -> dict[str, Known]:
        """What the queue remembers of `paths` (of every path without them), to compare with the files.

        With `within`, of the paths that begin with one of these. What is gone, and indexed as gone, is told of by name
        alone: under steady work these are far more than what is there.
        """
        query = "SELECT md_path, status, change_type, mtime, size, seen_at, retryable, unread FROM md_change_state"
        inside, bounds = beginning_with("md_path", within)

        def ask(db: sqlite3.Connection) -> list[tuple[Any, ...]]:
            if paths is None:
                return db.execute(f"{query} WHERE {_STANDING}{inside}", bounds).fetchall()
            one = f"{query} WHERE md_path = ?"
            return [row for path in paths if (row := db.execute(one, (path,)).fetchone()) is not None]

        rows = self._db.read(ask)
        return {
            row[0]: Known(row[1], row[2], row[3], row[4], row[5], bool(row[6]), bool(row[7])) for row in rows
        }

    def glance(self, within: Sequence[str] = ()) -> Glance:
        """How far the index is, of the places that begin with one of `within`: cheap enough for every answer."""
        stamp, known = self._db.stamp(), self._glances.get(tuple(within))
        if known is not None and known[0].holds(stamp):
            return known[1]
        glance = self._glance(within)
        if known is None or known[1] != glance:
            known = (Unchanged(), glance)
        known[0].note(stamp)
        if len(self._glances) >= _GLANCES_KEPT:
            self._glances.clear()
        self._glances[tuple(within)] = known
        return glance

    def _glance(self, within: Sequence[str]) -> Glance:
        inside, bounds = beginning_with("md_path", within)
        busy = "status IN ('pending', 'processing')"

        def ask(db: sqlite3.Connection) -> Glance:
            meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
            oldest = db.execute(f"SELECT min(since) FROM md_change_state WHERE {busy}").fetchone()[0]
            waiting = db.execute(f"SELECT count(*) FROM md_change_state WHERE {busy}{inside}", bounds)
            failed = db.execute(
                f"SELECT md_path, error FROM md_change_state WHERE status = 'failed'{inside} ORDER BY md_path LIMIT ?",
                (*bounds, FAILURES_TOLD),
            )
            return Glance(
                int(meta["lsn"]) if oldest is None else int(oldest) - 1,
                int(waiting.fetchone()[0]),
                str(meta["ready_for"]),
                tuple((str(path), str(error or "")) for path, error in failed),
            )

        return self._db.read(ask)

    def ready_for(self) -> str:
        """The generation of the index that holds every file; "" while none does."""
        query = "SELECT value FROM meta WHERE key = 'ready_for'"
        return str(self._db.read(lambda db: db.execute(query).fetchone()[0]))

    def clear(self) -> str:
        """Forget every change, keep the LSN; no index is complete then. Returns which queue was cleared."""

        def wipe(db: sqlite3.Connection) -> str:
            db.execute("DELETE FROM md_change_state")
            db.execute("UPDATE meta SET value = '' WHERE key = 'ready_for'")
            db.execute("DELETE FROM meta WHERE key IN ('rebuild_of', 'rebuild_lsn')")
            return str(db.execute("SELECT generation FROM birth").fetchone()[0])

        try:
            return self._db.write(wipe)
        finally:
            self._claimed()

    def note_scan(self, generation: str, lsn: int, *, queue: str) -> None:
        """Note that every file is queued up to `lsn` for the index of this generation.

        Kept in the queue itself, so that the note is gone with the changes it speaks of, and a later holder of
        the lease knows whose scan it has before it. Only the queue that was cleared for the scan takes it.
        """
        born = "SELECT ?, ? FROM birth WHERE generation = ?"

        def note(db: sqlite3.Connection) -> None:
            for key, value in (("rebuild_of", generation), ("rebuild_lsn", lsn)):
                db.execute(f"INSERT OR REPLACE INTO meta(key, value) {born}", (key, value, queue))

        self._db.write(note)

    def has_scan(self, generation: str) -> bool:
        """Whether every file was queued for the index of this generation since the queue was cleared."""
        query = "SELECT 1 FROM meta WHERE key = 'rebuild_of' AND value = ?"
        return self._db.read(lambda db: db.execute(query, (generation,)).fetchone()) is not None

    def set_ready(self, generation: str) -> bool:
        """Call the index of this generation complete, if a scan for it was queued and all of that is done."""
        complete = (
            "EXISTS (SELECT 1 FROM meta WHERE key = 'rebuild_of' AND value = ?) AND NOT EXISTS (SELECT 1 FROM"
            " md_change_state WHERE status IN ('pending', 'processing')"
            " AND since <= (SELECT value FROM meta WHERE key = 'rebuild_lsn'))"
        )
        update = f"UPDATE meta SET value = ? WHERE key = 'ready_for' AND {complete}"
        if self._db.read(lambda db: db.execute(f"SELECT {complete}", (generation,)).fetchone()[0]):
            return bool(self._db.write(lambda db: db.execute(update, (generation, generation)).rowcount))
        return False

    def forget(self, paths: Sequence[str]) -> None:
        """Drop the names of files that are gone and indexed as such, without waiting for their day."""
        self._db.write(
            lambda db: db.executemany(
                "DELETE FROM md_change_state WHERE md_path = ? AND change_type = 'deleted' AND status = 'done'",
                [(path,) for path in paths],
            )
        )

    def maintain(self) -> None:
        """Keep the file small: files that are gone and indexed as such are forgotten after a day, or after many others."""
        before = (self._clock.now() - TOMBSTONES_KEPT_FOR).isoformat()
        gone = "change_type = 'deleted' AND status = 'done'"
        later = f"SELECT lsn FROM md_change_state WHERE {gone} ORDER BY lsn DESC LIMIT 1 OFFSET ?"
        self._db.write(
            lambda db: db.execute(
                f"DELETE FROM md_change_state WHERE {gone}"
                f" AND (last_changed_at < ? OR lsn <= coalesce(({later}), -1))",
                (before, TOMBSTONES_KEPT),
            )
        )
        self._db.shrink()

    def close(self) -> None:
        self._db.close()
