"""The text that is embedded, which is not quite the text that is shown.

A vector of "Wow, Caroline, that is great" lies near every question about Caroline and far from what she did.
So the names of those who talk are taken out of what they say, and a question that names one of them is asked
in their own voice ("When did Caroline move?" becomes "When did I move?"), by the words its language has for that
(`language/data/<code>.toml`, `[asking.voice]`). Only names of speakers at hand are touched; words that merely stand for
a role (`roles` of `[words]`) are not names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache

from cairn.budget import kept
from cairn.language import tongues, words

_BLANKS = re.compile(r"\s+")
_BEFORE_MARK = re.compile(r"\s+([?.!,])")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
MAX_EMBEDDED_CHARS = 8000


@kept("names of speakers", 2 * 1024 * 1024)
def spoken_names(senders: tuple[tuple[str, str | None], ...]) -> tuple[str, ...]:
    """The names by which these senders (id, name) may be addressed, longest first.

    The full name and its first word; an id counts only where it reads like a name ("maria", not "u_17").
    """
    names: set[str] = set()
    for identity, shown in senders:
        name = (shown or identity).strip()
        first = re.split(r"[\s,]+", name)[0] if name else ""
        for candidate in (name, first):
            readable = candidate.replace(" ", "").replace("-", "").isalpha()
            long_enough = len(candidate) > (2 if candidate.isascii() else 1)
            if readable and long_enough and candidate.casefold() not in tongues.every_word("words", "roles"):
                names.add(candidate if not candidate.islower() else candidate.title())
    return tuple(sorted(names, key=lambda n: (-len(n), n)))


@lru_cache(maxsize=1024)
def _pattern(names: tuple[str, ...]) -> re.Pattern[str]:
    forms = set(names)
    for name in names:
        if name.isascii() and " " not in name:
            # People are called by the first letters of their names: Mel, Caro, Jo(hn) is too short.
            forms.update(name[:size] for size in range(3, len(name)))
    joined = "|".join(sorted(map(re.escape, forms), key=len, reverse=True))
    owned = tongues.choice(tongues.every_word("words", "hung"))
    return re.compile(rf"(?:,\s*)?\b(?:{joined})\b(['’]{owned})?")


def message_text(text: str, names: Iterable[str]) -> str:
    """What is embedded for a message said among people of these names."""
    text = text[:MAX_EMBEDDED_CHARS]
    chosen = tuple(names)
    if not chosen:
        return text
    return _tidy(_pattern(chosen).sub("", text)) or text


def searched_words(kind: str, text: str, sender_id: str = "", sender_name: str | None = None) -> list[str]:
    """The tokens a row is found by: its text and, for a message, the name of who said it.

    Where many people talk, "what did Priya say about the release" is answered by her name beside her words.
    """
    names = spoken_names(((sender_id, sender_name),)) if kind in {"message", "passage"} else ()
    return words.tokens(f"{names[0]} {text}" if names else text)


def question_text(query: str, names: Iterable[str]) -> str:
    """The query in the voice of whom it names; unchanged where it names none of `names`, or its language says nothing."""
    query = query[:MAX_EMBEDDED_CHARS]
    chosen = tuple(names)
    voice = tongues.spoken_in(query).table("asking").get("voice")
    if not chosen or not voice:
        return query
    if "of" in voice:
        forms = "|".join(map(re.escape, chosen))
        changed = re.sub(rf"(?:{forms})({voice['of']})?", lambda m: voice["my" if m.group(1) else "i"], query)
    else:
        changed = _pattern(chosen).sub(lambda m: f" {voice['my' if m.group(1) else 'i']}", query)
    if changed == query:
        return query
    changed = _tidy(changed)
    for said, meant in voice.get("agrees", {}).items():
        changed = re.sub(rf"\b{said}\b", meant, changed, flags=re.IGNORECASE)
    return changed


def names_any(query: str, forms: Iterable[str]) -> bool:
    """Whether a query names somebody by one of these forms; where words stand without blanks, anywhere in it."""
    return any(
        form in query
        if _UNSPACED.search(form)
        else re.search(rf"\b{re.escape(form)}\b", query, re.IGNORECASE)
        for form in forms
    )


def _tidy(text: str) -> str:
    return _BEFORE_MARK.sub(r"\1", _BLANKS.sub(" ", text)).strip()
