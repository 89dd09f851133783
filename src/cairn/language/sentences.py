"""Where one sentence ends and the next begins, and long texts cut into passages, without a model and in linear time.

Made for chat: line breaks end sentences, closing quotes and brackets stay with theirs, and the dots of
abbreviations, initials, numbers and addresses do not count. Chinese and Japanese need no blank after a stop.

Passages are pieces an embedder can read whole and a person can read at a glance. A cut is made where the text itself
pauses: between paragraphs, else lines, else sentences, else words. The same text is always cut in the same places, so
passages need not be kept anywhere: their places are enough.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator
from typing import NamedTuple

from cairn.language import tongues

_STOP = re.compile(r"(?<![.!?…؟।])[.!?…؟।]++[\"'”’»)\]]*+(?=\s|$)|[。！？｡]+[」』”’）]*|[\r\n\u2028\u2029]+")
_LAST_WORD = re.compile(r"([^\W\d_](?:[\w.]*\w)?)\.$")
# "am 1. Juli", "den 3. und 4.", "am 28.09. war": a number with a dot is an ordinal where a month or a small letter follows.
_AROUND = 80
_ORDINAL = re.compile(r"(?<!\S)\d{1,2}\.(?:\d{1,2}\.)?$")
# About 220 word pieces of English, and as much of scripts whose characters take three bytes and a piece each.
PASSAGE_BYTES = 900
# Where a text may be cut, the best first; a cut is made before the second part of the match.
_PAUSES = tuple(
    re.compile(pattern)
    for pattern in (r"\n\s*\n()|\n(?=#)()", r"\n()", r"(?<=[.!?;:])\s+()|(?<=[。！？；])()", r"\s+()")
)


@functools.cache
def _abbreviations() -> tuple[frozenset[str], frozenset[str]]:
    """The short forms of every language that end in a dot, and those among them that end no sentence."""
    tables = [tongue.table("sentences") for tongue in tongues.known().values()]
    short, inner = (
        " ".join(str(t.get(name, "")) for t in tables) for name in ("abbreviations", "never_last")
    )
    return frozenset(f"{short} {inner}".split()), frozenset(inner.split())


@functools.cache
def _after_ordinal() -> re.Pattern[str]:
    """What follows the dot of an ordinal, in languages that write one so."""
    dotted = [t for t in tongues.known().values() if t.table("sentences").get("ordinal_dot")]
    months = [name for t in dotted for said in t.table("dates").get("months", ()) for name in said.split("/")]
    return re.compile(rf"\s+{tongues.choice(map(str.lower, months))}\b|(?-i:\s+[a-zäöü])", re.IGNORECASE)


def split(text: str) -> list[str]:
    """The sentences of `text`, trimmed, in order; empty ones are left out.

    >>> split("Dr. Lee came at 3 p.m. on Monday. It rained!")
    ['Dr. Lee came at 3 p.m. on Monday.', 'It rained!']
    """
    return [sentence for start, stop in places(text) if (sentence := text[start:stop].strip())]


def places(text: str) -> Iterator[tuple[int, int]]:
    """Where each sentence of `text` starts and stops; together they cover all of it."""
    start = 0
    for stop in _STOP.finditer(text):
        if stop.group() == "." and _goes_on(text, start, stop.end()):
            continue
        yield start, stop.end()
        start = stop.end()
    if start < len(text):
        yield start, len(text)


def _goes_on(text: str, start: int, dot: int) -> bool:
    """Whether the dot before offset `dot` belongs to an abbreviation or an initial, not to a sentence's end."""
    if _ORDINAL.search(text[max(start, dot - 7) : dot]) and (after := _after_ordinal().match(text, dot)):
        # "from 7. you should come": a small letter tells only where ordinals are written so, a month anywhere.
        is_month = len(after.group().strip()) > 1
        around = tongues.spoken_in(text[start : dot + _AROUND])
        return is_month or bool(around.table("sentences").get("ordinal_dot"))
    word = _LAST_WORD.search(text, max(start, dot - 16), dot)
    if word is None:
        return False
    bare = word.group(1).lower()
    abbreviations, never_last = _abbreviations()
    if bare in never_last or (len(bare) == 1 and word.group(1).isupper()):
        return True
    following = text[dot : dot + 8].lstrip()[:1]
    return bare in abbreviations and (following.islower() or following.isdigit())


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
