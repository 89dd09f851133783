"""Converts messages of OpenAI (chat and responses), Anthropic and LangChain into our own form.

    raw message -> `translated`: role, content, tool_calls, tool_call_id as ours; one may become several, or none
                -> `completed`: who said it and when, where it does not say so itself

What is already in our form passes through untouched, and what is in no known form is left as it is: the strict
check behind this names what is wrong with it. What is not talk (instructions, reasoning) is left out and said.

Messages that another program had accepted and not extracted come in as inbox, each once (`take_in`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Invalid
from cairn.talk.messages import MAX_MESSAGES, MESSAGE_FIELDS, parse_message
from cairn.types import Message, Space

if TYPE_CHECKING:
    from cairn.talk.capture import Capture

ASSISTANT = "assistant"
"""The sender of an assistant's turn that names none."""

_PLAIN = frozenset({"sender_id", "role", "timestamp", "content"})
_OWN = ("sender_id", "sender_name", "timestamp", "tags", "metadata")
_ROLES = {"human": "user", "ai": "assistant", "AIMessageChunk": "assistant", "HumanMessageChunk": "user"}
_NO_TALK = ("system", "developer")
# Fields of the other programs that say nothing about the talk.
_PASSED_OVER = frozenset(
    {
        "id", "type", "status", "phase", "name", "refusal", "audio", "annotations", "function_call", "parsed", "model",
        "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management", "additional_kwargs",
        "response_metadata", "usage_metadata", "invalid_tool_calls", "tool_call_chunks", "example", "artifact",
        "chunk_position", "reasoning_content", "reasoning", "reasoning_details", "cache_control", "internal_chat_message_metadata_passthrough",
    }
)  # fmt: skip
_KNOWN_FIELDS = MESSAGE_FIELDS | _PASSED_OVER | {"call_id", "arguments", "input", "output", "namespace"}
_TEXTS = ("text", "input_text", "output_text")
_WORDS = ("alt", "alt_text", "caption", "description", "transcript", "context")
_UNSAID = ("thinking", "redacted_thinking", "reasoning", "reasoning_content", "non_standard")
_CALLS = ("function_call", "custom_tool_call")
_RESULTS = ("function_call_output", "custom_tool_call_output")


@dataclass(frozen=True, slots=True)
class Taken:
    """The messages in our form, each with its place in the call, and what was left out, with the reason."""

    messages: tuple[tuple[str, dict[str, Any] | Message], ...]
    skipped: tuple[str, ...]
    dated: bool


def taken(raw: Sequence[Any], *, user_id: str, now_ms: int) -> Taken:
    """All of one call. Without a time of its own a message has the time of the one before it, or now.

    Raises:
        Invalid: `raw` is no list, or nothing is left to add.
    """
    if not isinstance(raw, Sequence) or isinstance(raw, str | bytes):
        raise Invalid(f"messages must be a list of 1 to {MAX_MESSAGES} messages.", field="messages")
    found: list[tuple[str, dict[str, Any] | Message]] = []
    skipped: list[str] = []
    last = 0
    dated = True
    for number, one in enumerate(raw):
        where = f"messages[{number}]"
        if isinstance(one, Message):
            found.append((where, one))
            continue
        if _is_ours(one):
            last = one["timestamp"]
            found.append((where, one))
            continue
        for part in _translated(_mapping(one), where, skipped):
            if not isinstance(part, dict):
                found.append((where, part))
                continue
            dated = dated and "timestamp" in part
            part = _completed(part, user_id, max(last + 1, now_ms) if last else now_ms)
            if isinstance(part["timestamp"], int):
                last = part["timestamp"]
            found.append((where, part))
    if raw and not found:
        raise Invalid(f"There is nothing to add: {'; '.join(skipped[:3])}.", field="messages")
    return Taken(tuple(found), tuple(skipped), dated)


def _is_ours(one: Any) -> bool:
    """Whether a message is in our own form already, complete and in plain words: there is nothing to translate."""
    return (
        type(one) is dict
        and one.keys() == _PLAIN
        and one["role"] in ("user", "assistant")
        and type(one["timestamp"]) is int
        and bool(one["content"])
        and isinstance(one["content"], str)
        and one["sender_id"] is not None
    )


def _mapping(one: Any) -> Any:
    """A message as a mapping, also where a program's own class holds it."""
    dump = getattr(one, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) and not isinstance(one, Mapping) else one


def _completed(one: dict[str, Any], user_id: str, at: int) -> dict[str, Any]:
    if "sender_id" not in one:
        one["sender_id"] = user_id if one.get("role") == "user" else ASSISTANT
    moment = one.get("timestamp", at)
    if isinstance(moment, datetime):
        aware = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        moment = int(aware.timestamp() * 1000)
    return one | {"timestamp": moment}


