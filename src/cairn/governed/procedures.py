"""Procedures: memories with a trigger and steps, whose confidence follows their outcomes; and skill files.

A procedure is a memory of category "procedure" (A30): when and how stand in its entry (Trigger, Procedure),
what happened to it in `journal/procedures.jsonl` (outcomes, contributing episodes, exports). The entry carries
the present confidence; the journal carries every step that led to it.

As SKILL.md files they go both ways. An export is a valid Agent Skill: a folder named like the skill, frontmatter with
name and description, then When to use, Steps and Context. A registry (`journal/skill-index.jsonl`) knows skill files by
content hash: a new or changed one becomes, or updates, a procedure memory; a vanished one is tombstoned. A skill
written by a person that says what a learned procedure says supersedes it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from cairn.canonical import rows_in, text_hash
from cairn.errors import Invalid
from cairn.governed import corrections
from cairn.governed.access import Ref, ref
from cairn.governed.ledger import CaptureLedger
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, stamp
from cairn.language.near import jaccard
from cairn.language.words import word_set
from cairn.notes.format import below_headings
from cairn.seams import Locator
from cairn.seams.storage import readable_files
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
    if verdict.memory_id is not None and sources:
        scope = keeper.scope_of(
            space, fields.get("scope", "project"), fields.get("owner", ""), agent_id=fields.get("agent_id")
        )
        record = keeper.find(space, verdict.memory_id, scope=scope)
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
        confidence = after_use(record.confidence, success=success)
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


def after_use(confidence: float, *, success: bool) -> float:
    """How sure a way of working is after one more use: a success closes 15 % of the gap, a failure costs 30 %."""
    return min(0.99, confidence + 0.15 * (1 - confidence)) if success else max(0.01, 0.7 * confidence)


def details(keeper: Keeper, space: Space) -> dict[Ref, Details]:
    """Counters, history and sources of every procedure of a space."""
    out: dict[Ref, Details] = {}
    for value in keeper.noted(space, "procedures"):
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
    verdicts: list[Verdict | None] = []
    ledger = CaptureLedger(keeper)
    for group in groups:
        if len({signal.group for signal in group}) < DISTINCT:
            continue
        first = max(group, key=lambda signal: (len(signal.steps), signal.episode_id))
        common = frozenset.intersection(*(signal.words for signal in group)) or first.words
        mark = text_hash(" ".join(sorted(common)))[:16]

        def capture(group: list[Signal] = group, first: Signal = first) -> tuple[Verdict, Mapping[str, Any]]:
            verdict = add(
                keeper, space, first.trigger, trigger=first.trigger,
                steps="\n".join(f"{n}. {step}" for n, step in enumerate(first.steps, 1)),
                sources=[signal.episode_id for signal in group], scope=scope,
                confidence=FIRST_CONFIDENCE, origin="agent",
            )  # fmt: skip
            return verdict, {"episodes": [signal.episode_id for signal in group]}

        verdicts.append(ledger.once(space, "procedure", mark, capture))
    return [verdict for verdict in verdicts if verdict is not None]


def _note(keeper: Keeper, record: Record, values: Sequence[Mapping[str, Any]]) -> None:
    about = {"m": list(ref(record)), "at": stamp(keeper.clock.now())}
    keeper.note(record.scope.space, "procedures", *({**value, **about} for value in values))


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


# ---------------------------------------------------------------- skills

SUPERSEDES_AT = 0.72
PACK = "skill"
_FRONT = re.compile(r"\A---\r?\n(.*?)\r?\n---\r?\n?", re.DOTALL)
_HEADING = re.compile(r"^#{1,3} (.+?)\s*$", re.MULTILINE)
_WHEN = ("when to use", "when", "trigger", "use when")
_HOW = ("steps", "procedure", "instructions", "how")


@dataclass(frozen=True, slots=True)
class SkillRow:
    """One indexed skill file (A31). `archived_at` is its tombstone."""

    id: str
    path: str
    kind: Literal["skill", "command"]
    source: str
    memory_id: str | None
    content_hash: str
    last_modified_at: str | None
    archived_at: str | None
    created_at: str
    updated_at: str


@dataclass(frozen=True, slots=True)
class SkillFile:
    """A skill file as found: where, what it says, and when it was changed."""

    path: str
    text: str
    modified_at: str | None = None
    source: str = "folder"


@dataclass(frozen=True, slots=True)
class ScanReport:
    """Paths by what became of them."""

    added: Sequence[str]
    changed: Sequence[str]
    removed: Sequence[str]
    unchanged: Sequence[str]
    superseded: Sequence[str]
    refused: Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class SkillText:
    """What a SKILL.md says."""

    name: str
    description: str
    trigger: str
    steps: str


def slug(text: str) -> str:
    """A name an Agent Skill may have: a-z, 0-9 and single hyphens, at most 64 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")
    return name or "skill-" + text_hash(text)[:8]


