"""The audit log of a server: one JSON line for each call, in files of a bounded size.

A line holds when, whose token, which operation, about whom, and how it ended; never what was said or asked. It is one
write to a file opened for appending, so lines of several servers do not mix, and everything that is not plain ASCII is
escaped in it, so that nothing a caller sends can look like a line or a field of its own. Lines are not flushed one by
one: a power cut may take the last seconds, and a call is never refused because it could not be logged (the server says
so in its log, and `status` shows it).
"""

from __future__ import annotations

import json
import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any

from cairn.canonical import from_json
from cairn.engines import plain
from cairn.engines.tree import is_at

log = logging.getLogger("cairn.audit")

FILES = 4
_NAME = "audit.jsonl"
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT


class AuditLog:
    """The audit log in `folder`: at most `max_bytes` in all, in `FILES` files of which the oldest makes room.

    With `max_bytes` 0 nothing is written.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        self._folder = folder
        self._newest = os.fspath(folder / _NAME)
        self._each = max_bytes // FILES
        self._turn = threading.Lock()
        self.trouble = ""

    @property
    def files(self) -> list[Path]:
        """The files there may be, newest first."""
        older = [self._folder / f"audit.{place}.jsonl" for place in range(1, FILES)]
        return [self._folder / _NAME, *older]

    def write(self, line: Mapping[str, Any]) -> None:
        """Append a line; trouble is told once, and does not reach the caller."""
        if not self._each:
            return
        data = (json.dumps(line, separators=(",", ":"), default=str) + "\n").encode("ascii")
        try:
            with self._turn:
                self._append(data)
        except OSError as error:
            if not self.trouble:
                log.error("calls are not in the audit log any more: %s", error)  # noqa: TRY400
            self.trouble = error.strerror or str(error)
        else:
            self.trouble = ""

    def blocked(self) -> str:
        """Why no line can be appended, "" where one can: a server or whoever asks beside it sees the same."""
        if not self._each:
            return ""
        try:
            os.close(plain.opened(self._newest, os.O_WRONLY | os.O_APPEND))
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"calls are not in the audit log: {self._newest}: {error.strerror}. Take away what stands there."
        return ""

    def _append(self, data: bytes) -> None:
        path = self._newest
        try:
            file = plain.opened(path, _APPEND)
        except FileNotFoundError:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            file = plain.opened(path, _APPEND)
        try:
            os.write(file, data)
            # Another server may have turned it over meanwhile.
            if os.lseek(file, 0, os.SEEK_END) > self._each and is_at(os.fstat(file), path):
                self._turn_over()
        finally:
            os.close(file)

    def _turn_over(self) -> None:
        """Each file takes the place of the next older one; the oldest goes."""
        names = self.files
        for newer, older in reversed([*pairwise(names)]):
            with suppress(FileNotFoundError):
                os.replace(newer, older)

    # ------------------------------------------------------------ reading

    def read(self) -> Iterator[dict[str, Any]]:
        """Every line, newest first; one that is no line of ours is passed over."""
        for path in self.files:
            try:
                lines = plain.read(path).splitlines()
            except OSError:
                continue
            for raw in reversed(lines):
                with suppress(ValueError):
                    value = from_json(raw)
                    if isinstance(value, dict) and isinstance(value.get("at"), str):
                        yield value

    def rewrite(self, change: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
        """Put `change(line)` in the place of each line; how many became others. For what has to be forgotten.

        A line that is written while its file is copied may be lost: it is of the same moment.
        """
        changed = 0
        with self._turn:
            for path in self.files:
                changed += _rewritten(path, change)
        return changed


def _rewritten(path: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> int:
    try:
        raw = plain.read(path)
    except OSError:
        return 0
    out, changed = [], 0
    for line in raw.splitlines():
        try:
            value = from_json(line)
        except ValueError:
            out.append(line)
            continue
        made = change(value) if isinstance(value, dict) else value
        changed += made != value
        out.append(line if made == value else json.dumps(made, separators=(",", ":")).encode("ascii"))
    if changed:
        plain.put(path, b"".join(line + b"\n" for line in out))
    return changed
