"""The commented `cairn.toml` that `cairn init` writes: every setting with its default, switched off."""

from __future__ import annotations

import inspect
import os
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any, get_type_hints

from cairn.config import SECTIONS, Settings

# For whoever keeps a memory in git: what is the system's own, and the file that keys and tokens are written to.
_IGNORED = "/.index/\n/.tmp/\n/.server/\n/.hooks/\n/cairn.toml\n"


def starter_text() -> str:
    """Every section and setting, each line commented out, so that the file changes nothing until edited."""
    parts = [
        "# Cairn settings. Each line shows a default; remove the # to change it.",
        "# Order: these lines < .env < CAIRN_SECTION__KEY in the environment < command-line arguments.",
    ]
    defaults = Settings()
    for section, cls in SECTIONS.items():
        words = " ".join((inspect.getdoc(cls) or "").split())
        parts += ["", *textwrap.wrap(words, 100, initial_indent="# ", subsequent_indent="# "), f"[{section}]"]
        for key in get_type_hints(cls):
            if (section, key) != ("memory", "root"):
                parts.append(f"# {key} = {_toml(getattr(getattr(defaults, section), key))}")
    return "\n".join(parts) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return "[]"
    return f'"{value}"' if isinstance(value, str) else str(value)


def write_starter(root: Path, *, force: bool = False) -> bool:
    """Put the starter into `root` unless one is there, and a `.gitignore`; True if it was written.

    Keys and tokens will be written there: the files are their owner's alone, and so is a root that is made.
    """
    target = root / "cairn.toml"
    if target.exists() and not force:
        return False
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    file = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(file, "w", encoding="utf-8") as handle:
        os.chmod(target, 0o600)  # one that was there keeps its mode otherwise
        handle.write(starter_text())
    with suppress(FileExistsError):
        file = os.open(root / ".gitignore", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(file, "w", encoding="utf-8") as handle:
            handle.write(_IGNORED)
    return True
