"""What people say about themselves, clause by clause: who they are, what they like, what they want done.

The rules of each language are in `language/data/<code>.toml`: every `[[profile]]` names a category, the attribute it
sets (`slot`, for what has one value at a time) and patterns that a clause must begin with. A clause is found where a
sentence starts, and behind a comma or a joining word; it ends where the next one begins, so that "I prefer tea, can
you ..." gives the preference and not the question.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from cairn.language import tongues, words
from cairn.language.tongues import Tongue

INSTRUCTION = "Instruction"
_LONGEST = 300


@dataclass(frozen=True, slots=True)
class Trait:
    """One clause about the speaker: its category, the attribute it sets, and where it stands in the sentence."""

    category: str
    slot: str
    begin: int
    stop: int


@dataclass(frozen=True, eq=False, slots=True)
class _Rules:
    rules: tuple[tuple[str, str, re.Pattern[str]], ...]
    starts: re.Pattern[str]
    ends: re.Pattern[str]
    doubt: re.Pattern[str]
    little: frozenset[str]
    object_ends: re.Pattern[str]
    between: re.Pattern[str]


def traits_of(sentence: str, *, to_agent: bool = False) -> Iterator[Trait]:
    """The clauses of a sentence in which its speaker tells of themself.

    Args:
        sentence: What was said, bared of greetings.
        to_agent: Whether it was said to an agent; only then an order ("always answer in French") is a wish that stands.
    """
    known = _rules_of(tongues.spoken_in(sentence))
    taken = 0
    for start in _starts(sentence, known):
        if start < taken:
            continue
        end = known.ends.search(sentence, start + 1)
        clause = sentence[start : end.start() if end else len(sentence)].rstrip(" .!…,;。！")
        if len(clause) > _LONGEST or known.doubt.search(clause):
            continue
        for category, slot, pattern in known.rules:
            if category == INSTRUCTION and not to_agent:
                continue
            whole = sentence[start:].rstrip(" .!…,;。！") if category == INSTRUCTION else clause
            if len(whole) <= _LONGEST and (match := pattern.match(whole)) and _says_what(slot, match, known):
                taken = start + len(whole)
                yield Trait(category, _slot(slot, match, known), start, taken)
                break


def matter_of(fact: str) -> tuple[str, str] | None:
    """Whose attribute a quoted fact sets, for what has one value at a time: ("ana", "home") for "Ana: I live in Oslo.".

    None where the quote says more than that: another fact must not end what was told beside it.
    """
    who, colon, said = fact.partition(": ")
    if not colon or not said:
        return None
    length = len(said.rstrip(" .!…"))
    for trait in traits_of(said):
        return (
            (who.casefold(), trait.slot) if trait.slot and trait.begin == 0 and trait.stop >= length else None
        )
    return None


def _starts(sentence: str, known: _Rules) -> Iterator[int]:
    yield 0
    for found in known.starts.finditer(sentence):
        yield found.end()


@functools.cache
def _rules_of(tongue: Tongue) -> _Rules:
    table = tongue.table("clauses")
    names: Mapping[str, str] = table.get("names", {})

    def compiled(pattern: str) -> re.Pattern[str]:
        for name, body in names.items():
            pattern = pattern.replace("{" + name + "}", body)
        return re.compile(tongues.widened(pattern), re.I)

    rules: list[tuple[str, str, re.Pattern[str]]] = []
    given: list[Mapping[str, Any]] = tongue.tables.get("profile", [])
    for rule in given:
        rules += [(rule["category"], rule.get("slot", ""), compiled("^" + p)) for p in rule["patterns"]]
    return _Rules(
        tuple(rules),
        compiled(table.get("starts", "(?!)")),
        compiled(table.get("ends", "(?!)")),
        compiled(table.get("doubt", "(?!)")),
        frozenset(str(table.get("little", "")).split()),
        compiled(table.get("object_ends", "[,;]")),
        compiled(table.get("between", "(?!)")),
    )


def _says_what(slot: str, match: re.Match[str], known: _Rules) -> bool:
    """Whether a taste names what it is for: "I love to" does not."""
    return slot not in {"taste", "prefer"} or bool(_object(match.groupdict().get("o") or "", known))


def _slot(slot: str, match: re.Match[str], known: _Rules) -> str:
    """The attribute a clause sets. Tastes are attributes by what they are about, so that a change of mind is one."""
    groups = match.groupdict()
    if slot == "favorite":
        what = groups.get("k") or groups.get("l") or ""
        return f"favorite {_object(what, known)}" if what else ""
    if slot == "taste":
        return f"taste {_object(groups.get('o') or '', known)}".strip()
    if slot == "prefer":
        pair = known.between.split(groups.get("o") or "")
        return "prefer " + " / ".join(sorted(_object(p, known) for p in pair[:2])) if len(pair) > 1 else ""
    return slot


def _object(text: str, known: _Rules) -> str:
    plain = known.object_ends.split(text.casefold())[0]
    keep = [w for w in re.findall(r"[^\W_]+", plain) if w not in known.little]
    return " ".join(words.stem(w) for w in keep[:4])
