"""Separates what a person says in a message from what they paste into it.

Code, tables, headings, lists of links, quoted lines, letters and whole documents are material, not statements. They
are told by their form, line by line and in linear time, so it makes no difference which language they are in.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from cairn.language import sentences, tongues

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_HEADING = re.compile(
    r"^\s*(?:#{1,6}\s|[=*_-]{3,}\s*$|(?:\*\*|__)[^*_]+(?:\*\*|__):?\s*$|.{1,80}\n?[=-]{3,}$)"
)
_TABLE = re.compile(r"^\s*\||\|\s*$|\S \| \S.* \| ")
_QUOTE = re.compile(r"^\s*>")
_ITEM = re.compile(r"^\s*(?:[-*•+–]|\(?\d{1,3}[.)]|\(?[a-z][.)])\s+")
_LINK = re.compile(r"\[[^\[\]]*\]\([^()]*\)|\bhttps?://\S+|\bwww\.\S+")
_CODE_LINE = re.compile(
    r"^\s*(?:import \w|from \w+ import|def \w+\(|class \w+[:(]|(?:const|let|var)\s\w+\s*=|function\s|return\s.*;$|"
    r"SELECT\s.*\sFROM\s|INSERT INTO|CREATE TABLE|<[/!a-zA-Z][^>]*>|\$ |>>> |@\w+|//|/\*|\*/|#include|[\w.\[\]'\"]+\s*[-+*]?=\s*\S|at \S+\(|"
    r"[\w.-]+@[\w.-]+:~|Traceback|File \"|[{}\])]+[;,]?$|[\"']?\w+[\"']?\s*:\s*[\[{\"'\d]|-{1,2}\w+)"
)
_CODE_END = re.compile(r"[;{}\\]\s*$|\)\s*:\s*$")
_SYMBOLS = re.compile(r"[{}()\[\]<>=$\\|&^~#*_@;]")
_TAG = re.compile(r"</?[a-zA-Z][^<>]*>|&[a-z]+;")
_FORMULA = re.compile(
    r"\\[(\[a-zA-Z]|\$[^$\s][^$]*\$|\^\{|\w\s?[=≈≤≥×÷]\s?[\w(-]|\d\s*[×÷*/^]\s*\d|\d!|\b[PC]\("
)
# A line of a chat that was pasted: its time and who wrote it, "[10:02] Ben: ...".
_LOGGED = re.compile(
    r"[\[(]?(?:\d{1,4}[-./]\d{1,2}[-./]\d{1,4},? )?\b\d{1,2}[:.]\d{2}(?::\d{2})?(?: ?[ap]\.?m\.?)?[\])]?,?"
    r"(?: [-–—])? ?<?@?[^\W\d_][\w.' -]{0,24}>?(?:[:：] |> )\s*(?=\S)"
)
_LABEL = re.compile(r"\s*<?@?([^\W\d_][\w.'-]{0,15}(?: [^\W\d_][\w.'-]{0,15})?)>?[:：] \S")
_LONG, _MUCH = 2500, 0.2
# "I'm 34.": of so few signs a number is none too much.
_SHORT = 12
_LISTED = 3


@functools.cache
def _dear() -> re.Pattern[str]:
    """How a letter begins, in the languages whose files say so."""
    openings = [
        str(t.table("letters")["dear"]) for t in tongues.known().values() if "dear" in t.table("letters")
    ]
    return re.compile(rf"^\s*(?:{'|'.join(openings) or '(?!)'})\s[^.!?]{{1,80}}[,:!]?\s*$", re.I)


@dataclass(frozen=True, slots=True)
class Spoken:
    """One sentence in someone's own words, and where it stands in the message."""

    text: str
    begin: int
    stop: int
    follows: bool
    """Whether it comes right behind the sentence before it: nothing pasted or listed between them."""


