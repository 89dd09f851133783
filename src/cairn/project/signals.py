"""Finds decisions, traps, next steps, paths and check results in talk by their wording.

Without a model this is deliberately narrow: a sentence is kept only when it says itself what it is. With a
model the same five lists come from a completion (`ask`), checked the same way.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable, Mapping
from typing import Any

from cairn.errors import Invalid, Unavailable
from cairn.language import tongues
from cairn.project.events import MAX_SIGNALS, SIGNAL_KEYS, Signals
from cairn.seams import Writer

_PATH = re.compile(
    r"(?<![\w/.:@-])((?:[\w.@-]+/){1,8}[\w.@-]+\.[A-Za-z]\w{0,7}|[\w-]+\.(?:py|ts|tsx|js|jsx|go|rs|rb|java|kt|sql|toml|ya?ml|json|md|sh|css|html)|(?:src|lib|app|tests?|docs|packages|apps|cmd)/[\w./-]*[\w-])(?![\w/])"
)
# A line, or a sentence of it: to the marks that a blank and a capital follow. Nothing is looked at twice.
_PART = re.compile(
    r"\n*+[^.!?\n]*+(?:[.!?]++(?!\s+[\"'`(\[]?[A-Z0-9`])[^.!?\n]*+)*+[.!?]*+",
)
_DOT_INSIDE = re.compile(r"\.(?=\w)")
_FENCE = re.compile(r"(```|~~~).*?(\1|\Z)", re.DOTALL)
_BULLET = re.compile(r"^(?:[-*+>#]+|\d+[.)])\s+")
MIN_SENTENCE, MAX_SENTENCE = 12, 400

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", *SIGNAL_KEYS],
    "properties": {
        "summary": {"type": "string"},
        **{key: {"type": "array", "items": {"type": "string"}} for key in SIGNAL_KEYS},
    },
}


# The names of the wording (`[project]` of the languages' files) and of the signals it makes.
_WORDINGS = {
    "decisions": "decisions",
    "gotchas": "traps",
    "nextStepHints": "next_steps",
    "validationObservations": "checks",
}
MAX_SCANNED = 40_000
MAX_REMEMBERED = 5_000


@functools.cache
def _wordings() -> Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]]:
    """For each signal its pattern, and parts of words that are cheap to look for, one of which stands in all that fits."""
    return {
        key: (
            tongues.every_pattern("project", name),
            tuple(
                part for hints in tongues.every_value("project", f"{name}_hints") for part in hints.split("/")
            ),
        )
        for key, name in _WORDINGS.items()
    }


class Collector:
    """Gathers the signals of one session as its messages stream by; memory does not grow with the session."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {key: {} for key in SIGNAL_KEYS}
        self._seen: set[str] = set()
        self._first_prompt = ""
        self._last_reply = ""
        self.messages = 0

    def add(self, role: str, text: str) -> None:
        """Take in one message."""
        self.messages += 1
        if role == "user" and not self._first_prompt:
            self._first_prompt = _first_line(text)
        if role == "assistant":
            self._last_reply = text[-4000:]
        for part in _parts(text[:MAX_SCANNED]):
            if part in self._seen or len(part) < MIN_SENTENCE:
                continue
            if len(self._seen) < MAX_REMEMBERED and len(part) <= MAX_SENTENCE:
                self._seen.add(part)
            sentence = _sentence(part)
            if not MIN_SENTENCE <= len(sentence) <= MAX_SENTENCE:
                continue
            lowered = sentence.lower()
            for key, (pattern, hints) in _wordings().items():
                if len(self._found[key]) >= MAX_SIGNALS:
                    continue
                # A plain loop: this is the one hot place of an import.
                for hint in hints:
                    if hint in lowered:
                        break
                else:
                    continue
                if pattern.search(sentence):
                    self._found[key].setdefault(sentence)
                    break
        if len(self._found["keyPaths"]) < MAX_SIGNALS:
            for line in text[:MAX_SCANNED].split("\n"):
                if "/" in line or _DOT_INSIDE.search(line):
                    for word in line.split():
                        if "/" in word or "." in word[1:-1]:
                            for path in _PATH.findall(word):
                                self._found["keyPaths"].setdefault(path.removeprefix("./"))

    def signals(self) -> Signals:
        return Signals.of({key: list(found) for key, found in self._found.items()})

    def summary(self, fallback: str) -> str:
        """What was asked, in its own words."""
        return self._first_prompt or _first_line(self._last_reply) or fallback


def _first_line(text: str) -> str:
    line = next((" ".join(part.split()) for part in text.splitlines() if part.strip()), "")
    return line if len(line) <= 160 else line[:159].rsplit(" ", 1)[0] + "…"


def _parts(text: str) -> Iterable[str]:
    """`text` cut where a sentence or a line ends; what stands there twice comes once."""
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    return dict.fromkeys(_PART.findall(text))


def _sentence(part: str) -> str:
    line = " ".join(part.split())
    return _BULLET.sub("", line) if line and not line[0].isalpha() else line


def ask(writer: Writer, talk: str) -> tuple[str, Signals] | None:
    """Summary and signals from a model; None where it cannot answer, so the wording rules stand."""
    system = (
        "You read a work session on a software repository and list what later contributors need. Quote or "
        "paraphrase closely; list nothing that was not said. Prefix open tasks with NEXT: and finished ones with DONE:."
    )
    try:
        value = writer.complete(system, talk, SCHEMA, purpose="project-signals").value
        return str(value["summary"]), Signals.of({key: value.get(key) or [] for key in SIGNAL_KEYS})
    except (Unavailable, Invalid, KeyError):
        return None
