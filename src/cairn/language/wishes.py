"""Orders that stand, and tastes, told by their form rather than by their wording.

The table `wishes` of each language lists classes of words; the code here puts them together, the same way for all:

- An order opens with what is to be done (`order`) or left (`spare`), or says what is wanted of the listener (`duty`). It
  stands where something in it is `lasting` ("always"), where it is for each `case` ("when I ...,"), where it is a `habit`
  by itself ("talk to me like"), or where it is about the `manner` of answers ("no jargon") and asks for no `piece` of
  work ("a poem", "the table").
- A taste is a feeling of the speaker (`likes`, `dislikes`) with anything beside it to feel so about.
- What points at something before the speakers, or at a time ("this", "the second draft", "tomorrow"), is neither.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from cairn.language import tongues
from cairn.language.tongues import Tongue

Feeling = Literal["like", "dislike"]
_ASKED = ("?", "？", "؟")
_LETTERS = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, eq=False, slots=True)
class _Classes:
    polite: re.Pattern[str]
    case: re.Pattern[str]
    order: re.Pattern[str]
    spare: re.Pattern[str]
    duty: re.Pattern[str]
    habit: re.Pattern[str]
    lasting: re.Pattern[str]
    manner: re.Pattern[str]
    piece: re.Pattern[str]
    here: re.Pattern[str]
    part: re.Pattern[str]
    stated: re.Pattern[str]
    likes: re.Pattern[str]
    dislikes: re.Pattern[str]
    given: re.Pattern[str]
    others: re.Pattern[str]

    def points(self, sentence: str) -> bool:
        """Whether something in a sentence is before the speakers, or bound to a time."""
        return self.here.search(sentence) is not None or self.part.search(sentence) is not None


def ordered(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence said to an agent is an order that stands.

    >>> from cairn.language.tongues import known
    >>> ordered("Avoid buzzwords", known()["en"]), ordered("Avoid the second draft", known()["en"])
    (True, False)
    """
    known = _classes_of(tongue)
    if known.stated.match(sentence) or is_of_a_part(sentence, tongue):
        return False
    case = known.case.match(sentence)
    lasts = case is not None or known.lasting.search(sentence) is not None
    opens = known.polite.match(sentence, case.end() if case else 0)
    start = opens.end() if opens else 0
    rest = sentence[start:]
    is_asked = sentence.rstrip().endswith(_ASKED)
    if not lasts and (is_asked or known.points(sentence)):
        return False
    is_task = known.points(sentence) and known.piece.search(rest) is not None
    if is_task and case is None:
        return False  # "clarify why the file that I never opened ..."
    if is_asked and (not start or known.points(sentence) or known.piece.search(rest)):
        return False
    is_spared, is_duty = known.spare.match(rest), known.duty.match(sentence) or known.duty.match(rest)
    if lasts and (known.order.match(rest) or is_spared or is_duty):
        return True
    if known.habit.match(rest):
        return True
    if not known.manner.search(rest):
        return False
    is_done = known.order.match(rest) is not None and not known.piece.search(rest)
    return bool(is_spared or is_duty) or is_done


def felt(sentence: str, tongue: Tongue) -> tuple[Feeling, str] | None:
    """What a sentence says its speaker feels, and about what: None where it is about nothing, or about what is here."""
    known = _classes_of(tongue)
    if known.points(sentence) or known.others.match(sentence):
        return None
    feelings: tuple[tuple[Feeling, re.Pattern[str]], ...] = (
        ("dislike", known.dislikes),
        ("like", known.likes),
    )
    for kind, words in feelings:
        found = words.search(sentence)
        if found is None or known.given.match(sentence, found.end()):
            continue
        about = f"{sentence[: found.start()]} {sentence[found.end() :]}"
        if any(len(word) > 1 for word in _LETTERS.findall(about)):
            return kind, about
        return None
    return None


def is_of_a_part(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence is about a part of what is before the speakers, and says of nothing that it lasts."""
    known = _classes_of(tongue)
    return known.part.search(sentence) is not None and known.lasting.search(sentence) is None


def is_stated(sentence: str, tongue: Tongue) -> bool:
    """Whether a sentence that opens like an order tells something: "from now on I work four days"."""
    return _classes_of(tongue).stated.match(sentence) is not None


@functools.cache
def _classes_of(tongue: Tongue) -> _Classes:
    table = tongue.table("wishes")
    names: Mapping[str, str] = tongue.table("clauses").get("names", {})

    def opening(name: str) -> re.Pattern[str]:
        body = str(table.get(name, "(?!)"))
        for known, words in names.items():
            body = body.replace("{" + known + "}", words)
        return re.compile(tongues.widened(body), re.IGNORECASE)

    def within(name: str) -> re.Pattern[str]:
        return tongues.compiled([str(table[name])] if name in table else [], tongue, names)

    return _Classes(
        opening("polite"),
        opening("case"),
        opening("order"),
        opening("spare"),
        opening("duty"),
        opening("habit"),
        within("lasting"),
        within("manner"),
        within("piece"),
        within("here"),
        within("part"),
        opening("stated"),
        within("likes"),
        within("dislikes"),
        opening("given"),
        opening("others"),
    )
