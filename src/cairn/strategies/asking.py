"""Asking the language model, and believing as little of its answer as possible.

A model's answer is data: its types are checked again here, ids it was not given are dropped, and its texts are
single lines of bounded length that go through the same escaping as anything else. Whatever fails falls back
to the deterministic version.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError
from cairn.types import Message

if TYPE_CHECKING:
    from cairn.strategies import Kit

MAX_ITEMS = 200


def ask(kit: Kit, prompt: str, material: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The model's answer to `prompts/<prompt>.md` about `material`; None without a model or without an answer."""
    if kit.writer is None:
        return None
    system = resources.files("cairn.strategies").joinpath(f"prompts/{prompt}.md").read_text(encoding="utf-8")
    try:
        value = kit.writer.complete(system, material, schema, purpose=f"strategy {prompt}").value
    except CairnError:
        return None
    return value if isinstance(value, Mapping) else None


def transcript(messages: Sequence[Message], kit: Kit) -> str:
    """The messages as the model sees them: one line each, with id, time and speaker."""
    from datetime import UTC, datetime

    lines = []
    for message in messages:
        at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(kit.zone)
        text = " ".join(kit.redact(message.text).split())
        calls = "".join(f" [calls {c.name}({c.arguments[:200]})]" for c in message.tool_calls)
        lines.append(f"[{message.id}] {at:%Y-%m-%d %H:%M} {message.speaker} ({message.role}): {text}{calls}")
    return "\n".join(lines)


def items(value: Mapping[str, Any] | None, key: str) -> list[Mapping[str, Any]]:
    """The objects in a list of an answer; anything else in it is left out."""
    found = value.get(key) if value is not None else None
    return (
        [item for item in found if isinstance(item, Mapping)][:MAX_ITEMS] if isinstance(found, list) else []
    )


def line(value: Any, limit: int = 400) -> str:
    """A text of an answer as one line of at most `limit` characters; "" for anything that is not text."""
    if not isinstance(value, str):
        return ""
    text = " ".join("".join(c if c.isprintable() else " " for c in value).split())
    return text if len(text) <= limit else ""


def known_ids(value: Any, allowed: Iterable[str]) -> tuple[str, ...]:
    """The ids of an answer that were in the question, once each, in their order."""
    if not isinstance(value, list):
        return ()
    known = set(allowed)
    return tuple(dict.fromkeys(item for item in value if isinstance(item, str) and item in known))
