"""The deterministic writer: a cell told as an episode, without a model and without losing a word.

Content holds every turn as it was said, under a line that says when and who; what a relative time meant
stands in brackets behind the turn, so the words themselves stay untouched. Subject and Summary are chosen
from the turns: the sentences that say most about the rest and least about each other.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from cairn.language import dates, prose, tongues, words
from cairn.language.dates import TimeMention
from cairn.language.prose import Spoken
from cairn.talk.turns import called, who_said
from cairn.types import Message

SUBJECT_CHARS = 90
SUMMARY_SENTENCES = 4
_SUMMARY_CHARS = 900
_SENTENCE_CHARS = 280
_SCORED_CHARS = 4000
_DATED_CHARS = 50_000
_SCORED_SENTENCES = 600
_ENDS = (".", "!", "?", "…", "。", "！", "？", '"', "”", ")", "]", "»")
_WEIGHTS = {"user": 1.3, "tool": 0.5}
_SPECIFIC = re.compile(r"\d+|(?<=[a-z,;] )[A-ZÀ-Þ]\w+")


@dataclass(frozen=True, slots=True)
class EpisodeText:
    """What an episode says: a headline, the gist, and the whole."""

    subject: str
    summary: str
    content: str


@functools.cache
def _opening() -> re.Pattern[str]:
    return re.compile(f"^(?:{tongues.every_body('words', 'openings')})", re.IGNORECASE)


def told(messages: Sequence[Message], zone: ZoneInfo) -> EpisodeText:
    """The episode of `messages`, the same whenever it is told."""
    times = [_times(message, zone) for message in messages]
    found = {id(message): named for message, named in zip(messages, times, strict=True)}
    chosen = [
        (message, _quoted(message, begin, stop, found[id(message)]))
        for message, begin, stop in _best_sentences(messages)
    ]
    return EpisodeText(
        _subject(messages, chosen), _summary(messages, chosen, zone), transcript(messages, zone, times)
    )


def _times(message: Message, zone: ZoneInfo) -> list[TimeMention]:
    """The times a message names; a pasted book is looked at for its first pages only."""
    return dates.mentions(message.text[:_DATED_CHARS], said_at(message.timestamp, zone))


def _quoted(message: Message, begin: int, stop: int, found: Sequence[TimeMention]) -> str:
    """A sentence of a message as one line that ends, with what its relative times meant in the whole message."""
    stop = min(stop, begin + _SENTENCE_CHARS + _SENTENCE_CHARS)
    inside = [
        replace(one, begin=one.begin - begin, stop=one.stop - begin)
        for one in found
        if begin <= one.begin and one.stop <= stop
    ]
    line = _clipped(" ".join(dates.beside(message.text[begin:stop], inside).split()), _SENTENCE_CHARS)
    return line if line.endswith(_ENDS) else f"{line}."


def transcript(
    messages: Sequence[Message], zone: ZoneInfo, times: Sequence[Sequence[TimeMention]] | None = None
) -> str:
    """Every turn in order, under a headline of when and who; a new day gets a line of its own.

    `times` are those that the messages name, where they are known already.
    """
    lines = [_headline(messages, zone)]
    day = said_at(messages[0].timestamp, zone).date()
    tools = called(messages)
    for number, message in enumerate(messages):
        at = said_at(message.timestamp, zone)
        if at.date() != day:
            day = at.date()
            lines.append(f"({at:%A}, {dates.shown(day, day)})")
        lines.append(turn(message, zone, tools, times[number] if times is not None else None))
    return "\n\n".join(lines)


def turn(
    message: Message,
    zone: ZoneInfo,
    tools: dict[str, str] | None = None,
    times: Sequence[TimeMention] | None = None,
) -> str:
    """One message as a paragraph: who, the words as said, what relative times meant, and the tools called."""
    text = message.text
    who = who_said(message, tools or {})
    parts = [f"{who}: {text}" if text else ""]
    meant = _meanings(_times(message, zone) if times is None else times)
    if meant:
        parts.append(f"[{meant}]")
    parts += [f"[{message.speaker} called {call.name}: {call.arguments}]" for call in message.tool_calls]
    spoken = " ".join(part for part in parts if part)
    return spoken or f"{who}: (nothing said)"


def said_at(timestamp: int, zone: ZoneInfo) -> datetime:
    """A message's time (epoch milliseconds) in the display zone."""
    return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=timestamp)).astimezone(zone)


def speakers(messages: Sequence[Message]) -> list[str]:
    """Who spoke, each once, in order; tools are not speakers unless nobody else is."""
    people = dict.fromkeys(message.speaker for message in messages if message.role != "tool")
    return list(people or dict.fromkeys(message.speaker for message in messages))


def joined(names: Sequence[str]) -> str:
    """Names as a sentence lists them; a crowd is cut short."""
    shown = [*names[:6], f"{len(names) - 6} others"] if len(names) > 7 else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"


