"""How alike texts are: by vectors where an embedder can be had, by shared word stems otherwise."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from cairn.errors import CairnError
from cairn.language import tongues, words

if TYPE_CHECKING:
    from cairn.strategies import Kit


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
