"""The table of operations: each is declared once, and every surface is made from that.

A method of a room with `@operation` is a row. Its parameters are the request, one line each: type, limits, words,
example and default. The rest of the row stands in the decorator:

    @operation("POST /memory/flush", answers.FlushData, rules.session, writes=False)
    def flush(self, session_id: SessionId, app_id: AppId = "default", ...) -> FlushOutcome:
        ...  # the docstring is its help, on every surface

From it come `memory.flush`, its awaited twin (`aio.py`), the route with its checks and its OpenAPI description, the
options of `cairn flush`, and the reference pages. So a new option is one parameter here, and a new operation one
method; the command line needs a line that says how its answer is printed (`surfaces/command.py`), nothing else.

Annotations are looked at when somebody asks, so that importing the table costs next to nothing.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, is_dataclass
from functools import cache, cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar, get_args, get_origin, get_type_hints

from cairn.budget import kept
from cairn.errors import Invalid
from cairn.types import with_texts

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.operations.answers import Answer
    from cairn.parts import Parts
    from cairn.rights import Grant

F = TypeVar("F", bound=Callable[..., Any])
REQUIRED: Any = inspect.Parameter.empty


class Room:
    """The base of an operations family: it has the parts of the open root."""

    settings: Settings

    @property
    def parts(self) -> Parts:
        """The parts of the open root, for those who build on them."""
        raise NotImplementedError


# ---------------------------------------------------------------- fields


@dataclass(frozen=True, slots=True)
class Says:
    """What a field means, an example of it, and its limits.

    `low` and `high` bound a number, or the length of a text or a list; `each` bounds the items of a list. `wire` is
    its name over HTTP where that is another. A `here` field names something on this machine and is no part of a
    request over HTTP. `schema` describes items that are checked elsewhere. `default` is for fields that stand in a
    TypedDict, where it cannot be written beside them.
    """

    words: str
    example: Any
    low: float | None = None
    high: float | None = None
    pattern: str = ""
    each: tuple[int, int] | None = None
    wire: str = ""
    here: bool = False
    schema: Answer | None = None
    default: Any = REQUIRED


def says(words: str, example: Any, **limits: Any) -> Says:
    """What a field means, with an example and its limits, for use in `Annotated`."""
    return Says(words, example, **limits)


@dataclass(frozen=True, slots=True)
class Granted:
    """Marks a parameter that the caller's grant fills in, never the caller: which attribute of the grant."""

    attribute: str


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a request or an answer."""

    name: str
    type: Any
    default: Any
    says: Says
    granted: str = ""
    wire: str = field(init=False)  # its name over HTTP

    def __post_init__(self) -> None:
        object.__setattr__(self, "wire", self.says.wire or self.name)


def read_field(name: str, annotation: Any, default: Any, names: Mapping[str, Any], where: str) -> Field:
    """A field from its annotation, which may still be text."""
    found = eval(annotation, dict(names)) if isinstance(annotation, str) else annotation  # noqa: S307 -- our own source
    if get_origin(found) is not Annotated:
        raise TypeError(
            f"{where}: {name} says nothing about itself; use Annotated[..., says(words, example)]."
        )
    kind, *notes = get_args(found)
    if isinstance(notes[-1], Granted):
        return Field(name, kind, default, Says("given by the caller's grant", None), notes[-1].attribute)
    return Field(name, kind, default, notes[-1])


@cache
def fields_of(shape: type) -> tuple[Field, ...]:
    """The fields of an answer's class, those of its bases first."""
    found: dict[str, Field] = {}
    for base in reversed(shape.__mro__[:-1]):
        names = vars(inspect.getmodule(base))
        for name, annotation in vars(base).get("__annotations__", {}).items():
            default = vars(base).get(name, REQUIRED)
            found[name] = read_field(name, annotation, default, names, base.__name__)
    return tuple(found.values())


def by_fields(value: Any, shape: type) -> dict[str, Any]:
    """`value` as an answer of this shape: its attributes by name, or all of it where the shape has one field."""
    fields = fields_of(shape)
    if is_dataclass(value):
        return {one.name: _plain(getattr(value, one.name), one.type) for one in fields}
    [only] = fields
    return {only.name: _plain(value, only.type)}


