"""Where a cluster bends first: a simulation of servers, PostgreSQL and the store under growing load.

    python -m tools.bending

Every message is an `add` (one commit), a share of them ends in a flush (an episode: reads and writes of the store), and each
makes three rows, which every machine indexes. Each engine is a queue with so many places and a time for each piece of work,
measured by `python -m tools.cluster_speed` and `python -m benchmarks indexing` and named below; calls arrive at random (the same each
run). What is told is the load at which the 95th in a hundred of the waits at an engine grows beyond a second, and which
engine that is.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

# Processor time of the servers for one add and one search (docs/scale.md, two servers), of one row in the index, in seconds.
ADD, SEARCH, ROW = 0.0066, 0.0070, 1 / 2500
COMMIT = 0.0019  # a bare INSERT and its commit on an idle disk; PostgreSQL commits those that come together at once
COMMITTERS = 16
STORE, STORE_PLACES = (
    0.0025,
    64,
)  # one PUT of a note (SeaweedFS on this machine), and how many a store takes at once
ROWS_PER_MESSAGE, FLUSH_SHARE, STORE_CALLS = 3, 0.1, 6
SEARCHES_PER_MESSAGE = 1.0
SECONDS, BEARABLE = 20.0, 1.0


@dataclass
class Engine:
    """A place where work waits: so many at once, each for so long."""

    name: str
    places: int

    def __post_init__(self) -> None:
        self._free = [0.0] * self.places
        self.waits: list[float] = []

    def take(self, at: float, seconds: float) -> float:
        """When a piece of work that arrives `at` is done."""
        start = max(at, heapq.heappop(self._free))
        heapq.heappush(self._free, start + seconds)
        self.waits.append(start - at)
        return start + seconds

    def worst(self) -> float:
        """How long all but one in twenty waited at most."""
        ordered = sorted(self.waits)
        return ordered[int(len(ordered) * 0.95)] if ordered else 0.0


def run(messages: float, servers: int, *, shared_rows: bool) -> dict[str, float]:
    """The waits at each engine with so many messages a second, on servers of two cores.

    With `shared_rows` each row is indexed by one server; as it is, by each of them.
    """
    chance = random.Random(1)
    cores = Engine("servers", 2 * servers)
    indexing = Engine("indexing on each server", 1)
    database, store = Engine("PostgreSQL", COMMITTERS), Engine("store", STORE_PLACES)
    at, row = 0.0, ROW / servers if shared_rows else ROW
    while at < SECONDS:
        at += chance.expovariate(messages)
        done = database.take(cores.take(at, ADD), COMMIT)
        indexing.take(done, row * ROWS_PER_MESSAGE)
        if chance.random() < FLUSH_SHARE:
            for _ in range(STORE_CALLS):
                done = store.take(done, STORE)
        for _ in range(int(SEARCHES_PER_MESSAGE)):
            cores.take(at, SEARCH)
    return {one.name: one.worst() for one in (cores, indexing, database, store)}


def bends_at(servers: int, *, shared_rows: bool) -> tuple[float, str]:
    """The load that is too much, to within a twentieth, and the engine that gives way first."""
    load, first = 10.0, ""
    while not first:
        load *= 1.05
        waits = run(load, servers, shared_rows=shared_rows)
        name = max(waits, key=lambda one: waits[one])
        first = name if waits[name] > BEARABLE else ""
    return load, first


def main() -> None:
    """Print a table for a few numbers of servers."""
    print("| servers | every server indexes all rows | each row is indexed once |\n|---|---|---|")
    for servers in (1, 2, 4, 8, 16, 32):
        cells = []
        for shared in (False, True):
            load, first = bends_at(servers, shared_rows=shared)
            cells.append(f"{load:,.0f} messages/s: {first}")
        print(f"| {servers} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
