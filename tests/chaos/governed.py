"""Governed memories under kill -9: what was acknowledged is there, nothing is there twice, sweeps stay sound.

Workers remember facts from a small pool, merge, pin, sweep, consolidate and end missions on one root, and are
killed at random instants. Each acknowledged fact must afterwards be held by a record, and by at most one live
one per scope; notes must parse without damage; and a keeper opened afresh must agree with one kept warm.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import tempfile
import time
from pathlib import Path
from typing import Any

from cairn.errors import CairnError
from cairn.governed import corrections, gate, ledger, lifecycle
from cairn.seams import SystemClock
from cairn.types import Scope
from tests.world import PROJECT, SPACE, World

Report = dict[str, Any]
_HOSTS = ("alder", "birch", "cedar", "dogwood", "elm", "fir", "ginkgo", "hazel", "iris", "juniper")
RUN = Scope(SPACE, "mission", "run-1")


def _pool() -> list[str]:
    plain = [f"Service {host} number {n} is owned by team {n * 7}" for n in range(12) for host in _HOSTS]
    alike = [f"The nightly backup of {host} writes to bucket seven" for host in _HOSTS]
    return plain + alike


def _work(path: str, seed: int, acks: str) -> None:
    rng = random.Random(seed)
    keeper = World(Path(path), clock=SystemClock()).keeper  # type: ignore[arg-type]
    pool = _pool()
    with Path(acks).open("a", encoding="utf-8") as told:
        while True:
            scope = rng.choice((PROJECT, PROJECT, PROJECT, RUN))
            fact = rng.choice(pool)
            act = rng.random()
            try:
                if act < 0.86:
                    verdict = keeper.remember(
                        fact, scope=scope, origin="human", status="promoted" if act < 0.2 else None
                    )
                    if verdict.accepted:
                        told.write(json.dumps([scope.track, fact]) + "\n")
                        told.flush()
                elif act < 0.92:
                    live = [r for r in keeper.records(scope) if r.is_live]
                    if live:
                        corrections.pin(keeper, rng.choice(live), pinned=act < 0.89)
                elif act < 0.96:
                    lifecycle.keep_in_order(keeper, SPACE)
                elif act < 0.98:
                    lifecycle.consolidate(keeper, SPACE)
                else:
                    ledger.end_mission(keeper, SPACE, "run-1", success=act < 0.99)
            except CairnError as error:
                if "under way" not in str(error) and "archived" not in str(error):
                    raise


def _verify(path: Path, acks: Path) -> tuple[int, int]:
    world = World(path, clock=SystemClock())  # type: ignore[arg-type]
    acked = {
        tuple(json.loads(line))
        for line in acks.read_text(encoding="utf-8").splitlines()
        if line.endswith("]")
    }
    held: dict[str, set[str]] = {"project": set(), "mission": set()}
    for scope in (PROJECT, RUN):
        seen: dict[str, str] = {}
        for record in world.keeper.records(scope):
            held[scope.track] |= {gate.dedupe_hash(record.content), *record.aliases}
            if record.is_live:
                mark = gate.dedupe_hash(record.content)
                assert mark not in seen, f"{record.id} and {seen[mark]} both live: {record.content!r}"
                seen[mark] = record.id
    missing = [fact for track, fact in acked if gate.dedupe_hash(fact) not in held[track]]
    assert not missing, f"acknowledged but gone: {missing[:3]}"
    for locator in world.notebook.notes(SPACE, "memory"):
        problems = list(world.notebook.read(locator).problems)
        assert not problems, f"{locator}: {problems[:2]}"
    lifecycle.sweep(world.keeper, SPACE)
    warm = world.keeper.list(SPACE, archived=True, limit=10_000)[0]
    fresh = World(path, clock=world.clock).keeper.list(SPACE, archived=True, limit=10_000)[0]
    volatile = {"access_score", "composite_score"}
    plain = [[{k: v for k, v in row.items() if k not in volatile} for row in rows] for rows in (warm, fresh)]
    assert plain[0] == plain[1], "a keeper opened afresh disagrees"
    return len(acked), len(warm)


def _wait_for_work(acks: Path) -> None:
    """Until something was acknowledged: on a busy machine a process takes a while to start."""
    size, late = acks.stat().st_size, time.monotonic() + 30
    while acks.stat().st_size == size and time.monotonic() < late:
        time.sleep(0.02)


def run(seconds: float, seed: int) -> Report:
    """Kill and look, until the time is up."""
    rng = random.Random(seed)
    context = multiprocessing.get_context("spawn")
    report: Report = {"seed": seed, "kills": 0, "acknowledged": 0, "memories": 0}
    until = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as name:
        root = Path(name) / "root"
        acks = Path(name) / "acks"
        acks.touch()
        while time.monotonic() < until or not report["kills"]:
            workers = [
                context.Process(target=_work, args=(str(root), rng.randrange(2**32), str(acks)), daemon=True)
                for _ in range(2)
            ]
            for worker in workers:
                worker.start()
            _wait_for_work(acks)
            time.sleep(rng.uniform(0.0, 1.5))
            for worker in workers:
                assert worker.pid is not None
                assert worker.exitcode is None, f"a worker stopped by itself ({worker.exitcode})"
                os.kill(worker.pid, signal.SIGKILL)
                worker.join()
                report["kills"] += 1
            report["acknowledged"], report["memories"] = _verify(root, acks)
    return report
