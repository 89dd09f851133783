"""Memories from elsewhere, through the gate: ADE's legacy rows, mem0, basic-memory, EverOS, Claude's MEMORY.md.

A reader for each format turns text into `Incoming` items; `bring_in` passes them through the gate, each once
(the ledger knows them by source and key). What is imported is untrusted: it stays a candidate until a person
promotes it, unless a person says on import that the source is to be trusted.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from cairn.canonical import from_json, moment, text_hash
from cairn.errors import Invalid
from cairn.governed.access import Stat, ref
from cairn.governed.ledger import CaptureLedger, category_of
from cairn.governed.memories import Keeper
from cairn.governed.records import CATEGORIES, IMPORTANCES, Status
from cairn.notes.format import parse_note
from cairn.types import Space, Verdict, checked_id

_OBSERVATION = re.compile(r"^[ \t]*[-*] \[([^\]\n]{1,40})\][ \t]+(.+)$", re.MULTILINE)
_TAGS = re.compile(r"(?<!\s)\s+(?:#[\w/-]+|\([^()]*\)\s*\Z)")
_BULLET = re.compile(r"^\s*(?:[-*+]|\d+[.)])\s+(.+?)\s*$")
_HEADING = re.compile(r"^#{1,6}\s+(.+?)\s*$")
_INDEX_LINE = re.compile(r"^\s*[-*] \[[^\]\n]*\]\([^)\n]*\.md\)")
_CLAUDE_CATEGORY = {"user": "fact", "feedback": "preference", "reference": "fact"}
_HEADING_CATEGORY = (
    ("preference", ("preference", "style", "likes")),
    ("convention", ("convention", "rule", "standard", "guideline")),
    ("decision", ("decision",)),
    ("gotcha", ("gotcha", "pitfall", "trap", "known issue", "caveat")),
    ("pattern", ("pattern", "workflow")),
)


@dataclass(frozen=True, slots=True)
class Incoming:
    """One memory on its way in. `key` is its identity at the source; `owner` the user it is about, if any."""

    key: str
    content: str
    category: str = "fact"
    scope: str = "project"
    owner: str = ""
    importance: str = "medium"
    confidence: float | None = None
    created_at: datetime | None = None
    seed: float | None = None
    access_count: int = 0
    status: str = ""
    pinned: bool = False
    observation_count: int = 0
    trigger: str = ""
    procedure: str = ""


@dataclass(slots=True)
class ImportReport:
    """What became of each item: ids kept, ids merged into, refusals (key, reason), and keys known already."""

    kept: list[str] = field(default_factory=list)
    merged: list[str] = field(default_factory=list)
    refused: list[tuple[str, str]] = field(default_factory=list)
    known: list[str] = field(default_factory=list)


def read(source: str, text: str, *, owner: str = "") -> list[Incoming]:
    """Parse an export. `source` is one of `READERS`.

    Raises:
        Invalid: an unknown source, or text that is not such an export.
    """
    reader = READERS.get(source)
    if reader is None:
        raise Invalid(f'"{source}" is not a known export; known are {", ".join(READERS)}.', field="source")
    if owner:
        checked_id(owner, "owner")
    return reader(text, owner)


def bring_in(
    keeper: Keeper, space: Space, source: str, items: Iterable[Incoming], *, trust: bool = False
) -> ImportReport:
    """Pass `items` through the gate, each at most once per source and key, as one run."""
    report, ledger = ImportReport(), CaptureLedger(keeper)
    with keeper.notebook.run("import"):
        for item in items:
            try:
                capture = partial(_capture, keeper, space, source, item, trust=trust)
                verdict = ledger.once(space, f"import:{source}", item.key, capture)
            except Invalid as error:
                report.refused.append((item.key, str(error)))
                continue
            if verdict is None:
                report.known.append(item.key)
            elif verdict.memory_id is None:
                report.refused.append((item.key, verdict.reason or "refused"))
            elif verdict.deduped:
                report.merged.append(str(verdict.merged_into_id))
            else:
                report.kept.append(verdict.memory_id)
    return report


def _capture(
    keeper: Keeper, space: Space, source: str, item: Incoming, *, trust: bool
) -> tuple[Verdict, Mapping[str, Any]]:
    verdict = keeper.remember(
        item.content,
        item.category if item.category in CATEGORIES else category_of(item.content),
        space=space,
        scope=item.scope,
        owner=item.owner,
        importance=item.importance if item.importance in IMPORTANCES else "medium",
        confidence=item.confidence,
        origin="human" if trust else "import",
        source_id=f"{source}:{item.key}"[:500],
        created_at=item.created_at,
        status=_status(item, trust=trust),
        pinned=item.pinned and trust,
        trigger=item.trigger,
        procedure=item.procedure,
    )
    counts = item.seed is not None or item.access_count or item.observation_count
    if verdict.memory_id is not None and not verdict.deduped and counts:
        # ADE's access scores and counts come along (A69): set once, decayed from here on.
        scope = keeper.scope_of(space, item.scope, item.owner)
        record = keeper.find(space, verdict.memory_id, scope=scope)
        seed = min(max(item.seed, 0.0), 1.0) if item.seed is not None else None
        at = keeper.clock.now() if seed is not None else None
        keeper.access.set_states(space, {ref(record): Stat(item.access_count, None, seed, at)})
        if item.observation_count > 1:
            keeper.rewrite(record, lambda current: current.but(observation_count=item.observation_count))
    return verdict, {"reason": verdict.reason}


def _status(item: Incoming, *, trust: bool) -> Status | None:
    """The status an item keeps: what was archived stays so; what was promoted, where a person vouches for the source."""
    if item.status == "archived":
        return "archived"
    if item.status in {"promoted", "candidate"} and trust:
        return "promoted" if item.status == "promoted" else "candidate"
    return None


def from_rows(rows: Iterable[Mapping[str, Any]]) -> list[Incoming]:
    """ADE rows, legacy `memories` or `unified_memories` (A36): whatever columns they have."""
    out = []
    for number, row in enumerate(rows):
        content = str(row.get("content") or row.get("text") or "").strip()
        if not content:
            continue
        track, owner = _scope(row)
        composite, count = _real(row.get("composite_score")), int(_real(row.get("access_count")) or 0)
        seed = _real(row.get("access_score"))
        if seed is None and composite is not None:
            seed = min(1.0, composite + 0.05 * min(count, 10))
        out.append(
            Incoming(
                str(row.get("id") or f"row-{number}-{_mark(content)}"), content, str(row.get("category") or "fact"),
                track, owner, str(row.get("importance") or "medium"), _real(row.get("confidence")),
                moment(str(row.get("created_at") or "")), seed, count, str(row.get("status") or ""),
                bool(_real(row.get("pinned"))), int(_real(row.get("observation_count")) or 0),
                str(row.get("trigger") or ""), str(row.get("procedure_markdown") or ""),
            )
        )  # fmt: skip
    return out


def _read_ade(text: str, _owner: str) -> list[Incoming]:
    value = _json(
        text, "; a database of ADE comes in as its bytes, or with `cairn memories import --from ade FILE`"
    )
    rows = (
        value.get("memories") or value.get("unified_memories") or value.get("rows")
        if isinstance(value, dict)
        else value
    )
    return from_rows(row for row in _list(rows, "ADE rows") if isinstance(row, dict))


def _read_mem0(text: str, owner: str) -> list[Incoming]:
    """`{"results": [{"id", "memory", "user_id", "agent_id", "created_at", ...}]}` or the bare list."""
    value = _json(text)
    rows = value.get("results") or value.get("memories") if isinstance(value, dict) else value
    out = []
    for row in _list(rows, "a mem0 export"):
        if not isinstance(row, dict):
            continue
        content = str(row.get("memory") or row.get("data") or row.get("text") or "").strip()
        if not content:
            continue
        user, agent = str(row.get("user_id") or owner or ""), str(row.get("agent_id") or "")
        track = "user" if user else "agent" if agent else "project"
        out.append(
            Incoming(
                str(row.get("id") or _mark(content)), content, category_of(content), track, user or agent,
                created_at=moment(str(row.get("created_at") or "")),
            )
        )  # fmt: skip
    return out


def _read_everos(text: str, owner: str) -> list[Incoming]:
    """Search or get answers and exports of EverOS: any list of items with content, episode, fact or summary."""
    out: list[Incoming] = []

    def walk(value: Any) -> None:
        if isinstance(value, list):
            for item in value:
                walk(item)
        elif isinstance(value, dict):
            content = next(
                (str(value[k]) for k in ("atomic_fact", "fact", "content", "episode", "summary") if isinstance(value.get(k), str) and value[k].strip()),
                "",
            )  # fmt: skip
            if content:
                user = str(value.get("user_id") or owner or "")
                raw = value.get("timestamp") or value.get("created_at")
                at = (
                    datetime.fromtimestamp(raw / 1000, UTC)
                    if isinstance(raw, int | float) and not isinstance(raw, bool)
                    else moment(str(raw or ""))
                )
                out.append(_item(content, user, str(value.get("id") or value.get("entry_id") or ""), at=at))
            else:
                for item in value.values():
                    walk(item)

    walk(_json(text))
    return out


def _read_basic_memory(text: str, owner: str) -> list[Incoming]:
    """A basic-memory note: observations `- [category] text #tag (context)`."""
    out = []
    for match in _OBSERVATION.finditer(text):
        content = _TAGS.sub("", _TAGS.sub("", match[2].rstrip())).strip()
        named = match[1].strip().lower()
        if content and named not in {"x", " ", ""}:
            category = named if named in CATEGORIES else None
            out.append(_item(content, owner, _mark(f"{named} {content}"), category))
    return out


def _read_claude(text: str, owner: str) -> list[Incoming]:
    """A `MEMORY.md` or `CLAUDE.md`, one memory of Claude Code's own folder, or all of the folder (`folder_text`)."""
    files = _files_in(text)
    if files is not None:
        return [one for name, inside in files for one in _read_claude_file(name, inside, owner)]
    return _read_claude_file("", text, owner)


