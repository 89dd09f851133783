"""Where a cluster bends first: a simulation of servers, PostgreSQL and the store under growing load.

    python -m tools.bending

Every message is an `add` at one server (one commit), costs every other server a little (it hears of it, and indexes it when
somebody asks there), gets its vectors once, and is followed by a search; a share of them ends in a flush (an episode: reads and
writes of the store), and edits by other tools are looked for in pages of the store. Each engine is a queue with so many places
and a time for each piece of work, measured by `python -m tools.cluster_speed` and named below; calls arrive at random (the
same each run). What is told is the load at which one wait in twenty at an engine grows beyond a second, and which
engine that is; beside it, the same were every server to make all vectors, as before they were shared, and were each row taken
in by one server alone.
"""

from __future__ import annotations

import heapq
import random
from dataclasses import dataclass

# Processor time in seconds (docs/scale.md): an add and a search at their server, what each further
# server adds to an add and a search (it takes in what it did not write itself), vectors.
ADD, SEARCH, ELSEWHERE, VECTORS = 0.0034, 0.0028, 0.0042, 0.0200
COMMIT = 0.0009  # a bare INSERT and its commit; PostgreSQL commits those that come together at once
COMMITTERS = 16
STORE, STORE_PLACES = (
    0.0025,
    64,
)  # one PUT of a note (SeaweedFS on this machine), and how many a store takes at once
FLUSH_SHARE, STORE_CALLS = 0.1, 6
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


def run(messages: float, servers: int, *, shared: bool, elsewhere: float) -> dict[str, float]:
    """The waits at each engine with so many messages a second, on servers of two cores.

    With `shared`, a vector is made by one server for all; else by each of them. `elsewhere` is what a message costs each
    other server.
    """
    chance = random.Random(1)
    cores = Engine("servers", 2 * servers)
    database, store = Engine("PostgreSQL", COMMITTERS), Engine("store", STORE_PLACES)
    others = (servers - 1) * elsewhere + VECTORS * (1 if shared else servers)
    at = 0.0
    while at < SECONDS:
        at += chance.expovariate(messages)
        done = database.take(cores.take(at, ADD), COMMIT)
        cores.take(done, others)
        if chance.random() < FLUSH_SHARE:
            for _ in range(STORE_CALLS):
                done = store.take(done, STORE)
        cores.take(at, SEARCH)
    return {one.name: one.worst() for one in (cores, database, store)}


def bends_at(servers: int, *, shared: bool, elsewhere: float) -> tuple[float, str]:
    """The load that is too much, to within a twentieth, and the engine that gives way first."""
    load, first = 10.0, ""
    while not first:
        load *= 1.05
        waits = run(load, servers, shared=shared, elsewhere=elsewhere)
        name = max(waits, key=lambda one: waits[one])
        first = name if waits[name] > BEARABLE else ""
    return load, first


def main() -> None:
    """Print a table for a few numbers of servers."""
    print(
        "| servers | every server makes all vectors | a vector is made once | and each row, too |\n|---|---|---|---|"
    )
    for servers in (1, 2, 4, 8, 16, 32, 64):
        cells = []
        for shared, elsewhere in ((False, ELSEWHERE), (True, ELSEWHERE), (True, 0.0)):
            load, first = bends_at(servers, shared=shared, elsewhere=elsewhere)
            cells.append(f"{load:,.0f} messages/s: {first}")
        print(f"| {servers} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
