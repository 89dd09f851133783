"""Makes the text that is embedded from the text that is shown: without speakers' names, for example.

A vector of "Wow, Caroline, that is great" lies near every question about Caroline and far from what she did.
So the names of those who talk are taken out of what they say, and a question that names one of them is asked
in their own voice ("When did Caroline move?" becomes "When did I move?"), by the words its language has for that
(`language/data/<code>.toml`, `[asking.voice]`). Only names of speakers at hand are touched; words that merely stand for
a role (`roles` of `[words]`) are not names.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from cairn.budget import kept
from cairn.language import tongues, words
from cairn.language.later import Later

_BEFORE_MARK = re.compile(r" ([?.!,])")
_UNSPACED = Later(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0e7f]")
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
    return re.compile(rf"(?:,\s*)?\b({joined})\b(['’]{owned})?")


def message_text(text: str, names: Iterable[str]) -> str:
    """What is embedded for a message said among people of these names."""
    text = text[:MAX_EMBEDDED_CHARS]
    chosen = tuple(names)
    if not chosen:
        return text
    return _tidy(_pattern(chosen).sub("", text)) or text


def spoken_name(kind: str, sender_id: str = "", sender_name: str | None = None) -> str:
    """The name that a row is found by beside its words: of a message, who said it; "" for none.

    Where many people talk, "what did Priya say about the release" is answered by her name beside her words.
    """
    names = spoken_names(((sender_id, sender_name),)) if kind in {"message", "passage"} else ()
    return names[0] if names else ""


def searched_words(kind: str, text: str, sender_id: str = "", sender_name: str | None = None) -> list[str]:
    """The tokens a row is found by: its text and, for a message, the name of who said it."""
    return words.tokens(f"{spoken_name(kind, sender_id, sender_name)} {text}")


def question_text(query: str, names: Iterable[str]) -> str:
    """The query in the voice of whom it is about; unchanged where it names none of `names`, or its language says nothing.

    Others it names are spoken to, and several at once say "we": "What does Ann think of Ben's plan?" becomes "What do I
    think of your plan?".
    """
    query = query[:MAX_EMBEDDED_CHARS]
    chosen = tuple(names)
    voice = _voice(query)
    if not chosen or not voice:
        return query
    about = about_whom(query, chosen)
    if not about:
        return query
    own = ("we", "our") if len(about) > 1 and "we" in voice else ("i", "my")
    other = ("you", "your") if "you" in voice else own

    def said(found: re.Match[str]) -> str:
        return str(voice[(own if _person(found[1], chosen) in about else other)[found[2] is not None]])

    gap = "" if "of" in voice else " "
    changed = _tidy(_naming(chosen, voice).sub(lambda found: gap + said(found), query))
    for words_said, meant in voice.get("agrees", {}).items():
        changed = re.sub(rf"\b{words_said}\b", meant, changed, flags=re.IGNORECASE)
    return changed


def about_whom(query: str, names: Iterable[str]) -> tuple[str, ...]:
    """Whom of these a question is about, by the first word of their name: the one it names first as acting, or all it joins.

    >>> about_whom("What does Ann think of Ben's plan?", ["Ann", "Ben"]), about_whom("Did Ann and Ben go?", ["Ann", "Ben"])
    (('Ann',), ('Ann', 'Ben'))
    """
    chosen, voice = tuple(names), _voice(query)
    found = list(_naming(chosen, voice).finditer(query)) if chosen else []
    people = tuple(dict.fromkeys(_person(mention[1], chosen) for mention in found))
    joint = voice.get("and")
    if len(people) < 2 or not joint:
        return people
    for one, next_one in itertools.pairwise(found):
        if re.fullmatch(rf"\s*,?\s*(?:{joint})\s*", query[one.end() : next_one.start()], re.IGNORECASE):
            return people
    acting = next((mention for mention in found if mention[2] is None), found[0])
    return (_person(acting[1], chosen),)


def _voice(query: str) -> Mapping[str, Any]:
    voice: Mapping[str, Any] = tongues.spoken_in(query).table("asking").get("voice", {})
    return voice


def _naming(names: tuple[str, ...], voice: Mapping[str, Any]) -> re.Pattern[str]:
    """Finds these names (first group) and whether something is said to be theirs (second group)."""
    if "of" in voice:
        return re.compile(rf"({'|'.join(map(re.escape, names))})({voice['of']})?")
    return _pattern(names)


def _person(form: str, names: Iterable[str]) -> str:
    return next((name for name in names if name.startswith(form)), form).split()[0]


def names_any(query: str, forms: Iterable[str]) -> bool:
    """Whether a query names somebody by one of these forms; where words stand without blanks, anywhere in it."""
    return any(
        form in query
        if _UNSPACED.now.search(form)
        else re.search(rf"\b{re.escape(form)}\b", query, re.IGNORECASE)
        for form in forms
    )


def _tidy(text: str) -> str:
    return _BEFORE_MARK.sub(r"\1", " ".join(text.split()))
