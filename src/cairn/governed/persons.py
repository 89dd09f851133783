"""Exports or forgets everything of a person or a session.

A person's own are the notes in `users/<id>/` and the sessions in which no other user spoke: those go whole, with every line of
a journal, every former text and every row about them. In a session that others had a part in, what the person said goes only
where that is asked for, since it is the others' conversation, too; then what was told and derived from it follows. Nothing
that others say about somebody is touched: it is listed, with the reason.

A session goes with its log, its episodes for everybody who was in it, and all that was made from these.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from urllib.parse import unquote

from cairn.canonical import from_json, object_in, objects_in
from cairn.errors import CairnError, NotFound
from cairn.governed import pages, removal, transcripts, unfinished
from cairn.governed.memories import Keeper
from cairn.governed.records import stamp
from cairn.governed.unfinished import ForgetAgain
from cairn.governed.wanted import (
    ELSEWHERE,
    IN_GIT,
    OF_HISTORY,
    SAID_AGAIN,
    TELLING,
    Beside,
    ForgetTally,
    Left,
    Lost,
    Wanted,
    sentences,
)
from cairn.language.words import word_set
from cairn.notes.format import list_items
from cairn.notes.kinds import place_of
from cairn.notes.notebook import Draft
from cairn.seams import Locator
from cairn.seams.storage import readable_files
from cairn.talk.sessions import message_id, session_locator
from cairn.types import Entry, Scope, Space

STILL_THERE = ForgetAgain(
    "something of theirs is still there; it may have been written meanwhile: forget again"
)
_SHARED = "others had a part in this session: their conversation stays; ask for shared sessions to take this person's words out"
_NAMED = "others' words name this person; they are the others'"
_ELSEWHERE = "the same name or a sentence that went stands there: forget it there, too"
_ALWAYS = (("backups", "archives made before hold it: delete them, see docs/operating.md"),)
_SYNCED = (
    "other machines",
    "they follow when the sync program has carried this over; its own versions are kept by it",
)
_SERVERS = (
    "other servers",
    "each takes it out of its own index and audit log within a minute while it runs, else when it starts again",
)
_SHORTEST_TELLING = 6
_SHORTEST_WITHIN = 4


@dataclass(frozen=True, slots=True)
class SpokenSession:
    """One session somebody spoke in."""

    id: str
    at: Locator
    users: frozenset[str]
    messages: tuple[tuple[int, Mapping[str, Any]], ...]

    def as_data(self) -> dict[str, Any]:
        return {"id": self.id, "users": sorted(self.users), "messages": self.messages}


@dataclass(slots=True)
class Going:
    """What is to be removed: files, sessions and counts. Passed to every part that keeps copies."""

    space: Space
    owner: str = ""
    sessions: list[str] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    done: ForgetTally = field(default_factory=ForgetTally)
    wanted: Wanted | None = None
    alias: str = field(default_factory=lambda: f"forgotten-{secrets.token_hex(4)}")

    @property
    def folder(self) -> str:
        """Where the person's notes are, with a slash at the end; empty for a session."""
        return f"users/{self.owner}/" if self.owner else ""

    def names(self, text: str) -> bool:
        """Whether a text names the person (or a session that goes) as whole words."""
        named = (re.escape(self.owner), *self._telling()) if self.owner else self._telling()
        return any(re.search(rf"(?<![^\W_]){one}(?![^\W_])", text) for one in named)

    def holds_letters(self, text: str) -> bool:
        """Whether a text holds the person's id, be it within another word ("anna" in "Susanna"); not asked of short ones,
        which most words hold.
        """
        return len(self.owner) >= _SHORTEST_WITHIN and self.owner.casefold() in text.casefold()

    def is_recorded(self, record: str) -> bool:
        """Whether a record of a queue is about who goes. Sessions count however short their ids are, since these have a
        field, or a file's name, to themselves.
        """
        value = object_in(record) or {}
        where = (value.get("app"), value.get("project"))
        if where == (self.space.app, self.space.project) and value.get("session") in self.sessions:
            return True
        return self.names(record) or any(
            session_locator(self.space, one).key == record for one in self.sessions
        )

    def is_told(self, block: str) -> bool:
        """Whether an entry, as it stands in a note, was made from a session that goes (and from no other)."""
        told = (re.escape(one) for one in self.sessions)
        made = re.search(rf"^\*\*(?:source_)?session_id\*\*: (?:{'|'.join(told)})$", block, re.MULTILINE)
        return made is not None and "**parent_type**: cluster\n" not in block

    def is_theirs(self, text: str) -> bool:
        """Whether a text holds a path, an entry's id or a session of who goes: nobody else's words have these."""
        telling, name = list(self._telling()), re.escape(self.owner)
        if self.owner:
            telling += [f"users/{name}/", rf"{name}_[a-z]{{2,4}}_\d{{8}}_"]
        return any(re.search(rf"(?<![^\W_]){one}", text) for one in telling)

    def _telling(self) -> Iterator[str]:
        return (re.escape(one) for one in self.sessions if len(one) >= _SHORTEST_TELLING)