def _translated(raw: Any, where: str, skipped: list[str]) -> Iterator[Any]:
    if not isinstance(raw, Mapping):
        yield raw
        return
    one = dict(raw)
    if isinstance(one.get("data"), Mapping) and set(one) == {"type", "data"}:
        one = {"type": one["type"], **one["data"]}
    kind = one.get("type")
    if "role" not in one:
        if kind in _CALLS or kind in _RESULTS:
            yield _kept(one, **_called(one) if kind in _CALLS else _returned(one))
            return
        if isinstance(kind, str) and kind in _UNSAID:
            skipped.append(f"{where} is {kind}, which nobody said")
            return
        if isinstance(kind, str) and kind.endswith("_call"):
            skipped.append(f"{where} is a {kind}, which has no words")
            return
        if isinstance(kind, str) and kind != "message":
            one["role"] = _ROLES.get(kind, kind)
    if one.get("role") in _NO_TALK:
        skipped.append(f"{where} has role {one['role']}, which is an instruction and no talk")
        return
    if one.get("role") == "function":
        one |= {"role": "tool", "tool_call_id": one.get("tool_call_id") or one.get("name")}
    if one.get("tool_calls"):
        one["tool_calls"] = _tool_calls(one["tool_calls"])
    yield from _spread(one, where, skipped)


