"""`extract_agent_case`: what an agent was asked, how it went about it, how that ended and what it teaches.

A case is read off the tool calls of a cell. A trajectory with too few steps or without a task is skipped on
purpose, and the reason is recorded: a case that teaches nothing would only water down the skills made of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Literal

from cairn.canonical import from_json
from cairn.errors import NotFound
from cairn.language import sentences, tongues
from cairn.notes.notebook import Draft
from cairn.strategies import CaseEvent, Job, Kit, Outcome, Strategy, StrategyAsk, asking
from cairn.talk.messages import inline_of
from cairn.types import Message, Scope, ToolCall

CaseOutcome = Literal["success", "partial", "failure", "unknown"]
MAX_STEPS = 30


def _says(name: str, text: str) -> bool:
    """Whether a text has what any language lists under a name of its table `cases`."""
    return tongues.every_pattern("cases", name).search(text) is not None


_SCHEMA = asking.shaped(
    "task_intent approach outcome key_insight",
    task_intent=asking.TEXT,
    approach=asking.TEXTS,
    outcome={"type": "string", "enum": ["success", "partial", "failure", "unknown"]},
    key_insight=asking.TEXT,
    quality_score={"type": "number"},
)


@dataclass(frozen=True, slots=True)
class Step:
    """One tool call with the start of its result."""

    tool: str
    arguments: str
    result: str
    is_trouble: bool


@dataclass(frozen=True, slots=True)
class Case:
    """A trajectory worth learning from."""

    task_intent: str
    steps: tuple[Step, ...]
    final: str
    outcome: CaseOutcome
    key_insight: str
    quality: float
    message_ids: tuple[str, ...]
    timestamp: int
    duration_seconds: int
    approach: str = ""

    def approach_text(self) -> str:
        """The steps as a numbered list, and how it ended."""
        if self.approach:
            return self.approach
        lines = []
        for number, step in enumerate(self.steps[:MAX_STEPS], start=1):
            arrow = f" -> {step.result}" if step.result else ""
            lines.append(f"{number}. {step.tool}{': ' + step.arguments if step.arguments else ''}{arrow}")
        if len(self.steps) > MAX_STEPS:
            lines.append(f"... and {len(self.steps) - MAX_STEPS} more calls")
        if self.final:
            lines.append(f"Final: {self.final}")
        return "\n".join(lines)


def case_of(messages: Sequence[Message], agent: str, min_steps: int) -> Case | str:
    """The case in an agent's messages, or the reason why there is none."""
    results = {m.tool_call_id: m.text for m in messages if m.role == "tool" and m.tool_call_id}
    calls = [(n, m, c) for n, m in enumerate(messages) if m.sender_id == agent for c in m.tool_calls]
    if not calls:
        return "no tool was called"
    if len(calls) < min_steps:
        return f"too thin: {len(calls)} tool call{'s' if len(calls) != 1 else ''}, {min_steps} make a case"
    first = calls[0][0]
    asked = [m for m in messages[:first] if m.role == "user" and m.text.strip()] or [
        m for m in messages if m.role == "user" and m.text.strip()
    ]
    if not asked:
        return "nobody asked for anything"
    intent = short(asked[-1].text, 300)
    if len(re.findall(r"[^\W_]+", intent)) < 3:
        return f'too thin: "{intent}" is not a task'
    steps = tuple(_step(call, results.get(call.id, "")) for _, _, call in calls)
    said = [m for m in messages if m.sender_id == agent and m.role == "assistant" and m.text.strip()]
    final = next((short(m.text, 300) for m in reversed(said) if messages.index(m) >= first), "")
    last = calls[-1][0]
    reaction = " ".join(m.text for m in messages[last:] if m.role == "user")
    outcome = _outcome(steps, final, reaction)
    insight = _insight(steps, [m for m in said if messages.index(m) >= first], outcome)
    quality = _quality(steps, outcome, insight, final)
    times = [m.timestamp for m in messages]
    ids = tuple(m.id for m in (asked[-1], *(m for _, m, _ in calls)) if m.id)
    return Case(
        intent,
        steps,
        final,
        outcome,
        insight,
        quality,
        tuple(dict.fromkeys(ids)),
        messages[-1].timestamp,
        (max(times) - min(times)) // 1000,
    )


def _step(call: ToolCall, result: str) -> Step:
    lines = [row.strip() for row in result.splitlines() if row.strip()]
    trouble = next((row for row in lines if _says("trouble", row) and not _says("no_trouble", row)), "")
    shown = trouble or (lines[0] if lines else "")
    return Step(call.name, _arguments(call.arguments), short(shown, 120), bool(trouble))


def _arguments(raw: str) -> str:
    """The arguments that tell what was done: short scalars, named; long ones cut."""
    try:
        value: Any = from_json(raw) if raw.strip() else {}
    except ValueError:
        return short(raw, 120)
    if not isinstance(value, dict):
        return short(json.dumps(value, ensure_ascii=False), 120)
    shown = []
    for key, item in value.items():
        text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False)
        shown.append(f"{key}={short(text, 90)}")
        if sum(map(len, shown)) > 160:
            break
    return ", ".join(shown)


