"""Finds one thing by any id: its text, its place, and the messages it came from; and puts another text in its place.

Every id that an answer, a listing, `doctor` or `log` prints is taken: `<owner>_<entry id>` and the entry id alone,
`<owner>_profile` and the other documents, `<agent>_<skill>`, a place (`path#id`, the path of a document or
page), a message, a cell, and a document of the space or a topic of it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from cairn.errors import CairnError, Conflict, Invalid, InvalidLocatorError, NotFound
from cairn.notes.format import list_items, parse_note, render_entry
from cairn.notes.kinds import KINDS, Place, place_of, space_of
from cairn.parts import Parts
from cairn.seams import Locator, content_hash
from cairn.talk.sessions import SessionState, message_id, session_locator
from cairn.types import Entry, Message, Scope, Space

_ENTRY_ID = re.compile(r"(?:(?P<owner>.+)_)?(?P<entry>[a-z]+_\d{8}_\d{4,8})")
_MESSAGE_ID = re.compile(r"(?:.+_)?(?P<id>m_[0-9a-f]{16}_(?P<ordinal>\d{6,}))")
_CELL_ID = re.compile(r"mc_[0-9a-f]{12}")
_TOPIC_ID = re.compile(r"(?P<doc>d_[a-f0-9]{12,32})(?:_(?P<topic>\d{1,9})(?:-\d+)?)?")
_NAME = re.compile(r"[\w.@+-]{1,260}")


def show(parts: Parts, space: Space, wanted: str) -> dict[str, Any]:
    """What goes by the id `wanted` in `space`, whichever kind it is.

    Returns:
        `id`, `kind`, `scope` (user, agent, mission, project), `owner`, `path`, `line` (0 for a whole file),
        `source` (its Markdown) and `version` (for `revise`) where it can be edited, `inline` (its fields), `sections` (its texts by title) and `messages` (the talk behind it).

    Raises:
        Invalid: it can be no id, or several owners have an entry of that name; the message lists them.
        NotFound: nothing in the space goes by it.
    """
    if not isinstance(wanted, str):
        raise Invalid(f"id must be a text, not {type(wanted).__name__}.", field="id")
    if "/" in wanted:
        found = _by_place(parts, space, wanted)
    elif named := _MESSAGE_ID.fullmatch(wanted):
        found = _message(parts, space, named["id"], int(named["ordinal"]))
    elif _CELL_ID.fullmatch(wanted):
        found = _cell(parts, space, wanted)
    elif named := _TOPIC_ID.fullmatch(wanted):
        found = _topic(parts, space, named["doc"], int(named["topic"] or 0))
    elif named := _ENTRY_ID.fullmatch(wanted):
        found = _by_id(parts, space, named["owner"] or "", named["entry"]) or _document(parts, space, wanted)
    elif _NAME.fullmatch(wanted):
        found = _document(parts, space, wanted)
    else:
        raise _no_id(wanted)
    if found is not None:
        return found
    if not {"_", "/"} & set(wanted):
        raise _no_id(wanted)
    raise NotFound(f"There is no entry {wanted[:200]} in {space.app}/{space.project}.", id=wanted)


def in_spaces(
    spaces: Iterable[Space], show: Callable[[Space], dict[str, Any]], *passed: type[CairnError]
) -> dict[Space, dict[str, Any]]:
    """What goes by an id in each of these spaces: entries are counted in each, so that several may have the same.

    A space in which nothing does is left out, and so is one whose answer is an error that is `passed` over.
    """
    found = {}
    for space in spaces:
        with suppress(NotFound, *passed):
            found[space] = show(space)
    return found


def _no_id(wanted: str) -> Invalid:
    return Invalid(
        f'"{wanted[:80]}" is not an entry id; they look like alice_ep_20260601_00000001.', field="id"
    )


# ---------------------------------------------------------------- entries and documents


def _by_place(parts: Parts, space: Space, wanted: str) -> dict[str, Any] | None:
    path, mark, entry_id = wanted.partition("#")
    try:
        locator = Locator(path)
    except InvalidLocatorError:
        raise Invalid(f'"{wanted[:80]}" is no place in the root.', field="id") from None
    if space_of(locator) != space:
        return None
    place = place_of(locator)
    if place is None:
        return _page(parts, locator)
    if place.kind.storage != "daily":
        return _told_document(parts, place)
    if not mark:
        raise Invalid(f"{path} holds many entries: name one, as in {path}#ID.", field="id")
    found = _find(parts, place.scope, entry_id)
    return _told(parts, place.scope, *found) if found is not None and found[0] == locator else None


def _by_id(parts: Parts, space: Space, owner: str, entry_id: str) -> dict[str, Any] | None:
    """An entry of the named owner; of the project, or of the only owner who has it, where none is named."""
    if owner:
        for track in ("user", "agent", "mission"):
            try:
                scope = Scope(space, track, owner)
            except Invalid:
                return None
            if (found := _find(parts, scope, entry_id)) is not None:
                return _told(parts, scope, *found)
        return None
    holders = [(scope, at) for scope in parts.root.scopes(space) if (at := _find(parts, scope, entry_id))]
    ours = [one for one in holders if not one[0].owner] or holders
    if len(ours) > 1:
        names = ", ".join(scope.public_id(entry_id) for scope, _ in ours[:5])
        raise Invalid(f"{entry_id} is not one entry: name its owner, as in {names}.", field="id")
    return _told(parts, ours[0][0], *ours[0][1]) if ours else None


def _find(parts: Parts, scope: Scope, entry_id: str) -> tuple[Locator, Entry] | None:
    try:
        return parts.notebook.find(scope, entry_id)
    except (NotFound, Invalid):
        return None


def _told(parts: Parts, scope: Scope, locator: Locator, entry: Entry) -> dict[str, Any]:
    place = place_of(locator)
    note = parts.notebook.read(locator)
    source = source_of(note.text, note.by_id.get(entry.id, entry))
    said = [_said(message, parts) for message in messages_of(parts, scope, entry)]
    kind, name = place.kind.name if place else "", scope.public_id(entry.id)
    return _shown(kind, name, locator.key, entry.inline, entry.sections, said, scope, entry.line, source)


def _shown(
    kind: str,
    name: str,
    path: str,
    inline: Mapping[str, Any],
    sections: Mapping[str, str],
    said: Sequence[Mapping[str, Any]] = (),
    scope: Scope | None = None,
    line: int = 0,
    source: str | None = None,
) -> dict[str, Any]:
    """What `show` answers; what belongs to nobody is the project's, and without a `source` it cannot be edited."""
    owner = {"scope": scope.track, "owner": scope.owner} if scope else {"scope": "project", "owner": ""}
    edited = {"source": source, "version": version_of(source)} if source is not None else {}
    told = {"inline": dict(inline), "sections": dict(sections), "messages": list(said)}
    return {"id": name, "kind": kind, **owner, "path": path, "line": line, **edited, **told}