def spoken(text: str) -> Iterator[Spoken]:
    """The sentences of `text` that are prose of its own: no code, table, heading, list, letter or document."""
    last = -1
    for begin, stop in _paragraphs(text):
        for a, b in sentences.places(text[begin:stop]):
            said = text[begin + a : begin + b]
            start = begin + a + len(said) - len(said.lstrip())
            said = said.strip()
            if not said:
                continue
            if not is_debris(said):
                yield Spoken(said, start, start + len(said), last >= 0 and not text[last:start].strip())
            last = start + len(said)


def is_debris(sentence: str) -> bool:
    """Whether a single sentence is code, markup, a formula or the opening of a list rather than a statement."""
    if sentence.endswith((":", "：", ": **")) or _TAG.search(sentence) or _FORMULA.search(sentence):
        return True
    bare = _LINK.sub("", re.sub(r"`[^`]*`", "", sentence))
    letters = sum(map(str.isalnum if len(bare) <= _SHORT else str.isalpha, bare))
    return letters < 0.5 * len(bare.replace(" ", "")) or len(_SYMBOLS.findall(bare)) > 0.04 * len(bare) + 2


def _paragraphs(text: str) -> Iterator[tuple[int, int]]:
    """Where the lines of prose stand; neighbours are not joined, since a line's end is a sentence's."""
    lines = [_unlogged(*one) for one in _lines(text)]
    kinds = _kinds([line for _, _, line in lines])
    labels, talking = _talkers([line for _, _, line in lines])
    kinds = [k if not k or who not in talking else "quote" for k, who in zip(kinds, labels, strict=True)]
    shaped = sum(kind in {"code", "table", "heading", "item"} for kind in kinds)
    is_document = len(text) > _LONG and shaped > _MUCH * max(len([k for k in kinds if k]), 1)
    listed = kinds.count("item") >= _LISTED
    for (begin, stop, _), kind in zip(lines, kinds, strict=True):
        if is_document and kind not in {"", "prose"}:
            return
        if kind == "prose" or (kind == "item" and not listed):
            yield begin + _item_mark(text[begin:stop]), stop


def _unlogged(begin: int, stop: int, line: str) -> tuple[int, int, str]:
    """A line without the part of a pasted chat that it holds."""
    logged = _LOGGED.search(line)
    return (begin, begin + logged.start(), line[: logged.start()]) if logged else (begin, stop, line)


def _talkers(lines: list[str]) -> tuple[list[str], set[str]]:
    """Who each line names before a colon, and those who speak in a pasted chat: two at least, one of them again."""
    labels = [found[1] if (found := _LABEL.match(line)) else "" for line in lines]
    counts = Counter(filter(None, labels))
    is_chat = len(counts) > 1 and max(counts.values()) > 1
    return labels, set(counts) if is_chat else set()


def _item_mark(line: str) -> int:
    found = _ITEM.match(line)
    return found.end() if found else 0


def _lines(text: str) -> Iterator[tuple[int, int, str]]:
    at = 0
    for line in text.splitlines(keepends=True):
        yield at, at + len(line), line.rstrip("\r\n")
        at += len(line)


def _kinds(lines: list[str]) -> list[str]:
    """What each line is: "" for an empty one, prose, or a kind of material."""
    kinds: list[str] = []
    fenced = lettered = False
    for line in lines:
        if _FENCE.match(line):
            fenced = not fenced
            kinds.append("code")
        elif fenced:
            kinds.append("code")
        elif lettered or (_dear().match(line) and len(lines) > 1):
            lettered = True
            kinds.append("letter")
        else:
            kinds.append(_kind(line))
    return kinds


def _kind(line: str) -> str:
    if not line.strip():
        return ""
    if _QUOTE.match(line):
        return "quote"
    if _HEADING.match(line):
        return "heading"
    if _TABLE.search(line):
        return "table"
    if _CODE_LINE.match(line) or _CODE_END.search(line):
        return "code"
    if _LINK.search(line) and len(_LINK.sub("", line).split()) < 4:
        return "links"
    return "item" if _ITEM.match(line) else "prose"
