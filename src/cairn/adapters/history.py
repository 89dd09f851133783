"""Keeps which items of a session a framework has taken back, and shows it the other messages.

A session's log is append-only. A framework may take its last item back, or begin anew: then a line of
`journal/histories.jsonl` says which messages it no longer sees. They stay remembered; `forget` is what removes words.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from cairn.adapters import blocking
from cairn.aio import AsyncMemory
from cairn.canonical import objects_in
from cairn.errors import Invalid
from cairn.memory import Memory
from cairn.talk import foreign
from cairn.talk.sessions import session_locator
from cairn.types import Message, Space, checked_session_id

_AT_ONCE = 500  # messages of one call of `add`


class SessionView:
    """One session as a framework sees it.

    Args:
        memory: The open memory, blocking or awaited.
        session_id: The session.
        user_id: Who speaks as the user; the settings' person where nobody is named.
        app_id: The app of the space.
        project_id: The project of the space.
    """

    def __init__(
        self,
        memory: Memory | AsyncMemory,
        session_id: str,
        *,
        user_id: str | None = None,
        app_id: str = "default",
        project_id: str = "default",
    ) -> None:
        self.memory = blocking(memory)
        self.session_id = checked_session_id(session_id)
        self.space = Space(app_id, project_id)
        self.person = user_id or self.memory.settings.memory.person

    @property
    def place(self) -> dict[str, Any]:
        """The space, as fields of an operation."""
        return {"app_id": self.space.app, "project_id": self.space.project}

    def messages(self) -> list[Message]:
        """What the framework sees, oldest first."""
        log = self.memory.parts.sessions.load(session_locator(self.space, self.session_id))
        upto, dropped = self._taken_back()
        return [one for one in log.messages if _ordinal(one.id) >= upto and one.id not in dropped]

    def add(self, messages: Sequence[Any], **more: Any) -> None:
        """Keep messages, in any form that `Memory.add` takes; where none of them is talk, nothing is kept."""
        for start in range(0, len(messages), _AT_ONCE):
            part = messages[start : start + _AT_ONCE]
            try:
                foreign.taken(part, user_id=self.person, now_ms=1)
            except Invalid:
                continue  # instructions and reasoning alone
            self.memory.add(self.session_id, part, user_id=self.person, **self.place, **more)

    def drop(self, ids: Sequence[str]) -> None:
        """Take messages out of what the framework sees."""
        if ids:
            self._note(dropped=list(ids))

    def clear(self) -> None:
        """Begin anew: nothing that was said so far is seen any more."""
        if seen := self.messages():
            self._note(upto=_ordinal(seen[-1].id) + 1)

    def pop(self) -> Message | None:
        """Take the last message back, and return it."""
        with self.alone():
            seen = self.messages()
            self.drop([one.id for one in seen[-1:]])
            return seen[-1] if seen else None

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else changes what is seen of this session meanwhile."""
        with self.memory.parts.locks.hold(f"history {self.space.app} {self.space.project} {self.session_id}"):
            yield

    def _note(self, **said: Any) -> None:
        line = json.dumps({"session": self.session_id, **said}, ensure_ascii=False)
        self.memory.parts.journals.append(self._journal, [line])

    def _taken_back(self) -> tuple[int, set[str]]:
        upto, dropped = 0, set[str]()
        for said in objects_in(self.memory.parts.journals.read(self._journal).lines):
            if said.get("session") == self.session_id:
                upto = max(upto, int(said.get("upto", 0)))
                dropped |= set(said.get("dropped", ()))
        return upto, dropped

    @property
    def _journal(self) -> Any:
        return self.memory.parts.keeper.root.journal(self.space, "histories")


def _ordinal(message_id: str) -> int:
    return int(message_id.rpartition("_")[2])


def pictured(message: Message) -> str | list[dict[str, Any]]:
    """What a message says, as OpenAI's chat has it: a text, or blocks where there is a picture among the words."""
    if isinstance(message.content, str):
        return message.content
    if not any(item.type == "image" and (item.uri or item.base64) for item in message.content):
        return message.text
    blocks: list[dict[str, Any]] = []
    for item in message.content:
        if item.type == "image" and (item.uri or item.base64):
            url = item.uri or f"data:image/{item.ext or 'png'};base64,{item.base64}"
            blocks.append({"type": "image_url", "image_url": {"url": url}})
        elif item.text:
            blocks.append({"type": "text", "text": item.text})
    return blocks
