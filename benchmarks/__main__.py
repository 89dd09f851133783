"""Run benchmark parts, print their tables and keep the figures: `make bench PART=notes`.

A part is a module of this package with `run(args) -> dict`. `args` holds the options that every part may
look at (`data`, `quick`) and leaves the rest to it (`rest`). The figures go to docs/benchmarks/<part>.json
together with the machine, the date and the command that made them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import benchmarks as package

RESULTS = Path(__file__).parent.parent / "docs" / "benchmarks"


def parts() -> list[str]:
    """The names of all parts."""
    return sorted(
        found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("_")
    )


def machine() -> dict[str, object]:
    """Enough to tell two machines apart; no names."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**20
    return {
        "system": platform.system(),
        "processor": platform.machine(),
        "cores": os.cpu_count(),
        "memory_mb": memory,
        "python": platform.python_version(),
    }


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks", description="Run one benchmark part, or all."
    )
    parser.add_argument("part", nargs="*", help=f"one or more of: {', '.join(parts())}")
    parser.add_argument("--data", help="a data file or folder, for parts that read one")
    parser.add_argument("--quick", action="store_true", help="smaller sizes: does it run, not how fast")
    parser.add_argument("--no-save", action="store_true", help="print only")
    args, args.rest = parser.parse_known_args(argv)
    unknown = sorted(set(args.part) - set(parts()))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are: {', '.join(parts())}")
    failed = []
    for part in args.part or parts():
        module = importlib.import_module(f"{package.__name__}.{part}")
        print(f"== {part}", flush=True)
        started = time.monotonic()
        try:
            figures = module.run(args)
        except SystemExit as stop:
            print(f"{part}: not run: {stop}", flush=True)
            if args.part:
                failed.append(part)
            continue
        print(f"== {part}: {time.monotonic() - started:.0f} s\n", flush=True)
        if not (args.no_save or args.quick):
            save(part, figures, argv)
    return 1 if failed else 0


def save(part: str, figures: dict[str, object], argv: list[str]) -> None:
    RESULTS.mkdir(parents=True, exist_ok=True)
    told = {
        "part": part,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": " ".join(["python -m benchmarks", *argv]),
        "machine": machine(),
        "figures": figures,
    }
    (RESULTS / f"{part}.json").write_text(
        json.dumps(told, indent=2, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
