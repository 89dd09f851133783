"""Taking forgotten words out of the index for good: rows, full text, vectors, and the pages SQLite keeps of them.

Deleting a row leaves its bytes in free pages, in the write-ahead log and in full-text segments. So after the
indexer has caught up with the notes, segments are merged, vectors without a row dropped, and the files written
anew. The vector mirror, which keeps old versions, is dropped and grows again from the rows.
"""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.engines.database import Database
from cairn.errors import Unavailable

if TYPE_CHECKING:
    from cairn.engines.rows import SqliteIndex
    from cairn.engines.sqlite import SqliteState

_PATIENCE = 20.0


def index_purger(
    index: SqliteIndex, state: SqliteState, index_dir: Path, catch_up: Callable[[], object]
) -> Callable[[object], int]:
    """A purge hook for `cairn.keeping.forget` over the embedded index."""
    return lambda _: purge_index(index.database, index._vectors, state._db, index_dir / "lancedb", catch_up)


def purge_index(
    index: Database, vectors: Database, queue: Database, mirror: Path, catch_up: Callable[[], object]
) -> int:
    """Bring the index up to date and leave no byte of what it dropped; returns how many files were written anew.

    Raises:
        Unavailable: a reader stood in the way for too long; asking again later is sensible.
    """
    catch_up()
    index.write(_merge_full_text)
    unused = index.read(
        lambda db: db.execute(
            "SELECT id FROM v.vectors WHERE key NOT IN (SELECT embed_key FROM rows)"
        ).fetchall()
    )
    if unused:
        vectors.write(lambda db: db.executemany("DELETE FROM vectors WHERE id = ?", unused))
    for database in (index, vectors, queue):
        _written_anew(database)
    if mirror.exists():
        shutil.rmtree(mirror, ignore_errors=True)
    return 3


def _merge_full_text(db: sqlite3.Connection) -> None:
    names = [
        row[0]
        for row in db.execute(
            "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL TABLE%USING fts5(%'"
        )
    ]
    for name in names:
        db.execute(f"INSERT INTO {name}({name}) VALUES ('optimize')")


def _written_anew(database: Database) -> None:
    """VACUUM the file and empty its log, waiting out readers."""
    late = time.monotonic() + _PATIENCE
    while True:
        with database._lock:
            database._living(database._current)
            assert database._writer is not None
            with contextlib.suppress(sqlite3.OperationalError):
                database._writer.execute("VACUUM main")
                busy, _, _ = database._writer.execute("PRAGMA main.wal_checkpoint(TRUNCATE)").fetchone()
                if not busy:
                    return
        if time.monotonic() > late:
            raise Unavailable(f"{database.path.name} could not be written anew: it is being read. Try again.")
        time.sleep(0.05)
