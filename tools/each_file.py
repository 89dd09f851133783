"""What the gates over source files share: every file below a folder is looked at, and what is found is printed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent


def look(
    argv: Sequence[str], folder: str, pattern: str, found_in: Callable[[str, str], Sequence[str]]
) -> int:
    """Print what `found_in` says of each source, by its name; exit 0 clean, 1 found, 2 set-up error.

    Args:
        argv: The command line; its first word may name another folder.
        folder: Where to look, in this repository.
        pattern: Which files.
        found_in: Describes what is wrong in a source of that name.
    """
    root = Path(argv[1]) if len(argv) > 1 else ROOT / folder
    files = sorted(root.rglob(pattern)) if root.is_dir() else []
    if not files:
        print(f"{root}: no {pattern} to check", file=sys.stderr)
        return 2
    try:
        found = [line for file in files for line in found_in(file.read_text(encoding="utf-8"), str(file))]
    except (SyntaxError, UnicodeDecodeError) as error:
        print(f"cannot be read as Python: {error}", file=sys.stderr)
        return 2
    print("\n".join(found)) if found else None
    return 1 if found else 0
