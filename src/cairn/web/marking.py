"""Prepares text for a browser: safe Markdown, matched words marked, direction marks made visible.

Memories are hostile input. Raw HTML is text here, links go to the web or to mail and nowhere else, pictures are not
fetched, and a sign that turns the direction of reading is written out.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from markupsafe import Markup, escape

from cairn.language.words import is_unspaced, query_terms, stem, tokens

if TYPE_CHECKING:
    from markdown_it import MarkdownIt

MOST_CHARS = 40_000
_EXCERPT = 320
_MOST_TERMS = 32
_OVERRIDES = re.compile("[\u202a-\u202e\u2066-\u2069]")
_WORD = re.compile(r"\w+")
_LEAST_RUN = 4
_MOST_TOKENS = 3000
_MARKS = re.compile(r"^<!-- cairn:[^\n]{0,200}-->$\n?", re.MULTILINE)


@lru_cache(maxsize=1)
def _reader() -> MarkdownIt:
    from markdown_it import MarkdownIt

    made = MarkdownIt("commonmark", {"html": False, "linkify": False, "breaks": True})
    made.enable(["table", "strikethrough"]).disable(["image"])
    made.validateLink = _is_harmless  # type: ignore[assignment,method-assign]
    return made


def _is_harmless(address: str) -> bool:
    try:
        return urlsplit(address.strip()).scheme.lower() in {"http", "https", "mailto"}
    except ValueError:
        return False


def plain(text: object) -> str:
    """Text with signs that turn the direction of reading written out."""
    return _OVERRIDES.sub(lambda found: f"[U+{ord(found.group()):04X}]", str(text))


def markdown(text: str) -> Markup:
    """Markdown as harmless HTML, without our own marks; a very long text is shown as it is written, cut."""
    shown = _MARKS.sub("", plain(text)).strip()
    if len(shown) > MOST_CHARS or max(map(len, shown.split("\n")), default=0) > MOST_CHARS // 4:
        return Markup("<pre class=long>{}</pre>").format(shown[:MOST_CHARS])
    made = str(_reader().render(shown))
    return Markup(made.replace("<a href=", '<a rel="noopener noreferrer nofollow" href='))  # noqa: S704 -- raw HTML was off


# ---------------------------------------------------------------- what matched


def terms(query: str) -> frozenset[str]:
    """The stems a question is about."""
    return frozenset(query_terms(query, limit=_MOST_TERMS)) if query.strip() else frozenset()


def marked(text: str, wanted: frozenset[str]) -> Markup:
    """Text with the words that match marked."""
    shown, out, at = plain(text), Markup(), 0
    if not wanted:
        return escape(shown)
    for start, end in _hits(shown, wanted):
        out += escape(shown[at:start]) + Markup("<mark>{}</mark>").format(shown[start:end])
        at = end
    return out + escape(shown[at:])


def _hits(text: str, wanted: frozenset[str]) -> Iterator[tuple[int, int]]:
    """Where words that match stand. Where words stand without blanks: pairs of characters, or single ones for a question of one."""
    least = 2 if any(len(one) == 2 and is_unspaced(one[0]) for one in wanted) else 1
    for found in _WORD.finditer(text):
        if found.group().isascii():
            if _matches(found.group(), wanted):
                yield found.span()
            continue
        for blankless, places in groupby(range(*found.span()), key=lambda at: is_unspaced(text[at])):
            piece = [*places]
            start, end = piece[0], piece[-1] + 1
            if not blankless:
                if _matches(text[start:end], wanted):
                    yield start, end
                continue
            hit = {
                at + n
                for at in range(start, end - least + 1)
                if text[at : at + least].casefold() in wanted
                for n in range(least)
            }
            for matches, run in groupby(piece, key=hit.__contains__):
                if matches:
                    stretch = [*run]
                    yield stretch[0], stretch[-1] + 1


def _matches(word: str, wanted: frozenset[str]) -> bool:
    folded = word.casefold()
    if folded in wanted or stem(folded) in wanted:
        return True
    return not word.isascii() and not wanted.isdisjoint(tokens(word))


def excerpt(text: str, wanted: frozenset[str], most: int = _EXCERPT) -> Markup:
    """The stretch of a text around the first words that match, marked."""
    flat = " ".join(text.split())
    first = next((start for start, _ in _hits(flat, wanted)), 0) if wanted else 0
    start = max(0, first - most // 3) if first > most * 2 // 3 else 0
    if start:
        start = flat.find(" ", start) + 1
    piece = flat[start : start + most]
    before, after = ("… " if start else ""), (" …" if start + most < len(flat) else "")
    return escape(before) + marked(piece, wanted) + escape(after)


def used(message: str, entry: str) -> Markup:
    """A message with the runs of words marked that its entry took over."""
    shown = plain(message[:MOST_CHARS])
    said, told = list(_WORD.finditer(shown)), _WORD.findall(entry.casefold())
    if not said or len(said) > _MOST_TOKENS or len(told) > _MOST_TOKENS:
        return escape(shown)
    words = [one.group().casefold() for one in said]
    runs = difflib.SequenceMatcher(None, words, told, autojunk=False).get_matching_blocks()
    out, at = Markup(), 0
    for run in runs:
        if run.size >= min(_LEAST_RUN, len(words)):
            start, end = said[run.a].start(), said[run.a + run.size - 1].end()
            out += escape(shown[at:start]) + Markup("<mark>{}</mark>").format(shown[start:end])
            at = end
    return out + escape(shown[at:])
