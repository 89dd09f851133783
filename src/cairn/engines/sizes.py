"""The size of a root, noted once a day in a file of this machine.

<server folder>/sizes.jsonl     {"day": "2026-06-01", "files": 1048576, "index": 4194304}
"""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

from cairn.canonical import objects_in
from cairn.engines import plain
from cairn.engines.bytescan import size_of

_NAME = "sizes.jsonl"
_MOST_DAYS = 1000


def note(place: Path, root: Path, index: Path, day: str) -> bool:
    """Keep the sizes of a day, once; whether that was to be done."""
    known = days(place)
    if known and known[-1]["day"] >= day:
        return False
    held = size_of(index)
    files = size_of(root) - (held if index.is_relative_to(root) else 0)
    lines = [*known, {"day": day, "files": max(0, files), "index": held}][-_MOST_DAYS:]
    place.mkdir(parents=True, exist_ok=True, mode=0o700)
    plain.put(place / _NAME, "".join(json.dumps(one) + "\n" for one in lines).encode())
    return True


def days(place: Path) -> list[dict[str, Any]]:
    """The sizes of each day that was noted, the oldest first; a broken line is passed over."""
    try:
        lines = plain.read(place / _NAME).decode("utf-8").splitlines()
    except (OSError, UnicodeDecodeError):
        return []
    found = []
    for one in objects_in(lines):
        with suppress(ValueError, KeyError, TypeError):
            found.append({"day": str(one["day"]), "files": int(one["files"]), "index": int(one["index"])})
    return found
