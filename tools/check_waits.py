"""Fail on a stopwatch in a test: on a busy machine it measures the others.

Refused in `test_*.py`: `time.monotonic`, `perf_counter`, `process_time` and `thread_time`, under whatever name they
were imported. What a test waits for is a condition, what it measures is counted: `tests/waiting.py` has both. Speed
is the business of the benchmarks. Exit 0 clean, 1 found, 2 set-up error.
"""

from __future__ import annotations

import ast
import sys

from tools.each_file import look

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
    return look(argv, "tests", "test_*.py", watches_in)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv))
