"""Cairn: long-term memory for AI agents that a person can read.

    async with cairn.open("~/.cairn") as memory:
        await memory.add("s1", messages)
        await memory.flush("s1")
        result = await memory.search("where does Alice live", user_id="alice")

Everything else is imported when it is first used, so that `import cairn` costs next to nothing.
"""

from __future__ import annotations

from cairn.errors import (
    CairnError,
    Conflict,
    Forbidden,
    Invalid,
    Misconfigured,
    NotFound,
    Unavailable,
)
from cairn.version import VERSION

TYPE_CHECKING = False  # as in `errors`
if TYPE_CHECKING:
    import os
    from typing import Any

    from cairn.aio import AsyncMemory
    from cairn.config import Settings
    from cairn.memory import Memory
    from cairn.memory import Memory as BlockingMemory
    from cairn.projects import open_project
    from cairn.types import ContentItem, Evidence, Freshness, Hit, Message, ToolCall, Verdict

__version__ = VERSION

__all__ = [
    "AsyncMemory",
    "BlockingMemory",
    "CairnError",
    "Conflict",
    "ContentItem",
    "Evidence",
    "Forbidden",
    "Freshness",
    "Hit",
    "Invalid",
    "Memory",
    "Message",
    "Misconfigured",
    "NotFound",
    "Settings",
    "ToolCall",
    "Unavailable",
    "Verdict",
    "__version__",
    "open",
    "open_blocking",
    "open_project",
]

_HOMES = {
    "AsyncMemory": "cairn.aio",
    "BlockingMemory": "cairn.memory",
    "ContentItem": "cairn.types",
    "Evidence": "cairn.types",
    "Freshness": "cairn.types",
    "Hit": "cairn.types",
    "Memory": "cairn.memory",
    "Message": "cairn.types",
    "Settings": "cairn.config",
    "ToolCall": "cairn.types",
    "Verdict": "cairn.types",
    "open_project": "cairn.projects",
}


def open(
    root: str | os.PathLike[str] | None = None, *, background: bool = True, **settings: Any
) -> AsyncMemory:
    """Open a memory root: `async with cairn.open(root) as memory`.

    Args:
        root: The folder; `~/.cairn` or the configured one by default. Made if it is missing.
        background: Index, run strategies and notice edits while open.
        settings: "section__key" values that win over files and environment, e.g. `memory__timezone="UTC"`.

    Raises:
        Misconfigured: a setting is unknown or wrong; the message names where it stands.
    """
    from cairn.config import load

    made: AsyncMemory = __getattr__("AsyncMemory")(load(root, **settings), background=background)
    return made


def open_blocking(
    root: str | os.PathLike[str] | None = None, *, background: bool = True, **settings: Any
) -> Memory:
    """The same for callers without an event loop: `with cairn.open_blocking(root) as memory`."""
    from cairn.config import load

    made: Memory = __getattr__("Memory")(load(root, **settings), background=background)
    return made


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'cairn' has no attribute {name!r}")
    if "Memory" in name or name == "open_project":
        from cairn.systems import check

        check()
    import importlib

    # A memory without an event loop has gone by both names.
    module, found = importlib.import_module(_HOMES[name]), "Memory" if name == "BlockingMemory" else name
    if found.endswith("Memory"):
        from cairn.operations.table import put_help

        put_help(*(getattr(module, room) for room in (found, found.replace("Memory", "Memories"))))
    return getattr(module, found)
