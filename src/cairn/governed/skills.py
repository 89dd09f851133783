"""Procedures as SKILL.md files, both ways, and a registry of the skills that lie around.

An export is a valid Agent SkillText: a folder named like the skill, frontmatter with name and description, then
When to use, Steps and Context. The registry (`journal/skill-index.jsonl`) knows skill files by content hash: a new
or changed one becomes, or updates, a procedure memory; a vanished one is tombstoned. A skill written by a
person that says what a learned procedure says supersedes it.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
from typing import Any, Literal

import yaml

from cairn.canonical import objects_in
from cairn.errors import Invalid
from cairn.governed import corrections, procedures
from cairn.governed.access import ref
from cairn.governed.memories import Keeper
from cairn.governed.records import Record, stamp
from cairn.language.near import jaccard
from cairn.language.words import word_set
from cairn.seams import Locator
from cairn.seams.storage import readable_files
from cairn.types import Space

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
    context: str = ""


def slug(text: str) -> str:
    """A name an Agent Skill may have: a-z, 0-9 and single hyphens, at most 64 characters."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode().lower()
    name = re.sub(r"[^a-z0-9]+", "-", plain)[:64].strip("-")
    return name or "skill-" + hashlib.sha256(text.encode()).hexdigest()[:8]


def render(record: Record, sources: Sequence[str] = ()) -> str:
    """A procedure as the text of a SKILL.md."""
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


def parse(text: str, fallback: str = "") -> SkillText:
    """Read a SKILL.md, ours or anyone's.

    Raises:
        Invalid: there is no name, or nothing that says what to do.
    """
    found = _FRONT.match(text)
    head: Any = {}
    if found is not None:
        try:
            head = yaml.safe_load(found[1]) or {}
        except yaml.YAMLError:
            head = {}
    head = head if isinstance(head, dict) else {}
    body = text[found.end() :] if found is not None else text
    sections: dict[str, str] = {}
    marks = list(_HEADING.finditer(body))
    for mark, following in zip_longest(marks, marks[1:]):
        end = following.start() if following is not None else len(body)
        sections.setdefault(mark[1].strip().casefold(), body[mark.end() : end].strip())
    name = str(head.get("name") or fallback or "").strip()
    description = str(head.get("description") or "").strip()
    steps = next((sections[title] for title in _HOW if sections.get(title)), "") or body.strip()
    trigger = next((sections[title] for title in _WHEN if sections.get(title)), "") or description or name
    if not name or not steps or not trigger:
        raise Invalid("A SKILL.md needs a name, a description and steps.", field="skill")
    return SkillText(name, description, trigger, steps, sections.get("context", ""))


def export(keeper: Keeper, record: Record) -> Locator:
    """Write a procedure as `skills/<name>/SKILL.md` in its scope's folder; returns the place.

    Raises:
        Invalid: it is not a procedure, or lacks a trigger or steps.
        Conflict: a file by someone else is there.
    """
    if record.category != "procedure" or not record.trigger or not record.procedure:
        raise Invalid(f"{record.id} is not a procedure with a trigger and steps.", id=record.id)
    known = procedures.details(keeper, record.scope.space).get(ref(record), procedures.Details())
    text = render(record, [episode for episode, _ in known.sources])
    at = keeper.root.scope(record.scope).child("skills", parse(text).name, "SKILL.md")
    if keeper.storage.exists(at) and known.exported_skill_path != at.key:
        raise Invalid(
            f"{at} is there already and is not an export of {record.id}; rename one of them.", path=at.key
        )
    keeper.storage.write(at, text)
    procedures.note_export(keeper, record, at.key)
    return at


def in_root(keeper: Keeper, space: Space) -> list[SkillFile]:
    """The skill files inside the memory root: `shared/skills/` and each agent's `skills/`."""
    base = keeper.root.space(space)
    folders = [
        base.child("shared", "skills"),
        *(a.child("skills") for a in keeper.storage.list(base.child("agents"))),
    ]
    exported = {d.exported_skill_path for d in procedures.details(keeper, space).values()}
    return [
        SkillFile(at.key, keeper.storage.read(at), source="root")
        for one in folders
        for at in readable_files(keeper.storage, one)
        if at.name == "SKILL.md" and at.key not in exported
    ]


def index(keeper: Keeper, space: Space) -> list[SkillRow]:
    """The registry, tombstones included."""
    rows: dict[str, SkillRow] = {}
    for value in objects_in(keeper.journals.read(keeper.root.journal(space, "skill-index")).lines):
        with suppress(TypeError):
            row = SkillRow(**value)
            rows[row.path] = row
    return list(rows.values())


def scan(
    keeper: Keeper, space: Space, found: Sequence[SkillFile], *, sources: Sequence[str] = ("root", "folder")
) -> ScanReport:
    """Bring the registry in step with the skill files found (A32).

    Only rows of the given `sources` can be tombstoned, so that scanning one folder does not bury another's.
    """
    known = {row.path: row for row in index(keeper, space)}
    report: dict[str, list[Any]] = {
        k: [] for k in ("added", "changed", "removed", "unchanged", "superseded", "refused")
    }
    lines: list[SkillRow] = []
    now = stamp(keeper.clock.now())
    with keeper.locks.hold(f"skills {space.app}/{space.project}", timeout=60.0):
        for file in found:
            mark = hashlib.sha256(file.text.encode("utf-8", "surrogatepass")).hexdigest()
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
                    old.id if old is not None else "skl_" + hashlib.sha256(file.path.encode()).hexdigest()[:16],
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
            keeper.journals.append(
                keeper.root.journal(space, "skill-index"),
                [json.dumps(asdict(row), ensure_ascii=False) for row in lines],
            )
    return ScanReport(**report)


def _take_in(
    keeper: Keeper, space: Space, file: SkillFile, old: SkillRow | None
) -> tuple[str | None, list[str]]:
    folder = file.path.rsplit("/", 2)[-2] if file.path.count("/") else ""
    stem = file.path.rsplit("/", 1)[-1].removesuffix(".md")
    skill = parse(file.text, fallback=folder if stem == "SKILL" else stem)
    title = f"{skill.name}: {skill.description}" if skill.description else skill.name
    record = _find(keeper, space, old.memory_id) if old is not None else None
    if record is not None:
        corrections.restore(keeper, record)
        corrections.edit(
            keeper, record, reason=f"{file.path} changed", content=title, trigger=skill.trigger,
            procedure=skill.steps,
        )  # fmt: skip
        return record.id, []
    verdict = procedures.add(
        keeper, space, title, trigger=skill.trigger, steps=skill.steps, status="promoted", origin="human",
        source_type="user", source_id=file.path, source_pack_key=PACK,
    )  # fmt: skip
    memory_id = str(verdict.memory["id"]) if verdict.accepted and verdict.memory else None
    return memory_id, _supersede(keeper, space, skill, memory_id) if memory_id else []


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
