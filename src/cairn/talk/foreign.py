"""Converts messages of other programs into our own form: OpenAI (chat and responses), Anthropic, Gemini, LangChain and more.

    raw -> `_plainly`   an object of a program's own class as the mapping it stands for
        -> `_unwrapped` the messages in an answer that was handed over as a whole
        -> `_turn`      role, content, tool_calls, tool_call_id as ours (`blocks`); one may become several, or none
        -> `_completed` who said it and when, where it does not say so itself

What is already in our form passes through untouched, and what is in no known form is left as it is: the strict
check behind this names what is wrong with it. What is not talk (instructions, reasoning) is left out and said.

Messages that another program had accepted and not extracted come in as inbox, each once (`take_in`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Invalid
from cairn.talk import blocks
from cairn.talk.messages import MAX_MESSAGES, MESSAGE_FIELDS, kind_of, parse_message
from cairn.types import Message, Space

if TYPE_CHECKING:
    from cairn.talk.capture import Capture

ASSISTANT = "assistant"
"""The sender of an assistant's turn that names none."""

_PLAIN = frozenset({"sender_id", "role", "timestamp", "content"})
_OWN = ("sender_id", "sender_name", "timestamp", "tags", "metadata")
_ROLES = {
    "human": "user", "HumanMessageChunk": "user", "ai": "assistant", "AIMessageChunk": "assistant", "model": "assistant",
    "chatbot": "assistant", "function": "tool", "ToolMessageChunk": "tool",
}  # fmt: skip
_NO_TALK = {"system": "an instruction", "developer": "an instruction", "remove": "the removal of a message"}
_BESIDE = ("tool_calls", "tool_call_id", "function_call")
_CONTENTS = ("content", "parts", "blocks")
# Fields of the other programs that say nothing about the talk.
_PASSED_OVER = frozenset(
    {
        "id", "type", "status", "phase", "name", "refusal", "audio", "annotations", "function_call", "parsed", "model",
        "stop_reason", "stop_sequence", "stop_details", "usage", "container", "context_management", "additional_kwargs",
        "response_metadata", "usage_metadata", "invalid_tool_calls", "tool_call_chunks", "example", "artifact",
        "chunk_position", "reasoning_content", "reasoning", "reasoning_details", "cache_control", "internal_chat_message_metadata_passthrough",
        "parts", "blocks", "images", "thinking", "tool_name", "is_error",
    }
)  # fmt: skip
_KNOWN_FIELDS = MESSAGE_FIELDS | _PASSED_OVER


@dataclass(frozen=True, slots=True)
class Taken:
    """The messages in our form, each with its place in the call, and what was left out, with the reason."""

    messages: tuple[tuple[str, dict[str, Any] | Message], ...]
    skipped: tuple[str, ...]
    dated: bool


def taken(raw: Sequence[Any], *, user_id: str, now_ms: int) -> Taken:
    """All of one call. Without a time of its own a message has the time of the one before it, or now.

    Raises:
        Invalid: `raw` is no list, a time has no zone, or nothing is left to add.
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
        try:
            parts = list(_translated(one, where, skipped))
        except RecursionError:
            raise Invalid(f"{where} is nested too deeply to be read: flatten it.", field=where) from None
        for part in parts:
            if not isinstance(part, dict):
                found.append((where, part))
                continue
            dated = dated and "timestamp" in part
            part = _completed(part, where, user_id, max(last + 1, now_ms) if last else now_ms)
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


def _completed(one: dict[str, Any], where: str, user_id: str, at: int) -> dict[str, Any]:
    if "sender_id" not in one:
        one["sender_id"] = user_id if one.get("role") == "user" else ASSISTANT
    return one | {"timestamp": _moment(one.get("timestamp", at), f"{where}.timestamp")}


def _moment(given: Any, where: str) -> Any:
    """A time in milliseconds, where it is a datetime or written as ISO 8601 has it; both name their zone."""
    if isinstance(given, float) and given.is_integer():
        return int(given)
    moment = given
    if isinstance(given, str):
        try:
            moment = datetime.fromisoformat(given)
        except ValueError:
            return given
    if not isinstance(moment, datetime):
        return given
    if moment.tzinfo is None:
        raise Invalid(
            f"{where} {moment.isoformat()} names no zone, so it could be any of many moments: "
            "datetime.now(timezone.utc), or 2026-06-01T09:30:00Z.",
            field=where,
        )
    return int(moment.timestamp() * 1000)


def _translated(raw: Any, where: str, skipped: list[str]) -> Iterator[Any]:
    one = _plainly(raw)
    if one is None:
        yield raw
        return
    inside = _unwrapped(one)
    # A typing error in a mapping is named. What a program's own class holds besides is no error of the caller's.
    loose = not isinstance(raw, Mapping) or inside[0] is not one
    for part in inside:
        if isinstance(part, Mapping):
            yield from _turn(part, where, skipped, loose)


def _plainly(raw: Any) -> dict[str, Any] | None:
    """A message as a mapping, also where a program's own class or a pair (role, text) holds it."""
    if isinstance(raw, tuple) and len(raw) == 2 and all(isinstance(one, str) for one in raw):
        return {"role": raw[0], "content": raw[1]}
    if isinstance(raw, Mapping):
        return {key: value if key == "metadata" else blocks.plain(value) for key, value in raw.items()}
    found = blocks.plain(raw)
    return found if isinstance(found, dict) else None


