"""Reads what other programs put into a message: blocks of content, tool calls, results of tools.

    block -> `read`    what it is: ("item", one of ours) · ("call", OpenAI's form) · ("result", id and content) · ("left", why)
          -> `said`    items as the content of a message: a text where there is nothing but text

One table of names serves them all, since they differ in names alone: OpenAI's chat and responses, Anthropic, Gemini,
Bedrock, LangChain, LlamaIndex, Ollama, and Vercel's SDK. A block of a kind that is not known here keeps its words; one without
words is left out, and that is said: a new kind of block costs itself and never the message it stands in.
"""

from __future__ import annotations

import base64
import dataclasses
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

from cairn.talk.messages import ITEM_FIELDS, ITEM_TYPES

_DEEPEST = 40
_TEXTS = ("text", "input_text", "output_text", "summary_text", "text_plain")
_WORDS = ("alt", "alt_text", "caption", "description", "transcript", "context")
_UNSAID = (
    "thinking", "redacted_thinking", "reasoning", "reasoning_content", "reasoning_text", "redacted_reasoning", "compaction",
    "non_standard", "cache", "cache_point", "step_start",
)  # fmt: skip
_CALLS = (
    "tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "server_tool_call", "invalid_tool_call", "function_call",
    "custom_tool_call", "mcp_call",
)  # fmt: skip
_MEDIA = {
    "image_url": "image", "input_image": "image", "image": "image", "audio": "audio", "input_audio": "audio", "video": "doc",
    "video_url": "doc", "file": "doc", "input_file": "doc", "document": "doc", "media": "doc", "search_result": "doc",
}  # fmt: skip
# Gemini and Bedrock name what a block is by the one field it has.
_BARE = {
    "function_call": "tool_call", "function_response": "tool_result", "executable_code": "tool_call",
    "code_execution_result": "tool_result", "tool_use": "tool_use", "tool_result": "tool_result", "inline_data": "file",
    "file_data": "file", "image": "image", "document": "document", "video": "video", "audio": "audio",
    "reasoning_content": "reasoning", "cache_point": "cache_point",
}  # fmt: skip
_BASE64 = re.compile(r"(?:[A-Za-z0-9+/]{4})+(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?")
_CALL_IDS = ("call_id", "tool_call_id", "tool_use_id", "id")


def plain(value: Any, depth: int = 0) -> Any:
    """The values of other programs' classes (pydantic's, dataclasses, enums, bytes) as JSON has them; others as they are."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float) or depth > _DEEPEST:
        return value
    if isinstance(value, Mapping):
        if "block_type" in value:  # LlamaIndex holds bytes in base64 already
            value = {
                key: inner.decode("ascii", "replace") if isinstance(inner, bytes) else inner
                for key, inner in value.items()
            }
        return {key: plain(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner, depth + 1) for inner in value]
    if isinstance(value, bytes | bytearray) and depth:  # not as a whole content: words in base64 are none
        return base64.b64encode(value).decode("ascii")
    if isinstance(value, type):
        return value
    if callable(dump := getattr(value, "model_dump", None)):
        return plain(dump(), depth + 1)
    if dataclasses.is_dataclass(value):
        return {
            one.name: plain(getattr(value, one.name), depth + 1)
            for one in dataclasses.fields(value)
            if hasattr(value, one.name)
        }
    return value


def text_of(value: Any) -> str:
    """A value as text: JSON, unless it is a text already."""
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, ensure_ascii=False, default=_other)
    except (TypeError, ValueError):  # keys that are no texts, a list that holds itself
        return str(value)


def _other(value: Any) -> Any:
    return sorted(map(str, value)) if isinstance(value, set | frozenset) else str(value)


def is_own(block: Any) -> bool:
    """Whether a block is an item in our own form."""
    return isinstance(block, Mapping) and block.get("type") in ITEM_TYPES and not block.keys() - ITEM_FIELDS


def stands_alone(kind: object) -> bool:
    """Whether a block of this kind may be a message of its own, as in OpenAI's responses."""
    return isinstance(kind, str) and (
        kind in _UNSAID or kind in _CALLS or kind.endswith(("_call", "_call_output")) or kind in _LISTED
    )


