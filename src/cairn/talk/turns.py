"""Maps messages to paragraphs of an episode, and finds which a person has corrected since.

The deterministic writer keeps every message word for word in a paragraph of its own: "who: the words [what a
relative time meant]". So an episode that was edited by hand can be laid beside the messages it was made of: a
message whose paragraphs are there says what it said, one whose paragraphs are others was corrected, and one
without any was taken out. Blanks and line ends do not count. In doubt a message is as it was said.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from difflib import SequenceMatcher

from cairn.types import Message

DETERMINISTIC = "deterministic"
_LEAST_ALIKE = 0.4
_NAMED = re.compile(r"[^:\n]{1,80}:\s+")

Corrections = Mapping[str, str | None]
"""What messages say now, by id, where that is not what was said; None for one that was taken out."""


def called(messages: Sequence[Message]) -> dict[str, str]:
    """The names of the tools called in `messages`, by the id of the call."""
    return {call.id: call.name for message in messages for call in message.tool_calls}


def who_said(message: Message, tools: Mapping[str, str]) -> str:
    """The name a turn begins with; a tool's answer goes by the name of the tool."""
    if message.role != "tool":
        return message.speaker
    return f"{tools.get(message.tool_call_id or '') or message.speaker} answered"


def corrected(messages: Sequence[Message], corrections: Corrections) -> tuple[Message, ...]:
    """`messages` as they stand after `corrections`; the very same ones where there is nothing to correct."""
    if not corrections:
        return tuple(messages)
    out = []
    for message in messages:
        text = corrections.get(message.id, "")
        if message.id not in corrections:
            out.append(message)
        elif text:
            out.append(replace(message, content=text))
    return tuple(out)


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
