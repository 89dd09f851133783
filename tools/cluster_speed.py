"""What many machines cost, beside one, in one run: `python -m tools.cluster_speed [durable] [rates] [found] [search]`.

durable  a bare INSERT and commit, an `add` on PostgreSQL and one on a folder, in turn, so that a busy machine is busy for all
rates    clients add and search through one server and through two, eight for each server, each call at another server, both
         at once so that a busy machine is busy for both, after some calls that nobody counts, and at the same pace for each
         server: what comes together is done together, so a server that gets fewer calls uses more for each. What is told is the processor time of all servers from the first call until the chores of
         the next minute are done, so the background is in it, without what they use when nobody asks them anything. On cores
         that are free, two servers take 2 * (time with one) / (time with two) times as much as one. `--model` makes vectors, too
found    one server is asked until it finds what the other was told
search   hybrid questions to the tables of LanceDB on the disk and in the bucket, in turn, warm: `--rows 100000`
"""

from __future__ import annotations

import argparse
import itertools
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tools import cluster as many

ROUNDS = 200
CLIENTS = 8
CALLS, WARM = 1600, 400
PACE = 40.0  # calls a second for each server
FOUND = 40
BEGIN_SECONDS, REST_SECONDS, AFTER_SECONDS = 30.0, 30.0, 65.0
QUESTIONS = 60
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


def listed(store: many.Store) -> None:
    """A page of a listing, which is what looking for edits by other tools is made of; and a note written."""
    import obstore
    from obstore.store import S3Store

    bucket = S3Store("cairn", prefix="listed", endpoint=store.endpoint, client_options={"allow_http": True})
    told(
        "a note of 1 kB written to the store",
        [milliseconds(lambda n=n: obstore.put(bucket, f"{n:05}.md", b"x" * 1000)) for n in range(1000)],  # type: ignore[misc]
    )
    told(
        "a page of 1,000 objects listed",
        [milliseconds(lambda: [*obstore.list(bucket, chunk_size=1000)]) for _ in range(20)],
    )


