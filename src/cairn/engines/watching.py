"""Noticing edits as they happen: a hint, never the guarantee. A scan finds whatever this misses.

Only the folders of the truth are watched, so that the index's own files wake nobody. A new folder at the top
begins another watch. The first report of a watch names its folders: what was written before it began, or between
two, is looked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

_DEBOUNCE_MS = 50
_STEP_MS = 10
_TICK_MS = 1000
_EMPTY_SECONDS = 0.1


class TreeWatch:
    """Watches a memory root.

    Args:
        root: The folder.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def __call__(self, on_keys: Callable[[set[str]], None], stop: threading.Event) -> None:
        """Report keys that were touched until `stop` is set. Raises `OSError` when watching is refused."""
        from watchfiles import watch

        while not stop.is_set():
            tops = self._tops()
            if not tops:
                stop.wait(_EMPTY_SECONDS)
                continue
            unseen = {top.name for top in tops}
            for changes in watch(
                *tops,
                watch_filter=None,
                debounce=_DEBOUNCE_MS,
                step=_STEP_MS,
                stop_event=stop,
                rust_timeout=_TICK_MS,
                yield_on_timeout=True,
                raise_interrupt=False,
                ignore_permission_denied=True,
            ):
                keys = {key for _, path in changes if (key := self._key(path))} | unseen
                unseen = set()
                if keys:
                    on_keys(keys)
                if stop.is_set() or self._tops() != tops:
                    break
            else:
                return

    def _tops(self) -> list[Path]:
        try:
            with os.scandir(self._root) as found:
                return sorted(
                    Path(entry.path)
                    for entry in found
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                )
        except OSError:
            return []

    def _key(self, path: str) -> str | None:
        key = os.path.relpath(path, self._root).replace(os.sep, "/")
        name = key.rpartition("/")[2]
        return None if name.startswith(".") and ".tmp." in name else key
