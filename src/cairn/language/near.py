"""Finds nearly equal sets of words by their rarest members, without comparing every pair.

Two sets alike to degree t (shared words over all words) miss at most (1 - t) of each other's words. So whatever is
that near to a set holds one of its rarest few words, and has a size not much larger or smaller: only those are compared.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Hashable, Iterable, Iterator
from collections.abc import Set as AbstractSet
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)


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
