"""Run every chaos part with its share of the time: `make chaos`, CHAOS_SECONDS=300 SEED=... PART=notes.

SOAK=1 is short for PART=soak: one process at steady work, watched for anything that creeps; CYCLES=10000 for so many cycles,
PICTURE=docs/soak.svg to draw its memory, SHRINK=10 to divide the bounds of all caches by ten. KILLS=10000 goes round the parts that kill processes (capture, strategies, governed
memories, project history, the index, storage, many processes at once) until that many were killed or the time is up; with
PART=product all of them fall on one product in use, several times a second on a quiet machine; ROOTS_AT_ONCE=3 lets three
roots have it side by side.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import random
import sys
import time
import traceback

import tests.chaos as package


def parts() -> list[str]:
    """The names of all parts: modules of this package with a `run`."""
    return sorted(
        found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")
    )


KILLING = ("product", "talk", "strategies", "governed", "project", "index", "storage", "world")
ROUND_SECONDS = 30.0


def kill_many(wanted: int, seconds: float, seed: int) -> int:
    """Go round the parts that kill, each with a seed of its own a round, and count; the first loss ends it."""
    until = time.monotonic() + seconds
    counted: dict[str, dict[str, int]] = {part: {} for part in KILLING}
    rounds = 0
    while sum(one.get("kills", 0) for one in counted.values()) < wanted and time.monotonic() < until:
        for part in KILLING:
            module = importlib.import_module(f"{package.__name__}.{part}")
            try:
                found = module.run(ROUND_SECONDS, seed + 1000 * rounds)
            except BaseException:
                traceback.print_exc()
                print(
                    f"{part}: FAILED. Replay: PART={part} SEED={seed + 1000 * rounds} make chaos", flush=True
                )
                return 1
            for name, value in found.items():
                if isinstance(value, int) and name != "seed":
                    counted[part][name] = counted[part].get(name, 0) + value
            if time.monotonic() > until:
                break
        rounds += 1
    for part, one in counted.items():
        told = ", ".join(f"{name} {value}" for name, value in one.items())
        print(f"{part}: {told or 'no turn'}")
    total = sum(one.get("kills", 0) for one in counted.values())
    print(f"{total} kills in {rounds} rounds, SEED={seed}: nothing lost, nothing twice", flush=True)
    return 0


def main() -> int:
    seconds = float(os.environ.get("CHAOS_SECONDS", "300"))
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
    if os.environ.get("KILLS") and not os.environ.get("PART"):
        return kill_many(int(os.environ["KILLS"]), seconds, seed)
    wanted = ["soak"] if os.environ.get("SOAK") else os.environ.get("PART", "").split()
    chosen = [part for part in parts() if not wanted or part in wanted]
    unknown = set(wanted) - set(parts())
    if unknown or not chosen:
        print(f"no such part: {', '.join(sorted(unknown))}; there are: {', '.join(parts())}", file=sys.stderr)
        return 2
    print(f"chaos: {', '.join(chosen)}; {seconds:g} s in all, SEED={seed}", flush=True)
    failed = []
    until = time.monotonic() + seconds
    for number, part in enumerate(chosen):
        module = importlib.import_module(f"{package.__name__}.{part}")
        if not hasattr(module, "run"):
            continue
        share = max(1.0, (until - time.monotonic()) / (len(chosen) - number))
        started = time.monotonic()
        try:
            report = module.run(share, seed)
        except BaseException:
            traceback.print_exc()
            failed.append(part)
            print(
                f"{part}: FAILED. Replay: PART={part} SEED={seed} CHAOS_SECONDS={share:.0f} make chaos",
                flush=True,
            )
            continue
        told = ", ".join(f"{key} {value}" for key, value in report.items())
        print(f"{part}: ok in {time.monotonic() - started:.0f} s: {told}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
