"""Fields that many operations share: whose memory, which session, how much of an answer."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypedDict

from cairn.errors import Invalid
from cairn.operations.table import says
from cairn.types import Scope, Space

if TYPE_CHECKING:
    from cairn.governed.records import Record
    from cairn.parts import Parts

ID_PATTERN = r"^[a-zA-Z0-9_.@+-]+$"
MAX_ID = 128
MAX_TEXT = 65_536

AppId = Annotated[
    str, says("the app of the space", "default", low=1, high=MAX_ID, pattern=ID_PATTERN, default="default")
]
ProjectId = Annotated[
    str, says("the project of the space; nothing outside of it is seen", "default", low=1, high=MAX_ID, pattern=ID_PATTERN, default="default")
]  # fmt: skip
SessionId = Annotated[str, says("the session", "s1", low=1, high=MAX_ID)]
UserId = Annotated[
    str | None,
    says("whose memory: a user's", "alice", low=1, high=MAX_ID),
]
AgentId = Annotated[str | None, says("whose memory: an agent's", "coder", low=1, high=MAX_ID)]

ScopeName = Literal["project", "agent", "mission", "lane", "user"]
Category = Literal[
    "fact", "preference", "pattern", "decision", "gotcha", "convention", "episode", "procedure", "digest", "handoff",
]  # fmt: skip
Importance = Literal["low", "medium", "high"]
Origin = Literal["human", "agent", "strategy", "tool", "web", "recalled", "import"]
Status = Literal["candidate", "promoted", "archived"]

MemoryId = Annotated[str, says("the memory's id", "alice_mem_20260601_00000001", low=1, high=200, wire="id")]
AnyScope = Annotated[
    ScopeName | None, says("whose it is, where the id alone is not enough", "user", default=None)
]
Owner = Annotated[str, says("the user, agent or run of that scope", "alice", high=MAX_ID, default="")]
Reason = Annotated[str, says("why", "the pipeline is new", high=2000)]
DryRun = Annotated[bool, says("only tell what would happen", True)]
Consistency = Annotated[
    Literal["eventual", "strong"],
    says('"strong" first waits until every change so far is indexed', "strong"),
]
Filters = Annotated[
    Mapping[str, Any] | None,
    says(
        "predicates on session_id, parent_type, parent_id, timestamp, sender_id, tags and metadata.KEY",
        {"session_id": "s1"},
    ),
]
TopK = Annotated[int, says("how many of each kind; -1 for the default, at most 100", 5)]
MinScore = Annotated[float | None, says("leave out hits below this score", 0.3, low=0, high=1)]
TokenBudget = Annotated[int | None, says("return at most this many tokens of text", 500, low=1)]
Explain = Annotated[bool, says("show what words and meaning contributed to each score", True)]
ForInjection = Annotated[
    bool,
    says("return only what fits well enough for a prompt, or nothing; the prompt text comes with it", True),
]
Confidence = Annotated[float | None, says("how sure it is", 0.9, low=0, high=1)]
Tier = Annotated[Literal[1, 2, 3] | None, says("how prominently it is kept; 1 is the most", 1)]
Files = Annotated[str | None, says("which files it is about, as a pattern", "src/**/*.py", high=1000)]
TriggerText = Annotated[str | None, says("when a procedure applies", "a deploy fails", high=MAX_TEXT)]
Steps = Annotated[str | None, says("how a procedure goes", "1. Roll back. 2. Tell.", high=MAX_TEXT)]


class InSpace(TypedDict, total=False):
    """The space a call is about: `**at: Unpack[InSpace]` stands for these fields."""

    app_id: AppId
    project_id: ProjectId


class InScope(TypedDict, total=False):
    """The space a call is about, and the scope in it where an id alone is not enough."""

    scope: AnyScope
    owner: Owner
    app_id: AppId
    project_id: ProjectId


def moment_told(text: str | datetime, zone: Any, field: str) -> datetime:
    """The moment a person means, in UTC; without an offset it is meant in `zone`."""
    try:
        at = text if isinstance(text, datetime) else datetime.fromisoformat(text)
        at = at if at.tzinfo else at.replace(tzinfo=zone)
        return at.astimezone(UTC)
    except (ValueError, OverflowError, TypeError):
        raise Invalid(
            f'{field} "{str(text)[:60]}" is no day or time; write it like 2026-06-01 or 2026-06-01T12:00:00+00:00.',
            field=field,
        ) from None


def space_named(app_id: str = "default", project_id: str = "default") -> Space:
    """The space that a call names."""
    return Space(app_id, project_id)


def scope_named(
    parts: Parts,
    scope: str | None = None,
    owner: str = "",
    app_id: str = "default",
    project_id: str = "default",
) -> tuple[Space, Scope | None]:
    """The space and the scope that a call names; no scope where the id alone shall say it."""
    space = Space(app_id, project_id)
    return space, named_scope(parts, space, scope, owner)


def memory_named(parts: Parts, memory_id: str, at: InScope) -> Record:
    """The memory that a call names. Raises `NotFound`, or `Invalid` where several scopes have one of that id."""
    space, where = scope_named(parts, **at)
    return parts.keeper.find(space, memory_id, scope=where)


def named_scope(parts: Parts, space: Space, scope: str | None, owner: str) -> Scope | None:
    """The scope a caller named; None where the id alone shall say it."""
    if scope is None:
        if owner:
            raise Invalid(
                f'owner "{owner[:60]}" without a scope: say whether it is a user, an agent or a mission.',
                field="scope",
            )
        return None
    return parts.keeper.scope_of(space, scope, owner)
