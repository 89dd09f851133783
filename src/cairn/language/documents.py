"""Documents cut at their headings: what a text is about, part by part, and on which line each part begins.

Markdown is cut at its headings (outside code), HTML is read into the same form first, plain text is one part. A part
keeps its place: the line of the original and the headings above it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from html.parser import HTMLParser
from typing import NamedTuple

_ATX = re.compile(r" {0,3}(#{1,6})(?:[ \t]+(.*?))?(?:[ \t]+#+)?[ \t]*")
_SETEXT = re.compile(r" {0,3}(=+|-+)[ \t]*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_NO_TITLE = re.compile(r" {0,3}(?:[-*+>|]|\d+[.)][ \t]|$)")
_MARKS = re.compile(r"\[([^\[\]]*)\]\([^()]*\)|[*_`]{1,3}")
_BLANKS = re.compile(r"\s+")
SUMMARY_CHARS = 200
FOLDER = "knowledge"
LINKED = ".linked"
LINKS = "links.toml"
MARKDOWN = frozenset({".md", ".markdown"})
HTML = frozenset({".html", ".htm"})
TEXTS = MARKDOWN | HTML | {".txt"}
CONVERTED = frozenset({".pdf", ".docx"})


def suffix_of(name: str) -> str:
    """The ending of a file name, in small letters."""
    dot = name.rfind(".")
    return name[dot:].lower() if dot > 0 else ""


class Lines(NamedTuple):
    """A text by its lines, each with the number of the line it comes from, and the title it gives itself."""

    text: Sequence[str]
    at: Sequence[int]
    title: str = ""


class Topic(NamedTuple):
    """One part of a document: what stands below a heading, up to the next.

    `path` are the headings above it and its own; `parent` is the number of the part it belongs to.
    """

    number: int
    name: str
    path: tuple[str, ...]
    depth: int
    line: int
    text: str
    lines: Sequence[int]
    parent: int | None

    def line_of(self, start: int) -> int:
        """The line of the original on which the character `start` of the text stands."""
        return self.lines[min(self.text.count("\n", 0, start), len(self.lines) - 1)]


def plain_lines(text: str, first: int = 1) -> Lines:
    """The lines of a text that begins on line `first`."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return Lines(lines, range(first, first + len(lines)))


def topics(lines: Lines, title: str, *, headings: bool = True) -> list[Topic]:
    r"""The parts of a document, in order; at least one. What stands before the first heading has the title for a name.

    >>> [(t.name, t.line, t.depth) for t in topics(plain_lines("Hi.\n\n# One\ntext\n## Two\n"), "Doc")]
    [('Doc', 1, 0), ('One', 3, 1), ('Two', 5, 2)]
    """
    marks = list(_headings(lines.text)) if headings else []
    out: list[Topic] = []
    above: list[tuple[int, str, int]] = []
    first = marks[0][0] if marks else len(lines.text)
    if not marks or any(line.strip() for line in lines.text[:first]):
        out.append(_topic(lines, 0, first, 0, title, (), 0, None))
    for place, (begin, body, level, name) in enumerate(marks):
        end = marks[place + 1][0] if place + 1 < len(marks) else len(lines.text)
        while above and above[-1][0] >= level:
            above.pop()
        path = (*(told for _, told, _ in above), name)
        parent = above[-1][2] if above else None
        number = len(out)
        out.append(_topic(lines, body, end, number, name, path, level, parent, begin))
        above.append((level, name, number))
    return out


def _topic(
    lines: Lines, body: int, end: int, number: int, name: str, path: tuple[str, ...], depth: int,
    parent: int | None, begin: int | None = None,
) -> Topic:  # fmt: skip
    """The part whose text stands in the lines from `body` to `end`; blank lines around it do not count."""
    while body < end and not lines.text[body].strip():
        body += 1
    while end > body and not lines.text[end - 1].strip():
        end -= 1
    at = lines.at[begin if begin is not None else min(body, len(lines.at) - 1)]
    text = "\n".join(lines.text[body:end])
    return Topic(number, name, path, depth, at, text, lines.at[body:end] or [at], parent)


