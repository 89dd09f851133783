"""Smaller bounds for everything a process keeps: a cache that fills up is full early, and what still grows is a leak.

`SHRINK=10 make chaos SOAK=1 CYCLES=2000` tells in two thousand cycles what takes ten thousand with the bounds as they are.
"""

from __future__ import annotations

import functools
import importlib
import pkgutil
import re
import sys
from types import ModuleType

import cairn

_BOUND = re.compile(r"_?(?:[A-Z]+_)*(?:KEPT|HELD|KNOWN)|_MOST_(?:RECENT|ROWS|NAMES)|_FILES")
_LEAST = 2


def shrink(by: int) -> int:
    """Divide the bounds of the parts that an open memory has; how many there were."""
    for package in (
        "engines",
        "governed",
        "index",
        "language",
        "notes",
        "retrieval",
        "strategies",
        "talk",
        "timetravel",
    ):
        where = importlib.import_module(f"{cairn.__name__}.{package}")
        for found in pkgutil.iter_modules(where.__path__):
            try:
                importlib.import_module(f"{where.__name__}.{found.name}")
            except ImportError:  # an extra that is not here
                continue
    made: dict[int, object] = {}
    return sum(
        _shrunk(module, by, made) for name, module in sorted(sys.modules.items()) if name.startswith("cairn.")
    )


def _shrunk(module: ModuleType, by: int, made: dict[int, object]) -> int:
    count = 0
    for name, value in list(vars(module).items()):
        if isinstance(value, functools._lru_cache_wrapper):
            most = value.cache_parameters()["maxsize"]
            if most is not None and most > _LEAST:
                smaller = functools.lru_cache(max(_LEAST, most // by))(value.__wrapped__)
                setattr(module, name, made.setdefault(id(value), smaller))
                count += 1
        elif (
            isinstance(value, int)
            and not isinstance(value, bool)
            and value > _LEAST
            and _BOUND.fullmatch(name)
        ):
            setattr(module, name, max(_LEAST, value // by))
            count += 1
    for one in vars(module).values():  # bounds that are the default of an argument were read already
        if isinstance(one, type) and one.__module__ == module.__name__:
            given = getattr(vars(one).get("__init__"), "__kwdefaults__", None) or {}
            if isinstance(given.get("most"), int):
                given["most"] = max(_LEAST, given["most"] // by)
                count += 1
    return count
