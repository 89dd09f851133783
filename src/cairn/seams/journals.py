"""Append-only files of lines beside the notes: what they promise, the bytes of a unit, and a default by whole writes."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from cairn.errors import Conflict, Invalid, NotFound

if TYPE_CHECKING:
    from cairn.seams.storage import Locator, StorageBackend


@dataclass(frozen=True, slots=True)
class JournalSlice:
    """Whole lines of a journal from one offset on; `end` is the offset to continue from."""

    lines: tuple[str, ...]
    end: int


class Journals(Protocol):
    """Append-only files of lines in the SOURCE tier: what cannot be recomputed.

    A line is one JSON text without line breaks. `append` is durable when it returns, all of its lines or
    none of them. A torn last line (power cut) is never returned and never glued to a later one.
    """

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        """Add `lines` durably, as one unit; return the offset after them.

        With `sync` off the unit survives the death of the process but perhaps not a power cut: for marks that
        can be found out again, at the price of some work. With `expect`, the end of the journal as the caller
        last saw it, the unit is added there or not at all.

        Raises:
            Conflict: the journal ends elsewhere than at `expect`; somebody wrote meanwhile. Read on, and retry.
        """
        ...

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        """Whole lines from byte offset `start`; nothing (end 0) where there is no journal."""
        ...

    def size(self, at: Locator) -> int:
        """Bytes written so far; 0 where there is no journal."""
        ...

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        """Atomically make `lines` the whole journal (compaction, forget). The caller holds its lock.

        Who had read the old one to its end learns of it by `Conflict`, however long the new one is.
        """
        ...

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        """Rewrite a journal with nobody appending meanwhile: `change` gets its lines and returns the new ones.

        None leaves it as it is. Returns whether it was rewritten; a journal that is not there never is. Who had
        read the old one to its end learns of it as with `replace`. `change` may run more than once.
        """
        ...


def read_on(journals: Journals, at: Locator, end: int) -> tuple[JournalSlice, bool]:
    """What a journal has behind `end`, to which it was read; where it was replaced meanwhile, all of it, and True."""
    try:
        return journals.read(at, end), False
    except Conflict:
        return journals.read(at), True


def journal_moved(at: Locator, expect: int, end: int) -> Conflict:
    """The refusal of an append that expected the journal to end elsewhere."""
    return Conflict(
        f"{at}: it ends at byte {end}, not at {expect}: somebody wrote meanwhile. Read on, and retry.",
        key=at.key,
        expected=expect,
        found=end,
    )


def journal_made_anew(at: Locator, lines: Sequence[str], old_end: int) -> bytes:
    """A whole journal of `lines` in which none begins where the former one ended.

    A reader goes on from the offset it had come to. Were that a line's beginning by chance, it would keep what
    was taken out; so the first line gets a blank at its end until it is not.
    """
    made = [journal_unit(at, [line]) for line in lines]
    for blanks in range(len(lines) + 1):
        tried = [made[0][:-1] + b" " * blanks + b"\n", *made[1:]] if made else []
        if old_end not in itertools.accumulate(map(len, tried)):
            break
    return b"".join(tried)


def journal_unit(at: Locator, lines: Sequence[str]) -> bytes:
    """The bytes of one append: every line but the last ends in a tab. Refuses what would not be a line.

    To a JSON reader the tab is blank space; to us it says that the unit goes on, so that one which a power cut
    left half written is known.
    """
    if isinstance(lines, str):
        raise Invalid(f"{at}: give a list of lines, not one text.", key=at.key)
    for line in lines:
        if not isinstance(line, str) or "\n" in line or line.endswith(("\t", "\r")):
            raise Invalid(
                f"{at}: a journal line is one text without line breaks or a tab at its end.", key=at.key
            )
    try:
        return ("\t\n".join(lines) + "\n").encode("utf-8") if lines else b""
    except UnicodeEncodeError as error:
        raise Invalid(f"{at}: character {error.start} cannot be stored as UTF-8.", key=at.key) from None


def journal_whole(data: bytes) -> int:
    """How many bytes of `data` are whole units: up to the last line end that is not a continued one."""
    end = len(data)
    while (end := data.rfind(b"\n", 0, end)) >= 0:
        if not data.endswith(b"\t", 0, end):
            return end + 1
    return 0


def journal_slice(at: Locator, data: bytes, start: int) -> JournalSlice:
    """The whole lines of `data`, the bytes of a journal from one before `start` on (all of them where it is 0).

    A line that is not UTF-8 comes back with its odd bytes spelled out.

    Raises:
        Conflict: `start` is not a line's beginning any more; the journal was replaced. Read from 0.
    """
    if start:
        if not data.startswith(b"\n"):
            raise Conflict(
                f"{at}: byte {start} is no longer the start of a line; the journal was replaced. Read it from 0.",
                key=at.key,
                start=start,
            )
        data = data[1:]
    whole = data[: journal_whole(data)]
    lines = whole.decode("utf-8", "backslashreplace").split("\n")[:-1]
    return JournalSlice(tuple(line.removesuffix("\t") for line in lines), start + len(whole))


class WrittenJournals:
    """`Journals` by `read_version` and `write(expect=)`, for a backend without `append`.

    Each append writes the journal anew if nobody wrote meanwhile, and tries again if somebody did: as safe as one
    write, and as dear as the journal is long.
    """

    _ATTEMPTS = 50

    def __init__(self, storage: StorageBackend) -> None:
        self._storage = storage
        self._lock = threading.Lock()

    def append(
        self, at: Locator, lines: Sequence[str], *, sync: bool = True, expect: int | None = None
    ) -> int:
        del sync  # there is no write that is not durable
        unit = journal_unit(at, lines)

        def longer(data: bytes) -> bytes | None:
            if unit and expect not in {None, len(data)}:
                raise journal_moved(at, expect or 0, len(data))
            return data + unit if unit else None

        return len(self._write(at, longer))

    def read(self, at: Locator, start: int = 0) -> JournalSlice:
        return journal_slice(at, self._read(at)[0][max(start - 1, 0) :], start)

    def size(self, at: Locator) -> int:
        try:
            return self._storage.info(at).size
        except NotFound:
            return 0

    def replace(self, at: Locator, lines: Sequence[str]) -> int:
        return len(self._write(at, lambda data: journal_made_anew(at, lines, len(data))))

    def edit(self, at: Locator, change: Callable[[Sequence[str]], Sequence[str] | None]) -> bool:
        lines: Sequence[str] | None = None

        def edited(data: bytes) -> bytes | None:
            nonlocal lines
            lines = change(journal_slice(at, data, 0).lines) if data else None
            return None if lines is None else journal_made_anew(at, lines, len(data))

        self._write(at, edited)
        return lines is not None

    def _read(self, at: Locator) -> tuple[bytes, str]:
        try:
            text, version = self._storage.read_version(at)
        except NotFound:
            return b"", ""
        return text.encode("utf-8"), version

    def _write(self, at: Locator, change: Callable[[bytes], bytes | None]) -> bytes:
        """What the journal holds once `change` was made of its whole units; None leaves them as they are."""
        with self._lock:
            for attempt in itertools.count(1):
                data, version = self._read(at)
                data = data[: journal_whole(data)]
                made = change(data)
                if made is None:
                    return data
                try:
                    self._storage.write(at, made.decode("utf-8"), expect=version)
                    return made
                except Conflict:
                    if attempt == self._ATTEMPTS:
                        raise
                    time.sleep(min(0.001 * 2**attempt, 0.05))
        raise AssertionError("unreachable")
