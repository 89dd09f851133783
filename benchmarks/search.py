"""How fast search is from memory and from LanceDB, beside what the arithmetic and a bare full-text table cost.

Rows of one owner are put straight into an index: a twentieth episodes, half messages, the rest facts, of generated
talk, with vectors in 256 clusters. Every query is new, so the local model embeds each (where it is installed).
`--large` adds 100,000 and 1,000,000 rows (a quarter of an hour on a quiet machine); `--sizes 1000,10000` chooses the sizes, `--add` keeps what
an earlier run found of others; `--keep FOLDER` leaves the index of the last size there, and `--again FOLDER` measures it. Filling, memory and LanceDB run in a process each.
From `HELD` rows on only LanceDB is measured: that is what it is for.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import resource
import shutil
import sqlite3
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cairn import config
from cairn.engines.bytescan import size_of
from cairn.engines.embedders import HashingEmbedder, choose
from cairn.engines.lance import LanceTables
from cairn.engines.large import LargeIndex
from cairn.engines.quiet import alone
from cairn.engines.rows import SqliteIndex
from cairn.index.corpus import Ask, NewRow, Row, SearchIndex
from cairn.language.words import tokens
from cairn.retrieval.answers import SearchRequest
from cairn.retrieval.search import Searcher
from cairn.seams import Embedder, SystemClock
from cairn.types import Scope, Space

OWNER = Scope(Space(), "user", "bench")
QUERIES = 60
ASKED = 200  # of ten hits each: a figure of .98 is then right to half a hundredth
CLIENTS = (1, 2, 4, 8, 16, 32)
HELD = 200_000
KEPT = Path(__file__).parent.parent / "docs" / "benchmarks" / "search.json"
BEGAN = 1_760_000_000_000
BATCH = 10_000


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
        self.centres = self.random.standard_normal((256, 384)).astype(np.float32)

    def questions(self, count: int) -> list[str]:
        """Each with words the model has: one it knows nothing of would be asked by its words alone."""
        return [f"the garden and {text}" for text in self.texts([6] * count)]

    def question(self) -> str:
        return self.questions(1)[0]

    def texts(self, sizes: Sequence[int]) -> list[str]:
        drawn = iter(self.random.choice(len(self.words), sum(sizes), p=self.weights).tolist())
        return [" ".join(self.words[next(drawn)] for _ in range(size)) for size in sizes]

    def vectors(self, count: int, dimensions: int) -> np.ndarray:
        """Unit vectors around 256 centres, as far from theirs as texts of one topic are from each other."""
        made = self.centres[self.random.integers(0, 256, count), :dimensions]
        made = made + self.random.standard_normal((count, dimensions)).astype(np.float32)
        return np.asarray(made / np.linalg.norm(made, axis=1, keepdims=True), np.float32)


def rows_of(talk: Talk, start: int, count: int) -> list[NewRow]:
    numbers = range(start, start + count)
    kinds = ["episode" if n % 20 == 0 else ("message" if n % 20 < 11 else "atomic_fact") for n in numbers]
    texts = talk.texts([120 if kind == "episode" else 25 for kind in kinds])
    made = []
    for n, kind, text in zip(numbers, kinds, texts, strict=True):
        session, fact = f"s{n // 20}", kind == "atomic_fact"
        row = Row(
            rowid=0,
            kind=kind,
            scope=OWNER,
            entry_id=f"{kind}_{n}",
            path=f"{session}.md",
            text=text,
            timestamp_ms=BEGAN + n * 60_000,
            session_id=session,
            cell_id=None if fact else f"mc_{session}",
            parent_type="episode" if fact else "memcell",
            parent_id=f"episode_{n - n % 20}" if fact else f"mc_{session}",
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


def measured(what: str, call: Callable[[str], object], queries: Sequence[str]) -> dict[str, float]:
    """Median milliseconds of a call, and beside them the mean of its processor time: others' load is in the first only."""
    began = time.process_time()
    wall = timed(call, queries)
    return {
        f"{what} (ms)": wall,
        f"{what} (CPU ms)": (time.process_time() - began) * 1000 / len(queries),
    }


