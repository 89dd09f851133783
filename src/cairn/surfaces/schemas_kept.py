"""The contract of what is kept and of its past, as types: governed memories, time travel, project memory."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from cairn.surfaces.schemas import Answer, Body, FreshnessBlock, Id, Query, Spaced, SpaceQuery

ScopeName = Literal["project", "agent", "mission", "user"]
Category = Literal[
    "fact",
    "preference",
    "pattern",
    "decision",
    "gotcha",
    "convention",
    "episode",
    "procedure",
    "digest",
    "handoff",
]
Importance = Literal["low", "medium", "high"]
Text = Annotated[str, Field(max_length=65_536)]
MemoryOwner = Annotated[str, Field(max_length=128)]


class Placed(SpaceQuery):
    """Whose memory is meant, where the id alone is not enough."""

    scope: ScopeName | None = None
    owner: MemoryOwner = ""


class ReasonQuery(Placed):
    reason: str = Field(default="", max_length=2000)


class ForgetQuery(Placed):
    """Nothing but what is named goes, from one owner's memory, unless more is asked for."""

    dry_run: bool = False
    similar: bool = False
    all_owners: bool = False


class MemoriesQuery(Placed):
    status: Literal["candidate", "promoted", "archived"] | None = None
    category: Category | None = None
    pinned: bool | None = None
    archived: bool = False
    skills: bool = True
    offset: int = Field(default=0, ge=0)
    limit: int = Field(default=50, ge=1, le=500)


class CoreQuery(SpaceQuery):
    agent: MemoryOwner = ""


class RememberRequest(Spaced):
    content: Text
    category: str = Field(default="fact", max_length=100)
    scope: ScopeName = "project"
    owner: MemoryOwner = ""
    mode: Literal["default", "strict"] = "default"
    importance: Importance = "medium"
    pinned: bool = False
    origin: Literal["human", "agent", "tool", "web", "recalled", "import"] = "human"
    confidence: float | None = Field(default=None, ge=0, le=1, strict=False)
    status: Literal["candidate", "promoted", "archived"] | None = None
    tier: Literal[1, 2, 3] | None = None
    source_id: str | None = Field(default=None, max_length=500)
    source_session_id: str | None = Field(default=None, max_length=500)
    source_run_id: str | None = Field(default=None, max_length=500)
    agent_id: Id | None = None
    file_scope_pattern: str | None = Field(default=None, max_length=1000)
    trigger: Text | None = None
    procedure: Text | None = None


class MemorySearchRequest(Spaced):
    query: str = Field(min_length=1)
    scope: ScopeName = "project"
    owner: MemoryOwner = ""
    method: Literal["keyword", "vector", "hybrid"] = "hybrid"
    top_k: int = -1
    min_score: float | None = Field(default=None, ge=0, le=1, strict=False)
    token_budget: int | None = Field(default=None, ge=1)
    explain: bool = False
    for_injection: bool = False
    archived: bool = False
    consistency: Literal["eventual", "strong"] = "eventual"


class EditRequest(Body):
    content: Text | None = None
    category: Category | None = None
    importance: Importance | None = None
    confidence: float | None = Field(default=None, ge=0, le=1, strict=False)
    tier: Literal[1, 2, 3] | None = None
    file_scope_pattern: str | None = Field(default=None, max_length=1000)
    trigger: Text | None = None
    procedure: Text | None = None
    reason: str = Field(default="", max_length=2000)


class SupersedeRequest(Body):
    content: Text
    reason: str = Field(min_length=1, max_length=2000)
    category: Category | None = None
    importance: Importance | None = None


class ForgetRequest(Spaced):
    """A memory by its id, or words, or both; and which of the alike ones to take with it."""

    id: str | None = Field(default=None, min_length=1, max_length=200)
    words: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(default=[], max_length=100)
    scope: ScopeName | None = None
    owner: MemoryOwner = ""
    dry_run: bool = False
    similar: bool = False
    all_owners: bool = False
    also: list[Annotated[str, Field(min_length=1, max_length=200)]] = Field(default=[], max_length=500)


class SweepRequest(Spaced):
    dry_run: bool = False


class ConsolidateRequest(Spaced):
    dry_run: bool = False
    scope: ScopeName | None = None
    owner: MemoryOwner = ""
    undo: str | None = Field(default=None, min_length=1, max_length=100)


class MissionEndRequest(Spaced):
    success: bool


class CoreRequest(Body):
    projectSummary: Text | None = None  # noqa: N815 -- the field names are ADE's
    criticalConventions: list[Text] | None = None  # noqa: N815
    userPreferences: list[Text] | None = None  # noqa: N815
    activeFocus: list[Text] | None = None  # noqa: N815
    notes: list[Text] | None = None


class RefreshRequest(Spaced):
    """Which project's pages."""


class ImportRequest(Spaced):
    """Another program's export, as text."""

    source: Literal["ade", "mem0", "everos", "basic-memory", "claude"]
    text: str = Field(min_length=1)
    owner: MemoryOwner = ""
    trust: bool = False


class ScanRequest(Spaced):
    """Folders besides the root's own skills: absolute, below `server.project_roots`."""

    folders: list[Annotated[str, Field(min_length=1, max_length=4096)]] = Field(default=[], max_length=50)


