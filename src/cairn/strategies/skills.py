"""`extract_agent_skill`: cases of one kind become a skill, a folder with a `SKILL.md` that grows with them.

A new case joins the skill whose cases it resembles, or forms a new one with cases that stood alone. Confidence
and maturity follow from the source cases alone, so the same cases always give the same numbers. The hash of
each body the machine writes is journalled before it is written: a body with another hash was edited by a
person, and from then on only the frontmatter is kept up.

The folder is `skills/skill_<name>/` and `name` obeys the Agent Skills rule; `portable` gives the copy whose
folder equals its name and whose frontmatter holds nothing but the portable keys.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cairn.canonical import objects_in
from cairn.errors import Invalid, NotFound
from cairn.governed import procedures
from cairn.language import tongues
from cairn.notes import frontmatter
from cairn.notes.format import Note, list_items, parse_note
from cairn.notes.kinds import KINDS, place_of
from cairn.strategies import CaseEvent, Job, Kit, Outcome, Strategy, StrategyAsk, asking
from cairn.strategies.cases import short
from cairn.strategies.similarity import measured
from cairn.types import CellEvent, Entry, Scope

NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
FULLY_GROWN_SESSIONS = 4
COVERED_BY_A_PERSON = 0.72
_MEMBERS_COMPARED = 5
_SINGLES_COMPARED = 300
_TOLD = {"title": asking.TEXT, "description": asking.TEXT, "steps": asking.TEXTS, "pitfalls": asking.TEXTS}
_SCHEMA = asking.shaped("title description steps", **_TOLD)


@dataclass(frozen=True, slots=True)
class KnownCase:
    """A case as the notes have it."""

    id: str
    intent: str
    approach: str
    insight: str
    outcome: str
    quality: float
    session_id: str
    tools: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill folder as it is: its name, its source cases, and whether the machine made it."""

    name: str
    note: Note
    case_ids: tuple[str, ...]
    cluster_id: str


class ExtractAgentSkill(Strategy):
    name = "extract_agent_skill"
    purpose = "similar cases grouped into a reusable skill"
    trigger = "case"
    takes = frozenset({"case"})
    writes_daily = False

    def discover(self, events: Sequence[CellEvent], kit: Kit) -> Iterable[StrategyAsk]:  # noqa: ARG002 -- cases come from notes
        return case_asks(self, kit)

    def finished(self, asks: Sequence[StrategyAsk], kit: Kit) -> set[str]:
        used: set[tuple[Scope, str]] = set()
        for scope in {ask.scope for ask in asks}:
            used.update((scope, case_id) for skill in skills_of(scope, kit) for case_id in skill.case_ids)
        return {ask.input for ask in asks if (ask.scope, ask.entry_id) in used}

    def run_group(self, scope: Scope, day: str, jobs: Sequence[Job], kit: Kit) -> Iterable[Outcome]:  # noqa: ARG002 -- of all days
        return _learn(scope, jobs, kit)


def case_asks(strategy: Strategy, kit: Kit) -> Iterator[StrategyAsk]:
    """One ask for each case there is."""
    for locator in kit.notebook.notes(kind="agent_case"):
        place = place_of(locator)
        for entry in kit.notebook.read(locator).entries if place is not None else ():
            if place is not None:
                session_id = entry.inline.get("session_id", "")
                yield from strategy.asks(CaseEvent(place.scope, entry.id, place.day, session_id))


