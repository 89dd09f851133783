"""The index: queue, rows, vectors, rebuild, and how soon a write or an edit is found.

An embedder that costs nothing shows the index's own speed; with a real one, embedding decides.
"""

from __future__ import annotations

import argparse
import random
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from cairn.daemon import Daemon
from cairn.engines.bytescan import size_of
from cairn.engines.changes import SqliteState
from cairn.engines.files import DeviceLocalBackend
from cairn.engines.journals import FileJournals
from cairn.engines.locks import FileLocks
from cairn.engines.rows import SqliteIndex
from cairn.engines.watching import TreeWatch
from cairn.language.words import tokens
from cairn.notes.notebook import Draft, Notebook
from cairn.retrieval.indexer import Indexer
from cairn.seams import Embedder, Noticed
from cairn.talk.sessions import SessionLog
from cairn.types import Scope, Space

OWNER = Scope(Space(), "user", "bench")


class FreeEmbedder(Embedder):
    """Vectors at no cost."""

    id = "free/384"
    dimensions = 384

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        made = np.zeros((len(texts), self.dimensions), np.float32)
        made[:, 0] = 1.0
        return made


class Parts:
    """A root with everything up to its rows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = SqliteState(folder / ".index")
        self.index = SqliteIndex(folder / ".index")
        self.embedder = FreeEmbedder()
        storage, locks = DeviceLocalBackend(folder), FileLocks(folder / ".tmp" / "locks")
        self.indexer = Indexer(
            storage=storage,
            sessions=SessionLog(FileJournals(folder)),
            locks=locks,
            queue=self.state,
            index=self.index,
            embedder=lambda: self.embedder,
        )
        self.notebook = Notebook(storage, locks, on_change=self.indexer.note_change)

    def found(self, word: str) -> bool:
        return bool(self.index.frequencies(OWNER, tokens(word)))

    def close(self) -> None:
        self.state.close()
        self.index.close()


def draft(rng: random.Random, number: int, extra: str = "") -> Draft:
    said = " ".join(f"word{int(rng.paretovariate(1.1)) % 20000}" for _ in range(60))
    return Draft(
        {
            "owner_id": "bench",
            "session_id": f"s{number % 50}",
            "timestamp": "2026-06-01T10:00:00+00:00",
            "parent_type": "memcell",
            "parent_id": f"mc_{number:012x}",
            "sender_ids": ["bench", "bot"],
        },
        {"Subject": said[:60], "Summary": said[:200], "Content": f"{extra} {said}"},
    )


def run(args: argparse.Namespace) -> dict[str, float]:
    """Print and return the figures: rates per second, lags in milliseconds, sizes in bytes."""
    entries = 1000 if args.quick else 10_000
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    parts = Parts(folder)
    try:
        figures = {**_queue(parts), **_bulk(parts, entries), **_lags(parts, 10 if args.quick else 40)}
    finally:
        parts.close()
        shutil.rmtree(folder)
    for name, value in figures.items():
        print(f"{name:38} {value:12,.2f}")
    return figures


def _queue(parts: Parts) -> dict[str, float]:
    begin = time.perf_counter()
    for start in range(0, 5000, 50):
        parts.state.enqueue(
            [Noticed(f"a/b/users/q/episodes/{start + n}", "episode", "added") for n in range(50)]
        )
    while claimed := parts.state.claim(50, holder="bench"):
        parts.state.finish(claimed, holder="bench", seen={})
    rate = 5000 / (time.perf_counter() - begin)
    parts.state.clear()
    return {"queue_changes_per_second": rate}


def _bulk(parts: Parts, entries: int) -> dict[str, float]:
    rng = random.Random(1)
    for day in range(20):
        drafts = [draft(rng, n) for n in range(entries // 20)]
        parts.notebook.append("episode", OWNER, f"2026-05-{day + 1:02}", drafts)
    figures = {}
    with parts.indexer.lease():
        parts.indexer.begin()
        begin = time.perf_counter()
        parts.indexer.drain()
        figures["rows_per_second"] = entries / (time.perf_counter() - begin)
        begin = time.perf_counter()
        while parts.indexer.embed():
            pass
        figures["vectors_kept_per_second"] = entries / (time.perf_counter() - begin)
    shutil.rmtree(parts.folder / ".index")
    with parts.indexer.lease():
        begin = time.perf_counter()
        parts.indexer.begin()
        parts.indexer.drain()
        while parts.indexer.embed():
            pass
        figures["rebuild_entries_per_second"] = entries / (time.perf_counter() - begin)
        parts.indexer.maintain()
    begin = time.perf_counter()
    parts.index.corpus(OWNER)
    figures["corpus_load_ms"] = (time.perf_counter() - begin) * 1000
    begin = time.perf_counter()
    parts.indexer.scan()
    figures["scan_ms"] = (time.perf_counter() - begin) * 1000
    markdown = sum(file.stat().st_size for file in parts.folder.rglob("*.md"))
    figures["index_bytes_per_markdown_byte"] = size_of(parts.folder / ".index") / markdown
    return figures


def _lags(parts: Parts, rounds: int) -> dict[str, float]:
    daemon = Daemon(parts.indexer, parts.state, watch=TreeWatch(parts.folder))
    daemon.start()
    rng = random.Random(2)
    try:
        while not daemon.health()["watching"]:
            time.sleep(0.01)
        time.sleep(0.5)
        writes, edits = [], []
        for number in range(rounds):
            word = f"fresh{number}x"
            parts.notebook.append("episode", OWNER, "2026-05-01", [draft(rng, number, word)])
            writes.append(_until(lambda word=word: parts.found(word)))
        file = next(parts.folder.rglob("episode-2026-05-02.md"))
        for number in range(rounds):
            word = f"edited{number}x"
            file.write_text(file.read_text().replace("### Content\n", f"### Content\n{word} ", 1))
            edits.append(_until(lambda word=word: parts.found(word)))
    finally:
        daemon.stop()
    return {
        "write_to_searchable_ms_p50": statistics.median(writes),
        "write_to_searchable_ms_p95": statistics.quantiles(writes, n=20)[-1],
        "edit_to_searchable_ms_p50": statistics.median(edits),
        "edit_to_searchable_ms_p95": statistics.quantiles(edits, n=20)[-1],
    }


def _until(true: Callable[[], bool]) -> float:
    begin = time.perf_counter()
    while not true():
        if time.perf_counter() - begin > 30:
            raise TimeoutError("what was written is not found")
        time.sleep(0.001)
    return (time.perf_counter() - begin) * 1000
