"""What Cairn knows of a language, read from one file each: `language/data/<code>.toml`.

The files hold words and patterns, the code holds what is done with them. A speaker adds a language by adding a
file; docs/strategies.md says what stands in it. A pattern is a regular expression made easy to read (`widened`), and a
list of patterns is any of them. Names in braces stand for the words the same file lists under `lists` ({people}), the
`phrases` it has made of them, and in dates for the calendar ({weekday}, {count}).
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any

from cairn.budget import kept
from cairn.shipped import tables_of

DEFAULT = "en"
_LETTERS = re.compile(r"[^\W\d_]+")
_KEPT = 400
_BY_ENDING = 0.3
_BLANK = re.compile(" [?*+]?")
_BREAK = re.compile(r"\n\s*")
_GROUP = re.compile(r"(?<!\\)\((?!\?)")
_NAME = re.compile(r"\{([a-z_]+)\}")
_ESCAPED = re.compile(r"\\.")
_FIXED = re.compile(r"(\[[^\]]*\]|\(\?<[!=][^)]*\))")


@dataclass(frozen=True, eq=False, slots=True)
class Tongue:
    """One language: its code, words, letters and endings that show it is spoken, and the tables of its file."""

    code: str
    common: frozenset[str]
    letters: str
    endings: tuple[str, ...]
    script: re.Pattern[str] | None
    priority: int
    has_blanks: bool
    tables: Mapping[str, Any]

    def table(self, name: str) -> Mapping[str, Any]:
        """A table of the file; empty where the language has none."""
        found: Mapping[str, Any] = self.tables.get(name, {})
        return found


@functools.cache
def known() -> Mapping[str, Tongue]:
    """Every language there is a file for, by its code."""
    found = {}
    for file in sorted(resources.files("cairn.language").joinpath("data").iterdir(), key=lambda f: f.name):
        if file.name.endswith(".toml"):
            composed = _composed(tables_of(file))
            found[file.name.removesuffix(".toml")] = _tongue(file.name.removesuffix(".toml"), composed)
    return found


def _tongue(code: str, tables: Mapping[str, Any]) -> Tongue:
    about = tables["language"]
    script = re.compile(about["script"]) if "script" in about else None
    return Tongue(
        code,
        frozenset(about.get("common", "").split())
        | _little_words(tables)
        | _calendar_words(tables.get("dates", {})),
        about.get("letters", ""),
        tuple(str(about.get("endings", "")).split()),
        script,
        about.get("priority", 0),
        about.get("has_blanks", True),
        tables,
    )


def _composed(tables: Mapping[str, Any]) -> Mapping[str, Any]:
    """The tables with what they name in braces put in: a list as any of its words, a phrase as it stands."""
    names: dict[str, str] = {}
    for name, said in tables.get("lists", {}).items():
        words = str(_filled(said, names)).replace("*", r"\w*").split()
        names[name] = f"({'|'.join(words).replace('_', ' ')})"
    for name, said in tables.get("phrases", {}).items():
        names[name] = str(_filled(said, names))
    filled: Mapping[str, Any] = _filled(tables, names)
    return filled


def _filled(said: Any, names: Mapping[str, str]) -> Any:
    if isinstance(said, str):
        return _NAME.sub(lambda found: names.get(found[1], found[0]), said)
    if isinstance(said, list):
        return [_filled(one, names) for one in said]
    return {key: _filled(one, names) for key, one in said.items()} if isinstance(said, dict) else said


def _little_words(tables: Mapping[str, Any]) -> frozenset[str]:
    """The words a language calls little or empty, where its file lists them."""
    talk, asking = tables.get("talk", {}), tables.get("asking", {})
    said = f"{talk.get('stop', '')} {talk.get('empty', '')} {asking.get('fillers', '')}"
    return frozenset(word for word in _LETTERS.findall(said) if len(word) > 1)


_INFLECTED = ("", "s", "e", "n", "en", "es")


def _wish_words(table: Mapping[str, Any]) -> frozenset[str]:
    """What people say of the manner of answers, as far as it is listed word by word."""
    said = " ".join(str(table.get(name, "")) for name in ("things", "topics", "ways")).split()
    ended = [
        word.removesuffix("*") + end
        for word in said
        for end in _INFLECTED[: len(_INFLECTED) if word.endswith("*") else 1]
    ]
    return frozenset(word for word in ended if len(word) > 2 and word.isalpha())


def _calendar_words(table: Mapping[str, Any]) -> frozenset[str]:
    """The names of days and months, and the words of "yesterday" and its like: they show a language as well."""
    names = [*table.get("weekdays", ()), *table.get("months", ()), *table.get("hints", ())]
    said = " ".join([*names, *table.get("fixed", {})]).lower().replace("/", " ")
    return frozenset(word for word in _LETTERS.findall(said) if len(word) > 2)


@functools.cache
def _by_script() -> tuple[Tongue, ...]:
    return tuple(sorted((t for t in known().values() if t.script), key=lambda t: -t.priority))


@functools.cache
def _votes() -> Mapping[str, tuple[tuple[str, float], ...]]:
    """For each everyday word the languages that have it; a word of several tells less."""
    having: dict[str, list[str]] = {}
    for tongue in known().values():
        for word in tongue.common | _wish_words(tongue.table("wishes")):
            having.setdefault(word, []).append(tongue.code)
    return {word: tuple((code, 1 / len(codes)) for code in codes) for word, codes in having.items()}


@functools.cache
def _lettered() -> Mapping[str, tuple[str, ...]]:
    """For each letter that few languages have, those that do."""
    return {
        letter: tuple(t.code for t in known().values() if letter in t.letters)
        for letter in set("".join(t.letters for t in known().values()))
    }


@functools.cache
def _endings() -> tuple[tuple[tuple[str, float], tuple[str, ...]], ...]:
    """What the ending of a word that no language lists says for a language, and those endings."""
    return tuple(((t.code, _BY_ENDING), t.endings) for t in known().values() if t.endings)


@kept("languages of sentences", 4 * 1024 * 1024)
def spoken_in(sentence: str) -> Tongue:
    """The language of a sentence: by its script, else by the most of its everyday words; English in doubt."""
    if not sentence.isascii():
        for tongue in _by_script():
            if tongue.script and tongue.script.search(sentence):
                return tongue
    votes, endings = _votes(), _endings()
    counts: dict[str, float] = {DEFAULT: 0.0}
    for word in _LETTERS.findall(sentence[:_KEPT].lower()):
        for code, weight in votes.get(word) or [vote for vote, ends in endings if word.endswith(ends)]:
            counts[code] = counts.get(code, 0.0) + weight
    if not sentence.isascii():
        for letter in set(sentence[:_KEPT].lower()):
            for code in _lettered().get(letter, ()):
                counts[code] = counts.get(code, 0.0) + 1.0
    # Letters that English does not have speak against it where the words tell nothing.
    is_plain = sentence.isascii()
    return known()[max(counts, key=lambda code: (counts[code], (code == DEFAULT) is is_plain))]


def shows(text: str, code: str) -> bool:
    """Whether half of a text's words are everyday words of a language, and of no other more.

    >>> shows("Do I have any allergies?", "en"), shows("Gdzie mieszka Ala?", "en")
    (True, False)
    """
    said = _LETTERS.findall(text[:_KEPT].lower())
    common = known()[code].common if code in known() else frozenset()
    return 2 * sum(word in common for word in said) >= len(said) > 0 and spoken_in(text).code == code


@functools.cache
def every_word(table: str, name: str) -> frozenset[str]:
    """The words that any language lists under a name of a table."""
    return frozenset(
        word for tongue in known().values() for word in str(tongue.table(table).get(name, "")).split()
    )


@functools.cache
def every_value(table: str, name: str) -> tuple[str, ...]:
    """What each language that has it says under a name of a table, as it stands there."""
    return tuple(str(found) for tongue in known().values() if (found := tongue.table(table).get(name)))


@functools.cache
def every_body(table: str, name: str) -> str:
    """The patterns that any language has under a name of a table, as one body for a pattern, held to whole words."""
    apart: list[str] = []
    running: list[str] = []
    for tongue in known().values():
        said = tongue.table(table).get(name)
        if said:
            (apart if tongue.has_blanks else running).append(widened(either(said)))
    whole = [rf"(?<!\w)(?:{'|'.join(apart)})(?!\w)"] if apart else []
    return "|".join([*whole, *(f"(?:{one})" for one in running)]) or "(?!)"


@functools.cache
def every_pattern(table: str, name: str) -> re.Pattern[str]:
    """What any language has under a name of a table, as one pattern."""
    return re.compile(every_body(table, name), re.IGNORECASE)


@functools.cache
def every_small_pattern(table: str, name: str) -> re.Pattern[str]:
    """`every_pattern` for a text that is in small letters already: several times faster, as no letter has two forms.

    Where a language writes capitals of its own into a pattern, both forms are looked for all the same.
    """
    body = every_body(table, name)
    has_capitals = any(letter.isupper() for letter in _ESCAPED.sub("", body))
    return re.compile(body, re.IGNORECASE if has_capitals else 0)


def compiled(
    patterns: Iterable[str], tongue: Tongue, names: Mapping[str, str] | None = None
) -> re.Pattern[str]:
    """One pattern of several: names in braces filled in, blanks widened, and held to whole words."""
    bodies = []
    for pattern in patterns:
        for name, words in (names or {}).items():
            pattern = pattern.replace("{" + name + "}", words)
        bodies.append(widened(pattern))
    if not bodies:
        return re.compile(r"(?!)")
    body = "|".join(bodies)
    return re.compile(rf"(?<!\w)(?:{body})(?!\w)" if tongue.has_blanks else f"(?:{body})", re.IGNORECASE)


def either(said: str | Sequence[str]) -> str:
    """One pattern for one or a list of them; what nothing matches where there are none."""
    return said if isinstance(said, str) else "|".join(said) or "(?!)"


def widened(pattern: str) -> str:
    """A pattern as it is written in a file, as a regular expression.

    A blank stands for any white space, an apostrophe for either form of it, a group captures nothing, and a line's
    break stands for nothing, all of it but in character classes and look-behinds.

    >>> re.fullmatch(widened("I don't (eat|drink)"), "I don't  eat").groups()
    ()
    """
    parts = _FIXED.split(_BREAK.sub("", pattern))
    return "".join(part if at % 2 else _widen(part) for at, part in enumerate(parts))


def _widen(part: str) -> str:
    part = _GROUP.sub("(?:", part).replace("'", "['’]")
    return _BLANK.sub(lambda blank: r"\s*" if blank[0][1:] in {"?", "*"} else r"\s+", part)


def choice(words: Iterable[str]) -> str:
    """An alternation of plain words, the longest first, so that none hides another."""
    body = "|".join(
        re.escape(word).replace(r"\ ", r"\s+") for word in sorted(words, key=lambda w: (-len(w), w))
    )
    return f"(?:{body})" if body else "(?!)"