class SkillImportRequest(Spaced):
    """One SKILL.md, as text; `name` tells it from others in the registry."""

    name: Id
    text: str = Field(min_length=1, max_length=1024 * 1024)


class LogQuery(SpaceQuery):
    id: str | None = Field(default=None, min_length=1, max_length=4096)
    limit: int = Field(default=100, ge=1, le=10_000)


class CheckpointRequest(Spaced):
    label: str = Field(default="", max_length=500)


class DiffQuery(SpaceQuery):
    target: str = Field(min_length=1, max_length=100)


class RestoreRequest(Spaced):
    target: str = Field(min_length=1, max_length=100)
    dry_run: bool = False


class ProjectQuery(Query):
    path: str = Field(min_length=1, max_length=4096)


class ProjectStatusQuery(ProjectQuery):
    checkpoint: str | None = Field(default=None, max_length=100)


class ProjectQueryRequest(Body):
    path: str = Field(min_length=1, max_length=4096)
    question: str = Field(min_length=1, max_length=65_536)
    scope: str = Field(default="all", max_length=40)


class ProjectPreviewRequest(Body):
    path: str = Field(min_length=1, max_length=4096)
    section: str | None = Field(default=None, max_length=40)
    source: str | None = Field(default=None, max_length=40)
    policy: str | None = Field(default=None, max_length=40)


class MemoryRow(Answer):
    """A governed memory; more columns follow these."""

    id: str
    scope: str
    scope_owner_id: str
    category: str
    content: str
    importance: str
    confidence: float
    status: str
    tier: int
    pinned: int
    origin: str
    path: str


class VerdictData(Answer):
    accepted: bool
    memory: MemoryRow | None = None
    reason: str | None = None
    detail: str | None = None
    deduped: bool | None = None
    mergedIntoId: str | None = None  # noqa: N815 -- the contract's name
    lsn: int | None = None


class MemoriesData(Answer):
    memories: list[MemoryRow]
    total: int


class MemorySearchData(Answer):
    memories: list[dict[str, Any]]
    prompt: str | None = None
    freshness: FreshnessBlock


class LeftItem(Answer):
    where: str
    why: str


class FoundItem(Answer):
    """A thing that goes, or is merely alike: its words, where it stands, whose it is, and why it is named."""

    what: str
    id: str
    path: str
    owner: str
    words: str
    why: str


class ReceiptData(Answer):
    id: str
    at: str
    dry_run: bool
    complete: bool
    removed: dict[str, int]
    places: list[str]
    left: list[LeftItem]
    taken: list[FoundItem]
    alike: list[FoundItem]


class HistoryData(Answer):
    history: list[dict[str, Any]]


class WhyData(Answer):
    why: list[str]


class SweepData(Answer):
    sweep_id: str
    trigger_reason: str
    dry_run: bool
    entries_decayed: int
    entries_demoted: int
    entries_promoted: int
    entries_archived: int
    entries_orphaned: int
    transitions: list[dict[str, Any]]


class ConsolidateData(Answer):
    run_id: str
    dry_run: bool
    merged: list[dict[str, Any]]
    restored: int | None = None


class MissionEndData(Answer):
    run_id: str
    success: bool
    promoted: list[str]
    archived: list[str]
    already: bool


class CoreData(Answer):
    projectSummary: str  # noqa: N815
    criticalConventions: list[str]  # noqa: N815
    userPreferences: list[str]  # noqa: N815
    activeFocus: list[str]  # noqa: N815
    notes: list[str]
    version: int
    updatedAt: str  # noqa: N815


class SkillsData(Answer):
    skills: list[dict[str, Any]]


class RefusedFile(Answer):
    path: str
    reason: str


class ScanData(Answer):
    added: list[str]
    changed: list[str]
    removed: list[str]
    unchanged: list[str]
    superseded: list[str]
    refused: list[RefusedFile]


class RefusedItem(Answer):
    key: str
    reason: str


class ImportData(Answer):
    kept: list[str]
    merged: list[str]
    known: list[str]
    refused: list[RefusedItem]


class ChangeItem(Answer):
    id: str
    at: str
    path: str
    entry: str
    before: str | None
    after: str | None
    cause: str
    action: Literal["added", "changed", "removed"]


class LogData(Answer):
    changes: list[ChangeItem]


class CheckpointData(Answer):
    id: str
    at: str
    changes: int
    hash: str
    label: str


class CheckpointsData(Answer):
    checkpoints: list[CheckpointData]


class DifferenceItem(Answer):
    path: str
    entry: str
    action: Literal["added", "changed", "removed"]
    diff: str


class DiffData(Answer):
    differences: list[DifferenceItem]


class RestoredItem(Answer):
    path: str
    entry: str
    action: Literal["write", "remove", "purged"]


class RestoreData(Answer):
    dry_run: bool
    entries: list[RestoredItem]


class PagesData(Answer):
    written: list[str]
    unchanged: list[str]
    edited: list[dict[str, str]]


class ValidateData(Answer):
    ok: bool
    findings: list[dict[str, Any]]


class PreviewData(Answer):
    noop: bool
    summary: dict[str, Any]
    diffs: dict[str, str]
