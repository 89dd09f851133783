"""How surely a row answers a question, as one calibrated number for scores and the injection gate.

Ranking says which row is best; only an absolute measure can say that even the best is not good enough.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from cairn.budget import kept
from cairn.index.corpus import Row
from cairn.language import words
from cairn.language.asking import is_remark, read, small_words

if TYPE_CHECKING:
    import numpy as np


def says_nothing(text: str) -> bool:
    """Whether a text holds nothing but small talk, so that neither asking nor injecting it helps anyone.

    >>> says_nothing("OK, thanks a lot!"), says_nothing("OK, port 5433")
    (True, False)
    >>> says_nothing("ok " * 100), says_nothing("ok " * 100 + "port 5433")
    (True, False)
    """
    # The first words of a long text nearly always say something, and then the rest need not be read.
    head = text[:_HEAD_CHARS].rpartition(" ")[0] if len(text) > _HEAD_CHARS else ""
    return ((not head or _is_small_talk(head)) and _is_small_talk(text)) or is_remark(text)


def asks_nothing(prompt: str) -> bool:
    """Whether a prompt is small talk, or a remark on the talk itself: there is nothing to look for.

    >>> asks_nothing("Wow, that was quick"), asks_nothing("Where was that?")
    (True, False)
    """
    return says_nothing(prompt) or is_remark(prompt, by_prompt=True)


def _is_small_talk(text: str) -> bool:
    return all(token in small_words() or token in words.stop_words() for token in _token_set(text))


def fits_of(
    cosine: np.ndarray | None,
    covered: np.ndarray,
    late: np.ndarray | None = None,
    *,
    length: np.ndarray | None = None,
    words_asked: int = 8,
    trust: float = 1.0,
    is_named: bool = False,
    is_for_anyone: bool = False,
    ease: float = 0.0,
    doubt: float = 0.0,
    by_name: np.ndarray | None = None,
    anew: float = 0.0,
    has_blanks: bool = True,
) -> np.ndarray:
    """How surely rows answer, 0 to 1, from everything that is known of each: one calibration for every kind of row.

    Args:
        cosine: How near they are in meaning; None where only words are known.
        covered: Which share of the question's words they hold, rare words for more.
        late: How well the word pieces of the question are matched; 0 where nobody looked.
        length: How many words they have: the longer a text, the more of anything it holds by chance.
        words_asked: How many words of the question say something: the share of two is worth less than that of ten.
        is_named: Whether the question names somebody who speaks in this memory: then it is rather meant for it.
        is_for_anyone: Whether it may need nothing remembered, like an order of work: then a row must fit the better.
        trust: How far nearness is believed, 0 to 1: at 0 only words count.
        ease: How much sooner a row is believed because there are few of them (`ease_of`); below 0 the later.
        doubt: How much later nearness is believed because the question's words are not this memory's (`doubt_of`).
        by_name: How far each row is near by the name of whom is asked about and by nothing else, 0 to 1 (`by_name_alone`).
        anew: How much sooner what was said in passing is believed, because it is asked for in other words (`anew_of`).
        has_blanks: Whether the question has words between blanks; pairs of characters are shared by chance.
    """
    import numpy as np

    if by_name is not None:
        covered = covered * (1.0 - by_name)
    # By words alone, half of a question's words is little, the less the fewer there are, and all of them is enough.
    few = max(0.0, ease)
    passing = np.float32(anew)
    # The name of who speaks is said with all their words; where there are few rows it counts as one of the words. The
    # share of many words is sure enough without that.
    name = 0.5 * few * is_named
    spoken = np.asarray(
        ((covered * words_asked + name) / max(1.0, words_asked + name))
        ** (
            (1.12 + 0.5 / max(1, words_asked) + 0.5 * is_for_anyone)
            / (1.0 + (0.2 * few + passing * has_blanks) * min(1.0, 4.0 / max(1, words_asked)))
        ),
        np.float32,
    )
    if cosine is None:
        return spoken
    share = (covered * words_asked + _USUAL_SHARE * _USUAL_WORDS) / (words_asked + _USUAL_WORDS)
    excess = np.zeros(len(share), np.float32)
    if length is not None:
        excess = np.log(np.maximum(length, _SHORT_WORDS) / np.float32(_SHORT_WORDS), dtype=np.float32)
    # A model that knows half of the language finds all of it near: few rows do not make that better.
    known_well = max(0.0, 2.0 * trust - 1.0)
    sooner = (ease - doubt) * known_well
    lean = (
        np.float32((_NAMED + 0.4 * sooner) * is_named + sooner - _FOR_ANYONE * is_for_anyone)
        - np.float32(_PER_LENGTH) * excess
        + passing * np.float32(known_well)
    )
    if by_name is not None:
        lean = lean - np.float32(_NAME_ALONE) * by_name
    known = _sure(_CLOSE, lean, cosine, share)
    if late is not None:
        matched = _sure(_MATCHED, lean, cosine, share, late)
        known = np.where(late > 0, matched, known)
    return np.asarray(trust * known + (1.0 - trust) * spoken)


# What a cosine, the share of words covered and the matched pieces count for, and what they must outweigh together.
# Fitted on questions that a memory answers against questions of other memories, on two kinds of memory, so that 97 %
# of the former reach search.injection_min_score as it is set (docs/benchmarks.md). What length takes off was chosen so that
# one bar serves short turns and long replies alike.
_CLOSE = (14.2, 7.6, 6.7)
_MATCHED = (12.0, 6.0, 5.0, 8.4)
_SHORT_WORDS, _PER_LENGTH = 20, 0.4
_NAMED, _FOR_ANYONE = 0.8, 1.5
_USUAL_SHARE, _USUAL_WORDS = 0.3, 3
# The best of many rows is good by chance. Below so many, each row fewer by a factor of e is worth so much: fitted on
# memories cut down to 1, 3, 10, 30 and 100 messages (docs/benchmarks.md).
_MANY_ROWS, _PER_SIZE = 80, 0.5
# Up to so many rows a question about oneself is believed sooner; from the first number on by no more (docs/benchmarks.md).
_MANY_SAID = 370
# In a large memory something is near to whatever is asked all day; a question about nobody here must do this much better,
# and this much more if none of its words was ever said here.
_UNMEANT, _UNHEARD = 0.5, 2.0
# Beyond this one fit is as good as another.
_SUREST = 0.9999
# How much later nearness is believed that comes from a name alone: about what the name makes of it.
_NAME_ALONE, _KEPT_NAME_ALONE = 2.5, 5.0
# Governed memories: what a cosine counts for, standing out from the rest, being one person's, and lacking what is asked for;
# and what they must outweigh. Fitted on nine made-up memories, each and each kind left out, so that one in four that
# fits as well as the bar answers (docs/benchmarks.md).
_KEPT_CLOSE, _KEPT_AHEAD, _OF_PERSON, _LACKING, _KEPT_BAR = 8.5, 4.5, 0.3, 2.5, 3.8
# What matched pieces and covered words count for beside a cosine, in how far one stands out, and the least that the best of
# the rest is taken for: in a memory of one or two rows it is near by no chance.
_PIECES, _COVERED, _USUAL_REST = 0.9, 0.25, 0.6
# What pieces match that nobody looked at, by the cosine.
_PIECES_AT, _PIECES_PER_COSINE = 0.19, 0.7
# In log odds: how little behind the best governed memory another may be and be told beside it.
_ABOUT_AS_SURE = 0.9


def ease_of(rows: int, *, is_meant: bool) -> float:
    """How much sooner a row of a memory of so many rows is believed to answer, for `fits_of`; 0 for many rows.

    A question that is about somebody who speaks here, or about the one who asks, is meant for a memory; what else is
    asked all day gets half, and in a large memory less than nothing.

    >>> ease_of(1, is_meant=True) > ease_of(10, is_meant=True) > ease_of(80, is_meant=True) == 0
    True
    >>> ease_of(1, is_meant=False) > 0 > ease_of(80, is_meant=False) == ease_of(8000, is_meant=False)
    True
    """
    many = _crowd(rows)
    full = _PER_SIZE * math.log(_MANY_ROWS) * (1.0 - many)
    return full if is_meant else full / 2 - _UNMEANT * many


def anew_of(rows: int) -> float:
    """How much sooner what was said is believed where somebody asks about themself, for `fits_of`; 0 for many rows.

    Weeks later one asks in other words than one used, and nobody else's talk is meant. Of a handful of rows `ease_of` believes
    enough; among many, something else is near as well.

    >>> 0 == anew_of(1) < anew_of(3) < anew_of(10) == anew_of(80) > anew_of(200) > anew_of(370) == anew_of(8000) == 0
    True
    """
    few, many = math.log(max(1, rows)), math.log(_MANY_SAID)
    return _PER_SIZE * max(0.0, min(few, many - math.log(_MANY_ROWS), many - few))


def doubt_of(rows: int, unheard: float) -> float:
    """How much later nearness is believed where a question is about nobody here and a share of its words is in no row.

    >>> 0 == doubt_of(1, 1.0) < doubt_of(10, 1.0) < doubt_of(80, 1.0) == doubt_of(8000, 1.0)
    True
    """
    return _UNHEARD * unheard * _crowd(rows)


def by_name_alone(rows: int) -> float:
    """How far a row that shares a name with the question and no other word is near by that alone, for `fits_of`.

    A name tells whom it is about, not what of them is asked; among few rows it is all that makes one near. Among many, few
    hold it, and it tells much.

    >>> 1 == by_name_alone(1) > by_name_alone(10) > by_name_alone(80) == 0
    True
    """
    return 1.0 - _crowd(rows)


def _crowd(rows: int) -> float:
    """0 for one row, 1 where there are so many that the best of them is good by chance."""
    return min(1.0, math.log(max(1, rows)) / math.log(_MANY_ROWS))


def _sure(weights: Sequence[float], lean: np.ndarray, *signals: np.ndarray) -> np.ndarray:
    import numpy as np

    total = lean - np.float32(weights[-1])
    for weight, signal in zip(weights, signals, strict=False):
        total += np.float32(weight) * signal
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(total, -30.0, 30.0))), np.float32)


def fits_of_kept(
    cosine: np.ndarray,
    covered: np.ndarray,
    late: np.ndarray,
    *,
    rows: int,
    length: np.ndarray,
    lacking: np.ndarray,
    is_for_anyone: bool = False,
    of_person: bool = False,
    by_name: np.ndarray | None = None,
) -> np.ndarray:
    """How surely governed memories answer, 0 to 1: by how near the best ones are, and by how far they are ahead of the rest.

    Each says one thing in few words, often otherwise than it is asked for: most that answer are not near, but nearer than
    anything else that is kept. Where several are as near, mostly none answers.

    Args:
        cosine: How near they are in meaning.
        covered: Which share of the question's words they hold, rare words for more.
        late: How well the word pieces of the question are matched; 0 where nobody looked.
        rows: How many are kept there: the best of many is near by chance.
        length: How many words they have.
        lacking: Which of them do not hold what is asked for, a number or a name (bool).
        is_for_anyone: Whether the question may need nothing remembered.
        of_person: Whether they are one person's, which is asked for in other words than it is told.
        by_name: How far each is near by the name of whom is asked about and by nothing else.
    """
    import numpy as np

    if by_name is not None:
        covered = covered * (1.0 - by_name)
    pieces = np.where(late > 0, late, _PIECES_AT + _PIECES_PER_COSINE * cosine)
    worth = cosine + _PIECES * pieces + _COVERED * covered
    rest = max(_USUAL_REST, float(np.partition(worth, -2)[-2])) if len(worth) > 1 else _USUAL_REST
    lean = (
        _PER_SIZE * math.log(_MANY_ROWS / max(1, rows)) + _OF_PERSON * of_person - _FOR_ANYONE * is_for_anyone
    )
    excess = np.log(np.maximum(length, _SHORT_WORDS) / _SHORT_WORDS)
    total = lean - _KEPT_BAR + _KEPT_CLOSE * cosine + _KEPT_AHEAD * (worth - rest)
    total = total - _LACKING * lacking - _PER_LENGTH * excess
    if by_name is not None:
        total = total - _KEPT_NAME_ALONE * by_name
    return np.asarray(1.0 / (1.0 + np.exp(-np.clip(total, -30.0, 30.0))), np.float32)


def beside(best: float, least: float) -> float:
    """How well a governed memory has to fit to be told beside one that fits `best`, where `least` is the bar for that one.

    About as surely as the best, or half as far above the bar, in log odds: what is near because all that is kept here is
    of one matter stays far behind what answers, and two that answer together are close.

    >>> [round(beside(best, 0.35), 2) for best in (0.98, 0.5, 0.4)], beside(0.2, 0.35)
    ([0.84, 0.29, 0.21], 0.35)
    """
    if best <= least or least <= 0.0 or least >= 1.0:
        return least
    surest, bar = _log_odds(min(best, _SUREST)), _log_odds(least)
    return 1.0 / (1.0 + math.exp(-min((surest + bar) / 2, surest - _ABOUT_AS_SURE)))


def _log_odds(share: float) -> float:
    return math.log(share / (1.0 - share))


def fit_by_words(query: str, text: str, held: Mapping[str, int]) -> float:
    """How surely a text answers by its words alone, on the scale of `fits_of`; `held` says how common each word is.

    An order of work asks for nothing: what only holds its words among many others does not fit it.

    >>> fit_by_words("run the tests", "make test runs the tests", {}) > 0.35
    True
    >>> fit_by_words("run the tests", "The import runs on the old server, where the tests of the parser fail.", {}) < 0.35
    True
    """
    import numpy as np

    read_query = read(query)
    asked = words.query_terms(query, limit=_MOST_WORDS)
    weights = {
        term: rarity(held.get(term, 0)) for term in asked if term not in read_query.fillers
    } or dict.fromkeys(asked, 1.0)
    have = _token_set(text)
    covered = sum(weight for term, weight in weights.items() if term in have) / (sum(weights.values()) or 1.0)
    if read_query.is_for_anyone:
        told = [word for word in have if word.isalpha() and word not in words.stop_words()]
        about_it = sum(word in weights for word in told) / max(1, len(told))
        covered *= min(1.0, _ABOUT_THE_ORDER * about_it)
    share = np.array([covered], np.float32)
    return float(fits_of(None, share, words_asked=len(weights), is_for_anyone=read_query.is_for_anyone)[0])


def rarity(rows: int) -> float:
    """What a word counts for that so many rows hold."""
    return float((1.0 + rows) ** -0.3)


def standing(memory: Row, now: datetime) -> float:
    """What a governed memory is worth beside its fit, 0.7 to 1: recent, important, trusted and pinned ones more."""
    age = (now.timestamp() - memory.timestamp_ms / 1000) / 86_400 if memory.timestamp_ms else 365.0
    recency = float(0.5 ** (max(0.0, age) / 30))
    importance = {"low": 0.0, "medium": 0.5, "high": 1.0}.get(
        str(memory.fields.get("importance", "medium")), 0.5
    )
    try:
        confidence = min(1.0, max(0.0, float(memory.fields.get("confidence", 0.5))))
    except (TypeError, ValueError):
        confidence = 0.5
    pinned = str(memory.fields.get("pinned", "")).lower() == "true"
    worth = 0.3 * recency + 0.25 * importance + 0.25 * confidence + 0.2 * pinned
    return 0.7 + 0.3 * worth


_SHORT_CHARS, _HEAD_CHARS = 2000, 200
_ABOUT_THE_ORDER = 1.5  # of a text's words so many times as many count, until all do
_MOST_WORDS = 64


def _token_set(text: str) -> frozenset[str]:
    # Long texts are not kept: thousands of episodes with their words would be hundreds of megabytes.
    return _kept_token_set(text) if len(text) <= _SHORT_CHARS else frozenset(words.tokens(text))


@kept("the words of rows", 6 * 1024 * 1024)
def _kept_token_set(text: str) -> frozenset[str]:
    return frozenset(words.tokens(text))


def falling(fits: Sequence[float]) -> list[float]:
    """Fits of rows in the order they are ranked, as scores that never rise from one to the next.

    Where a row fits better than those before it, they show the mean of all of them: the order is by more evidence than
    the fit, which stays what lists are compared by.

    >>> falling([0.5, 0.25, 0.75, 0.25])
    [0.5, 0.5, 0.5, 0.25]
    """
    groups: list[tuple[float, int]] = []
    for fit in fits:
        total, count = fit, 1
        while groups and groups[-1][0] * count < total * groups[-1][1]:
            before, many = groups.pop()
            total, count = total + before, count + many
        groups.append((total, count))
    return [total / count for total, count in groups for _ in range(count)]


def expired(row: Row, now: datetime) -> bool:
    """Whether the row's time is over; a time that cannot be read never ends."""
    if not (row.fields.get("expires_at") or row.fields.get("end_time")):
        return False
    over = (moment_of(row.fields.get("expires_at")), end_of(row.fields.get("end_time")))
    return any(moment is not None and moment < now for moment in over)


def moment_of(value: object) -> datetime | None:
    """A time as an entry has it, if it can be read."""
    if not value:
        return None
    try:
        moment = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def end_of(value: object) -> datetime | None:
    """When a time is over: a bare day counts to its end.

    >>> str(end_of("2026-11-30"))
    '2026-12-01 00:00:00+00:00'
    """
    moment = moment_of(value)
    return moment and (moment + timedelta(days=1) if len(str(value)) == len("2026-11-30") else moment)
