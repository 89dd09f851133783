"""A closed stretch becomes the text of an episode: by a model where there is one, without it otherwise.

The model's way out is always open: whatever goes wrong with it, the deterministic text stands in, and the
episode says which of the two wrote it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any
from zoneinfo import ZoneInfo

from cairn.errors import CairnError, Invalid, NotFound
from cairn.seams import Locator, StorageBackend, Writer
from cairn.talk import narrative
from cairn.talk.narrative import EpisodeText
from cairn.talk.turns import DETERMINISTIC
from cairn.types import Cell

_log = logging.getLogger(__name__)

PROMPTS = Locator("prompts")
_PROMPT_CHARS = 300_000
_MAX_PROMPT_FILE = 64_000
_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "subject": {"type": "string"},
        "summary": {"type": "string"},
        "content": {"type": "string"},
    },
    "required": ["subject", "summary", "content"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Extraction:
    """An episode's text, who wrote it, and why the model did not where it should have."""

    text: EpisodeText
    writer: str = DETERMINISTIC
    failure: str = ""


class Extractor:
    """Turns cells into episode texts."""

    def __init__(self, storage: StorageBackend, zone: ZoneInfo, writer: Writer | None = None) -> None:
        self._storage = storage
        self._zone = zone
        self._writer = writer

    @property
    def asks_a_model(self) -> bool:
        return self._writer is not None

    def extract(self, cell: Cell, prompts: Mapping[str, str] | None = None) -> Extraction:
        """The episode of `cell`. Never fails: without a usable answer from the model the words speak themselves.

        Args:
            cell: What was said.
            prompts: Prompt texts by name, for this call only; they win over those in the root.
        """
        if self._writer is None:
            return Extraction(narrative.told(cell.messages, self._zone))
        try:
            return Extraction(self._asked(self._writer, cell, prompts or {}), f"model:{self._writer.id}")
        except Exception as error:
            if not isinstance(error, CairnError):
                _log.exception("A cell is told without the model")  # a fault of ours
            reason = str(error) if isinstance(error, CairnError) else f"{type(error).__name__}: {error}"
            return Extraction(narrative.told(cell.messages, self._zone), DETERMINISTIC, reason[:300])

    def _asked(self, writer: Writer, cell: Cell, prompts: Mapping[str, str]) -> EpisodeText:
        system = self.prompt("episode", prompts)
        talk = narrative.transcript(cell.messages, self._zone)
        if len(talk) > _PROMPT_CHARS:
            half = _PROMPT_CHARS // 2
            talk = f"{talk[:half]}\n\n[{len(talk) - 2 * half} characters left out]\n\n{talk[-half:]}"
        answer = writer.complete(system, talk, _SCHEMA, purpose=f"episode {cell.id}").value
        texts = {name: _clean(answer[name]) for name in ("subject", "summary", "content")}
        for name, text in texts.items():
            if not text:
                raise Invalid(f"The model left the {name} empty.", field=name)
        subject = " ".join(texts["subject"].split())[: 2 * narrative.SUBJECT_CHARS]
        return EpisodeText(subject, texts["summary"], texts["content"])

    def prompt(self, name: str, given: Mapping[str, str] | None = None) -> str:
        """The prompt called `name`: the one given with the call, the root's `prompts/<name>.md`, or the built-in."""
        if given and given.get(name):
            return given[name]
        try:
            text = self._storage.read(PROMPTS.child(f"{name}.md"))
            if text.strip() and len(text) <= _MAX_PROMPT_FILE:
                return text
        except NotFound:
            pass
        return (resources.files("cairn.talk") / "prompts" / f"{name}.md").read_text(encoding="utf-8")


def _clean(text: str) -> str:
    """A model's text made fit for a note: no NUL, no lone surrogates, no blanks around it."""
    return text.replace("\0", "").encode("utf-8", "ignore").decode("utf-8").strip()
