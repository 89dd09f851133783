"""The deterministic writer: a cell told as an episode, without a model and without losing a word.

Content holds every turn as it was said, under a line that says when and who; what a relative time meant
stands in brackets behind the turn, so the words themselves stay untouched. Subject and Summary are chosen
from the turns: the sentences that say most about the rest and least about each other.

Since every message has a paragraph of its own ("who: the words [what a relative time meant]"), an episode that was
edited by hand can be laid beside the messages it was made of (`corrections_in`): a message whose paragraphs are there
says what it said, one whose paragraphs are others was corrected, and one without any was taken out. Blanks and line ends
do not count. In doubt a message is as it was said.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from difflib import SequenceMatcher
from zoneinfo import ZoneInfo

from cairn.language import dates, prose, tongues, words
from cairn.language.dates import TimeMention
from cairn.language.prose import Spoken
from cairn.types import Message

DETERMINISTIC = "deterministic"
SUBJECT_CHARS = 90
SUMMARY_SENTENCES = 4
_SUMMARY_CHARS = 900
_SENTENCE_CHARS = 280
_SCORED_CHARS = 4000
_DATED_CHARS = 50_000
_SCORED_SENTENCES = 600
_ENDS = (".", "!", "?", "…", "。", "！", "？", '"', "”", ")", "]", "»")
_LEAST_ALIKE = 0.4
_NAMED = re.compile(r"[^:\n]{1,80}:\s+")
_HEADLINE = re.compile(r"On \w+, .+ (?:said|talked):")
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
    texts = [message.text[:_DATED_CHARS] for message in messages]
    times = [dates.settled(_times(message, zone), texts) for message in messages]
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
    meant = meanings(_times(message, zone) if times is None else times)
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


def is_headline(paragraph: str) -> bool:
    """Whether a paragraph is the first line of a transcript: when, where and who.

    >>> is_headline("On Monday, 4 May 2026, 09:00 (UTC), Ann and Ben talked:"), is_headline("On Monday, at noon:")
    (True, False)
    """
    return _HEADLINE.fullmatch(paragraph) is not None


def meanings(times: Sequence[TimeMention]) -> str:
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
    by_turn: dict[int, set[str]] = {}
    for message, _, vocabulary in candidates:
        by_turn.setdefault(id(message), set()).update(vocabulary)
    turns = Counter(word for bag in by_turn.values() for word in bag)
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


def called(messages: Sequence[Message]) -> dict[str, str]:
    """The names of the tools called in `messages`, by the id of the call."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def who_said(message: Message, tools: Mapping[str, str]) -> str:
    """The name a turn begins with; a tool's answer goes by the name of the tool."""
    if message.role != "tool":
        return message.speaker
    return f"{tools.get(message.tool_call_id or '') or message.speaker} answered"


# ---------------------------------------------------------------- what a person has corrected in it


def corrections_in(content: str, messages: Sequence[Message]) -> dict[str, str | None]:
    """Which of `messages` the Content of their episode tells otherwise, and how."""
    tools = called(messages)
    spoken = [message for message in messages if message.text.strip()]
    if _stand(content, [f"{who_said(message, tools)}: {message.text}" for message in spoken]):
        return {}
    raw = _paragraphs(content)
    told: list[tuple[int, str]] = []
    for number, message in enumerate(spoken):
        told += [(number, _plain(p)) for p in _paragraphs(f"{who_said(message, tools)}: {message.text}")]
    expected = [paragraph for _, paragraph in told]
    known = frozenset(expected)
    found = [_bared(_plain(paragraph), known) for paragraph in raw]
    if not Counter(expected) - Counter(found):
        return {}
    names = tuple({f"{_plain(who_said(message, tools))}:" for message in spoken})
    now = _aligned(expected, found, names)
    out: dict[str, str | None] = {}
    for number, message in enumerate(spoken):
        mine = [i for i, (owner, _) in enumerate(told) if owner == number]
        if all([found[j] for j in now.get(i, ())] == [expected[i]] for i in mine):
            continue
        text = "\n\n".join(raw[j] for i in mine for j in now.get(i, ()))
        text = _words_of(text, message, who_said(message, tools))
        if _plain(text) != _plain(message.text):
            out[message.id] = text or None
    return out


def _stand(content: str, turns: Sequence[str]) -> bool:
    """Whether all `turns` stand in `content`, in order: the quick look that settles it for nearly every episode."""
    at = 0
    for turn in turns:
        at = content.find(turn, at)
        if at < 0:
            return False
        at += len(turn)
        if content[at : at + 2] not in {"", " [", "\n\n"}:
            return False
    return True


def _paragraphs(text: str) -> list[str]:
    out: list[list[str]] = [[]]
    for line in text.splitlines():
        if line.strip():
            out[-1].append(line)
        elif out[-1]:
            out.append([])
    return ["\n".join(lines) for lines in out if lines]


def _plain(text: str) -> str:
    return " ".join(text.split())


def _bared(paragraph: str, known: frozenset[str]) -> str:
    """`paragraph` without the brackets that were put behind the words, where that makes it a known one."""
    at = len(paragraph)
    while at > 0 and paragraph[:at] not in known:
        at = paragraph.rfind(" [", 0, at)
    return paragraph[:at] if at > 0 else paragraph


def _aligned(expected: Sequence[str], found: Sequence[str], names: tuple[str, ...]) -> dict[int, list[int]]:
    """For each expected paragraph the ones found in its place."""
    now: dict[int, list[int]] = {}
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, expected, found, autojunk=False).get_opcodes():
        if tag == "equal" or (tag == "replace" and i2 - i1 == j2 - j1):
            now.update({i: [j] for i, j in zip(range(i1, i2), range(j1, j2), strict=True)})
        elif tag == "replace":
            at = i1
            for j in range(j1, j2):
                alike = {
                    i: SequenceMatcher(None, expected[i], found[j], autojunk=False).ratio()
                    for i in range(at, i2)
                }
                best = max(alike, key=lambda i: alike[i])
                if not found[j].startswith(names) and now.get(at):
                    now[at].append(j)
                elif alike[best] >= _LEAST_ALIKE:
                    at = best
                    now.setdefault(at, []).append(j)
    return now


def _words_of(text: str, message: Message, who: str) -> str:
    """The words of a turn as it stands: without the name before them and the brackets behind them."""
    text = text.removeprefix(f"{who}:").strip()
    for call in message.tool_calls:
        text = text.partition(f"[{message.speaker} called {call.name}:")[0].rstrip()
    while text.endswith("]") and (at := text.rfind("[")) >= 0:
        # What a time meant is told as "[yesterday: 27 May 2026]", behind words that hold it.
        words, colon, _ = text[at + 1 :].partition(": ")
        if not colon or text[at:] in message.text or words.casefold() not in text[:at].casefold():
            break
        text = text[:at].rstrip()
    named = _NAMED.match(text)
    if named and _plain(text[named.end() :]) == _plain(message.text):
        text = text[named.end() :]
    return text
