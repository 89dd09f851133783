"""Messages as they come in: parsed once, with a named error for everything that is wrong.

Every surface hands its JSON to `parse_message`; library callers who build `Message` values themselves pass
through the same checks in `checked_batch`. What gets past here can be written, dated and read back.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast, get_args

from cairn.canonical import from_json, label
from cairn.errors import Invalid
from cairn.notes.format import list_items
from cairn.types import ContentItem, Message, Role, ToolCall, checked_id, with_texts

MAX_MESSAGES = 500
MAX_NAME_CHARS = 256
EARLIEST_MS = 100_000_000_000
"""3 March 1973. Anything smaller that is not nonsense is a time in seconds."""
LATEST_MS = 253_402_128_000_000
"""30 December 9999, so that every display zone can still name the day."""

_ROLES = get_args(Role)
ITEM_TYPES = ("text", "image", "audio", "doc", "pdf", "html", "email")
MESSAGE_FIELDS = frozenset(
    {
        "sender_id",
        "sender_name",
        "role",
        "timestamp",
        "content",
        "tool_calls",
        "tool_call_id",
        "tags",
        "metadata",
    }
)
MAX_TAGS, MAX_TAG_CHARS, MAX_METADATA_CHARS = 64, 128, 16_384
ITEM_FIELDS = frozenset({"type", "text", "uri", "base64", "ext", "name", "extras"})
_Redact = Callable[[str], str]


def parse_message(
    raw: object, where: str = "message", *, earliest: int = EARLIEST_MS, others: bool = False
) -> Message:
    """One message, as JSON gave it, checked in full.

    Args:
        raw: The JSON value.
        where: What it is called where something is wrong with it.
        earliest: The first moment it may have been said, in milliseconds.
        others: Pass over fields that are none of ours, as in a log that a later version wrote.

    Raises:
        Invalid: a missing, unknown or malformed field; `where` and the field are in the message.
    """
    fields = _object(raw, where, MESSAGE_FIELDS, others=others)
    for name in ("sender_id", "role", "timestamp", "content"):
        if name not in fields:
            raise Invalid(f"{where}.{name} is missing.", field=f"{where}.{name}")
    message = Message(
        fields["sender_id"],
        fields["role"],
        fields["timestamp"],
        _content(fields["content"], f"{where}.content", others=others),
        fields.get("sender_name"),
        _tool_calls(fields.get("tool_calls"), f"{where}.tool_calls", others=others),
        fields.get("tool_call_id"),
        tags=checked_tags(fields.get("tags"), f"{where}.tags"),
        metadata=checked_metadata(fields.get("metadata"), f"{where}.metadata"),
    )
    check_message(message, where, earliest=earliest)
    return message


def checked_batch(messages: Sequence[Message]) -> tuple[Message, ...]:
    """`messages` if they may be added together; nothing is taken over from a batch with one bad message."""
    if not 1 <= len(messages) <= MAX_MESSAGES:
        advice = "Send them in several calls." if messages else "There is nothing to add."
        raise Invalid(
            f"messages holds {len(messages)} messages; one call takes 1 to {MAX_MESSAGES}. {advice}",
            field="messages",
            count=len(messages),
        )
    for n, message in enumerate(messages):
        if not isinstance(message, Message):
            raise Invalid(f"messages[{n}] must be a Message, not {type(message).__name__}.", field="messages")
        check_message(message, f"messages[{n}]")
    return tuple(messages)


def check_message(message: Message, where: str = "message", *, earliest: int = EARLIEST_MS) -> None:
    """Raise `Invalid`, naming the field, unless `message` can be kept as it is; times begin at `earliest`."""
    checked_id(message.sender_id, f"{where}.sender_id")
    if message.role not in _ROLES:
        raise Invalid(
            f"{where}.role {_shown(message.role)} is not a role (user, assistant, tool).", field=f"{where}.role"
        )  # fmt: skip
    _check_timestamp(message.timestamp, f"{where}.timestamp", earliest)
    if message.sender_name is not None:
        _check_line(message.sender_name, f"{where}.sender_name")
    if isinstance(message.content, str):
        _check_text(message.content, f"{where}.content")
    else:
        for n, item in enumerate(message.content):
            _check_item(item, f"{where}.content[{n}]")
    for n, call in enumerate(message.tool_calls):
        at = f"{where}.tool_calls[{n}]"
        for name in ("id", "name", "arguments", "type"):
            _check_text(getattr(call, name), f"{at}.{name}")
    if message.tags:
        checked_tags(message.tags, f"{where}.tags")
    if message.metadata is not None:
        checked_metadata(message.metadata, f"{where}.metadata")
    if message.tool_call_id is not None:
        _check_line(message.tool_call_id, f"{where}.tool_call_id")
    elif message.role == "tool":
        raise Invalid(
            f"{where}.tool_call_id is missing: a tool message answers a call, name that call's id.",
            field=f"{where}.tool_call_id",
        )


def checked_tags(value: object, where: str) -> tuple[str, ...]:
    """Tags as they are kept, each once. Raises `Invalid`, naming the field."""
    if value is None:
        return ()
    if not isinstance(value, list | tuple):
        raise Invalid(f"{where} must be a list of short texts, not {kind_of(value)}.", field=where)
    for n, tag in enumerate(value):
        _check_line(tag, f"{where}[{n}]", MAX_TAG_CHARS)
        if not tag or tag != tag.strip():
            raise Invalid(f"{where}[{n}] is empty or has outer blanks: write the word alone.", field=where)
    found = tuple(dict.fromkeys(value))
    if len(found) > MAX_TAGS:
        raise Invalid(f"{where} has {len(found)} tags, more than {MAX_TAGS}.", field=where)
    return found


def checked_metadata(value: object, where: str) -> Mapping[str, Any] | None:
    """Metadata if it may be kept: an object of JSON values, of a bounded size. Raises `Invalid`, naming the field."""
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise Invalid(f"{where} must be an object, not {kind_of(value)}.", field=where)
    _check_json(value, where)
    for key in value:
        _check_line(key, f"{where}, a key,", MAX_TAG_CHARS)
    size = len(json.dumps(value, ensure_ascii=False, default=dict))
    if size > MAX_METADATA_CHARS:
        raise Invalid(
            f"{where} has {size} characters as JSON, more than {MAX_METADATA_CHARS}: keep what is long in the content.",
            field=where,
        )
    return value or None


_NOT_TEXT = ("sender_id", "role", "id")
_SHORTEST = 8  # characters; no credential has fewer


def redacted(message: Message, redact: _Redact, where: str = "message") -> Message:
    """`message` with `redact` applied to every text in it, whatever its field is called and however deep it stands.

    Raises:
        Invalid: who speaks is named by a credential; an id stands in names of files and in every note.
    """
    if len(message.sender_id) >= _SHORTEST and redact(message.sender_id) != message.sender_id:
        raise Invalid(
            f"{where}.sender_id holds a credential: ids stand in names of files. Use another.",
            field=f"{where}.sender_id",
        )
    items = () if isinstance(message.content, str) else message.content
    if not any(item.base64 for item in items):
        return with_texts(message, redact, skip=_NOT_TEXT)  # type: ignore[no-any-return]
    bare = replace(message, content=tuple(replace(item, base64=None) for item in items))
    cleaned = with_texts(bare, redact, skip=_NOT_TEXT)
    content = tuple(
        replace(item, base64=whole.base64 and _looked_into(whole.base64, redact))
        for item, whole in zip(cleaned.content, items, strict=True)
    )
    return replace(cleaned, content=content)  # type: ignore[no-any-return]


def _looked_into(attached: str, redact: _Redact) -> str:
    """An attachment whose text went through `redact`; an image or a sound has none, and is looked at as it stands."""
    try:
        text = base64.b64decode(attached, validate=True).decode("utf-8")
    except ValueError:
        return redact(attached)
    if (kept := redact(text)) == text:
        return attached
    return base64.b64encode(kept.encode("utf-8")).decode("ascii")


def _check_timestamp(value: object, where: str, earliest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(
            f"{where} must be a whole number of milliseconds since 1970, not {kind_of(value)}: "
            "int(time.time() * 1000), or a time with its zone as 2026-06-01T09:30:00Z.",
            field=where,
        )
    if value <= 0:
        raise Invalid(
            f"{where} {value} is not after 1 January 1970: send milliseconds since then.", field=where
        )
    if value < earliest:
        raise Invalid(
            f"{where} {value} looks like seconds: send milliseconds since 1970, that is {value * 1000}.",
            field=where,
        )
    if value > LATEST_MS:
        shorter = value // 1000 if value < 10**17 else value // 10**6
        unit = "microseconds" if value < 10**17 else "nanoseconds"
        raise Invalid(
            f"{where} {value} lies beyond the year 9999; as {unit} it would be {shorter}. "
            "Send milliseconds since 1970.",
            field=where,
        )


def _check_item(item: object, where: str) -> None:
    if not isinstance(item, ContentItem):
        raise Invalid(f"{where} must be a content item, not {kind_of(item)}.", field=where)
    if item.type not in ITEM_TYPES:
        raise Invalid(
            f"{where}.type {_shown(item.type)} is not one of {', '.join(ITEM_TYPES)}.", field=f"{where}.type"
        )
    for name in ("text", "uri", "base64", "ext", "name"):
        if (value := getattr(item, name)) is not None:
            _check_text(value, f"{where}.{name}")
    if item.extras is not None:
        _check_json(item.extras, f"{where}.extras")


def _check_json(value: object, where: str, depth: int = 0) -> None:
    if depth > 32:
        raise Invalid(f"{where} is nested more than 32 deep: flatten it.", field=where)
    if isinstance(value, str):
        _check_text(value, where)
    elif isinstance(value, Mapping):
        for key, inner in value.items():
            _check_text(key, f"{where}, a key,")
            _check_json(inner, f"{where}.{key[:40]}", depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            _check_json(inner, where, depth + 1)
    elif isinstance(value, float) and not math.isfinite(value):
        raise Invalid(f"{where} holds a number JSON cannot carry: {value}.", field=where)
    elif value is not None and not isinstance(value, bool | int | float):
        raise Invalid(
            f"{where} holds {kind_of(value)}, which JSON cannot carry: write it as a text, a number or a list.",
            field=where,
        )


def _check_text(value: object, where: str) -> None:
    if not isinstance(value, str):
        raise Invalid(f"{where} must be a text, not {kind_of(value)}.", field=where)
    if "\0" in value:
        raise Invalid(
            f"{where} holds a NUL character at position {value.index(chr(0))}: remove it.", field=where
        )
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            raise Invalid(
                f"{where} is not valid Unicode: a lone surrogate stands at position {error.start}.",
                field=where,
            ) from None


def _check_line(value: object, where: str, longest: int = MAX_NAME_CHARS) -> None:
    _check_text(value, where)
    line = cast("str", value)
    if len(line) > longest:
        raise Invalid(f"{where} has {len(line)} characters, more than {longest}.", field=where)
    if not line.isprintable():
        raise Invalid(f"{where} holds a line break or another control character: remove it.", field=where)


def _content(raw: object, where: str, *, others: bool) -> str | tuple[ContentItem, ...]:
    if isinstance(raw, str):
        return raw
    if not isinstance(raw, list | tuple):
        raise Invalid(f"{where} must be a text or a list of content items, not {kind_of(raw)}.", field=where)
    items = []
    for n, one in enumerate(raw):
        fields = _object(one, f"{where}[{n}]", ITEM_FIELDS, others=others)
        if "type" not in fields:
            raise Invalid(f"{where}[{n}].type is missing.", field=f"{where}[{n}].type")
        if fields.get("extras") is not None and not isinstance(fields["extras"], Mapping):
            raise Invalid(f"{where}[{n}].extras must be an object.", field=f"{where}[{n}].extras")
        items.append(ContentItem(**fields))
    return tuple(items)


def _tool_calls(raw: object, where: str, *, others: bool) -> tuple[ToolCall, ...]:
    if raw is None:
        return ()
    if not isinstance(raw, list | tuple):
        raise Invalid(f"{where} must be a list, not {kind_of(raw)}.", field=where)
    calls = []
    for n, one in enumerate(raw):
        at = f"{where}[{n}]"
        fields = _object(one, at, frozenset({"id", "type", "function"}), others=others)
        function = _object(
            fields.get("function"), f"{at}.function", frozenset({"name", "arguments"}), others=others
        )
        for holder, name, path in ((fields, "id", at), (function, "name", f"{at}.function"), (function, "arguments", f"{at}.function")):  # fmt: skip
            if name not in holder:
                raise Invalid(f"{path}.{name} is missing.", field=f"{path}.{name}")
        calls.append(ToolCall(fields["id"], function["name"], function["arguments"], fields.get("type", "function")))  # fmt: skip
    return tuple(calls)


def _object(raw: object, where: str, allowed: frozenset[str], *, others: bool) -> dict[str, Any]:
    if not isinstance(raw, Mapping):
        raise Invalid(f"{where} must be an object, not {kind_of(raw)}.", field=where)
    if raw.keys() <= allowed:
        return dict(raw)
    if others:
        return {name: value for name, value in raw.items() if name in allowed}
    unknown = next(name for name in raw if name not in allowed)
    raise Invalid(
        f"{where} has the unknown field {_shown(unknown)}; known are {', '.join(sorted(allowed))}.",
        field=f"{where}.{unknown}",
    )


def kind_of(value: object) -> str:
    """What a value is called where it is of the wrong kind."""
    names = {type(None): "null", bool: "true or false", str: "a text", float: "a fraction", int: "a number"}
    return names.get(type(value), "a list" if isinstance(value, list | tuple) else type(value).__name__)


def _shown(value: object) -> str:
    return (
        f'"{value[:60]}"'.encode("unicode_escape").decode("ascii")
        if isinstance(value, str)
        else kind_of(value)
    )


# ---------------------------------------------------------------- tags and metadata
#
# They are carried on to what is made of messages, and compared by filters.
#
#     message  tags ["deploy"], metadata {"ticket": 42, "team": ["web", "ops"]}
#     episode  **tags**: [deploy]   **metadata**: {"ticket": 42, "team": ["web", "ops"]}       the union of its messages
#     index    tags="deploy"  metadata.ticket=42  metadata.team="web"  metadata.team="ops"     one label each
#
# A label is a name, `=`, and the value as JSON in plain letters, so that a text and a number that look alike differ, and no label holds a
# line break. Values inside of values (objects) are kept and shown; filters see those on the first level and in lists.

TAGS, METADATA = "tags", "metadata"
_MOST_VALUES = 100  # of one key in what is made of many messages; the messages themselves keep all


def labels_of(tags: Iterable[str], metadata: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Every label of a message or an entry, each once."""
    if not tags and not metadata:
        return ()
    found = [label(TAGS, tag) for tag in tags]
    for key, value in (metadata or {}).items():
        several = value if isinstance(value, list | tuple) else [value]
        found += [
            label(f"{METADATA}.{key}", one) for one in several if isinstance(one, str | int | float | bool)
        ]
    return tuple(dict.fromkeys(found))


