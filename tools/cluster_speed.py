"""What many machines cost, beside one, in one run: `python -m tools.cluster_speed`.

A bare INSERT and commit, an `add` on PostgreSQL and one on a folder are timed in turn, so that a busy machine is busy for
all of them. Then clients add and search through one server and through two, with the processor time of the servers; and one
server is asked until it finds what the other was told.
"""

from __future__ import annotations

import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools import cluster as many

ROUNDS = 200
CLIENTS = 8
CALLS = 400
FOUND = 40
_numbers = itertools.count()
TICKS = os.sysconf("SC_CLK_TCK")


def milliseconds(do: Callable[[], object]) -> float:
    begun = time.perf_counter()
    do()
    return (time.perf_counter() - begun) * 1000


def told(name: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(
        f"{name:44} p50 {statistics.median(ordered):7.2f} ms   p95 {ordered[int(len(ordered) * 0.95)]:7.2f} ms"
    )


def durable(world: many.Cluster, folder: Path) -> None:
    """One message, acknowledged: a bare commit, PostgreSQL, a folder."""
    import psycopg

    import cairn

    names = [name for name in world.env if name.startswith("CAIRN_")]
    options: dict[str, Any] = {name.removeprefix("CAIRN_").lower(): world.env[name] for name in names}
    rows = psycopg.connect(world.database.url, autocommit=True)
    rows.execute("CREATE TABLE bare (n bigint PRIMARY KEY, data bytea)")
    times: dict[str, list[float]] = {
        "a bare INSERT and its commit": [],
        "add, PostgreSQL": [],
        "add, a folder": [],
    }
    with (
        cairn.open_blocking(folder / "far", background=False, **options) as far,
        cairn.open_blocking(folder / "near", background=False, embedding__provider="none") as near,
    ):
        for n in range(ROUNDS + 20):
            message = many.said(
                f"Message {n}: the heron called Zaphodine likes anchovies.", 1_780_000_000_000 + n
            )
            calls: list[Callable[[], object]] = [
                lambda n=n: rows.execute("INSERT INTO bare VALUES (%s, %s)", [n, b"x" * 300]),  # type: ignore[misc]
                lambda m=message: far.add("speed", [m]),  # type: ignore[misc]
                lambda m=message: near.add("speed", [m]),  # type: ignore[misc]
            ]
            for name, call in zip(times, calls, strict=True):
                took = milliseconds(call)
                if n >= 20:
                    times[name].append(took)
    rows.close()
    for name, taken in times.items():
        told(name, taken)
    bare, far_add, near_add = (statistics.median(taken) for taken in times.values())
    print(
        f"add on PostgreSQL: {far_add / bare:.1f} times the bare commit, {far_add / near_add:.1f} times a folder"
    )


def processor(machine: many.Machine) -> float:
    """The seconds of processor time that a server has used."""
    fields = Path(f"/proc/{machine.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def rate(machines: list[many.Machine], name: str, what: str, body: Callable[[int, int], object]) -> None:
    """Calls a second of eight clients through these servers, and what one costs in processor time."""

    def client(number: int) -> None:
        for n in range(CALLS // CLIENTS):
            machine = machines[number % len(machines)]
            status, _ = machine.call("POST", f"/api/v1/memory/{what}", body(number, n))
            assert status == 200, status

    before = sum(map(processor, machines))
    threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
    begun = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begun
    used = sum(map(processor, machines)) - before
    print(
        f"{what}, {name}: {CALLS / seconds:.0f} a second, {1000 * used / CALLS:.2f} ms of processor time of the servers "
        f"each, {100 * used / seconds:.0f} % of a core"
    )


def added(number: int, n: int) -> object:
    """A message of one client's own person and session, never the same."""
    talk = many.said(
        f"Message {next(_numbers)}: the heron called Zaphodine likes anchovies.",
        1_780_000_000_000 + n,
        f"p{number}",
    )
    return {"session_id": f"speed-{number}-{n // 20}", "messages": [talk]}


def asked(number: int, n: int) -> object:
    """A question about it, a new one each time."""
    return {"user_id": f"p{number}", "query": f"Which fish does the heron like, {n}?", "method": "keyword"}


def found_elsewhere(one: many.Machine, other: many.Machine) -> None:
    """From the answer of a flush at one server until an ordinary search at the other finds it."""
    times = []
    for n in range(FOUND):
        body = {
            "session_id": f"f{n}",
            "messages": [many.said(f"I bought a q{n}zz lamp.", 1_780_000_000_000 + n)],
        }
        one.call("POST", "/api/v1/memory/add", body)
        one.call("POST", "/api/v1/memory/flush", {"session_id": f"f{n}"})
        asked = {"user_id": "alice", "query": f"q{n}zz", "method": "keyword"}

        def is_found(asked: dict[str, str] = asked) -> bool:
            _, answer = other.call("POST", "/api/v1/memory/search", asked)
            return bool(answer) and asked["query"] in str(answer["data"]["episodes"])

        times.append(milliseconds(lambda ask=is_found: many.until(ask, "it was never found")))  # type: ignore[misc]
    told("found by another server after", times)


def main() -> int:
    """Run all of it."""
    os.environ.update(many.KEYS)
    try:
        with many.engines() as (database, store, folder), tempfile.TemporaryDirectory() as place:
            with many.cluster(database, store, folder, 0) as world:
                durable(world, Path(place))
            with many.cluster(database, store, folder, 2) as world:
                for name, machines in (
                    ("one server", world.machines[:1]),
                    ("two servers", world.machines),
                ) * 2:
                    rate(machines, name, "add", added)
                    rate(machines, name, "search", asked)
                found_elsewhere(*world.machines)
        return 0
    except many.Missing as error:
        print(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
