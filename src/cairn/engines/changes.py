"""The change queue over any SQL database, with the part each process keeps in memory; and on SQLite.

A path that is queued again gets a new `lsn`, the place in the queue, and is freed from whoever works on it, so a stale
worker's "done" finds nothing to finish. `since` is the first one that is not indexed yet: a reader who waits for an LSN waits
for that. Work on a path covers what was queued before it was `claimed`; what came `later` remains.

Statements name their values as `:name`. An engine says what its table, the column of paths and the key are called,
which rows are its own, how a list is asked for and how rows are taken that nobody else has taken.

On SQLite it is `md_change_state` in `.index/sqlite/system.db`, one row per path. The file may be deleted while in use: what
is lost is a list of work that a scan of the notes finds again, so no caller is ever refused because of it.
"""

from __future__ import annotations

import functools
import json
import sqlite3
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeVar

from cairn.engines.database import BUSY_SECONDS, Database, Remembered, beginning_with
from cairn.errors import CairnError
from cairn.seams import Clock, Glance, Known, Noticed, QueueCounts, SystemClock
from cairn.types import Change

T = TypeVar("T")
FAILURES_TOLD = 20
MAX_RETRIES = 12
_BACKOFF_SECONDS, _MAX_BACKOFF_SECONDS = 2.0, 60.0
TOMBSTONES_KEPT_FOR, TOMBSTONES_KEPT = timedelta(days=1), 5_000
BUSY = "status IN ('pending', 'processing')"
_GONE = "change_type = 'deleted' AND status = 'done'"
AGAIN = f"""
ON CONFLICT ({{key}}) DO UPDATE SET
    since = CASE WHEN c.{BUSY} THEN c.since ELSE excluded.lsn END,
    later = CASE WHEN c.claimed IS NOT NULL THEN coalesce(c.later, excluded.lsn) END,
    kind = excluded.kind, change_type = excluded.change_type, mtime = excluded.mtime,
    last_changed_at = excluded.last_changed_at, lsn = excluded.lsn, status = 'pending', retryable = true, unread = false,
    retry_count = 0, error = NULL, not_before = 0, holder = NULL
"""
"""What becomes of a path that is queued already: the end of an `INSERT INTO {changes} AS c`."""
DUE = """
{changes} WHERE {mine} AND (status = 'pending' OR (status = 'failed' AND unread AND retryable)) AND not_before <= :now {inside}
"""
_CLAIM = f"""
WITH due AS (SELECT {{path}} FROM {DUE} ORDER BY lsn LIMIT :limit {{free}})
UPDATE {{changes}} SET status = 'processing', holder = :holder, last_attempt_at = :told, claimed = lsn, later = NULL
WHERE {{mine}} AND {{path}} IN (SELECT {{path}} FROM due) RETURNING {{path}}, kind, change_type, lsn, retry_count
"""
_DONE = """
UPDATE {changes} SET status = 'done', holder = NULL, error = :remark, retry_count = 0, unread = false, claimed = NULL,
    change_type = :change_type, mtime = :mtime, size = :size, seen_at = :now
WHERE {mine} AND {path} = :path AND lsn = :lsn AND status = 'processing' AND holder = :holder
"""
_COVERED = """
UPDATE {changes} SET since = later, later = NULL, claimed = NULL
WHERE {mine} AND {path} = :path AND claimed = :lsn AND status = 'pending' AND later IS NOT NULL
"""
_FAIL = """
UPDATE {changes} SET status = :status, retryable = :retryable, unread = :unread, retry_count = :attempts, error = :reason,
    not_before = :again, holder = NULL, claimed = NULL, mtime = coalesce(:mtime, mtime), size = coalesce(:size, size),
    seen_at = :now
WHERE {mine} AND {path} = :path AND lsn = :lsn AND status = 'processing' AND holder = :holder
"""
_RECOVER = """
UPDATE {changes} SET status = 'pending', holder = NULL, claimed = NULL, not_before = 0
WHERE {mine} AND status = 'processing' AND (holder IS NULL OR holder <> :holder)
"""
_RETRY = """
UPDATE {changes} SET status = 'pending', retry_count = 0, not_before = 0 WHERE {mine} AND status = 'failed' AND retryable
"""
_FAILURES = """
SELECT {path}, kind, change_type, lsn, retryable, retry_count, last_attempt_at, error, status FROM {changes}
WHERE {mine} AND (status = 'failed' OR (status = 'pending' AND error IS NOT NULL)) ORDER BY lsn
"""
_FAILURE = (
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
_ASIDE = "SELECT {path}, error FROM {changes} WHERE {mine} AND status = 'done' AND error IS NOT NULL ORDER BY {path}"
_KNOWN = "SELECT {path}, status, change_type, mtime, size, seen_at, retryable, unread FROM {changes} WHERE {mine} AND "
_FORGET_OLD = f"""
DELETE FROM {{changes}} WHERE {{mine}} AND {_GONE} AND (last_changed_at < :before OR lsn <= coalesce((
    SELECT lsn FROM {{changes}} WHERE {{mine}} AND {_GONE} ORDER BY lsn DESC LIMIT 1 OFFSET :most), -1))
"""


def failed_as(attempts: int, *, retryable: bool, unread: bool) -> tuple[str, float]:
    """The status of a change that failed for so many times, and for how long it is left alone; 0 where nothing is tried again.

    A retryable failure returns after a pause that grows; after `MAX_RETRIES` of them, and at once where it is not retryable,
    the change stands as failed until the file is edited or `retry_failed` is asked. A file that cannot be read
    (`unread`) stands as failed at once, so that nobody waits for it; where that may pass, it is tried again as long as it is
    there.

    >>> failed_as(1, retryable=True, unread=False)
    ('pending', 2.0)
    """
    again = retryable and (attempts < MAX_RETRIES or unread)
    pause = min(_BACKOFF_SECONDS * attempts, _MAX_BACKOFF_SECONDS) if again else 0.0
    return "pending" if again and not unread else "failed", pause


class Statements(Protocol):
    """Statements of one transaction. A list among the values is what `{among}` is asked of."""

    def ask(self, query: str, **values: object) -> list[Any]:
        """The rows of a statement."""
        ...

    def do(self, query: str, *rows: Mapping[str, object]) -> int:
        """Run a statement once for each row of values; how many rows it changed."""
        ...


class Base(ABC):
    """A database as a queue uses it. What `{...}` in a statement stands for is its own to know."""

    @abstractmethod
    def ask(self, query: str, **values: object) -> list[Any]:
        """The rows of a question."""

    @abstractmethod
    def work(self, work: Callable[[Statements], T], *, patience: float = BUSY_SECONDS) -> T:
        """All of `work` in one transaction; a database with a pool of connections has its own patience."""

    def do(self, query: str, **values: object) -> int:
        """One statement; how many rows it changed."""
        return self.work(lambda base: base.do(query, values))


class ChangeQueue(ABC):
    """A change queue. Safe from many threads and processes; see `State` for what it promises.

    Args:
        base: The database.
        clock: Time for the stamps and the retry pauses.
    """

    _holds: ClassVar[str] = ""
    """What keeps others from changing some paths until a transaction ends, where that does not keep all out."""

    def __init__(self, base: Base, clock: Clock | None = None) -> None:
        self._base, self._clock = base, clock or SystemClock()
        self.on_enqueue: Callable[[Collection[str]], None] | None = None
        self.sole = False
        self._lock = threading.Lock()
        self._lsn = 0
        self._lost = False
        self._claims = 0
        self._unclaimed: set[str] = set()

    # -- what an engine gives

    @abstractmethod
    def last_lsn(self) -> int: ...

    @abstractmethod
    def _put(self, changes: Sequence[Noticed]) -> int:
        """Keep `changes` in one transaction, after the highest LSN known; returns the highest now."""

    @abstractmethod
    def _inside(self, within: Sequence[str]) -> tuple[str, dict[str, object]]:
        """A further condition, and its values: the path begins with one of `within`; none where there are none."""

    @abstractmethod
    def _when(self, at: datetime) -> object:
        """A time as `last_changed_at` has it."""

    # -- the queue

    def enqueue(self, changes: Sequence[Noticed]) -> int:
        """Queue `changes` in one transaction and return the highest LSN.

        Where the queue cannot be written (disk full, directory or server gone) the highest LSN known is
        returned and `take_lost` tells the indexer to scan.
        """
        if not changes:
            return self.last_lsn()
        with self._lock:
            claims = self._claims
            if self.sole and all(
                one.path in self._unclaimed and one.change_type == "modified" for one in changes
            ):
                return self._lsn
        try:
            lsn = self._put(changes)
        except CairnError:
            self._lost = True
            with self._lock:
                lsn = self._lsn
        else:
            with self._lock:
                self._lsn = max(self._lsn, lsn)
                if self.sole and claims == self._claims:
                    self._unclaimed.update(one.path for one in changes if one.kind == "session")
        if self.on_enqueue is not None:
            self.on_enqueue({change.kind for change in changes})
        return lsn

    def take_lost(self) -> bool:
        lost, self._lost = self._lost, False
        return lost

    def _claimed(self) -> None:
        """What waited may be being read by now: what is written from here on is queued anew."""
        with self._lock:
            self._claims += 1
            self._unclaimed.clear()

    def claim(self, limit: int, *, holder: str, within: Sequence[str] = ()) -> list[Change]:
        now = self._clock.now()
        inside, values = self._inside(within)
        values |= {"now": now.timestamp(), "told": now.isoformat(), "limit": limit, "holder": holder}
        try:
            found = self._base.work(lambda base: base.ask(_CLAIM.replace("{inside}", inside), **values))
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
        now, rows = self._clock.now().timestamp(), []
        for change in changes:
            mtime, size = seen.get(change.path) or (None, None)
            is_gone = change.path in seen and mtime is None
            told: dict[str, object] = {"mtime": mtime, "size": size, "now": now, "holder": holder}
            told |= {
                "remark": plain((remarks or {}).get(change.path, "")) or None,
                "path": change.path,
                "lsn": change.lsn,
            }
            rows.append(told | {"change_type": "deleted" if is_gone else change.change_type})

        def finish(base: Statements) -> int:
            if self._holds:
                base.do(self._holds, {"these": [change.path for change in changes]})
            count = base.do(_DONE, *rows)
            if count < len(rows):
                base.do(_COVERED, *({"path": change.path, "lsn": change.lsn} for change in changes))
            return count

        return self._base.work(finish) if rows else 0

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
        attempts, now = change.retry_count + 1, self._clock.now().timestamp()
        mtime, size = seen or (None, None)
        status, pause = failed_as(attempts, retryable=retryable, unread=unread)
        self._base.do(
            _FAIL,
            status=status,
            retryable=retryable,
            unread=unread,
            attempts=attempts,
            reason=plain(reason[:500]),
            again=now + pause if pause else 0.0,
            mtime=mtime,
            size=size,
            now=now,
            path=change.path,
            lsn=change.lsn,
            holder=holder,
        )

    def recover(self, *, holder: str) -> int:
        self._claimed()
        return self._base.do(_RECOVER, holder=holder)

    def retry_failed(self) -> int:
        count = self._base.do(_RETRY)
        if count and self.on_enqueue is not None:
            self.on_enqueue(("failed before",))
        return count

    # -- looking

    def failures(self) -> list[dict[str, Any]]:
        rows = (dict(zip(_FAILURE, row, strict=True)) for row in self._base.ask(_FAILURES))
        return [row | {"retryable": bool(row["retryable"])} for row in rows]

    def set_aside(self) -> list[dict[str, str]]:
        return [{"path": path, "trouble": trouble} for path, trouble in self._base.ask(_ASIDE)]

    def counts(self) -> QueueCounts:
        last = self.last_lsn()
        rows = self._base.ask(
            "SELECT status, count(*), min(since) FROM {changes} WHERE {mine} GROUP BY status"
        )
        found = {status: number for status, number, _ in rows}
        oldest = [since for status, _, since in rows if status in {"pending", "processing"}]
        return QueueCounts(
            pending=found.get("pending", 0) + found.get("processing", 0),
            done=found.get("done", 0),
            failed=found.get("failed", 0),
            last_lsn=last,
            applied_lsn=min(oldest) - 1 if oldest else last,
        )

    def waiting(self, lsn: int | None = None, within: Sequence[str] = ()) -> int:
        inside, values = self._inside(within)
        query = f"SELECT count(*) FROM {{changes}} WHERE {{mine}} AND {BUSY} AND since <= :lsn {inside}"
        [[count]] = self._base.ask(query, lsn=lsn if lsn is not None else 2**62, **values)
        return int(count)

    def known(self, paths: Sequence[str] | None = None, within: Sequence[str] = ()) -> Mapping[str, Known]:
        if paths is not None:
            rows = self._base.ask(_KNOWN + "{path} {among}", these=list(paths))
        else:
            inside, values = self._inside(within)
            # Under steady work what is gone, and indexed as gone, is far more than what is there.
            rows = self._base.ask(f"{_KNOWN}NOT ({_GONE}) {inside}", **values)
        return {path: Known(*seen[:5], *map(bool, seen[5:])) for path, *seen in rows}

    # -- keeping it small

    def maintain(self) -> None:
        before = self._when(self._clock.now() - TOMBSTONES_KEPT_FOR)
        self._base.do(_FORGET_OLD, before=before, most=TOMBSTONES_KEPT)

    def forget(self, paths: Sequence[str] | None = None) -> None:
        query = f"DELETE FROM {{changes}} WHERE {{mine}} AND {_GONE}"
        if paths is None:
            self._base.do(query)
        else:
            self._base.do(f"{query} AND {{path}} {{among}}", these=list(paths))


def plain(text: str) -> str:
    """PostgreSQL takes no NUL."""
    return text.replace("\0", " ")


# ---------------------------------------------------------------- on SQLite

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
_NAMES = {"changes": "md_change_state", "path": "md_path", "key": "md_path", "free": ""}
_QUEUE = (
    "INSERT INTO {changes} AS c (md_path, kind, change_type, mtime, first_seen_at, last_changed_at, lsn, since, status)"
    " VALUES (:path, :kind, :change_type, :mtime, :at, :at, :lsn, :lsn, 'pending')" + AGAIN
)


class SqliteBase(Base):
    """A SQLite file as a queue uses it, with the names of its tables."""

    def __init__(self, database: Database, names: Mapping[str, str]) -> None:
        self._db = database
        said = {**names, "mine": "TRUE", "among": "IN (SELECT value FROM json_each(:these))"}
        self._spelled = functools.cache(lambda query: query.format_map(said))

    def ask(self, query: str, **values: object) -> list[Any]:
        return self._db.read(lambda db: _Transaction(db, self._spelled).ask(query, **values))

    def work(self, work: Callable[[Statements], T], *, patience: float = BUSY_SECONDS) -> T:
        return self._db.write(lambda db: work(_Transaction(db, self._spelled)), patience=patience)


@dataclass(frozen=True, slots=True)
class _Transaction:
    db: sqlite3.Connection
    spelled: Callable[[str], str]

    def ask(self, query: str, **values: object) -> list[Any]:
        return self.db.execute(self.spelled(query), _bound(values)).fetchall()

    def do(self, query: str, *rows: Mapping[str, object]) -> int:
        return self.db.executemany(self.spelled(query), map(_bound, rows)).rowcount


def _bound(values: Mapping[str, object]) -> dict[str, object]:
    return {name: json.dumps(value) if isinstance(value, list) else value for name, value in values.items()}


class SqliteState(ChangeQueue):
    """The change queue of one index.

    Args:
        directory: The index directory; the file is `sqlite/system.db` below it.
        clock: Time for the stamps and the retry pauses.
    """

    def __init__(self, directory: Path, *, clock: Clock | None = None) -> None:
        self._db = Database(directory / "sqlite" / "system.db", _SCHEMA, version=3)
        super().__init__(SqliteBase(self._db, _NAMES), clock)
        self._glances: Remembered[Glance] = Remembered()

    def close(self) -> None:
        self._db.close()

    def scrub(self) -> bool:
        return self._db.scrub()

    def maintain(self) -> None:
        super().maintain()
        self._db.shrink()

    def _inside(self, within: Sequence[str]) -> tuple[str, dict[str, object]]:
        return beginning_with("md_path", within)

    def _when(self, at: datetime) -> object:
        return at.isoformat()

    # -- the queue

    def _put(self, changes: Sequence[Noticed]) -> int:
        at = self._when(self._clock.now())

        def put(base: Statements) -> int:
            [[lsn]] = base.ask("SELECT value FROM meta WHERE key = 'lsn'")
            lsn = max(int(lsn), self._lsn)
            rows = [
                {
                    "path": c.path,
                    "kind": c.kind,
                    "change_type": c.change_type,
                    "mtime": c.mtime,
                    "at": at,
                    "lsn": lsn + n,
                }
                for n, c in enumerate(changes, 1)
            ]
            base.do(_QUEUE, *rows)
            base.do("UPDATE meta SET value = :lsn WHERE key = 'lsn'", {"lsn": lsn + len(rows)})
            return int(lsn + len(rows))

        return self._base.work(put, patience=3.0)

    def claim(self, limit: int, *, holder: str, within: Sequence[str] = ()) -> list[Change]:
        inside, values = self._inside(within)
        query = f"SELECT 1 FROM {DUE} LIMIT 1".replace("{inside}", inside)
        due = self._base.ask(query, now=self._clock.now().timestamp(), **values)
        return super().claim(limit, holder=holder, within=within) if due else []

    # -- looking

    def _meta(self, key: str) -> Any:
        return self._base.ask("SELECT value FROM meta WHERE key = :key", key=key)[0][0]

    def last_lsn(self) -> int:
        return int(self._meta("lsn"))

    def data_version(self) -> tuple[int, int]:
        return self._db.stamp()

    def glance(self, within: Sequence[str] = ()) -> Glance:
        inside, values = self._inside(within)

        def ask(db: sqlite3.Connection) -> Glance:
            meta = dict(db.execute("SELECT key, value FROM meta").fetchall())
            oldest = db.execute(f"SELECT min(since) FROM md_change_state WHERE {BUSY}").fetchone()[0]
            waiting = db.execute(f"SELECT count(*) FROM md_change_state WHERE {BUSY}{inside}", values)
            failed = db.execute(
                f"SELECT md_path, error FROM md_change_state WHERE status = 'failed'{inside} ORDER BY md_path LIMIT :told",
                values | {"told": FAILURES_TOLD},
            )
            return Glance(
                int(meta["lsn"]) if oldest is None else int(oldest) - 1,
                int(waiting.fetchone()[0]),
                str(meta["ready_for"]),
                tuple((str(path), str(error or "")) for path, error in failed),
            )

        def look(last: Glance | None) -> Glance:
            found = self._db.read(ask)
            return last if last is not None and found == last else found

        return self._glances.get(self._db, tuple(within), look)

    # -- which index is complete

    def ready_for(self) -> str:
        return str(self._meta("ready_for"))

    def clear(self) -> str:
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
        # Kept in the queue itself, so that the note is gone with the changes it speaks of, and a later holder of
        # the lease knows whose scan it has before it. Only the queue that was cleared for the scan takes it.
        born = "SELECT ?, ? FROM birth WHERE generation = ?"

        def note(db: sqlite3.Connection) -> None:
            for key, value in (("rebuild_of", generation), ("rebuild_lsn", lsn)):
                db.execute(f"INSERT OR REPLACE INTO meta(key, value) {born}", (key, value, queue))

        self._db.write(note)

    def has_scan(self, generation: str) -> bool:
        query = "SELECT 1 FROM meta WHERE key = 'rebuild_of' AND value = :generation"
        return bool(self._base.ask(query, generation=generation))

    def set_ready(self, generation: str) -> bool:
        complete = (
            "EXISTS (SELECT 1 FROM meta WHERE key = 'rebuild_of' AND value = ?) AND NOT EXISTS (SELECT 1 FROM"
            f" md_change_state WHERE {BUSY}"
            " AND since <= (SELECT value FROM meta WHERE key = 'rebuild_lsn'))"
        )
        update = f"UPDATE meta SET value = ? WHERE key = 'ready_for' AND {complete}"
        if self._db.read(lambda db: db.execute(f"SELECT {complete}", (generation,)).fetchone()[0]):
            return bool(self._db.write(lambda db: db.execute(update, (generation, generation)).rowcount))
        return False
