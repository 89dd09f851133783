"""What the operations of talk answer: messages, flushes, what is still unprocessed, tasks."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from cairn.operations.answers.shared import UnprocessedMessage
from cairn.operations.table import says


class ToolFunction:
    """The function a tool call names."""

    name: Annotated[str, says("its name", "get_weather")]
    arguments: Annotated[str, says("its arguments, as JSON text", '{"city": "Lisbon"}')]


class ToolCall:
    """A tool call of an assistant."""

    id: Annotated[str, says("its id", "call_1")]
    type: Annotated[str, says("its type", "function")] = "function"
    function: Annotated[ToolFunction, says("what is called", {"name": "get_weather", "arguments": "{}"})]


class ContentItem:
    """One piece of a message that is more than text."""

    type: Annotated[
        Literal["text", "image", "audio", "doc", "pdf", "html", "email"], says("what it is", "text")
    ]
    text: Annotated[str | None, says("its text", "I moved to Lisbon.")] = None
    uri: Annotated[str | None, says("where it is", "https://example.org/a.png")] = None
    base64: Annotated[str | None, says("its bytes", "aGVsbG8=")] = None
    ext: Annotated[str | None, says("the ending of its file name", "png")] = None
    name: Annotated[str | None, says("its file name", "boat.png")] = None
    extras: Annotated[dict[str, Any] | None, says("whatever else belongs to it", {"width": 640})] = None


class MessageItem:
    """One message in Cairn's own form; messages of OpenAI, Anthropic and LangChain are taken as they are, too."""

    sender_id: Annotated[
        str | None, says('who said it; user_id of the call for a user, "assistant" otherwise', "alice")
    ] = None
    sender_name: Annotated[str | None, says("the sender's name as it should read", "Alice")] = None
    role: Annotated[Literal["user", "assistant", "tool"], says("whose turn it was", "user")]
    timestamp: Annotated[
        int | None, says("when, in epoch milliseconds; now where it is left out", 1780300000000)
    ] = None
    content: Annotated[str | list[ContentItem], says("what was said", "I moved to Lisbon in May.")]
    tool_calls: Annotated[list[ToolCall] | None, says("tools the assistant called", [])] = None
    tool_call_id: Annotated[str | None, says("which call a tool answers", "call_1")] = None
    tags: Annotated[list[str] | None, says("words of the caller's to filter on", ["deploy"])] = None
    metadata: Annotated[
        dict[str, Any] | None,
        says("values of the caller's; those of its keys can be filtered on", {"ticket": 42}),
    ] = None


class AddData:
    """What became of the messages."""

    message_count: Annotated[int, says("how many messages were kept", 2)]
    status: Annotated[
        Literal["accumulated", "extracted", "queued"],
        says('"extracted" if an episode was written, "queued" if one follows', "accumulated"),
    ]
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 12)] = None
    pending: Annotated[
        int | None, says('messages of the session that wait to be extracted, where the status is "queued"', 2)
    ] = None
    waiting: Annotated[list[str] | None, says("episodes that could not be written yet, and why", [])] = None
    skipped: Annotated[list[str] | None, says("messages that are no talk and were left out, and why", [])] = (
        None
    )
    recalled: Annotated[
        int | None, says("framed recalls that were taken out: what was recalled is not kept again", 1)
    ] = None


class FlushData:
    """What became of the open stretch."""

    status: Annotated[
        Literal["extracted", "no_extraction"], says('"no_extraction" if nothing was open', "extracted")
    ]
    lsn: Annotated[int | None, says("the change to wait for with min_lsn", 13)] = None
    waiting: Annotated[list[str], says("episodes that could not be written yet, and why", [])]


class UnprocessedData:
    """What is said and in no episode yet."""

    messages: Annotated[list[UnprocessedMessage], says("the messages, oldest first", [])]


class OwnersData:
    """Who spoke."""

    owners: Annotated[list[str], says("the ids of the senders, in order of appearance", ["alice", "helper"])]


class RewrittenData:
    """What was written anew."""

    rewritten: Annotated[int, says("how many episodes changed", 3)]


class TaskItem:
    """One stretch of talk on its way to an episode."""

    id: Annotated[str, says("its id", "mc_0123456789ab")]
    status: Annotated[
        Literal["queued", "processing", "success", "failed"],
        says('"queued" while the stretch is open, "success" once its episodes are written', "success"),
    ]
    task_type: Annotated[
        Literal["memory_add", "memory_flush"],
        says("what brought it here: messages that wait, or a closed stretch", "memory_flush"),
    ]
    session_id: Annotated[str, says("the session", "s1")]
    error: Annotated[str | None, says("why it failed so far; it is tried again", None)] = None
    error_code: Annotated[str | None, says("the sort of trouble", None)] = None
    created_at: Annotated[str, says("when it began", "2026-06-01T09:30:00+00:00")]
    finished_at: Annotated[str | None, says("when it was done", "2026-06-01T09:30:00+00:00")] = None


class TasksData:
    """One page of tasks."""

    total: Annotated[int, says("how many there are", 1)]
    page: Annotated[int, says("which page this is", 1)]
    page_size: Annotated[int, says("how many a page", 20)]
    items: Annotated[list[TaskItem], says("the tasks, newest first", [])]
