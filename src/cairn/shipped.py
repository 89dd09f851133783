"""Reads the TOML files of this package; what was parsed is kept as JSON beside the bytecode, as Python keeps that.

The parser is written in Python and takes longer over the words of seven languages than a command over its answer. What is
kept says the hash of the file it was made from: of a file that was changed, or of which nothing is kept, the text is parsed.
Where Python writes no bytecode, nothing is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.util
import json
import os
import sys
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any


def tables_of(file: Traversable) -> dict[str, Any]:
    """The tables of a TOML file of this package."""
    data = file.read_bytes()
    if not isinstance(file, Path):
        return _parsed(data)
    made_from = hashlib.blake2b(data, digest_size=16).hexdigest()
    place = Path(importlib.util.cache_from_source(str(file))).with_suffix(".json")
    with contextlib.suppress(OSError, ValueError):
        kept = json.loads(place.read_bytes())
        if isinstance(kept, dict) and kept.get("of") == made_from and isinstance(kept.get("tables"), dict):
            return dict(kept["tables"])
    tables = _parsed(data)
    if not sys.dont_write_bytecode:
        _keep(place, {"of": made_from, "tables": tables})
    return tables


def _parsed(data: bytes) -> dict[str, Any]:
    import tomllib

    return tomllib.loads(data.decode("utf-8"))


def _keep(place: Path, made: dict[str, Any]) -> None:
    """Put it in place whole, where that can be done: a package may lie where nobody writes."""
    beside = place.with_name(f"{place.name}.{os.getpid()}.{os.urandom(4).hex()}")
    with contextlib.suppress(OSError, TypeError):
        text = json.dumps(made)
        place.parent.mkdir(exist_ok=True)
        try:
            beside.write_text(text, encoding="ascii")
            os.replace(beside, place)
        except BaseException:
            with contextlib.suppress(OSError):
                beside.unlink()
            raise