def inline_of(messages: Iterable[Message]) -> dict[str, object]:
    """The inline fields of an entry made of these messages: the union of theirs; None (no line) where there is none."""
    tags: dict[str, None] = {}
    union: dict[str, list[Any]] = {}
    for message in messages:
        tags |= dict.fromkeys(message.tags)
        for key, value in (message.metadata or {}).items():
            held = union.setdefault(key, [])
            for one in value if isinstance(value, list | tuple) else [value]:
                if len(held) < _MOST_VALUES and not any(
                    one == old and type(one) is type(old) for old in held
                ):
                    held.append(one)
    return inline(list(tags), {key: held[0] if len(held) == 1 else held for key, held in union.items()})


def union_of(entries: Iterable[Mapping[str, str]]) -> dict[str, object]:
    """The same of entries, by their inline fields."""
    read = [read_inline(one) for one in entries]
    return inline_of(Message("", "user", 0, "", tags=tuple(tags), metadata=held) for tags, held in read)


def inline(tags: Sequence[str], metadata: Mapping[str, Any] | None) -> dict[str, object]:
    """Tags and metadata as inline fields."""
    told = json.dumps(metadata, ensure_ascii=False) if metadata else None
    return {TAGS: list(tags) or None, METADATA: told}


def read_inline(inline: Mapping[str, str]) -> tuple[list[str], dict[str, Any]]:
    """The tags and the metadata of an entry; what a person wrote there that is no object is not metadata."""
    tags = list_items(inline[TAGS]) if TAGS in inline else []
    if METADATA not in inline:
        return tags, {}
    try:
        held = from_json(inline[METADATA])
        json.dumps(held, ensure_ascii=False, allow_nan=False).encode("utf-8")  # it can be told again
    except (ValueError, RecursionError):
        return tags, {}
    return tags, held if isinstance(held, dict) else {}
