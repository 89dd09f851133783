"""Run benchmark parts, print their tables and keep the figures: `make bench PART=notes`.

A part is a module of this package with `run(args) -> dict`. `args` holds the options that every part may
look at (`data`, `quick`, `large`) and leaves the rest to it (`rest`). The figures go to docs/benchmarks/<part>.json
together with the machine, its load, the date and the command that made them; beside it lies a plot, and the part's
table in docs/benchmarks.md is made anew. `--redraw` makes tables and plots from the figures that are there.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import pkgutil
import platform
import re
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import benchmarks as package
from benchmarks import _plots
from benchmarks._targets import by_size, headline, rows, summary

DOCS = Path(__file__).parent.parent / "docs"
RESULTS = DOCS / "benchmarks"


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
    parser.add_argument("--large", action="store_true", help="also the largest sizes (100,000 entries)")
    parser.add_argument("--no-save", action="store_true", help="print only")
    parser.add_argument("--redraw", action="store_true", help="tables and plots from the kept figures")
    args, rest = parser.parse_known_args(argv)
    args.rest = rest
    unknown = sorted(set(args.part) - set(parts()))
    if unknown:
        parser.error(f"no such part: {', '.join(unknown)}; there are: {', '.join(parts())}")
    if args.redraw:
        for part in args.part or parts():
            if (RESULTS / f"{part}.json").exists():
                print(f"{part}: {show(json.loads((RESULTS / f'{part}.json').read_text('utf-8')))}")
        return 0
    failed = []
    for part in args.part or parts():
        module = importlib.import_module(f"{package.__name__}.{part}")
        print(f"== {part}", flush=True)
        started, load = time.monotonic(), os.getloadavg()[0]
        try:
            figures = module.run(args)
        except SystemExit as stop:
            print(f"{part}: skipped: {stop}", flush=True)
            if args.part:
                failed.append(part)
            continue
        print_table(summary(part, figures))
        if not (args.no_save or args.quick):
            print(show(save(part, figures, argv, [load, os.getloadavg()[0]])))
        print(f"== {part}: {time.monotonic() - started:.0f} s\n", flush=True)
    return 1 if failed else 0


def print_table(lines: Sequence[Mapping[str, Any]]) -> None:
    """The part's lines beside floor, target and peer."""
    table = [[cell.replace("*", "") for cell in row] for row in rows(lines)]
    if len(table) < 2:
        return
    widths = [max(len(row[place]) for row in table) for place in range(len(table[0]))]
    print()
    for row in table:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def save(part: str, figures: Mapping[str, Any], argv: Sequence[str], load: Sequence[float]) -> dict[str, Any]:
    """Keep the figures with everything needed to judge them. A data path is a matter of the machine: left out."""
    RESULTS.mkdir(parents=True, exist_ok=True)
    command = re.sub(
        r"(--data|--beside-root)([ =])\S+", r"\1\2PATH", " ".join(["python -m benchmarks", *argv])
    )
    kept = {
        "part": part,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "command": command,
        "machine": machine(),
        "load_average": {"before": round(load[0], 1), "after": round(load[1], 1)},
        "figures": figures,
        "summary": summary(part, figures),
    }
    text = json.dumps(kept, indent=2, ensure_ascii=False) + "\n"
    (RESULTS / f"{part}.json").write_text(text, encoding="utf-8")
    return kept


def show(kept: Mapping[str, Any]) -> str:
    """Make the plot and the table of kept figures anew; says what became of the plot."""
    for page, made in ((DOCS / "benchmarks.md", with_table), (DOCS.parent / "README.md", with_headline)):
        page.write_text(made(page.read_text("utf-8"), kept), encoding="utf-8")
    return _plots.draw(str(kept["part"]), kept["figures"], RESULTS, conditions(kept))


def conditions(kept: Mapping[str, Any]) -> str:
    """One line on where and when: it stands under the table and in the plot."""
    about, load = kept["machine"], kept.get("load_average")
    busy = f", load {load['before']:g} before and {load['after']:g} after" if load else ""
    return (
        f"`{kept['command']}`, {kept['date'][:16]}Z, {about['cores']} cores, Python {about['python']}{busy}"
    )


def with_table(page: str, kept: Mapping[str, Any]) -> str:
    """The page with the table between this part's marks made anew; a page without the marks stays as it is."""
    part = kept["part"]
    picture = f"![{part}: the figures as a picture](benchmarks/{part}.png)"
    lines = [
        *markdown(rows(summary(str(part), kept["figures"]))),
        "",
        f"<sub>{conditions(kept)}</sub>",
        "",
        picture,
    ]
    if part == "search":
        page = between(page, "search-sizes", markdown(by_size(kept["figures"])))
    return between(page, str(part), lines)


def with_headline(page: str, kept: Mapping[str, Any]) -> str:
    """The front page with its few figures made anew; they are those of the HTTP part."""
    if kept["part"] != "http":
        return page
    lines = markdown(headline(summary("http", kept["figures"])))
    return between(page, "headline", [*lines, "", f"<sub>{conditions(kept)}; † measured elsewhere</sub>"])


def markdown(table: Sequence[Sequence[str]]) -> list[str]:
    head, *body = table
    return ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *body]]


def between(page: str, name: str, lines: Sequence[str]) -> str:
    marks = re.compile(rf"(<!-- table:{name} -->\n).*?(<!-- /table:{name} -->)", re.DOTALL)
    return marks.sub(lambda found: found[1] + "\n".join(lines) + "\n" + found[2], page)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
