"""The lines of a session's log as values: each is read strictly and alone, so a bad one costs only itself.

    {"t": "add", "n": 0, "batch": "...", "at": "...", "messages": [...]}    Added
    {"t": "cut", "cell": "mc_...", "first": 0, "upto": 4, ...}              Closed
    {"t": "told", "cell": "mc_...", "owners": [["user", "u1"]]}             ToldTo
    {"t": "done", "cell": "mc_..."}                                         Finished
    {"t": "corrected", "cell": "mc_...", "owner": ["user", "u1"], ...}      Corrected
    {"t": "followed", "cell": "mc_...", "owner": ["user", "u1"]}            Followed
    {"t": "again", "cell": "mc_..."}                                        Again
    {"t": "merged", "cell": "mc_...", "day": "...", "owners": [...]}        Merged

A log may be damaged or hostile. `read_line` takes a bounded time for any text and returns a value whose every
field has been checked, or raises `Invalid` with the trouble. Of an add line whose frame is sound, each message is
judged by itself: one that cannot be one leaves an empty place, and the others stand where they stood.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cairn.canonical import as_line, from_json
from cairn.errors import Invalid
from cairn.notes.format import checked_day
from cairn.talk.messages import MAX_MESSAGES, parse_message
from cairn.types import ContentItem, Message, Track, checked_id

MAX_LINE_CHARS = 64 * 1024 * 1024
MAX_ORDINAL = 2**31 - 1
"""The index keeps a message's place in its session in 32 bits."""
_ITEM_FIELDS = ("type", "text", "uri", "base64", "ext", "name", "extras")
_CELL_ID = re.compile(r"[A-Za-z0-9_.-]{1,80}", re.ASCII)
_TRACKS = ("user", "agent")
_SILENT_OWNERS = 100  # more of a cell's owners than have said anything up to its end are not believed
_MAX_WORD_CHARS = 200

Owner = tuple[Track, str]
"""Whose an episode is: a user's or an agent's."""


@dataclass(frozen=True, slots=True)
class CellRecord:
    """A closed stretch of a session as its log records it; `done` once its episodes are on disk.

    `told` are the owners whose episode is known to be there although others still wait for theirs. With `again` its
    words are not those its episodes were made of: two machines had cut the same talk, and each word counts once.
    """

    cell_id: str
    first: int
    upto: int
    day: str
    owners: tuple[Owner, ...] = ()
    reason: str = "flush"
    mode: str = "chat"
    at: str = ""
    done: bool = False
    again: bool = False
    told: tuple[Owner, ...] = ()


