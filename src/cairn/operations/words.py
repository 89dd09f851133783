"""What `help(memory.search)` shows: a plain signature, and the words of each field.

Fields say what they mean in their annotations, which `help` would print as they stand. When Python code opens a memory,
each operation gets a signature without them and a section that lists them; commands and servers never pay for it.
"""

from __future__ import annotations

import inspect
from typing import Any

from cairn.operations.table import Operation, operations_of


def put_help(*rooms: type) -> None:
    """Give the operations of these rooms, and of their twins, the help they have in the table."""
    for room in rooms:
        for name, row in operations_of(room).items():
            method: Any = vars(room).get(name) or getattr(room, name)
            method.__doc__ = help_of(row)
            method.__signature__ = plain_signature(row)


def plain_signature(row: Operation) -> inspect.Signature:
    """The signature with types alone."""
    kinds = {one.name: one.type for one in row.parameters}
    parameters = [
        one.replace(annotation=kinds[one.name]) if one.name in kinds else one
        for one in row.signature.parameters.values()
    ]
    return row.signature.replace(parameters=parameters)


def help_of(row: Operation) -> str:
    """The docstring with a section that tells each field and shows an example of it."""
    words, mark, rest = (inspect.getdoc(row.call) or "").partition("\n\nRaises:")
    if "\n\nArgs:\n" in words:
        return words + mark + rest
    lines = [f"    {one.name}: {one.says.words} (for example {one.says.example!r})." for one in row.fields]
    told = "\n\nArgs:\n" + "\n".join(lines) if lines else ""
    return words + told + mark + rest
