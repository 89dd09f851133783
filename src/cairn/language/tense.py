"""Which way a sentence looks: whether the clause around a day tells of what was or of what is to come.

The words that tell are in `language/data/`, under `dates.tense`. A clause that says neither, or both, is left open.
"""

from __future__ import annotations

import functools
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cairn.language import tongues
from cairn.language.tongues import Tongue, compiled

_BEFORE, _AFTER = 240, 160
# A clause of so few words beside its date has no verb of its own: "on Friday, at the fair, we met them". "Starting 1 June"
# has one, and a plural of a past is not borrowed for it.
_WITHOUT_VERB = 0


# Where the words of a mention stood, in a clause that is read for what is around it.
_HERE = "¤"


@dataclass(frozen=True, slots=True)
class Side:
    """On which side of today a clause puts its days: -1 behind, 1 ahead, 0 where it says neither or both.

    `is_sure` is said by what leaves no doubt ("we were there", "I will go"): only then is a year long past taken where
    the coming one is nearer. `is_present` is a plain present ("from 3 to 7 March I'm in Rome"): the nearest day is meant.
    """

    way: int
    is_sure: bool = False
    is_present: bool = False


OPEN = Side(0)


@dataclass(frozen=True, eq=False, slots=True)
class Tense:
    """The words by which a language says whether a clause tells of what was or of what is to come.

    What was arranged ("booked", "promised") may lie on either side of the day that is named with it, so such a
    clause is read only where a target stands before the day ("for", "by"). What was told or thought, and a day that
    belongs to a thing ("tickets for the concert on 8 May"), says nothing by the tense of the verb before it: nor does a
    day that another preposition leads to ("nervous about Friday"), which is not when that was.
    """

    clause: re.Pattern[str]
    past: re.Pattern[str]
    future: re.Pattern[str]
    lived: re.Pattern[str]
    sure: re.Pattern[str]
    present: re.Pattern[str]
    deeds: re.Pattern[str]
    once: re.Pattern[str]
    told: re.Pattern[str]
    of_thing: re.Pattern[str]
    of_event: re.Pattern[str]
    neutral: re.Pattern[str]
    arranged: re.Pattern[str]
    shifted: re.Pattern[str]
    recurring: re.Pattern[str]
    target: Lead
    since: Lead
    until: Lead
    other: Lead

    def side(self, sentence: str, begin: int, stop: int) -> Side:
        """Which way the clause around a mention looks, or the one beside it where that does not say."""
        start, end = max(0, begin - _BEFORE), min(len(sentence), stop + _AFTER)
        edges = [start, *(m.start() for m in self.clause.finditer(sentence, start, end)), end]
        edges = [edge for edge in edges if not begin < edge < stop]
        pieces = [(a, b) for a, b in itertools.pairwise(edges) if b > a]
        here = next((n for n, (a, b) in enumerate(pieces) if a <= begin < b), len(pieces) - 1)
        # "The exam is on Friday": the little word belongs to the mention and to the clause.
        opening = " ".join(sentence[begin:stop].split()[:-1][:1])
        since, target = self.since.leads(sentence, begin), self.target.leads(sentence, begin)
        is_open = self.until.leads(sentence, begin)
        for reach in (here, here + 1, here - 1):
            if 0 <= reach < len(pieces):
                a, b = pieces[min(here, reach)][0], pieces[max(here, reach)][1]
                marked = f"{sentence[a:begin]} {opening} {_HERE} {sentence[stop:b]}"
                answer = self._of_clause(marked, is_target=target, is_since=since)
                if answer is None and reach == here and not is_open and self.deeds.search(marked):
                    return Side(1, is_present=True)
                if answer is not None:
                    # "The API ends v1 on 30 June, clients were told in April": what it says itself is not known.
                    own = f"{sentence[pieces[here][0] : begin]} {sentence[stop : pieces[here][1]]}".split()
                    is_borrowed = reach != here and len(own) > _WITHOUT_VERB
                    # "We've had a permit until March": what began then may hold still.
                    is_ungoverned = is_borrowed or is_open or self.other.leads(sentence, begin)
                    return OPEN if answer.way < 0 and is_ungoverned else answer
        return Side(0, is_present=self.present.search(sentence, start, end) is not None)

    def moves(self, sentence: str, begin: int, stop: int) -> bool:
        """Whether what has two days was moved from the one to the other, "from 14 to 21 April", and does not last so long."""
        start, end = max(0, begin - _BEFORE), min(len(sentence), stop + _AFTER)
        edges = [one.start() for one in self.clause.finditer(sentence, start, end)]
        start = max((edge for edge in edges if edge <= begin), default=start)
        end = min((edge for edge in edges if edge >= stop), default=end)
        before, behind = sentence[start:begin], sentence[stop:end]
        return self.shifted.search(before) is not None or self.shifted.search(behind) is not None

    def _of_clause(self, marked: str, *, is_target: bool, is_since: bool) -> Side | None:
        """Which way one clause looks, neither for a contradiction; None where it has no word that would tell."""
        clause = marked.replace(f" {_HERE}", "", 1)
        if self.recurring.search(clause):
            return OPEN
        if is_target and self.shifted.search(clause):
            return Side(1)
        if self.arranged.search(clause):
            # "They gave me leave from 10 June" was given before.
            return Side(1) if is_target else OPEN
        future, is_sure = self.future.search(clause), self.sure.search(clause) is not None
        lived = self.lived.search(clause) is not None
        if is_since and (lived or not is_sure):
            return Side(-1, lived)
        past = self.past.search(self.neutral.sub(" ", clause))
        if past is None and future is None:
            return None
        if past and self.told.search(marked):
            return Side(1) if future and is_sure else OPEN
        if past and future:
            return OPEN
        if past and (self.of_event.search(marked) or (not lived and self.of_thing.search(marked))):
            return OPEN
        return Side(-1, lived) if past else Side(1, is_sure)


class Lead:
    """Words that stand right before a mention, or open it: "until Friday", "since March"."""

    def __init__(self, patterns: Sequence[str]) -> None:
        body = tongues.widened(tongues.either(patterns))
        self._before = re.compile(rf"(?:{body})\s*$", re.IGNORECASE)
        self._opens = re.compile(rf"(?:{body})(?=\W|$)", re.IGNORECASE)

    def leads(self, sentence: str, begin: int, *, opens: bool = True) -> bool:
        before = self._before.search(sentence[max(0, begin - 24) : begin])
        return bool(before or (opens and self._opens.match(sentence, begin)))


@functools.cache
def tense_of(tongue: Tongue) -> Tense:
    table: Mapping[str, Any] = tongue.table("dates").get("tense", {})
    clause = re.compile(tongues.widened(tongues.either(table.get("clause", ("[,;:]",)))), re.IGNORECASE)
    cues = (
        "past",
        "future",
        "lived",
        "sure",
        "present",
        "deeds",
        "once",
        "told",
        "of_thing",
        "of_event",
        "neutral",
        "arranged",
        "shifted",
    )
    patterns = {name: compiled(table.get(name, ()), tongue) for name in (*cues, "recurring")}
    return Tense(
        clause,
        target=Lead(table.get("target", ())),
        since=Lead(table.get("since", ())),
        until=Lead(table.get("until", ())),
        other=Lead(table.get("other", ())),
        **patterns,
    )
