"""Journals as plain files: an append is one `write` and one flush, and concurrent appends share a flush.

Lines are ended by a line feed. Where one append carries several lines, all but the last end in a tab before
it (blank space to a JSON reader): so a reader knows a unit that a power cut left half written, and returns
none of it.
"""

from __future__ import annotations

import fcntl
import logging
import os
import stat
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from cairn.engines.tree import Tree, flush, is_at, refuse_temps, translating, write_all
from cairn.errors import Invalid, NotFound
from cairn.seams import JournalSlice, Locator
from cairn.seams.storage import journal_made_anew, journal_moved, journal_slice, journal_unit, journal_whole
from cairn.together import Together

_CONTINUED = b"\t\n"
_BLOCK = 65536
_log = logging.getLogger(__name__)
T = TypeVar("T")


class FileJournals:
    """`Journals` in files below one folder, safe across threads and processes.

    Appends to one file from several threads are committed together: the first to arrive writes for those that
    queued up meanwhile, with one flush. Across processes `flock` on the file itself keeps order.
    """

    def __init__(self, root: Tree | str | os.PathLike[str]) -> None:
        self._tree = root if isinstance(root, Tree) else Tree(root)
        self.together: Together[_Append] = Together()

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        data = journal_unit(at, lines)
        if not data:
            return self.size(at)
        mine = _Append(data, sync, expect)
        self.together.run(at.key, mine, partial(self._commit, at))
        if mine.error is not None:
            raise mine.error
        return mine.end

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        def whole(at: Locator) -> bytes:
            with translating(at.key), self._tree.parent(at) as (fd, name):
                file = self._tree.open_file(fd, name, at.key)
                with os.fdopen(file, "rb", buffering=0) as handle:
                    handle.seek(max(start - 1, 0))
                    data: bytes = handle.read()
                    return data

        try:
            data = self._in_its_place(at, whole)
        except NotFound:
            data = b""
        return journal_slice(at, data, start)

    def size(self, at: Locator) -> int:
        def length(at: Locator) -> int:
            with translating(at.key):
                found = self._tree.stat(at)
            if not stat.S_ISREG(found.st_mode):
                raise Invalid(f"{at.key}: what is there is not a regular file.", key=at.key)
            return found.st_size

        try:
            return self._in_its_place(at, length)
        except NotFound:
            return 0

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        # Held to the end of the rename: an append that waits here then sees that its file is another.
        with translating(at.key), self._locked(at) as (_, _, size):
            data = journal_made_anew(at, lines, size)
            self._tree.replace(at, data)
        return len(data)

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        if not self.size(at):
            return False
        with translating(at.key), self._locked(at) as (_, _, size):
            lines = change(self.read(at).lines)
            if lines is None:
                return False
            self._tree.replace(at, journal_made_anew(at, lines, size))
        return True

    def _commit(self, at: Locator, batch: list[_Append]) -> None:
        """Write a batch as one piece; each of it learns where it ended, or that the journal ends elsewhere than it said."""
        with translating(at.key), self._locked(at) as (file, directory, size):
            # Whoever expects this end has read up to it: it is the end of a whole unit.
            is_whole = any(one.expect == size for one in batch)
            end = size if is_whole else self._mended_end(file, size)
            batch = _expected(at, batch, end)
            if size == 0 and directory is not None:
                # Before the first byte: a journal with content is one whose name is durable.
                flush(directory)
            try:
                write_all(file, b"".join(one.data for one in batch))
                if any(one.sync for one in batch):
                    _flush(file)
            except BaseException:
                os.ftruncate(file, end)
                raise

    def _make(self, at: Locator) -> None:
        if not at.key:
            raise Invalid("The root is a folder; a journal needs a name.", key="")
        refuse_temps(at)
        with self._tree.parent(at, make=True) as (fd, name):
            try:
                os.stat(name, dir_fd=fd, follow_symlinks=False)
            except FileNotFoundError:
                self._tree.check_new(fd, name, at.key)
                try:
                    os.close(self._tree.open_file(fd, name, at.key, os.O_WRONLY | os.O_CREAT | os.O_EXCL))
                except FileExistsError:
                    return
                self._tree.note_new(fd, name)

    @contextmanager
    def _locked(self, at: Locator) -> Iterator[tuple[int, int | None, int]]:
        """The journal's descriptor under its lock, its directory's where it is empty, and its size."""
        found = None
        while found is None:
            try:
                found = self._in_its_place(at, self._open_locked)
            except NotFound:
                self._make(at)
        file, directory, size = found
        try:
            yield file, directory, size
        finally:
            # A forked child may share the descriptor: unlock, then close.
            fcntl.flock(file, fcntl.LOCK_UN)
            os.close(file)
            if directory is not None:
                os.close(directory)

    def _open_locked(self, at: Locator) -> tuple[int, int | None, int] | None:
        """Open and lock the journal; None where another file took its place meanwhile."""
        with self._tree.parent(at) as (fd, name):
            file = self._tree.open_file(fd, name, at.key, os.O_RDWR | os.O_APPEND)
            try:
                fcntl.flock(file, fcntl.LOCK_EX)
                found = os.fstat(file)
                if is_at(found, name, fd):
                    return file, None if found.st_size else os.dup(fd), found.st_size
            except BaseException:
                os.close(file)
                raise
            os.close(file)
            return None

    def _in_its_place(self, at: Locator, call: Callable[[Locator], T]) -> T:
        """Do it; once more where something else than a journal stood in its place and could be set aside."""
        try:
            return call(at)
        except Invalid:
            if not self._set_aside(at):
                raise
            return call(at)

    def _set_aside(self, at: Locator) -> bool:
        """Rename a link, pipe or folder that stands in the place of a journal of ours, or of a folder on the way to it.

        Nothing is followed, read or removed, and a plain file is never touched. A log of what people said is not ours
        to move: it is their words, and is reported by name instead.
        """
        parts = at.key.split("/")
        ours = 1 if parts[0] == ".tmp" else 2 if parts[2:3] == ["journal"] else 0
        for depth in range(ours, len(parts) if ours else 0):
            with self._tree.parent(Locator("/".join(parts[: depth + 1]))) as (fd, name):
                guard = os.open(".", os.O_RDONLY | os.O_DIRECTORY, dir_fd=fd)
                try:
                    fcntl.flock(guard, fcntl.LOCK_EX)  # whoever comes second finds it done
                    found = os.stat(name, dir_fd=fd, follow_symlinks=False).st_mode
                    last = depth == len(parts) - 1
                    if not (stat.S_ISREG(found) if last else stat.S_ISDIR(found)):
                        aside = f"{name}.aside-{time.time_ns()}"
                        os.rename(name, aside, src_dir_fd=fd, dst_dir_fd=fd)
                        _log.warning(
                            "%s is no file of ours: it is now called %s, and made anew.", at.key, aside
                        )
                except FileNotFoundError:
                    break
                finally:
                    os.close(guard)
        return bool(ours)

    def _mended_end(self, file: int, size: int) -> int:
        """Where the next unit begins, after cutting off one that was never completed."""
        tail = os.pread(file, 2, max(size - 2, 0))
        if size == 0 or (tail.endswith(b"\n") and tail != _CONTINUED):
            return size
        begin = size
        while begin > 0:
            begin = max(begin - _BLOCK, 0)
            end = journal_whole(os.pread(file, size - begin, begin))
            if end:
                break
        else:
            end = 0
        os.ftruncate(file, begin + end)
        return begin + end


def _expected(at: Locator, batch: list[_Append], end: int) -> list[_Append]:
    """Those of a batch that are written from `end` on, each with its own end; the others learn where the journal ends."""
    kept = []
    for one in batch:
        if one.expect in {None, end}:
            kept.append(one)
            one.end = end = end + len(one.data)
        else:
            one.error = journal_moved(at, one.expect or 0, end)
    return kept


@dataclass(slots=True, eq=False)
class _Append:
    data: bytes
    sync: bool
    expect: int | None
    end: int = 0
    error: Exception | None = None


def _flush(file: int) -> None:
    # macOS has no fdatasync.
    (os.fdatasync if hasattr(os, "fdatasync") else flush)(file)
