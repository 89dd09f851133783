"""Watches files for edits. Only a hint: a scan finds whatever this misses.

Only the folders of the truth are watched, so that the index's own files wake nobody. A new folder at the top
begins another watch, and is reported at once: what came with it may be all there is to come. That holds for folders that
came since this was made, also before the first watch began. The first report of a watch names its folders: what was
written before it began, or between two, is looked for.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path

_DEBOUNCE_MS = 50
_STEP_MS = 10
_TICK_MS = 1000
_EMPTY_SECONDS = 0.1


class TreeWatch:
    """Watches a memory root.

    Args:
        root: The folder.
        linked: Gives the folders outside that belong to it, each with its key.
    """

    def __init__(self, root: Path, linked: Callable[[], Mapping[Path, str]] = dict) -> None:
        self._root = root
        self._linked = linked
        self._seen = self._tops()

    def __call__(self, on_keys: Callable[[set[str]], None], stop: threading.Event) -> None:
        """Report keys that were touched until `stop` is set. Raises `OSError` when watching is refused."""
        from watchfiles import watch

        while not stop.is_set():
            tops = self._tops()
            if not tops:
                self._seen = []
                stop.wait(_EMPTY_SECONDS)
                continue
            linked = self._linked()
            unseen = {linked.get(top, top.name) for top in tops}
            if not set(tops) <= set(self._seen):
                on_keys(unseen)
            self._seen = tops
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
                tops = [
                    Path(entry.path)
                    for entry in found
                    if not entry.name.startswith(".") and entry.is_dir(follow_symlinks=False)
                ]
        except OSError:
            return []
        return sorted([*tops, *(folder for folder in self._linked() if folder.is_dir())])

    def _key(self, path: str) -> str | None:
        for folder, place in self._linked().items():
            if path.startswith(f"{folder}{os.sep}"):
                inside = os.path.relpath(path, folder).replace(os.sep, "/")
                hidden = inside.startswith(".") or "/." in inside
                return None if hidden else f"{place}/{inside}"
        above = f"{self._root}{os.sep}"
        inside = path.removeprefix(above) if path.startswith(above) else os.path.relpath(path, self._root)
        key = inside.replace(os.sep, "/")
        name = key.rpartition("/")[2]
        return None if name.startswith(".") and ".tmp." in name else key
