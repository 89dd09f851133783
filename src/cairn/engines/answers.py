"""Parses a model's answer: finds the JSON in its text and checks it against the schema.

Models wrap JSON in thoughts, fences and small talk, cut it off, or fill it with braces of their own. What
comes out here is a value that fits, or a sentence that says why none does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from cairn.errors import Invalid

_THOUGHTS = re.compile(r"<(think|thinking|reasoning)>.*?</\1>", re.DOTALL | re.IGNORECASE)
_OPEN_THOUGHT = re.compile(r"^.*?</(?:think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_TRIED_STARTS = 64
_DECODER = json.JSONDecoder()
_TYPES: Mapping[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "null": type(None),
}


def read_answer(text: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    """The first JSON object in `text` that fits `schema`.

    Raises:
        Invalid: there is none; the message says what is wrong with the first one found.
    """
    bare = _OPEN_THOUGHT.sub("", _THOUGHTS.sub("", text), count=1)
    trouble = ""
    start = -1
    for _ in range(_TRIED_STARTS):
        start = bare.find("{", start + 1)
        if start < 0:
            break
        try:
            value, _ = _DECODER.raw_decode(bare, start)
        except (ValueError, RecursionError) as error:
            trouble = trouble or f"the JSON cannot be read: {error}"
            continue
        value = without_unset(value, schema)
        wrong = misfit(value, schema)
        if wrong is None:
            return dict(value)
        trouble = trouble or wrong
    raise Invalid(trouble or "there is no JSON object in the answer")


def misfit(value: Any, schema: Mapping[str, Any], where: str = "the answer") -> str | None:
    """What is wrong with `value` by `schema` (the plain part of JSON Schema that models are given); None if it fits."""
    if "anyOf" in schema:
        found = [misfit(value, option, where) for option in schema["anyOf"]]
        return None if None in found else found[0]
    if "enum" in schema and value not in schema["enum"]:
        return f"{where} is not one of {', '.join(map(str, schema['enum']))}"
    kinds = schema.get("type")
    if kinds is not None:
        names = [kinds] if isinstance(kinds, str) else list(kinds)
        if not any(_is_a(value, name) for name in names):
            return f"{where} is not a {' or '.join(names)}"
    if isinstance(value, dict):
        return _object_misfit(value, schema, where)
    if isinstance(value, list) and "items" in schema:
        for n, item in enumerate(value):
            if (wrong := misfit(item, schema["items"], f"{where}[{n}]")) is not None:
                return wrong
    if isinstance(value, str) and len(value) < schema.get("minLength", 0):
        return f"{where} is too short"
    return None


def _object_misfit(value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> str | None:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        if name not in value:
            return f'{where} has no "{name}"'
    for name, inner in value.items():
        if name in properties:
            if (wrong := misfit(inner, properties[name], f"{where}.{name}")) is not None:
                return wrong
        elif schema.get("additionalProperties") is False:
            return f'{where} has "{str(name)[:40]}", which was not asked for'
    return None


def _is_a(value: object, name: str) -> bool:
    if isinstance(value, bool) and name in {"integer", "number"}:
        return False
    return isinstance(value, _TYPES.get(name, object))


def strict(schema: Mapping[str, Any]) -> dict[str, Any]:
    """`schema` as strict endpoints want it: closed objects, every key required, optional ones nullable."""
    out: dict[str, Any] = {k: v for k, v in schema.items() if k not in {"default", "minLength"}}
    if "properties" in schema:
        required = set(schema.get("required", ()))
        out["properties"] = {
            name: strict(inner) if name in required else {"anyOf": [strict(inner), {"type": "null"}]}
            for name, inner in schema["properties"].items()
        }
        out["required"] = list(schema["properties"])
        out["additionalProperties"] = False
    if "items" in schema:
        out["items"] = strict(schema["items"])
    if "anyOf" in schema:
        out["anyOf"] = [strict(option) for option in schema["anyOf"]]
    return out


def without_unset(value: Any, schema: Mapping[str, Any]) -> Any:
    """`value` without the nulls that stand for optional keys the model left unset."""
    if isinstance(value, dict) and "properties" in schema:
        required = set(schema.get("required", ()))
        return {
            name: without_unset(inner, schema["properties"].get(name, {}))
            for name, inner in value.items()
            if inner is not None or name in required or name not in schema["properties"]
        }
    if isinstance(value, list) and "items" in schema:
        return [without_unset(item, schema["items"]) for item in value]
    return value
