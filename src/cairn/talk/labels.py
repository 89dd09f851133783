"""Tags and metadata of messages: carried on to what is made of them, and compared by filters.

    message  tags ["deploy"], metadata {"ticket": 42, "team": ["web", "ops"]}
    episode  **tags**: [deploy]   **metadata**: {"ticket": 42, "team": ["web", "ops"]}       the union of its messages
    index    tags="deploy"  metadata.ticket=42  metadata.team="web"  metadata.team="ops"     one label each

A label is a name, `=`, and the value as JSON in plain letters, so that a text and a number that look alike differ, and no label holds a
line break. Values inside of values (objects) are kept and shown; filters see those on the first level and in lists.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from cairn.canonical import from_json, label
from cairn.notes.format import list_items
from cairn.types import Message

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
