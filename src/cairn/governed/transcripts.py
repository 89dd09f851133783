"""Removes forgotten words from session logs, and adjusts the lines that refer to them.

A log is read line by line beside the state it makes, since whether a message is in reach depends on who else spoke in
its session and whether its cell is closed.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from cairn.canonical import as_line, object_in
from cairn.errors import CairnError
from cairn.governed.memories import Keeper
from cairn.governed.wanted import (
    TOMBSTONE,
    Affected,
    ForgetTally,
    Lost,
    Wanted,
    cleaned_json,
    sentences,
    shown,
)
from cairn.language.words import word_set
from cairn.seams import Locator
from cairn.seams.storage import readable_files
from cairn.talk.sessions import SessionState, message_id, place_of_session

_NOWHERE = -(2**31)
# In a message only who spoke, and when, is left alone: a call's id is found again by its own mark.
_OF_MESSAGE = frozenset({"sender_id", "role", "timestamp", "type"})


@dataclass(frozen=True, slots=True)
class Said:
    """A message of a log, as it stands in its line."""

    id: str
    at: Locator
    ordinal: int
    raw: Mapping[str, Any]
    is_in_reach: bool
    users: frozenset[str]

    @property
    def text(self) -> str:
        content = self.raw.get("content")
        if isinstance(content, str):
            return content
        items = content if isinstance(content, list) else []
        return "\n".join(str(item.get("text") or "") for item in items if isinstance(item, dict))


class Log:
    """The lines of one session log, parsed as far as they can be, and what of them is in reach."""

    def __init__(self, wanted: Wanted, at: Locator, session_id: str, lines: Sequence[str]) -> None:
        self._wanted = wanted
        self.at, self.session_id, self.lines = at, session_id, lines
        self.values = [object_in(line) for line in lines]
        self._firsts = self._ordinals()
        self.users = frozenset(str(m.get("sender_id")) for _, m in self._all() if m.get("role") == "user")

    def _ordinals(self) -> list[int]:
        """The place of each line's first message, as the session itself counts; far below 0 for a line set aside."""
        state = SessionState(self._wanted.space, self.session_id)
        out = []
        for line, value in zip(self.lines, self.values, strict=True):
            before = state.next_ordinal
            state.feed([line])
            count = len(_messages(value))
            out.append(state.next_ordinal - count if state.next_ordinal >= before + count else _NOWHERE)
        return out

    def _all(self) -> Iterator[tuple[int, Mapping[str, Any]]]:
        for _, value, first in self._lines_read():
            if value is not None and value.get("t") == "add":
                yield from ((n, m) for n, m in enumerate(_messages(value), first) if isinstance(m, dict))

    def _lines_read(self) -> Iterator[tuple[str, dict[str, Any] | None, int]]:
        """Each line, what it says, and the ordinal of its first message."""
        return zip(self.lines, self.values, self._firsts, strict=True)

    def said(self) -> Iterator[Said]:
        """Every message."""
        return (self._message(ordinal, raw) for ordinal, raw in self._all())

    def _message(self, ordinal: int, raw: Mapping[str, Any]) -> Said:
        mid = message_id(self.session_id, ordinal)
        return Said(mid, self.at, ordinal, raw, self._is_theirs(raw), self.users)

    def _is_theirs(self, raw: Mapping[str, Any]) -> bool:
        """A person's own messages, and what agents and tools said in a session with them; an agent's own."""
        reach = self._wanted.reach
        if reach is None:
            return True
        sender, role = str(raw.get("sender_id")), raw.get("role")
        if reach.track == "user":
            return sender == reach.owner if role == "user" else reach.owner in self.users
        return reach.track == "agent" and role != "user" and sender == reach.owner

    def is_in_cell(self, ordinal: int) -> bool:
        """Whether the message lies in a cell that goes with its episode."""
        for value in self.values:
            if value is not None and value.get("t") == "cut" and value.get("cell") in self._wanted.cells:
                first, upto = value.get("first"), value.get("upto")
                if isinstance(first, int) and isinstance(upto, int) and first <= ordinal < upto:
                    return True
        return False

    @property
    def is_theirs(self) -> bool:
        """Whether who is asked about took part in the session."""
        return any(said.is_in_reach for said in self.said())

    @property
    def is_clean(self) -> bool:
        """Whether nothing of the log that is in reach holds the words any more."""
        return self.cleaned(ForgetTally(dry=True))[1] == 0

    def without_sender(self, ordinals: Collection[int], owner: str) -> list[str]:
        """The lines without some messages, and without their sender among those its cells are told to."""
        out, theirs = [], ["user", owner]
        for line, value, first in self._lines_read():
            if value is None:
                out.append(line)
                continue
            if value.get("owner") == theirs:
                continue
            made = dict(value)
            if value.get("t") == "add":
                said = enumerate(_messages(value), first)
                made["messages"] = [None if n in ordinals else raw for n, raw in said]
            for name in ("owners", "for"):
                if isinstance(held := value.get(name), list):
                    made[name] = [one for one in held if one not in (theirs, owner)]
            out.append(line if made == value else as_line(made))
        return out

    def cleaned(self, done: ForgetTally) -> tuple[list[str], int]:
        """The lines without the words, and how many messages that touched."""
        out, touched = [], 0
        for line, value, first in self._lines_read():
            made, count = self._clean(line, value, first, done)
            out.append(made)
            touched += count
        return out, touched

    def _clean(
        self, line: str, value: dict[str, Any] | None, first: int, done: ForgetTally
    ) -> tuple[str, int]:
        wanted = self._wanted
        alone = wanted.reach is None or self.users <= {wanted.reach.owner}
        if value is None:
            return (wanted.masked(line), 1) if alone and wanted.found_in(line) else (line, 0)
        count = 0
        messages: list[Any] = []
        if value.get("t") == "corrected":
            owner = value.get("owner")
            mine = wanted.reach is None or owner == [wanted.reach.track, wanted.reach.owner]
            messages = [cleaned_json(wanted, m, skip=_OF_MESSAGE) if mine else m for m in _messages(value)]
            count = sum(a is not b for a, b in zip(messages, _messages(value), strict=True))
        elif value.get("t") == "add":
            for ordinal, raw in enumerate(_messages(value), first):
                kept = self._without(self._message(ordinal, raw), done) if isinstance(raw, dict) else raw
                count += kept is not raw
                messages.append(kept)
        if not count:
            return line, 0
        return as_line({**value, "messages": messages}), count

    def _without(self, said: Said, done: ForgetTally) -> Any:
        """A message without the words; None where it said nothing else, so that the ordinals of others stay."""
        wanted, raw = self._wanted, said.raw
        if not said.is_in_reach:
            return raw
        whole = self.is_in_cell(said.ordinal) and (
            raw.get("role") == "user" or wanted.reach is None or len(self.users) < 2
        )
        cleaned = None if whole else cleaned_json(wanted, raw, skip=_OF_MESSAGE)
        if cleaned is raw:
            return raw
        if cleaned is not None:
            content = cleaned.get("content")
            is_empty = isinstance(content, str) and not word_set(content.replace(TOMBSTONE, " "))
            cleaned = None if is_empty and not cleaned.get("tool_calls") else cleaned
        lost = wanted.lost.setdefault(said.id, Lost())
        parts = sentences(said.text)
        gone = [s for s in parts if cleaned is None or wanted.found_in(s)]
        lost.gone += gone
        lost.kept = [] if cleaned is None else [s for s in parts if s not in gone and word_set(s)]
        words = shown(" ".join(gone) or said.text or json.dumps(raw, ensure_ascii=False))
        sender = f"{'user' if raw.get('role') == 'user' else 'agent'} {raw.get('sender_id')}"
        why = "told in what goes" if whole else "the same words"
        done.take(Affected("message", said.id, said.at.key, sender, words, why))
        return cleaned


