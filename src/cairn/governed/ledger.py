"""The capture ledger: which sources have been taken in. It is read first and written in the same step.

One journal, `journal/ledger.jsonl`, keyed by a hash of (source_type, source_key), serves every capture that may run
twice: a person's intervention, an error or a cluster of them, review feedback, what a strategy proposes, a mission's
promotion, an import. It is never pruned, so what was taken in once stays known.

A mission's memories live in `missions/<run>/memories/`. When it ends well, those that are sure enough are copied to the
project through the gate, each with a row in the ledger; then, and after a failure at once, the mission's own are
archived. `journal/missions.jsonl` records that it ended.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any

from cairn.canonical import rows_in, text_hash
from cairn.governed.memories import Keeper
from cairn.governed.records import Origin, Record, stamp
from cairn.language.near import jaccard
from cairn.language.words import word_set
from cairn.seams.storage import read_on
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
        known: tuple[int, dict[str, LedgerRow]] = self._keeper.memo.get(("ledger", space), (0, {}))
        end, found = known
        tail, is_anew = read_on(self._keeper.journals, at, end)
        if tail.lines or is_anew:  # `forget` replaces it
            found = ({} if is_anew else found) | {row.id: row for row in rows_in(LedgerRow, tail.lines)}
        self._keeper.memo["ledger", space] = (tail.end, found)
        return found

    def once(
        self,
        space: Space,
        source_type: str,
        source_key: str,
        capture: Callable[[], tuple[Verdict, Mapping[str, Any]]],
    ) -> Verdict | None:
        """Run `capture` unless the source is in the ledger; its verdict, None where it had been taken in before.

        `capture` returns the gate's verdict and what else to note. It runs under
        the ledger's lock, and the row is written before the lock is given up: two runs cannot both capture.
        After a crash between the two it may run again, and must find its own earlier work.
        """
        with self._keeper.locks.hold(f"ledger {space}", timeout=60.0):
            known = self.find(space, source_type, source_key)
            if known is not None and not self._is_undone(space, known):
                return None
            verdict, metadata = capture()
            if (run := self._keeper.notebook.current_run) is not None:
                metadata = {**metadata, "run": run.id}
            now = stamp(self._keeper.clock.now())
            row = LedgerRow(
                _row_id(source_type, source_key),
                str(space), source_type, source_key, verdict.memory_id,
                metadata.get("episode_memory_id"), dict(metadata), now, now,
            )  # fmt: skip
            told = with_texts(
                asdict(row), self._keeper.cut, skip=("id",)
            )  # it is known by its id, whatever its key was
            self._keeper.note(space, "ledger", told)
            return verdict

    def _is_undone(self, space: Space, row: LedgerRow) -> bool:
        """Whether the run that captured this was taken back, so that the source may come in again."""
        history, run = self._keeper.notebook.history, row.metadata.get("run")
        if run is None or history is None:
            return False
        if space not in self._undone:
            self._undone[space] = history.undone(space)
        return run in self._undone[space]


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

    def capture() -> tuple[Verdict, Mapping[str, Any]]:
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
        words = sorted(word_set(said))[:80]
        return verdict, {"words": words, "origin": origin_key or source_key, "recurring": recurring}

    return ledger.once(space, source_type, source_key, capture)


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
    return "led_" + text_hash(f"{source_type}\0{source_key}")[:16]


# ---------------------------------------------------------------- the end of a mission

QUALIFYING_CONFIDENCE = 0.7
_PROMOTION = "mission_promotion"


@dataclass(frozen=True, slots=True)
class MissionEnd:
    """What became of a mission's memories. `already` is True when everything had been done before."""

    run_id: str
    success: bool
    promoted: Sequence[str]
    archived: Sequence[str]
    already: bool


def end_mission(keeper: Keeper, space: Space, run_id: str, *, success: bool) -> MissionEnd:
    """End a mission. Idempotent: run twice, or after a crash, it promotes and archives nothing twice."""
    with keeper.notebook.run("mission"):
        return _end_mission(keeper, space, run_id, success=success)


def _end_mission(keeper: Keeper, space: Space, run_id: str, *, success: bool) -> MissionEnd:
    scope = Scope(space, "mission", run_id)
    ledger = CaptureLedger(keeper)
    live = [record for record in keeper.records(scope) if record.is_live]
    promoted = []
    if success:
        for record in live:
            if qualifies(record):
                key = f"{run_id}/{record.entry_id}"
                verdict = ledger.once(space, _PROMOTION, key, partial(_copy, keeper, space, record))
                if verdict is not None and verdict.memory_id is not None:
                    promoted.append(verdict.memory_id)
    first = ended_missions(keeper, space).get(run_id) is None
    if first:
        line = {"run_id": run_id, "success": success, "at": stamp(keeper.clock.now())}
        if (work := keeper.notebook.current_run) is not None:
            line["run"] = work.id
        keeper.note(space, "missions", line)
    archived = put_away(keeper, scope, live, "the mission succeeded" if success else "the mission failed")
    return MissionEnd(
        run_id, success, promoted, archived, already=not first and not promoted and not archived
    )


def qualifies(record: Record) -> bool:
    """Whether a mission's memory is worth the project's attention (A88)."""
    return record.status == "promoted" and record.confidence >= QUALIFYING_CONFIDENCE and record.is_trusted


def ended_missions(keeper: Keeper, space: Space) -> Mapping[str, Mapping[str, Any]]:
    """The missions on record as ended, by run id; one whose end was taken back goes on."""
    out: dict[str, Mapping[str, Any]] = {}
    history = keeper.notebook.history
    undone = history.undone(space) if history is not None else frozenset()
    for value in keeper.noted(space, "missions"):
        if isinstance(run := value.get("run_id"), str) and value.get("run") not in undone:
            out.setdefault(run, value)
    return out


def put_away(keeper: Keeper, scope: Scope, records: Sequence[Record], reason: str) -> list[str]:
    """Archive `records` of one scope, one rewrite per note."""
    now = keeper.clock.now()
    with keeper.locked(scope):
        keeper.note_history(*records, what="mission ended", by="mission", reason=reason)
        keeper.rewrite_all(records, lambda r: r.but(status="archived", pinned=False, updated_at=now))
    return [record.id for record in records]


def _copy(keeper: Keeper, space: Space, record: Record) -> tuple[Verdict, Mapping[str, Any]]:
    """Copy one memory to the project; what a run cut short had copied already is found again."""
    project = Scope(space, "project", "")
    for known in keeper.records(project):
        if known.source_type == _PROMOTION and known.source_id == record.id:
            found = Verdict(accepted=True, memory=keeper.row(known))
            return found, {"run_id": record.scope.owner, "found": True}
    verdict = keeper.remember(
        record.content,
        record.category,
        scope=project,
        importance=record.importance,
        confidence=record.confidence,
        status="promoted",
        origin=record.origin,
        tier=2,
        source_type=_PROMOTION,
        source_id=record.id,
        source_run_id=record.scope.owner,
        source_session_id=record.source_session_id,
        agent_id=record.agent_id,
        file_scope_pattern=record.file_scope_pattern,
        trigger=record.trigger,
        procedure=record.procedure,
        gated=False,
    )
    return verdict, {"run_id": record.scope.owner, "deduped": verdict.deduped}
