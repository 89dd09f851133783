"""Procedures: memories with a trigger and steps, that grow surer or fade by how they turn out.

A procedure is a memory of category "procedure" (A30): when and how stand in its entry (Trigger, Procedure),
what happened to it in `journal/procedures.jsonl` (outcomes, contributing episodes, exports). The entry carries
the present confidence; the journal carries every step that led to it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from cairn.canonical import objects_in
from cairn.errors import Invalid
from cairn.governed.access import Ref, ref
from cairn.governed.ledger import CaptureLedger
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, stamp
from cairn.language.near import jaccard
from cairn.types import Scope, Space, Verdict

OVERLAP = 0.34
DISTINCT = 3
FIRST_CONFIDENCE = 0.55
TRUSTED_SUCCESSES = 3
TRUSTED_CONFIDENCE = 0.8
GIVEN_UP_USES = 5
GIVEN_UP_CONFIDENCE = 0.3


@dataclass(frozen=True, slots=True)
class Signal:
    """What one episode shows of a way of working. `group` is its mission or session."""

    episode_id: str
    group: str
    words: frozenset[str]
    trigger: str
    steps: Sequence[str]


@dataclass(frozen=True, slots=True)
class Details:
    """The detail row of a procedure (A27), with its history (A29) and sources (A28)."""

    success_count: int = 0
    failure_count: int = 0
    last_used_at: str | None = None
    exported_skill_path: str | None = None
    exported_at: str | None = None
    superseded_by_memory_id: str | None = None
    history: tuple[Mapping[str, Any], ...] = ()
    sources: tuple[tuple[str, str], ...] = field(default_factory=tuple)


def add(
    keeper: Keeper,
    space: Space,
    title: str,
    *,
    trigger: str,
    steps: str,
    sources: Sequence[str] = (),
    **fields: Any,
) -> Verdict:
    """Remember a procedure: what it is, when it applies and how it goes. Both are required.

    Raises:
        Invalid: the trigger or the steps are missing.
    """
    if not trigger.strip() or not steps.strip():
        raise Invalid(
            "A procedure needs a trigger and steps.", field="trigger" if not trigger.strip() else "procedure"
        )
    verdict = keeper.remember(
        title, "procedure", space=space, trigger=trigger.strip(), procedure=steps.strip(), **fields
    )
    if verdict.accepted and verdict.memory is not None and sources:
        scope = keeper.scope_of(
            space, fields.get("scope", "project"), fields.get("owner", ""), agent_id=fields.get("agent_id")
        )
        record = keeper.find(space, str(verdict.memory["id"]), scope=scope)
        _note(keeper, record, [{"t": "source", "episode": episode} for episode in sources])
    return verdict


def outcome(
    keeper: Keeper,
    procedure: Record,
    *,
    success: bool,
    reason: str = "",
    source: str = "",
    vouched: bool = True,
) -> dict[str, Any]:
    """Record how a use of a procedure went and return its row (A91).

    Success: c + 0.15 (1 - c), at most 0.99. Failure: 0.7 c, at least 0.01. Pinned and promoted at three
    successes and 0.8; archived at five uses and under 0.3. `source` is the episode or case that shows it. Without
    `vouched` nothing is promoted or pinned by it: the word of such a caller lets nothing in.
    """
    _check(procedure)
    with keeper.locked(procedure.scope) as shelf:
        record = shelf.get(procedure.entry_id) or procedure
        before = details(keeper, record.scope.space).get(ref(record), Details())
        confidence = after_success(record.confidence) if success else after_failure(record.confidence)
        wins, losses = before.success_count + success, before.failure_count + (not success)
        change: dict[str, Any] = {"confidence": confidence, "updated_at": keeper.clock.now()}
        proved = success and wins >= TRUSTED_SUCCESSES and confidence >= TRUSTED_CONFIDENCE
        if proved and vouched and record.is_trusted:
            change |= {"pinned": True, "tier": 1, "status": "promoted"}
            change["promoted_at"] = record.promoted_at or keeper.clock.now()
        elif wins + losses >= GIVEN_UP_USES and confidence < GIVEN_UP_CONFIDENCE:
            change |= {"status": "archived", "pinned": False}
        _note(
            keeper, record,
            [{"t": "outcome", "outcome": "success" if success else "failure", "confidence": confidence,
              "reason": keeper.cut(reason)},
             *([{"t": "source", "episode": source}] if source else [])],
        )  # fmt: skip
        keeper.rewrite(record, lambda current: current.but(**change))
        return keeper.row(record.but(**change))


def after_success(confidence: float) -> float:
    return min(0.99, confidence + 0.15 * (1 - confidence))


def after_failure(confidence: float) -> float:
    return max(0.01, 0.7 * confidence)


def details(keeper: Keeper, space: Space) -> dict[Ref, Details]:
    """Counters, history and sources of every procedure of a space."""
    out: dict[Ref, Details] = {}
    for value in objects_in(keeper.journals.read(keeper.root.journal(space, "procedures")).lines):
        with suppress(ValueError, KeyError, TypeError):
            key: Ref = tuple(value["m"])
            out[key] = _taken(out.get(key, Details()), value)
    return out


def show(keeper: Keeper, record: Record) -> dict[str, Any]:
    """A procedure as a whole: when and how, how often it worked, every outcome, and the episodes behind it.

    Raises:
        Invalid: the memory is no procedure.
    """
    _check(record)
    told = details(keeper, record.scope.space).get(ref(record), Details())
    own = ("id", "content", "trigger", "procedure", "status", "pinned", "confidence")
    counted = ("success_count", "failure_count", "last_used_at", "exported_skill_path")
    return {
        **{name: getattr(record, name) for name in own},
        **{name: getattr(told, name) for name in counted},
        "superseded_by_memory_id": record.superseded_by,
        "history": [dict(row) for row in told.history],
        "sources": [{"episode_memory_id": episode, "created_at": at} for episode, at in told.sources],
    }


def _check(record: Record) -> None:
    if record.category != "procedure":
        raise Invalid(f"{record.id} is a {record.category}, not a procedure.", id=record.id)


def note_export(keeper: Keeper, record: Record, path: str) -> None:
    """Put on record where a procedure was exported to."""
    _note(keeper, record, [{"t": "export", "path": path}])


def propose(
    keeper: Keeper,
    space: Space,
    signals: Sequence[Signal],
    *,
    scope: str | Scope = "project",
) -> list[Verdict]:
    """Find ways of working that recur in three and more missions or sessions, and note each as a candidate.

    Episodes belong together when their words overlap by 0.34 or more; a procedure starts at confidence 0.55.
    The ledger keeps one group of words from being proposed twice.
    """
    groups: list[list[Signal]] = []
    for signal in signals:
        home = next((g for g in groups if jaccard(g[0].words, signal.words) >= OVERLAP), None)
        groups.append([signal]) if home is None else home.append(signal)
    verdicts: list[Verdict] = []
    ledger = CaptureLedger(keeper)
    for group in groups:
        if len({signal.group for signal in group}) < DISTINCT:
            continue
        first = max(group, key=lambda signal: (len(signal.steps), signal.episode_id))
        common = frozenset.intersection(*(signal.words for signal in group)) or first.words
        mark = hashlib.sha256(" ".join(sorted(common)).encode()).hexdigest()[:16]

        def capture(
            group: list[Signal] = group, first: Signal = first
        ) -> tuple[str | None, Mapping[str, Any]]:
            verdict = add(
                keeper, space, first.trigger, trigger=first.trigger,
                steps="\n".join(f"{n}. {step}" for n, step in enumerate(first.steps, 1)),
                sources=[signal.episode_id for signal in group], scope=scope,
                confidence=FIRST_CONFIDENCE, origin="agent",
            )  # fmt: skip
            verdicts.append(verdict)
            kept = str(verdict.memory["id"]) if verdict.accepted and verdict.memory else None
            return kept, {"episodes": [signal.episode_id for signal in group]}

        ledger.once(space, "procedure", mark, capture)
    return verdicts


def _note(keeper: Keeper, record: Record, values: Sequence[Mapping[str, Any]]) -> None:
    at = stamp(keeper.clock.now())
    lines = [json.dumps({**value, "m": list(ref(record)), "at": at}, ensure_ascii=False) for value in values]
    keeper.journals.append(keeper.root.journal(record.scope.space, "procedures"), lines)


def _taken(known: Details, value: Mapping[str, Any]) -> Details:
    at = str(value["at"])
    if value["t"] == "outcome":
        success = value["outcome"] == "success"
        row = {
            "id": f"{at}#{len(known.history) + 1}",
            "confidence": float(value["confidence"]),
            "outcome": value["outcome"],
            "reason": value.get("reason") or None,
            "recorded_at": at,
        }
        return replace(
            known,
            success_count=known.success_count + success,
            failure_count=known.failure_count + (not success),
            last_used_at=at,
            history=(*known.history, row),
        )
    if value["t"] == "source":
        episode = str(value["episode"])
        if episode in {source for source, _ in known.sources}:
            return known
        return replace(known, sources=(*known.sources, (episode, at)))
    if value["t"] == "export":
        return replace(known, exported_skill_path=str(value["path"]), exported_at=at)
    return known