def render_skill(record: Record, sources: Sequence[str] = ()) -> str:
    """A procedure as the text of a SKILL.md."""
    import yaml

    first = record.content.strip().splitlines()[0]
    description = " ".join(f"{first}. Use when: {record.trigger}".replace("..", ".").split())[:1024]
    head = yaml.safe_dump(
        {"name": slug(first), "description": description}, sort_keys=False, allow_unicode=True, width=10_000
    )
    context = [
        record.content.strip(),
        f"Confidence {record.confidence:.2f}, seen {record.observation_count} times.",
    ]
    if sources:
        context.append("Learned from: " + ", ".join(sources) + ".")
    parts = (
        f"# {first}",
        "## When to use",
        record.trigger,
        "## Steps",
        record.procedure,
        "## Context",
        *context,
    )
    return f"---\n{head}---\n\n" + "\n\n".join(part.strip() for part in parts if part.strip()) + "\n"


def parse_skill(text: str, fallback: str = "") -> SkillText:
    """Read a SKILL.md, ours or anyone's.

    Raises:
        Invalid: there is no name, or nothing that says what to do.
    """
    found = _FRONT.match(text)
    head: Any = {}
    if found is not None:
        import yaml

        try:
            head = yaml.safe_load(found[1]) or {}
        except yaml.YAMLError:
            head = {}
    head = head if isinstance(head, dict) else {}
    body = text[found.end() :] if found is not None else text
    sections = dict(reversed(list(below_headings(body, _HEADING))))
    name = str(head.get("name") or fallback or "").strip()
    description = str(head.get("description") or "").strip()
    steps = next((sections[title] for title in _HOW if sections.get(title)), "") or body.strip()
    trigger = next((sections[title] for title in _WHEN if sections.get(title)), "") or description or name
    if not name or not steps or not trigger:
        raise Invalid("A SKILL.md needs a name, a description and steps.", field="skill")
    return SkillText(name, description, trigger, steps)


def export_skill(keeper: Keeper, record: Record) -> Locator:
    """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; returns the place.

    Raises:
        Invalid: it is not a procedure, or lacks a trigger or steps.
        Conflict: a file by someone else is there.
    """
    if record.category != "procedure" or not record.trigger or not record.procedure:
        raise Invalid(f"{record.id} is not a procedure with a trigger and steps.", id=record.id)
    known = details(keeper, record.scope.space).get(ref(record), Details())
    text = render_skill(record, [episode for episode, _ in known.sources])
    at = keeper.root.scope(record.scope).child("skills", parse_skill(text).name, "SKILL.md")
    if keeper.storage.exists(at) and known.exported_skill_path != at.key:
        raise Invalid(
            f"{at} is there already and is not an export of {record.id}; rename one of them.", path=at.key
        )
    keeper.storage.write(at, text)
    _note(keeper, record, [{"t": "export", "path": at.key}])
    return at


def skills_in_root(keeper: Keeper, space: Space) -> list[SkillFile]:
    """The skill files inside the memory root: `shared/skills/` and each agent's `skills/`."""
    base = keeper.root.space(space)
    folders = [
        base.child("shared", "skills"),
        *(a.child("skills") for a in keeper.storage.list(base.child("agents"))),
    ]
    exported = {d.exported_skill_path for d in details(keeper, space).values()}
    return [
        SkillFile(at.key, keeper.storage.read(at), source="root")
        for one in folders
        for at in readable_files(keeper.storage, one)
        if at.name == "SKILL.md" and at.key not in exported
    ]


