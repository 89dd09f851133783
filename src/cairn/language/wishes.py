"""Recognises standing orders and tastes by their form rather than by fixed wordings.

The table `wishes` of each language lists classes of words; the code here puts them together, the same way for all:

- An order opens with what is to be done (`order`, or any verb in the form of an `imperative`) or left (`spare`), says
  what is wanted of the listener (`duty`) or what they `may` leave, or has no verb at all ("sources at the end").
- It stands where something in it is `lasting` ("always"), where it is for each `case` ("when I ...,"), where it is a
  `habit` by itself ("talk to me like"), or where it is about the manner of answers: what they are made of (`things`), what
  else they may hold (`topics`), and how they can be (`ways`). A `piece` of work or a `count` of them is asked for once.
- A taste is a feeling of the speaker (`likes`, `dislikes`) with anything beside it to feel so about, not in the `past`.
- A habit is what the speaker does now (`practice`) and what says of it that it `recurs` ("most evenings I read"), or
  what people do in their days (`daily`: "I bake").
- What is asked for `once` ("for this answer", "just this time") is done then and orders nothing.
- What is `announced` of a third thing ("from now on the library closes at six") is no order.
- What points at something before the speakers, or at a time ("this", "the second draft", "tomorrow"), is neither.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass, fields
from typing import Literal

from cairn.language import tongues
from cairn.language.tongues import Tongue

Feeling = Literal["like", "dislike"]
_ASKED = ("?", "？", "؟")
_FEW, _WHOLE, _CLAUSE, _SUBJECT = 2, 8, 5, 14
_FILE = re.compile(
    r"\w\.(?:py|js|ts|tsx|md|txt|csv|json|ya?ml|toml|html?|css|java|c|cpp|h|rs|go|rb|php|sh|sql|pdf|docx?|xlsx?|png|jpe?g|ipynb)\b"
)
_HANDED = re.compile(r"[:：]\s*\S.{8,}$", re.DOTALL)
_BLANKED = "________"
_TITLE = re.compile(r"(?:(?!\b(?:I|me|my|you|your|us|we)\b)[^:.?!,\"“]){3,60}:\s")
_JOINED = re.compile(r"(?:^|\s)(?:and|that|which|who|but|or)\s+$")
_LETTERS = re.compile(r"[^\W\d_]+")
# How the words of a class are looked for: anywhere, or as a list of words; all others where a clause opens.
_WITHIN = (
    *("lasting", "finite", "count", "piece", "here", "part", "past", "likes", "dislikes", "standing"),
    *("practice", "recurs", "once"),
)
_LISTED = ("things", "topics", "ways")


@dataclass(frozen=True, eq=False, slots=True)
class _Classes:
    polite: re.Pattern[str]
    topic: re.Pattern[str]
    breaks: re.Pattern[str]
    label: re.Pattern[str]
    case: re.Pattern[str]
    order: re.Pattern[str]
    imperative: re.Pattern[str]
    does: re.Pattern[str]
    forbidden: re.Pattern[str]
    spare: re.Pattern[str]
    duty: re.Pattern[str]
    may: re.Pattern[str]
    habit: re.Pattern[str]
    lasting: re.Pattern[str]
    once: re.Pattern[str]
    things: re.Pattern[str]
    topics: re.Pattern[str]
    ways: re.Pattern[str]
    of_things: re.Pattern[str]
    task: re.Pattern[str]
    finite: re.Pattern[str]
    bare: re.Pattern[str]
    need: re.Pattern[str]
    generic: re.Pattern[str]
    count: re.Pattern[str]
    piece: re.Pattern[str]
    here: re.Pattern[str]
    part: re.Pattern[str]
    stated: re.Pattern[str]
    announced: re.Pattern[str]
    asks: re.Pattern[str]
    wonders: re.Pattern[str]
    demands: re.Pattern[str]
    past: re.Pattern[str]
    likes: re.Pattern[str]
    dislikes: re.Pattern[str]
    given: re.Pattern[str]
    others: re.Pattern[str]
    standing: re.Pattern[str]
    practice: re.Pattern[str]
    recurs: re.Pattern[str]
    daily: re.Pattern[str]

    def is_of_manner(self, said: str, *, is_done: bool, is_left: bool) -> bool:
        """Whether what is said is to be so with answers in general, and is no piece of work."""
        thing, way = self.things.search(said), self.ways.search(said)
        topic = None if thing or way else self.topics.search(said)
        first = thing or way or topic
        if first is None:
            return False
        is_needed = self.need.match(said) is not None
        is_task = is_needed or self.task.match(said) is not None
        asked = said if is_task else self.ways.sub(" ", said)
        is_piece = any(is_task or not self._is_any(asked, piece) for piece in self.piece.finditer(asked))
        if is_left:
            return topic is None or not is_piece or self.may.match(said) is not None
        if is_piece:
            return False
        if is_needed:
            return True
        if is_done:
            return not (is_task and topic) and not self.count.search(asked)
        # "All times in Lisbon time unless I say otherwise": what lasts tells nothing by itself.
        if is_task or self.finite.search(self.lasting.sub(" ", said)) or self.others.match(said):
            return False
        # "Sources at the end, please": an order without a verb opens with what it is about.
        opens = len(said[: first.start()].split()) <= _FEW
        # "4000 euros": one word that is both how and about what says neither.
        is_twofold = self.topics.search(asked) or len(self.ways.findall(said)) > 1
        is_about = thing or (self.topics.search(said) and is_twofold)
        is_told = self.bare.match(said, first.end()) or (way and is_about)
        return bool(is_told) if opens else topic is None

    def _is_any(self, said: str, article: re.Match[str]) -> bool:
        """Whether an article belongs to answers in general: "the conclusion", and "les dates" where all are meant."""
        is_generic = self.generic.fullmatch(article.group()) and self.topics.match(said, article.end() + 1)
        return bool(is_generic or self.of_things.match(said, article.end()))

    def clauses(self, sentence: str) -> list[str]:
        """The clauses of a sentence that has several, without such as are too short to say anything by themselves."""
        parts = [part.strip() for part in self.breaks.split(sentence)]
        return [part for part in parts if len(part) >= _CLAUSE] if len(parts) > 1 else []

    def tails(self, sentence: str) -> list[str]:
        """What stands behind each break of a sentence, to its end: "please wrap up quickly, no intros" of "..., so please ..."."""
        return [sentence[found.end() :] for found in self.breaks.finditer(sentence)][:-1]

    def tells(self, sentence: str) -> bool:
        """Whether a sentence that opens like an order tells something, of its speaker or of a third thing."""
        if self.stated.match(sentence):
            return True
        told = self.announced.match(sentence)
        if told is None or self.things.search(sentence) or self.ways.search(sentence):
            return False
        return self.topics.search(sentence[: told.end() + _SUBJECT]) is None  # "the dates come first"

    def points(self, sentence: str) -> bool:
        """Whether something in a sentence is before the speakers, or bound to a time."""
        return any(pattern.search(sentence) for pattern in (self.here, self.part, _FILE))


def ordered(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence said to an agent is an order that stands.

    >>> from cairn.language.tongues import known
    >>> ordered("Avoid buzzwords", known()["en"]), ordered("Avoid the second draft", known()["en"])
    (True, False)
    """
    known, sentence = _classes_of(tongue), sentence.lstrip("¿¡ ")
    if known.tells(sentence) or known.wonders.match(sentence) or is_of_a_part(sentence, tongue):
        return False
    if _is_titled(sentence, known) or for_once(sentence, 0, tongue):
        return False
    if asked_once(sentence, tongue) and (_HANDED.search(sentence) or _BLANKED in sentence):
        return False  # "translate in a formal tone: ..."
    if _is_ordered(sentence, known):
        return True
    # "No semicolons, it's the rule of the team": a clause may order what the next one explains.
    clauses = known.clauses(sentence)
    is_asked, first = sentence.rstrip().endswith(_ASKED), "".join(clauses[:1])
    is_left = known.forbidden.match(first) and not known.points(first) and not known.piece.search(first)
    if is_left and not is_asked:
        return True  # "Do not open requests as ready, open them as drafts"
    if is_asked or any(asked_once(one, tongue) for one in clauses):
        return False  # "I want to learn German, help me make a plan"
    if known.points(sentence):
        return False
    if any(_is_ordered(one, known) for one in clauses[:1]):
        return True
    return any(
        (known.forbidden.match(one) and not known.piece.search(one)) or begged(one, tongue)
        for one in (*clauses[-1:], *known.tails(sentence))
    )


