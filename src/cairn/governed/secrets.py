"""Credentials are found and cut out before the first byte of a text is written.

What a credential looks like stands in `credentials.toml`; here is how a text is looked at. `redact` is pure and
quick: a rule's pattern is tried only where one of its anchors (a plain substring) occurs, so ordinary talk costs a
few microseconds. A long text is first looked at as its different words, of which it has few: for anchors, and the long
ones for what can hold no blank. Two families of rules: shapes that are a credential wherever they occur, and assignments
(`password: ...`, `the token is ...`) whose value must look like a secret rather than like prose, a placeholder or a
reference to one.

The same text is looked at again without what hides a credential from a pattern: escapes of JSON in JSON, invisible
characters, a line or a string literal broken in the middle.
"""

from __future__ import annotations

import base64
import binascii
import itertools
import math
import operator
import re
import sys
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from importlib import resources
from typing import Any, cast

from cairn.language.later import Later
from cairn.shipped import tables_of


@dataclass(frozen=True, slots=True)
class Credential:
    """One credential: what it looks like and where it stood in the text that was given."""

    kind: str
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Redaction:
    """The text without its credentials, and what was cut out (never the credential itself)."""

    text: str
    findings: tuple[Credential, ...] = ()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The kinds found, each once, in order."""
        return tuple(dict.fromkeys(finding.kind for finding in self.findings))


# ---------------------------------------------------------------- what is known

_WORD_BEGINS, _WORD_ENDS = r"(?<![A-Za-z0-9_])", r"(?![A-Za-z0-9_])"
_WITHIN = 80
_LONG_TEXT = 2048  # characters; in a shorter one the long words are not worth collecting
_LONG_WORD = 11  # no credential without a blank is shorter
_BLANK = re.compile(r"\\[sSDWbntrfv]|\s|\[\^")
_NO_DOT = re.compile(r"\[[^\]]{0,200}\]|\\.")


class Shape:
    """A credential known by its form: one rule of `credentials.toml`. Its pattern is compiled when first needed."""

    def __init__(self, rule: Mapping[str, Any]) -> None:
        self.kind: str = rule["name"]
        self.anchors: tuple[str, ...] = tuple(rule["anchors"])
        self.folded: bool = rule.get("folded", False)
        self.example: str = rule["example"]
        self.why: str = rule["why"]
        self._written: str | list[str] = rule["pattern"]
        self._is_dense: bool = rule.get("dense", False)
        self._check = _CHECKS[rule.get("check", "")]
        self._near: tuple[str, ...] = tuple(rule.get("near", ()))
        self._within: int = rule.get("within", _WITHIN)
        self._after: int = 0 if rule.get("before", False) else self._within
        self._lead: int | None = rule.get("lead")
        written = "|".join(self._written) if isinstance(self._written, list) else self._written
        self.is_solid = not _BLANK.search(written) and not re.search(r"[.^]", _NO_DOT.sub("", written))
        self.is_word: bool = rule.get("word", False)
        # One that goes on in the next line is known again only by a beginning of its own.
        self.may_be_broken = not self.folded and not self._near and not self.anchors[0].isdigit()
        self.holds_anchor = self.is_solid and not self._near and not rule.get("apart", False)

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        written = [self._written] if isinstance(self._written, str) else self._written
        joined = written[0]
        if len(written) > 1 and all(one.startswith(r"\<") for one in written):
            # Once before all of them: a place inside a word is left at the first look, not at the fortieth.
            joined = r"\<(?:" + "|".join(one[2:] for one in written) + ")"
        elif len(written) > 1:
            joined = "|".join(written)
        return re.compile(joined.replace(r"\<", _WORD_BEGINS).replace(r"\>", _WORD_ENDS))

    def find(self, text: str, lowered: str, known: str = "") -> Iterator[Credential]:
        """Every place where the form stands in `text`; `known` has each word of a long one, see `_known`."""
        is_named = "v" in self.pattern.groupindex
        for match in self._matches(text, lowered, known):
            start, end = match.span("v") if is_named else match.span()
            value = text[start:end]
            if self._is_dense and not is_dense(value):
                continue
            if self.kind in _PLACEHELD and _PLACEHOLDER.now.match(value):
                continue
            if self._check(value) and (not self._near or self._is_near(lowered, start, end)):
                yield Credential(self.kind, start, end)

    def is_named(self, text: str, lowered: str) -> bool:
        """Whether one of its anchors occurs."""
        return any(anchor in (lowered if self.folded else text) for anchor in self.anchors)

    def _matches(self, text: str, lowered: str, known: str) -> Iterator[re.Match[str]]:
        """What the pattern matches in `text`, tried only near the anchors where they tell where a match begins."""
        if self._lead is None or len(text) != len(lowered):
            return self.pattern.finditer(text)
        seen = lowered if self.folded else text
        places = _places(seen, self.anchors, len(text) // (8 * self._lead + 32), known)
        if places is None:
            return self.pattern.finditer(text)
        return self._matches_at(text, places, self._lead)

    def _matches_at(self, text: str, places: Sequence[int], lead: int) -> Iterator[re.Match[str]]:
        start = 0
        for place in places:
            start = max(start, place - lead)
            while start <= place:
                if match := self.pattern.match(text, start):
                    yield match
                    start = match.end()  # a match holds its anchor, so it is not empty
                else:
                    start += 1

    def _is_near(self, lowered: str, start: int, end: int) -> bool:
        inside = (
            lowered[start:end] if self._check is _is_seed else "\n"
        )  # the words may stand among the words
        around = f"{lowered[max(0, start - self._within) : start]}{inside}{lowered[end : end + self._after]}"
        return any(word in around for word in self._near)


def _places(text: str, words: Iterable[str], most: int, known: str) -> list[int] | None:
    """Where one of `words` stands, in order; None where that is at more than `most` places. A long text is gone through
    for those alone that its words have or that are several.
    """
    found: set[int] = set()
    for word in words:
        at = text.find(word) if word in (known or text) or (known and " " in word) else -1
        while at >= 0:
            if not most:
                return None
            most -= 1
            found.add(at)
            at = text.find(word, at + 1)
    return sorted(found)


def _is_basic(value: str) -> bool:
    try:
        decoded = base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return b":" in decoded and decoded.isascii() and len(decoded) >= 5


def _is_luhn(value: str) -> bool:
    """Whether the digits of a card add up; one digit over and over is no card."""
    digits = [int(ch) for ch in value if ch.isdigit()]
    if len(set(digits)) < 2:
        return False
    doubled = [sum(divmod(2 * digit, 10)) for digit in digits[-2::-2]]
    return (sum(digits[::-2]) + sum(doubled)) % 10 == 0


def _is_iban(value: str) -> bool:
    bare = value.replace(" ", "")
    if len(bare) != _VALUES["iban"].get(bare[:2]):
        return False
    return int("".join(str(int(ch, 36)) for ch in bare[4:] + bare[:4])) % 97 == 1


def _is_cased(value: str) -> bool:
    """Whether a run has letters of both cases, many different ones, as no hash has."""
    return bool(_UPPER.search(value) and _LOWER.search(value)) and len(set(value)) >= 10


def _is_strong(value: str) -> bool:
    """Whether a word is what people make up when a form asks for a good password: no name, no number, no algorithm."""
    has = _LOWER.search(value) and (
        (_DIGIT.search(value) and (_UPPER.search(value) or _MARKS.search(value)))
        or (_UPPER.search(value) and _MARK_INSIDE.search(value))
    )
    return bool(has) and not any(one.now.match(value[:128]) for one in (_PLACEHOLDER, _REFERENCE, _ALGORITHM))


def _is_marked(value: str) -> bool:
    """The same with a sign in it that is neither letter nor digit."""
    return bool(_MARKS.search(value)) and _is_strong(value)


def _is_handmade(value: str) -> bool:
    """Whether a word is one a person made up with less care: small words and a number."""
    return bool(_HANDMADE.fullmatch(value)) or _is_strong(value)


def _is_made(value: str) -> bool:
    """Whether a word has signs of all four kinds, as hardly any word but a password has; an escape of an address is none."""
    marks = len(_MARKS.findall(value))
    return _kinds(value) == 4 and 1 <= marks <= 3 and not _IN_HEX.search(value) and _is_strong(value)


def _is_mixed(value: str) -> bool:
    """Whether a run looks drawn by lot: both cases, digits all over it, and no words as a name has."""
    return _turns(value) >= 3 and _is_drawn(value)


def _is_drawn(value: str) -> bool:
    """The same for what stands after a name that says it is a key: one digit is enough."""
    return (
        bool(_DIGIT.search(value))
        and _is_cased(value)
        and is_dense(value)
        and not _WORDS_INSIDE.now.search(value)
    )


def _turns(value: str) -> int:
    return sum(a.isdigit() != b.isdigit() for a, b in itertools.pairwise(value))


def _is_random(value: str) -> bool:
    """Whether small letters and digits look drawn by lot: many turns between the two, and nothing of a word."""
    return _turns(value) >= len(value) // 8 and is_dense(value) and not _WORDS_INSIDE.now.search(value)


def _is_seed(value: str) -> bool:
    words = re.findall(r"[a-z]+", value)
    return any(
        len(words) >= size and not _NO_SEED & set(words[:size]) and len(set(words[:size])) >= size - 3
        for size in (12, 15, 18, 21, 24)
    )


_CHECKS: Mapping[str, Callable[[str], bool]] = {
    "": bool,
    "basic": _is_basic,
    "luhn": _is_luhn,
    "iban": _is_iban,
    "cased": _is_cased,
    "mixed": _is_mixed,
    "drawn": _is_drawn,
    "random": _is_random,
    "strong": _is_strong,
    "made": _is_made,
    "handmade": _is_handmade,
    "marked": _is_marked,
    "hex": lambda value: _turns(value) >= len(value) // 8 and is_dense(value),
    "digits": lambda value: any(map(str.isdigit, value)),
    "seed": _is_seed,
}
_PLACEHELD = frozenset({"connection-string", "password", "netrc"})
_WORDS_INSIDE = Later(r"[a-z]{8}|(?:[A-Z][a-z]{2,8}){3}")
_DATA = tables_of(resources.files("cairn.governed").joinpath("credentials.toml"))
_VALUES: Mapping[str, Any] = _DATA["values"]
_PLACEHOLDER, _REFERENCE, _ALGORITHM, _ABOUT = (
    Later(_VALUES[name]) for name in ("placeholder", "reference", "algorithm", "about")
)
_NO_SEED = frozenset(_VALUES["no_seed"])
SHAPES: tuple[Shape, ...] = tuple(Shape(rule) for rule in _DATA["credential"])
_ORDER = {shape: n for n, shape in enumerate(SHAPES)}


_Anchors = dict[int, list[tuple[str, bool, list[Shape]]]]
_COMMON = b"qzxjkvbpygfwmucldrhsnioate "  # the last are the letters that texts have most of
_SINGLE = -1


def _anchors(shapes: Iterable[Shape], *, spaced: bool | None = None) -> _Anchors:
    """Every anchor (all, or those with a blank or without) once with its shapes, folded or not, under the two neighbours
    in it that are rarest: which pairs of bytes a text has is told once, and only the anchors of those are looked for. A
    single character is under `_SINGLE`.
    """
    by_anchor: dict[tuple[str, bool], list[Shape]] = {}
    for shape in shapes:
        for anchor in shape.anchors:
            if spaced is None or spaced == (anchor.split() != [anchor]):
                by_anchor.setdefault((anchor, shape.folded), []).append(shape)
    groups: _Anchors = {}
    for (anchor, folded), those in by_anchor.items():
        groups.setdefault(_place_of(anchor), []).append((anchor, folded, those))
    return groups


@cache
def _place_of(anchor: str) -> int:
    """The two neighbours in an anchor that are rarest, as `_pairs` has them."""
    letters = anchor.lower().encode()
    weights = list(map(_COMMON.find, letters))
    pairs = list(map(operator.add, weights, weights[1:]))
    if not pairs:
        return _SINGLE
    at = pairs.index(min(pairs))
    return int.from_bytes(letters[at : at + 2], sys.byteorder)


# Of shapes that are one long word with their anchor in it, of all, of those that may hold a blank: in words, across them.
_APART = frozenset(shape for shape in SHAPES if shape.is_solid and not shape.holds_anchor)
_ANCHORS_IN_WORDS = _anchors(shape for shape in SHAPES if shape.holds_anchor)
_ALL_ANCHORS = _anchors(SHAPES)
_ANCHORS, _SPACED_ANCHORS = (
    _anchors((shape for shape in SHAPES if not shape.is_solid), spaced=spaced) for spaced in (False, True)
)

# What may stand before the `=` or `:` of an assignment. The name may go on (`password_prod`, `tokenValue`), but
# not into another word (`passwordless`, `tokenizer`), nor into what is merely about a secret (`token_count`).
_WORDS: Mapping[str, Sequence[str]] = _DATA["words"]
_PASSWORD_WORDS = "|".join(word.replace(" ", r"[_ ]") for word in _WORDS["password"])
_TOKEN_WORDS = "|".join(_WORDS["token"])
_ASSIGN_ANCHORS: Sequence[str] = tuple(_WORDS["anchors"])
_NAME = Later(f"{_PASSWORD_WORDS}|{_TOKEN_WORDS}")
_NAME_LEAD, _NAME_CHARS = 16, 24  # characters before the anchor of a name, and of the longest name
_ASSIGNMENT = Later(
    rf"(?:(?P<pw>(?i:{_PASSWORD_WORDS}))|(?P<tok>(?i:{_TOKEN_WORDS})))"
    r"(?P<more>[_\-.][A-Za-z0-9_\-.]{0,40}|(?-i:[A-Z0-9])[A-Za-z0-9_]{0,40})?"
    r"[\"'`\]]{0,3}"
    r"(?P<op>,[ \t]{1,3}(?=[\"'])|[ \t]{0,4}(?:=>|:=|==?|:|：)[ \t]{0,4}(?:\n[ \t]{0,8})?"
    rf"|[ \t]{{0,2}}(?:{'|'.join(_WORDS['says_unspaced'])})[ \t]{{0,2}}"
    rf"|(?:[ \t]{{1,3}}(?:{'|'.join(_WORDS['for'])})[ \t]{{1,3}}[^\n.:;=,!?]{{1,40}}?)?"
    rf"(?:[ \t]{{1,3}}(?:{'|'.join(_WORDS['says'])}):?|'s|[ \t]{{0,3}}(?:->|→))[ \t]{{1,3}}(?:(?:now|set to)[ \t]{{1,3}})?)"
    rf"(?!(?i:{_PASSWORD_WORDS}|{_TOKEN_WORDS})[ \t]{{0,4}}[=:])"  # that is an assignment of its own
    r"(?:[bru]?(?P<q>[\"'`])(?P<quoted>[^\"'`\n]{3,400})(?P=q)|(?P<bare>[^\s\"'`,;)}\]]{4,400}))"
)
_WRITTEN = frozenset({"=>", ":=", "=", "==", ":", "："})
_HANDMADE = re.compile(r"[a-z]{3,12}(?:[-_.][a-z]{3,12}){0,3}[-_.]?\d{2,6}")
_IN_HEX = re.compile(r"%[2-7][0-9A-F]")
_MARKS = re.compile(r"[!@#$%^&*+?~=§€]")
_MARK_INSIDE = re.compile(r"(?<=[A-Za-z])[!#$%^*~](?=[A-Za-z])")  # as no word, name or address has
_ASCII_RUN = re.compile(r"[!-~]*")
_ESCAPED = re.compile(r"\\{1,15}[nrt\"']")
_DIGIT, _LOWER, _UPPER, _SIGN = map(re.compile, (r"\d", r"[a-zà-öø-ÿа-я]", r"[A-ZÀ-ÖØ-ÞА-Я]", r"[\W_]"))
_KEY_BEGINS = Later(r"-----BEGIN (?:[A-Z0-9 ]{0,30}PRIVATE KEY(?: BLOCK)?|OpenVPN Static key V\d)-----")
_KEY_LINES = Later(r"(?:\s{1,4}(?:[A-Za-z0-9+/=]{8,4000}|[A-Z][A-Za-z-]{2,30}: [^\n]{1,200})){0,400}")
_KEY_CHARS = 20_000
_RULE = Later(r"[ \t>]{0,8}\|?[ \t]{0,8}:?-{2,200}[-:| \t]{0,400}\r?\n?\Z")
_HEADING = Later(
    rf"[ \t*_`]{{0,8}}(?:[^\W\d_]{{1,20}}[ _-])?(?i:{_PASSWORD_WORDS}|{_TOKEN_WORDS})s?[ \t*_`\r\n]{{0,8}}"
)


# ---------------------------------------------------------------- looking


def redact(text: str) -> Redaction:
    """Cut every credential out of `text`, leaving `[redacted: kind]` where it stood.

    Pure and idempotent: redacting a redacted text changes nothing. Text about credentials ("rotate the API key
    every 90 days", `api_key = settings.api_key`, `password: <yours>`) stays as it is.

    >>> redact("nothing to hide").findings
    ()
    """
    lowered, words = text.lower(), _words(text)
    known = _known(words) if words else ""
    shapes = _present(text, lowered, words)
    spans = _look(text, lowered, shapes, known)
    if ("=" in text or ":" in text) and _BASE64.search(
        " ".join(_long(words)) if words else text
    ):  # one ends in it, or stands after a name
        spans += _look_inside(text)
    if "\\" in text or "%" in text or ("&" in text and ";" in text) or not text.isascii():
        spans += _look_behind(text, (_HIDING_ASCII if text.isascii() else _HIDING).now)
        if "%" in text and "\\" in text:  # a percent sign of a password is no escape
            spans += _look_behind(text, _HIDING_ASCII.now, but="p")
    if words or any(shape.may_be_broken for shape in shapes):
        spans += _look_behind(text, _BROKEN.now, is_broken=True)
    if not spans:
        return Redaction(text)
    findings = _apart(spans)
    parts, last = [], 0
    for found in findings:
        parts += [text[last : found.start], f"[redacted: {found.kind}]"]
        last = found.end
    return Redaction("".join((*parts, text[last:])), findings)


def _words(text: str) -> Sequence[str]:
    """The different words of a long text; none of a short one, which is looked at as it is."""
    return [] if len(text) < _LONG_TEXT else list(dict.fromkeys(text.split()))


def _known(words: Sequence[str]) -> str:
    """Each of `words` once as it is and once in small letters."""
    every = " ".join(words)
    return f"{every} {every.lower()}"


def _long(words: Iterable[str]) -> Iterable[str]:
    """Those in which a credential without a blank may stand."""
    return (word for word in words if word[_LONG_WORD - 1 :])


def _present(text: str, lowered: str, words: Sequence[str]) -> list[Shape]:
    """The shapes of which an anchor occurs, in their order; of a long text only those that may stand in its long words."""
    found: set[Shape] = set()
    if words:
        every, long = f" {' '.join(words)} ", " ".join(_long(words))
        every_lowered = every.lower()
        pairs = _pairs(every_lowered)
        _find_anchors(_ANCHORS, pairs, every, every_lowered, found)
        _find_anchors(_SPACED_ANCHORS, pairs, text, lowered, found)
        _find_anchors(_ANCHORS_IN_WORDS, pairs, long, long.lower(), found)
        found = {one for one in (*found, *_APART) if not one.is_solid or one.pattern.search(long)}
        found -= {one for one in found & _APART if not one.is_named(text, lowered)}
        found -= {one for one in found if one.is_word and not one.pattern.search(every)}
    else:
        _find_anchors(_ALL_ANCHORS, _pairs(lowered), text, lowered, found)
    return sorted(found, key=_ORDER.__getitem__) if found else []


def _pairs(text: str) -> set[int]:
    """Which two bytes stand beside each other in `text`, as numbers; and `_SINGLE`."""
    data = memoryview(text.encode("utf-8", "surrogatepass"))
    size = len(data)
    return {_SINGLE, *data[: size & -2].cast("H"), *data[1 : size - 1 | 1].cast("H")}


def _find_anchors(anchors: _Anchors, pairs: set[int], text: str, lowered: str, found: set[Shape]) -> None:
    for pair in anchors.keys() & pairs:
        for anchor, folded, shapes in anchors[pair]:
            if anchor in (lowered if folded else text):
                found.update(shapes)


def _look(
    text: str, lowered: str, shapes: Iterable[Shape], known: str = "", *, assigned: bool = True
) -> list[Credential]:
    spans = [one for shape in shapes for one in shape.find(text, lowered, known)] if shapes else []
    if "-----BEGIN" in text:
        spans += _private_keys(text)
    if "|" in text and "|-" in text.replace(" ", "").replace(":", ""):
        spans += _columns(text)
    for anchor in _ASSIGN_ANCHORS if assigned else ():
        if anchor in lowered:
            spans += _assignments(text, lowered, known)
            break
    return spans


def _columns(text: str) -> Iterator[Credential]:
    """What stands below a heading such as "password" in a table of Markdown."""
    place, wanted = 0, list[int]()
    for before, line in itertools.pairwise(["", *text.splitlines(keepends=True)]):
        if _RULE.now.match(line):
            wanted = [n for n, cell in enumerate(before.split("|")) if _HEADING.now.fullmatch(cell)]
        elif "|" not in line:
            wanted = []
        cells = line.split("|")
        for n in wanted if not _RULE.now.match(line) else ():
            value = cells[n].strip(" \t\r\n`*") if n < len(cells) else ""
            if value and " " not in value and (_is_strong(value) or (len(value) >= 16 and is_dense(value))):
                start = place + sum(len(cell) + 1 for cell in cells[:n]) + cells[n].index(value)
                yield Credential("password", start, start + len(value))
        place += len(line)


def _private_keys(text: str) -> Iterator[Credential]:
    """Keys between their marks; one that is cut off goes as far as its lines do."""
    last, ends = 0, True
    for match in _KEY_BEGINS.now.finditer(text):
        if match.start() < last:
            continue
        ends = ends and (end := text.find("-----END", match.end())) >= 0
        if ends and end - match.end() <= _KEY_CHARS:
            closing = text.find("-----", end + 8)
            last = closing + 5 if 0 <= closing <= end + 60 else end + 8
        else:
            lines = _KEY_LINES.now.match(text, match.end(), match.end() + _KEY_CHARS)
            last = lines.end() if lines else match.end()
            if last == match.end():
                continue
        yield Credential("private-key", match.start(), last)


# What hides a credential, and what stands there for a reader: escapes (of escapes), bytes of an address in hex,
# quotes in HTML, blanks that are none, letters of another script among Latin ones, invisible characters.
_HIDING_ASCII = Later(
    r"&(?:(?P<h>quot|apos)|#(?P<d>\d{2,3})|#[xX](?P<x>[0-9a-fA-F]{2}));"
    r"|\\\\{0,14}(?:u(?P<u>[0-9a-fA-F]{4})|x(?P<y>[0-9a-fA-F]{2})|(?P<c>[nrtbf\"'/]))|%(?:25){0,2}(?P<p>[0-9a-fA-F]{2})"
)
_HIDING = Later(
    _HIDING_ASCII.written + r"|(?P<s>[\u00a0\u2000-\u200a\u202f\u3000])"
    r"|(?<=[A-Za-z])(?P<l>[аеорсухі])|(?P<f>[аеорсухі])(?=[A-Za-z])|(?P<w>[\uff01-\uff5e])"
    r"|[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]+"
)
# What breaks one in two: a line's end, or a string literal that goes on in the next. Each way begins with a character of
# its own, and what stands before that is looked at after it: the places where none of them stands cost next to nothing.
_GOES_ON = "[A-Za-z0-9_+/=-]"
_BREAKS = {"=": r"\r?\n", "\\\\": r"\r?\n[ \t>]{0,8}", r"\r": r"\n[ \t>]{0,8}", r"\n": r"[ \t>]{0,8}"} | {
    quote: rf"[ \t]{{0,4}}[+.&]?[ \t]{{0,4}}(?:\r?\n)?[ \t]{{0,16}}{quote}" for quote in "\"'"
}
_BROKEN = Later(
    f"(?:{'|'.join(f'{one}(?<={_GOES_ON}{one}){rest}' for one, rest in _BREAKS.items())})(?={_GOES_ON})"
)
_BASE64 = re.compile(
    r"(?<![A-Za-z0-9+/])(?:[A-Za-z0-9+/]{4}){6,1000}(?:[A-Za-z0-9+/]{2,3}={0,2})?(?![A-Za-z0-9+/])"
)
_HEX = re.compile(r"(?:[0-9a-f]{2})+|(?:[0-9A-F]{2})+")
_MOST_WRAPS = 3  # base64 of base64 of base64
_LOOKS = dict(zip("аеорсухі", "aeopcyxi", strict=True))
_CONTROL = {"n": "\n", "r": "\r", "t": "\t", "b": " ", "f": " "}


def _look_inside(text: str) -> list[Credential]:
    """Runs of base64 or hex that hold a credential, as a secret of Kubernetes does: the whole run is one."""
    found = []
    for run in _BASE64.finditer(text):
        inner = run[0]
        for _ in range(_MOST_WRAPS):
            inner = _unwrapped(inner)
            lowered = inner.lower()
            if held := _look(inner, lowered, _present(inner, lowered, ())):
                found.append(Credential(held[0].kind, run.start(), run.end()))
                break
            if not _BASE64.fullmatch(inner):
                break
    return found


def _unwrapped(run: str) -> str:
    """What a run of hex or base64 says, where that is plain text; else nothing."""
    try:
        data = bytes.fromhex(run) if _HEX.fullmatch(run) else base64.b64decode(run + "=" * (-len(run) % 4))
        inner = data.decode("ascii")
    except (binascii.Error, ValueError):
        return ""
    return inner if inner.replace("\n", "").isprintable() else ""


def _look_behind(
    text: str, hiding: re.Pattern[str], *, is_broken: bool = False, but: str = ""
) -> list[Credential]:
    """The findings in `text` as it reads without what hides them, at their places in the text as it stands."""
    parts: list[str] = []
    starts: list[int] = []  # where in the shown text a piece begins, and where in the given one
    origins: list[int] = []
    shown = last = 0
    for match in hiding.finditer(text):
        if but and match[but]:
            continue
        for piece, origin in ((text[last : match.start()], last), (_shown(match), match.start())):
            if piece:
                parts.append(piece)
                starts.append(shown)
                origins.append(origin)
                shown += len(piece)
        last = match.end()
    if not last:
        return []
    parts.append(text[last:])
    starts.append(shown)
    origins.append(last)

    def place(at: int) -> int:
        piece = bisect_right(starts, at) - 1
        return origins[piece] + at - starts[piece]

    whole = "".join(parts)
    lowered = whole.lower()
    words = _words(whole)
    shapes = _present(whole, lowered, words)
    if is_broken:
        shapes = [shape for shape in shapes if shape.may_be_broken]
    found = _look(whole, lowered, shapes, _known(words) if words else "", assigned=not is_broken)
    return [Credential(one.kind, place(one.start), place(one.end - 1) + 1) for one in found]


def _shown(match: re.Match[str]) -> str:
    groups = match.re.groupindex
    if "u" not in groups:
        return ""
    if code := match["u"] or match["p"] or match["x"] or match["y"]:
        return _printed(int(code, 16))
    if code := match["d"]:
        return _printed(int(code))
    if match["h"]:
        return '"'
    if letter := match["c"]:
        return _CONTROL.get(letter, letter)
    if "s" not in groups:
        return ""
    if match["s"]:
        return " "
    if letter := match["l"] or match["f"]:
        return _LOOKS[letter]
    if wide := match["w"]:
        return chr(ord(wide) - 0xFEE0)
    return ""


def _printed(code: int) -> str:
    return letter if (letter := chr(code)).isprintable() else " "


def _assignments(text: str, lowered: str, known: str) -> list[Credential]:
    if len(lowered) != len(text):  # a few letters change length with their case; only such names matter here
        lowered = "".join(low if len(low := ch.lower()) == 1 else ch for ch in text)
    out = []
    at = 0
    for name in _names(lowered, known):
        if name < at:
            continue
        match = _ASSIGNMENT.now.match(text, name)
        if match is None:
            continue
        is_password = match["pw"] is not None
        start, end = _value(match)
        if _ABOUT.now.search(match["more"] or "") or not _is_value(
            match, text[start:end], is_password=is_password
        ):
            # The value may itself be the name of the next assignment (`secret: token=...`).
            at = match.start("op")
            continue
        out.append(Credential("password" if is_password else "secret", start, end))
        at = end
    return out


def _names(lowered: str, known: str) -> Iterator[int]:
    """Where a name begins that may be assigned to, in order: each has an anchor among its first characters."""
    places = _places(lowered, _ASSIGN_ANCHORS, len(lowered) // 64, known)
    around = [(place - _NAME_LEAD, place + _NAME_CHARS) for place in places or ()]
    start = 0
    for first, end in around if places is not None else [(0, len(lowered))]:
        start = max(start, first)
        while name := _NAME.now.search(lowered, start, end):
            yield name.start()
            start = name.start() + 1


def _value(match: re.Match[str]) -> tuple[int, int]:
    """Where the value of an assignment stands."""
    if match["quoted"] is not None:
        return match.span("quoted")
    start, value = match.start("bare"), match["bare"]
    if match["op"].strip() in _WORDS["says_unspaced"] or not value.isascii():
        value = cast("re.Match[str]", _ASCII_RUN.match(value))[0]
    value = _ESCAPED.split(value, maxsplit=1)[0]  # a string in JSON goes on after `\\n`, a line does not
    if match["op"] == "=" and match.string[: match.start()].endswith(("?", "&")):
        value = value.partition("&")[0]
    return start, start + len(value.rstrip(".:!?\\"))


def _is_value(match: re.Match[str], given: str, *, is_password: bool) -> bool:
    value = given.strip().rstrip(".:!?")
    is_quoted = match["quoted"] is not None
    if match["op"].startswith(","):  # two words of a list: only what was drawn by lot is the other's value
        is_drawn = bool(_DIGIT.search(value)) and is_dense(value)
        return not is_password and len(value) >= 16 and " " not in value and is_drawn
    spoken = match["op"].strip(" \t\n") not in _WRITTEN
    has_digit = _DIGIT.search(value) is not None
    kinds = _kinds(value)
    if is_password and not (is_quoted or has_digit or kinds >= 3):
        return _is_bare_word(match, value, spoken=spoken)
    if not is_password and (len(value) < (16 if spoken else 10) or kinds < 2):
        return spoken and len(value) >= 10 and bool(_MARKS.search(value)) and _is_strong(value)
    head = value[:128]
    is_named = _REFERENCE.now.match(head) and not _has_drawn(head) and not (is_password and is_quoted)
    if _PLACEHOLDER.now.match(head) or is_named:
        return is_password and _is_bare_word(match, value, spoken=spoken)
    if " " in value and is_quoted and not (is_password and has_digit):
        return False
    if not is_password:
        return is_dense(value)
    if spoken:
        made = (kinds >= 2 and has_digit) or (kinds >= 3 and _MARK_INSIDE.search(value) is not None)
        return len(value) >= 6 and made and value.isascii()
    return (
        (len(value) >= 4 and kinds >= 2 and (has_digit or kinds >= 3))
        or (is_quoted and len(value) >= 4 and " " not in value)
        or _is_bare_word(match, value, spoken=spoken)
    )


def _kinds(value: str) -> int:
    bare = value.strip("-_.()")
    return sum(map(bool, (one.search(bare) for one in (_DIGIT, _LOWER, _UPPER, _SIGN))))


def _is_bare_word(match: re.Match[str], value: str, *, spoken: bool) -> bool:
    """Whether a plain word is a password: `PASSWORD=swordfish` in a settings line, nothing after it."""
    if (
        spoken
        or match["bare"] is None
        or not value.isalnum()
        or len(value) < 6
        or _PLACEHOLDER.now.match(value[:128])
    ):
        return False
    rest = match.string[match.end() : match.end() + 1]
    return match["op"] == "=" and rest in {"", "\n", "\r", " ", "&", ";", "'", '"'}


def is_dense(value: str) -> bool:
    """Whether `value` is as uneven as random characters: letters and digits, many different ones, no words."""
    body = value[:400].strip("\"'`")
    if len(body) < 8:
        return False
    upper, lower = _UPPER.search(body), _LOWER.search(body)
    if not (upper or lower) or not (_DIGIT.search(body) or (upper and lower and len(body) >= 20)):
        return False
    if _PLACEHOLDER.now.match(body) or (
        _REFERENCE.now.match(body) and len(body) < 40 and not _has_drawn(body)
    ):
        return False
    counts = Counter(body)
    entropy = -sum(n / len(body) * math.log2(n / len(body)) for n in counts.values())
    return entropy >= (2.6 if len(body) < 16 else 3.0)


def _has_drawn(value: str) -> bool:
    """Whether a part of a dotted name was drawn by lot: `s.` and 24 characters are a token, no attribute."""
    _, dot, last = value.rpartition(".")
    return bool(dot) and len(last) >= 16 and _turns(last) >= 3 and _is_drawn(last)


def _apart(spans: list[Credential]) -> tuple[Credential, ...]:
    """The findings in order, overlaps joined; the more specific kind (listed first) names the joint one."""
    out: list[Credential] = []
    for found in sorted(spans, key=lambda span: (span.start, -span.end)):
        if out and found.start < out[-1].end:
            last = out[-1]
            kind = last.kind if last.kind not in {"secret", "password"} else found.kind
            out[-1] = Credential(kind, last.start, max(last.end, found.end))
        else:
            out.append(found)
    return tuple(out)
