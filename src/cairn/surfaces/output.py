"""What the command line shows: JSON when asked, tables and colour on a terminal, plain lines elsewhere."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any


class Output:
    """Prints for one command. `as_json` prints exactly one JSON value on standard output and nothing else."""

    def __init__(self, *, as_json: bool = False) -> None:
        self.as_json = as_json
        self.is_terminal = sys.stdout.isatty() and not as_json

    def value(self, value: Any) -> None:
        """The result for programs; nothing unless JSON was asked for."""
        if self.as_json:
            print(json.dumps(value, ensure_ascii=False, indent=2, default=str))

    def line(self, text: str = "", *, style: str = "") -> None:
        """A line for people."""
        if self.as_json:
            return
        if self.is_terminal and style:
            self._console().print(text, style=style, markup=False, highlight=False)
        else:
            print(text)

    def note(self, text: str) -> None:
        """A remark on standard error: it never mixes with results."""
        print(text, file=sys.stderr)

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

        table = Table(*columns, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*(str(cell) for cell in row))
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