def _document(parts: Parts, space: Space, wanted: str) -> dict[str, Any] | None:
    """A profile, a skill or another note that is one document, by its owner and its name.

    Both may hold underscores, so each way to part them is tried.
    """
    cuts = [n for n, letter in enumerate(wanted) if letter == "_"]
    for owner, name in [("", wanted), *((wanted[:n], wanted[n + 1 :]) for n in cuts)]:
        for kind in KINDS.values():
            if kind.storage == "daily" or (kind.storage == "single" and kind.name != name):
                continue
            for track in kind.tracks:
                try:
                    place = Place(
                        Scope(space, track, owner), kind, name=name if kind.storage == "skill" else ""
                    )
                    return _told_document(parts, place)
                except (Invalid, NotFound):
                    continue
    return None


def _topic(parts: Parts, space: Space, doc_id: str, number: int) -> dict[str, Any]:
    """A topic of a document."""
    from cairn.operations.library import Library, topic_data

    document, about = Library(parts, space).document(doc_id)
    told = topic_data(document, number, about)
    kept = ("title", "category_id", "source_name", "original_file_path", "sha256")
    inline = {"heading": told["topic_path"], **{name: about[name] for name in kept if about[name]}}
    sections = {"Content": told["content"]}
    return _shown("knowledge", told["topic_id"], about["md_path"], inline, sections, line=told["line"])


def _page(parts: Parts, locator: Locator) -> dict[str, Any] | None:
    """A Markdown file of the space that is no note: a page for agents, an export, a file somebody put there."""
    if not locator.name.endswith(".md") or not parts.storage.exists(locator):
        return None
    return _shown("page", locator.key, locator.key, {}, {"Content": parts.storage.read(locator).strip()})


def _told_document(parts: Parts, place: Place) -> dict[str, Any]:
    note = parts.notebook.read(place.locator)
    head = {str(key): value for key, value in note.frontmatter.items()}
    inline, body = json.loads(json.dumps(head, default=str)), note.body.strip()
    kind, name = place.kind.name, place.scope.public_id(place.name or place.kind.name)
    return _shown(kind, name, place.locator.key, inline, {"Content": body}, scope=place.scope, source=body)


# ---------------------------------------------------------------- what was said


