"""Checks at start that the operating system offers what Cairn needs.

Linux and macOS have it all. Windows has neither advisory file locks that end with their process nor folders that can be
opened without following links, on which every promise about many processes and hostile trees rests: there it is refused
in one sentence instead of running with less.
"""

from __future__ import annotations

import importlib.util
import os
import sys

from cairn.errors import Misconfigured


def check() -> None:
    """Refuse a system that lacks what the promises rest on.

    Raises:
        Misconfigured: it does; the message names what is missing and what to do.
    """
    missing = lacks()
    if missing:
        raise Misconfigured(
            f"Cairn cannot run on this system ({sys.platform}): it lacks {', '.join(missing)}. Linux and macOS are "
            "supported; on Windows run it inside WSL 2 and keep the memory root on its own disk, not below /mnt.",
            setting="system",
        )


def lacks() -> list[str]:
    """What is missing here, in words."""
    missing = []
    if importlib.util.find_spec("fcntl") is None:
        missing.append("file locks that end with their process (fcntl)")
    if not hasattr(os, "O_NOFOLLOW") or not hasattr(os, "O_DIRECTORY"):
        missing.append("opening files without following links (O_NOFOLLOW)")
    if not {os.open, os.stat, os.unlink, os.rename, os.mkdir} <= os.supports_dir_fd:
        missing.append("names relative to an open folder (openat)")
    return missing
