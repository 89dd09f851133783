"""What a look at each session file found, so that a file nobody touched since is not read again.

A file goes by a hash of its place, size, inode and both its times. The second, the change time, is the kernel's: it moves
with every write, and no program can set it back, so a file that was rewritten to the same length and given its old
date is another one here. Only what had been left alone for `SETTLED` when it was looked at is kept: a file that is still
being written could change once more within one tick of a coarse clock.

`.cairn/automation/seen.json` is of one machine and may be deleted at any time: the files are then read once more. It holds
hashes and counts, no names and no words, and a repository that brings one along cannot know the hash of anybody's file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from cairn.canonical import as_line
from cairn.errors import CairnError
from cairn.project.layout import SEEN, read_json
from cairn.seams import StorageBackend
from cairn.version import VERSION

SETTLED = timedelta(seconds=3)


@dataclass(frozen=True, slots=True)
class Look:
    """What reading a file gave: "taken" (its messages and their hash), "elsewhere" (by whose measure) or "empty"."""

    result: str
    hash: str = ""
    messages: int = 0
    note: str | None = None


class SeenFiles:
    """The files of one source, as they were when they were last read."""

    def __init__(self, storage: StorageBackend, source: str, now: Callable[[], datetime]) -> None:
        self._storage = storage
        self._source = source
        self._now = now
        self._before = self._read().get(source, {})
        self._looks: dict[str, Any] = {}

    def mark(self, file: Path) -> str | None:
        """What `file` goes by as it is now; None where it was written just now. Taken before it is read."""
        found = file.stat()
        if self._now().timestamp() - found.st_ctime < SETTLED.total_seconds():
            return None
        named = (VERSION, file, found.st_size, found.st_ino, found.st_mtime_ns, found.st_ctime_ns)
        return hashlib.sha256("\0".join(map(str, named)).encode("utf-8", "surrogateescape")).hexdigest()[:32]

    def look(self, mark: str | None) -> Look | None:
        """What was found when the file that goes by `mark` was read."""
        try:
            result, digest, messages, note = self._before[mark or ""]
            return Look(str(result), str(digest), int(messages), note if isinstance(note, str) else None)
        except (KeyError, OverflowError, TypeError, ValueError):
            return None

    def keep(self, mark: str | None, look: Look) -> None:
        if mark is not None:
            self._looks[mark] = list(astuple(look))

    def save(self) -> None:
        """Write down what was kept, and nothing of files that are gone. Without it the next import is slower, no more."""
        if self._looks != self._before:
            with suppress(CairnError, OSError):
                self._storage.write(SEEN, as_line({**self._read(), self._source: self._looks}))

    def _read(self) -> dict[str, dict[str, Any]]:
        with suppress(CairnError, OSError):
            if isinstance(held := read_json(self._storage, SEEN), dict):
                return {source: looks for source, looks in held.items() if isinstance(looks, dict)}
        return {}