def logs(keeper: Keeper, wanted: Wanted) -> Iterator[Log]:
    """Every log of the space that can be read."""
    for at, session_id in _logs(keeper, wanted):
        yield Log(wanted, at, session_id, keeper.journals.read(at).lines)


def messages_of(keeper: Keeper, wanted: Wanted) -> Iterator[Said]:
    """Every message of the space's sessions."""
    return (said for log in logs(keeper, wanted) for said in log.said())


def _logs(keeper: Keeper, wanted: Wanted) -> Iterator[tuple[Locator, str]]:
    """Every log of the space that is one, and its session; what else is there, the look through all bytes tells."""
    for at in readable_files(keeper.storage, keeper.root.sessions(wanted.space)):
        if (place := place_of_session(at)) is not None:
            with suppress(CairnError):
                keeper.journals.size(at)
                yield at, place[1]


def edited(
    keeper: Keeper, at: Locator, make: Callable[[Sequence[str]], tuple[list[str], int]], *, dry: bool = False
) -> int:
    """Change a log or a journal, or only look; `make` gives its new lines, and how much that touches."""
    count = 0

    def change(lines: Sequence[str]) -> list[str] | None:
        nonlocal count
        out, count = make(lines)
        return out if count and not dry else None

    if dry:
        change(keeper.journals.read(at).lines)
    else:
        keeper.journals.edit(at, change)
    return count


def from_sessions(keeper: Keeper, wanted: Wanted, done: ForgetTally) -> None:
    """Messages in reach lose the words; one that said nothing else goes."""
    for at, session in _logs(keeper, wanted):

        def make(lines: Sequence[str], at: Locator = at, session: str = session) -> tuple[list[str], int]:
            return Log(wanted, at, session, lines).cleaned(done)

        if touched := edited(keeper, at, make, dry=done.dry):
            done.add("messages", touched)
            wanted.paths.append(at.key)


def _messages(value: Mapping[str, Any] | None) -> list[Any]:
    found = value.get("messages") if value is not None else None
    return found if isinstance(found, list) else []
