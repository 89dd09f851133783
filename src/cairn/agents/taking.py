"""Adds the messages of a coding agent's session to the memory, each once by the ids of its transcript.

    event -> the transcript from where it was last read (a cursor) -> messages with tool calls -> add, a key each
          -> no transcript, or a reply it does not have yet: the event's own words
          -> before compaction and at the end: flush

A key is remembered in the session's log for good, so reading a transcript again adds nothing. Words that were
taken from an event are noted beside the cursor: when the transcript brings them, they are known.

A session stays with the first repository it was in, wherever its agent goes (`cd`) from there. What its transcript has from a
place where agents are switched off is passed over, and so is what a fork has copied from the session it comes from.
"""

from __future__ import annotations

import hashlib
import json
import time
from contextlib import suppress
from dataclasses import replace
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Any

from cairn.agents.hook import is_switched_off
from cairn.agents.hosts import HookEvent
from cairn.canonical import from_json
from cairn.engines import plain, spool
from cairn.errors import Invalid
from cairn.governed.secrets import redact
from cairn.memory import Memory
from cairn.project.importers import Importer, Session, importer_for, said
from cairn.projects import space_of_talk
from cairn.types import Message, Space

_IMPORTERS = {"claude": "claude-local", "codex": "codex-local"}
_LONGEST_KEY = 200
_MOST_BESIDE = 20  # the transcripts a new one may be a fork of: the last that were written


def take_in(memory: Memory, event: HookEvent) -> int:
    """Keep what is new in the session of `event`; how many messages were handed to the memory."""
    session = session_of(event)
    cursor = _Cursor(memory.settings.root, session)
    space = cursor.repository or space_of_talk(event.folder)
    messages = _from_transcript(event, cursor, memory.settings.root)
    messages += _from_event(event, cursor)
    refused: list[Invalid] = []
    for message in messages:
        try:
            _add(memory, session, space, event.host, message)
        except Invalid as error:
            refused.append(error)
            _ = memory.parts  # one that was closed meanwhile says so: the event stays for the next process
    if refused and len(refused) == len(messages):
        raise refused[0]
    for reason in refused:  # what one message is refused for must not keep what comes after it out
        spool.trouble(memory.settings.root, f"a message of {session} was left out: {reason}")
    if messages:
        place = {"app_id": space.app, "project_id": space.project}
        cursor.kept = {"at": time.time(), "agent": event.host, **place}
    cursor.save()
    if event.moment in {"compact", "end"}:
        memory.flush(session, space.app, space.project)
    return len(messages)


def repository_of(root: Path, event: HookEvent) -> list[Space]:
    """The space of the repository that a session is in, wherever its agent is now; none before anything was kept of it."""
    found = _Cursor(root, session_of(event)).repository
    return [] if found is None else [found]


def session_of(event: HookEvent) -> str:
    """The session of the memory that an event belongs to."""
    return spool.session_of(event.to_json())


def _add(memory: Memory, session: str, space: Space, host: str, message: Message) -> None:
    """Keep one message under its own key; one that is known by it, perhaps with another time, is kept already."""
    try:
        memory.add(
            session,
            [_named(message, host, memory.settings.memory.person)],
            space.app,
            space.project,
            defer_extraction=True,
            idempotency_key=_key(f"{host}:{message.id}"),
            mode="agent",
        )
    except Invalid as error:
        if error.facts.get("field") != "key":
            raise


def _key(name: str) -> str:
    if len(name) <= _LONGEST_KEY and name.isprintable():
        return name
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).hexdigest()