def processor(machine: many.Machine) -> float:
    """The seconds of processor time that a server and what it started have used."""
    fields = Path(f"/proc/{machine.process.pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / TICKS


def used_during(machines: list[many.Machine], do: Callable[[], object]) -> tuple[float, float]:
    """The processor time that servers use during something, and how long it took."""
    before, begun = sum(map(processor, machines)), time.perf_counter()
    do()
    return sum(map(processor, machines)) - before, time.perf_counter() - begun


def called(machines: list[many.Machine], what: str, body: Callable[[int, int], object], calls: int) -> None:
    """So many calls for each server, of eight clients for each at their pace, every call at the next server."""
    begun = time.perf_counter()

    def client(number: int) -> None:
        for n in range(calls // CLIENTS):
            at = begun + (n * CLIENTS + number % CLIENTS) / PACE
            time.sleep(max(0.0, at - time.perf_counter()))
            machine = machines[(number + n) % len(machines)]
            status, _ = machine.call("POST", f"/api/v1/memory/{what}", body(number, n))
            assert status == 200, status

    clients = range(CLIENTS * len(machines))
    threads = [threading.Thread(target=client, args=(number,)) for number in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def rate(
    machines: list[many.Machine], what: str, body: Callable[[int, int], object], at_rest: float
) -> float:
    """The processor time of a call in milliseconds, with what follows it and without what the servers use `at_rest`."""
    count = CALLS * len(machines)

    def calls() -> None:
        begun = time.perf_counter()
        called(machines, what, body, CALLS)
        print(f"{what}, servers: {len(machines)}: {count / (time.perf_counter() - begun):.0f} a second")
        time.sleep(AFTER_SECONDS)

    used, seconds = used_during(machines, calls)
    return 1000 * (used - at_rest * seconds) / count


def rates(database: many.Database, store: many.Store, folder: Path, *, model: bool) -> None:
    """One server and two, side by side."""
    each: dict[tuple[str, int], float] = {}

    def measure(count: int) -> None:
        with many.cluster(database, store, folder, 0) as world:
            world.env["CAIRN_EMBEDDING__PROVIDER"] = "auto" if model else "none"
            for _ in range(count):
                world.add()
            time.sleep(BEGIN_SECONDS)
            used, seconds = used_during(world.machines, lambda: time.sleep(REST_SECONDS))
            print(f"servers: {count}: {100 * used / seconds:.1f} % of a core when nobody asks")
            for what, body in (("add", added), ("search", asked)):
                called(world.machines, what, body, WARM)
            time.sleep(AFTER_SECONDS)
            for what, body in (("add", added), ("search", asked)):
                each[what, count] = rate(world.machines, what, body, used / seconds)

    threads = [threading.Thread(target=measure, args=(count,)) for count in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for what in ("add", "search"):
        one, two = (each[what, count] for count in (1, 2))
        print(
            f"{what}: {one:.2f} ms with one server, {two:.2f} with two: on free cores {2 * one / two:.2f} times as many"
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


def search(database: many.Database, store: many.Store, rows: int) -> None:
    """The tables of one index on the disk and in the bucket, asked the same in turn."""
    from benchmarks import search as bench

    from cairn.config import StorageSettings
    from cairn.engines.inmemory import InMemoryLocks
    from cairn.engines.lance import LanceTables
    from cairn.engines.large import LargeIndex
    from cairn.engines.postgres import Postgres, PostgresLocks
    from cairn.engines.shared_tables import SharedTables

    with tempfile.TemporaryDirectory() as place, ExitStack() as held:
        folder = Path(place)
        bench.filled(folder, rows)
        index, embedder, settings = bench.opened(folder, rows)
        held.callback(index.close)
        bucket = StorageSettings("s3", url="s3://cairn/speed", endpoint=store.endpoint, database=database.url)
        pool = Postgres(database.url, bucket.url, connections=2)
        locks = PostgresLocks(pool, InMemoryLocks())
        held.callback(pool.close)
        held.callback(locks.close)
        shared = SharedTables(folder / "far", bucket, index, locks)
        shared.load(wait=True)
        shared.fold(index)
        near = LanceTables(folder / ".index")
        near.load(wait=True)
        talk = bench.Talk()
        ask = {
            name: bench.questions(LargeIndex(index, tables), index, settings, embedder)("hybrid")
            for name, tables in (("disk", near), ("bucket", shared))
        }
        spent: dict[str, list[tuple[float, float]]] = {name: [] for name in ask}
        for n, question in enumerate(talk.questions(2 * QUESTIONS)):
            for name, one in ask.items():
                begun, busy = time.perf_counter(), time.process_time()
                one(question)
                if n >= QUESTIONS:
                    took = time.perf_counter() - begun
                    spent[name].append((1000 * took, 1000 * (time.process_time() - busy)))
        for name, times in spent.items():
            told(f"hybrid, {rows} rows, tables: {name}", [wall for wall, _ in times])
        near_cpu, far_cpu = (statistics.mean(cpu for _, cpu in times) for times in spent.values())
        print(
            f"processor time: disk {near_cpu:.1f} ms, bucket {far_cpu:.1f} ms, {far_cpu / near_cpu:.2f} times as much"
        )


def main() -> int:
    """Run what is asked for; all but `search` without a word."""
    parser = argparse.ArgumentParser(prog="cluster_speed", description=__doc__)
    parser.add_argument("parts", nargs="*", default=["durable", "rates", "found"])
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--model", action="store_true")
    given = parser.parse_args()
    os.environ.update(many.KEYS)
    try:
        with many.engines() as (database, store, folder), tempfile.TemporaryDirectory() as place:
            if "durable" in given.parts:
                with many.cluster(database, store, folder, 0) as world:
                    durable(world, Path(place))
                listed(store)
            if "rates" in given.parts:
                rates(database, store, folder, model=given.model)
            if "found" in given.parts:
                with many.cluster(database, store, folder, 2) as world:
                    found_elsewhere(*world.machines)
            if "search" in given.parts:
                search(database, store, given.rows)
        return 0
    except many.Missing as error:
        print(error)
        return 2


if __name__ == "__main__":
    sys.exit(main())
