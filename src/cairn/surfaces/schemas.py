"""The HTTP contract as types: request bodies that are checked, response bodies that are documented.

Unknown fields are refused by name everywhere. Fields that Cairn adds to the contract are optional, so that a
client written without them works unchanged.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

ID_PATTERN = r"^[a-zA-Z0-9_.@+-]+$"
Id = Annotated[str, Field(min_length=1, max_length=128, pattern=ID_PATTERN)]
SessionId = Annotated[str, Field(min_length=1, max_length=128)]
OwnerId = Annotated[str, Field(min_length=1, max_length=128)]


class Body(BaseModel):
    """A request body: strict about names and types. Built at its first use: a server should answer soon."""

    model_config = ConfigDict(extra="forbid", strict=True, defer_build=True)


class Answer(BaseModel):
    """A response body, for the documentation."""

    model_config = ConfigDict(extra="allow", defer_build=True)


class ToolFunction(Body):
    name: str
    arguments: str


class ToolCall(Body):
    id: str
    type: str = "function"
    function: ToolFunction


class ContentItem(Body):
    type: Literal["text", "image", "audio", "doc", "pdf", "html", "email"]
    text: str | None = None
    uri: str | None = None
    base64: str | None = None
    ext: str | None = None
    name: str | None = None
    extras: dict[str, Any] | None = None


class MessageItem(Body):
    """One message. `timestamp` is epoch milliseconds."""

    sender_id: Id
    sender_name: str | None = None
    role: Literal["user", "assistant", "tool"]
    timestamp: int = Field(gt=0)
    content: str | list[ContentItem]
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None


class Spaced(Body):
    app_id: Id = "default"
    project_id: Id = "default"


class AddBody(Spaced):
    """What is checked of an add before capture checks each message itself, with better words."""

    session_id: SessionId
    messages: list[Any] = Field(min_length=1, max_length=500)
    defer_extraction: bool = False
    async_mode: bool = False
    idempotency_key: str | None = Field(default=None, min_length=1, max_length=200)
    mode: Literal["chat", "agent"] | None = None


class AddRequest(AddBody):
    messages: list[MessageItem] = Field(min_length=1, max_length=500)


class FlushRequest(Spaced):
    session_id: SessionId


class Owned(Spaced):
    user_id: OwnerId | None = None
    agent_id: OwnerId | None = None


class SearchRequest(Owned):
    query: str = Field(min_length=1)
    method: Literal["keyword", "vector", "hybrid", "agentic", "llm_multiround"] = "hybrid"
    top_k: int = -1
    radius: float | None = Field(default=None, ge=0, le=1, strict=False)
    min_score: float | None = Field(default=None, ge=0, le=1, strict=False)
    include_profile: bool = False
    enable_llm_rerank: bool = False
    filters: dict[str, Any] | None = None
    evidence: int = Field(default=0, ge=0, le=100)
    token_budget: int | None = Field(default=None, ge=1)
    explain: bool = False
    for_injection: bool = False
    consistency: Literal["eventual", "strong"] = "eventual"
    min_lsn: int | None = Field(default=None, ge=0)
    as_of: str | None = None


class GetRequest(Owned):
    memory_type: Literal["episode", "profile", "agent_case", "agent_skill"]
    page: int = Field(default=1, ge=1)
    page_size: int = Field(default=20, ge=1, le=100)
    sort_by: Literal["timestamp", "updated_at"] = "timestamp"
    sort_order: Literal["asc", "desc"] = "desc"
    filters: dict[str, Any] | None = None
    consistency: Literal["eventual", "strong"] = "eventual"


class TriggerRequest(Body):
    name: str
    timeout: float = Field(default=120.0, gt=0, le=3600, strict=False)
    force: bool = False


# ---------------------------------------------------------------- governed memories

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


class Query(BaseModel):
    """Query parameters: strict about names; values are read from text."""

    model_config = ConfigDict(extra="forbid")


class SpaceQuery(Query):
    app_id: Id = "default"
    project_id: Id = "default"


class Placed(SpaceQuery):
    """Whose memory is meant, where the id alone is not enough."""

    scope: ScopeName | None = None
    owner: MemoryOwner = ""


class ReasonQuery(Placed):
    reason: str = Field(default="", max_length=2000)


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


# ---------------------------------------------------------------- answers


class FreshnessBlock(Answer):
    lsn: int
    pending: int
    state: Literal["fresh", "behind", "rebuilding"]
    notes: list[str] = []


class AddData(Answer):
    message_count: int
    status: Literal["accumulated", "extracted"]
    lsn: int | None = None


class AcceptedData(Answer):
    status: Literal["queued"] = "queued"
    message_count: int
    pending: int


class FlushData(Answer):
    status: Literal["extracted", "no_extraction"]
    lsn: int | None = None


class AtomicFactItem(Answer):
    id: str
    content: str
    score: float


class EpisodeItem(Answer):
    id: str
    user_id: str | None
    app_id: str = "default"
    project_id: str = "default"
    session_id: str | None = None
    timestamp: str
    sender_ids: list[str] = []
    summary: str
    subject: str
    episode: str
    type: Literal["Conversation"] = "Conversation"


class SearchEpisodeItem(EpisodeItem):
    score: float
    atomic_facts: list[AtomicFactItem] = []


class ProfileItem(Answer):
    id: str
    user_id: str | None
    app_id: str = "default"
    project_id: str = "default"
    profile_data: dict[str, Any]


class SearchProfileItem(ProfileItem):
    score: float | None = None


class AgentCaseItem(Answer):
    id: str
    agent_id: str
    app_id: str = "default"
    project_id: str = "default"
    session_id: str
    task_intent: str
    approach: str
    quality_score: float
    key_insight: str | None = None
    timestamp: str


class SearchAgentCaseItem(AgentCaseItem):
    score: float


class AgentSkillItem(Answer):
    id: str
    agent_id: str
    app_id: str = "default"
    project_id: str = "default"
    name: str
    description: str
    content: str
    confidence: float
    maturity_score: float
    source_case_ids: list[str] = []


class SearchAgentSkillItem(AgentSkillItem):
    score: float


class UnprocessedMessage(Answer):
    id: str
    app_id: str = "default"
    project_id: str = "default"
    session_id: str
    sender_id: str
    sender_name: str | None = None
    role: Literal["user", "assistant", "tool"]
    content: str | list[dict[str, Any]]
    timestamp: str
    tool_calls: list[dict[str, Any]] | None = None
    tool_call_id: str | None = None


class EvidenceItem(Answer):
    session_id: str
    message_id: str
    timestamp: str
    sender_id: str
    sender_name: str | None = None
    text: str
    score: float
    entry_ids: list[str] = []


class SearchData(Answer):
    episodes: list[SearchEpisodeItem] = []
    profiles: list[SearchProfileItem] = []
    agent_cases: list[SearchAgentCaseItem] = []
    agent_skills: list[SearchAgentSkillItem] = []
    unprocessed_messages: list[UnprocessedMessage] = []
    memories: list[dict[str, Any]] = []
    evidence: list[EvidenceItem] | None = None
    prompt: str | None = None
    freshness: FreshnessBlock


class GetData(Answer):
    episodes: list[EpisodeItem] = []
    profiles: list[ProfileItem] = []
    agent_cases: list[AgentCaseItem] = []
    agent_skills: list[AgentSkillItem] = []
    total_count: int = 0
    count: int = 0


class RunSummary(Answer):
    run_id: str
    status: str
    error: str | None = None


class TriggerAnswer(Answer):
    status: str
    name: str
    dispatched: int
    runs: list[RunSummary] = []


class Capabilities(Answer):
    llm: bool
    embed: bool
    rerank: bool
    multimodal_llm: bool
    parser: bool


class CascadeBlock(Answer):
    healthy: bool
    reasons: list[str]
    pending: int
    failed_permanent: int
    failed_retryable: int
    drain_consecutive_failures: int
    unrecoverable_total: int
    optimize_failure_streak: int
    prune_stale_seconds: float


class HealthAnswer(Answer):
    status: str
    version: str
    capabilities: Capabilities
    disabled_features: list[str]
    cascade: CascadeBlock | None = None


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


class ReceiptData(Answer):
    id: str
    at: str
    complete: bool
    removed: dict[str, int]
    places: list[str]
    left: list[LeftItem]


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
    action: Literal["write", "remove"]


class RestoreData(Answer):
    dry_run: bool
    entries: list[RestoredItem]


class PagesData(Answer):
    written: list[str]
    unchanged: list[str]
    edited: list[dict[str, str]]


class DoctorData(Answer):
    findings: list[dict[str, Any]]


class ValidateData(Answer):
    ok: bool
    findings: list[dict[str, Any]]


class PreviewData(Answer):
    noop: bool
    summary: dict[str, Any]
    diffs: dict[str, str]


class ErrorDetail(Answer):
    code: str
    message: str
    timestamp: str
    path: str


class ErrorAnswer(Answer):
    request_id: str
    error: ErrorDetail