def run(args: argparse.Namespace) -> dict[str, Any]:
    parser = argparse.ArgumentParser(prog="benchmarks search")
    usual = "1000" if args.quick else "1000,10000,100000,1000000" if args.large else "1000,10000"
    parser.add_argument("--sizes", default=usual)
    parser.add_argument("--keep", help="leave the index of the last size in this folder")
    parser.add_argument("--again", help="measure an index that --keep left in this folder")
    parser.add_argument("--add", action="store_true", help="keep the figures of sizes measured before")
    given = parser.parse_args(args.rest)
    alone()  # for the processes that measure: they run as a server does
    figures: dict[str, Any] = {}
    if given.add and KEPT.exists():
        figures = json.loads(KEPT.read_text("utf-8"))["figures"]
    if given.again:
        size = _apart(rows_in, Path(given.again), 0)["rows"]
        figures[str(size)] = _measured_at(Path(given.again), size, folded)
    for size in [] if given.again else [int(size) for size in given.sizes.split(",")]:
        folder = Path(tempfile.mkdtemp(prefix="cairn-bench-"))
        try:
            figures[str(size)] = _measured_at(folder, size, filled)
            if given.keep:
                shutil.rmtree(given.keep, ignore_errors=True)
                shutil.move(folder, given.keep)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    figures = {size: figures[size] for size in sorted(figures, key=int)}
    print(f"{'':44}" + "".join(f"{size:>12}" for size in figures))
    for name in dict.fromkeys(name for figure in figures.values() for name in figure):
        found = [figure.get(name) for figure in figures.values()]
        if not any(isinstance(one, dict) for one in found):
            print(f"{name:44}" + "".join(f"{'' if one is None else f'{one:.2f}':>12}" for one in found))
    return figures


def _measured_at(folder: Path, size: int, made: Callable[[Path, int], dict[str, Any]]) -> dict[str, Any]:
    figures = _apart(made, folder, size)
    if size < HELD:
        figures |= _apart(from_memory, folder, size)
    return figures | _apart(from_lancedb, folder, size)


