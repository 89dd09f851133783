"""Shapes that the answers of several rooms hold, and the envelope of an error."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.table import says


class FreshnessBlock:
    """How far the index was behind when it answered."""

    lsn: Annotated[int, says("every change up to this one was seen", 12)]
    pending: Annotated[int, says("changes, and rows without their vector, that wait", 0)]
    state: Annotated[Literal["fresh", "behind", "rebuilding"], says("whether the answer is whole", "fresh")]
    notes: Annotated[list[str], says("what else there is to know", ["search by words alone: no model"])]


class UnprocessedMessage:
    """A message that is in no episode yet."""

    id: Annotated[str, says("its id", "m_0123456789abcdef_000000")]
    app_id: Annotated[str, says("the app", "default")] = "default"
    project_id: Annotated[str, says("the project", "default")] = "default"
    session_id: Annotated[str, says("the session", "s1")]
    sender_id: Annotated[str, says("who said it", "alice")]
    sender_name: Annotated[str | None, says("the sender's name", "Alice")] = None
    role: Annotated[Literal["user", "assistant", "tool"], says("whose turn it was", "user")]
    content: Annotated[str | list[dict[str, Any]], says("what was said", "I moved to Lisbon in May.")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    tool_calls: Annotated[list[dict[str, Any]] | None, says("tools that were called", [])] = None
    tool_call_id: Annotated[str | None, says("which call a tool answers", "call_1")] = None
    tags: Annotated[list[str] | None, says("the tags it was added with", ["deploy"])] = None
    metadata: Annotated[dict[str, Any] | None, says("the metadata it was added with", {"ticket": 42})] = None


class MemoryHit:
    """A governed memory that answers; its fields follow these."""

    id: Annotated[str, says("its id", "alice_mem_20260601_00000001")]
    app_id: Annotated[str, says("the app", "default")]
    project_id: Annotated[str, says("the project", "default")]
    scope: Annotated[str, says("whose kind of memory it is", "user")]
    owner_id: Annotated[str | None, says("whose it is", "alice")]
    content: Annotated[str, says("what it says", "Prefers short answers.")]
    timestamp: Annotated[str, says("since when it is known", "2026-06-01T09:30:00+00:00")]
    score: Annotated[float, says("how well it answers", 0.8)]
    path: Annotated[
        str,
        says("its file in the root", "default_app/default_project/users/alice/memories/memory-2026-06-01.md"),
    ]


class LeftItem:
    """Something that could not be removed."""

    where: Annotated[str, says("where it is", "strategies")]
    why: Annotated[str, says("why it is left", "one has been running for a minute")]


class ErrorDetail:
    """What went wrong."""

    code: Annotated[str, says("for programs", "INVALID_INPUT")]
    message: Annotated[str, says("for people: the thing, the trouble, the next step", "query: is missing.")]
    timestamp: Annotated[str, says("when", "2026-06-01T09:30:00+00:00")]
    path: Annotated[str, says("the path that was asked", "/api/v1/memory/search")]


class ErrorAnswer:
    """A refusal or a failure."""

    request_id: Annotated[str, says("to find it in the server's log", "4f1c")]
    error: Annotated[
        ErrorDetail, says("what went wrong", {"code": "INVALID_INPUT", "message": "query: is missing."})
    ]