_LISTED = ("mcp_list_tools", "mcp_approval_request", "mcp_approval_response", "item_reference")


def read(block: Any) -> Iterator[tuple[str, Any]]:
    """What one block of content is."""
    if isinstance(block, str):
        yield "item", {"type": "text", "text": block}
        return
    if not isinstance(block, Mapping) or is_own(block):
        yield "item", block
        return
    given, block = block, _typed(block)
    kind = block.get("type")
    if not isinstance(kind, str):
        yield "item", dict(given)  # the check behind names what is wrong with it
    elif kind in _UNSAID:
        yield "left", f"is {kind}, which nobody said"
    elif kind in _TEXTS or kind == "refusal":
        words = block.get("text", block.get("refusal"))
        yield "item", {"type": "text", "text": words} if isinstance(words, str) else dict(given)
    elif kind in _CALLS:
        yield "call", call_of(block)
        if kind == "mcp_call" and ("output" in block or "error" in block):
            yield "result", (_first(block, _CALL_IDS), returned(block))
    elif kind.endswith(("tool_result", "_call_output")):
        yield "result", (_first(block, (*_CALL_IDS, "name")), returned(block))
    elif kind in _MEDIA:
        item = _attached(block)
        yield "item", item if item.keys() - {"type"} else dict(given)
    elif kind.endswith("_call"):
        yield "left", f"is {kind}, which has no words"
    elif words := _words_in(block):
        yield "item", {"type": "text", "text": words}
    else:
        yield "left", f"is {kind}, of which nothing can be kept"


def said(items: Iterable[Any]) -> Any:
    """Items as the content of a message: a text where there is nothing but text."""
    kept = list(items)
    if all(
        isinstance(one, Mapping) and one.get("type") == "text" and one.keys() <= {"type", "text"}
        for one in kept
    ):
        return "\n".join(str(one["text"]) for one in kept)
    return kept


def call_of(raw: Any) -> Any:
    """A tool call in the form of OpenAI's chat; what is no object stays as it is."""
    if not isinstance(raw, Mapping):
        return raw
    inner = next((raw[name] for name in ("function", "custom") if isinstance(raw.get(name), Mapping)), None)
    block = {**raw, **(inner or {})}
    name = _first(block, ("name", "tool_name")) or ("code_execution" if "code" in block else None)
    given = _first(block, ("arguments", "args", "input", "tool_kwargs", "code"))
    number = _first(raw, _CALL_IDS)
    if number is None and ("function" in raw or "args" in raw):  # Ollama, Gemini and LangChain may name none
        number = name
    kind = "custom" if "custom" in raw else "function"
    return {
        "id": number,
        "type": kind,
        "function": {"name": name, "arguments": text_of({} if given is None else given)},
    }


def returned(block: Mapping[str, Any]) -> Any:
    """What a tool gave back, as the content of a message; a failure says that it is one."""
    held = _first(block, ("content", "output", "response", "tool_output", "error"))
    if isinstance(held, Mapping):
        if held.keys() == {"type", "value"}:  # Vercel's
            held = held["value"]
        elif len(held) == 1 and held.keys() <= {"result", "output"}:
            held = next(iter(held.values()))
    if isinstance(held, Mapping) and isinstance(_typed(held).get("type"), str):
        held = [held]
    content = _result(held)
    outcome = str(block.get("status", block.get("outcome", ""))).lower()
    failed = block.get("is_error") is True or outcome.endswith(("error", "failed")) or "error" in block
    if failed and isinstance(content, str) and "error" not in content[:200].lower():
        return f"Error: {content}"
    return content


def _result(held: Any) -> Any:
    if held is None:
        return ""
    if not isinstance(held, list) or not held:
        return text_of(held)
    typed = [isinstance(one, Mapping) and isinstance(_typed(one).get("type"), str) for one in held]
    if not all(fits or isinstance(one, str) for fits, one in zip(typed, held, strict=True)):
        return text_of(held)
    items: list[Any] = []
    for one in held:
        found = [what for how, what in read(one) if how == "item"]
        items += found or [{"type": "text", "text": text_of(_open(one))}]
    return said(items)


