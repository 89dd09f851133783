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


class Query(BaseModel):
    """Query parameters: strict about names; values are read from text."""

    model_config = ConfigDict(extra="forbid")


class SpaceQuery(Query):
    app_id: Id = "default"
    project_id: Id = "default"


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
    waiting: list[str] = []


class AcceptedData(Answer):
    status: Literal["queued"] = "queued"
    message_count: int
    pending: int


class FlushData(Answer):
    status: Literal["extracted", "no_extraction"]
    lsn: int | None = None
    waiting: list[str] = []


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
    reasons: list[str] = []
    capabilities: Capabilities
    disabled_features: list[str]
    cascade: CascadeBlock | None = None


class DoctorData(Answer):
    findings: list[dict[str, Any]]


class ErrorDetail(Answer):
    code: str
    message: str
    timestamp: str
    path: str


class ErrorAnswer(Answer):
    request_id: str
    error: ErrorDetail
