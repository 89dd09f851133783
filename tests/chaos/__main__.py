"""Run every chaos part with its share of the time: `make chaos`, CHAOS_SECONDS=300 SEED=... PART=notes.

SOAK=1 is short for PART=soak: one process at steady work, watched for anything that creeps.
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


def main() -> int:
    seconds = float(os.environ.get("CHAOS_SECONDS", "300"))
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(2**32))
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
