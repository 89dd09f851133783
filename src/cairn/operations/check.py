"""Checks what comes in from outside against the fields of an operation, and describes them as JSON Schema.

Every trouble names its field and says what would be right, several at once; unknown names are refused, never ignored.
"""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from numbers import Real
from types import NoneType, UnionType
from typing import Any, Literal, SupportsIndex, Union, get_args, get_origin

from cairn.errors import Invalid
from cairn.operations.table import PATHS, REQUIRED, Field, Says, fields_of

MAX_TROUBLES = 5
_TRUE, _FALSE = frozenset({"true", "1", "yes", "on"}), frozenset({"false", "0", "no", "off"})
_NAMES = {
    str: "a text",
    bytes: "a file",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    dict: "an object",
    list: "a list",
}


def checked(
    fields: Sequence[Field], given: Mapping[str, Any], *, text: bool = False, what: str = "field"
) -> dict[str, Any]:
    """The values of `given` by their names in Python, the defaults for what is left out.

    Args:
        fields: What there may be.
        given: What there is, by the names on the wire.
        text: The values are texts, as in a query string; numbers and switches are read from them.
        what: What one of them is called.

    Raises:
        Invalid: something is missing, unknown or wrong; the message names each.
    """
    troubles = []
    values: dict[str, Any] = {}
    met = 0
    for one in fields:
        name = one.wire
        if name not in given:
            if one.default is REQUIRED:
                troubles.append(f"{name}: is missing")
            else:
                values[one.name] = one.default
            continue
        met += 1
        try:
            values[one.name] = _value(one, given[name], text=text)
        except OverflowError:
            troubles.append(f"{name}: is too large a number")
        except ValueError as error:
            troubles.append(f"{name}: {error}")
    if met < len(given):
        known = {one.wire for one in fields}
        troubles += [f"{str(name)[:80]}: unknown {what}; remove it" for name in given if name not in known]
    _refuse(troubles)
    return values