def _learn(scope: Scope, jobs: Sequence[Job], kit: Kit) -> list[Outcome]:
    cases = cases_of(scope, kit)
    skills = skills_of(scope, kit)
    made = {s.name: list(s.case_ids) for s in skills if s.cluster_id}
    used = {case_id: name for name, ids in made.items() for case_id in ids}
    new = [job.ask.entry_id for job in jobs if job.ask.entry_id in cases and job.ask.entry_id not in used]
    single = [i for i in cases if i not in used and i not in new][-_SINGLES_COMPARED:]
    by_hand = [s for s in skills if not s.cluster_id]
    compared = list(
        dict.fromkeys(
            [*new, *single, *(i for ids in made.values() for i in ids[-_MEMBERS_COMPARED:] if i in cases)]
        )
    )
    texts = [cases[i].intent for i in compared]
    position = {case_id: at for at, case_id in enumerate(compared)}
    alike = measured([*texts, *(_about(s.note) for s in by_hand)], kit)
    groups = dict(made)
    fresh: list[list[str]] = [[i] for i in single]
    covered: dict[str, str] = {}
    for case_id in new:
        at = position[case_id]
        cover = next(
            (s.name for n, s in enumerate(by_hand) if alike(at, len(texts) + n) >= COVERED_BY_A_PERSON), ""
        )
        if cover:
            covered[case_id] = cover
            continue
        best, score = None, kit.options.similarity
        for members in [*groups.values(), *fresh]:
            near = [alike(at, position[m]) for m in members[-_MEMBERS_COMPARED:] if m in position]
            if near and sum(near) / len(near) >= score:
                best, score = members, sum(near) / len(near)
        if best is None:
            fresh.append([case_id])
        else:
            best.append(case_id)
    where: dict[str, tuple[str, str]] = {}
    by_name = {s.name: s for s in skills}
    grown = {name: ids for name, ids in groups.items() if set(ids) & set(new)}
    for ids in fresh:
        if len(ids) >= kit.options.min_cases and set(ids) & set(new):
            grown[_name_of([cases[i] for i in ids], set(by_name) | set(grown))] = ids
    for name, ids in grown.items():
        reason = _write(scope, name, [cases[i] for i in ids if i in cases], ids, kit)
        where.update((i, (name, reason)) for i in ids)
    return [_answer(job, cases, used, covered, where) for job in jobs]


def _answer(
    job: Job,
    cases: Mapping[str, KnownCase],
    used: Mapping[str, str],
    covered: Mapping[str, str],
    where: Mapping[str, tuple[str, str]],
) -> Outcome:
    case_id = job.ask.entry_id
    if case_id in where:
        return Outcome(job, "wrote", where[case_id][1], (f"skill_{where[case_id][0]}",))
    if case_id in used:
        return Outcome(job, "wrote", "written before", (f"skill_{used[case_id]}",))
    if case_id in covered:
        return Outcome(job, "skipped", f"skill_{covered[case_id]}, written by hand, covers it")
    if case_id not in cases:
        return Outcome(job, "skipped", f"case {case_id} was removed")
    return Outcome(job, "skipped", "no other case is like it yet")


# -- reading


def cases_of(scope: Scope, kit: Kit) -> dict[str, KnownCase]:
    """Every case of an agent, oldest first."""
    found: dict[str, KnownCase] = {}
    for _, note in kit.notes_of("agent_case", scope):
        gone = note.frontmatter.get("deprecated_entries") or {}
        for entry in note.entries:
            if entry.id not in gone:
                found[entry.id] = _known(entry)
    return found


def _known(entry: Entry) -> KnownCase:
    try:
        quality = float(entry.inline.get("quality_score", "0"))
    except ValueError:
        quality = 0.0
    return KnownCase(
        entry.id,
        entry.sections.get("TaskIntent", ""),
        entry.sections.get("Approach", ""),
        entry.sections.get("KeyInsight", ""),
        entry.inline.get("outcome", "success" if quality >= 0.6 else "unknown"),
        quality,
        entry.inline.get("session_id", ""),
        tuple(list_items(entry.inline.get("tools", "[]"))),
    )


def skills_of(scope: Scope, kit: Kit) -> list[Skill]:
    """Every skill folder of an agent."""
    found = []
    folder = kit.root.scope(scope).child("skills")
    for directory in kit.notebook.storage.list(folder):
        place = place_of(directory.child("SKILL.md"))
        if place is None:
            continue
        try:
            note = kit.notebook.read(directory.child("SKILL.md"))
        except NotFound:
            continue
        ids = note.frontmatter.get("source_case_ids")
        found.append(
            Skill(
                place.name,
                note,
                tuple(i for i in ids if isinstance(i, str)) if isinstance(ids, list) else (),
                str(note.frontmatter.get("cluster_id") or ""),
            )
        )
    return found


def _about(note: Note) -> str:
    return f"{note.frontmatter.get('name', '')} {note.frontmatter.get('description', '')}"


# -- writing


