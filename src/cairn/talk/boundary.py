"""Decides where a stretch of talk is cut into a cell: gap, topic, size.

A `Stretch` watches the open messages of one session as they arrive, a constant amount of work for each, and
says where to cut: a silence, a size, or a change of topic. The rules are deterministic: fed the same messages
under the same settings it cuts at the same places, so it can be rebuilt from the log at any time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from cairn.config import CaptureSettings
from cairn.language import words
from cairn.types import Message

if TYPE_CHECKING:
    from cairn.talk.sessions import SessionState

Reason = Literal["flush", "gap", "topic", "tokens", "messages"]

_HEAD_CHARS = 2000
_MIN_WORDS = 12
_MESSAGE_OVERHEAD = 4


def estimated_tokens(text: str) -> int:
    """About how many model tokens `text` is, without a tokenizer: a quarter of its UTF-8 bytes, rounded up.

    That is close for English, and for scripts whose characters take three bytes and about a token each.
    """
    size = len(text) if text.isascii() else len(text.encode("utf-8"))
    return (size + 3) // 4


def message_tokens(message: Message) -> int:
    """The estimate for a whole message: its words, its tool calls, and a little for who said it."""
    calls = sum(estimated_tokens(call.name) + estimated_tokens(call.arguments) for call in message.tool_calls)
    return estimated_tokens(message.text) + calls + _MESSAGE_OVERHEAD


@dataclass(frozen=True, slots=True)
class Cut:
    """Close the stretch before ordinal `upto`."""

    upto: int
    reason: Reason


@dataclass(frozen=True, slots=True)
class _Seen:
    ordinal: int
    vocabulary: frozenset[str]
    tokens: int


class Stretch:
    """What the boundary rules know of the open messages of one session; `due` are the cuts that are not made yet."""

    def __init__(self, settings: CaptureSettings, first: int = 0) -> None:
        self._settings = settings
        self._gap_ms = int(settings.gap_minutes * 60_000)
        self._window = max(settings.topic_window, 2)
        self._seen: deque[_Seen] = deque(maxlen=2 * self._window)
        self._begin(first)
        self._last_ms: int | None = None
        self._upto = first
        self.due: list[Cut] = []

    def follow(self, state: SessionState) -> None:
        """Let the rules see what is open and was not seen yet, and end what was cut meanwhile."""
        if self.first < state.cut_upto:
            self.close(state.cut_upto)
            self._upto, self.due = state.cut_upto, []
        self.due = [cut for cut in self.due if cut.upto > state.cut_upto]
        for ordinal, message in state.between(self._upto, state.next_ordinal):
            self.take(ordinal, message)
        self._upto = max(self._upto, state.next_ordinal)

    def _begin(self, first: int) -> None:
        self.first = first
        self._count = 0
        self._tokens = 0

    def take(self, ordinal: int, message: Message) -> list[Cut]:
        """Note the next message and return the cuts it brings, in order.

        A gap, or a message that would overfill the stretch, closes what was there before it; a full stretch
        closes after it.
        """
        cuts: list[Cut] = []
        tokens = message_tokens(message)
        has_gap = (
            self._last_ms is not None
            and self._gap_ms > 0
            and abs(message.timestamp - self._last_ms) > self._gap_ms
        )
        limit = self._settings.max_tokens
        if self._count and has_gap:
            cuts.append(self._close(ordinal, "gap"))
        elif self._count and limit and self._tokens + tokens > limit:
            cuts.append(self._close(ordinal, "tokens"))
        self._last_ms = message.timestamp
        self._count += 1
        self._tokens += tokens
        if limit and self._tokens >= limit:
            cuts.append(self._close(ordinal + 1, "tokens"))
        elif self._settings.max_messages and self._count >= self._settings.max_messages:
            cuts.append(self._close(ordinal + 1, "messages"))
        elif self._settings.topic_shift:
            cuts += self._topic_cut(ordinal, message, tokens)
        self.due += cuts
        self._upto = ordinal + 1
        return cuts

    def close(self, upto: int) -> None:
        """The stretch was closed from outside (a flush): begin anew at `upto`."""
        self._begin(upto)
        self._seen.clear()

    def _close(self, upto: int, reason: Reason) -> Cut:
        self.close(upto)
        return Cut(upto, reason)

    def _topic_cut(self, ordinal: int, message: Message, tokens: int) -> list[Cut]:
        """Few words in common settle it. No model is asked: where talk is cut must not rest on what is loaded."""
        vocabulary = words.word_set(message.text[:_HEAD_CHARS]) - words.stop_words()
        self._seen.append(_Seen(ordinal, vocabulary, tokens))
        if len(self._seen) < 2 * self._window:
            return []
        seen = list(self._seen)
        before, after = seen[: self._window], seen[self._window :]
        old: frozenset[str] = frozenset().union(*(one.vocabulary for one in before))
        new: frozenset[str] = frozenset().union(*(one.vocabulary for one in after))
        if len(old) < _MIN_WORDS or len(new) < _MIN_WORDS:
            return []
        shared = len(old & new)
        if shared / (len(old) + len(new) - shared) >= self._settings.topic_threshold:
            return []
        upto = after[0].ordinal
        self._begin(upto)
        self._count = len(after)
        self._tokens = sum(one.tokens for one in after)
        self._seen.clear()
        self._seen.extend(after)
        return [Cut(upto, "topic")]