def _unwrapped(one: dict[str, Any]) -> list[Any]:
    """The messages of an answer as a client gives it back; of several alternatives the first."""
    if set(one) == {"type", "data"} and isinstance(one["data"], Mapping):
        return [{"type": one["type"], **one["data"]}]
    if one.get("lc") and isinstance(one.get("kwargs"), Mapping):
        return [one["kwargs"]]
    if one.get("role") is not None:
        return [one]
    for name in ("choices", "candidates"):
        if isinstance(one.get(name), list) and one[name] and isinstance(one[name][0], Mapping):
            return _unwrapped(one[name][0])
    if one.get("object") == "response" and isinstance(one.get("output"), list):
        return one["output"] or [one]
    for name in ("message", "content", "output"):
        if isinstance(inner := one.get(name), Mapping) and ("role" in inner or "message" in inner):
            return _unwrapped(dict(inner))
    return [one]


def _turn(raw: Mapping[str, Any], where: str, skipped: list[str], loose: bool) -> Iterator[dict[str, Any]]:
    one = {key: value for key, value in raw.items() if value is not None or key == "content"}
    kind = one.get("type")
    if "role" not in one and blocks.stands_alone(kind):
        about = {key: one.pop(key) for key in _OWN if key in one}
        yield from _spread({**about, "role": ASSISTANT}, [one], where, skipped, loose=True)
        return
    if "role" not in one and isinstance(kind, str) and kind != "message":
        one["role"] = kind
    if isinstance(more := one.get("additional_kwargs"), Mapping):
        one |= {name: more[name] for name in _BESIDE if more.get(name) and not one.get(name)}
    role = one.get("role")
    if isinstance(role, str):
        one["role"] = role = _ROLES.get(role, role)
    if isinstance(role, str) and role in _NO_TALK:
        skipped.append(f"{where} has role {role}, which is {_NO_TALK[role]} and no talk")
        return
    held = [name for name in _CONTENTS if one.get(name) is not None]
    held.sort(key=lambda name: not one[name])  # one with words before one that is empty
    content: Any = one[held[0]] if held else None
    skipped += [f"{where}.{name} stands beside {held[0]}, which was taken" for name in held[1:] if one[name]]
    listed = isinstance(content, list)
    own = listed and all(blocks.is_own(block) for block in content)
    if role == "tool" and not (listed and _has_results(content)):
        number = next((one[name] for name in ("tool_call_id", "tool_name", "name") if one.get(name)), None)
        fields = {} if number is None else {"tool_call_id": number}
        if any(name in one for name in _CONTENTS):
            fields["content"] = content if own else blocks.returned({**one, "content": content})
        yield _kept(one, loose, role=role, **fields)
        return
    yield from _spread(one, content, where, skipped, loose)


def _has_results(content: list[Any]) -> bool:
    return any(how == "result" for block in content for how, _ in blocks.read(block))


