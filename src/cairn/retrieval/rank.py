"""Ranks rows from two raw scores, cosine and BM25, and the evidence around them.

Scores of the two legs are put on a common scale (how far a row stands out from the scope's other rows) and
added with weights; ranks are never fused, because a rank forgets by how much something won. Around that stand
soft priors that speak only where the question gives them evidence: who said it, when it was, what the turns
next to it and the talk around it say. Everything is arithmetic over the arrays of a `Corpus`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from typing import TYPE_CHECKING

from cairn.index.corpus import (
    KIND_CODES,
    MACHINE,
    NUMBERS,
    ONLY_ASKS,
    QUESTION,
    TIME_WORDS,
    Corpus,
)

if TYPE_CHECKING:
    import numpy as np

    from cairn.seams.models import TokenVectors

# Found by a listwise fit over questions about long conversations between people and about chats with an assistant,
# checked on conversations left out, then rounded (docs/benchmarks.md). A row's features stand out by about 1 each, so
# a weight reads as "worth so many ordinary rows". The first table chooses candidates; the second, which has the word
# pieces, puts them in order; where there are no word pieces the first is all there is.
WEIGHTS: Mapping[str, float] = {
    "cosine": 0.62,
    "bm25": 0.25,
    "many": -0.9,
    "cosine_after": 0.17,
    "bm25_before": 0.14,
    "answers": 0.30,
    "talk_cosine": 0.20,
    "talk_bm25": 0.60,
    "author": 2.75,
    "asker": 1.2,
    "advice": 1.0,
    "person": 0.6,
    "sole": 3.0,
    "length": 0.16,
    "question": -0.60,
    "time": 2.45,
    "number": 0.50,
    "date": 4.50,
    "reason": 1.0,
}
# What each part counts for once the word pieces have spoken: they know better than one vector, and than length, what a
# text is about. They know nothing of when it was said: the day asked for counts as before.
LATE_WEIGHTS: Mapping[str, float] = {"late": 0.1, "late_context": 0.9, "late_talk": 0.1}
LATE_SHARES: Mapping[str, float] = {
    "cosine": 0.6,
    "bm25": 0.4,
    "before": 0.35,
    "length": 0.0,
    "session": 0.25,
    "talk": 0.75,
    "author": 0.9,
    "asker": 0.7,
    "person": 1.4,
    "form": 1.3,
    "time": 0.7,
}
_LATE_USUAL, _LATE_SPREAD = 0.35, 0.08
# A product of more factors is shared out among the library's threads, which spin while they wait for each other: twenty
# times the processor time for the same numbers.
_FACTORS = 1 << 18
# A turn is read with the two before it: what those said counts nearly as if it were said again. "Super good! It was so
# creamy" answers "How was it?", and what "it" is was said before that.
_TURNS_BEFORE, _SAID_BEFORE = 2, 0.9
# Of a very long text so many passages are matched word piece by word piece; beyond them the best is no better by chance.
PASSAGES_MATCHED = 32
# Above so many words a text matches more of anything by chance, so much for each factor of e. Turns of a dialogue do not:
# who says more there tells more.
_SHORT_WORDS, _LATE_PER_LENGTH = 20, 0.02
CANDIDATES = 100
# So many of the best are read for whether they say why, where that is asked.
READ_FOR_REASONS = 20
# And so many for whether they say of what another names that it is over.
READ_FOR_ENDS = 20
# From this cosine on two messages of one sender are about one matter; so far apart two scores are about the same. Where the
# later one says that something changed, less suffices, and they may be of two people.
_ONE_MATTER, _ALIKE_SCORES = 0.65, 1.0
_CHANGED_MATTER, _CHANGED_SCORES = 0.6, 3.5
# How many turns of one session a list takes as they are, and what each further one counts less than the one before.
_OF_ONE_TALK, _SAID_TOGETHER = 2, 0.5
# What a message scores that says little to the question; a note that nobody said is taken for as much.
_USUAL_MESSAGE = 1.0
_TOP_OF_TALK = 3
_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class Question:
    """What a query asks, read once against the scope it is asked of.

    Attributes:
        text: The query as given.
        voiced: The query in the voice of the sender it names; equal to `text` where it names none.
        terms: The words to look up.
        names: Words of it that are names of those who speak here, and so are not looked up beside others.
        author: Index of the one sender the query names, where that says anything; else -1.
        is_named: It names any of those who speak here.
        is_meant: It is about one of them, or about who asks: such are asked of a memory.
        is_for_anyone: It orders work, or asks what anyone may know, and is about none of them: rarely meant for a memory.
        days: Day ranges the query names, as day numbers (both ends included).
        wants_time: It asks when.
        wants_number: It asks how many.
        wants_reason: It asks why.
        asker: Index of the sender who asks about themselves ("my", "I"), among machines; else -1.
        wants_advice: It asks what an assistant said ("what did you recommend").
        wants_several: It asks for a list.
        wants_former: It asks how something was before: what is over need not stand behind what ended it.
    """

    text: str
    voiced: str
    terms: tuple[str, ...]
    author: int = -1
    names: tuple[str, ...] = ()
    is_named: bool = False
    is_meant: bool = False
    is_for_anyone: bool = False
    days: tuple[tuple[int, int], ...] = ()
    wants_time: bool = False
    wants_number: bool = False
    wants_reason: bool = False
    asker: int = -1
    wants_advice: bool = False
    wants_several: bool = False
    wants_former: bool = False


@dataclass(frozen=True, slots=True)
class Legs:
    """Raw scores, one per row of the corpus. None: the leg was not asked or cannot answer.

    `cosine` has entries against the query as given and messages against the voiced one. Rows that were cut into
    passages have the best of them. `words` is a row's own share of the words that no other row has, 0 to 1.
    """

    cosine: np.ndarray | None
    bm25: np.ndarray | None
    words: np.ndarray | None = None


class TalkOrder:
    """The messages of a corpus in the order they were said, with what never changes from query to query."""

    def __init__(self, corpus: Corpus, zone: tzinfo = UTC) -> None:
        import numpy as np

        rows = np.flatnonzero(corpus.kind == KIND_CODES["message"])
        order = np.lexsort((corpus.ordinal[rows], corpus.session[rows]))
        self.at = rows[order]
        session = corpus.session[self.at]
        follows = session[1:] == session[:-1] if len(session) else np.zeros(0, bool)
        if corpus.standing is not None:
            # Not all of the talk is here: only what really came one after the other does.
            follows &= np.diff(corpus.ordinal[self.at]) == 1
        self.same = follows.astype(np.float32)
        self.starts = (
            np.flatnonzero(np.r_[True, session[1:] != session[:-1]])
            if len(session)
            else np.zeros(0, np.int64)
        )
        self.segment = (
            np.repeat(np.arange(len(self.starts)), np.diff(np.r_[self.starts, len(session)]))
            if len(session)
            else np.zeros(0, np.int64)
        )
        self.sender = corpus.sender[self.at]
        flags = corpus.flags[self.at]
        self.question = ((flags & QUESTION) > 0).astype(np.float32)
        cut = corpus.part_count[self.at]
        self.is_cut = bool((cut > 1).any())
        self.many = np.log(np.minimum(cut, PASSAGES_MATCHED)).astype(np.float32)
        self.only_asks = ((flags & ONLY_ASKS) > 0).astype(np.float32)
        self.machine = (flags & MACHINE) > 0
        # Sessions in which only people speak: what is usual among them says nothing about the others.
        mixed = np.zeros(len(self.starts), bool)
        mixed[self.segment[self.machine]] = True
        self.is_mixed = bool(mixed.any())
        self.among_people = (~mixed[self.segment]).astype(np.float32) if len(session) else self.question
        # Where one person alone speaks, nothing is a reply: what stands next to a note says nothing about it.
        shared = np.zeros(len(self.starts), bool)
        shared[self.segment[1:][(follows) & (self.sender[1:] != self.sender[:-1])]] = True
        self.in_dialogue = self.among_people * shared[self.segment] if len(session) else self.question
        self.is_note = self.among_people - self.in_dialogue
        self.time = ((flags & TIME_WORDS) > 0).astype(np.float32)
        self.number = ((flags & NUMBERS) > 0).astype(np.float32)
        # Long tool output is not better for being long: beyond a point length says nothing.
        length = np.log1p(corpus.length[self.at].astype(np.float32))
        length = np.clip(standout(length, 2.5, 0.8, corpus.standing_at(self.at)), -2.0, 1.5)
        # What counts for or against a message whatever is asked.
        self.long = self.in_dialogue * WEIGHTS["length"] * length
        self.form = self.among_people * WEIGHTS["question"] * self.only_asks
        self.answers = self.in_dialogue * WEIGHTS["answers"] * self.before(self.question)
        shift = _offset_ms(corpus, zone)
        self.day = ((corpus.timestamp_ms[self.at] + shift) // _DAY_MS).astype(np.int64)
        self.cell = corpus.cell[self.at]
        episodes = np.flatnonzero(corpus.kind == KIND_CODES["episode"])
        self.episodes = episodes
        # The episode row each message went into, by cell; -1 where there is none.
        by_cell = np.full(len(corpus.cells) + 1, -1, np.int64)
        by_cell[corpus.cell[episodes]] = np.arange(len(episodes))
        by_cell[-1] = -1
        self.episode = by_cell[self.cell]
        self.by_episode = RowsByGroup(self.episode)
        self.facts = corpus.of_kinds("atomic_fact")
        self.fact_episode = by_cell[corpus.cell[self.facts]]
        self.facts_by_episode = RowsByGroup(self.fact_episode)

    def __len__(self) -> int:
        return len(self.at)

    def before(self, values: np.ndarray) -> np.ndarray:
        """Each message gets the value of the one before it in its session, 0 at the start."""
        import numpy as np

        out = np.zeros_like(values)
        out[1:] = values[:-1] * self.same
        return out

    def after(self, values: np.ndarray) -> np.ndarray:
        import numpy as np

        out = np.zeros_like(values)
        out[:-1] = values[1:] * self.same
        return out

    def best_of_session(self, values: np.ndarray) -> np.ndarray:
        """Each message gets the mean of the best few values of its session."""
        return mean_of_best(values, self.starts, self.segment)[self.segment]


class RowsByGroup:
    """Rows by the group that each is of, those of none (-1) left out; what is the best of each is found without sorting anew."""

    def __init__(self, group: np.ndarray) -> None:
        import numpy as np

        order = np.argsort(group, kind="stable")
        self.order = order[np.count_nonzero(group < 0) :]
        groups = group[self.order]
        begins = np.ones(len(groups), bool)
        begins[1:] = groups[1:] != groups[:-1]
        self.starts = np.flatnonzero(begins)
        self.segment = np.cumsum(begins) - 1
        self.groups = groups[self.starts]


def talk_of(corpus: Corpus, zone: tzinfo = UTC) -> TalkOrder:
    """The talk of a corpus, made once per corpus."""
    talk: TalkOrder | None = corpus.derived.get("talk")
    if talk is None:
        talk = corpus.derived["talk"] = TalkOrder(corpus, zone)
    return talk


def message_scores(
    corpus: Corpus,
    legs: Legs,
    question: Question,
    *,
    zone: tzinfo = UTC,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores of the corpus's messages in the order of `talk_of(corpus).at`, and the weighted parts they are made of."""
    import numpy as np

    talk = talk_of(corpus, zone)
    zero = np.zeros(len(talk), np.float32)
    if not len(talk):
        return zero, {}
    parts: dict[str, np.ndarray] = {}
    people, dialogue = talk.among_people, talk.in_dialogue
    if talk.is_cut:
        # The best of many passages is better by chance alone.
        parts["many"] = WEIGHTS["many"] * talk.many
    if legs.cosine is not None:
        cosine = _meaning(corpus, legs, talk.at)
        parts["cosine"] = WEIGHTS["cosine"] * cosine
        parts["neighbours"] = dialogue * WEIGHTS["cosine_after"] * talk.after(cosine)
        parts["neighbours"] += talk.answers * talk.before(cosine)
        parts["session"] = WEIGHTS["talk_cosine"] * talk.best_of_session(cosine)
    if legs.bm25 is not None:
        bm25 = standout(legs.bm25[talk.at], 0.0, 1.0, corpus.standing_at(talk.at))
        # Alone, the words carry what the two legs carry together.
        parts["bm25"] = bm25 * (WEIGHTS["bm25"] if legs.cosine is not None else WEIGHTS["cosine"])
        parts["before"] = dialogue * WEIGHTS["bm25_before"] * talk.before(bm25)
        # What a whole talk is about tells talks of people apart; a long run of one is not about one thing, and of a
        # single note it is the note once more.
        if len(talk.episodes) and len(talk.starts) > 1:
            told = corpus.standing_at(talk.episodes)
            whole = np.append(standout(legs.bm25[talk.episodes], 0.0, 1.0, told), np.float32(0))
            parts["talk"] = dialogue * WEIGHTS["talk_bm25"] * whole[talk.episode]
        elif not len(talk.episodes):
            parts["talk"] = 0.5 * WEIGHTS["talk_bm25"] * talk.best_of_session(bm25)
    parts["length"] = talk.long
    parts["form"] = talk.form
    if question.author >= 0:
        parts["author"] = WEIGHTS["author"] * (talk.sender == question.author).astype(np.float32)
    elif question.wants_advice:
        parts["asker"] = WEIGHTS["advice"] * talk.machine.astype(np.float32)
    elif question.asker >= 0:
        parts["asker"] = WEIGHTS["asker"] * (1 - people) * (talk.sender == question.asker).astype(np.float32)
    if talk.is_mixed:
        parts["person"] = WEIGHTS["person"] * (1 - people) * (~talk.machine).astype(np.float32)
    if legs.words is not None:
        # Who only asks for a thing has its name to themself, too, and not the answer.
        parts["sole"] = WEIGHTS["sole"] * legs.words[talk.at] * (1 - 0.7 * people * talk.only_asks)
    if question.wants_time:
        parts["time"] = WEIGHTS["time"] * talk.time
    if question.wants_number:
        parts["number"] = WEIGHTS["number"] * talk.number
    if question.days:
        parts["date"] = WEIGHTS["date"] * date_match(talk.day, question.days)
    total = zero.copy()
    for part in parts.values():
        total += part
    return total, parts