@dataclass(frozen=True, slots=True)
class Added:
    """Messages of one add call. `first` is the place the line names for the first of them; None names none.

    `key` is the mark of an idempotency key (`hashed_key`). A message that was forgotten, or that cannot be read (then `troubles` says why), is None. `begun_for` are the
    owners whom the one who began the session was limited to. `part` counts the messages of the same call that stand in
    a line before this one. `said` has the messages as JSON, for an event that is about to be written.
    """

    first: int | None
    messages: tuple[Message | None, ...]
    batch: str = ""
    key: str | None = None
    mode: str | None = None
    at: str = ""
    begun_for: frozenset[str] | None = None
    part: int = 0
    troubles: tuple[str, ...] = ()
    said: str = field(default="", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class Closed:
    """A cell was cut; `by` is the batch whose messages brought the cut."""

    cell: CellRecord
    by: str | None = None


@dataclass(frozen=True, slots=True)
class ToldTo:
    """The episodes of some owners of a cell are on disk; others could not be written yet."""

    cell_id: str
    owners: tuple[Owner, ...]


@dataclass(frozen=True, slots=True)
class Finished:
    """The episodes of a cell are on disk."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class Corrected:
    """What an owner corrected in a cell, all of it, by the places of the messages; None for one taken out."""

    cell_id: str
    track: str
    owner: str
    texts: Mapping[int, str | None] = field(default_factory=dict)
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """What was derived from a cell agrees with what its owner had corrected so far."""

    cell_id: str
    track: str
    owner: str


@dataclass(frozen=True, slots=True)
class Again:
    """The messages of a cell changed when two logs were merged: its episodes are to be written again."""

    cell_id: str


@dataclass(frozen=True, slots=True)
class Merged:
    """The messages of a cell are all in other cells now: its episodes are removed."""

    cell: CellRecord


Event = Added | Closed | ToldTo | Finished | Corrected | Followed | Again | Merged


# ---------------------------------------------------------------- reading


def read_line(text: str) -> Event:
    """The event that one line of a log records. Raises `Invalid`, which says what is wrong with the line."""
    line = _parsed(text)
    sort = line.get("t")
    if sort == "add":
        return _added(line)
    if sort == "cut":
        return Closed(_cell(line), _word(line, "by", None))
    if sort == "told":
        return ToldTo(_cell_id(line), _owners(line))
    if sort == "done":
        return Finished(_cell_id(line))
    if sort == "corrected":
        return Corrected(_cell_id(line), *_owner(line.get("owner")), _texts(line), _moment(line.get("at")))
    if sort == "followed":
        return Followed(_cell_id(line), *_owner(line.get("owner")))
    if sort == "again":
        return Again(_cell_id(line))
    if sort == "merged":
        return Merged(CellRecord(_cell_id(line), 0, 0, _day(line), _owners(line)))
    raise Invalid('its "t" names no sort of line (add, cut, told, done, corrected, followed, again, merged)')


def people_in(lines: Iterable[str]) -> frozenset[str] | None:
    """Everyone whom these lines are by or about; None where one of them does not say.

    >>> sorted(people_in(['{"t": "told", "cell": "mc_1", "owners": [["user", "u1"], ["agent", "a"]]}']))
    ['a', 'u1']
    """
    found: set[str] = set()
    try:
        for line in map(from_json, lines):
            owner = line.get("owner")
            for _, name in (*line.get("owners", ()), *([owner] if owner else ())):
                found.add(name)
            for message in line.get("messages", ()) if line["t"] == "add" else ():
                if message is not None:
                    found.add(message["sender_id"])
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    return frozenset(found) if all(isinstance(one, str) and "\0" not in one for one in found) else None


def _parsed(text: str) -> Mapping[str, Any]:
    if len(text) > MAX_LINE_CHARS:
        raise Invalid(f"it has {len(text)} characters, more than the {MAX_LINE_CHARS} a line may have")
    try:
        line = from_json(text, strict=True)
    except ValueError as error:
        raise Invalid(f"it is not JSON: {str(error)[:_MAX_WORD_CHARS]}") from None
    if not isinstance(line, dict):
        raise Invalid("it is not a JSON object")
    return line


def _added(line: Mapping[str, Any]) -> Added:
    raws = line.get("messages")
    if not isinstance(raws, list):
        raise Invalid("its messages are not a list")
    if len(raws) > MAX_MESSAGES:
        raise Invalid(f"it holds {len(raws)} messages, more than the {MAX_MESSAGES} of one call")
    messages: list[Message | None] = []
    troubles = []
    for n, raw in enumerate(raws):
        try:
            messages.append(
                None if raw is None else parse_message(raw, f"messages[{n}]", earliest=1, others=True)
            )
        except Invalid as error:
            messages.append(None)
            troubles.append(error.message)
    if troubles and not any(messages):
        raise Invalid(troubles[0])
    return Added(
        _place(line, "n") if "n" in line else None,
        tuple(messages),
        _word(line, "batch", ""),
        _word(line, "key_hash", None),
        _word(line, "mode", None),
        _word(line, "at", ""),
        _begun_for(line.get("for")),
        _place(line, "from") if "from" in line else 0,
        tuple(troubles),
    )


def hashed_key(key: str) -> str:
    """What a log holds of an idempotency key: enough to know it again, and nothing of its words."""
    return "key:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _begun_for(value: Any) -> frozenset[str] | None:
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(owner, str) for owner in value):
        raise Invalid('its "for" is not a list of owners')
    return frozenset(value)


def _place(line: Mapping[str, Any], name: str) -> int:
    value = line.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value <= MAX_ORDINAL:
        raise Invalid(f'its "{name}" is no place in a session (a whole number from 0 to {MAX_ORDINAL})')
    return value


def _word(line: Mapping[str, Any], name: str, default: Any) -> Any:
    value = line.get(name, default)
    if value is default or value is None:
        return default
    if not isinstance(value, str) or len(value) > _MAX_WORD_CHARS or not value.isprintable():
        raise Invalid(f'its "{name}" is not a short text')
    return value


def _cell_id(line: Mapping[str, Any]) -> str:
    value = line.get("cell")
    if not isinstance(value, str) or not _CELL_ID.fullmatch(value):
        raise Invalid('its "cell" is not the id of a cell')
    return value


def _owner(value: Any) -> Owner:
    if not isinstance(value, list) or len(value) != 2 or value[0] not in _TRACKS:
        raise Invalid("it names an owner that is no user and no agent")
    return value[0], checked_id(value[1], "its owner")


def _owners(line: Mapping[str, Any]) -> tuple[Owner, ...]:
    owners = line.get("owners") or []
    if not isinstance(owners, list):
        raise Invalid("its owners are not a list")
    return tuple(_owner(owner) for owner in owners)


def _cell(line: Mapping[str, Any]) -> CellRecord:
    first = _place(line, "first") if "first" in line else 0
    upto = _place(line, "upto")
    if upto <= first:
        raise Invalid(f"it closes a cell that ends ({upto}) before it begins ({first})")
    owners = _owners(line)
    if len(owners) > upto + _SILENT_OWNERS:
        raise Invalid(
            f"it names {len(owners)} owners of a cell that ends at {upto}: each of them has an episode to write"
        )
    return CellRecord(
        _cell_id(line),
        first,
        upto,
        _day(line),
        owners,
        _word(line, "reason", "flush"),
        _word(line, "mode", "chat"),
        _word(line, "at", ""),
    )


def _day(line: Mapping[str, Any]) -> str:
    day = line.get("day")
    if not isinstance(day, str):
        raise Invalid('its "day" is not a day (YYYY-MM-DD)')
    return checked_day(day)


def _texts(line: Mapping[str, Any]) -> dict[int, str | None]:
    items = line.get("messages")
    if not isinstance(items, list):
        raise Invalid("its messages are not a list")
    texts: dict[int, str | None] = {}
    for item in items:
        if item is None:
            continue
        if not isinstance(item, dict) or "content" not in item:
            raise Invalid("it corrects something that is no message")
        text = item["content"]
        if text is not None and not _is_text(text):
            raise Invalid("what it corrects a message to is not a text")
        texts[_place(item, "n")] = text
    return texts


def _moment(value: Any) -> datetime | None:
    if value is None:
        return None
    try:
        moment = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Invalid('its "at" is no time') from None
    if moment.tzinfo is None:
        raise Invalid('its "at" has no time zone')
    return moment


def _is_text(value: Any) -> bool:
    if not isinstance(value, str) or "\0" in value:
        return False
    try:
        value.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


# ---------------------------------------------------------------- writing


def message_to(message: Message) -> dict[str, Any]:
    """`message` as the JSON value a log line holds; its id is its place and is not written."""
    raw: dict[str, Any] = {
        "sender_id": message.sender_id,
        "role": message.role,
        "timestamp": message.timestamp,
    }
    if message.sender_name is not None:
        raw["sender_name"] = message.sender_name
    raw["content"] = (
        message.content if isinstance(message.content, str) else [_item_to(item) for item in message.content]
    )
    if message.tool_calls:
        raw["tool_calls"] = [
            {"id": c.id, "type": c.type, "function": {"name": c.name, "arguments": c.arguments}}
            for c in message.tool_calls
        ]
    if message.tool_call_id is not None:
        raw["tool_call_id"] = message.tool_call_id
    if message.tags:
        raw["tags"] = list(message.tags)
    if message.metadata:
        raw["metadata"] = dict(message.metadata)
    return raw


def _item_to(item: ContentItem) -> dict[str, Any]:
    return {key: value for key in _ITEM_FIELDS if (value := getattr(item, key)) is not None}


def said_json(messages: Sequence[Message]) -> str:
    """The messages of an add line as JSON: also what a repeat of the same call is known by."""
    return as_line([message_to(message) for message in messages])


def line_of(event: Added | Closed | ToldTo | Finished | Followed) -> str:
    """The line of an event; an add call brings its messages as JSON (`said`)."""
    if isinstance(event, Added):
        head: dict[str, Any] = {"t": "add", "n": event.first, "batch": event.batch, "at": event.at}
        begun_for = sorted(event.begun_for) if event.begun_for is not None else None
        more = (("key_hash", event.key), ("mode", event.mode), ("for", begun_for))
        head |= {name: value for name, value in more if value is not None}
        return f'{as_line(head)[:-1]},"messages":{event.said}}}'
    if isinstance(event, Closed):
        cell = event.cell
        line: dict[str, Any] = {"t": "cut", "cell": cell.cell_id, "first": cell.first, "upto": cell.upto}
        line |= {"day": cell.day, "reason": cell.reason, "owners": cell.owners, "mode": cell.mode}
        line |= {"by": event.by} if event.by else {}
        return as_line({**line, "at": cell.at})
    if isinstance(event, ToldTo):
        return as_line({"t": "told", "cell": event.cell_id, "owners": event.owners})
    if isinstance(event, Finished):
        return as_line({"t": "done", "cell": event.cell_id})
    return as_line({"t": "followed", "cell": event.cell_id, "owner": [event.track, event.owner]})


def corrected_line(cell: str, track: str, owner: str, texts: Mapping[int, str | None], at: str) -> str:
    """The line that records what `owner` corrected in a cell, all of it; none takes everything back."""
    items = [{"n": ordinal, "content": text} for ordinal, text in texts.items()]
    return as_line({"t": "corrected", "cell": cell, "owner": [track, owner], "messages": items, "at": at})