def _headings(lines: Sequence[str]) -> Iterator[tuple[int, int, int, str]]:
    """Each heading: its line, the line after it, its level and its words. What stands in a fence is code."""
    fence = ""
    for number, line in enumerate(lines):
        if opened := _FENCE.match(line):
            mark = opened[1]
            if not fence:
                fence = mark
            elif mark[0] == fence[0] and len(mark) >= len(fence) and not line[opened.end() :].strip():
                fence = ""
            continue
        if fence:
            continue
        if found := _ATX.fullmatch(line):
            yield number, number + 1, len(found[1]), plain(found[2] or "") or "…"
        elif (
            (under := _SETEXT.fullmatch(line))
            and number
            and not _NO_TITLE.match(lines[number - 1])
            and (number < 2 or not lines[number - 2].strip())
            and not _ATX.fullmatch(lines[number - 1])
        ):
            yield number - 1, number + 1, 1 if under[1][0] == "=" else 2, plain(lines[number - 1])


def plain(text: str) -> str:
    """A heading without marks of Markdown, in one line."""
    return _BLANKS.sub(" ", _MARKS.sub(lambda found: found[1] or "", text)).strip()


def summary(text: str) -> str:
    r"""The beginning of a text in one line, to the end of a word.

    >>> summary("One  two.\n\nThree.")
    'One two.'
    """
    first = _BLANKS.sub(" ", next((part for part in text.split("\n\n") if part.strip()), "")).strip()
    if len(first) <= SUMMARY_CHARS:
        return first
    return first[:SUMMARY_CHARS].rsplit(" ", 1)[0] + " …"


# ---------------------------------------------------------------- HTML

_SILENT = frozenset({"script", "style", "template", "noscript", "svg"})
_BLOCKS = frozenset({
    "p", "div", "section", "article", "main", "header", "footer", "aside", "nav", "ul", "ol", "table", "tr", "br", "hr",
    "blockquote", "figure", "figcaption", "dl", "dt", "dd", "form", "body", "html", "pre", "li",
    "h1", "h2", "h3", "h4", "h5", "h6",
})  # fmt: skip


class _Reader(HTMLParser):
    """Collects the words of a page, block by block, with the line each block begins on."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.lines: list[str] = []
        self.at: list[int] = []
        self.title = ""
        self._silent: list[str] = []
        self._in_title = False
        self._pre = 0
        self._prefix = ""
        self._words: list[str] = []
        self._line = 1

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002 -- the library's
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag == "title":
            self._in_title = True
        elif tag in _BLOCKS:
            self.end_block()
            self._pre += tag == "pre"
            if len(tag) == 2 and tag[0] == "h" and tag[1].isdigit():
                self._prefix = "#" * int(tag[1]) + " "
            elif tag == "li":
                self._prefix = "- "
        elif tag in {"td", "th"} and self._words:
            self._words.append(" | ")

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        elif tag in self._silent:
            while self._silent and self._silent.pop() != tag:
                pass
        elif tag in _BLOCKS:
            self.end_block()
            self._pre = max(0, self._pre - (tag == "pre"))

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data
        elif not self._silent:
            if self._pre:
                for number, line in enumerate(data.split("\n")):
                    self._put("    " + line if line.strip() else "", self.getpos()[0] + number)
            elif data.strip() or self._words:
                if not self._words:
                    blank = data[: len(data) - len(data.lstrip())]
                    self._line = self.getpos()[0] + blank.count("\n")
                self._words.append(data)

    def end_block(self) -> None:
        words = _BLANKS.sub(" ", "".join(self._words)).strip()
        if words:
            if self.lines and not (self._prefix == "- " and self.lines[-1].startswith("- ")):
                self._put("", self._line)
            self._put(self._prefix + words, self._line)
        self._words, self._prefix = [], ""

    def _put(self, text: str, line: int) -> None:
        self.lines.append(text)
        self.at.append(line)


def html_lines(text: str) -> Lines:
    r"""The words of a web page in the form of Markdown, each line with the line of the page it comes from.

    >>> html_lines("<title>T</title>\n<h1>Tides</h1>\n<p>High at noon.")
    Lines(text=['# Tides', '', 'High at noon.'], at=[2, 3, 3], title='T')
    """
    reader = _Reader()
    reader.feed(text)
    reader.close()
    reader.end_block()
    return Lines(reader.lines or [""], reader.at or [1], _BLANKS.sub(" ", reader.title).strip())
