"""Fail on code that nothing in the product calls: functions, methods, properties, classes and imports.

vulture looks at the package, the tools and the benchmarks, and not at the tests: what only a test calls is dead to a
user. A name that stands alone in a string counts as called, and so does an operation, which surfaces call through the
table; fields of values are not judged, since whole values are written out as JSON. What may wait for its caller stands in `tools/uncalled.txt`, one
name and one reason a line; a line whose name has found a caller, or is gone, is an error too. Exit 0 clean, 1 found.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from vulture import Vulture

ROOT = Path(__file__).parent.parent
LOOKED_AT = ("src/cairn", "tools", "benchmarks")
JUDGED = {"function", "method", "property", "class", "import"}
ALLOWED = ROOT / "tools" / "uncalled.txt"


def allowed(text: str) -> dict[str, str]:
    """`file:name` -> reason, from the list. Raises `ValueError` for a line without a reason."""
    found = {}
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        name, _, reason = line.partition("  ")
        if not reason.strip():
            raise ValueError(f'"{line}" gives no reason')
        found[name] = reason.strip()
    return found


def names_in_strings(source: str) -> set[str]:
    """The strings of `source` that are a name and nothing else."""
    return {
        node.value
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
    }


def uncalled(root: Path, looked_at: tuple[str, ...] = LOOKED_AT) -> list[str]:
    """Everything judged that nothing below `looked_at` calls, as `file:name`."""
    look = Vulture(ignore_decorators=["@operation"])  # the surfaces call them through the table
    look.scavenge([str(root / place) for place in looked_at])
    spelled = {
        name
        for place in looked_at
        for file in sorted((root / place).rglob("*.py"))
        for name in names_in_strings(file.read_text(encoding="utf-8"))
    }
    return sorted(
        f"{Path(item.filename).resolve().relative_to(root.resolve()).as_posix()}:{item.name}"
        for item in look.get_unused_code(min_confidence=60)
        if item.typ in JUDGED and item.name not in spelled and not item.name.startswith("__")
    )


def main() -> int:
    found, waiting = set(uncalled(ROOT)), allowed(ALLOWED.read_text(encoding="utf-8"))
    for name in sorted(found - waiting.keys()):
        print(
            f"{name}: nothing calls it; take it out, or give it a caller (tools/uncalled.txt may wait for one)"
        )
    for name in sorted(waiting.keys() - found):
        print(f"{name}: stands in tools/uncalled.txt and is called, or gone; take the line out")
    return 1 if found ^ waiting.keys() else 0


if __name__ == "__main__":
    sys.exit(main())