def held_to(fields: Iterable[Field], given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of a call in Python, checked as a request is; a name that is no field is left to Python.

    What Python has beside the kinds of JSON counts as what it stands for: a path or a day as its text, a tuple or
    another series as a list, a whole number of another library as one.

    Raises:
        Invalid: something is wrong; the message names each.
    """
    values, troubles = dict(given), []
    for one in fields:
        if one.name not in given:
            continue
        value = given[one.name]
        if type(value) is type(one.default) and value == one.default:
            continue
        try:
            values[one.name] = _value(one, _plain(options_of(one.type), value), text=False)
        except OverflowError:
            troubles.append(f"{one.name}: is too large a number")
        except ValueError as error:
            troubles.append(f"{one.name}: {error}")
    _refuse(troubles)
    return values


def _plain(options: Sequence[Any], value: Any) -> Any:
    if value is None or isinstance(value, str | bytes | int | float | dict) or type(value) in options:
        return value
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Iterable) and not isinstance(value, Mapping):
        return [os.fspath(one) if isinstance(one, os.PathLike) else one for one in value]
    if isinstance(value, SupportsIndex) and not isinstance(value, Iterable):
        return operator.index(value)
    return float(value) if isinstance(value, Real) else value


def _refuse(troubles: Sequence[str]) -> None:
    if troubles:
        more = len(troubles) - MAX_TROUBLES
        told = "; ".join(troubles[:MAX_TROUBLES]) + (f"; and {more} more" if more > 0 else "")
        raise Invalid(f"{told}.", field=troubles[0].partition(":")[0])


def options_of(kind: Any) -> tuple[Any, ...]:
    """The types a value may have."""
    if type(kind) is type:
        return (kind,)
    return get_args(kind) if get_origin(kind) in {Union, UnionType} else (kind,)


def _value(field: Field, value: Any, *, text: bool) -> Any:
    options = options_of(field.type)
    if value is None:
        if NoneType in options:
            return None
        raise ValueError(f"must be {_described(options)}, not null")
    for one in options:
        found = _read(one, value) if text else value
        if _fits(one, found):
            _check_limits(field.says, found)
            if isinstance(found, str):
                _check_signs(found, path=field.name in PATHS)
            elif isinstance(found, list | tuple):
                for part in found:
                    if isinstance(part, str):
                        _check_signs(part, path=field.name in PATHS)
            return float(found) if one is float else found
    raise ValueError(f"must be {_described(options)}, not {_told(value)}")


def _read(kind: Any, value: str) -> Any:
    """A value out of a query string; the text itself where it cannot be one."""
    try:
        if kind is bool:
            low = value.lower()
            return True if low in _TRUE else False if low in _FALSE else value
        if kind is int or (get_origin(kind) is Literal and isinstance(get_args(kind)[0], int)):
            return int(value)
        return float(value) if kind is float else value
    except ValueError:
        return value


def _fits(kind: Any, value: Any) -> bool:
    if kind is str or kind is bool or kind is bytes:
        return isinstance(value, kind)
    if kind is Any:
        return True
    origin = get_origin(kind)
    if origin is Literal:
        return any(value == one and type(value) is type(one) for one in get_args(kind))
    if kind is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool)
    if origin in {list, Sequence}:  # of texts, or of what is judged where it goes to
        return isinstance(value, list | tuple) and (
            get_args(kind)[0] is not str or all(isinstance(item, str) for item in value)
        )
    if kind is datetime:
        return isinstance(value, datetime)
    return origin in {dict, Mapping} and isinstance(value, Mapping)


def _check_signs(value: str, *, path: bool) -> None:
    try:
        if path and "\0" in value:
            raise ValueError("a path has no NUL character")
        (os.fsencode if path else str.encode)(value)
    except UnicodeEncodeError:
        raise ValueError("is no Unicode text: there is half a character in it") from None


def _check_limits(says: Says, value: Any) -> None:
    if isinstance(value, bool | Mapping | datetime):
        return
    if isinstance(value, int | float):
        if not (says.low is None or value >= says.low) or not (says.high is None or value <= says.high):
            raise ValueError(f"is {str(value)[:60]}: use {_span(says)}")
        return
    size = len(value)
    of = "characters" if isinstance(value, str) else "bytes" if isinstance(value, bytes) else "items"
    if size < (says.low or 0) or (says.high is not None and size > says.high):
        raise ValueError(f"has {size} {of}: use {_span(says)}")
    if says.pattern and isinstance(value, str) and not re.fullmatch(says.pattern, value):
        raise ValueError(f'"{value[:60]}" has characters that it cannot have ({says.pattern})')
    if says.each is not None and not isinstance(value, str | bytes):
        for item in value:
            if not isinstance(item, str) or not says.each[0] <= len(item) <= says.each[1]:
                raise ValueError(f"each item has {says.each[0]} to {says.each[1]} characters")


def _span(says: Says) -> str:
    if says.high is None:
        return f"{says.low:g} or more"
    return f"at most {says.high:g}" if says.low is None else f"{says.low:g} to {says.high:g}"


def _described(options: Sequence[Any]) -> str:
    named = []
    for one in options:
        if get_origin(one) is Literal:
            named.append(f"one of {', '.join(str(value) for value in get_args(one))}")
        elif one not in {NoneType, datetime}:
            plain = get_origin(one) or one
            named.append(_NAMES.get({Sequence: list, Mapping: dict}.get(plain, plain), "something else"))
    return " or ".join(dict.fromkeys(named))


def _told(value: Any) -> str:
    if isinstance(value, str):
        return f'"{value[:60]}"'
    return (
        _NAMES.get(type(value), type(value).__name__) if isinstance(value, list | dict) else str(value)[:60]
    )


# ---------------------------------------------------------------- JSON Schema


def schema_of(one: Field, shapes: dict[str, type]) -> dict[str, Any]:
    """The JSON Schema of a field, with its words and an example; shapes it refers to are put into `shapes`."""
    said = one.says
    schema = _type_schema(one.type, said, shapes)
    schema |= {"description": said.words[:1].upper() + said.words[1:] + ".", "examples": [said.example]}
    if one.default is not REQUIRED:
        schema["default"] = list(one.default) if isinstance(one.default, tuple) else one.default
    return schema


_TAKEN_AS_IT_IS = {
    "type": "object",
    "description": "A message as OpenAI, Anthropic, Gemini, LangChain and others have it.",
}


def object_schema(
    fields: Iterable[Field], shapes: dict[str, type], words: str = "", *, closed: bool
) -> dict[str, Any]:
    """The JSON Schema of an object with these fields; a closed one has no others."""
    rows = list(fields)
    schema: dict[str, Any] = {"type": "object"}
    if words:
        schema["description"] = words
    schema["properties"] = {one.wire: schema_of(one, shapes) for one in rows}
    if required := [one.wire for one in rows if one.default is REQUIRED]:
        schema["required"] = required
    return schema | {"additionalProperties": not closed}


def shape_schemas(shapes: dict[str, type]) -> dict[str, Any]:
    """The JSON Schemas of these shapes and of all they refer to, by name."""
    done: dict[str, Any] = {}
    while left := [name for name in shapes if name not in done]:
        for name in left:
            shape = shapes[name]
            closed = name in {"MessageItem", "ContentItem", "ToolCall", "ToolFunction"}
            done[name] = object_schema(fields_of(shape), shapes, shape.__doc__ or "", closed=closed)
    return dict(sorted(done.items()))


def _type_schema(kind: Any, said: Says, shapes: dict[str, type]) -> dict[str, Any]:
    options = [one for one in options_of(kind) if one is not datetime]
    if len(options) == 1:
        return _one_schema(options[0], said, shapes)
    return {"anyOf": [_one_schema(one, said, shapes) for one in options]}


def _one_schema(kind: Any, said: Says, shapes: dict[str, type]) -> dict[str, Any]:
    origin = get_origin(kind)
    if kind is NoneType:
        return {"type": "null"}
    if origin is Literal:
        plain = "integer" if isinstance(get_args(kind)[0], int) else "string"
        return {"type": plain, "enum": list(get_args(kind))}
    if kind is str:
        return (
            {"type": "string"}
            | _bounds(said, "minLength", "maxLength")
            | ({"pattern": said.pattern} if said.pattern else {})
        )
    if kind is bytes:
        return {"type": "string", "contentMediaType": "application/octet-stream"}
    if kind is bool:
        return {"type": "boolean"}
    if kind in {int, float}:
        return {"type": "integer" if kind is int else "number"} | _bounds(said, "minimum", "maximum")
    if origin in {list, Sequence}:
        items = (
            {"anyOf": [_reference(said.schema.shape, shapes), _TAKEN_AS_IT_IS]}
            if said.schema
            else _item_schema(get_args(kind)[0], said, shapes)
        )
        return {"type": "array", "items": items} | _bounds(said, "minItems", "maxItems")
    if origin in {dict, Mapping}:
        inside = get_args(kind)[1]
        more = True if inside is Any else _one_schema(inside, Says("", None), shapes)
        return {"type": "object", "additionalProperties": more}
    return _reference(kind, shapes) if isinstance(kind, type) else {}


def _item_schema(kind: Any, said: Says, shapes: dict[str, type]) -> dict[str, Any]:
    low, high = said.each or (None, None)
    return _type_schema(kind, Says("", None, low=low, high=high), shapes)


def _reference(shape: type, shapes: dict[str, type]) -> dict[str, Any]:
    shapes[shape.__name__] = shape
    return {"$ref": f"#/components/schemas/{shape.__name__}"}


def _bounds(said: Says, low: str, high: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if said.low is not None:
        found[low] = said.low
    if said.high is not None:
        found[high] = said.high
    return found
