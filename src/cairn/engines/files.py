"""Storage on a local tree of Markdown files: the default. No service, no database.

Writes go to a temporary file beside their place, are flushed, and renamed over it; so a crash leaves the old
text or the new one. True appends are in `journals.py`; exclusion between writers is left to `Locks`.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Callable, Iterator
from functools import cached_property, partial
from typing import TYPE_CHECKING

from cairn.engines.journals import FileJournals
from cairn.engines.refusals import encoded, written_meanwhile
from cairn.engines.tree import (
    LOST,
    FileInTheWay,
    Tree,
    is_temp,
    is_usable,
    refuse_temps,
    translating,
)
from cairn.errors import CairnError, Invalid, InvalidLocatorError, NotFound
from cairn.seams import (
    EXTENSIONS,
    Capabilities,
    Info,
    Journals,
    Locator,
    StorageBackend,
    content_hash,
    registry,
)

__all__ = ["PROTOCOL", "DeviceLocalBackend"]

PROTOCOL = "device-local"

if TYPE_CHECKING:
    from cairn.config import Settings

_STAMP = "stat:"
_SETTLED_NS = 50_000_000


class DeviceLocalBackend(StorageBackend):
    """Text files below one folder of this machine.

    Without a root it is the folder of the settings' default (`~/.cairn`). The folder is made if it is missing. Symbolic links below it are neither followed nor listed: a link out
    of the root would carry writes out with it, and one inside would give a note two names.
    """

    extensions = frozenset(EXTENSIONS)

    def __init__(self, root: str | os.PathLike[str] | None = None, *, max_bytes: int = 0) -> None:
        if root is None:
            from cairn.config import MemorySettings

            root = os.path.expanduser(MemorySettings().root)
        self._tree = Tree(root, max_bytes=max_bytes)

    @classmethod
    def from_settings(cls, settings: Settings) -> DeviceLocalBackend:
        return cls(settings.root, max_bytes=settings.storage.max_note_bytes)

    @cached_property
    def journals(self) -> Journals:
        return FileJournals(self._tree)

    @property
    def capabilities(self) -> Capabilities:
        return Capabilities(concurrent_writers=False, conflict_files=False, encryption=False, sync=False)

    def keep(self) -> None:
        self._tree.keep()

    def trouble(self) -> str:
        return "" if self._tree.is_kept() else LOST

    def read(self, locator: Locator) -> str:
        with translating(locator.key):
            return _text(locator, self._tree.read_bytes(locator))

    def read_version(self, locator: Locator) -> tuple[str, str]:
        """The text and its version: inode, size and times where they prove it, else the content's hash.

        The times of a file move in ticks of a few milliseconds. Once its last change is further back than
        that, any later one shows in them; before, only the content itself can tell.
        """
        now = time.time_ns()
        with translating(locator.key), self._tree.parent(locator) as (directory, name):
            if not name:
                raise Invalid("The root is a folder, not a file.", key="")
            before = _stamp_at(directory, name)
            data = self._tree.read_at(directory, name, locator.key)
            after = _stamp_at(directory, name)
        if before != after:
            return _text(locator, data), content_hash(data)
        if now - _SETTLED_NS > int(before.rpartition(":")[2]):
            return _text(locator, data), before
        return _text(locator, data), f"{before}={content_hash(data)}"

    def write(self, locator: Locator, content: str, *, expect: str | None = None) -> Locator:
        """Put `content` at `locator`; see the seam for the promise.

        With `expect`, the text in place is hashed after the new one is safely on disk and just before the
        rename, so that a hand edit made meanwhile is met as a `Conflict`, not overwritten.
        """
        data = encoded(locator.key, content)
        self._tree.check_size(locator.key, len(data))
        unchanged = None if expect is None else partial(self._expect, locator, expect)
        try:
            with translating(locator.key):
                # Where something is expected, no folder is made for a write that is bound to be refused.
                self._tree.replace(locator, data, unchanged, make=not expect)
        except NotFound:
            if not expect:
                raise
            raise written_meanwhile(locator.key, expect) from None
        return locator

    def list(self, locator: Locator) -> list[Locator]:
        try:
            with translating(locator.key), self._tree.directory(locator.key) as fd, os.scandir(fd) as found:
                names = [entry.name for entry in found if not entry.is_symlink() and is_usable(entry.name)]
        except (NotFound, FileInTheWay):
            return []
        return [locator.child(name) for name in sorted(names)]

    def exists(self, locator: Locator) -> bool:
        try:
            with translating(locator.key):
                self._tree.stat(locator)
        except NotFound:
            return False
        return True

    def info(self, locator: Locator) -> Info:
        with translating(locator.key):
            found = self._tree.stat(locator)
        is_dir = stat.S_ISDIR(found.st_mode)
        return Info(locator, is_dir, 0 if is_dir else found.st_size, found.st_mtime)

    def mkdir(self, locator: Locator) -> Locator:
        refuse_temps(locator)
        with translating(locator.key), self._tree.directory(locator.key, make=True):
            return locator

    def remove(self, locator: Locator) -> None:
        with translating(locator.key):
            self._tree.unlink(locator)

    def prune(self, locator: Locator) -> int:
        """As the seam says."""
        with translating(locator.key):
            return self._tree.prune(locator)

    def scan(
        self,
        locator: Locator = Locator(),  # noqa: B008 -- frozen
        passed_over: Callable[[Locator, CairnError], object] | None = None,
    ) -> Iterator[tuple[str, int, int]]:
        """As the seam says: one directory read and one stat per file, close to the bare system calls.

        Folders that vanish meanwhile are passed over; links and unfinished writes are never shown.
        """
        waiting = [locator.key]
        while waiting:
            key = waiting.pop()
            prefix = f"{key}/" if key else ""
            batch = []
            try:
                with translating(key), self._tree.directory(key) as fd, os.scandir(fd) as found:
                    for entry in found:
                        name = entry.name
                        if not is_usable(name):
                            continue
                        if entry.is_dir(follow_symlinks=False):
                            waiting.append(prefix + name)
                        elif entry.is_file(follow_symlinks=False):
                            try:
                                known = entry.stat(follow_symlinks=False)
                            except FileNotFoundError:
                                continue
                            batch.append((prefix + name, known.st_size, known.st_mtime_ns))
            except (NotFound, FileInTheWay):
                continue
            except InvalidLocatorError as error:
                if key != locator.key:
                    continue  # a folder became a link between two looks
                if passed_over is None:
                    raise
                passed_over(Locator(key), error)
            except CairnError as error:
                if passed_over is None:
                    raise
                passed_over(Locator(key), error)
            yield from batch

    def sweep(self, older_than_seconds: float = 3600.0) -> int:
        """Remove the temporary files of writes that were killed, once they are old enough; say how many."""
        return self._tree.sweep_temps(older_than_seconds)

    def _expect(self, locator: Locator, expect: str, directory: int, name: str, final: bool) -> None:
        stamp, _, content = expect.partition("=")
        if final and content:
            found, expect = self._hash_at(directory, name, locator.key), content
        elif stamp.startswith(_STAMP):
            found, expect = _stamp_at(directory, name), stamp
            if is_temp(name):
                # Just exchanged: being renamed has moved its last time, the others still tell.
                found, expect = found.rpartition(":")[0], expect.rpartition(":")[0]
        else:
            found = self._hash_at(directory, name, locator.key)
        if found != expect:
            raise written_meanwhile(locator.key, expect, found)

    def _hash_at(self, directory: int, name: str, key: str) -> str:
        try:
            return content_hash(self._tree.read_at(directory, name, key))
        except NotFound:
            return ""


def _text(locator: Locator, data: bytes) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise Invalid(
            f"{locator}: not UTF-8 from byte {error.start} on. Save the file as UTF-8, then try again.",
            key=locator.key,
            byte=error.start,
        ) from None


def _stamp_at(directory: int, name: str) -> str:
    """What changes whenever a file is written: by rename (inode) or in place (times). The last change is last."""
    try:
        found = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return ""
    return f"{_STAMP}{found.st_dev}:{found.st_ino}:{found.st_size}:{found.st_mtime_ns}:{found.st_ctime_ns}"


registry.register(PROTOCOL, DeviceLocalBackend, clobber=True)