def _is_titled(sentence: str, known: _Classes) -> bool:
    """Whether a sentence opens with the title of something else than the talk: "Chat widget: no emojis"."""
    title = _TITLE.match(sentence)
    return title is not None and not known.label.match(sentence) and not _to_one(title.group(), known)


def _to_one(said: str, known: _Classes) -> bool:
    return (
        any(p.search(said) for p in (known.lasting, known.things, known.ways))
        or known.case.match(said) is not None
    )


def demanded(sentence: str, start: int, tongue: Tongue) -> bool:
    """Whether what stands at `start` belongs to a piece of work or to what a thing is to do, and orders nothing itself."""
    known, before = _classes_of(tongue), sentence[:start]
    if _is_titled(sentence, known):
        return bool(before.strip())
    is_work = asked_once(sentence, tongue) or known.demands.match(sentence) is not None
    return is_work and _JOINED.search(before) is not None


def _is_ordered(sentence: str, known: _Classes) -> bool:
    topic = known.topic.match(sentence)
    if topic is not None and _is_ordered(sentence[topic.end() :], known):
        return True  # "in Python always ..."
    case = known.label.match(sentence) or known.case.match(sentence)
    lasts = case is not None or known.lasting.search(sentence) is not None
    opens = known.polite.match(sentence, case.end() if case else 0)
    start = opens.end() if opens else 0
    rest = sentence[start:]
    is_asked, points = sentence.rstrip().endswith(_ASKED), known.points(sentence)
    is_wanted = is_asked and not points and bool(start or known.need.match(sentence))
    if is_wanted and known.forbidden.match(rest) and not known.piece.search(rest):
        return True  # "would you mind not calling me boss?"
    if is_wanted and not lasts:  # "could you be briefer?"
        is_manner = known.things.search(rest) or known.ways.search(rest)
        is_once = is_manner is None or known.task.match(rest) is not None
        return not is_once and known.is_of_manner(rest, is_done=True, is_left=False)
    if not lasts and (is_asked or points):
        return False
    if points and case is None and (known.piece.search(rest) or known.task.match(rest)):
        return False  # "clarify why the file that I never opened ..."
    stands = known.standing.search(sentence) is not None  # "could you in future keep the summaries short?"
    if is_asked and (not start or points or (known.piece.search(rest) and not stands)):
        return False
    is_left = known.spare.match(rest) or known.duty.match(sentence) or known.duty.match(rest)
    is_left = is_left or known.may.match(sentence) or known.may.match(rest)
    if not is_asked and not points and known.forbidden.match(rest) and not known.piece.search(rest):
        return True  # "don't soften bad news": what is forbidden of nothing in particular is forbidden
    is_done = known.order.match(rest)
    is_told = known.finite.search(known.lasting.sub(" ", rest)) is not None
    is_formed = is_done or (known.imperative.match(rest) and (case or not is_told))
    is_formed = (
        is_formed
        or (case and known.does.match(rest))
        or (not (case or points or is_asked) and known.need.match(rest))
    )
    if lasts and not _LETTERS.search(known.lasting.sub(" ", sentence)):
        return False  # "Always."
    return bool((lasts and (is_left or is_formed)) or known.habit.match(rest)) or known.is_of_manner(
        rest, is_done=is_done is not None, is_left=is_left is not None
    )


