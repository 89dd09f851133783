"""Which of a person's sentences say something, and what they need to stand alone.

The words are in `language/data/<code>.toml`, table `talk`; here is what is done with them. All of it is judged from
the words alone, so it errs towards leaving a sentence out: what is not kept as a fact is still in the message.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from cairn.language import tongues, wishes, words
from cairn.language.tongues import Tongue

_NUMBER = re.compile(r"\d")
_WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*(?:-[^\W_]+)*|\s+|.", re.DOTALL)
_IDENTIFIER = re.compile(r"[a-z][A-Z]|\w[_/]\w|\w\.\w|`")
_CAPITAL = re.compile(r"(?<=[\w,;] )[A-ZÀ-ÞА-Я][\w’'-]+")
_MARKED = re.compile(
    # Each run is tried from its beginning alone: from each of its places it took the square of a long one.
    r"((?<![一-龯々])[一-龯々]+|(?<![ァ-ヶー])[ァ-ヶー]{2,}|(?<![A-Za-z\d])[A-Za-z\d]+[年月日歳人]?|子ども|うち)"
    r"(?=[がはをにでともへの]|から|まで|して(?:い)?(?:ます|る))"
)
_OPENING = re.compile(r"^|[,;，、；] ?")
_LATIN = re.compile(r"[A-Za-z\d]")
# What somebody else said, word for word: He wrote: "I always ...".
_SPEECH = re.compile(r"[,:：，] ?[\"“„«「『]([^\"”“»」』]{4,})")


class Phrases:
    """What one language calls small talk, a hedge, a request, an assistant's result; and its little words.

    What is declared below is read from the table by its name and its type.
    """

    def __init__(self, tongue: Tongue) -> None:
        table = tongue.table("talk")
        self.tongue, self.has_blanks = tongue, tongue.has_blanks
        self.is_full = "stop" in table
        self.leads = tuple(re.compile("^" + tongues.widened(p), re.I) for p in table.get("leads", ()))
        for name, kind in Phrases.__annotations__.items():
            setattr(self, name, _READ_AS[kind](table, name))
        self.third = re.compile(str(table.get("third", "(?!)")))
        calendar = tongue.table("dates")
        days = (*calendar.get("weekdays", ()), *calendar.get("months", ()), *calendar.get("fixed", {}))
        named = rf"{tongues.choice('/'.join(days).split('/'))}s?"
        self.dated = tongues.compiled([named] if days else [], tongue)
        self.least = int(table.get("least", 4))
        self.not_names = frozenset(str(tongue.table("names").get("not_names", "")).split())

    first: re.Pattern[str]
    we: re.Pattern[str]
    second: re.Pattern[str]
    question: re.Pattern[str]
    expletive: re.Pattern[str]
    yes_no: re.Pattern[str]
    yes: re.Pattern[str]
    no: re.Pattern[str]
    asked_for: re.Pattern[str]
    evasive: re.Pattern[str]
    resumed: re.Pattern[str]
    pointed_at: re.Pattern[str]
    next_move: re.Pattern[str]
    filler: re.Pattern[str]
    frames: re.Pattern[str]
    beside_frame: re.Pattern[str]
    events: re.Pattern[str]
    general: re.Pattern[str]
    torn: re.Pattern[str]
    speech: re.Pattern[str]
    handed: re.Pattern[str]
    reported: re.Pattern[str]
    life: re.Pattern[str]
    possessive: re.Pattern[str]
    tasks: re.Pattern[str]
    selves: re.Pattern[str]
    agreed: re.Pattern[str]
    small_talk: re.Pattern[str]
    hedged: re.Pattern[str]
    imperative: re.Pattern[str]
    request: re.Pattern[str]
    elliptic: re.Pattern[str]
    offers: re.Pattern[str]
    result: re.Pattern[str]
    binding: re.Pattern[str]
    omitted: re.Pattern[str]
    unreal: re.Pattern[str]
    playing: re.Pattern[str]
    worth: re.Pattern[str]
    ruling: re.Pattern[str]
    joking: re.Pattern[str]
    leaning: re.Pattern[str]
    stop: frozenset[str]
    empty: frozenset[str]
    pointing: frozenset[str]
    edges: frozenset[str]
    joints: frozenset[str]
    subjects: frozenset[str]
    determiners: frozenset[str]
    times: frozenset[str]
    introducing: frozenset[str]
    verbs: frozenset[str]
    past: frozenset[str]
    not_past: frozenset[str]
    plurals: frozenset[str]
    adverbs: frozenset[str]
    hails: frozenset[str]
    demonstratives: frozenset[str]
    contracted: frozenset[str]
    contractions: frozenset[str]
    shortened: frozenset[str]
    existing: frozenset[str]
    relatives: frozenset[str]
    after_relative: frozenset[str]
    counted: frozenset[str]
    ones: frozenset[str]
    plain_plurals: frozenset[str]
    near: frozenset[str]
    describing: frozenset[str]
    infinitive: frozenset[str]
    speaking: frozenset[str]
    light: frozenset[str]
    denied: tuple[str, ...]
    past_end: tuple[str, ...]
    adverb_end: tuple[str, ...]
    plural_end: tuple[str, ...]
    not_plural: tuple[str, ...]

    def bared(self, text: str, others: Sequence[str]) -> str:
        """`text` without interjections and without the name of the person spoken to."""
        called = _calls(tuple(others), self.hails)
        before = None
        while before != text:
            before = text
            for lead in self.leads:
                text = lead.sub("", text)
            text = called.sub("", text)
        return text.strip()

    def is_question(self, text: str) -> bool:
        return text.rstrip("\"')*」』”’ ").endswith(("?", "？", "؟")) or bool(self.question.search(text))

    def is_unreal(self, text: str) -> bool:
        """Whether a sentence tells of what is not so: supposed, dreamt, played, a joke, or said by somebody else as "I"."""
        quoted = _SPEECH.search(text)
        return bool(self.unreal.search(text) or (quoted and self.first.search(quoted[1])))

    def own_clause(self, text: str) -> re.Match[str] | None:
        """Where a clause of a sentence opens with its speaker: "..., I'd never cook again"."""
        return next(filter(None, (self.first.match(text, at.end()) for at in _OPENING.finditer(text))), None)

    def is_claim(self, text: str) -> bool:
        """Whether a sentence says something that may be worth knowing later."""
        if self.is_question(text) or self.small_talk.search(text) or self.hedged.search(text):
            return False
        if not self.is_full:
            return self._is_plain_claim(text)
        tokens = lowered(text)
        if len(tokens) < 3 or self.imperative.match(text) or self.second.search(text):
            return False
        told = self.telling(tokens)
        if len(told) < 2 or not self.has_verb(tokens) or self.general.match(text):
            return False
        named = bool(_IDENTIFIER.search(text) or self.names(text))
        particular = named or bool(_NUMBER.search(text) or self.dated.search(text))
        if self.first.search(text) or self.omitted.match(text) or self.we.search(text):
            happened = bool(self.events.search(text))
            lived = bool(self.life.search(text))
            enough = len(told) >= 5 or (len(told) >= 3 and (particular or happened or lived))
            return enough or named or (particular and happened)
        told_when = bool(self.dated.search(text) and _NUMBER.search(text))
        return particular and len(told) >= (2 if told_when else 3)

    def _is_plain_claim(self, text: str) -> bool:
        """The same for a language of which only a few words are known: long enough, and of someone or something."""
        if self.second.search(text) or self.imperative.match(text) or wishes.asked_once(text, self.tongue):
            return False
        if not self.has_blanks:
            return sum(map(str.isalpha, text)) >= self.least and self._names_something(text)
        own = bool(self.first.search(text) or self.we.search(text))
        named = bool(_NUMBER.search(text) or _CAPITAL.search(text))
        said = len(words.word_set(text))
        if said > self.least and self.dated.search(text):
            return True
        return (said >= self.least and (own or named)) or (said == self.least - 1 and own and named)

    def _names_something(self, text: str) -> bool:
        """Whether words that are not parted say of whom or what they tell: "もう寝ます" does not."""
        if self.light:
            named = [one for one in _MARKED.findall(text) if one not in self.light]
            return bool(named or self.first.search(text))
        own = self.first.search(text) or self.we.search(text) or self.life.search(text)
        return bool(own or _LATIN.search(text) or self.dated.search(text))

    def telling(self, tokens: Sequence[str]) -> set[str]:
        """The words that say what a sentence is about."""
        return {
            t for t in tokens if t not in self.stop and t not in self.empty and not t.endswith(self.denied)
        }

    def names(self, text: str) -> list[str]:
        """Words with a capital inside the sentence: whom or what it names."""
        return [word for word in _CAPITAL.findall(text) if word not in self.not_names]

    def is_past(self, token: str) -> bool:
        return token in self.past or (
            token.endswith(self.past_end) and len(token) > 3 and token not in self.not_past
        )

    def has_verb(self, tokens: Sequence[str]) -> bool:
        """Whether some word can be the verb of a sentence."""
        for at, token in enumerate(tokens):
            head, mark, tail = token.rpartition("'")
            if token in self.speaking or token in self.verbs or (mark and tail in self.contractions):
                return True
            if mark and head in self.shortened:
                return True
            if not at:
                continue
            before = tokens[at - 1]
            if self.is_past(token) and "-" not in token and before not in self.adverbs:
                return True
            if token in self.plurals and before.endswith(self.plural_end):
                return True
            if before in self.subjects and token not in self.stop:
                return True
            after = tokens[at + 1] if at + 1 < len(tokens) else ""
            # "400 days on Sunday": what is counted is no verb.
            is_third = self.third.fullmatch(token) and before not in self.determiners
            is_third = is_third and not before.isdecimal()
            if is_third and before not in self.stop and (after in self.stop or after in self.determiners):
                return True
        return self.omitted.match(" ".join(tokens)) is not None

    def leans(self, text: str) -> bool:
        """Whether a pronoun in `text` points at something said before.

        A pronoun is at home when a noun stands before it with a clause's edge between them: "the dog ran off and I
        found it". "It" that points at nothing ("it took years to learn") is looked past.
        """
        if self.elliptic.search(text.rstrip(" .!…")) or self.leaning.search(text):
            return True
        tokens = [t for t in _WORD.findall(text) if not t.isspace()]
        nouns, closed = 0, False
        for at, token in enumerate(tokens):
            lower = token.lower()
            following = tokens[at + 1].lower() if at + 1 < len(tokens) else ""
            if nouns and (
                lower in self.edges or (lower in self.joints and following.partition("'")[0] in self.subjects)
            ):
                closed = True
            if at == 0 and self.expletive.match(text):
                continue
            base = lower.partition("'")[0]
            if lower in self.demonstratives and at and self._is_determiner(following):
                if self._is_bare_pointer(tokens, at) and not closed:
                    return True
            elif lower in self.pointing or ("'" in lower and base in self.contracted):
                if f"{lower} {following}" in self.existing | self.counted or (lower in self.ones and nouns):
                    continue
                is_content = following[:1].isalpha() and following not in self.stop
                if lower in self.relatives and at and (is_content or following in self.after_relative):
                    continue
                if not closed:
                    return True
            elif self._is_noun(tokens, at):
                nouns += 1
        return False

    def _is_determiner(self, following: str) -> bool:
        """Whether "this" or "that" belongs to the word after it."""
        if (
            not following[:1].isalpha()
            or following in self.stop
            or following in self.verbs
            or "'" in following
        ):
            return False
        is_verb = (
            self.is_past(following)
            or following.endswith(self.adverb_end)
            or (following.endswith(self.plural_end) and not following.endswith(self.not_plural))
        )
        return not is_verb or following in self.plain_plurals

    def _is_bare_pointer(self, tokens: Sequence[str], at: int) -> bool:
        """Whether "this book" points at something the reader cannot see; "this guy who..." and "this year" do not."""
        following = [t.lower() for t in tokens[at + 1 : at + 7]]
        if following[0] in self.times or (
            tokens[at].lower() in self.near and following[0] in self.introducing
        ):
            return False
        return not any(t in self.describing for t in following)

    def _is_noun(self, tokens: Sequence[str], at: int) -> bool:
        """A guess: a content word behind a determiner, a plural, or a capitalised word inside the sentence."""
        token, lower = tokens[at], tokens[at].lower()
        plural = lower.endswith(self.plural_end) and not lower.endswith(self.not_plural[:1])
        if lower in self.stop or lower in self.adverbs or not lower[0].isalpha() or self.is_past(lower):
            return False
        if at == 0:
            return plural
        before = tokens[at - 1].lower()
        if before in self.subjects or before in self.infinitive or before in self.verbs:
            return False
        behind = {t.lower() for t in tokens[max(0, at - 3) : at]}
        return bool(behind & self.determiners) or token[0].isupper() or plural or before in self.stop


@functools.cache
def phrases_of(tongue: Tongue) -> Phrases:
    """The phrases of a language."""
    return Phrases(tongue)


def spoken(text: str) -> Phrases:
    """The phrases of the language a sentence is in."""
    return phrases_of(tongues.spoken_in(text))


def lowered(text: str) -> list[str]:
    """The words of a sentence, in small letters."""
    return [t.lower().replace("’", "'") for t in _WORD.findall(text) if t[0].isalnum()]


@functools.lru_cache(maxsize=256)
def _calls(others: tuple[str, ...], hails: frozenset[str]) -> re.Pattern[str]:
    """A pattern for being addressed at the start of a sentence, by name or the start of it."""
    names = "|".join(
        re.escape(n) + "|" + re.escape(n.split()[0][:3]) + r"\w{0,6}" for n in others if n.strip()
    )
    return re.compile(rf"^(?:{tongues.choice(hails)},?\s+)?(?:{names or '(?!)'})\b\s*[,!.:-]+\s*", re.I)


def pattern_in(table: Mapping[str, Any], name: str) -> re.Pattern[str]:
    """The pattern or patterns of one name in a language's table; what nothing matches where there are none."""
    return re.compile(
        tongues.widened(tongues.either(table.get(name, ()))), re.NOFLAG if name == "first" else re.I
    )


def _words_in(table: Mapping[str, Any], name: str) -> frozenset[str]:
    """The words listed under a name; `_` stands for a blank inside one."""
    return frozenset(word.replace("_", " ") for word in str(table.get(name, "")).split())


_READ_AS: Mapping[str, Callable[[Mapping[str, Any], str], object]] = {
    "re.Pattern[str]": pattern_in,
    "frozenset[str]": _words_in,
    "tuple[str, ...]": lambda table, name: tuple(str(table.get(name, "")).split()),
}
