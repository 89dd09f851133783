"""Fail on a stopwatch in a test: on a busy machine it measures the others.

Refused in `test_*.py`: `time.monotonic`, `perf_counter`, `process_time` and `thread_time`, under whatever name they
were imported. What a test waits for is a condition, what it measures is counted: `tests/waiting.py` has both. Speed
is the business of the benchmarks. Exit 0 clean, 1 found, 2 set-up error.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

WATCHES = {
    name + ending
    for name in ("monotonic", "perf_counter", "process_time", "thread_time")
    for ending in ("", "_ns")
}


def watches_in(source: str, name: str) -> list[str]:
    """Describe each stopwatch in `source`."""
    found = []
    for node in ast.walk(ast.parse(source, name)):
        used = set()
        if isinstance(node, ast.Attribute):
            used = {node.attr} & WATCHES
        elif isinstance(node, ast.ImportFrom) and node.module == "time":
            used = {alias.name for alias in node.names} & WATCHES
        found += [
            f"{name}:{node.lineno}: {watch} in a test; wait with until(), count with calls_of()"
            for watch in sorted(used)
        ]
    return found


def main(argv: list[str]) -> int:
    root = Path(argv[1]) if len(argv) > 1 else Path(__file__).parent.parent / "tests"
    files = sorted(root.rglob("test_*.py")) if root.is_dir() else []
    if not files:
        print(f"{root}: no tests to check", file=sys.stderr)
        return 2
    try:
        found = [line for file in files for line in watches_in(file.read_text(encoding="utf-8"), str(file))]
    except (SyntaxError, UnicodeDecodeError) as error:
        print(f"cannot be read as Python: {error}", file=sys.stderr)
        return 2
    print("\n".join(found)) if found else None
    return 1 if found else 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