def respelt(sentence: str, tongue: Tongue) -> str:
    """A sentence as it would be written with care: "dont" with its apostrophe, "big fan of" with its subject.

    >>> from cairn.language.tongues import known
    >>> respelt("big fan of jazz", known()["en"])
    "I'm a big fan of jazz"
    """
    for was, put in _respellings(tongue):
        sentence = was.sub(put, sentence)
    return sentence


@functools.cache
def _respellings(tongue: Tongue) -> tuple[tuple[re.Pattern[str], str], ...]:
    given = tongue.table("wishes").get("respelt", ())
    return tuple((re.compile(tongues.widened(was), re.IGNORECASE), put) for was, put in given)


def begged(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence opens politely and orders what stands: "please point out every mistake"."""
    opens = _classes_of(tongue).polite.match(sentence)
    return opens is not None and opens.end() > 0 and ordered(sentence, tongue)


def asked_once(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence opens with a piece of work for whoever hears it: "please translate ..."."""
    known = _classes_of(tongue)
    opens = known.polite.match(sentence)
    return known.task.match(sentence, opens.end() if opens else 0) is not None


def for_once(sentence: str, start: int, tongue: Tongue) -> bool:
    """Whether what stands at `start` is asked for on one occasion: "just this once, answer in German".

    "This one in German, but from now on always in English": what lasts behind it is another order.
    """
    known = _classes_of(tongue)
    found = known.once.search(sentence)
    return found is not None and not (found.end() <= start and known.lasting.search(sentence[start:]))


def felt(sentence: str, tongue: Tongue) -> tuple[Feeling, str] | None:
    """What a sentence says its speaker feels, and about what: None where it is about nothing, or about what is here."""
    known = _classes_of(tongue)
    if known.others.match(sentence):
        return None
    said = (sentence, *known.clauses(sentence))
    return next((found for one in said if (found := _felt(one, known)) is not None), None)


def practised(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence says what its speaker does again and again.

    >>> from cairn.language.tongues import known
    >>> practised("Most evenings I read", known()["en"]), practised("I read it most evenings", known()["en"])
    (True, False)
    """
    known = _classes_of(tongue)
    if known.wonders.match(sentence):
        return False
    return any(_is_practised(one, known) for one in (sentence, *known.clauses(sentence)))


def _is_practised(sentence: str, known: _Classes) -> bool:
    if known.points(sentence) or known.past.search(sentence):
        return False
    is_said = known.daily.match(sentence) is not None
    return is_said or bool(known.recurs.search(sentence) and known.practice.search(sentence))


def first_clause(sentence: str, tongue: Tongue) -> str:
    """The clause a sentence opens with; "" where it has only one."""
    return next(iter(_classes_of(tongue).clauses(sentence)), "")


def _felt(sentence: str, known: _Classes) -> tuple[Feeling, str] | None:
    if known.points(sentence) or known.others.match(sentence) or known.past.search(sentence):
        return None
    feelings: tuple[tuple[Feeling, re.Pattern[str]], ...] = (
        ("dislike", known.dislikes),
        ("like", known.likes),
    )
    for kind, words in feelings:
        found = words.search(sentence)
        if found is None or known.given.match(sentence, found.end()):
            continue
        around = f"{sentence[: found.start()]} {sentence[found.end() :]}"
        for about in (around, found.group() if len(found.group()) >= _WHOLE else ""):
            if any(len(word) > 1 for word in _LETTERS.findall(about)):
                return kind, about
        return None
    return None


def is_of_a_part(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence is about a part of what is before the speakers, and says of nothing that it lasts."""
    known = _classes_of(tongue)
    is_part = known.part.search(sentence) or _FILE.search(sentence)
    return is_part is not None and known.lasting.search(sentence) is None


def is_past(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence tells how it was, or how it would be."""
    return _classes_of(tongue).past.search(sentence) is not None


def is_asking(clause: str, tongue: Tongue) -> bool:
    """Whether a clause without a question mark asks by its words: "do I like tea, or ...?"."""
    return _classes_of(tongue).asks.match(clause) is not None


def is_anothers(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence opens with somebody else, whose ways are not the speaker's."""
    return _classes_of(tongue).others.match(sentence) is not None


def is_stated(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence that opens like an order tells something: "from now on I work four days"."""
    return _classes_of(tongue).tells(sentence)


@functools.cache
def _classes_of(tongue: Tongue) -> _Classes:
    table = tongue.table("wishes")

    def opening(name: str, otherwise: str | tuple[str, ...] = ()) -> re.Pattern[str]:
        return re.compile(tongues.widened(tongues.either(table.get(name, otherwise))), re.IGNORECASE)

    def within(name: str) -> re.Pattern[str]:
        return tongues.compiled([tongues.either(table[name])] if name in table else [], tongue)

    def listed(name: str) -> re.Pattern[str]:
        words = str(table.get(name, "")).replace("*", r"\w*").split()
        return tongues.compiled([word.replace("_", " ") for word in words], tongue)

    found = {name: within(name) for name in _WITHIN} | {name: listed(name) for name in _LISTED}
    found["breaks"] = opening("breaks", "[,;] |[，；]")
    found["of_things"] = re.compile(rf"\s*(?:\w+\s+){{0,2}}{found['things'].pattern}", re.IGNORECASE)
    ended = r"(?!\w)" * tongue.has_blanks
    found["task"] = re.compile(rf"(?:{opening('task').pattern})" + ended, re.IGNORECASE)
    found |= {one.name: opening(one.name) for one in fields(_Classes) if one.name not in found}
    return _Classes(**found)