def _open(block: Any) -> Any:
    """A block without what only its program can read."""
    if not isinstance(block, Mapping):
        return block
    return {
        key: inner
        for key, inner in block.items()
        if inner is not None and not str(key).startswith("encrypted")
    }


def _typed(raw: Mapping[str, Any]) -> dict[str, Any]:
    """A block with names in one style and a `type`, where it says in any way what it is."""
    block = {_snake(str(key)): value for key, value in raw.items() if value is not None}
    kind = block.get("type") or block.get("block_type")
    if isinstance(kind, str):
        return {**block, "type": kind.replace("-", "_")}
    if block.get("thought") is True:
        return {"type": "thinking"}
    if isinstance(block.get("text"), str):
        return {"type": "text", "text": block["text"]}
    for name, kind in _BARE.items():
        if name in block:
            held = block[name]
            inner = (
                {_snake(str(key)): value for key, value in held.items()} if isinstance(held, Mapping) else {}
            )
            if name.startswith("function_") and inner.get("id") is None:
                inner["id"] = inner.get("name")
            if name in {"executable_code", "code_execution_result"}:
                inner = {"name": "code_execution", **inner, "id": inner.get("id") or "code_execution"}
            return {**inner, "type": kind}
    return block


def _snake(name: str) -> str:
    return name if name.islower() else re.sub(r"(?<=[a-z0-9])([A-Z])", r"_\1", name).lower()


def _first(block: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((block[name] for name in names if block.get(name) is not None), None)


def _words_in(block: Mapping[str, Any]) -> str:
    """The words of a block whose kind is not known here: its own, or a title with the address it stands for."""
    for name in ("text", *_WORDS):
        if isinstance(block.get(name), str) and block[name].strip():
            return str(block[name])
    title, url = block.get("title"), block.get("url")
    if isinstance(title, str) and title.strip():
        return f"{title} ({url})" if isinstance(url, str) else title
    return ""


def _attached(block: Mapping[str, Any]) -> dict[str, Any]:
    """An image, a recording or a file: by reference, or by its own bytes, with the words that came with it."""
    kind = block["type"]
    inner = _first(block, (kind, "file", "image_url", "input_audio"))
    if isinstance(inner, Mapping):
        held: Mapping[str, Any] = inner
    else:
        bare = "data" if isinstance(inner, str) and _BASE64.fullmatch(inner) else "url"
        held = {**block, bare: inner or block.get(bare)}
    source = held.get("source", held)
    if isinstance(source, str):
        source = {"url": source}
    elif not isinstance(source, Mapping):
        source = {}
    source = {_snake(str(key)): value for key, value in source.items()}
    url = _first(source, ("url", "file_url", "file_uri", "uri", "path", "file_data"))
    data = _first(source, ("data", "base64", "bytes"))
    media = _first(source, ("media_type", "mime_type", "image_mimetype", "mimetype"))
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        media, url = head[5:].partition(";")[0], None
    name = _first(held, ("title", "filename", "display_name", "name")) or _first(
        source, ("filename", "file_id", "id")
    )
    found: dict[str, Any] = {"type": _MEDIA[kind]}
    if found["type"] == "doc" and isinstance(media, str) and media.startswith(("image/", "audio/")):
        found["type"] = media.partition("/")[0]
    if source.get("type") == "text" and isinstance(data, str):
        return _filled(found, name=name, text=data)
    ext = media.rpartition("/")[2] if isinstance(media, str) else _first(held, ("format", "ext"))
    words = _captions(block)
    if isinstance(inside := held.get("content") or source.get("content"), list):
        told = _result(inside)
        words = told if isinstance(told, str) else words
    return _filled(found, name=name, uri=url and str(url), base64=data, ext=ext, text=words)


def _captions(block: Mapping[str, Any]) -> str | None:
    """The words that came with a picture or a recording."""
    holders = [block, *(one for one in block.values() if isinstance(one, Mapping))]
    words = (holder.get(name) for name in ("text", *_WORDS) for holder in holders)
    return next((one.strip() for one in words if isinstance(one, str) and one.strip()), None)


def _filled(fields: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    return {key: value for key, value in {**fields, **more}.items() if value is not None}