def folder_text(files: Iterable[tuple[str, str]]) -> str:
    """The files of a folder, by their names, as one text that an import takes."""
    return json.dumps({"files": [{"name": name, "text": text} for name, text in files]}, ensure_ascii=False)


def _files_in(text: str) -> list[tuple[str, str]] | None:
    """What `folder_text` was made of; None for any other text."""
    if not text.startswith('{"files": ['):
        return None
    try:
        return [(str(one["name"]), str(one["text"])) for one in from_json(text)["files"]]
    except (ValueError, KeyError, TypeError):
        return None


def _read_claude_file(name: str, text: str, owner: str) -> list[Incoming]:
    note = parse_note(text)
    if not note.frontmatter:
        # In the index of a folder a line that links to a file only repeats what the file says.
        lines = text.splitlines()
        own = [line for line in lines if not (name and _INDEX_LINE.match(line))]
        return _read_claude_page("\n".join(own), owner)
    head, body = note.frontmatter, note.body.strip()
    told = str(head.get("description") or "").strip()
    content = body if not told or told in body else f"{told}\n\n{body}".strip()
    if not content:
        return []
    about = head.get("metadata")
    kind = str(about.get("type") if isinstance(about, Mapping) else head.get("type") or "")
    named = str(head.get("name") or name or "")
    at = moment(str(head.get("modified") or ""))
    return [_item(content, owner, f"{named} {_mark(content)}", _CLAUDE_CATEGORY.get(kind), at)]


