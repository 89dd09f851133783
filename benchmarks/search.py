"""How fast search is, beside what the arithmetic and a bare full-text table cost in the same run.

Rows of one owner are put straight into the index: a quarter messages, facts and episodes of generated talk, with
random vectors. Every query is new, so the local model embeds each (where it is installed). `--large` adds 100,000
rows (a few minutes); `--sizes 1000,10000` chooses the sizes. Each size is measured in a process of its own.
"""

from __future__ import annotations

import argparse
import multiprocessing
import resource
import shutil
import sqlite3
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from cairn import config
from cairn.engines.embedders import HashingEmbedder, choose
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Row
from cairn.index.rows import NewRow
from cairn.language.words import tokens
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.search import Searcher
from cairn.seams import SystemClock
from cairn.types import Scope, Space

OWNER = Scope(Space(), "user", "bench")
QUERIES = 60
CLIENTS = (1, 2, 4, 8, 16, 32)


class Talk:
    """Made-up talk: words as frequent as words are (Zipf), the same on every run."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(1)
        letters = np.array(list("abcdefghijklmnopqrstuvwxyz"))
        self.words = [
            "".join(self.random.choice(letters, size)) for size in self.random.integers(3, 9, 20_000)
        ]
        weights = 1 / np.arange(10, 20_010)
        self.weights = weights / weights.sum()

    def text(self, size: int) -> str:
        return " ".join(self.words[i] for i in self.random.choice(len(self.words), size, p=self.weights))


def rows_of(talk: Talk, count: int) -> list[NewRow]:
    made = []
    for n in range(count):
        session, kind = (
            f"s{n // 20}",
            "episode" if n % 20 == 0 else ("message" if n % 20 < 11 else "atomic_fact"),
        )
        text = talk.text(120 if kind == "episode" else 25)
        row = Row(
            rowid=0,
            kind=kind,
            scope=OWNER,
            entry_id=f"{kind}_{n}",
            path=f"{session}.md",
            text=text,
            timestamp_ms=1_760_000_000_000 + n * 60_000,
            session_id=session,
            cell_id=f"mc_{session}" if kind != "atomic_fact" else None,
            parent_type="episode" if kind == "atomic_fact" else "memcell",
            parent_id=f"episode_{n - n % 20}" if kind == "atomic_fact" else f"mc_{session}",
            sender_ids=("ana" if n % 2 else "bo",),
            sender_name="Ana" if n % 2 else "Bo",
            ordinal=n % 20,
            fields={"Content": text},
        )
        made.append(NewRow(row, str(n).encode()))
    return made


def timed(call: Callable[[str], object], queries: Sequence[str]) -> float:
    """Median milliseconds of one call."""
    spent = []
    for query in queries:
        began = time.perf_counter()
        call(query)
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks search")
    usual = "1000" if args.quick else "1000,10000,100000" if args.large else "1000,10000"
    parser.add_argument("--sizes", default=usual)
    sizes = [int(size) for size in parser.parse_args(args.rest).sizes.split(",")]
    figures: dict[str, Any] = {}
    for size in sizes:  # memory is only told apart in a fresh process
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            figures[str(size)] = pool.submit(measure, size).result()
    print(f"{'':36}" + "".join(f"{size:>12}" for size in figures))
    for name, value in next(iter(figures.values())).items():
        for part in [""] if not isinstance(value, dict) else value:
            found = [figure[name][part] if part else figure[name] for figure in figures.values()]
            print(f"{name + (': ' + part if part else ''):36}" + "".join(f"{one:>12.2f}" for one in found))
    return figures


def measure(size: int) -> dict[str, Any]:
    folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
    settings = config.load(folder, environ={})
    embedder = choose(settings) or HashingEmbedder(384)
    index = SqliteIndex(folder / ".index", memory_rows=max(settings.index.memory_rows, size))
    index.begin_model(embedder.id)
    talk = Talk()
    rows = rows_of(talk, size)
    matrix = talk.random.standard_normal((size, embedder.dimensions)).astype(np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    for start in range(0, size, 2000):
        index.apply(rows[start : start + 2000])
        waiting = index.pending(4000)
        index.put_vectors(waiting, {one.key: matrix[one.rowid % size] for one in waiting})
    searcher = Searcher(index, settings=settings, clock=SystemClock(), embedder=lambda: embedder)

    def ask(method: str, evidence: int = 10) -> Callable[[str], object]:
        return lambda query: searcher.search(
            SearchRequest(query, user_id="bench", method=method, evidence=evidence)
        )

    def queries() -> list[str]:
        return [talk.text(6) for _ in range(QUERIES)]

    began = time.perf_counter()
    ask("hybrid")(talk.text(6))
    first = (time.perf_counter() - began) * 1000
    floor = sqlite3.connect(":memory:")
    floor.execute("CREATE VIRTUAL TABLE t USING fts5(body)")
    floor.executemany("INSERT INTO t VALUES (?)", [(" ".join(tokens(new.row.text)),) for new in rows])

    def bare(query: str) -> object:
        terms = " OR ".join(f'"{token}"' for token in tokens(query))
        return floor.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10", (terms,)
        ).fetchall()

    def product(_: str) -> object:
        return np.argpartition(-(matrix @ matrix[0]), 10)[:10]

    out: dict[str, Any] = {
        "first hybrid, loading (ms)": first,
        "keyword (ms)": timed(ask("keyword"), queries()),
        "vector (ms)": timed(ask("vector"), queries()),
        "hybrid (ms)": timed(ask("hybrid"), queries()),
        "hybrid, question asked before (ms)": timed(ask("hybrid"), [talk.text(6)] * QUERIES),
        "4,000-word question (ms)": timed(ask("hybrid"), [talk.text(4000) for _ in range(5)]),
        "embedding the question alone (ms)": timed(lambda q: embedder.embed([q]), queries()),
        "floor: bare FTS5, top 10 (ms)": timed(bare, queries()),
        "floor: matrix product, top 10 (ms)": timed(product, queries()),
    }
    asked = {
        str(count): _together(ask("hybrid"), queries() * (4 if size <= 10_000 else 1), count)
        for count in CLIENTS
    }
    out["hybrid queries/s by clients"] = {count: round(rate, 1) for count, rate in asked.items()}
    out["hybrid queries/s, 8 clients"] = asked["8"]
    out["peak memory of the process (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    index.close()
    floor.close()
    shutil.rmtree(folder, ignore_errors=True)
    return out


def _together(call: Callable[[str], object], queries: list[str], clients: int) -> float:
    """Queries per second that several threads get through together."""
    left = list(enumerate(queries))
    lock = threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not left:
                    return
                number, query = left.pop()
            call(f"{query} {number}x{clients}")

    threads = [threading.Thread(target=work) for _ in range(clients)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return len(queries) / (time.perf_counter() - began)
