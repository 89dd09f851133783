"""`.index/sqlite/memories.db`: governed memories as tables for other programs to read. Derived and disposable."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

from cairn.errors import Unavailable
from cairn.seams import Locks

_LOCK = "memory tables"


class MemoryTables:
    """The tables of one root. Nothing of ours reads them; they are brought up to date by sweeps and syncs."""

    def __init__(self, directory: Path, locks: Locks) -> None:
        self._path = directory / "sqlite" / "memories.db"
        self._locks = locks

    def sync(self, write: Callable[[sqlite3.Connection], int]) -> int:
        """Let `write` bring the tables up to date; what it returns.

        Raises:
            Unavailable: the file could not be written, even made anew.
        """
        # One at a time, and not beside a scrub: what was read before it would be written after it.
        with self._locks.hold(_LOCK, timeout=60.0):
            return self._synced(write)

    def _synced(self, write: Callable[[sqlite3.Connection], int]) -> int:
        try:
            return self._sync(write)
        except sqlite3.DatabaseError:
            self._remove()  # broken, or half deleted: derived data is made again
            try:
                return self._sync(write)
            except (sqlite3.Error, OSError) as error:
                raise Unavailable(f"{self._path.name} cannot be written: {error}.") from error

    def _sync(self, write: Callable[[sqlite3.Connection], int]) -> int:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileExistsError):  # SQLite's own mode would be open to all; its logs take the file's
            os.close(os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        with closing(sqlite3.connect(self._path, timeout=15.0)) as db:
            db.execute("PRAGMA journal_mode=WAL")
            db.execute("PRAGMA synchronous=NORMAL")
            return write(db)

    def scrub(self) -> bool:
        """Remove the file with all its bytes, for `forget`; the next sync makes it anew. False if one held on."""
        try:
            with self._locks.hold(_LOCK, timeout=30.0):
                self._remove()
        except Unavailable:
            return False
        return True

    def _remove(self) -> None:
        for suffix in ("", "-wal", "-shm", "-journal"):
            Path(f"{self._path}{suffix}").unlink(missing_ok=True)
