"""The YAML head of a note: read it safely, and change single keys without disturbing the rest.

Most heads are plain `key: value` lines and are read by hand; anything richer goes through YAML with anchors,
aliases, tags, deep nesting and over-long heads refused. A head that cannot be read is a `Problem`: the
entries below it stay usable.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from cairn.errors import Invalid
from cairn.types import Problem

MAX_CHARS = 64 * 1024

_PLAIN_LINE = re.compile(
    r"([A-Za-z_][\w-]*):(?:[ ]+(?:'([^'\n]*)'|(0|[1-9][0-9]{0,15})|([A-Za-z_][\w@+/-]*(?:[ .][\w@+/-]+)*)))?[ ]*",
    re.ASCII,
)
_NOT_TEXT = frozenset({"null", "true", "false", "yes", "no", "on", "off", "y", "n"})
_FIRST_FENCE = re.compile(r"---[ \t]*\r?$", re.MULTILINE)
_FENCE = re.compile(r"^---[ \t]*\r?$", re.MULTILINE)
_FIRST_MARKER = re.compile(r"^[ \t]*<!--[ \t]*/?entry:", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Head:
    """Where the head of a note is. `start`/`end` enclose the YAML text; the body begins at `body`.

    `fenced` is False where there is no head at all, or one that never closes (`closed` False).
    """

    start: int
    end: int
    body: int
    fenced: bool
    closed: bool = True


def find_head(text: str) -> Head:
    """Locate the head: a `---` first line (after an optional byte order mark) up to the next `---` line.

    The search ends at the first entry marker, so a lost closing fence can swallow no entry.
    """
    start = 1 if text.startswith("\ufeff") else 0
    first = _FIRST_FENCE.match(text, start)
    if first is None:
        return Head(start, start, start, fenced=False)
    begin = first.end() + 1
    closing = _FENCE.search(text, begin) if begin <= len(text) else None
    if closing is not None and _FIRST_MARKER.search(text, begin, closing.start()) is not None:
        closing = None
    if closing is None:
        marker = _FIRST_MARKER.search(text, min(begin, len(text)))
        stop = marker.start() if marker is not None else len(text)
        return Head(min(begin, len(text)), stop, stop, fenced=True, closed=False)
    return Head(begin, closing.start(), min(closing.end() + 1, len(text)), fenced=True)


def read_head(text: str) -> tuple[dict[str, Any], list[Problem]]:
    """The keys of a YAML head, and what is wrong with it; {} where it cannot be read at all."""
    if len(text) > MAX_CHARS:
        return {}, [Problem("frontmatter-size", 1, f"The frontmatter is longer than {MAX_CHARS} characters.")]
    plain = _read_plain(text)
    if plain is not None:
        return plain, []
    from cairn.notes.yaml_heads import read

    return read(text)


def _read_plain(text: str) -> dict[str, Any] | None:
    values: dict[str, Any] = {}
    for line in text.replace("\r\n", "\n").split("\n"):
        match = _PLAIN_LINE.fullmatch(line)
        if match is None:
            if not line:
                continue
            return None
        key, quoted, number, word = match.groups()
        if key in values or key.lower() in _NOT_TEXT or (word is not None and word.lower() in _NOT_TEXT):
            return None
        if quoted is not None:
            values[key] = quoted
        elif number is not None:
            values[key] = int(number)
        else:
            values[key] = word
    return values


def dump(values: Mapping[str, Any]) -> str:
    """YAML lines for `values`, in their order, ready to stand between the fences.

    Raises:
        Invalid: a value YAML cannot carry (NUL, a lone surrogate, an object), or more than the cap.
    """
    from cairn.notes.yaml_heads import write

    try:
        text = write(_plain(values))
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"Frontmatter cannot hold {', '.join(values)}: {error}.", field="frontmatter") from None
    if len(text) > MAX_CHARS:
        raise Invalid(
            f"The frontmatter would be {len(text)} characters long, more than {MAX_CHARS}: keep long text in "
            "the body.",
            field="frontmatter",
        )
    return text if values else ""


def with_values(text: str, updates: Mapping[str, Any]) -> str:
    """`text` (a YAML head) with the top-level keys of `updates` set; a value of None removes its key.

    Every other byte stays: comments, order, quoting, line ends. New keys go to the end.

    Raises:
        Invalid: the head is not readable YAML, or is written so that no single key can be changed safely.
    """
    before, problems = read_head(text)
    if any(problem.code != "frontmatter-doubled-key" for problem in problems):
        raise Invalid(f"{problems[0].message} Correct the frontmatter by hand first.", line=problems[0].line)
    newline = "\r\n" if "\r\n" in text else "\n"
    after = text
    for key, value in updates.items():
        lines = "" if value is None else dump({key: value}).replace("\n", newline)
        span = _key_span(after, key)
        if span is not None:
            after = after[: span[0]] + lines + after[span[1] :]
        elif lines:
            after += ("" if not after or after.endswith("\n") else newline) + lines
    wanted = {**before, **{k: _plain(v) for k, v in updates.items()}}
    found, wrong = read_head(after)
    if {k: v for k, v in wanted.items() if v is not None or k not in updates} != found or (
        wrong and not problems
    ):
        names = ", ".join(updates)
        raise Invalid(f"The frontmatter is written so that {names} cannot be set safely: edit it by hand.")
    if len(after) > MAX_CHARS:
        raise Invalid(f"The frontmatter would be longer than {MAX_CHARS} characters.", field="frontmatter")
    return after


def entry_count(values: Mapping[str, Any]) -> int:
    """The `entry_count` of a head; 0 where there is none, or none that could be."""
    count = values.get("entry_count")
    return count if isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 10**8 else 0


def in_head(text: str, updates: Mapping[str, Any], head: Head | None = None) -> str:
    """A whole note with the keys of `updates` set in its head; see `with_values`."""
    at = head or find_head(text)
    return text[: at.start] + with_values(text[at.start : at.end], updates) + text[at.end :]


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, date):
        return value.isoformat()
    return value


def _key_span(text: str, key: str) -> tuple[int, int] | None:
    """The characters of a top-level key with its value: its line and the indented or listed lines after."""
    start = re.search(
        rf"^(?:{re.escape(key)}|'{re.escape(key)}'|\"{re.escape(key)}\")[ \t]*:(?=[ \t\r\n]|\Z)",
        text,
        re.MULTILINE,
    )
    if start is None:
        return None
    end = _line_end(text, start.end())
    position = end
    while position < len(text):
        line_end = _line_end(text, position)
        line = text[position:line_end]
        if line.strip():
            if not line.startswith((" ", "\t", "- ", "-\n", "-\r")):
                break
            end = line_end
        position = line_end
    return start.start(), end


def _line_end(text: str, position: int) -> int:
    found = text.find("\n", position)
    return len(text) if found < 0 else found + 1
