"""Signals out of talk: decisions, traps, next steps, paths and check results, found by their wording.

Without a model this is deliberately narrow: a sentence is kept only when it says itself what it is. With a
model the same five lists come from a completion (`ask`), checked the same way.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from cairn.errors import Invalid, Unavailable
from cairn.project.events import MAX_SIGNALS, SIGNAL_KEYS, Signals
from cairn.seams import Writer

_DECISION = re.compile(
    r"\b(?:we(?:'ve| have)? (?:decided|agreed|chose|settled)|decision:|decided to|let'?s (?:go with|use|keep|switch)|we(?:'ll| will| should) "
    r"(?:use|keep|go with|switch|avoid|stick)|i(?:'ll| will) (?:use|keep|go with|switch)|going with|switched (?:from .+ )?to|chose .+ over|"
    r"instead of|agreed to|from now on)\b",
    re.IGNORECASE,
)
_GOTCHA = re.compile(
    r"\b(?:gotcha|pitfall|beware|careful|watch out|turns out|turned out|root cause|the (?:trap|catch|trick) (?:is|was)|caused by|"
    r"(?:fails?|failed|breaks?|broke|crash(?:es|ed)?|hangs?) (?:because|when|unless|if)|does(?:n't| not) work (?:because|when|unless|if|with)|"
    r"must (?:not|never)|never (?:use|call|run|edit|commit)|do not (?:use|call|run|edit)|the (?:bug|problem|issue) (?:is|was))\b",
    re.IGNORECASE,
)
_NEXT = re.compile(
    r"(?:^|\b)(?:NEXT|TODO|DONE|FOLLOW[- ]?UP)\s*:|\b(?:next steps?|still (?:need|have) to|remaining(?: work)?:|left to do|"
    r"(?:we|i|you) (?:should|need to|must) (?:still |also |then |next )|later we|as a follow[- ]up|not yet (?:done|implemented|covered|tested))\b",
    re.IGNORECASE,
)
_CHECK = re.compile(
    r"\b(?:\d+ (?:tests? )?(?:passed|failed|passing|failing)|all (?:the )?(?:tests?|checks?) (?:pass|passed|green|are green)|tests? (?:pass|fail|passed|failed)|"
    r"build (?:passes|passed|succeeds|succeeded|fails|failed|is green|is broken)|lint (?:is clean|passes|passed|fails|failed)|type ?check(?:s|ing)? (?:pass|passes|passed|clean|fail))\b",
    re.IGNORECASE,
)
_PATH = re.compile(
    r"(?<![\w/.:@-])((?:[\w.@-]+/){1,8}[\w.@-]+\.[A-Za-z]\w{0,7}|[\w-]+\.(?:py|ts|tsx|js|jsx|go|rs|rb|java|kt|sql|toml|ya?ml|json|md|sh|css|html)|(?:src|lib|app|tests?|docs|packages|apps|cmd)/[\w./-]*[\w-])(?![\w/])"
)
_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[\"'`(\[]?[A-Z0-9`])|\n+")
_FENCE = re.compile(r"(```|~~~).*?(\1|\Z)", re.DOTALL)
_BULLET = re.compile(r"^(?:[-*+>#]+|\d+[.)])\s+")
MAX_SENTENCE = 400

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["summary", *SIGNAL_KEYS],
    "properties": {
        "summary": {"type": "string"},
        **{key: {"type": "array", "items": {"type": "string"}} for key in SIGNAL_KEYS},
    },
}


# Cheap to look for, so that the patterns above only meet sentences that may fit: pattern by pattern.
_HINTS: Mapping[str, tuple[re.Pattern[str], tuple[str, ...]]] = {
    "decisions": (
        _DECISION,
        ("decid", "agreed", "chose", "settled", "decision", "go with", "going with", "switch", "instead of", "from now", "let", "'ll ", " will ", " should "),
    ),
    "gotchas": (
        _GOTCHA,
        ("gotcha", "pitfall", "beware", "careful", "watch out", "turn", "root cause", "trap", "catch", "trick", "caused", "fail", "break", "broke", "crash",
         "hang", "work", "must ", "never ", "do not", "bug", "problem", "issue"),
    ),
    "nextStepHints": (
        _NEXT,
        ("next", "todo", "done", "follow", "still ", "remaining", "left to do", "should ", "need to", "must ", "later we", "not yet"),
    ),
    "validationObservations": (_CHECK, ("pass", "fail", "test", "check", "build", "lint")),
}  # fmt: skip
MAX_SCANNED = 40_000
MAX_REMEMBERED = 5_000


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
        for sentence in _sentences(text[:MAX_SCANNED]):
            if sentence in self._seen:
                continue
            if len(self._seen) < MAX_REMEMBERED:
                self._seen.add(sentence)
            lowered = sentence.lower()
            for key, (pattern, hints) in _HINTS.items():
                # A plain loop: this is the one hot place of an import.
                for hint in hints:
                    if hint in lowered:
                        break
                else:
                    continue
                if len(self._found[key]) < MAX_SIGNALS and pattern.search(sentence):
                    self._found[key].setdefault(sentence)
                    break
        if len(self._found["keyPaths"]) < MAX_SIGNALS:
            for word in text[:MAX_SCANNED].split():
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


def _sentences(text: str) -> Iterator[str]:
    if "```" in text or "~~~" in text:
        text = _FENCE.sub("\n", text)
    for part in _SENTENCE.split(text):
        line = " ".join(part.split())
        if line and not line[0].isalpha():
            line = _BULLET.sub("", line)
        if 12 <= len(line) <= MAX_SENTENCE:
            yield line


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
