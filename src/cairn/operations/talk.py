"""Operations on talk: add messages, flush sessions into episodes."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cairn.errors import CairnError, NotFound
from cairn.operations import rules
from cairn.operations.answers import Answers
from cairn.operations.fields import MAX_ID, AppId, ProjectId, SessionId
from cairn.operations.table import Granted, Room, operation, says
from cairn.types import Message, Scope, Space, with_texts

if TYPE_CHECKING:
    from cairn.parts import Parts
    from cairn.talk import AddOutcome, FlushOutcome

answers = Answers("talk")

LimitedTo = Annotated[Collection[str] | None, Granted("owners")]
Sees = Annotated[Callable[[Scope], bool] | None, Granted("sees")]


def _added(outcome: AddOutcome, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"message_count": outcome.message_count, "status": outcome.status}
    if outcome.skipped:
        told["skipped"] = list(outcome.skipped)
    if outcome.recalled:
        told["recalled"] = outcome.recalled
    if outcome.pending is not None:
        return told | {"pending": outcome.pending}
    return told | {"lsn": outcome.lsn, "waiting": [str(one) for one in outcome.waiting]}


def _flushed(outcome: FlushOutcome, _room: Room, _asked: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": outcome.status, "lsn": outcome.lsn, "waiting": [str(one) for one in outcome.waiting]}


def _labelled(
    messages: list[Message], tags: Sequence[str] | None, metadata: Mapping[str, Any] | None
) -> list[Message]:
    """The messages with the tags and the metadata of the call beside their own."""
    from cairn.talk.messages import checked_metadata, checked_tags

    more, about = checked_tags(tags, "tags"), checked_metadata(metadata, "metadata")
    if not more and not about:
        return messages
    return [
        replace(
            one,
            tags=tuple(dict.fromkeys((*one.tags, *more))),
            metadata={**(about or {}), **(one.metadata or {})} or None,
        )
        for one in messages
    ]


def _frames_in(messages: Sequence[Message]) -> int:
    """How many framed recalls the messages hold, which are taken out before anything is written."""
    from cairn.governed.framing import take_out

    count = 0

    def look(text: str) -> str:
        nonlocal count
        count += take_out(text)[1]
        return text

    with_texts(messages, look)
    return count


def _without_times(messages: Sequence[Message]) -> str:
    """What a repeat of a call with a key is known by where we have dated its messages ourselves."""
    from cairn.talk.lines import said_json

    return said_json([replace(message, timestamp=0) for message in messages])


class Talk(Room):
    """What is said to a memory."""

    @operation("POST /memory/add", answers.AddData, rules.senders, data=_added, late="queued")
    def add(
        self,
        session_id: SessionId,
        messages: Annotated[
            Sequence[Any],
            says(
                "what was said, in order",
                [
                    {
                        "sender_id": "alice",
                        "role": "user",
                        "timestamp": 1780300000000,
                        "content": "I moved to Lisbon.",
                    }
                ],
                low=1,
                high=500,
                schema=answers.MessageItem,
            ),
        ],
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        user_id: Annotated[
            str | None,
            says(
                "who speaks in messages of role user that name no sender; memory.person of the settings otherwise",
                "alice",
                low=1,
                high=MAX_ID,
            ),
        ] = None,
        defer_extraction: Annotated[
            bool, says("only store the messages; do not cut a cell on this call", True)
        ] = False,
        async_mode: Annotated[
            bool, says("answer as soon as the messages are stored; extraction follows", True)
        ] = False,
        idempotency_key: Annotated[
            str | None,
            says(
                "an idempotency key: messages sent again with the same key are stored once",
                "req-17",
                low=1,
                high=200,
            ),
        ] = None,
        tags: Annotated[
            Sequence[str] | None, says("tags for each of the messages, to filter on", ["deploy"], high=64)
        ] = None,
        metadata: Annotated[
            Mapping[str, Any] | None,
            says("metadata for each of the messages; their own wins, key by key", {"ticket": 42}),
        ] = None,
        mode: Annotated[
            Literal["chat", "agent"] | None, says("what kind of session it is, noted with its cells", "agent")
        ] = None,
        limited_to: LimitedTo = None,
    ) -> AddOutcome:
        """Keep messages, all or none, durably before this returns.

        Messages of OpenAI, Anthropic, Gemini, LangChain and others are taken as they are, also as objects of their SDKs. Without a
        sender, a user's is `user_id` and an assistant's is "assistant"; without a time it is now. A time is milliseconds since
        1970, a datetime with its zone, or ISO 8601 with its zone. `tags` and `metadata` of messages are kept, carried on to the
        episodes made of them (all of theirs together), and can be filtered on in `search`, `get` and `recall`.
        Instructions (system, developer), reasoning and what cannot be kept are left out: `skipped` says what and why.

        `status` is "accumulated", or "extracted" if a boundary closed a cell and its episode is on disk. A caller
        `limited_to` some owners speaks only in their sessions, and those it begins are closed to other users.

        Raises:
            Invalid: something in the input breaks a rule.
            Forbidden: the session is of somebody outside `limited_to`.
            Conflict: the session was begun by a caller limited to others than a sender.
        """
        from cairn.talk import foreign, parse_message

        now = int(self.parts.clock.now().timestamp() * 1000)
        person = user_id or self.settings.memory.person
        said = foreign.taken(messages, user_id=person, now_ms=now)
        parsed = [one if isinstance(one, Message) else parse_message(one, at) for at, one in said.messages]
        parsed = _labelled(parsed, tags, metadata)
        space, capture = Space(app_id, project_id), self.parts.capture
        with self.parts.traffic:
            outcome = capture.add(
                space,
                session_id,
                parsed,
                known_by=_without_times(parsed) if idempotency_key is not None and not said.dated else None,
                defer=defer_extraction or async_mode,
                key=idempotency_key,
                mode=mode,
                limited_to=limited_to,
            )
            if async_mode:
                waiting = capture.unprocessed(space, session_id, limited_to=limited_to)
                outcome = replace(outcome, status="queued", pending=len(waiting))
            if not said.skipped and not outcome.is_cut:
                return outcome
            return replace(outcome, skipped=said.skipped, recalled=_frames_in(parsed))

    @operation("GET /tasks", answers.TasksData, rules.whole_space(write=False))
    def tasks(
        self,
        *,
        session_id: Annotated[str | None, says("only of this session", "s1", low=1, high=MAX_ID)] = None,
        status: Annotated[
            Literal["queued", "processing", "success", "failed"] | None, says("only these", "failed")
        ] = None,
        page: Annotated[int, says("which page", 1, low=1)] = 1,
        page_size: Annotated[int, says("how many a page", 20, low=1, high=1000)] = 20,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> dict[str, Any]:
        """The cells of a space: those that wait to become episodes, and those whose episodes are written."""
        found = [
            one
            for one in _tasks_of(self.parts, Space(app_id, project_id), session_id)
            if status is None or one["status"] == status
        ]
        found.sort(key=lambda one: (one["created_at"], one["id"]), reverse=True)
        begin = (page - 1) * page_size
        return {
            "total": len(found),
            "page": page,
            "page_size": page_size,
            "items": found[begin : begin + page_size],
        }

    @operation("GET /tasks/{task_id}", answers.TaskItem, rules.whole_space(write=False))
    def task(
        self,
        task_id: Annotated[str, says("the task's id", "mc_0123456789ab", low=1, high=MAX_ID)],
        *,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        sees: Sees = None,
    ) -> dict[str, Any]:
        """One task by its id: of the space, else of any other that the caller reaches."""
        for space in dict.fromkeys((Space(app_id, project_id), *self.parts.root.spaces())):
            if sees is None or sees(Scope(space, "project", "")):
                for one in _tasks_of(self.parts, space, None):
                    if one["id"] == task_id:
                        return one
        raise NotFound(f'There is no task "{task_id[:80]}": `cairn tasks` lists them.', id=task_id)

    @operation("POST /memory/flush", answers.FlushData, rules.session, data=_flushed)
    def flush(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: LimitedTo = None,
    ) -> FlushOutcome:
        """Close the session's open messages into a cell now; its episode is on disk before this returns.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        with self.parts.traffic:
            return self.parts.capture.flush(Space(app_id, project_id), session_id, limited_to=limited_to)

    @operation(answers=answers.UnprocessedData, allow=rules.session)
    def unprocessed(
        self,
        session_id: SessionId,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
        *,
        limited_to: LimitedTo = None,
    ) -> list[Message]:
        """The messages of a session that are in no cell yet.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        return self.parts.capture.unprocessed(Space(app_id, project_id), session_id, limited_to=limited_to)

    @operation(answers=answers.OwnersData, allow=rules.session)
    def session_owners(
        self, session_id: SessionId, app_id: AppId = "default", project_id: ProjectId = "default"
    ) -> list[str]:
        """Everyone who spoke in a session, in order of appearance."""
        from cairn.talk.sessions import session_locator

        log = self.parts.sessions.load(session_locator(Space(app_id, project_id), session_id))
        return list(dict.fromkeys(message.sender_id for message in log.messages))

    @operation("POST /memory/reextract", answers.RewrittenData, rules.whole_space(write=True), apart=True)
    def reextract(
        self,
        *,
        session_id: Annotated[str | None, says("only this session's", "s1", low=1, high=MAX_ID)] = None,
        user_id: Annotated[str | None, says("only this user's", "alice", low=1, high=MAX_ID)] = None,
        date: Annotated[str | None, says("only this day's", "2026-06-01", low=1, high=40)] = None,
        app_id: AppId = "default",
        project_id: ProjectId = "default",
    ) -> int:
        """Write episodes again from their transcripts, in place; returns how many changed.

        Raises:
            Invalid: an id that cannot be one, or a `date` that is no day (YYYY-MM-DD).
        """
        return self.parts.capture.reextract(Space(app_id, project_id), session_id, user_id, date)


# ---------------------------------------------------------------- tasks: told from the session logs and from what waits


def _tasks_of(parts: Parts, space: Space, session_id: str | None) -> Iterator[dict[str, Any]]:
    """Every closed stretch of a space's sessions, and the open one of each where there is one."""
    from cairn.retrieval.answers import shown_time
    from cairn.talk.sessions import session_locator

    waiting = {one.cell_id: one.reason for one in parts.capture.waiting if one.scope.space == space}
    named = [(space, session_id)] if session_id is not None else parts.capture.sessions(space)
    for _, session in named:
        try:
            state = parts.sessions.load(session_locator(space, session), keep=False)
        except CairnError:
            continue
        for cell in state.cells:
            why = waiting.get(cell.cell_id)
            status = "success" if cell.done else "failed" if why else "processing"
            yield _task(cell.cell_id, status, "memory_flush", session, cell.at, why, done=cell.done)
        if opened := state.open_messages:
            mark = hashlib.sha256(session.encode("utf-8")).hexdigest()[:16]
            at = shown_time(opened[0].timestamp)
            yield _task(f"open_{mark}", "queued", "memory_add", session, at, None, done=False)


def _task(
    task_id: str, status: str, kind: str, session: str, at: str, why: str | None, *, done: bool
) -> dict[str, Any]:
    return {
        "id": task_id,
        "status": status,
        "task_type": kind,
        "session_id": session,
        "error": why,
        "error_code": "EXTRACTION_FAILED" if why else None,
        "created_at": at,
        "finished_at": at if done else None,
    }
