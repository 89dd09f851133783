"""Messages that another program had accepted and not extracted come in as inbox, each once."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError
from cairn.talk.messages import parse_message
from cairn.types import Message, Space

if TYPE_CHECKING:
    from cairn.talk.capture import Capture

Waiting = tuple[Space, str, dict[str, Any], str]
"""A message that waits: its space, its session, the message as `add` takes it, and the words that can be read of it."""


def take_in(capture: Capture, waiting: Iterable[Waiting]) -> tuple[int, list[str]]:
    """Keep each message in its session with its time and sender; how many are new, and what could not be kept.

    A message is known by session, sender, time and words, so that a second look adds nothing. Nothing is cut here:
    the next call of the session does that.
    """
    count, problems = 0, []
    for space, session, fields, words in waiting:
        try:
            message = _message(fields, words)
            before = len(capture.unprocessed(space, session))
            capture.add(space, session, [message], defer=True, key=_key(message))
            count += len(capture.unprocessed(space, session)) > before
        except CairnError as error:
            problems.append(f"A message of session {session} was not taken over: {error}")
    return count, problems


def _message(fields: dict[str, Any], words: str) -> Message:
    try:
        return parse_message(fields)
    except CairnError:
        if not words:
            raise
        # A part that is not known here (a picture, say) costs itself; the words are kept.
        return parse_message({**fields, "content": words})


def _key(message: Message) -> str:
    known = [message.sender_id, message.role, message.timestamp, message.text]
    return "carried-" + hashlib.sha256(json.dumps(known).encode()).hexdigest()[:32]
