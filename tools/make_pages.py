"""The reference pages of the operations: docs/python.md, and the reference in docs/http.md."""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from typing import Any, get_args, get_origin

from cairn.memory import Memories, Memory
from cairn.operations.check import options_of
from cairn.operations.table import REQUIRED, Field, Operation, fields_of, operations_of
from cairn.surfaces.routes import ROUTES, Route

ROOMS = ((Memory, "memory"), (Memories, "memory.memories"))
PYTHON_HEAD = """# Python

Every call of the library with its fields, types and examples; made by `make docs` from `src/cairn/operations`.

```python
import cairn

with cairn.open_blocking("~/.cairn") as memory:  # each call runs on the caller's thread
    memory.remember("Deploys wait for the migration job.", "gotcha")

async with cairn.open("~/.cairn") as memory:  # the same calls, awaited
    found = await memory.search("where does Alice live", user_id="alice")
```

Both give the calls below; `memory.memories` holds those about governed memories. Bad input raises `cairn.Invalid`, a
missing thing `cairn.NotFound`; all errors are `cairn.CairnError`. `help(memory.search)` shows the same words.
"""


def kind_of(kind: Any) -> str:
    """A type in few words."""
    named = []
    for one in options_of(kind):
        origin, args = get_origin(one), get_args(one)
        if one is type(None):
            named.append("none")
        elif origin is not None and args and all(isinstance(value, str | int) for value in args):
            named.append(", ".join(f"`{value}`" for value in args))
        elif origin is not None:
            inside = getattr(args[0], "__name__", "object")
            named.append(f"list of {inside}" if "Sequence" in str(origin) or origin is list else "object")
        else:
            named.append(getattr(one, "__name__", str(one)))
    return " or ".join(named)


def table_of(fields: Iterable[Field], *, wire: bool) -> list[str]:
    """The fields as rows."""
    rows = []
    for one in fields:
        default = "needed" if one.default is REQUIRED else json.dumps(one.default, default=list)
        cells = [
            f"`{one.wire if wire else one.name}`",
            kind_of(one.type),
            default,
            one.says.words,
            f"`{json.dumps(one.says.example, ensure_ascii=False)}`",
        ]
        rows.append("| " + " | ".join(cell.replace("|", "\\|").replace("\n", "\\n") for cell in cells) + " |")
    head = ["| field | type | default | meaning | example |", "|---|---|---|---|---|"]
    return [*head, *rows, ""] if rows else []


def answer_of(row: Operation) -> list[str]:
    """What comes back, field by field."""
    if row.shape is None:
        return []
    rows = [
        f"| `{one.name}` | {kind_of(one.type)} | {one.says.words} |".replace("\n", " ")
        for one in fields_of(row.shape)
    ]
    return [
        f"Answer ({(row.shape.__doc__ or '').rstrip('.')}):",
        "",
        "| field | type | meaning |",
        "|---|---|---|",
        *rows,
        "",
    ]


def python_page() -> str:
    """docs/python.md."""
    lines = [PYTHON_HEAD]
    for room, name in ROOMS:
        lines += [f"## {name}", ""]
        for row in operations_of(room).values():
            returns = inspect.signature(row.call).return_annotation
            lines += [f"### {name}.{row.name}", "", row.summary, ""]
            lines += table_of(row.fields, wire=False)
            lines += [f"Returns `{returns}`.", ""]
    return "\n".join(lines).rstrip() + "\n"


def http_reference() -> str:
    """Every route: where its fields stand, and what it answers."""
    lines = []
    for route in ROUTES:
        lines += [f"### {route.method} {route.path}", "", route.operation.summary, ""]
        for place, fields in _places(route):
            if fields:
                lines += [f"{place}:", "", *table_of(fields, wire=True)]
        lines += answer_of(route.operation)
    return "\n".join(lines).rstrip() + "\n"


def _places(route: Route) -> tuple[tuple[str, tuple[Field, ...]], ...]:
    return (("In the path", route.in_path), ("In the query string", route.query), ("In the body", route.body))