def skill_index(keeper: Keeper, space: Space) -> list[SkillRow]:
    """The registry, tombstones included."""
    lines = keeper.journals.read(keeper.root.journal(space, "skill-index")).lines
    return list({row.path: row for row in rows_in(SkillRow, lines)}.values())


def scan_skills(
    keeper: Keeper, space: Space, found: Sequence[SkillFile], *, sources: Sequence[str] = ("root", "folder")
) -> ScanReport:
    """Bring the registry in step with the skill files found (A32).

    Only rows of the given `sources` can be tombstoned, so that scanning one folder does not bury another's.
    """
    known = {row.path: row for row in skill_index(keeper, space)}
    report: dict[str, list[Any]] = {
        k: [] for k in ("added", "changed", "removed", "unchanged", "superseded", "refused")
    }
    lines: list[SkillRow] = []
    now = stamp(keeper.clock.now())
    with keeper.locks.hold(f"skills {space}", timeout=60.0):
        for file in found:
            mark = text_hash(file.text)
            old = known.get(file.path)
            if old is not None and old.content_hash == mark and old.archived_at is None:
                report["unchanged"].append(file.path)
                continue
            try:
                memory_id, replaced = _take_in(keeper, space, file, old)
            except Invalid as error:
                report["refused"].append((file.path, str(error)))
                continue
            report["superseded"] += replaced
            report["added" if old is None else "changed"].append(file.path)
            kind: Literal["skill", "command"] = "skill" if file.path.endswith("SKILL.md") else "command"
            lines.append(
                SkillRow(
                    old.id if old is not None else "skl_" + text_hash(file.path)[:16],
                    file.path, kind, file.source, memory_id, mark, file.modified_at, None,
                    old.created_at if old is not None else now, now,
                )
            )  # fmt: skip
        here = {file.path for file in found}
        for row in known.values():
            if row.path not in here and row.archived_at is None and row.source in sources:
                lines.append(replace(row, archived_at=now, updated_at=now))
                report["removed"].append(row.path)
                record = _find(keeper, space, row.memory_id)
                if record is not None and record.is_live:
                    corrections.archive(keeper, record, reason="its skill file is gone", by="scan")
        if lines:
            keeper.note(space, "skill-index", *map(asdict, lines))
    return ScanReport(**report)


def _take_in(
    keeper: Keeper, space: Space, file: SkillFile, old: SkillRow | None
) -> tuple[str | None, list[str]]:
    folder = file.path.rsplit("/", 2)[-2] if file.path.count("/") else ""
    stem = file.path.rsplit("/", 1)[-1].removesuffix(".md")
    skill = parse_skill(file.text, fallback=folder if stem == "SKILL" else stem)
    title = f"{skill.name}: {skill.description}" if skill.description else skill.name
    record = _find(keeper, space, old.memory_id) if old is not None else None
    if record is not None:
        corrections.restore(keeper, record)
        corrections.edit(
            keeper, record, reason=f"{file.path} changed", content=title, trigger=skill.trigger,
            procedure=skill.steps,
        )  # fmt: skip
        return record.id, []
    verdict = add(
        keeper, space, title, trigger=skill.trigger, steps=skill.steps, status="promoted", origin="human",
        source_type="user", source_id=file.path, source_pack_key=PACK,
    )  # fmt: skip
    kept = verdict.memory_id
    return kept, _supersede(keeper, space, skill, kept) if kept is not None else []


def _supersede(keeper: Keeper, space: Space, skill: SkillText, memory_id: str) -> list[str]:
    """Put away learned procedures that say what the skill says (A92)."""
    words = word_set(f"{skill.trigger}\n{skill.steps}")
    out = []
    for record in (one for scope in keeper.scopes(space) for one in keeper.records(scope)):
        is_learned = record.category == "procedure" and record.is_live and record.source_pack_key != PACK
        if not is_learned or record.id == memory_id:
            continue
        if jaccard(words, word_set(f"{record.trigger}\n{record.procedure}")) >= SUPERSEDES_AT:
            reason = f"the skill {skill.name} says it"
            corrections.put_away(keeper, record, by="skill", reason=reason, successor=memory_id)
            out.append(record.id)
    return out


def _find(keeper: Keeper, space: Space, memory_id: str | None) -> Record | None:
    try:
        return keeper.find(space, memory_id) if memory_id is not None else None
    except (Invalid, FileNotFoundError):
        return None