def _write(scope: Scope, name: str, cases: Sequence[KnownCase], ids: Sequence[str], kit: Kit) -> str:
    """Write or bring up to date one skill; the reason says what was left as it is."""
    composed = _composed(cases, kit)
    body, description = kit.redact(composed[1]), kit.redact(composed[0])
    sha = hashlib.sha256(body.encode()).hexdigest()
    journal = kit.root.journal(scope.space, "skills")
    ours = _recorded(scope, name, kit)
    now = kit.clock.now().isoformat()
    confidence = confidence_of(cases)
    line = {
        "at": now,
        "agent": scope.owner,
        "skill": name,
        "cases": len(ids),
        "last_case": ids[-1],
        "confidence": confidence,
        "body_sha256": sha,
        "description": description,
    }
    kit.journals.append(journal, [json.dumps(line, ensure_ascii=False)])
    kept = ""

    def edit(text: str | None) -> str | None:
        nonlocal kept
        kept = ""
        old = parse_note(text) if text else None
        head = dict(old.frontmatter) if old is not None else {}
        fields: dict[str, Any] = {
            "name": name,
            "description": description,
            "confidence": confidence,
            "maturity_score": maturity_of(cases),
            "source_case_ids": list(ids),
            "cluster_id": head.get("cluster_id")
            or "cl_" + hashlib.sha256(f"{scope.owner}/{ids[0]}".encode()).hexdigest()[:12],
            "created_at": head.get("created_at") or now,
            "updated_at": now,
        }
        if old is None or text is None:
            return KINDS["agent_skill"].document(scope, fields, body, name=name)
        if not old.head.fenced or not old.head.closed:
            kept = "its frontmatter is broken: left alone"
            return None
        if str(head.get("description", "")) not in {d for _, d in ours} | {description}:
            del fields["description"]
        new_body = body
        if hashlib.sha256(old.body.encode()).hexdigest() not in {s for s, _ in ours} | {sha}:
            new_body, kept = old.body, "edited by hand: its body was kept as it is"
        return frontmatter.in_head(text[: old.head.body], fields, old.head) + new_body

    kit.notebook.rewrite(KINDS["agent_skill"].locator(scope, name), edit)
    return kept


def _recorded(scope: Scope, name: str, kit: Kit) -> set[tuple[str, str]]:
    """(body hash, description) of everything the machine wrote for this skill."""
    found = set()
    for record in objects_in(kit.journals.read(kit.root.journal(scope.space, "skills")).lines):
        with suppress(KeyError):
            if record["agent"] == scope.owner and record["skill"] == name:
                found.add((str(record["body_sha256"]), str(record["description"])))
    return found


def confidence_of(cases: Sequence[KnownCase]) -> float:
    """How far to trust a skill: a success closes 15 % of the gap to certainty, a failure costs 30 %."""
    value = procedures.FIRST_CONFIDENCE
    for case in cases:
        if case.outcome in {"success", "failure"}:
            value = procedures.after_use(value, success=case.outcome == "success")
    return round(value, 4)


def maturity_of(cases: Sequence[KnownCase]) -> float:
    """How grown a skill is: four separate sessions make it ripe."""
    return round(min(len({c.session_id or c.id for c in cases}) / FULLY_GROWN_SESSIONS, 1.0), 2)


def _composed(cases: Sequence[KnownCase], kit: Kit) -> tuple[str, str]:
    """(description, body) of a skill made of `cases`."""
    best = max(cases, key=lambda c: (c.outcome == "success", c.quality, c.id))
    signals = _signals(cases)
    description = f"Handles tasks like: {short(best.intent, 300)} Use when a task is about {', '.join(signals[:6]) or 'the same thing'}."
    steps = _steps(best)
    pitfalls = _pitfalls(cases, best)
    answer = asking.ask(kit, "skill", "\n\n".join(_shown(c) for c in cases[-10:]), _SCHEMA)
    if answer is not None:
        told = asking.line(answer.get("description"), 900)
        raw = answer.get("steps")
        lines = [text for item in raw if (text := asking.line(item))] if isinstance(raw, list) else []
        if told and lines:
            description, steps = told, lines[:40]
            more = answer.get("pitfalls")
            pitfalls = (
                [text for item in more if (text := asking.line(item))][:10]
                if isinstance(more, list)
                else pitfalls
            )
    insights = list(
        dict.fromkeys(c.insight for c in reversed(cases) if c.insight and c.insight != "None was stated.")
    )[:5]
    tools = list(dict.fromkeys(tool for c in cases for tool in c.tools))
    won = sum(c.outcome == "success" for c in cases)
    parts = [
        "## When to use",
        "",
        f"Tasks about {', '.join(signals[:8]) or 'the same thing'}, for example:",
        "",
    ]
    parts += [f"- {short(c.intent, 200)}" for c in cases[-3:]]
    parts += ["", "## Steps", "", *[f"{n}. {step}" for n, step in enumerate(steps, start=1)]]
    if insights:
        parts += ["", "## What to know", "", *[f"- {i}" for i in insights]]
    if pitfalls:
        parts += ["", "## Pitfalls", "", *[f"- {p}" for p in pitfalls]]
    parts += ["", "## Context", "", f"Learned from {len(cases)} cases, {won} of them successful."]
    if tools:
        parts.append(f"Tools used: {', '.join(tools[:12])}.")
    return short(description, 1000), "\n".join(parts) + "\n"