@dataclass(frozen=True, slots=True)
class Farewell:
    """The receipt: what went (or would go), what stays and why."""

    at: str
    removed: Mapping[str, int]
    sessions: Sequence[str]
    places: Sequence[str]
    stays: Left
    dry_run: bool

    @property
    def complete(self) -> bool:
        """Whether nothing of the person's own is left below the root."""
        return not self.dry_run and not any(isinstance(why, ForgetAgain) for _, why in self.stays)


# ---------------------------------------------------------------- what there is


def sessions_with(keeper: Keeper, space: Space, user: str) -> Iterator[SpokenSession]:
    """Every session in which the user spoke, with what they said themselves."""
    for log in transcripts.logs(keeper, Wanted(space)):
        if user in log.users:
            said = [(one.ordinal, one.raw) for one in log.said()]
            mine = [one for one in said if one[1].get("role") == "user" and one[1].get("sender_id") == user]
            yield SpokenSession(
                log.session_id, log.at, log.users, tuple(mine if len(log.users) > 1 else said)
            )


def _session(keeper: Keeper, space: Space, session_id: str) -> SpokenSession | None:
    at = session_locator(space, session_id)
    log = next((one for one in transcripts.logs(keeper, Wanted(space)) if one.at == at), None)
    if log is None:
        return None
    return SpokenSession(session_id, at, log.users, tuple((one.ordinal, one.raw) for one in log.said()))


def _no_session(space: Space, session_id: str) -> NotFound:
    return NotFound(f'There is no session "{session_id[:80]}" in {space}.', session_id=session_id)


def _nobody(space: Space, user: str) -> NotFound:
    return NotFound(f'Nothing is kept of "{user[:80]}" in {space}.', user_id=user)


