"""Governed memories: the gate, what becomes of memories, and how they are forgotten.

Its modules are loaded when they are first asked for (`governed.core`): a command opens what it needs.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.governed import (
        checks,
        core,
        corrections,
        forget,
        ledger,
        lifecycle,
        memories,
        migrate,
        pages,
        persons,
        procedures,
        removal,
        unfinished,
        wanted,
    )

__all__ = [
    "checks", "core", "corrections", "forget", "ledger", "lifecycle", "memories", "migrate", "pages", "persons", "procedures",
    "removal", "unfinished", "wanted",
]  # fmt: skip


def __getattr__(name: str) -> ModuleType:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return importlib.import_module(f"{__name__}.{name}")
