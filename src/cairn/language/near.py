"""Finds nearly equal sets of words by their rarest members, without comparing every pair; and tells what no likeness of the
other words makes up for.

Two sets alike to degree t (shared words over all words) miss at most (1 - t) of each other's words. So whatever is
that near to a set holds one of its rarest few words, and has a size not much larger or smaller: only those are compared.
"""

from __future__ import annotations

import functools
import heapq
import math
import re
from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

from cairn.language import tongues

K = TypeVar("K", bound=Hashable)
_QUOTED = re.compile(r"\"([^\"]+)\"|“([^”]+)”|«([^»]+)»|`([^`]+)`|‘([^’]+)’|(?<!\w)'([^']+)'(?!\w)")
_OUTER_START, _OUTER_END = "([{<\"'“‘«`*", ")]}>\"'”’»`*.,;:!?…"
_POSSESSIVE = re.compile(r"['’]s?$")
_IDENTIFIER = re.compile(r"\d|[+#]$|[@/\\=]|\w[._:-]+\w|[^\W\d_][A-Z]|[a-z][A-Z]|n['’]t$")


def jaccard(left: AbstractSet[str], right: AbstractSet[str]) -> float:
    """Shared words over all words; two texts without words are not alike."""
    if not left or not right:
        return 0.0
    shared = len(left & right)
    return shared / (len(left) + len(right) - shared)


def tied(size: int, pairs: Iterable[tuple[int, int]]) -> list[list[int]]:
    """The numbers below `size` in groups, each in order: what pairs tie to each other, over whichever others, is one group.

    >>> tied(5, [(0, 3), (4, 3)])
    [[0, 3, 4], [1], [2]]
    """
    groups = {number: [number] for number in range(size)}
    for one, other in pairs:
        if groups[one] is not groups[other]:
            small, large = sorted((groups[one], groups[other]), key=len)
            large += small
            groups |= dict.fromkeys(small, large)
    return [sorted(group) for group in {id(group): group for group in groups.values()}.values()]


class NearSets(Generic[K]):
    """Sets of words by key, with a lookup of those nearly equal to another set."""

    def __init__(self) -> None:
        self._sets: dict[K, frozenset[str]] = {}
        self._keys: dict[tuple[int, str], set[K]] = {}
        self._sizes: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sets)

    def __contains__(self, key: K) -> bool:
        return key in self._sets

    def put(self, key: K, words: frozenset[str]) -> None:
        """Hold `words` under a new key."""
        self._sets[key] = words
        self._sizes[len(words)] = self._sizes.get(len(words), 0) + 1
        for word in words:
            self._keys.setdefault((len(words), word), set()).add(key)

    def drop(self, key: K) -> None:
        """Let go of what is held under `key`, if anything is."""
        words = self._sets.pop(key, None)
        if words is None:
            return
        size = len(words)
        self._sizes[size] -= 1
        if not self._sizes[size]:
            del self._sizes[size]
        for word in words:
            keys = self._keys[size, word]
            keys.discard(key)
            if not keys:
                del self._keys[size, word]

    def near(self, words: AbstractSet[str], threshold: float) -> Iterator[tuple[K, float]]:
        """The keys whose sets are alike to at least `threshold`, and how much each is; in no special order."""
        size = len(words)
        least, most = math.ceil(threshold * size - 1e-9), int(size / threshold + 1e-9)
        sizes = [n for n in self._sizes if least <= n <= most]
        found = {word: [keys for n in sizes if (keys := self._keys.get((n, word)))] for word in words}
        probe = heapq.nsmallest(
            int((1 - threshold) * size + 1e-9) + 1, words, key=lambda word: (sum(map(len, found[word])), word)
        )
        for key in set().union(*(keys for word in probe for keys in found[word])):
            score = jaccard(words, self._sets[key])
            if score >= threshold:
                yield key, score


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
