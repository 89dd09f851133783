"""The reference pages of the operations: docs/python.md, and the reference in docs/http.md."""

from __future__ import annotations

import dataclasses
import inspect
import json
from collections.abc import Iterable
from typing import Any, get_args, get_origin

import cairn
from cairn.memory import Memories, Memory
from cairn.operations.check import options_of
from cairn.operations.recalling import Recalled, RecalledItem
from cairn.operations.table import REQUIRED, Field, Operation, fields_of, operations_of
from cairn.retrieval.answers import SearchResult
from cairn.retrieval.listing import GetResult
from cairn.surfaces.routes import ROUTES, Route
from cairn.talk import AddOutcome, FlushOutcome

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

Open a memory once in a process and share it: calls come from any threads, tasks and event loops at once. Who enters it again
(`async with memory` in a handler) shares it, and the last to leave closes it. A call that was cancelled or timed out may still be
done: give `add` an `idempotency_key` to send it again. Several processes may have one root open. A memory is not for a child made by
fork, and cannot be pickled: a child opens its own, by its root, where it was spawned or its parent had none open (gunicorn: in
`post_fork` or the lifespan of the app, not with `--preload`). One that is still open when the program ends is closed then.
"""


ANSWERS = (
    AddOutcome, FlushOutcome, SearchResult, cairn.Hit, cairn.Evidence, cairn.Freshness, GetResult, Recalled, RecalledItem,
    cairn.Verdict, cairn.Message, cairn.ContentItem, cairn.ToolCall,
)  # fmt: skip
ANSWERS_HEAD = """## What calls answer

The values that the main calls give back. `as_data()` of a `SearchResult` or a `GetResult` is the same as HTTP answers, with
tags and metadata as values. Mappings have the fields that [HTTP](http.md#reference) tells of the route of the same name.
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
    lines.append(ANSWERS_HEAD)
    for one in ANSWERS:
        lines += [
            f"### {one.__name__}",
            "",
            inspect.cleandoc(one.__doc__ or ""),
            "",
            "| attribute | type |",
            "|---|---|",
        ]
        lines += [f"| `{name}` | {_typed(kind)} |" for name, kind in _attributes(one)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _attributes(one: type) -> list[tuple[str, str]]:
    """The fields of a value, and what it says by a property."""
    told = [(field.name, str(field.type)) for field in dataclasses.fields(one)]  # type: ignore[arg-type]
    made = [(name, value) for name, value in vars(one).items() if isinstance(value, property)]
    return told + [
        (name, str(inspect.signature(value.fget).return_annotation)) for name, value in made if value.fget
    ]


def _typed(kind: str) -> str:
    return f"`{kind}`".replace("|", "\\|")


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
