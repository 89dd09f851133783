"""Asks the language model, and keeps of its answer only what the cited messages support.

A model's answer is data: its types are checked again here, ids it was not given are dropped, and its texts are
single lines of bounded length that go through the same escaping as anything else. What the messages it cites do not
hold is dropped (`holds`). Whatever fails falls back to the deterministic version.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from importlib import resources
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError
from cairn.governed import gate
from cairn.language import dates, sentences, traits, words
from cairn.strategies.phrases import spoken
from cairn.strategies.statements import LONGEST_SENTENCE, stated_part
from cairn.types import Message

if TYPE_CHECKING:
    from cairn.strategies import Kit

MAX_ITEMS = 200
_HELD = 0.6
_WORD = re.compile(r"[^\W_]+")
_PARTICULAR = re.compile(r"(?<!\S)[^\s\d]*+\d\S*|(?<=\S )[A-ZÀ-ÞА-Я][\w’'-]+")


TEXT: Mapping[str, Any] = {"type": "string"}
TEXTS: Mapping[str, Any] = {"type": "array", "items": TEXT}


def shaped(required: str, **fields: Mapping[str, Any]) -> dict[str, Any]:
    """The JSON Schema of an object with these fields."""
    return {"type": "object", "properties": fields, "required": required.split()}


def listed(name: str, required: str, **fields: Mapping[str, Any]) -> dict[str, Any]:
    """That of an object whose field `name` lists such objects."""
    return shaped(name, **{name: {"type": "array", "items": shaped(required, **fields)}})


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


@dataclass(frozen=True, slots=True)
class Cited:
    """What one message holds: who spoke, the words, and the days these mean."""

    speaker: str
    text: str
    days: str

    def __str__(self) -> str:
        return f"{self.speaker} {self.text} {self.days}"


def holds(claim: str, sources: Sequence[Cited]) -> bool:
    """Whether what a model claims is in the words it cites.

    Every number and every name of the claim must be there, and most of its other words, by their stems: a model may
    put "moved" for "move", but not a town that was never named. Whom it begins with must be who said the sentence
    nearest to it, or be named there; it must deny what that sentence denies and nothing else, and a question, a doubt or
    a condition is no statement. What fails is dropped, however plausible it sounds.
    """
    stems = {words.stem(word) for source in sources for word in words.word_set(str(source))}
    told = [word for word in words.word_set(claim) if word not in words.stop_words()]
    if not told:
        return False
    particular = {word.casefold() for word in _PARTICULAR.findall(claim)}
    missing = [word for word in told if words.stem(word) not in stems]
    if any(words.stem(word) not in stems for one in particular for word in words.word_set(one)):
        return False
    first = next(iter(_WORD.findall(claim.casefold())), "")
    if first in missing or len(missing) > (1 - _HELD) * len(told):
        return False
    mine = gate.gist(claim)
    pairs = [(source, one) for source in sources for one in sentences.split(source.text) or [""]]
    shared = [len(gate.gist(f"{source.speaker} {one}") & mine) for source, one in pairs]
    source, sentence = pairs[shared.index(max(shared))]
    if gate.denies(mine) != gate.denies(gate.gist(sentence)):
        return False
    others = {_first(one.speaker) for one in sources} - {_first(source.speaker)}
    if first in others and first not in _WORD.findall(sentence.casefold()):
        return False
    # A claim may be put together of two sentences; each that is as near must state its part.
    return all(_is_stated(one, claim) for (_, one), n in zip(pairs, shared, strict=True) if n == max(shared))


def _first(name: str) -> str:
    return next(iter(_WORD.findall(name.casefold())), "")


def _is_stated(sentence: str, claim: str) -> bool:
    """Whether a sentence states something; a doubt or a condition in it must be in the claim as well."""
    if len(sentence) > LONGEST_SENTENCE:
        return False  # no sentence anyone said
    phrases = spoken(sentence)
    is_bare = phrases.is_question(sentence) and not stated_part(sentence, phrases)
    if is_bare and not any(traits.traits_of(sentence, to_agent=True)):
        return False
    doubts = (phrases.unreal, phrases.hedged, traits.doubt_of(sentence))
    return not any(doubt.search(sentence) and not doubt.search(claim) for doubt in doubts)


def cited(ids: Sequence[str], by_id: Mapping[str, Message], zone: tzinfo) -> list[Cited]:
    """What the messages of `ids` hold: who spoke, the words, and the days these mean."""
    found = []
    for one in ids:
        message = by_id[one]
        at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(zone)
        days = [dates.shown(m.start, m.end) for m in dates.mentions(message.text, at)]
        found.append(Cited(message.speaker, message.text, " ".join([*days, f"{at.year}"])))
    return found


def known_ids(value: Any, allowed: Iterable[str]) -> tuple[str, ...]:
    """The ids of an answer that were in the question, once each, in their order."""
    if not isinstance(value, list):
        return ()
    known = set(allowed)
    return tuple(dict.fromkeys(item for item in value if isinstance(item, str) and item in known))