def late_matches(question: TokenVectors, rows: Sequence[np.ndarray | None]) -> np.ndarray:
    """For each row and each piece of the question the best match of that piece in the row, 0 where there is none."""
    import numpy as np

    out = np.zeros((len(rows), len(question.vectors)), np.float32)
    have = [n for n, row in enumerate(rows) if row is not None and len(row)]
    if not have or not len(question.vectors):
        return out
    said = [rows[n] for n in have]
    flat: np.ndarray = np.concatenate(said)  # type: ignore[arg-type]  # only rows that are there
    starts = np.cumsum([0, *(len(row) for row in said[:-1])])  # type: ignore[arg-type]
    asked = question.vectors.astype(np.float32).T
    near = np.empty((len(flat), asked.shape[1]), np.float32)
    step = max(1, _FACTORS // asked.size)
    with np.errstate(invalid="ignore"):  # whole numbers make no NaN; the library may flag lanes that it pads
        for at in range(0, len(flat), step):
            np.matmul(flat[at : at + step].astype(np.float32), asked, out=near[at : at + step])
    out[have] = np.maximum.reduceat(near, starts, axis=0) / (127.0 * 127.0)
    return out


def among_best(groups: np.ndarray, worth: np.ndarray, count: int) -> np.ndarray:
    """Which values are among the `count` best of their group; the earlier of two that are worth the same.

    >>> import numpy as np
    >>> among_best(np.array([7, 7, 7, 9]), np.array([1.0, 3.0, 2.0, 0.0]), 2).tolist()
    [False, True, True, True]
    """
    import numpy as np

    out = np.ones(len(groups), bool)
    if len(groups) > count:
        order = np.lexsort((-worth, groups))
        ordered = groups[order]
        begins = np.r_[0, np.flatnonzero(np.diff(ordered)) + 1]
        places = np.arange(len(order)) - np.repeat(begins, np.diff(np.r_[begins, len(order)]))
        out[order] = places < count
    return out


def with_before(talk: TalkOrder, chosen: np.ndarray) -> np.ndarray:
    """The `chosen` places, ascending, and the places before them that they are read with, among people."""
    import numpy as np

    out = chosen
    for places, reads in _walked_back(talk, chosen):
        out = np.union1d(out, places[reads])
    return np.asarray(out)


def _walked_back(talk: TalkOrder, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """For each step back the place before each of `chosen`, and which of them have one in the same talk of people."""
    places, reads = chosen.copy(), talk.among_people[chosen] > 0
    for _ in range(_TURNS_BEFORE):
        reads = reads & (places > 0)
        reads[reads] = talk.same[places[reads] - 1] > 0
        places = places - reads
        yield places, reads


def reranked(
    scores: np.ndarray,
    parts: Mapping[str, np.ndarray],
    talk: TalkOrder,
    chosen: np.ndarray,
    late: LateMatches,
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """`scores` and `parts` with the late interaction of the `chosen` places in them; all others come after these."""
    import numpy as np

    out = scores - float(scores.max(initial=0.0))
    total = np.zeros(len(chosen), np.float32)
    shares = {}
    for name, part in parts.items():
        share = np.float32(LATE_SHARES.get(name, 1.0))
        # A note is about one thing, and many of its pieces are about none of it: there the vector counts in full.
        shares[name] = part * (share + (1 - share) * talk.is_note if name == "cosine" else share)
        total += shares[name][chosen]
    for name, values in late.features(talk, chosen).items():
        shares[name] = np.zeros(len(scores), np.float32)
        shares[name][chosen] = LATE_WEIGHTS[name] * standout(values, _LATE_USUAL, _LATE_SPREAD)
        total += shares[name][chosen]
    out += float(total.min(initial=0.0)) - 1.0
    out[chosen] = total
    return out, shares


@dataclass(frozen=True, slots=True)
class LateMatches:
    """How well each piece of the question is matched (columns) at some places of the talk (rows, ascending).

    `length` are the words of the passage that matches best, at each place.
    """

    places: np.ndarray
    matches: np.ndarray
    weights: np.ndarray
    length: np.ndarray

    def features(self, talk: TalkOrder, chosen: np.ndarray) -> dict[str, np.ndarray]:
        """For each chosen place how well it matches alone, read with the turns before it, and its talk at its best."""
        import numpy as np

        at = np.searchsorted(self.places, chosen)
        own = self.matches[at]
        heard = own.copy()
        for places, reads in _walked_back(talk, chosen):
            before = self.matches[np.searchsorted(self.places, places[reads])]
            heard[reads] = np.maximum(heard[reads], np.float32(_SAID_BEFORE) * before)
        excess = np.log(np.maximum(self.length[at], _SHORT_WORDS) / np.float32(_SHORT_WORDS))
        by_chance = np.float32(_LATE_PER_LENGTH) * excess * (1 - talk.in_dialogue[chosen])
        changes = np.r_[True, np.diff(talk.segment[chosen]) != 0]
        groups = np.cumsum(changes) - 1
        alone = own @ self.weights - by_chance
        return {
            "late": alone,
            "late_context": heard @ self.weights - by_chance,
            "late_talk": mean_of_best(alone, np.flatnonzero(changes), groups)[groups],
        }


def entry_scores(
    corpus: Corpus, legs: Legs, question: Question, at: np.ndarray, *, zone: tzinfo = UTC
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores of the entries at positions `at` (all of one kind), from their own words and meaning."""
    import numpy as np

    parts: dict[str, np.ndarray] = {}
    total = np.zeros(len(at), np.float32)
    if legs.cosine is not None:
        parts["cosine"] = 0.6 * _meaning(corpus, legs, at)
    if legs.bm25 is not None:
        share = 0.3 if legs.cosine is not None else 0.6
        parts["bm25"] = share * standout(legs.bm25[at], 0.0, 1.0, corpus.standing_at(at))
    if question.days:
        shift = _offset_ms(corpus, zone)
        parts["date"] = 1.5 * date_match((corpus.timestamp_ms[at] + shift) // _DAY_MS, question.days)
    for part in parts.values():
        total += part
    return total, parts


def episode_scores(
    corpus: Corpus, legs: Legs, question: Question, messages: np.ndarray, *, zone: tzinfo = UTC
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Scores of all episodes: their own, plus what the messages and facts of their stretch of talk say."""
    import numpy as np

    talk = talk_of(corpus, zone)
    total, parts = entry_scores(corpus, legs, question, talk.episodes, zone=zone)
    count = len(talk.episodes)
    if not count:
        return total, parts
    said, told = talk.by_episode, talk.facts_by_episode
    if len(said.groups):
        parts["messages"] = 0.8 * standout(
            _best_by_group(messages, said, count), _USUAL_MESSAGE, 2.0, corpus.standing_at(talk.episodes)
        )
        total = total + parts["messages"]
    if len(told.groups) and legs.cosine is not None:
        best = np.zeros(count, np.float32)
        near = np.maximum.reduceat(legs.cosine[talk.facts[told.order]], told.starts)
        best[told.groups] = np.maximum(near, np.float32(0))
        parts["facts"] = 0.4 * standout(best, 0.2, 0.12, corpus.standing_at(talk.episodes))
        total = total + parts["facts"]
    return total, parts


def date_match(day: np.ndarray, ranges: Sequence[tuple[int, int]]) -> np.ndarray:
    """How well days fit what was asked: on the day, told within days after it, or around it."""
    import numpy as np

    out = np.zeros(len(day), np.float32)
    for start, end in ranges:
        inside = (day >= start) & (day <= end)
        if end - start <= 3:
            near = np.where(
                (day > end) & (day <= end + 10), 1.0, np.where(np.abs(day - start) <= 15, 0.4, 0.0)
            )
            out = np.maximum(out, np.where(inside, 1.5, near))
        else:
            out = np.maximum(out, np.where((day >= start) & (day <= end + 3), 0.5, 0.0))
    return np.asarray(out, np.float32)


def standout(
    values: np.ndarray, usual: float, spread: float, standing: np.ndarray | None = None
) -> np.ndarray:
    """How far each value stands out from the others, in units of their spread; each stands for `standing` rows.

    A handful of rows has no spread of its own worth the name, so it is drawn toward what is usual.
    """
    import numpy as np

    if not len(values):
        return np.zeros(0, np.float32)
    pull = 8.0
    if standing is None:
        count, middle, around = float(len(values)), float(values.mean()), float(values.var())
    else:
        count = float(standing.sum())
        middle = float((values * standing).sum()) / count
        around = float((np.square(values - middle) * standing).sum()) / count
    mean = (middle * count + usual * pull) / (count + pull)
    variance = (around * count + spread * spread * pull) / (count + pull)
    return np.asarray((values - mean) / math.sqrt(variance + 1e-9), np.float32)


def mean_of_best(values: np.ndarray, starts: np.ndarray, segment: np.ndarray) -> np.ndarray:
    """Per segment the mean of its best few values, without sorting."""
    import numpy as np

    if not len(starts):
        return np.zeros(0, np.float32)
    left = values
    total = np.zeros(len(starts), np.float32)
    last = np.maximum.reduceat(left, starts)
    total += last
    for _ in range(_TOP_OF_TALK - 1):
        left = np.where(left == last[segment], -np.inf, left)
        best = np.maximum.reduceat(left, starts)
        last = np.where(np.isfinite(best), best, last).astype(np.float32)
        total += last
    return np.asarray(total / _TOP_OF_TALK, np.float32)


def top(scores: np.ndarray, count: int, among: np.ndarray | None = None) -> np.ndarray:
    """Positions of the best `count` scores, best first, of those `among` which to look (a mask; all unless given).

    Equal ones come in their own order, -inf never.
    """
    import numpy as np

    at = None if among is None or among.all() else np.flatnonzero(among)
    values = scores if at is None else scores[at]
    count = min(count, len(values))
    if count <= 0:
        return np.zeros(0, np.int64)
    if count < len(values):
        chosen = np.flatnonzero(values >= np.partition(values, len(values) - count)[len(values) - count])
    else:
        chosen = np.arange(len(values))
    chosen = chosen[np.isfinite(values[chosen])]
    best = chosen[np.argsort(-values[chosen], kind="stable")][:count]
    return np.asarray(best if at is None else at[best])


def newer_first(
    ranked: Sequence[int], scores: np.ndarray, talk: TalkOrder, near: np.ndarray, *, older: bool = False
) -> tuple[list[int], np.ndarray]:
    """The places `ranked`, best first, with what one sender said later before what they said earlier on the same matter.

    With `older` it is the other way round. On one matter are two messages that lie near each other (`near`, by their numbers in `ranked`); they change places only where they answer about as well.
    The scores they get are those of their new places.
    """
    order = list(ranked)
    number = {place: n for n, place in enumerate(ranked)}
    for start in range(1, len(order)):
        at = start
        while at > 0:
            early, late = order[at - 1], order[at]
            if (
                (talk.day[late] >= talk.day[early] if older else talk.day[late] <= talk.day[early])
                or talk.sender[late] != talk.sender[early]
                or float(scores[early] - scores[late]) >= _ALIKE_SCORES
                or near[number[early], number[late]] < _ONE_MATTER
            ):
                break
            order[at - 1], order[at] = late, early
            at -= 1
    out = scores.copy()
    out[order] = scores[list(ranked)]
    return order, out


def changed_first(
    ranked: Sequence[int],
    scores: np.ndarray,
    talk: TalkOrder,
    near: np.ndarray,
    tells_change: Callable[[int], bool],
    *,
    older: bool = False,
) -> tuple[list[int], np.ndarray]:
    """The places `ranked`, best first, with what people said before a change right behind who says that it changed.

    That is what lies `near` such a place (by their numbers in `ranked`; `tells_change`, asked only where it matters), was said on an earlier day by whomever, and answers not much
    better. With `older` it stands right before it. The scores they get are those of their new places.
    """
    order = list(ranked)
    is_near = near >= _CHANGED_MATTER
    for number, change in enumerate(ranked):
        before = [
            place
            for n, place in enumerate(ranked)
            if is_near[number, n]
            and talk.day[place] < talk.day[change]
            and not talk.machine[[place, change]].any()
            and (order.index(place) > order.index(change)) == older
            and abs(float(scores[place] - scores[change])) < _CHANGED_SCORES
        ]
        if before and tells_change(change):
            order = [place for place in order if place not in before]
            at = order.index(change) + (not older)
            order[at:at] = before
    out = scores.copy()
    out[order] = scores[list(ranked)]
    return order, out


def renamed_first(
    ranked: Sequence[int],
    scores: np.ndarray,
    talk: TalkOrder,
    ends: Callable[[int, int], bool],
    *,
    older: bool = False,
) -> tuple[list[int], np.ndarray]:
    """The places `ranked`, best first, with what people say is over right behind who says so.

    `ends` says of a later place and an earlier one whether the one says so of what the other names. With `older` it
    stands right before it. The scores they get are those of their new places.
    """
    order = list(ranked)
    for place in ranked:
        at = order.index(place)
        for goal in range(at):
            other = order[goal]
            early, late = (place, other) if older else (other, place)
            if (
                talk.day[early] < talk.day[late]
                and not talk.machine[[early, late]].any()
                and ends(late, early)
            ):
                order.insert(goal, order.pop(at))
                break
    out = scores.copy()
    out[order] = scores[list(ranked)]
    return order, out


def with_answers(
    ranked: Sequence[int], talk: TalkOrder, usable: np.ndarray
) -> tuple[list[int], dict[int, int]]:
    """The places `ranked`, each that asks with what was said right after it behind it; for each such answer its question.

    An answer is the next turn of the same session, by somebody else, that does more than ask back.
    """
    order: list[int] = []
    answers: dict[int, int] = {}
    for place in ranked:
        if place in answers:
            continue
        order.append(place)
        after = place + 1
        if (
            talk.question[place]
            and after < len(talk)
            and talk.same[place]
            and talk.sender[after] != talk.sender[place]
            and not talk.only_asks[after]
            and usable[after]
            and after not in order
        ):
            order.append(after)
            answers[after] = place
    return order, answers


def spread(ranked: Sequence[int], scores: np.ndarray, talk: TalkOrder, count: int) -> list[int]:
    """The best `count` of the places `ranked`; from its third on, a session's count less and less.

    What a list asks for was said at many times; the session that speaks of it most is not all of it.
    """
    worth = {place: float(scores[place]) for place in ranked}
    chosen: list[int] = []
    while worth and len(chosen) < count:
        best = max(worth, key=worth.__getitem__)
        chosen.append(best)
        del worth[best]
        session = talk.segment[best]
        if (talk.segment[chosen] == session).sum() >= _OF_ONE_TALK:
            for place in worth:
                if talk.segment[place] == session:
                    worth[place] -= _SAID_TOGETHER
    return chosen


_OWN_SCORE = 0.7  # what a row's own score counts, beside how little it repeats others


def diverse(scores: np.ndarray, vectors: np.ndarray, count: int) -> list[int]:
    """Positions of `count` rows that score well and do not repeat each other (maximal marginal relevance)."""
    import numpy as np

    chosen: list[int] = []
    repeated = np.full(len(scores), 0.0, np.float32)
    open_ = np.ones(len(scores), bool)
    while len(chosen) < min(count, len(scores)):
        worth = np.where(open_, _OWN_SCORE * scores - (1 - _OWN_SCORE) * repeated, -np.inf)
        best = int(np.argmax(worth))
        chosen.append(best)
        open_[best] = False
        repeated = np.maximum(repeated, np.einsum("ij,j->i", vectors, vectors[best]))
    return chosen


def _best_by_group(values: np.ndarray, by: RowsByGroup, count: int) -> np.ndarray:
    """Per group half its best value and half the mean of its best few; what is usual, or the lowest, where it is empty."""
    import numpy as np

    ordered = values[by.order]
    out = np.full(count, max(_USUAL_MESSAGE, float(ordered.min())), np.float32)
    best, several = np.maximum.reduceat(ordered, by.starts), mean_of_best(ordered, by.starts, by.segment)
    out[by.groups] = 0.5 * best + 0.5 * several
    return out


def _meaning(corpus: Corpus, legs: Legs, at: np.ndarray) -> np.ndarray:
    """How far the meaning of each row at `at` stands out.

    A row that waits for its vector is guessed from its words, so that what was just written is not ranked
    behind everything that happens to be embedded already.
    """
    import numpy as np

    assert legs.cosine is not None
    values = np.asarray(legs.cosine[at])
    have = corpus.has_vector[at]
    if have.all():
        return standout(values, 0.1, 0.12, corpus.standing_at(at))
    out = np.zeros(len(at), np.float32)
    out[have] = standout(values[have], 0.1, 0.12, corpus.standing_at(at[have]))
    if legs.bm25 is not None:
        words = standout(legs.bm25[at], 0.0, 1.0, corpus.standing_at(at))
        out[~have] = np.clip(words[~have], -0.5, 2.5)
    return out


def _offset_ms(corpus: Corpus, zone: tzinfo) -> int:
    if not len(corpus):
        return 0
    latest = datetime.fromtimestamp(max(0, int(corpus.timestamp_ms.max())) / 1000, UTC)
    offset = latest.astimezone(zone).utcoffset()
    return int(offset.total_seconds() * 1000) if offset else 0