def _shown(case: KnownCase) -> str:
    return f"[{case.id}] Task: {case.intent}\nOutcome: {case.outcome}\nSteps:\n{case.approach}\nInsight: {case.insight}"


def _steps(case: KnownCase) -> list[str]:
    """The steps of a case, without repeats in a row."""
    found: list[str] = []
    for row in case.approach.splitlines():
        match = re.match(r"^\d+\. (.+)$", row.strip())
        if match and (not found or found[-1] != match.group(1)):
            found.append(match.group(1))
    return found[:40] or [short(case.approach, 300) or "No steps were recorded."]


def _pitfalls(cases: Sequence[KnownCase], best: KnownCase) -> list[str]:
    found = []
    for case in cases:
        if case.outcome in {"failure", "partial"} and case.id != best.id:
            found.append(f"{short(case.intent, 120)} ended as {case.outcome}: {short(case.insight, 200)}")
    return list(dict.fromkeys(found))[-5:]


def _signals(cases: Sequence[KnownCase]) -> list[str]:
    """The words that most of the cases share, in the order of the newest task."""
    bags = [set(_content(c.intent)) for c in cases]
    need = max(2, (len(bags) + 1) // 2) if len(bags) > 1 else 1
    return [w for w in dict.fromkeys(_content(cases[-1].intent)) if sum(w in bag for bag in bags) >= need]


def _content(text: str) -> list[str]:
    plain = tongues.every_word("cases", "plain") | tongues.every_word("cases", "asked")
    return [w for w in re.findall(r"[^\W\d_]{3,}", text.casefold()) if w not in plain]


def _name_of(cases: Sequence[KnownCase], taken: set[str]) -> str:
    """A name by the Agent Skills rule: lower-case ASCII words joined by hyphens, 64 characters at most."""
    chosen = _signals(cases) or _content(cases[-1].intent)
    plain = [unicodedata.normalize("NFKD", w).encode("ascii", "ignore").decode() for w in chosen]
    base = "-".join(w for w in (re.sub(r"[^a-z0-9]", "", p) for p in plain[:5]) if w)[:50].strip("-")
    base = base or "task-" + hashlib.sha256(cases[0].id.encode()).hexdigest()[:8]
    name, number = base, 2
    while name in taken:
        name, number = f"{base}-{number}", number + 1
    return name


# -- leaving


def portable(text: str) -> tuple[str, str]:
    """(folder, text) of a skill as any Agent Skills host takes it: the folder is the name, the keys portable.

    Raises:
        Invalid: the name or the description breaks the rules.
    """
    note = parse_note(text)
    name, description = str(note.frontmatter.get("name", "")), str(note.frontmatter.get("description", ""))
    if not NAME.fullmatch(name) or len(name) > 64:
        raise Invalid(
            f'Skill name "{name[:70]}" must be 1 to 64 of a-z, 0-9 and single hyphens.', field="name"
        )
    if not 1 <= len(description) <= 1024:
        raise Invalid(
            f"Skill {name}: the description needs 1 to 1024 characters, it has {len(description)}.",
            field="description",
        )
    kept = ("confidence", "maturity_score", "cluster_id", "updated_at")
    metadata = {key: str(note.frontmatter[key]) for key in kept if note.frontmatter.get(key) is not None}
    head = {"name": name, "description": description, **({"metadata": metadata} if metadata else {})}
    return name, f"---\n{frontmatter.dump(head)}---\n{note.body}"
