"""What the command line shows: JSON when asked, tables and colour on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

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
