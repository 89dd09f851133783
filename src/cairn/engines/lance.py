"""The vector index on LanceDB: a follower of the rows, for scopes too large to hold in memory.

`.index/lancedb/entries.lance` mirrors every row that has a vector, in batches, behind a watermark: the version
up to which it has followed. It is never asked for the truth: it may be late, broken or missing.

Following happens in a process of its own (`python -m cairn.engines.lance DIRECTORY`): importing LanceDB costs
seconds and over 100 MB, which the service should not pay for something that runs now and then.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

from cairn.engines.rows import SqliteIndex

_log = logging.getLogger(__name__)

TABLE = "entries"
_BATCH = 5000
_INDEX_ROWS = 50_000
_OPTIMIZE_ROWS = 2000
_OPTIMIZE_FRAGMENTS = 20
# Old versions live this long: a reader in another process may still be in one of them.
_KEEP_SECONDS = 60.0


class LanceMirror:
    """The mirror as readers and its writer see it.

    Args:
        directory: The index directory; the mirror is in `lancedb/` below it.
    """

    def __init__(self, directory: Path, *, index_rows: int = _INDEX_ROWS) -> None:
        self._folder = directory / "lancedb"
        self._index_rows = index_rows
        self._lancedb: Any = None

    def watermark(self) -> dict[str, Any]:
        """How far the mirror has followed, and of what; empty where there is none."""
        try:
            found = json.loads((self._folder / "mirror.json").read_text("utf-8"))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    # ---- the writer ---------------------------------------------------------------------------------------------

    def follow(self, index: SqliteIndex) -> int:
        """Bring the mirror up to the index's version; returns how many rows were written or removed."""
        # Before the lock: importing takes seconds on a busy machine, and a scrub waits for the lock.
        self._lancedb = self._lancedb or _imported()
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            return 0
        try:
            return self._follow(index)
        finally:
            os.close(lock)

    def scrub(self, seconds: float = 30.0) -> bool:
        """Remove the mirror's data, for `forget`; a follower makes it anew from the rows. False if one held on."""
        if not self._folder.exists():
            return True
        lock = os.open(self._folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
        until = time.monotonic() + seconds
        try:
            while True:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                except BlockingIOError:
                    if time.monotonic() > until:
                        return False
                    time.sleep(0.05)
            (self._folder / "mirror.json").unlink(missing_ok=True)
            shutil.rmtree(self._folder / f"{TABLE}.lance", ignore_errors=True)
            return not (self._folder / f"{TABLE}.lance").exists()
        finally:
            os.close(lock)

    def _follow(self, index: SqliteIndex) -> int:
        mark = self.watermark()
        model = index.wanted_model()
        if not model:
            return 0
        fits = mark.get("generation") == index.generation and mark.get("model") == model
        if not fits or index.trimmed_version() > int(mark.get("version", 0)) or not self._readable():
            mark = self._restart(index.generation, model)
        done = 0
        while True:
            upto, rows, gone = index.since(int(mark["version"]), model, _BATCH)
            if upto == mark["version"]:
                break
            table = self._lancedb.connect(self._folder)
            self._write(table, rows, [row["id"] for row in rows if row["id"] <= mark["highest"]] + gone)
            mark |= {
                "version": upto,
                "highest": max([mark["highest"], *(row["id"] for row in rows)]),
                "unindexed": mark["unindexed"] + len(rows) + len(gone),
            }
            self._save(mark)
            done += len(rows) + len(gone)
        self._optimize(mark)
        return done

    def _readable(self) -> bool:
        try:
            if not (self._folder / f"{TABLE}.lance").exists():
                return int(self.watermark().get("highest", 0)) == 0
            self._lancedb.connect(self._folder).open_table(TABLE).search().select(["id"]).limit(1).to_arrow()
        except Exception as error:
            _log.warning("The vector mirror cannot be read and is made anew: %s", error)
            return False
        return True

    def _restart(self, generation: str, model: str) -> dict[str, Any]:
        (self._folder / "mirror.json").unlink(missing_ok=True)
        shutil.rmtree(self._folder / f"{TABLE}.lance", ignore_errors=True)
        mark = {"generation": generation, "model": model, "version": 0, "highest": 0, "unindexed": 0}
        return mark | {"birth": f"{time.time_ns()}", "prune_at": 0.0}

    def _save(self, mark: Mapping[str, Any]) -> None:
        fresh = self._folder / f".mirror.json.tmp.{os.getpid()}"
        fresh.write_text(json.dumps(mark), "utf-8")
        fresh.replace(self._folder / "mirror.json")

    def _write(self, connection: Any, rows: Sequence[Mapping[str, Any]], stale: Sequence[int]) -> None:
        import pyarrow as pa
        from lancedb.index import Bitmap, BTree

        there = (self._folder / f"{TABLE}.lance").exists()
        table = connection.open_table(TABLE) if there else None
        if table is not None:
            for start in range(0, len(stale), 1000):
                table.delete(f"id IN ({', '.join(map(str, stale[start : start + 1000]))})")
        if not rows:
            return
        size = len(rows[0]["vector"])
        text = pa.string()
        schema = pa.schema(
            [
                ("id", pa.int64()),
                *((name, text) for name in ("app", "project", "track", "owner", "kind", "session")),
                ("timestamp_ms", pa.int64()),
                ("tokens", text),
                ("key", text),
                ("model", text),
                ("vector", pa.list_(pa.float32(), size)),
            ]
        )
        data = pa.Table.from_pylist(list(rows), schema=schema)
        if table is not None:
            table.add(data)
            return
        table = connection.create_table(TABLE, data)
        for column in ("app", "project", "track", "owner", "kind"):
            table.create_index(column, config=Bitmap())
        for column in ("id", "timestamp_ms"):
            table.create_index(column, config=BTree())

    def _optimize(self, mark: dict[str, Any]) -> None:
        """Compact by what was written since, index vectors once they are many, and drop old versions."""
        if not (self._folder / f"{TABLE}.lance").exists():
            return
        table = self._lancedb.connect(self._folder).open_table(TABLE)
        count = table.count_rows()
        indexed = any(index.columns == ["vector"] for index in table.list_indices())
        if count >= self._index_rows and not indexed:
            from lancedb.index import IvfSq

            table.create_index("vector", config=IvfSq(distance_type="cosine"))
        fragments = table.stats()["fragment_stats"]["num_fragments"]
        prune = bool(mark["prune_at"]) and time.time() >= mark["prune_at"]
        if mark["unindexed"] >= _OPTIMIZE_ROWS or fragments >= _OPTIMIZE_FRAGMENTS or prune:
            table.optimize(cleanup_older_than=timedelta(seconds=_KEEP_SECONDS))
            # What this made old can be dropped only later, when no reader can be in it.
            self._save(mark | {"unindexed": 0, "prune_at": 0.0 if prune else time.time() + 2 * _KEEP_SECONDS})


class MirrorProcess:
    """Starts a follower when one is due; the daemon calls it now and then.

    Due are `many` rows at once, any row once nothing changed for `idle_seconds`, and old versions that can be
    dropped. One follower at a time, and none before `apart_seconds` have passed since the last began.
    """

    def __init__(
        self,
        directory: Path,
        index: SqliteIndex,
        mirror: LanceMirror,
        *,
        many: int = 1000,
        idle_seconds: float = 15.0,
        apart_seconds: float = 30.0,
    ) -> None:
        self._directory = directory
        self._index = index
        self._mirror = mirror
        self._many = many
        self._idle_seconds = idle_seconds
        self._apart_seconds = apart_seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._began = float("-inf")
        self._version = -1
        self._moved_at = 0.0

    def __call__(self) -> None:
        """Start a follower if one is due and none is running."""
        if self._process is not None:
            if self._process.poll() is None:
                return
            self._process = None
        if self._is_due():
            self._began = time.monotonic()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "cairn.engines.lance", str(self._directory)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def _is_due(self) -> bool:
        now = time.monotonic()
        version = self._index.version()
        if version != self._version:
            self._version, self._moved_at = version, now
        if now - self._began < self._apart_seconds or not self._index.wanted_model():
            return False
        mark = self._mirror.watermark()
        if mark.get("prune_at") and time.time() >= mark["prune_at"]:
            return True
        behind = mark.get("version", 0) if mark.get("generation") == self._index.generation else 0
        if version == behind:
            return False
        waiting = self._index.changed_count(behind)
        return waiting >= self._many or (waiting > 0 and now - self._moved_at >= self._idle_seconds)

    def stop(self) -> None:
        """End a running follower; what it committed stays, what it did not is done again."""
        process, self._process = self._process, None
        if process is not None and process.poll() is None:
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(5)
            if process.poll() is None:
                process.kill()
                process.wait()


def _imported() -> Any:
    # Without this LanceDB writes a warning to the terminal for each query.
    os.environ.setdefault("LANCEDB_LOG", "error")
    import lancedb

    return lancedb


def main(argv: Sequence[str]) -> int:
    """Follow once, at low priority."""
    os.umask(0o077)  # a process of our own: LanceDB names no mode for the files it makes
    with suppress(OSError):
        os.nice(10)
    directory = Path(argv[1])
    index = SqliteIndex(directory)
    try:
        LanceMirror(directory).follow(index)
    finally:
        index.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