def _apart(work: Callable[[Path, int], dict[str, Any]], folder: Path, size: int) -> dict[str, Any]:
    """Memory is only told apart in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(work, folder, size).result()


def opened(folder: Path, size: int) -> tuple[SqliteIndex, Embedder, config.Settings]:
    settings = config.load(folder, environ={})
    embedder = choose(settings) or HashingEmbedder(384)
    index = SqliteIndex(folder / ".index", memory_rows=max(settings.index.memory_rows, size))
    index.begin_model(embedder.id)
    return index, embedder, settings


def filled(folder: Path, size: int) -> dict[str, Any]:
    """An index of `size` rows with their vectors, and the tables of LanceDB beside it."""
    index, embedder, _ = opened(folder, size)
    talk = Talk()
    spent, used, said = 0.0, 0.0, 0
    for start in range(0, size, BATCH):
        rows = rows_of(talk, start, min(BATCH, size - start))
        vectors = talk.vectors(len(rows), embedder.dimensions)
        said += sum(len(new.row.text) for new in rows)
        began, busy = time.perf_counter(), time.process_time()
        index.apply(rows)
        waiting = index.pending(BATCH)
        index.put_vectors(waiting, {one.key: vectors[n] for n, one in enumerate(waiting)})
        spent, used = spent + time.perf_counter() - began, used + time.process_time() - busy
    index.close()
    return {
        "rows indexed, vectors given (rows/s)": size / spent,
        "rows indexed, vectors given (rows per CPU second)": size / used,
        **folded(folder, size),
        "index bytes per byte of text and vectors": size_of(folder / ".index")
        / (said + 4.0 * size * embedder.dimensions),
    }


def folded(folder: Path, size: int) -> dict[str, Any]:
    """The tables of LanceDB beside the rows that are there."""
    index, _, _ = opened(folder, size)
    tables = LanceTables(folder / ".index")
    tables.load(wait=True)
    began, busy = time.perf_counter(), time.process_time()
    done = tables.fold(index)
    spent, used = time.perf_counter() - began, time.process_time() - busy
    index.maintain()
    index.close()
    return {
        "lancedb: rows folded in, indexes made (rows/s)": done / spent,
        "lancedb: rows folded in, indexes made (rows per CPU second)": done / used,
    }


def rows_in(folder: Path, size: int) -> dict[str, Any]:
    """How many rows an index has."""
    index, _, _ = opened(folder, size)
    rows = sum(sum(kinds.values()) for _, kinds in index.scopes())
    index.close()
    return {"rows": rows}


def questions(
    index: SearchIndex, rows: SqliteIndex, settings: config.Settings, embedder: Embedder
) -> Callable[..., Callable[[str], object]]:
    searcher = Searcher(
        index,
        settings=settings,
        clock=SystemClock(),
        embedder=lambda: embedder,
        one_look=rows.database.one_look,
    )

    def ask(method: str, **more: Any) -> Callable[[str], object]:
        return lambda query: searcher.search(SearchRequest(query, OWNER, method=method, evidence=10, **more))

    return ask


def from_memory(folder: Path, size: int) -> dict[str, Any]:
    index, embedder, settings = opened(folder, size)
    talk = Talk()
    ask = questions(index, index, settings, embedder)

    def queries() -> list[str]:
        return talk.questions(QUERIES)

    began = time.perf_counter()
    ask("hybrid")(talk.question())
    first = (time.perf_counter() - began) * 1000
    half = {"timestamp": {"gte": BEGAN + size // 2 * 60_000}}
    out: dict[str, Any] = {
        "first hybrid, loading (ms)": first,
        **measured("keyword", ask("keyword"), queries()),
        **measured("vector", ask("vector"), queries()),
        **measured("hybrid", ask("hybrid"), queries()),
        **measured("hybrid with a filter", ask("hybrid", filters=half), queries()),
        "hybrid, question asked before (ms)": timed(ask("hybrid"), talk.questions(1) * QUERIES),
        "4,000-word question (ms)": timed(
            ask("hybrid"), [f"the garden and {text}" for text in talk.texts([4000] * 5)]
        ),
        **measured("embedding the question alone", lambda q: embedder.embed([q]), queries()),
    }
    asked = {
        str(count): _together(ask("hybrid"), queries() * (4 if size <= 10_000 else 1), count)
        for count in CLIENTS
    }
    out["hybrid queries/s by clients"] = {count: round(rate, 1) for count, rate in asked.items()}
    out["hybrid queries/s, 8 clients"] = asked["8"]
    out["peak memory of the process (MB)"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return out | _floors(index, talk, queries)


def from_lancedb(folder: Path, size: int) -> dict[str, Any]:
    index, embedder, settings = opened(folder, size)
    tables = LanceTables(folder / ".index")
    talk = Talk()
    large = LargeIndex(index, tables)
    ask = questions(large, index, settings, embedder)

    def queries() -> list[str]:
        return talk.questions(QUERIES)

    embedder.embed(["loaded before the first question"])
    began = time.perf_counter()
    tables.load(wait=True)
    loading = (time.perf_counter() - began) * 1000
    began = time.perf_counter()
    ask("hybrid")(talk.question())
    first = (time.perf_counter() - began) * 1000
    half = {"timestamp": {"gte": BEGAN + size // 2 * 60_000}}
    session = {"session_id": f"s{size // 40}"}
    out = {
        "lancedb: loading it (ms)": loading,
        "lancedb: first hybrid (ms)": first,
        **measured("lancedb: keyword", ask("keyword"), queries()),
        **measured("lancedb: vector", ask("vector"), queries()),
        **measured("lancedb: hybrid", ask("hybrid"), queries()),
        **measured("lancedb: hybrid with a filter", ask("hybrid", filters=half), queries()),
        **measured("lancedb: hybrid within a session", ask("hybrid", filters=session), queries()),
        **_found_after(index, large, embedder, talk),
        "lancedb: peak memory of the process (MB)": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "lancedb: recall@10 of exact": _recall(index, large, talk, embedder.dimensions),
    }
    return out if size < HELD else out | _floors(index, talk, queries)


def _found_after(index: SqliteIndex, large: LargeIndex, embedder: Embedder, talk: Talk) -> dict[str, float]:
    """From a row to the answer that has it, by its words and its vector."""
    now = time.time_ns()  # an index that is measured again has what it was given before
    fresh = [new for number in range(20) for new in rows_of(talk, 10_000_001 + 20 * number, 1)]
    made = {f"{new.row.text} {now}": new for new in fresh}
    for text, new in made.items():
        made[text] = replace(new, row=replace(new.row, text=text, entry_id=f"{new.row.entry_id}_{now}"))
    vectors = iter(talk.vectors(len(made), embedder.dimensions))

    def written(text: str) -> None:
        vector = next(vectors)
        index.apply([made[text]])
        waiting = index.pending(1)
        index.put_vectors(waiting, {waiting[0].key: vector})
        found = large.legs(OWNER, Ask(terms=tokens(text)[:5], plain=vector, count=10))
        assert waiting[0].rowid in found.corpus.rowid

    return measured("lancedb: a row written is found", written, list(made))


def _recall(index: SqliteIndex, large: LargeIndex, talk: Talk, dimensions: int) -> float:
    """The share of the ten nearest messages that LanceDB finds, for questions that lie where texts do."""
    asked = talk.vectors(ASKED, dimensions)
    best: list[list[tuple[float, int]]] = [[] for _ in asked]
    messages = index.database.read(
        lambda db: {row[0] for row in db.execute("SELECT id FROM rows WHERE kind = 'message'")}
    )
    for rowids, vectors in index.stored_vectors(OWNER):
        kept = np.fromiter((int(rowid) in messages for rowid in rowids), bool, len(rowids))
        scores = vectors[kept] @ asked.T
        for n in range(len(asked)):
            top = np.argsort(-scores[:, n])[:10]
            pairs = zip(scores[top, n].tolist(), rowids[kept][top].tolist(), strict=True)
            best[n] = sorted([*best[n], *pairs], reverse=True)[:10]
    hit = 0
    for vector, exact in zip(asked, best, strict=True):
        found = set(large.legs(OWNER, Ask(plain=vector, count=10)).corpus.rowid.tolist())
        hit += sum(rowid in found for _, rowid in exact)
    return hit / (10 * len(asked))


def _floors(index: SqliteIndex, talk: Talk, queries: Callable[[], list[str]]) -> dict[str, float]:
    """A bare full-text table and a bare matrix product over the same rows."""
    floor = sqlite3.connect(":memory:")
    floor.execute("CREATE VIRTUAL TABLE t USING fts5(body)")
    texts = index.database.read(lambda db: db.execute("SELECT text FROM rows").fetchall())
    floor.executemany("INSERT INTO t VALUES (?)", texts)
    matrix = np.concatenate([vectors for _, vectors in index.stored_vectors(OWNER)])

    def bare(query: str) -> object:
        terms = " OR ".join(f'"{word}"' for word in query.split())
        return floor.execute(
            "SELECT rowid FROM t WHERE t MATCH ? ORDER BY rank LIMIT 10", (terms,)
        ).fetchall()

    def product(_: str) -> object:
        return np.argpartition(-(matrix @ matrix[0]), 10)[:10]

    del talk
    return {
        **measured("floor: bare FTS5, top 10", bare, queries()),
        **measured("floor: matrix product, top 10", product, queries()),
    }


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
    patience = sys.getswitchinterval()
    sys.setswitchinterval(0.0005)  # as the server has it
    began = time.perf_counter()
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return len(queries) / (time.perf_counter() - began)
    finally:
        sys.setswitchinterval(patience)