def messages_of(parts: Parts, scope: Scope, entry: Entry) -> list[Message]:
    """The verbatim messages an entry was made from; none where its session is unknown."""
    session_id = entry.inline.get("session_id")
    if not session_id:
        return []
    try:
        log = parts.sessions.load(session_locator(scope.space, session_id))
    except CairnError:
        return []
    wanted = set(list_items(entry.inline.get("message_ids", "")))
    if wanted:
        return [message for message in log.messages if message.id in wanted]
    parent = entry.inline.get("parent_id", "")
    if entry.inline.get("parent_type") == "episode":
        try:
            _, episode = parts.notebook.find(scope, parent)
            parent = episode.inline.get("parent_id", "")
        except CairnError:
            return []
    return [message for cell in log.cells if cell.cell_id == parent for message in log.messages_of(cell)]


def _message(parts: Parts, space: Space, wanted: str, ordinal: int) -> dict[str, Any] | None:
    for _, session_id in parts.capture.sessions(space):
        if message_id(session_id, ordinal) == wanted:
            state = _session(parts, space, session_id)
            said = state.by_ordinal.get(ordinal)
            return _told_talk(parts, state, wanted, "message", [said]) if said is not None else None
    return None


def _cell(parts: Parts, space: Space, wanted: str) -> dict[str, Any] | None:
    for _, session_id in parts.capture.sessions(space):
        state = _session(parts, space, session_id)
        for cell in state.cells:
            if cell.cell_id == wanted:
                return _told_talk(parts, state, wanted, "cell", state.messages_of(cell))
    return None


def _session(parts: Parts, space: Space, session_id: str) -> SessionState:
    return parts.sessions.load(session_locator(space, session_id))


def _told_talk(
    parts: Parts, state: SessionState, wanted: str, kind: str, said: Sequence[Message]
) -> dict[str, Any]:
    path, inline = session_locator(state.space, state.session_id).key, {"session_id": state.session_id}
    return _shown(kind, wanted, path, inline, {}, [_said(message, parts) for message in said])


def _said(message: Message, parts: Parts) -> dict[str, Any]:
    at = datetime.fromtimestamp(message.timestamp / 1000, UTC).astimezone(parts.settings.zone)
    return {
        "id": message.id,
        "timestamp": at.isoformat(),
        "sender_id": message.sender_id,
        "sender_name": message.sender_name,
        "role": message.role,
        "text": message.text,
    }


# ---------------------------------------------------------------- another text in its place


def source_of(text: str, entry: Entry) -> str:
    """What stands between the markers of an entry, below its heading."""
    block = text[entry.start : entry.end].replace("\r\n", "\n")
    lines = block.strip("\n").split("\n")[1:-1]
    if lines and lines[0].strip() == f"## {entry.id}":
        lines = lines[1:]
    return "\n".join(lines).strip("\n")


def version_of(source: str) -> str:
    """What `revise` compares: a hash of the text somebody read."""
    return content_hash(source)[:16]


def revise(parts: Parts, shown: Mapping[str, Any], source: str, expect: str) -> None:
    """Write `source` where `shown` stands, under the note's lock.

    Raises:
        Conflict: the file holds another version by now.
        Invalid: the text would not come back as one entry.
    """
    locator = Locator(shown["path"])
    name = shown["id"].removeprefix(f"{shown['owner']}_") if shown["owner"] else shown["id"]
    clean = source.replace("\r\n", "\n").strip("\n")

    def edit(text: str | None) -> str:
        note = parse_note(text or "")
        if not shown["line"]:
            old, start, end = note.body.strip(), note.head.body, len(note.text)
            new = f"{clean}\n"
        else:
            entry = note.entry(name)
            old, start, end = source_of(note.text, entry), entry.start, entry.end
            newline = "\r\n" if "\r\n" in note.text[start:end] else "\n"
            new = render_entry(entry.id, f"{clean}\n", newline)
            if not note.text[start:end].endswith("\n"):
                new = new.rstrip("\r\n")
        if version_of(old) != expect:
            raise Conflict(
                f"{shown['id']} was changed since you read it. Nothing was written.", id=shown["id"]
            )
        made = note.text[:start] + new + note.text[end:]
        _check_revised(note.text, made, name, whole=not shown["line"])
        return made

    parts.notebook.own.is_by_hand(locator.key)
    parts.notebook.rewrite(locator, edit)
    parts.observer.settle()


def _check_revised(before: str, after: str, name: str, *, whole: bool) -> None:
    """The note must read as before, with this one entry changed."""
    old, new = parse_note(before), parse_note(after)
    if {one.id for one in old.entries} != {one.id for one in new.entries} or new.damaged - old.damaged:
        raise Invalid(
            "The text holds a marker of an entry (<!-- entry: ... -->), which would tear the note apart. Take it out.",
            field="source",
        )
    if not whole and not any(new.entry(name).sections.values()) and not new.entry(name).inline:
        raise Invalid("Nothing of the text would be kept: write at least one sentence.", field="source")
