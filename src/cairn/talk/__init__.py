"""From talk to episodes: messages in, a durable inbox, cells, and the notes that tell them."""

from __future__ import annotations

from cairn.talk.capture import AddOutcome, Capture, FlushOutcome
from cairn.talk.messages import MAX_MESSAGES, parse_message

__all__ = ["MAX_MESSAGES", "AddOutcome", "Capture", "FlushOutcome", "parse_message"]
