"""What operations answer, over HTTP and with `--json`: one TOML file per room, named like the room that answers with it.

A table is a shape: `_says` what it is, `_like` a shape whose fields it has, too, and a line for each field with its
type, its words and an example. They describe, and `by_fields` picks an answer's fields by them; an answer may carry more.

    answers = Answers("talk")
    @operation("POST /memory/flush", answers.FlushData, rules.session)

names a shape without reading the file: that is done when somebody asks for its fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

from cairn.operations.table import Says
from cairn.shipped import tables_of


@dataclass(frozen=True)
class Answer:
    """A shape by its name, in the file of a room."""

    room: str
    name: str

    @property
    def shape(self) -> type:
        """Its class, whose annotations are its fields."""
        return shapes_of(self.room)[self.name]


@dataclass(frozen=True)
class Answers:
    """The answers of a room, by name."""

    room: str

    def __getattr__(self, name: str) -> Answer:
        return Answer(self.room, name)


@cache
def shapes_of(room: str) -> dict[str, type]:
    """The shapes of a room by name, and those in `shared.toml`, which they may refer to like to each other."""
    tables = tables_of(Path(__file__).with_name(f"{room}.toml"))
    made: dict[str, type] = {} if room == "shared" else dict(shapes_of("shared"))
    for name, told in tables.items():
        like = (made[told.pop("_like")],) if "_like" in told else ()
        made[name] = type(name, like, {"__doc__": told.pop("_says"), "__annotations__": {}})
    names = {"Any": Any, "Literal": Literal, **made}
    for name, told in tables.items():
        for one, (text, words, *example) in told.items():
            kind, _, default = text.partition(" = ")
            says = Says(words, example[0] if example else None)
            made[name].__annotations__[one] = Annotated[eval(kind, names), says]
            if default:
                setattr(made[name], one, eval(default))  # noqa: S307 -- our own file
    return made
