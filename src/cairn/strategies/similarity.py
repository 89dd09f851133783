"""How alike texts are: by vectors where an embedder can be had, by shared word stems otherwise; and what no
likeness of the other words makes up for.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cairn.errors import CairnError
from cairn.language import tongues, words

if TYPE_CHECKING:
    from cairn.strategies import Kit

_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|‘([^’]+)’|(?<!\w)'([^']+)'(?!\w)")
_OUTER_START, _OUTER_END = "([{<\"'“‘«`*", ")]}>\"'”’»`*.,;:!?…"
_POSSESSIVE = re.compile(r"['’]s?$")
_IDENTIFIER = re.compile(r"\d|[+#]$|[@/\\=]|\w[._:-]+\w|[^\W\d_][A-Z]|[a-z][A-Z]|n['’]t$")


@functools.cache
def _telling() -> frozenset[str]:
    """Days, months, numbers as words and denials of every language: what no likeness of the rest makes up for."""
    found: set[str] = set()
    for tongue in tongues.known().values():
        calendar = tongue.table("dates")
        found.update(str(tongue.table("talk").get("particular", "")).split())
        found.update(said.split("/")[0] for name in ("weekdays", "months") for said in calendar.get(name, ()))
    return frozenset(found)


def particulars(text: str) -> tuple[str, ...]:
    """What tells two statements apart however alike the rest is, and so must be equal for one to stand for both.

    Every word with a capital and the first word of all, numbers (as words, too), dates, identifiers and file names,
    quoted words, and denials, in their order: who gave what to whom is told by it. A capital is enough: "You" and
    "An" are people's names, and "He" is another than "She". In a script without capitals any word may be a name, so
    there all of them count. Rather too much than too little: what is kept twice does less harm than what is lost.
    """
    found = [" ".join(next(filter(None, quoted)).split()) for quoted in _QUOTED.findall(text)]
    first, telling = True, _telling()
    for token in text.split():
        bare = _POSSESSIVE.sub("", token.lstrip(_OUTER_START).rstrip(_OUTER_END))
        if not any(map(str.isalnum, bare)):
            continue
        lower = bare.casefold()
        if _IDENTIFIER.search(bare):
            found.append(bare)
        elif (
            lower in telling
            or first
            or bare[0].isupper()
            or any(letter.isalpha() and letter.lower() == letter.upper() for letter in bare)
        ):
            found.append(lower)
        first = False
    return tuple(found)


def measured(texts: Sequence[str], kit: Kit) -> Callable[[int, int], float]:
    """A function that tells how alike two of `texts` are, by their positions, from 0 to 1."""
    embedder = kit.embedder()
    if embedder is not None and texts:
        try:
            vectors = embedder.embed(texts)
            return lambda one, other: float(vectors[one] @ vectors[other])
        except CairnError:
            pass
    bags = [_bag(text) for text in texts]
    return lambda one, other: _cosine(bags[one], bags[other])


def _bag(text: str) -> dict[str, float]:
    counts: dict[str, int] = {}
    plain = tongues.every_word("cases", "plain")
    for word in re.findall(r"[^\W\d_]{2,}", text.casefold()):
        if word not in plain:
            stem = words.stem(word)
            counts[stem] = counts.get(stem, 0) + 1
    return {word: 1 + math.log(count) for word, count in counts.items()}


def _cosine(one: dict[str, float], other: dict[str, float]) -> float:
    if not one or not other:
        return 0.0
    dot = sum(weight * other[word] for word, weight in one.items() if word in other)
    return dot / math.sqrt(sum(w * w for w in one.values()) * sum(w * w for w in other.values()))
