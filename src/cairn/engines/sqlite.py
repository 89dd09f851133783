"""Queues on SQLite, and the change queue in it: `md_change_state` in `.index/sqlite/system.db`.

One row per path; the statements are those of `changes.py`. The file may be deleted while in use: what is lost is
a list of work that a scan of the notes finds again, so no caller is ever refused because of it.
"""

from __future__ import annotations

import functools
import json
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from cairn.engines.changes import AGAIN, BUSY, DUE, FAILURES_TOLD, Base, ChangeQueue, Statements
from cairn.engines.database import BUSY_SECONDS, Database, Unchanged, beginning_with
from cairn.seams import Clock, Glance, Noticed
from cairn.types import Change

T = TypeVar("T")
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
_GLANCES_KEPT = 256
_NAMES = {
    "changes": "md_change_state",
    "path": "md_path",
    "key": "md_path",
    "free": "",
}
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

    def take(self, query: str, **values: object) -> list[Any]:
        return self._db.write(lambda db: _Transaction(db, self._spelled).ask(query, **values))

    def work(self, work: Callable[[Statements], T], *, patience: float = BUSY_SECONDS) -> T:
        return self._db.write(lambda db: work(_Transaction(db, self._spelled)), patience=patience)


class _Transaction:
    def __init__(self, db: sqlite3.Connection, spelled: Callable[[str], str]) -> None:
        self._db, self._spelled = db, spelled

    def ask(self, query: str, **values: object) -> list[Any]:
        return self._db.execute(self._spelled(query), _bound(values)).fetchall()

    def do(self, query: str, *rows: Mapping[str, object]) -> int:
        return self._db.executemany(self._spelled(query), map(_bound, rows)).rowcount


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
        self._glances: dict[tuple[str, ...], tuple[Unchanged, Glance]] = {}

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

        return self._db.read(ask)

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