def _headline(messages: Sequence[Message], zone: ZoneInfo) -> str:
    times = [message.timestamp for message in messages]
    first, last = said_at(min(times), zone), said_at(max(times), zone)
    names = speakers(messages)
    verb = "talked" if len(names) > 1 else "said"
    until = ""
    if last.date() != first.date():
        until = f" to {last:%A}, {dates.shown(last.date(), last.date())}, {last:%H:%M}"
    elif f"{last:%H:%M}" != f"{first:%H:%M}":
        until = f" to {last:%H:%M}"
    day = dates.shown(first.date(), first.date())
    return f"On {first:%A}, {day}, {first:%H:%M}{until} ({zone.key}), {joined(names)} {verb}:"


def _meanings(times: Sequence[TimeMention]) -> str:
    """What the relative times in a message meant."""
    meant: dict[str, str] = {}
    for mention in times:
        if not mention.is_absolute:
            meant.setdefault(
                mention.words.lower(), f"{mention.words}: {dates.shown(mention.start, mention.end)}"
            )
    return "; ".join(meant.values())


def _subject(messages: Sequence[Message], chosen: Sequence[tuple[Message, str]]) -> str:
    if not chosen:
        first = next((line for message in messages for line in message.text.splitlines() if line.strip()), "")
        return (
            _clipped(" ".join(first.split()), SUBJECT_CHARS)
            or f"A few words from {joined(speakers(messages))}"
        )
    message, sentence = chosen[0]
    sentence = _opening().sub("", sentence)
    sentence = sentence[:1].upper() + sentence[1:]
    return _clipped(f"{message.speaker}: {sentence}", SUBJECT_CHARS)


def _summary(messages: Sequence[Message], chosen: Sequence[tuple[Message, str]], zone: ZoneInfo) -> str:
    first = said_at(messages[0].timestamp, zone).date()
    opening = f"{joined(speakers(messages))}, {dates.shown(first, first)}."
    order = {id(message): n for n, message in enumerate(messages)}
    picked: list[tuple[Message, str]] = []
    for message, sentence in chosen:
        if sum(len(text) for _, text in picked) + len(sentence) <= _SUMMARY_CHARS:
            picked.append((message, sentence))
    picked.sort(key=lambda one: order[id(one[0])])
    parts = [opening]
    last: Message | None = None
    for message, sentence in picked:
        # Two sentences of one turn belong together; everything else says whose it is.
        parts.append(sentence if message is last else f"{message.speaker}: {sentence}")
        last = message
    return " ".join(parts)


def _best_sentences(messages: Sequence[Message]) -> list[tuple[Message, int, int]]:
    """Where the sentences stand that speak best for the cell, the best first, no two saying the same."""
    candidates = list(_candidates(messages))
    if not candidates:
        return []
    # What several turns speak of is the topic; a word of one turn alone, however rare, is an aside.
    turns = Counter(word for bag in _by_turn(candidates) for word in bag)
    scored = []
    for position, (message, said, vocabulary) in enumerate(candidates):
        shared = sum(math.log(turns[word]) + 0.25 for word in vocabulary)
        weight = shared / math.sqrt(len(vocabulary) + 4)
        weight *= 1.0 + 0.1 * min(len(_SPECIFIC.findall(said.text)), 2)
        weight *= _WEIGHTS.get(message.role, 1.0)
        if tongues.every_pattern("words", "me").search(said.text):
            weight *= 1.1
        elif tongues.every_pattern("words", "you").search(said.text):
            weight *= 0.8
        if said.text.endswith(("?", "？")):
            weight *= 0.5
        if tongues.every_pattern("words", "greetings").match(said.text):
            weight *= 0.4
        scored.append((weight, -position, message, said, vocabulary))
    scored.sort(key=lambda one: one[:2], reverse=True)
    return _apart(scored)


def _by_turn(candidates: Sequence[tuple[Message, Spoken, frozenset[str]]]) -> Iterator[set[str]]:
    bags: dict[int, set[str]] = {}
    for message, _, vocabulary in candidates:
        bags.setdefault(id(message), set()).update(vocabulary)
    return iter(bags.values())


def _apart(
    scored: Sequence[tuple[float, int, Message, Spoken, frozenset[str]]],
) -> list[tuple[Message, int, int]]:
    chosen: list[tuple[Message, int, int]] = []
    taken: list[frozenset[str]] = []
    for _, _, message, said, vocabulary in scored:
        if any(len(vocabulary & other) * 2 > min(len(vocabulary), len(other)) for other in taken):
            continue
        chosen.append((message, said.begin, said.stop))
        taken.append(vocabulary)
        if len(chosen) == SUMMARY_SENTENCES:
            break
    return chosen


def _candidates(messages: Sequence[Message]) -> Iterator[tuple[Message, Spoken, frozenset[str]]]:
    count = 0
    for message in messages:
        for said in prose.spoken(message.text[:_SCORED_CHARS]):
            vocabulary = words.word_set(said.text[:_SENTENCE_CHARS]) - words.stop_words()
            if len(vocabulary) >= 2:
                yield message, said, vocabulary
                count += 1
            if count >= _SCORED_SENTENCES:
                return


def _clipped(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    cut = text[: limit - 1]
    return (cut.rsplit(" ", 1)[0] if " " in cut[limit // 2 :] else cut).rstrip(" ,;:-") + "…"
