"""A governed memory as a value, read from and written into its entry.

Meaning and status live in the entry (C2): `category`, `importance` and `file_scope_pattern` count as content,
the rest is audit and costs no embedding when it changes. Access statistics are not here (see `access`). An
entry that holds nothing but text is a whole memory: what it does not say has its default, and a hand-written
one without a status reads as promoted. Fields this version does not know are carried along untouched.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any, Literal, cast

from cairn.canonical import moment
from cairn.notes.format import list_items
from cairn.seams import Locator
from cairn.types import Entry, Scope

KIND = "memory"
PREFIX = "mem"

Importance = Literal["low", "medium", "high"]
Status = Literal["candidate", "promoted", "archived"]
Origin = Literal["human", "agent", "strategy", "tool", "web", "recalled", "import"]

CATEGORIES = (
    "fact", "preference", "pattern", "decision", "gotcha", "convention", "episode", "procedure", "digest", "handoff",
)  # fmt: skip
AGENT_CATEGORIES = CATEGORIES[:6]
IMPORTANCES: tuple[Importance, ...] = ("low", "medium", "high")
STATUSES: tuple[Status, ...] = ("candidate", "promoted", "archived")
ORIGINS: tuple[Origin, ...] = ("human", "agent", "strategy", "tool", "web", "recalled", "import")
SOURCE_TYPES = ("agent", "system", "user", "mission_promotion", "consolidation")
UNTRUSTED: frozenset[Origin] = frozenset({"strategy", "tool", "web", "recalled", "import"})
DEDUPE_RULE = 1
# The columns of ADE's `unified_memories` (A4-A20), and those of our own that a row has after them.
COLUMNS = (
    "id", "project_id", "scope", "scope_owner_id", "tier", "category", "content", "importance", "confidence",
    "observation_count", "status", "source_type", "source_id", "source_session_id", "source_pack_key", "source_run_id",
    "file_scope_pattern", "agent_id", "pinned", "access_score", "composite_score", "write_gate_reason", "dedupe_key",
    "created_at", "updated_at", "last_accessed_at", "access_count", "promoted_at",
)  # fmt: skip
OWN_COLUMNS = ("origin", "entry_id", "path", "supersedes", "superseded_by", "trigger", "procedure")

_INLINE = (
    "owner_id", "timestamp", "category", "importance", "file_scope_pattern", "status", "tier", "pinned", "confidence",
    "observation_count", "origin", "source_type", "source_id", "source_session_id", "source_run_id",
    "source_pack_key", "agent_id", "write_gate_reason", "dedupe", "dedupe_rule", "aliases", "created_at",
    "updated_at", "promoted_at", "supersedes", "superseded_by", "superseded_at", "superseded_reason",
)  # fmt: skip
_TEXTS = (
    "file_scope_pattern", "source_id", "source_session_id", "source_run_id", "source_pack_key", "agent_id",
    "write_gate_reason", "supersedes", "superseded_by", "superseded_reason",
)  # fmt: skip
_TIMES = ("updated_at", "promoted_at", "superseded_at")
_SECTIONS = ("Content", "Trigger", "Procedure")


@dataclass(frozen=True, slots=True)
class Record:
    """One governed memory. `entry_id` is "" until the notebook has given one."""

    scope: Scope
    content: str
    category: str = "fact"
    importance: Importance = "medium"
    confidence: float = 1.0
    observation_count: int = 1
    status: Status = "promoted"
    tier: int = 2
    pinned: bool = False
    origin: Origin = "human"
    source_type: str = "agent"
    source_id: str | None = None
    source_session_id: str | None = None
    source_run_id: str | None = None
    source_pack_key: str | None = None
    agent_id: str | None = None
    file_scope_pattern: str | None = None
    write_gate_reason: str | None = None
    dedupe: str = ""
    aliases: tuple[str, ...] = ()
    created_at: datetime | None = None
    updated_at: datetime | None = None
    promoted_at: datetime | None = None
    supersedes: str | None = None
    superseded_by: str | None = None
    superseded_at: datetime | None = None
    superseded_reason: str | None = None
    trigger: str = ""
    procedure: str = ""
    entry_id: str = ""
    locator: Locator = field(default_factory=Locator)
    more_inline: Mapping[str, str] = field(default_factory=dict)
    more_sections: Mapping[str, str] = field(default_factory=dict)

    @property
    def id(self) -> str:
        """The public id: owner and entry id joined; the entry id alone at project scope."""
        return self.scope.public_id(self.entry_id)

    @property
    def is_live(self) -> bool:
        """Whether it takes part in answers, dedup and limits."""
        return self.status != "archived"

    @property
    def is_trusted(self) -> bool:
        return self.origin not in UNTRUSTED

    def but(self, **changes: Any) -> Record:
        return replace(self, **changes)

    def inline(self) -> dict[str, object]:
        """The `**key**: value` lines, in a fixed order; what is empty is left out."""
        made: dict[str, object] = {
            "owner_id": self.scope.owner,
            "timestamp": stamp(self.created_at),
            "pinned": "true" if self.pinned else "false",
            "confidence": _number(self.confidence),
            "dedupe_rule": DEDUPE_RULE if self.dedupe else None,
            "aliases": list(self.aliases),
            **{name: stamp(getattr(self, name)) for name in ("created_at", *_TIMES)},
        }
        values = {name: made[name] if name in made else getattr(self, name) for name in _INLINE}
        kept = {name: value for name, value in values.items() if value not in (None, "", [])}
        return {**kept, **self.more_inline}

    def sections(self) -> dict[str, str]:
        """The `### Title` parts."""
        own = {"Content": self.content, "Trigger": self.trigger, "Procedure": self.procedure}
        return {**{title: text for title, text in own.items() if text}, **self.more_sections}


def from_entry(entry: Entry, scope: Scope, locator: Locator) -> Record:
    """Read a memory out of an entry. Never fails: a value that makes no sense reads as its default."""
    inline = entry.inline
    status = inline.get("status", "").strip().lower() or "promoted"
    # Words other tools use for the same: nothing that was put away comes back by being unknown.
    status = status if status in STATUSES else "archived"
    told = {title.casefold(): text for title, text in entry.sections.items()}
    plain: dict[str, Any] = {name: inline.get(name) for name in _TEXTS}
    plain |= {name: moment(inline.get(name)) for name in _TIMES}
    return Record(
        scope=scope,
        content=told.get("content", ""),
        category=inline.get("category", "fact").strip() or "fact",
        importance=cast("Importance", _choice(inline.get("importance"), IMPORTANCES, "medium")),
        confidence=_real(inline.get("confidence"), 1.0),
        observation_count=max(1, int(_real(inline.get("observation_count"), 1))),
        status=status,
        tier=int(_choice(inline.get("tier"), ("1", "2", "3"), "2")),
        pinned=inline.get("pinned", "").strip().lower() in {"true", "1", "yes"},
        origin=cast("Origin", _choice(inline.get("origin"), ORIGINS, "human")),
        source_type=_choice(inline.get("source_type"), SOURCE_TYPES, "agent"),
        dedupe=inline.get("dedupe", ""),
        aliases=tuple(list_items(inline.get("aliases", ""))),
        created_at=moment(inline.get("created_at")) or moment(inline.get("timestamp")),
        trigger=told.get("trigger", ""),
        procedure=told.get("procedure", ""),
        entry_id=entry.id,
        locator=locator,
        more_inline={key: value for key, value in inline.items() if key not in _INLINE},
        more_sections={
            key: value for key, value in entry.sections.items() if key.capitalize() not in _SECTIONS
        },
        **plain,
    )


def misread(inline: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    """The fields of an entry whose value makes no sense: name, value, and what it is read as instead."""
    for name, allowed, default in (
        ("status", STATUSES, "archived"),
        ("importance", IMPORTANCES, "medium"),
        ("tier", ("1", "2", "3"), "2"),
        ("origin", ORIGINS, "human"),
        ("source_type", SOURCE_TYPES, "agent"),
    ):
        value = inline.get(name, "").strip()
        if value and value.lower() not in allowed:
            yield name, value, default
    if (sure := _real(inline.get("confidence"), 1.0)) > 1 or inline.get("confidence", "0").strip().startswith(
        "-"
    ):
        yield "confidence", inline["confidence"], _number(sure)


def stamp(at: datetime | None) -> str:
    """A time as notes and journals of governed memories have it: UTC, microseconds, its offset; "" for none."""
    return at.astimezone(UTC).isoformat(timespec="microseconds") if at is not None else ""


def _choice(value: object, allowed: tuple[str, ...], default: str) -> str:
    text = str(value).strip().lower() if value is not None else default
    return text if text in allowed else default


def _real(value: str | None, default: float) -> float:
    try:
        number = float(value) if value is not None else default
    except ValueError:
        return default
    return min(number, 1e9) if number >= 0 else default


def _number(value: float) -> str:
    text = f"{value:.6f}".rstrip("0")
    return text + "0" if text.endswith(".") else text