def _read_claude_page(text: str, owner: str) -> list[Incoming]:
    """A page of bullets and paragraphs: each of them, under its heading."""
    out: list[Incoming] = []
    heading, fenced = "", False
    paragraph: list[str] = []
    lines: list[str] = [*text.splitlines(), ""]

    def add(content: str) -> None:
        plain = content.strip().strip("*_ ")
        if len(plain) >= 8:
            lowered = heading.lower()
            category = next((c for c, keys in _HEADING_CATEGORY if any(k in lowered for k in keys)), None)
            out.append(_item(plain, owner, category=category))

    for line in lines:
        if line.lstrip().startswith("```"):
            fenced = not fenced
            paragraph = []
        if fenced or line.startswith(("<!--", "@", ">", "|")):
            continue
        title, bullet = _HEADING.match(line), _BULLET.match(line)
        if (title or bullet or not line.strip()) and paragraph:
            add(" ".join(paragraph))
            paragraph = []
        if title:
            heading = title[1]
        elif bullet:
            add(bullet[1])
        elif line.strip() and not line.lstrip().startswith("```"):
            paragraph.append(line.strip())
    return out


def _item(
    content: str, owner: str, key: str = "", category: str | None = None, at: datetime | None = None
) -> Incoming:
    track = "user" if owner else "project"
    kind = category or category_of(content)
    return Incoming(key or _mark(content), content, kind, track, owner, created_at=at)


READERS: Mapping[str, Callable[[str, str], list[Incoming]]] = {
    "ade": _read_ade,
    "mem0": _read_mem0,
    "everos": _read_everos,
    "basic-memory": _read_basic_memory,
    "claude": _read_claude,
}


def _scope(row: Mapping[str, Any]) -> tuple[str, str]:
    word, owner = str(row.get("scope") or "project").lower(), str(row.get("scope_owner_id") or "")
    if word in {"agent", "user"} and (owner or row.get("agent_id")):
        return "agent", owner or str(row["agent_id"])  # ADE's "user" is an alias of agent (A48)
    if word in {"mission", "lane"} and (owner or row.get("source_run_id")):
        return "mission", owner or str(row["source_run_id"])
    return "project", ""


def _json(text: str, more: str = "") -> Any:
    try:
        return from_json(text)
    except ValueError as error:
        raise Invalid(f"The export is not JSON: {error}{more}.", field="text") from None


def _list(value: Any, what: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise Invalid(f"It is not {what}: a list of memories was expected.", field="text")
    return value


def _real(value: Any) -> float | None:
    try:
        return float(value) if value is not None else None
    except (TypeError, ValueError):
        return None


def _mark(text: str) -> str:
    return text_hash(" ".join(text.split()).lower())[:16]
