"""The capture ledger: what has been taken in already, by source. Consulted first, written in the same step.

One journal, `journal/ledger.jsonl`, keyed by a hash of (source_type, source_key), serves every capture that may run
twice: a person's intervention, an error or a cluster of them, review feedback, what a strategy proposes, a mission's
promotion, an import. It is never pruned, so what was taken in once stays known.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from cairn.canonical import as_line, objects_in
from cairn.errors import Conflict
from cairn.governed.memories import Keeper
from cairn.governed.records import Origin, stamp
from cairn.language.near import jaccard
from cairn.language.words import word_set
from cairn.types import Scope, Space, Verdict, with_texts

SOURCES = ("intervention", "error_capture", "error_cluster", "pr_feedback")
RECURRING_SIMILARITY = 0.6
RECURRING_ORIGINS = 3
_BOT = re.compile(
    r"(?i)(?:\[bot\]|\bbot\b|-bot\Z|\A(?:dependabot|renovate|codecov|github-actions|sonarcloud|coderabbitai)\b)"
)
_HTML_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_HTML_TAG = re.compile(
    r"</?(?:details|summary|table|tr|td|th|tbody|thead|p|br|img|a|h\d|sub|sup|div|span|b|i|em|strong|ul|ol|li|code|pre)\b[^<>]*>",
    re.IGNORECASE,
)
_IMAGE = re.compile(r"!\[[^\[\]]*\]\([^()]*\)")
_BY_KEYWORD = (
    ("preference", r"\b(?:prefer|rather|i like|please (?:use|don't)|i'd like|would like)\b"),
    ("convention", r"\b(?:always|never|convention|style|naming|must|should|standard|consistent)\b"),
    ("decision", r"\b(?:decided|decision|we (?:will|chose|agreed)|instead of|go with)\b"),
    (
        "gotcha",
        r"\b(?:error|exception|fail(?:s|ed|ure)?|bug|crash|careful|watch out|breaks?|race|leak|timeout)\b",
    ),
    ("pattern", r"\b(?:pattern|whenever|each time|every time|approach)\b"),
)


@dataclass(frozen=True, slots=True)
class LedgerRow:
    """One captured source (A34)."""

    id: str
    project_id: str
    source_type: str
    source_key: str
    memory_id: str | None = None
    episode_memory_id: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    created_at: str = ""
    updated_at: str = ""


class CaptureLedger:
    """The ledgers of all spaces, through the journals of a keeper."""

    def __init__(self, keeper: Keeper) -> None:
        self._keeper = keeper
        self._undone: dict[Space, frozenset[str]] = {}

    def rows(self, space: Space) -> list[LedgerRow]:
        """Every row, oldest first; a later line for the same key has updated it."""
        return list(self._read(space).values())

    def find(self, space: Space, source_type: str, source_key: str) -> LedgerRow | None:
        """The row of that key, if the source was captured already."""
        return self._read(space).get(_row_id(source_type, source_key))

    def _read(self, space: Space) -> dict[str, LedgerRow]:
        at = self._keeper.root.journal(space, "ledger")
        end, found = self._keeper.memo.get(("ledger", space), (0, {}))
        try:
            tail = self._keeper.journals.read(at, end)
        except Conflict:  # it was replaced, by `forget`
            found = {}
            tail = self._keeper.journals.read(at)
        found = dict(found) if tail.lines else found
        for value in objects_in(tail.lines):
            try:
                row = LedgerRow(
                    value["id"], value["project_id"], value["source_type"], value["source_key"],
                    value.get("memory_id"), value.get("episode_memory_id"), value.get("metadata") or {},
                    value["created_at"], value["updated_at"],
                )  # fmt: skip
            except (KeyError, TypeError):
                continue
            found[row.id] = row
        self._keeper.memo["ledger", space] = (tail.end, found)
        return found

    def once(
        self,
        space: Space,
        source_type: str,
        source_key: str,
        capture: Callable[[], tuple[str | None, Mapping[str, Any]]],
    ) -> tuple[LedgerRow, bool]:
        """Run `capture` unless the source is in the ledger; its row, and whether it ran now.

        `capture` returns the memory's id (None where nothing was kept) and what else to note. It runs under
        the ledger's lock, and the row is written before the lock is given up: two runs cannot both capture.
        After a crash between the two it may run again, and must find its own earlier work.
        """
        with self._keeper.locks.hold(f"ledger {space.app}/{space.project}", timeout=60.0):
            known = self.find(space, source_type, source_key)
            if known is not None and not self._is_undone(space, known):
                return known, False
            memory_id, metadata = capture()
            if (run := self._keeper.notebook.current_run) is not None:
                metadata = {**metadata, "run": run.id}
            now = stamp(self._keeper.clock.now())
            row = LedgerRow(
                _row_id(source_type, source_key),
                f"{space.app}/{space.project}", source_type, source_key, memory_id,
                metadata.get("episode_memory_id"), dict(metadata), now, now,
            )  # fmt: skip
            self._append(space, row)
            return row, True

    def _is_undone(self, space: Space, row: LedgerRow) -> bool:
        """Whether the run that captured this was taken back, so that the source may come in again."""
        history, run = self._keeper.notebook.history, row.metadata.get("run")
        if run is None or history is None:
            return False
        if space not in self._undone:
            self._undone[space] = history.undone(space)
        return run in self._undone[space]

    def _append(self, space: Space, row: LedgerRow) -> None:
        value = {
            "id": row.id, "project_id": row.project_id, "source_type": row.source_type, "source_key": row.source_key,
            "memory_id": row.memory_id, "episode_memory_id": row.episode_memory_id, "metadata": dict(row.metadata),
            "created_at": row.created_at, "updated_at": row.updated_at,
        }  # fmt: skip
        told = with_texts(
            value, self._keeper.cut, skip=("id",)
        )  # it is known by its id, whatever its key was
        line = as_line(told)
        self._keeper.journals.append(self._keeper.root.journal(space, "ledger"), [line])


def learn(
    keeper: Keeper,
    space: Space,
    source_type: str,
    source_key: str,
    text: str,
    *,
    author: str = "",
    origin_key: str = "",
    scope: str | Scope = "project",
    owner: str = "",
    category: str | None = None,
    origin: Origin | None = None,
    session: str | None = None,
    agent_id: str | None = None,
    vouched: bool = True,
) -> Verdict | None:
    """Take an intervention, an error, review feedback or what a strategy found in, once (A89).

    Bots are not listened to, markup is taken out, and the category follows from the words. An error seen from
    three distinct origins (`origin_key`: a session, a run, a pull request) in similar words becomes a
    promoted gotcha. None means it was captured before, or there was nothing to capture.
    """
    said = _IMAGE.sub("", _HTML_TAG.sub(" ", _HTML_COMMENT.sub(" ", text))).strip()
    if _BOT.search(author) or len(word_set(said)) < 3:
        return None
    ledger = CaptureLedger(keeper)
    chosen = category or category_of(said, default="gotcha" if source_type.startswith("error") else "fact")
    verdicts: list[Verdict] = []

    def capture() -> tuple[str | None, Mapping[str, Any]]:
        alike = _similar_origins(ledger, space, said, origin_key or source_key)
        recurring = source_type.startswith("error") and len(alike) >= RECURRING_ORIGINS
        verdict = keeper.remember(
            said,
            "gotcha" if recurring else chosen,
            space=space,
            scope=scope,
            owner=owner,
            origin=origin or ("human" if source_type in {"intervention", "pr_feedback"} else "agent"),
            source_type="user" if source_type == "intervention" else "system",
            source_id=source_key,
            source_session_id=session,
            agent_id=agent_id,
            status="promoted" if recurring else None,
            confidence=0.8 if recurring else 0.6,
            vouched=vouched,
        )
        verdicts.append(verdict)
        memory_id = str(verdict.memory["id"]) if verdict.accepted and verdict.memory else None
        return memory_id, {
            "words": sorted(word_set(said))[:80],
            "origin": origin_key or source_key,
            "recurring": recurring,
        }

    ledger.once(space, source_type, source_key, capture)
    return verdicts[0] if verdicts else None


def category_of(text: str, default: str = "fact") -> str:
    """The category that the words of a captured text suggest."""
    lowered = text.lower()
    return next((name for name, pattern in _BY_KEYWORD if re.search(pattern, lowered)), default)


def _similar_origins(ledger: CaptureLedger, space: Space, text: str, origin: str) -> set[str]:
    words = word_set(text)
    origins = {origin}
    for row in ledger.rows(space):
        if row.source_type.startswith("error"):
            known = frozenset(str(word) for word in row.metadata.get("words", ()))
            if jaccard(words, known) >= RECURRING_SIMILARITY:
                origins.add(str(row.metadata.get("origin", row.source_key)))
    return origins


def _row_id(source_type: str, source_key: str) -> str:
    return "led_" + hashlib.sha256(f"{source_type}\0{source_key}".encode()).hexdigest()[:16]
