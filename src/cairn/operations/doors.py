"""The door of every operation that writes: no credential comes in by any of its fields, whatever they are called.

A text loses the credential (or the call is refused, by `keeping.secrets`). An id that holds one is refused by name,
since ids stand in the names of files and in every note; an idempotency key is kept as a hash and needs no look. Three
sorts of fields are left to what they go to: those an operation judges itself (`remember` answers with a verdict),
messages (`talk` takes each of them through the same rules, field by field), and paths on this machine.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.budget import kept
from cairn.errors import Invalid
from cairn.types import with_texts

if TYPE_CHECKING:
    from cairn.operations.table import Room

F = TypeVar("F", bound=Callable[..., Any])

IDS = frozenset({
    "session_id", "app_id", "project_id", "user_id", "agent_id", "owner", "agent", "run_id", "memory_id", "entry_id",
    "name", "undo", "date", "category",
})  # fmt: skip
ELSEWHERE = frozenset(
    {"messages", "idempotency_key", "limited_to", "path", "paths", "folders", "source", "target"}
)
_SHORTEST = 8


def door(call: F, judged: frozenset[str]) -> F:
    """`call` with each of its arguments taken through the door first."""
    code = call.__code__
    names = code.co_varnames[1 : code.co_argcount]

    @functools.wraps(call)
    def run(room: Room, /, *args: Any, **given: Any) -> Any:
        if len(args) > len(names) or given.keys() & set(names[: len(args)]):
            return call(room, *args, **given)  # Python says best what is wrong with it
        given |= zip(names, args, strict=False)
        return call(room, **_let_in(room, given, judged))

    return run  # type: ignore[return-value]


def _let_in(room: Room, given: Mapping[str, Any], judged: frozenset[str]) -> dict[str, Any]:
    if room.settings.keeping.secrets == "allow":
        return dict(given)
    out: dict[str, Any] = {}
    for name, value in given.items():
        if value is None or isinstance(value, bool | int | float) or name in judged or name in ELSEWHERE:
            out[name] = value
        elif name in IDS:
            out[name] = value
            if isinstance(value, str) and len(value) >= _SHORTEST:
                check_id(value, name)
        else:
            out[name] = with_texts(value, functools.partial(_cut, room, name))
    return out


def _cut(room: Room, name: str, text: str) -> str:
    from cairn.governed.secrets import redact

    if len(text) < _SHORTEST:
        return text
    found = redact(text)
    if found.findings and room.settings.keeping.secrets == "refuse":
        raise Invalid(
            f"{name} holds a credential ({found.findings[0].kind}); nothing was written. Take it out and try again.",
            field=name,
        )
    return found.text


def check_id(value: str, name: str) -> None:
    """Refuse an id that holds a credential."""
    if kind := _credential_in(value):
        raise Invalid(
            f"{name} holds a credential ({kind}). Ids stand in names of files and in every note: use another.",
            field=name,
        )


@kept("ids without a credential", 256 * 1024)
def _credential_in(value: str) -> str:
    from cairn.governed.secrets import redact

    return next(iter(redact(value).kinds), "")