def _outcome(steps: Sequence[Step], final: str, reaction: str) -> CaseOutcome:
    if _says("complaint", reaction):
        return "failure" if steps[-1].is_trouble else "partial"
    if _says("thanks", reaction):
        return "success"
    if steps[-1].is_trouble:
        return "failure" if not _says("fine", final) else "partial"
    if _says("fine", final) or _says("fine", steps[-1].result):
        return "success"
    return "unknown" if not final else "partial"


def _insight(steps: Sequence[Step], said: Sequence[Message], outcome: CaseOutcome) -> str:
    """What to remember: the agent's own words on the cause, else what stopped the trouble."""
    for message in reversed(said):
        found = [s for s in sentences.split(message.text) if _says("cause", s) and 4 <= len(s.split()) <= 60]
        if found:
            return " ".join(found[:2])
    for at, step in enumerate(steps[:-1]):
        if step.is_trouble:
            cure = next((s for s in steps[at + 1 :] if not s.is_trouble), None)
            if cure is not None and outcome in {"success", "partial"}:
                done = f"{cure.tool} ({cure.arguments})" if cure.arguments else cure.tool
                return f'When {step.tool} answers "{step.result}", what got further was {done}.'
            return f'{step.tool} answered "{step.result}" and nothing that was tried changed that.'
    tools = list(dict.fromkeys(s.tool for s in steps))
    return f"{' then '.join(tools)} was enough; nothing failed on the way." if outcome == "success" else ""


def _quality(steps: Sequence[Step], outcome: CaseOutcome, insight: str, final: str) -> float:
    score = {"success": 0.6, "partial": 0.4, "unknown": 0.3, "failure": 0.25}[outcome]
    score += 0.15 if insight else 0.0
    score += 0.1 if final else 0.0
    score += 0.1 if 3 <= len(steps) <= 20 else 0.0
    return round(
        min(score + (0.05 if any(s.is_trouble for s in steps) and outcome == "success" else 0.0), 1.0), 2
    )


def short(text: str, limit: int) -> str:
    """One line of at most `limit` characters, cut at a word."""
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 3].rsplit(" ", 1)[0] + "..."


class ExtractAgentCase(Strategy):
    name = "extract_agent_case"
    purpose = "task, approach, outcome and insight of an agent's work"
    trigger = "cell"
    takes = frozenset({"agent"})
    kind = "agent_case"

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:
        drafts: list[Draft] = []
        wrote: list[Job] = []
        for job in jobs:
            try:
                cell = kit.cells.cell(job.ask)
            except NotFound as gone:
                yield Outcome(job, "skipped", str(gone))
                continue
            case = case_of(cell.messages, scope.owner, kit.options.min_steps)
            if isinstance(case, str):
                yield Outcome(job, "skipped", case)
                continue
            drafts.append(_draft(job.ask, _improved(case, cell.messages, kit), cell.messages, kit))
            wrote.append(job)
        written = kit.notebook.append("agent_case", scope, day, drafts, once_by=("parent_id",))
        for job, entry in zip(wrote, written, strict=True):
            event = CaseEvent(scope, entry.entry_id, day, job.ask.session_id)
            yield Outcome(job, "wrote", "", (entry.entry_id,), (event,))


def _draft(ask: StrategyAsk, case: Case, said: Sequence[Message], kit: Kit) -> Draft:
    return Draft(
        {
            "owner_id": ask.scope.owner,
            "session_id": ask.session_id,
            "timestamp": datetime.fromtimestamp(case.timestamp / 1000, UTC).isoformat(),
            "parent_type": "memcell",
            "parent_id": ask.cell_id,
            "quality_score": case.quality,
            "outcome": case.outcome,
            "tools": list(dict.fromkeys(step.tool for step in case.steps)),
            "duration_seconds": case.duration_seconds,
            "message_ids": list(case.message_ids[:20]),
            **inline_of(said),
        },
        {
            "TaskIntent": kit.redact(case.task_intent),
            "Approach": kit.redact(case.approach_text()),
            "KeyInsight": kit.redact(case.key_insight) or "None was stated.",
        },
    )


def _improved(case: Case, messages: Sequence[Message], kit: Kit) -> Case:
    """The same case in a model's words, where there is a model and its answer holds up."""
    answer = asking.ask(kit, "case", asking.transcript(messages, kit), _SCHEMA)
    if answer is None:
        return case
    intent, insight = asking.line(answer.get("task_intent")), asking.line(answer.get("key_insight"))
    raw = answer.get("approach")
    steps = [text for item in raw if (text := asking.line(item))][:MAX_STEPS] if isinstance(raw, list) else []
    outcome = answer.get("outcome")
    score = answer.get("quality_score", case.quality)
    if not intent or not steps or outcome not in {"success", "partial", "failure", "unknown"}:
        return case
    quality = (
        float(score)
        if isinstance(score, int | float) and not isinstance(score, bool) and 0 <= score <= 1
        else case.quality
    )
    lines = [f"{number}. {text}" for number, text in enumerate(steps, start=1)]
    approach = "\n".join([*lines, f"Final: {case.final}"] if case.final else lines)
    insight = insight or case.key_insight
    return replace(
        case, task_intent=intent, outcome=outcome, key_insight=insight, quality=quality, approach=approach
    )