def _plain(value: Any, kind: Any) -> Any:
    """What JSON can say: lists and objects, and tuples as the items that the list is of, field by field."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, list | tuple):
        return value
    [item] = get_args(kind) or (None,)
    return [
        dict(zip((field.name for field in fields_of(item)), one, strict=True)) if isinstance(one, tuple)
        else by_fields(one, item) if is_dataclass(one)
        else one
        for one in value
    ]  # fmt: skip


# ---------------------------------------------------------------- the door of every operation that writes
#
# No credential comes in by any field, whatever it is called. A text loses it (or the call is refused, by `keeping.secrets`).
# An id that holds one is refused by name, since ids stand in the names of files and in every note; an idempotency key is
# kept as a hash and needs no look. Three sorts of fields are left to what they go to: those an operation judges itself
# (`remember` answers with a verdict), messages (`talk` takes each through the same rules, field by field), and paths on
# this machine.

IDS = frozenset({
    "session_id", "app_id", "project_id", "user_id", "agent_id", "owner", "agent", "run_id", "memory_id", "entry_id",
    "name", "undo", "date", "category",
})  # fmt: skip
PATHS = frozenset({"path", "paths", "folder", "folders", "source", "target"})
ELSEWHERE = PATHS | {"messages", "idempotency_key", "limited_to"}
_SHORTEST = 8


def door(call: F, judged: frozenset[str]) -> F:
    """`call` with each of its arguments taken through the door first."""
    return _before(call, lambda room, given: _let_in(room, given, judged))


def fields_checked(call: F) -> F:
    """`call` with each of its arguments checked against the field it is for, as a request over HTTP is."""

    def check(_room: Room, given: Mapping[str, Any]) -> dict[str, Any]:
        from cairn.operations.check import held_to

        return held_to(made.operation.fields, given)  # type: ignore[attr-defined]

    made = _before(call, check)
    return made


def _before(call: F, look: Callable[[Room, Mapping[str, Any]], dict[str, Any]]) -> F:
    """`call` with what `look` makes of its arguments, which it gets by name."""
    code = inspect.unwrap(call).__code__
    names = code.co_varnames[1 : code.co_argcount]

    @functools.wraps(call)
    def run(room: Room, /, *args: Any, **given: Any) -> Any:
        if len(args) > len(names) or given.keys() & set(names[: len(args)]):
            return call(room, *args, **given)  # Python says best what is wrong with it
        given |= zip(names, args, strict=False)
        return call(room, **look(room, given))

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
                _check_id(value, name)
        else:
            try:
                out[name] = with_texts(value, functools.partial(_cut, room, name))
            except RecursionError:
                raise Invalid(
                    f"{name} holds itself, or is nested too deeply: flatten it.", field=name
                ) from None
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


def _check_id(value: str, name: str) -> None:
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


# ---------------------------------------------------------------- rows


@dataclass
class Asked:
    """One call as a rule of rights sees it: the room, the fields by their names in Python, and the caller's grant."""

    room: Any
    fields: dict[str, Any]
    grant: Grant