def export_person(
    keeper: Keeper, space: Space, user: str, *, waiting: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """Everything kept of a person: notes as they stand, what they said, and what of it is not taken in yet.

    Raises:
        NotFound: nothing is.
    """
    files = []
    for at in _files_of(keeper, Scope(space, "user", user)):
        try:
            files.append({"path": at.key, "text": keeper.storage.read(at)})
        except CairnError as error:
            files.append({"path": at.key, "text": "", "trouble": str(error)})
    sessions = [
        {
            "session_id": one.id,
            "shared": len(one.users) > 1,
            "messages": [dict(raw) for _, raw in one.messages],
        }
        for one in sessions_with(keeper, space, user)
    ]
    if not files and not sessions and not waiting:
        raise _nobody(space, user)
    return {
        "user_id": user,
        "at": stamp(keeper.clock.now()),
        "notes": files,
        "sessions": sessions,
        "waiting": list(waiting),
    }


def export_session(
    keeper: Keeper, space: Space, session_id: str, *, waiting: Sequence[Mapping[str, Any]] = ()
) -> dict[str, Any]:
    """A session word for word, the entries that were made from it, and what of it is not taken in yet.

    Raises:
        NotFound: there is none of that name.
    """
    said = _session(keeper, space, session_id)
    if said is None and not waiting:
        raise _no_session(space, session_id)
    made = [
        {
            "id": place.scope.public_id(entry.id),
            "kind": place.kind.name,
            "path": where.key,
            "sections": dict(entry.sections),
        }
        for where, place, entry in removal.entries_of(keeper, Wanted(space))
        if _is_from(entry, session_id)
    ]
    return {
        "session_id": session_id,
        "at": stamp(keeper.clock.now()),
        "messages": [dict(raw) for _, raw in said.messages] if said is not None else [],
        "entries": made,
        "waiting": list(waiting),
    }


def _files_of(keeper: Keeper, scope: Scope) -> list[Locator]:
    return list(readable_files(keeper.storage, keeper.root.scope(scope)))


# ---------------------------------------------------------------- how it goes


def forget_person(
    keeper: Keeper, space: Space, user: str, *, shared: bool, dry_run: bool, beside: Beside
) -> Farewell:
    """Take a person out of a space.

    Args:
        keeper: Whose memories.
        space: The app and project.
        user: The person's id.
        shared: Take what they said out of sessions that others had a part in, too.
        dry_run: Only tell.
        beside: What is done in places that this module cannot see.

    Raises:
        NotFound: nothing is kept of them.
    """
    scope = Scope(space, "user", user)
    found = list(sessions_with(keeper, space, user))
    before = beside.earlier()
    earlier = _spoken(space, before)
    alone = dict.fromkeys(one.id for one in (*found, *earlier) if len(one.users) == 1)
    going = Going(space, user, list(alone))
    notes = _files_of(keeper, scope)
    lines = _take_lines(keeper, going, dry=True)
    waits = beside.waiting(going)
    if not found and not notes and not lines and not waits and not before:
        raise _nobody(space, user)
    going.paths += before.get("paths", ())

    def take() -> None:
        spoken = list(sessions_with(keeper, space, user))
        with_others = [one for one in spoken if len(one.users) > 1]
        _take_sessions(keeper, going, [one for one in spoken if len(one.users) == 1])
        lost = _take_words(keeper, going, with_others) if shared else {}
        if shared:
            taken = [one for one in earlier if len(one.users) > 1]
            lost, with_others = {**_lost(taken), **lost}, [*taken, *with_others]
        going.done.left += beside.settle()
        _take_notes(keeper, going, _files_of(keeper, scope))
        if lost:
            _follow(keeper, going, lost, beside, list(dict.fromkeys(one.id for one in with_others)))

    if dry_run:
        _count(keeper, going, found, notes, shared=shared)
        going.done.add("journal lines", lines)
        going.done.add("waiting events", waits)
    else:
        spoken = (*earlier, *found)
        paths = dict.fromkeys((*going.paths, *(one.at.key for one in spoken), *(at.key for at in notes)))
        beside.keep({"sessions": [one.as_data() for one in spoken], "paths": list(paths)})
        _take_all(keeper, going, beside, take)
    if not shared:
        going.done.left += [(f"session {one.id}", _SHARED) for one in found if len(one.users) > 1]
    return _receipt(keeper, going, dry_run=dry_run)


def forget_session(
    keeper: Keeper, space: Space, session_id: str, *, dry_run: bool, beside: Beside
) -> Farewell:
    """Take a session out of everybody's memory, with what was made from it; see `forget_person`.

    Raises:
        NotFound: there is none of that name.
    """
    found = _session(keeper, space, session_id)
    going = Going(space, sessions=[session_id], done=ForgetTally(dry=dry_run))
    waits = beside.waiting(going)
    earlier = beside.earlier()
    if found is None and not waits and not earlier:
        raise _no_session(space, session_id)
    cells = _cells_of(keeper, found.at) if found is not None else set()
    said = [*_spoken(space, earlier), *([found] if found is not None else ())]
    wanted = Wanted(space, cells=cells.union(earlier.get("cells", ())), lost=_lost(said))
    wanted.entries = tuple(unfinished.from_names(space, earlier.get("entries", ())))
    wanted.paths += dict.fromkeys((*earlier.get("paths", ()), *(one.at.key for one in said)))
    _want_told(keeper, wanted, session_id)
    going.wanted = wanted

    def take() -> None:
        _take_sessions(keeper, going, said)
        going.done.left += beside.settle()
        _want_told(keeper, wanted, session_id)
        removal.from_notes(keeper, wanted, going.done, beside.profile)
        removal.from_journals(keeper, wanted, going.done)
        going.paths += wanted.paths

    if dry_run:
        _count(keeper, going, said, (), shared=True)
        going.done.add("waiting events", waits)
        removal.from_notes(keeper, wanted, going.done, beside.profile)
    else:
        beside.keep({
            "sessions": [one.as_data() for one in said], "cells": sorted(wanted.cells),
            "entries": unfinished.as_names(wanted.entries), "paths": wanted.paths,
        })  # fmt: skip
        _take_all(keeper, going, beside, take)
    going.paths += wanted.paths
    return _receipt(keeper, going, dry_run=dry_run)


def _take_all(keeper: Keeper, going: Going, beside: Beside, take: Callable[[], None]) -> None:
    """Take what goes out of everything, and look; once more, for what others wrote meanwhile."""
    for _ in range(2):
        going.done.left.clear()
        take()
        going.done.add("journal lines", _take_lines(keeper, going, dry=False))
        pages.refresh(keeper, going.space)
        going.done.left += beside.purge(going, going.done.add)
        going.done.left += _look(keeper, going, beside)
        if not any(why == STILL_THERE for _, why in going.done.left):
            break
    going.done.left += beside.stays(going.done.left)
    beside.end(going.done.left)


def _want_told(keeper: Keeper, wanted: Wanted, session_id: str) -> None:
    """Have the entries that were told in a session go, and their former texts."""
    told: dict[tuple[Scope, str], str] = {}
    for at, place, entry in removal.entries_of(keeper, Wanted(wanted.space)):
        if _is_from(entry, session_id) and entry.inline.get("parent_type") != "cluster":
            told[place.scope, entry.id] = at.key
    wanted.entries = tuple(dict.fromkeys((*wanted.entries, *told)))
    wanted.paths += [path for path in dict.fromkeys(told.values()) if path not in wanted.paths]


def _spoken(space: Space, earlier: Mapping[str, Any]) -> list[SpokenSession]:
    """The sessions that an earlier try had begun to take."""
    return [
        SpokenSession(
            str(one["id"]),
            session_locator(space, str(one["id"])),
            frozenset(one["users"]),
            tuple((ordinal, raw) for ordinal, raw in one["messages"]),
        )
        for one in earlier.get("sessions", ())
    ]


def _is_from(entry: Entry, session_id: str) -> bool:
    """Whether an entry was made from a session: told or derived from it, or proposed by a strategy that read it."""
    is_proposed = entry.inline.get("origin") == "strategy"
    return entry.inline.get("source_session_id" if is_proposed else "session_id") == session_id


def _cells_of(keeper: Keeper, at: Locator) -> set[str]:
    cells = set()
    for value in objects_in(keeper.journals.read(at).lines):
        if value.get("t") == "cut" and isinstance(value.get("cell"), str):
            cells.add(value["cell"])
    return cells


def _lost(sessions: Sequence[SpokenSession]) -> dict[str, Lost]:
    lost: dict[str, Lost] = {}
    for one in sessions:
        for ordinal, raw in one.messages:
            said = sentences(str(raw.get("content") or ""))
            lost.setdefault(message_id(one.id, ordinal), Lost()).gone += said
    return lost


def _count(
    keeper: Keeper, going: Going, found: Sequence[SpokenSession], notes: Sequence[Locator], *, shared: bool
) -> None:
    for one in found:
        if one.id in going.sessions or shared:
            going.done.add("messages", len(one.messages))
            going.done.add("sessions", one.id in going.sessions)
            going.paths.append(one.at.key)
    for at in notes:
        _count_note(keeper, going, at)


def _count_note(keeper: Keeper, going: Going, at: Locator) -> None:
    place = place_of(at)
    going.done.add("notes")
    if at.key not in going.paths:
        going.paths.append(at.key)
    if place is not None and place.kind.storage == "daily":
        with suppress(CairnError):
            going.done.add(f"{place.kind.name} entries", len(keeper.notebook.read(at).entries))


def _take_sessions(keeper: Keeper, going: Going, sessions: Sequence[SpokenSession]) -> None:
    for one in sessions:
        if not keeper.storage.exists(one.at):
            continue
        keeper.journals.edit(one.at, lambda _lines: [])  # readers notice that it was made anew
        keeper.storage.remove(one.at)
        going.done.add("messages", len(one.messages))
        going.done.add("sessions")
        going.paths.append(one.at.key)


def _take_words(keeper: Keeper, going: Going, sessions: Sequence[SpokenSession]) -> dict[str, Lost]:
    """Take what the person said out of sessions of several; what was lost, by message."""
    lost = _lost(sessions)
    for one in sessions:

        def make(lines: Sequence[str], one: SpokenSession = one) -> tuple[list[str], int]:
            log = transcripts.Log(Wanted(going.space), one.at, one.id, lines)
            out = log.without_sender({ordinal for ordinal, _ in one.messages}, going.owner)
            return out, out != list(lines)

        transcripts.edited(keeper, one.at, make)
        going.done.add("messages", len(one.messages))
        going.paths.append(one.at.key)
    return lost


def _take_notes(keeper: Keeper, going: Going, notes: Sequence[Locator]) -> None:
    for at in notes:
        _count_note(keeper, going, at)
        with suppress(NotFound):
            keeper.storage.remove(at)


def _follow(
    keeper: Keeper, going: Going, lost: Mapping[str, Lost], beside: Beside, sessions: Sequence[str]
) -> None:
    """What others have from the words that went: episodes are told anew, what was derived goes."""
    going.done.add("episodes told anew", sum(beside.retell(one) for one in sessions))
    drafts: dict[Locator, dict[str, Callable[[Entry], Draft]]] = {}
    for at, _, entry in removal.entries_of(keeper, Wanted(going.space)):
        if entry.inline.get("session_id") in sessions and going.owner in _senders(entry):
            drafts.setdefault(at, {})[entry.id] = partial(_without_speaker, owner=going.owner)
    for at, changes in drafts.items():
        keeper.notebook.change_many(at, changes)
        going.paths.append(at.key)
    wanted = going.wanted = Wanted(going.space, lost=dict(lost))
    done = ForgetTally()
    removal.from_notes(keeper, wanted, done, beside.profile)
    for what, count in done.counts.items():
        going.done.add(f"{what} of others", count)
    going.paths += wanted.paths


def _senders(entry: Entry) -> list[str]:
    return list_items(entry.inline.get("sender_ids", "[]"))


def _without_speaker(entry: Entry, owner: str) -> Draft:
    return Draft.of(entry, sender_ids=[one for one in _senders(entry) if one != owner])


# ---------------------------------------------------------------- journals


def _is_about(line: str, going: Going) -> bool:
    """Whether a journal's line is about who goes: names them as an owner, by a path, or in the id of an entry."""
    if not going.names(line):
        return False
    try:
        return _tells_of(from_json(line), going)
    except (ValueError, RecursionError):
        return True


def _tells_of(value: Any, going: Going) -> bool:
    if isinstance(value, str):
        parts = value.split("/")
        return (
            value in (going.owner, *going.sessions)
            or (bool(going.owner) and going.owner in parts)
            or (
                bool(going.owner)
                and re.match(rf"{re.escape(going.owner)}_[a-z]{{2,4}}_\d{{8}}_", value) is not None
            )
        )
    if isinstance(value, dict):
        return any(_tells_of(one, going) for one in (*value, *value.values()))
    return isinstance(value, list) and any(_tells_of(one, going) for one in value)


def _take_lines(keeper: Keeper, going: Going, *, dry: bool) -> int:
    """Take the lines about who goes out of the journals, or only count them; checkpoints are the space's."""

    def clean(name: str, line: str) -> str | None:
        return line if name == "checkpoints.jsonl" else _without_them(line, going)

    return sum(removal.in_journals(keeper, going.space, clean, dry=dry).values())


def _without_them(line: str, going: Going) -> str | None:
    """A line without who goes; None where it is about nobody else. Hits of several memories keep the others'."""
    if not _is_about(line, going):
        return line
    value = object_in(line) or {}
    if isinstance(mem := value.get("m"), list):
        rest = [one for one in mem if not (isinstance(one, list) and _tells_of(one, going))]
        if rest and len(rest) < len(mem) and all(isinstance(one, list) for one in mem):
            return json.dumps({**value, "m": rest}, separators=(",", ":"))
    return None


# ---------------------------------------------------------------- the last look


def _look(keeper: Keeper, going: Going, beside: Beside) -> list[tuple[str, str]]:
    """Every place that still names who went, and why it does."""
    truth: dict[str, str] = {}
    copies: list[str] = []
    run_on: list[str] = []
    within_words = False
    told = Wanted(going.space)
    if going.wanted is not None:
        lost = (one for message in going.wanted.lost.values() for one in message.gone)
        told.want(one for one in lost if len(word_set(one)) >= TELLING)
    space = keeper.root.space(going.space).key
    for path, piece in beside.files() if beside.files is not None else ():
        if path == ".git" or path.startswith(".git/"):
            continue
        if piece is None:
            truth.setdefault(path, "it cannot be read and was not searched")
            continue
        in_path, text = going.names(unquote(path)), piece.decode("utf-8", "ignore")
        within_words |= not _is_copy(path) and going.holds_letters(text)
        if path.startswith(".index/") and going.owner and not going.is_theirs(text):
            # In a database one column follows another without a blank, and a word may begin in the one before.
            run_on += [path] if going.holds_letters(text) else []
            copies += [path] if told.found_in_bytes(piece) else []
            continue
        if not in_path and not going.names(text):
            if told.found_in_bytes(piece):
                if _is_copy(path):
                    copies.append(path)
                else:
                    truth[path] = SAID_AGAIN if path.startswith(f"{space}/") else _ELSEWHERE
            continue
        if going.is_theirs(text) and path.startswith((f"{space}/", ".")):
            truth[path] = STILL_THERE
        elif _is_copy(path):
            copies.append(path)
        elif not path.startswith(f"{space}/"):
            truth[path] = _ELSEWHERE
        elif in_path or path.startswith(f"{space}/journal/"):
            truth[path] = STILL_THERE
        else:
            truth[path] = _NAMED
    found = [(path, why) for path, why in truth.items() if why != _ELSEWHERE]
    if _ELSEWHERE in truth.values():
        found.append((ELSEWHERE, _ELSEWHERE))
    if not truth:
        found += [(path, STILL_THERE) for path in copies]
    if not truth and not within_words:
        found += [(path, STILL_THERE) for path in run_on]
    return found


def _is_copy(path: str) -> bool:
    """Whether a file holds what others hold: the index, former texts, generated pages."""
    return path.startswith(".") or "/pages/" in path or path.endswith(tuple(OF_HISTORY))


def _receipt(keeper: Keeper, going: Going, *, dry_run: bool) -> Farewell:
    stays = [*going.done.left, *_ALWAYS]
    if keeper.storage.exists(Locator(IN_GIT[0])):
        stays.append(IN_GIT)
    if keeper.storage.capabilities.sync:
        stays.append(_SYNCED)
    if keeper.storage.is_shared:
        stays.append(_SERVERS)
    made = Farewell(
        stamp(keeper.clock.now()),
        dict(going.done.counts),
        sorted(going.sessions),
        sorted(set(going.paths)),
        tuple(dict.fromkeys(stays)),
        dry_run,
    )
    if not dry_run:  # a line that something went, without saying whose
        what = "person" if going.owner else "session"
        keeper.note(going.space, "forgotten", {"at": made.at, "id": what, "removed": dict(made.removed)})
    return made