def _kept(one: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    """Our own fields of a message, and whatever it has that no known program writes: the check behind names it."""
    name = one.get("name")
    more = {"sender_name": name} if isinstance(name, str) and name and fields.get("role") != "tool" else {}
    if fields.get("tool_calls") is not None and "arguments" in one:
        more = {}
    rest = {key: value for key, value in one.items() if key not in _KNOWN_FIELDS}
    own = {key: one[key] for key in _OWN if one.get(key) is not None}
    return {**more, **own, **fields, **rest}


def _called(one: Mapping[str, Any]) -> dict[str, Any]:
    arguments = one.get("arguments", one.get("input", ""))
    function = {"name": one.get("name"), "arguments": _text(arguments)}
    call = {"id": one.get("call_id") or one.get("id"), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _returned(one: Mapping[str, Any]) -> dict[str, Any]:
    return {"role": "tool", "content": _words(one.get("output")), "tool_call_id": one.get("call_id")}


def _tool_calls(raw: Any) -> Any:
    """Calls as OpenAI's chat has them; another form is brought into it, what is in none stays."""
    if not isinstance(raw, list | tuple):
        return raw
    found = []
    for call in raw:
        if isinstance(call, Mapping) and "args" in call and "function" not in call:
            function = {"name": call.get("name"), "arguments": _text(call["args"])}
            call = {"id": call.get("id") or call.get("name"), "type": "function", "function": function}
        elif isinstance(call, Mapping) and isinstance(call.get("custom"), Mapping):
            function = {
                "name": call["custom"].get("name"),
                "arguments": _text(call["custom"].get("input", "")),
            }
            call = {"id": call.get("id"), "type": "custom", "function": function}
        elif isinstance(call, Mapping):
            call = {key: value for key, value in call.items() if key != "index"}
        found.append(call)
    return found


def _spread(one: dict[str, Any], where: str, skipped: list[str]) -> Iterator[dict[str, Any]]:
    """A message as one or several of ours: results of tools stand alone, calls go with the words before them."""
    content = one.get("content")
    fields: dict[str, Any] = {key: one[key] for key in ("role", "tool_call_id") if one.get(key) is not None}
    calls = list(one["tool_calls"]) if isinstance(one.get("tool_calls"), list) else one.get("tool_calls")
    refusal = one.get("refusal")
    if content is None and (calls or refusal):
        content = refusal or ""
    if not isinstance(content, list | tuple) or not any(_is_foreign(block) for block in content):
        if content in ("", [], ()) and not calls and one.get("role") == "assistant" and len(one) > 2:
            skipped.append(f"{where} has no words and calls no tool")
            return
        if "content" in one:
            fields["content"] = content
        yield _kept(one, **fields, **({"tool_calls": calls} if calls is not None else {}))
        return
    items: list[Any] = []
    for block in content:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind in {"tool_use", "server_tool_use", "mcp_tool_use", "tool_call"}:
            given = block.get("input", block.get("args", {}))
            function = {"name": block.get("name"), "arguments": _text(given)}
            known = {call.get("id") for call in calls or () if isinstance(call, Mapping)}
            if block.get("id") not in known:
                calls = [*(calls or ()), {"id": block.get("id"), "type": "function", "function": function}]
        elif isinstance(kind, str) and kind.endswith("tool_result"):
            result = _words(block.get("content"))
            yield _kept(one, role="tool", content=result, tool_call_id=block.get("tool_use_id"))
        elif kind not in _UNSAID:
            items.append(_item(block))
    if items or calls:
        plain = all(isinstance(item, Mapping) and item.get("type") == "text" for item in items)
        said: Any = "\n".join(str(item.get("text", "")) for item in items) if plain else items
        yield _kept(one, **fields, content=said, **({"tool_calls": calls} if calls else {}))


_KNOWN_BLOCKS = frozenset(
    {
        *_TEXTS[1:], *_UNSAID, "tool_use", "server_tool_use", "mcp_tool_use", "tool_call", "image_url", "input_image",
        "input_audio", "file", "input_file", "document", "refusal",
    }
)  # fmt: skip


def _is_foreign(block: Any) -> bool:
    """Whether a block of content is in another program's form."""
    if isinstance(block, str):
        return False
    if not isinstance(block, Mapping) or not isinstance(block.get("type"), str):
        return False
    kind = block["type"]
    more = {"annotations", "citations", "cache_control", "source", "source_type", "logprobs", "index"}
    return kind in _KNOWN_BLOCKS or kind.endswith("tool_result") or bool(more & block.keys())


def _item(block: Any) -> Any:
    """A block of content as one of our items; images and files are kept by reference, or by their own bytes."""
    if not isinstance(block, Mapping):
        return block
    kind = block.get("type")
    if kind in _TEXTS or kind == "refusal":
        return {"type": "text", "text": block.get("text", block.get("refusal", ""))}
    if kind in {"image_url", "input_image", "image"}:
        return _described(_reference("image", block.get("image_url", block)), block)
    if kind == "input_audio":
        audio = block.get("input_audio", block)
        return _described({"type": "audio", "base64": audio.get("data"), "ext": audio.get("format")}, block)
    if kind in {"file", "input_file", "document"}:
        return _described(_reference("doc", block.get("file", block)), block)
    return dict(block)


def _described(item: dict[str, Any], block: Mapping[str, Any]) -> dict[str, Any]:
    """The item with the words that came with it: an image's caption, a recording's transcript."""
    holders = [block, *(one for one in block.values() if isinstance(one, Mapping))]
    words = (holder.get(name) for name in _WORDS for holder in holders)
    found = next((one.strip() for one in words if isinstance(one, str) and one.strip()), None)
    return {**item, "text": found} if found and "text" not in item else item


def _reference(kind: str, held: Any) -> dict[str, Any]:
    source = held.get("source", held) if isinstance(held, Mapping) else {"url": held}
    source = source if isinstance(source, Mapping) else {}
    title = held.get("title") or held.get("filename") if isinstance(held, Mapping) else None
    found: dict[str, Any] = {"type": kind, "name": title or source.get("filename")}
    url = source.get("url") or source.get("file_url") or source.get("file_data")
    data, media = source.get("data"), source.get("media_type") or source.get("mime_type")
    if isinstance(url, str) and url.startswith("data:"):
        head, _, data = url.partition(",")
        media, url = head[5:].partition(";")[0], None
    if source.get("type") == "text" and isinstance(data, str):
        return {**_filled(found), "text": data}
    ext = media.rpartition("/")[2] if isinstance(media, str) else None
    named = source.get("file_id") or source.get("id")
    return _filled({**found, "uri": url, "base64": data, "ext": ext, "name": found["name"] or named})


def _filled(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def _words(value: Any) -> str:
    """What a tool gave back, as text."""
    if value is None:
        return ""
    if isinstance(value, list | tuple):
        parts = [_item(block) for block in value]
        return "\n".join(
            str(part.get("text") or f"[{part.get('type')}]") if isinstance(part, Mapping) else str(part)
            for part in parts
        )
    return _text(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


Waiting = tuple[Space, str, dict[str, Any], str]
"""A message that waits: its space, its session, the message as `add` takes it, and the words that can be read of it."""


def take_in(capture: Capture, waiting: Iterable[Waiting]) -> tuple[int, list[str]]:
    """Keep each message in its session with its time and sender; how many are new, and what could not be kept.

    A message is known by session, sender, time and words, so that a second look adds nothing. Nothing is cut here:
    the next call of the session does that.
    """
    count, problems = 0, []
    for space, session, fields, words in waiting:
        try:
            message = _carried(fields, words)
            before = len(capture.unprocessed(space, session))
            capture.add(space, session, [message], defer=True, key=_key(message))
            count += len(capture.unprocessed(space, session)) > before
        except CairnError as error:
            problems.append(f"A message of session {session} was not taken over: {error}")
    return count, problems


def _carried(fields: dict[str, Any], words: str) -> Message:
    try:
        return parse_message(fields)
    except CairnError:
        if not words:
            raise
        # A part that is not known here (a picture, say) costs itself; the words are kept.
        return parse_message({**fields, "content": words})


def _key(message: Message) -> str:
    known = [message.sender_id, message.role, message.timestamp, message.text]
    return "carried-" + hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
