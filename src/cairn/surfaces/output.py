"""What the command line shows: JSON when asked, tables and colour on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from cairn.shipped import tables_of
from cairn.wording import counted, short

_HEAD = re.compile(r"\[([a-z][^\]]*)\] ?")
_FIELD = re.compile(r"\{([\w.|]+(?:=\w+)?)(?:([:?#~])([^{}]*))?\}")
_PART_OF_A_SECOND = re.compile(r"(?<=^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.\d+")
# What a terminal obeys: controls but tab and line end, and signs that turn the direction of what follows.
_OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _shown(text: str) -> str:
    r"""`text` as a terminal may have it, whatever was remembered: an escape is shown as \x1b, as `ls` does."""
    return _OBEYED.sub(
        lambda sign: sign[0].encode("unicode_escape").decode("ascii"), text.replace("\r\n", "\n")
    )


class Output:
    """Prints for one command. `as_json` prints exactly one JSON value on standard output and nothing else."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() and not as_json

    def value(self, value: Any) -> None:
        """The result for programs; nothing unless JSON was asked for."""
        if self.as_json:
            told = json.dumps(value, ensure_ascii=False, indent=2, default=str)
            print(_OBEYED.sub(lambda sign: f"\\u{ord(sign[0]):04x}", told))

    def line(self, text: str = "", *, style: str = "") -> None:
        """A line for people."""
        if self.as_json:
            return
        if self.is_terminal and style:
            self._console().print(_shown(text), style=style, markup=False, highlight=False)
        else:
            print(_shown(text) if self.is_terminal else text)

    def note(self, text: str) -> None:
        """A remark on standard error: it never mixes with results."""
        print(_shown(text) if sys.stderr.isatty() else text, file=sys.stderr)

    def block(self, text: str, *, indent: str = "    ", limit: int = 0) -> None:
        """Text set off from the lines around it."""
        shown = text if not limit or len(text) <= limit else text[: limit - 1] + "…"
        self.line(textwrap.indent(shown, indent))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
        """A table on a terminal, tab-separated lines elsewhere."""
        if self.as_json:
            return
        if not self.is_terminal:
            for row in rows:
                print("\t".join(str(cell).replace("\t", " ").replace("\n", " ") for cell in row))
            return
        from rich import box
        from rich.table import Table
        from rich.text import Text

        table = Table(*columns, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*(Text(_shown(str(cell))) for cell in row))  # words of people, not markup
        self._console().print(table)

    def fields(self, values: Mapping[str, Any]) -> None:
        """Names and values, one a line, aligned."""
        width = max((len(name) for name in values), default=0)
        for name, value in values.items():
            self.line(f"{name:<{width}}  {value}")

    @contextmanager
    def progress(self, what: str) -> Iterator[None]:
        """A progress bar on a terminal."""
        if not self.is_terminal or not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.progress import Progress

        with Progress(console=Console(stderr=True), transient=True) as bar:
            bar.add_task(what, total=None)
            yield

    def _console(self) -> Any:
        from rich.console import Console

        return Console()


# ---------------------------------------------------------------- answers whose lines stand in printed.toml


@cache
def printed_lines(command: str) -> list[Any]:
    """The lines of a command's answer; a command whose answer reads the same names another."""
    table = tables_of(Path(__file__).with_name("printed.toml"))
    found = table[command]
    return table[found] if isinstance(found, str) else found  # type: ignore[no-any-return]


def printed(lines: Sequence[Any], data: Mapping[str, Any], output: Output) -> int:
    """Print an answer by its lines, in the form that printed.toml describes; the exit code."""
    code = 0
    for line in lines:
        first, *inner = line if isinstance(line, list) else (line,)
        head = _HEAD.match(first)
        words = head[1].split(", ") if head else []
        for one in _meant(words, data):
            if inner and words[0].startswith("table "):
                _table(inner, one["table"], output)
            elif inner:
                code = max(code, printed(inner, one, output))
            elif any(word.startswith("fail ") for word in words):
                code = 1
            else:
                _say(_filled(first[head.end() :] if head else first, one), words, output)
    return code


def _meant(words: Sequence[str], data: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """What a line is printed of, by the words of its head: each item, or the answer, where its conditions hold."""
    found: list[Mapping[str, Any]] = [data]
    for word in words:
        verb, _, what = word.removeprefix("fail ").partition(" ")
        if verb == "each":
            items = _field(data, what) or ()
            pairs = items.items() if isinstance(items, Mapping) else ((one, None) for one in items)
            found = [
                {**data, **(one if isinstance(one, Mapping) else {"it": one, "value": value})}
                for one, value in pairs
            ]
        elif verb == "table":
            found = [{"table": _field(data, what)}]
        elif verb in {"if", "unless"}:
            found = [
                one for one in found if any(_field(one, name) for name in what.split()) == (verb == "if")
            ]
    yield from found


def _field(data: Any, path: str, *, needed: bool = False) -> Any:
    """A field by its path; nothing where one on the way is not there. With `=word`: whether it is that."""
    path, is_compared, word = path.partition("=")
    for name in path.split("."):
        data = data[name] if needed else data.get(name) if isinstance(data, Mapping) else None
    return str(data) == word if is_compared else data


def rounded(value: Any) -> Any:
    """A number or a time as a person reads it: three digits behind the point at most, no parts of a second."""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".")
    return _PART_OF_A_SECOND.sub("", value) if isinstance(value, str) else value


def _filled(text: str, data: Mapping[str, Any]) -> str:
    def told(at: re.Match[str]) -> str:
        path, how, more = at.groups()
        several = [_field(data, one, needed=how != "?") for one in path.split("|")]
        value = next(filter(None, several), several[-1])
        if how == "#":
            count = value if isinstance(value, int) else len(value)
            return counted(count, more) if more else str(count)
        if how == "~":
            return short(str(value), int(more or 100))
        shown = ", ".join(map(str, value)) if isinstance(value, list | tuple) else value
        if how == "?":
            yes, _, no = more.partition("|")
            return yes.replace("$", str(shown)) if value else no
        return format(shown, more or "")

    return _FIELD.sub(told, text)


def _say(text: str, words: Sequence[str], output: Output) -> None:
    block = next((word.split()[1:] for word in words if word.startswith("block")), None)
    if "note" in words:
        output.note(text)
    elif block is not None:
        indent, limit = map(int, block or (4, 0))
        output.block(text, indent=" " * indent, limit=limit)
    else:
        output.line(text, style="bold" if "bold" in words else "")


def _table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]], output: Output) -> None:
    cells = dict(one.split(": ", 1) for one in columns)
    output.table([*cells], [[_filled(cell, row) for cell in cells.values()] for row in rows])