@dataclass(frozen=True)
class Operation:
    """One row of the table.

    Attributes:
        name: Its name in Python.
        call: The method.
        within: The same for fields that are checked already.
        writes: Whether it may change anything (another pool of threads, another HTTP method).
        http: Method and path, where it is served over HTTP.
        answers: What it answers over HTTP and with `--json`.
        allow: Raises `Forbidden` unless the caller's grant reaches what the call is about.
        in_query: Fields that a request with a body takes from the query string all the same.
        data: Makes that of what the method returns, where neither is it that already nor do the fields of `answers` say all.
        apart: Whether it may look through everything, so that it runs beside the calls of others.
        forgets: Fields that name what is gone once it has run; the audit log does not keep them.
        late: The `status` of an answer that was accepted and is not done yet: 202 over HTTP.
        status: The status of any other answer over HTTP.
        flat: Whether the fields of its answer stand beside the envelope, too.
    """

    name: str
    call: Callable[..., Any]
    within: Callable[..., Any]
    writes: bool = False
    http: tuple[str, ...] = ()
    answers: Answer | None = None
    allow: Callable[[Asked], None] | None = None
    in_query: tuple[str, ...] = ()
    data: Callable[..., Any] | None = None
    apart: bool = False
    forgets: tuple[str, ...] = ()
    late: str = ""
    status: int = 200
    flat: bool = False

    @cached_property
    def signature(self) -> inspect.Signature:
        """Its parameters one by one: `**at: Unpack[InSpace]` stands for the fields of `InSpace`."""
        found, parameters = inspect.signature(self.call), []
        for one in found.parameters.values():
            if one.kind is inspect.Parameter.VAR_KEYWORD:
                (several,) = get_args(eval(one.annotation, inspect.unwrap(self.call).__globals__))  # noqa: S307 -- our own source
                parameters += [
                    inspect.Parameter(
                        name,
                        inspect.Parameter.KEYWORD_ONLY,
                        default=get_args(kind)[-1].default,
                        annotation=kind,
                    )
                    for name, kind in get_type_hints(several, include_extras=True).items()
                ]
            else:
                parameters.append(one)
        return found.replace(parameters=parameters)

    @cached_property
    def parameters(self) -> tuple[Field, ...]:
        """Every parameter in order, also those that the caller's grant fills in."""
        names = inspect.unwrap(self.call).__globals__
        return tuple(
            read_field(one.name, one.annotation, one.default, names, self.call.__qualname__)
            for one in list(self.signature.parameters.values())[1:]
        )

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """What a caller says."""
        return tuple(one for one in self.parameters if not one.granted)

    @cached_property
    def _granted(self) -> tuple[tuple[str, str], ...]:
        """What the caller's grant fills in: each parameter with the attribute of the grant."""
        return tuple((one.name, one.granted) for one in self.parameters if one.granted)

    @property
    def shape(self) -> type | None:
        """The class of its answer, which has its fields."""
        return self.answers.shape if self.answers is not None else None

    @property
    def summary(self) -> str:
        """The first paragraph of its words, in one line."""
        return " ".join((inspect.getdoc(self.call) or "").partition("\n\n")[0].split())

    def room_in(self, memory: Any) -> Any:
        """The room of an open memory that has this operation: the memory itself, or its memories."""
        return memory if getattr(type(memory), self.name, None) is self.call else memory.memories

    def ask(self, room: Any, fields: dict[str, Any], grant: Grant) -> Any:
        """Check the caller's grant, then run it on `room` with fields that are checked; the answer as data."""
        fields |= {name: getattr(grant, granted) for name, granted in self._granted}
        if self.allow is not None:
            self.allow(Asked(room, fields, grant))
        return self.told(room, self.within(room, **fields), fields)

    def told(self, room: Any, answer: Any, fields: Mapping[str, Any]) -> Any:
        """What it answered, as data."""
        if self.data is not None:
            return self.data(answer, room, fields)
        return answer if isinstance(answer, Mapping) or self.shape is None else by_fields(answer, self.shape)


def operation(
    http: str | tuple[str, ...] = (),
    answers: Answer | None = None,
    allow: Callable[[Asked], None] | None = None,
    *,
    writes: bool | None = None,
    judges: tuple[str, ...] = (),
    **row: Any,
) -> Callable[[F], F]:
    """Declare the method below as an operation: where it is served, what it answers, who may call it.

    What is served by another method than GET may write, unless it says otherwise. See `Operation` for what else can be
    said of it. What may write takes its fields through the door (`door`), where credentials stay outside; `judges` are
    those it looks at itself.
    """
    routes = (http,) if isinstance(http, str) else http
    if writes is None:
        writes = any(not one.startswith("GET ") for one in routes)

    def declare(call: F) -> F:
        within = door(call, frozenset(judges)) if writes else call
        made = fields_checked(within)
        made.operation = Operation(call.__name__, made, within, writes, routes, answers, allow, **row)  # type: ignore[attr-defined]
        return made

    return declare


def operations_of(room: type) -> dict[str, Operation]:
    """The operations of a room, by name."""
    found = {name: getattr(getattr(room, name), "operation", None) for name in dir(room)}
    return {name: row for name, row in found.items() if isinstance(row, Operation)}


# ---------------------------------------------------------------- what `help(memory.search)` shows


def put_help(*rooms: type) -> None:
    """Give the operations of these rooms, and of their twins, a plain signature and the words of each field.

    Fields say what they mean in annotations, which `help` would print as they stand. Python code that opens a memory
    gets this; commands and servers never pay for it.
    """
    for room in rooms:
        for name, row in operations_of(room).items():
            method: Any = vars(room).get(name) or getattr(room, name)
            kinds = {one.name: one.type for one in row.parameters}
            parameters = [
                one.replace(annotation=kinds.get(one.name, one.annotation))
                for one in row.signature.parameters.values()
            ]
            method.__doc__ = _help_of(row)
            method.__signature__ = row.signature.replace(parameters=parameters)


def _help_of(row: Operation) -> str:
    """The docstring with a section that tells each field and shows an example of it."""
    words, mark, rest = (inspect.getdoc(row.call) or "").partition("\n\nRaises:")
    if "\n\nArgs:\n" in words:
        return words + mark + rest
    lines = [f"    {one.name}: {one.says.words} (for example {one.says.example!r})." for one in row.fields]
    told = "\n\nArgs:\n" + "\n".join(lines) if lines else ""
    return words + told + mark + rest
