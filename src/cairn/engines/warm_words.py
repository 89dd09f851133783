"""The words of a scope's rows, held in memory and kept up to date by version.

Full-text search on disk costs tens of milliseconds where a common word matches thousands of rows; the same sum
over arrays costs less than one. A question costs one look at the version of the scope's words; where it moved,
only rows with a newer one are read. A vector that arrives moves nothing here.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import OrderedDict

from cairn.engines.database import Database, Unchanged
from cairn.index.postings import Postings
from cairn.types import Scope


class WarmWords:
    """A bounded set of scopes' postings."""

    def __init__(self, database: Database, *, memory_bytes: int) -> None:
        self._db = database
        self._memory_bytes = memory_bytes
        self._held: OrderedDict[Scope, _Held] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, scope: Scope) -> Postings:
        """The current postings of `scope`."""
        with self._lock:
            held = self._held.setdefault(scope, _Held(scope))
            self._held.move_to_end(scope)
        postings = held.refreshed(self._db)
        with self._lock:
            while sum(one.bytes for one in self._held.values()) > self._memory_bytes and len(self._held) > 1:
                self._held.popitem(last=False)
        return postings


class _Held:
    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._lock = threading.Lock()
        self._unchanged = Unchanged()
        self._state: tuple[str, int, Postings] = ("", -1, Postings())
        self.bytes = 0

    def refreshed(self, db: Database) -> Postings:
        # Reading first: a damaged file is noticed and replaced there, and only then has a generation.
        stamp = db.stamp()
        generation, held = db.generation, self._state
        if held[0] == generation and (self._unchanged.holds(stamp) or db.read(self._version)[1] == held[1]):
            self._unchanged.note(stamp)
            return held[2]
        with self._lock:
            version, postings = db.read(lambda connection: self._load(connection, generation))
            self._state = (generation, version, postings)
            self._unchanged.note(stamp)
            self.bytes = postings.nbytes
        return postings

    def _version(self, db: sqlite3.Connection) -> tuple[int, int]:
        scope = self._scope
        found = db.execute(
            "SELECT id, worded FROM scopes WHERE app = ? AND project = ? AND track = ? AND owner = ?",
            (scope.space.app, scope.space.project, scope.track, scope.owner),
        ).fetchone()
        return (int(found[0]), int(found[1])) if found else (-1, 0)

    def _load(self, db: sqlite3.Connection, generation: str) -> tuple[int, Postings]:
        """What changed since the held postings (everything without them), worked in; one snapshot."""
        db.execute("BEGIN")
        try:
            number, version = self._version(db)
            held, since, postings = self._state
            if held != generation:
                since, postings = -1, Postings()
            if (
                since >= 0
                and int(db.execute("SELECT value FROM meta WHERE key = 'trimmed'").fetchone()[0]) > since
            ):
                since, postings = -1, Postings()
            rows = db.execute(
                "SELECT id, kind, words FROM rows WHERE scope_id = ? AND version > ? AND worded > ? ORDER BY id",
                (number, since, since),
            ).fetchall()
            gone = (
                db.execute(
                    "SELECT id FROM gone WHERE scope_id = ? AND version > ?", (number, since)
                ).fetchall()
                if since >= 0
                else []
            )
        finally:
            db.execute("COMMIT")
        # A row that has no words any more leaves, as one that was removed does.
        wordless = [row[0] for row in rows if not row[2]] if since >= 0 else []
        return version, postings.updated([row for row in rows if row[2]], [row[0] for row in gone] + wordless)
