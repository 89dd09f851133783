"""Long texts cut into passages: pieces an embedder can read whole and a person can read at a glance.

A cut is made where the text itself pauses: between paragraphs, else lines, else sentences, else words. The same
text is always cut in the same places, so passages need not be kept anywhere: their places are enough.
"""

from __future__ import annotations

import re
from typing import NamedTuple

# About 220 word pieces of English, and as much of scripts whose characters take three bytes and a piece each.
PASSAGE_BYTES = 900
# Where a text may be cut, the best first; a cut is made before the second part of the match.
_PAUSES = tuple(
    re.compile(pattern)
    for pattern in (r"\n\s*\n()|\n(?=#)()", r"\n()", r"(?<=[.!?;:])\s+()|(?<=[。！？；])()", r"\s+()")
)


class Passage(NamedTuple):
    """A stretch of a text, by its characters: `text[start:end]`."""

    start: int
    end: int


def passages(text: str, size: int = PASSAGE_BYTES) -> list[Passage]:
    """The passages of `text`, in order, which together are all of it; a text that is not long is one passage.

    >>> [tuple(p) for p in passages("One. Two.", 6)]
    [(0, 5), (5, 9)]
    """
    if len(text) * 4 <= size:
        return [Passage(0, len(text))]
    many = len(text.encode("utf-8", "surrogatepass"))
    if many <= size * 4 // 3:
        return [Passage(0, len(text))]
    # In characters of this text; the last passage must not be a scrap, so all of them are about as long.
    limit = max(1, size * len(text) // many)
    count = -(-len(text) // limit)
    out = []
    start = 0
    while start < len(text):
        left = len(text) - start
        if left <= limit * 4 // 3:
            out.append(Passage(start, len(text)))
            break
        end = _cut(text, start, min(limit, -(-left // max(1, count - len(out)))), limit)
        out.append(Passage(start, end))
        start = end
    return out


def _cut(text: str, start: int, wanted: int, limit: int) -> int:
    """Where the passage that begins at `start` ends: the best pause around `wanted` characters, within `limit`."""
    low, high = start + max(1, wanted // 2), start + limit
    for pause in _PAUSES:
        found = [match.end() for match in pause.finditer(text, low, high)]
        if found:
            return min(found, key=lambda end: abs(end - start - wanted))
    return high
