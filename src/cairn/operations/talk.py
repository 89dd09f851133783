"""Talk: messages come in, stretches of it become episodes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from cairn.operations.table import Room, operation
from cairn.types import Message, Space

if TYPE_CHECKING:
    from cairn.talk import AddOutcome, FlushOutcome


class Talk(Room):
    """What is said to a memory."""

    @operation(writes=True)
    def add(
        self,
        session_id: str,
        messages: Sequence[Message | Mapping[str, Any]],
        app_id: str = "default",
        project_id: str = "default",
        *,
        defer_extraction: bool = False,
        idempotency_key: str | None = None,
        mode: Literal["chat", "agent"] | None = None,
        limited_to: Collection[str] | None = None,
    ) -> AddOutcome:
        """Keep `messages`, all or none, durably before this returns.

        `status` is "accumulated", or "extracted" if a boundary closed a cell and its episode is on disk. A caller
        `limited_to` some owners speaks only in their sessions, and those it begins are closed to other users.

        Raises:
            Invalid: something in the input breaks a rule.
            Forbidden: the session is of somebody outside `limited_to`.
            Conflict: the session was begun by a caller limited to others than a sender.
        """
        from cairn.talk import parse_message

        parsed = [
            one if isinstance(one, Message) else parse_message(one, f"messages[{n}]")
            for n, one in enumerate(messages)
        ]
        space = Space(app_id, project_id)
        with self.parts.foreground():
            return self.parts.capture.add(
                space,
                session_id,
                parsed,
                defer=defer_extraction,
                key=idempotency_key,
                mode=mode,
                limited_to=limited_to,
            )

    @operation(writes=True)
    def flush(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> FlushOutcome:
        """Close the session's open stretch now; its episode is on disk before this returns.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        with self.parts.foreground():
            return self.parts.capture.flush(Space(app_id, project_id), session_id, limited_to=limited_to)

    @operation(writes=False)
    def unprocessed(
        self,
        session_id: str,
        app_id: str = "default",
        project_id: str = "default",
        *,
        limited_to: Collection[str] | None = None,
    ) -> list[Message]:
        """The messages of a session that are in no cell yet.

        Raises:
            Forbidden: the session is of somebody outside `limited_to`.
        """
        return self.parts.capture.unprocessed(Space(app_id, project_id), session_id, limited_to=limited_to)

    @operation(writes=False)
    def session_owners(
        self, session_id: str, app_id: str = "default", project_id: str = "default"
    ) -> list[str]:
        """Everyone who spoke in a session."""
        from cairn.talk.sessions import session_locator

        log = self.parts.sessions.load(session_locator(Space(app_id, project_id), session_id))
        return list(dict.fromkeys(message.sender_id for message in log.messages))

    @operation(writes=True)
    def reextract(
        self,
        *,
        session_id: str | None = None,
        user_id: str | None = None,
        date: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
    ) -> int:
        """Write episodes anew from their transcripts, in place; the number changed.

        Raises:
            Invalid: an id that cannot be one, or a `date` that is no day (YYYY-MM-DD).
        """
        return self.parts.capture.reextract(Space(app_id, project_id), session_id, user_id, date)
