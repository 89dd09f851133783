"""Several processes on one root, each writing, indexing and reading, while some are killed and `.index` vanishes.

With the engine `lancedb` each of them also folds rows into the tables, and reads from these.

Run as a module it is one of those processes: `python -m tests.crash.index_harness ROOT NAME COUNT ENGINE`.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

from cairn.daemon import Daemon
from cairn.engines.lance import LanceTables
from cairn.engines.large import Answering, LargeIndex
from cairn.engines.watching import TreeWatch
from cairn.index.corpus import Ask, Moved
from cairn.types import Scope, Space
from tests.waiting import LONG
from tests.world import Indexed

_ROWS = 5000  # more than there are: what is missing is missing from the tables
OWNERS = [Scope(Space(), "user", name) for name in ("alice", "bob", "carol")]


class Tables:
    """The tables of a root and what answers from them; each kind counts as too large to be looked at whole."""

    def __init__(self, world: Indexed) -> None:
        self._world = world
        self._tables = LanceTables(world.folder / ".index", index_rows=60)
        self._tables.load(wait=True)
        large = LargeIndex(world.index, self._tables, whole_rows=0, best=_ROWS)
        self._answering = Answering(world.index, self._tables, engine="lancedb", memory_rows=0, large=large)

    def fold(self) -> None:
        self._tables.fold(self._world.index)

    def said(self, scope: Scope) -> tuple[set[str], bool]:
        """The last words of all episodes that hold "common", and whether the tables gave them."""
        while True:
            index = self._answering(scope)
            try:
                found = index.legs(scope, Ask(terms=("common",)))
            except Moved:
                continue
            rows = index.rows(scope, found.corpus.rowid[found.passing & (found.bm25 > 0)].tolist())
            return {row.text.split()[-1] for row in rows}, isinstance(index, LargeIndex)


def work(root: Path, name: str, count: int, engine: str) -> int:
    """Write `count` entries, printing each word that was acknowledged; read all the while. 1 on any error."""
    world = Indexed(root)
    daemon = Daemon(world.indexer, world.state, watch=TreeWatch(root), scan_seconds=2.0)
    daemon.start()
    done = threading.Event()
    errors: list[str] = []
    tables = Tables(world) if engine == "lancedb" else None

    def read() -> None:
        turn = 0
        while not done.is_set():
            turn += 1
            try:
                if tables is not None and turn % 10 == 0:
                    tables.fold()
                for scope in OWNERS:
                    world.hits("common", scope)
                    if tables is not None:
                        tables.said(scope)
                    corpus = world.index.corpus(scope)
                    assert len(corpus.rowid) == len(corpus.has_vector)
                world.indexer.status()
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")
            time.sleep(0.01)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(count):
            word = f"{name}n{number}"
            world.episode(f"common words of {word}", OWNERS[number % 3], f"2026-06-{number % 4 + 1:02}")
            print(word, flush=True)
    except Exception as error:
        errors.append(f"{type(error).__name__}: {error}")
    done.set()
    reader.join()
    daemon.stop()
    world.close()
    for error in errors:
        print(f"ERROR {error}", flush=True)
    return 1 if errors else 0


class Worker:
    """One writing process and the words it was promised."""

    def __init__(self, root: Path, name: str, count: int, engine: str) -> None:
        self.promised: list[str] = []
        self.errors: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.index_harness", str(root), name, str(count), engine],
            stdout=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.endswith("\n"):
                (self.errors if line.startswith("ERROR") else self.promised).append(line.strip())
        self.process.stdout.close()

    def finish(self, *, kill: bool = False) -> None:
        if kill:
            self.process.kill()
        self.process.wait(LONG)
        self._reader.join()


def run(
    root: Path, *, processes: int, writes: int, kills: int, removals: int, seed: int, engine: str = "memory"
) -> dict[str, int]:
    """Let them run and see what is left. Raises when a call failed, a promise was lost, or a row was doubled."""
    rng = random.Random(seed)
    workers = [Worker(root, f"p{number}", writes, engine) for number in range(processes)]
    everyone = list(workers)
    faults = ["kill"] * kills + ["remove"] * removals
    rng.shuffle(faults)
    for number, fault in enumerate(faults):
        time.sleep(rng.uniform(0.1, 0.5))
        if fault == "remove":
            shutil.rmtree(root / ".index", ignore_errors=True)
            continue
        victim = rng.choice(workers)
        workers.remove(victim)
        victim.finish(kill=True)
        workers.append(Worker(root, f"k{number}", writes, engine))
        everyone.append(workers[-1])
    for worker in workers:
        worker.finish()
    errors = [error for worker in everyone for error in worker.errors]
    promised = [word for worker in everyone for word in worker.promised]
    world = Indexed(root)
    state = world.waits.catch_up(LONG)
    rows = [row.text.split()[-1] for row in world.all_rows()]
    told = None
    if engine == "lancedb":
        tables = Tables(world)
        tables.fold()
        told = [tables.said(scope) for scope in OWNERS]
    world.close()
    assert not errors, errors[:5]
    assert state.state == "fresh", state
    lost = set(promised) - set(rows)
    assert not lost, f"seed {seed}: {len(lost)} acknowledged entries are not indexed, e.g. {sorted(lost)[:3]}"
    assert len(rows) == len(set(rows)), f"seed {seed}: rows are doubled"
    if told is not None:
        assert all(from_tables for _, from_tables in told), f"seed {seed}: the tables do not answer"
        unsaid = set(rows) ^ set().union(*(words for words, _ in told))
        assert not unsaid, f"seed {seed}: the tables and the rows differ in {sorted(unsaid)[:3]}"
    return {"promised": len(promised), "rows": len(rows), "kills": kills, "removals": removals}


if __name__ == "__main__":
    raise SystemExit(work(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), sys.argv[4]))