def _kept(one: Mapping[str, Any], loose: bool, **fields: Any) -> dict[str, Any]:
    """Our own fields of a message, and whatever it has that no known program writes: the check behind names it."""
    name = one.get("name")
    more = {"sender_name": name} if isinstance(name, str) and name and fields.get("role") != "tool" else {}
    rest = {} if loose else {key: value for key, value in one.items() if key not in _KNOWN_FIELDS}
    own = {key: one[key] for key in _OWN if one.get(key) is not None}
    if fields.get("role") == "tool" and one.get("role") == "user":
        own = {
            key: value for key, value in own.items() if not key.startswith("sender")
        }  # a tool's words are not the user's
    return {**more, **own, **fields, **rest}


def _spread(
    one: dict[str, Any], content: Any, where: str, skipped: list[str], loose: bool
) -> Iterator[dict[str, Any]]:
    """A turn as one message or several: results of tools stand alone, calls go with the words before them."""
    role = {"role": one["role"]} if "role" in one else {}
    calls = _calls(one, where)
    if isinstance(refusal := one.get("refusal"), str) and refusal:
        content = [*(content if isinstance(content, list) else [content] if content else []), refusal]
    if calls and not content:
        content = ""
    if not content and isinstance(audio := one.get("audio"), Mapping):
        content = [{"type": "audio", **audio}]
    if isinstance(images := one.get("images"), list) and images:
        words = content if isinstance(content, list) else [content] if content else []
        content = [*words, *({"type": "image", "data": image} for image in images)]
    if content is None and (one.get("role") == ASSISTANT):
        content = ""
    if not isinstance(content, list) or all(blocks.is_own(block) for block in content):
        if not content and not calls and one.get("role") == ASSISTANT:
            skipped.append(f"{where} has no words and calls no tool")
            return
        fields = {**role, **({"content": content} if content is not None or "content" in one else {})}
        yield _kept(one, loose, **fields, **({"tool_calls": calls} if calls else {}))
        return
    before, alone = len(skipped), not any(name in one for name in _CONTENTS)
    held = _Held([], calls if isinstance(calls, list) else [])
    count = 0
    for number, block in enumerate(content):
        for how, what in blocks.read(block):
            if how == "item":
                held.items.append(what)
            elif how == "call":
                held.call(what)
            elif how == "left":
                skipped.append(f"{where if alone else f'{where}.content[{number}]'} {what}")
            else:
                for turn in held.turns():
                    count += 1
                    yield _kept(one, loose, **role, **turn)
                count += 1
                yield _kept(one, loose, role="tool", content=what[1], tool_call_id=what[0])
    for turn in held.turns(last=True):
        count += 1
        yield _kept(one, loose, **role, **turn)
    if not count and len(skipped) == before:
        skipped.append(f"{where} has no words and calls no tool")


class _Held:
    """What of a turn is not handed on yet: items, calls among them, and calls that the message lists beside its content."""

    def __init__(self, items: list[Any], listed: list[Any]) -> None:
        self.items = items
        self.calls: list[Any] = []
        self.listed = listed

    def call(self, call: Any) -> None:
        self.listed = [
            one for one in self.listed if not isinstance(one, Mapping) or one.get("id") != call["id"]
        ]
        self.calls.append(call)

    def turns(self, *, last: bool = False) -> Iterator[dict[str, Any]]:
        """What is held as a message, if it says or calls anything."""
        said, calls = blocks.said(self.items), [*self.calls, *(self.listed if last else ())]
        if said or calls:
            yield {"content": said, **({"tool_calls": calls} if calls else {})}
        self.items, self.calls = [], []


def _calls(one: Mapping[str, Any], where: str) -> list[Any]:
    """The calls that a message lists, in the form of OpenAI's chat; what is in no known form stays.

    Raises:
        Invalid: they are no list.
    """
    found: list[Any] = []
    for name in ("tool_calls", "invalid_tool_calls"):
        if not isinstance(listed := one.get(name) or [], list):
            raise Invalid(f"{where}.{name} must be a list, not {kind_of(listed)}.", field=f"{where}.{name}")
        found += [blocks.call_of(call) for call in listed]
    older = one.get("function_call")
    if isinstance(older, Mapping) and not found:
        found = [blocks.call_of({"function": older})]
    return found


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