class _Cursor:
    """How far a transcript was read, the words that came from events before it had them, and what was kept last."""

    def __init__(self, root: Path, session: str) -> None:
        self._path = spool.cursor(root, session)
        self.at = 0
        self.early: list[str] = []
        self.seen: list[str] = []
        self.kept: dict[str, Any] | None = None
        try:
            data: Any = from_json(plain.read(self._path))
            self.at, self.early = int(data["at"]), [str(one) for one in data["early"]]
            self.seen = [str(one) for one in data.get("seen", ())]
            self.kept = data.get("kept")
        except (OSError, ValueError, KeyError, TypeError):
            pass

    @property
    def repository(self) -> Space | None:
        """Where the session was kept before; None before that, and while it is in no repository."""
        found = Space(self.kept["app_id"], self.kept["project_id"]) if self.kept else Space()
        return None if found == Space() else found

    def save(self) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        words = {"early": self.early[-50:], "seen": self.seen[-50:]}
        plain.put(self._path, json.dumps({"at": self.at, **words, "kept": self.kept}).encode())


def _from_transcript(event: HookEvent, cursor: _Cursor, root: Path) -> list[Message]:
    importer = _reader(event)
    path = Path(event.transcript)
    if importer is None or not event.transcript or not path.is_file():
        return []
    if path.stat().st_size < cursor.at:
        cursor.at = 0  # another file: its records are known by their ids
    copied = _copied(importer, event, root) if cursor.at == 0 else frozenset()
    session = Session(path, event.session, start=cursor.at, tools=True)
    is_off = cache(is_switched_off)
    found = []
    for number, message in enumerate(importer.messages(session)):
        if message.id in copied or is_off(session.folder):
            continue
        mark = _mark(message.role, message.text)
        cursor.seen.append(mark)
        if not message.tool_calls and mark in cursor.early:
            cursor.early.remove(mark)
            continue
        found.append(message if message.id else replace(message, id=f"{cursor.at}.{number}"))
    cursor.at = session.end
    return found


def _copied(importer: Importer, event: HookEvent, root: Path) -> frozenset[str]:
    """The ids of what is in this transcript and was taken in from that of another session before: a fork begins with a copy."""
    path = Path(event.transcript)
    first = next((one.id for one in importer.messages(Session(path, event.session, tools=True))), "")
    mark = first.partition(".")[0].encode("utf-8", "surrogatepass")
    if not mark:
        return frozenset()  # this host's have no ids, and its forks no copies
    beside = [one for one in path.parent.glob(f"*{path.suffix}") if one != path]
    known: set[str] = set()
    for other in sorted(beside, key=_written, reverse=True)[:_MOST_BESIDE]:
        read_to = _Cursor(root, session_of(replace(event, session=other.stem))).at
        with suppress(OSError):  # it was removed meanwhile
            if read_to and mark in other.read_bytes():
                session = Session(other, other.stem, tools=True)
                taken = takewhile(lambda _: session.end <= read_to, importer.messages(session))  # noqa: B023 -- used up here
                known.update(one.id for one in taken)
    return frozenset(known)


def _written(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _reader(event: HookEvent) -> Importer | None:
    kind = _IMPORTERS.get(event.host)
    return importer_for(kind) if kind else None


def _from_event(event: HookEvent, cursor: _Cursor) -> list[Message]:
    """The prompt and the reply of an event, where the transcript does not bring them.

    A transcript is written behind the talk. A prompt it does not have yet is taken from the event, since a session that
    is killed sends no other; a reply waits for it.
    """
    is_read = bool(event.transcript) and _reader(event) is not None
    replies = [] if is_read and Path(event.transcript).is_file() else [("assistant", event.reply)]
    found = []
    for role, words in (("user", event.prompt), *replies):
        text = said(words)
        if not text:
            continue
        mark = _mark(role, text)
        if is_read and mark in cursor.seen:
            continue
        cursor.early.append(mark)
        turn = event.turn or mark
        found.append(
            Message(role, role, int(time.time() * 1000), text, id=f"{turn}.{role}")  # type: ignore[arg-type]
        )
    return found


def _named(message: Message, host: str, person: str) -> Message:
    """The message by the person's own id, or by the agent's."""
    return replace(message, sender_id=person if message.role == "user" else host, id="")


def _mark(role: str, text: str) -> str:
    words = redact(" ".join(text.split())).text  # an event comes without credentials, a transcript with them
    return hashlib.sha256(f"{role} {words}".encode("utf-8", "surrogatepass")).hexdigest()[:16]
