"""Edits other programs' settings files by insertions that can later be removed exactly.

    insert(text, path, value) -> the new text, and what was inserted

Nothing is written anew: the file is read for its places, and one member or item is put there in the file's own
indentation. So comments, order, spaces and foreign entries stay, and taking the inserted text out gives the old file to
the byte. Comments and commas behind the last member, which several hosts allow in their JSON, are read as blanks.
"""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from cairn.canonical import from_json
from cairn.errors import Invalid

_SPACE = re.compile(r"[ \t\r\n]*")
_DECODER = json.JSONDecoder()
_ASIDE = re.compile(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/|^\ufeff', re.DOTALL)
_LAST_COMMA = re.compile(r'"(?:[^"\\]|\\.)*"|,(?=\s*[}\]])', re.DOTALL)
BEGIN, END = "<!-- cairn:begin -->", "<!-- cairn:end -->"


@dataclass(frozen=True, slots=True)
class Inserted:
    """A text with one insertion: what was inserted, and where."""

    text: str
    piece: str
    at: int


def _bare(text: str) -> str:
    """`text` with blanks in the place of comments, of commas behind the last member and of a mark of byte order."""

    def blank(found: re.Match[str]) -> str:
        return found[0] if found[0].startswith('"') else re.sub(r"[^\n]", " ", found[0])

    return _LAST_COMMA.sub(blank, _ASIDE.sub(blank, text))


def parsed(text: str, name: str) -> Any:
    """The JSON of a settings file; nothing stands for an empty object.

    Raises:
        Invalid: it is no JSON; the message names the file, the line and the column.
    """
    try:
        value = from_json(_bare(text)) if text.strip() else {}
    except ValueError as error:
        where = (
            f"line {error.lineno}, column {error.colno}" if isinstance(error, json.JSONDecodeError) else "?"
        )
        raise Invalid(
            f"{name} is not valid JSON ({where}): mend it, then run this again. Nothing was written.",
            path=name,
        ) from None
    if not isinstance(value, dict):
        raise Invalid(f"{name} holds no JSON object: mend it. Nothing was written.", path=name)
    return value


def insert_json(text: str, path: tuple[str, ...], value: Any, name: str) -> Inserted:
    """Put `value` into the object or list at `path`; the last word of the path is a new key, or "+" for a new item.

    Objects and lists on the way that are not there are made with it.

    Raises:
        Invalid: the file is no JSON, or something else stands where an object or list should.
    """
    holder = parsed(text, name)
    if not text.strip():
        made = json.dumps(_nested(path, value), indent=2) + "\n"
        return Inserted(text + made, made, len(text))
    bare = _bare(text)
    at = _skip(bare, 0)
    depth = 1
    *way, last = path
    for number, key in enumerate(way):
        if key not in holder:
            return _put(text, bare, at, depth, key, _nested((*way[number + 1 :], last), value))
        holder = holder[key]
        at = _members(bare, at)[key]
        depth += 1
        form = list if (*way, last)[number + 1] == "+" else dict
        if not isinstance(holder, form):
            raise Invalid(
                f'{name}: "{".".join(way[: number + 1])}" should be {"a list" if form is list else "an object"}: mend it, then '
                "run this again. Nothing was written.",
                path=name,
            )
    return _put(text, bare, at, depth, None if last == "+" else last, value)


def _nested(path: tuple[str, ...], value: Any) -> Any:
    for key in reversed(path):
        value = [value] if key == "+" else {key: value}
    return value


def _skip(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return found.end() if found else at


def _members(text: str, at: int) -> dict[str, int]:
    """Where the value of each key of the object at `at` begins."""
    found = {}
    at = _skip(text, at + 1)
    while text[at] != "}":
        key, at = _DECODER.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        found[key] = at
        at = _after(text, at)
    return found


def _after(text: str, at: int) -> int:
    """Where the next member or item begins, or the closing bracket stands."""
    _, end = _DECODER.raw_decode(text, at)
    end = _skip(text, end)
    return _skip(text, end + 1) if text[end] == "," else end


def _put(text: str, bare: str, at: int, depth: int, key: str | None, value: Any) -> Inserted:
    """Put a member (or, without a key, an item) behind the last one of the object or list at `at`."""
    _, end = _DECODER.raw_decode(bare, at)
    inside = bare[at + 1 : end - 1]
    is_flat = "\n" not in text
    unit = _unit(text)
    shown = (
        json.dumps(value) if is_flat else json.dumps(value, indent=unit).replace("\n", "\n" + unit * depth)
    )
    member = shown if key is None else f"{json.dumps(key)}: {shown}"
    if inside.strip():
        behind = at + 1 + len(inside.rstrip())
        piece = f", {member}" if is_flat else f",\n{unit * depth}{member}"
    else:
        behind = at + 1
        piece = member if is_flat else f"\n{unit * depth}{member}\n{unit * (depth - 1)}"
    return Inserted(text[:behind] + piece + text[behind:], piece, behind)


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\S", text)
    return found[1] if found else "  "


def insert_toml(text: str, table: str, lines: tuple[str, ...], name: str) -> Inserted:
    """Put a table at the end of a TOML file.

    Raises:
        Invalid: the file is no TOML, or has that table in a form that cannot be added to.
    """
    try:
        tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise Invalid(
            f"{name} is not valid TOML ({error}): mend it. Nothing was written.", path=name
        ) from None
    lead = "" if not text else "\n" if text.endswith("\n") else "\n\n"
    piece = lead + "\n".join((f"[{table}]", *lines)) + "\n"
    try:
        tomllib.loads(text + piece)
    except tomllib.TOMLDecodeError:
        raise Invalid(
            f"{name} has {table.partition('.')[0]} in a form that nothing can be added to: add [{table}] by hand. Nothing was "
            "written.",
            path=name,
        ) from None
    return Inserted(text + piece, piece, len(text))


def insert_block(text: str, body: str) -> Inserted:
    """Put the marked block at the end of a Markdown file, in the file's own line ends."""
    end = "\r\n" if "\r\n" in text else "\n"
    lead = "" if not text else end if text.endswith("\n") else end * 2
    piece = lead + end.join((BEGIN, *body.splitlines(), END)) + end
    return Inserted(text + piece, piece, len(text))


def take_out(text: str, pieces: Sequence[tuple[int, str]]) -> str | None:
    """`text` without pieces that were inserted there, in that order; None where one does not stand in its place."""
    for at, piece in reversed(pieces):
        if not text.startswith(piece, at):
            return None
        text = text[:at] + text[at + len(piece) :]
    return text


def find_and_take_out(text: str, pieces: Sequence[tuple[int, str]]) -> tuple[str, bool]:
    """`text`, which somebody has changed since, without the pieces that it holds once; and whether that was all of them."""
    whole = True
    for _, piece in reversed(pieces):
        if text.count(piece) == 1:
            text = text.replace(piece, "")
        else:
            whole = False
    return text, whole
