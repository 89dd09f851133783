"""What was said, verbatim: one append-only log per session, inbox and transcript in one file.

`<app>/<project>/sessions/<key>.jsonl` holds these sorts of lines:

    {"t": "add", "n": 0, "batch": "...", "at": "...", "messages": [...]}    one per add call: all of it or none
    {"t": "cut", "cell": "mc_...", "first": 0, "upto": 4, "day": "2023-05-08", "reason": "flush", ...}
    {"t": "done", "cell": "mc_..."}                                         the cell's episodes are on disk
    {"t": "corrected", "cell": "mc_...", "owner": ["user", "u1"], "messages": [{"n": 3, "content": "..."}]}
    {"t": "followed", "cell": "mc_...", "owner": ["user", "u1"]}            what was derived agrees with that

`n` is the ordinal of the line's first message. Where a caller limited to some owners began the session, its first
line names them in `"for": ["alice"]`, and no other user's words are taken in after it. A cell holds the messages `first <= ordinal < upto`. What lies
beyond the last cut is the un-extracted inbox. A message that was forgotten leaves `null` in its place, so that
ordinals, and with them message ids, never shift. What an owner corrected in the cell's episode stands in a line
of its own, whole each time: what was said stays, and what holds for that owner is known from this file alone.
Lines that do not parse are skipped and counted.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from cairn.errors import Conflict, InvalidLocatorError
from cairn.notes.kinds import space_locator, space_of
from cairn.seams import Journals, Locator
from cairn.talk.turns import Corrections, corrected
from cairn.types import ContentItem, Message, Space, ToolCall

SESSIONS = "sessions"
_SUFFIX = ".jsonl"
_SEGMENT_CHARS = 180
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyz0123456789_-.@+=")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com\d|lpt\d)(?:\.|$)")
_CODED = re.compile(r"[a-z0-9_.@+=%-]+")


@dataclass(frozen=True, slots=True)
class CellRecord:
    """A closed stretch of a session as its log records it; `done` once its episodes are on disk."""

    cell_id: str
    first: int
    upto: int
    day: str
    owners: tuple[tuple[str, str], ...] = ()
    reason: str = "flush"
    mode: str = "chat"
    at: str = ""
    done: bool = False


@dataclass(slots=True)
class CellCorrections:
    """What one owner corrected in a cell: `followed` is what derived notes agree with, `recorded` came after."""

    followed: Corrections = field(default_factory=dict)
    recorded: list[Corrections] = field(default_factory=list)

    @property
    def current(self) -> Corrections:
        return self.recorded[-1] if self.recorded else self.followed


@dataclass(slots=True)
class SessionState:
    """A session's log, read: every message kept so far, the cells, and what is still open.

    A state built with `keep_cut=False` drops the messages of cells that
    are done, so that a long session costs a writer no more memory than its open part. With `corrected_by`, what
    was corrected later than that is left out.
    """

    space: Space
    session_id: str
    keep_cut: bool = True
    by_ordinal: dict[int, Message] = field(default_factory=dict)
    cells: list[CellRecord] = field(default_factory=list)
    next_ordinal: int = 0
    cut_upto: int = 0
    batches: dict[str, int] = field(default_factory=dict)
    skipped_lines: int = 0
    offset: int = 0
    corrections: dict[tuple[str, str, str], CellCorrections] = field(default_factory=dict)
    corrected_lines: int = 0
    corrected_by: datetime | None = None

    @property
    def messages(self) -> list[Message]:
        """Every message held, in order."""
        return list(self.by_ordinal.values())

    @property
    def open_messages(self) -> list[Message]:
        """The messages after the last cut, in order."""
        return [
            m for n in range(self.cut_upto, self.next_ordinal) if (m := self.by_ordinal.get(n)) is not None
        ]

    @property
    def pending(self) -> list[CellRecord]:
        """Cells that were cut and whose episodes may not be on disk yet."""
        return [cell for cell in self.cells if not cell.done]

    def messages_of(self, cell: CellRecord) -> tuple[Message, ...]:
        """The messages of `cell`, in order; forgotten ones are left out."""
        return tuple(m for n in range(cell.first, cell.upto) if (m := self.by_ordinal.get(n)) is not None)

    def messages_for(self, cell: CellRecord, track: str, owner: str) -> tuple[Message, ...]:
        """The messages of `cell` as they hold for one owner: corrected where they corrected the episode."""
        mine = self.corrections.get((cell.cell_id, track, owner))
        said = self.messages_of(cell)
        return said if mine is None else corrected(said, mine.current)

    def feed(self, lines: Iterable[str]) -> None:
        """Take further lines of the log into account."""
        for line in lines:
            try:
                self._take(json.loads(line))
            except (ValueError, TypeError, KeyError, AttributeError):
                self.skipped_lines += 1

    def _take(self, line: Mapping[str, Any]) -> None:
        sort = line["t"]
        if sort == "add":
            first = max(int(line.get("n", 0)), self.next_ordinal)
            found = {
                n: message_from(raw, message_id(self.session_id, n))
                for n, raw in enumerate(line["messages"], first)
                if raw is not None
            }
            self.by_ordinal.update(found)
            self.next_ordinal = first + len(line["messages"])
            if batch := line.get("batch"):
                self.batches[str(batch)] = len(line["messages"])
        elif sort == "cut":
            self.cells.append(cell_from(line))
            self.cut_upto = max(self.cut_upto, int(line["upto"]))
        elif sort == "done":
            for at in range(len(self.cells) - 1, -1, -1):
                cell = self.cells[at]
                if cell.cell_id == line["cell"] and not cell.done:
                    self._finish(at)
                    return
        elif sort in {"corrected", "followed"}:
            track, owner = line["owner"]
            mine = self.corrections.setdefault((str(line["cell"]), str(track), str(owner)), CellCorrections())
            if sort == "followed":
                mine.followed, mine.recorded = mine.current, []
                return
            if self.corrected_by is not None and datetime.fromisoformat(line["at"]) > self.corrected_by:
                return
            self.corrected_lines += 1
            mine.recorded.append(
                {
                    message_id(self.session_id, int(item["n"])): None if text is None else str(text)
                    for item in line["messages"]
                    if item is not None
                    for text in (item["content"],)
                }
            )

    def _finish(self, at: int) -> None:
        cell = self.cells[at]
        self.cells[at] = CellRecord(
            cell.cell_id,
            cell.first,
            cell.upto,
            cell.day,
            cell.owners,
            cell.reason,
            cell.mode,
            cell.at,
            done=True,
        )
        if not self.keep_cut:
            for n in range(cell.first, cell.upto):
                self.by_ordinal.pop(n, None)


class SessionLog:
    """Reads session logs through the journals."""

    def __init__(self, journals: Journals) -> None:
        self._journals = journals

    def load(self, locator: Locator, *, corrected_by: datetime | None = None) -> SessionState:
        """The whole session at `locator`, with what was corrected by a time (all of it, without one). Raises `InvalidLocatorError` if no session can live there."""
        place = place_of_session(locator)
        if place is None:
            raise InvalidLocatorError(f"{locator} is not the log of a session.", key=locator.key)
        state = SessionState(*place, corrected_by=corrected_by)
        self.catch_up(locator, state)
        return state

    def catch_up(self, locator: Locator, state: SessionState) -> None:
        """Read what was appended to `locator` since `state` last looked."""
        try:
            tail = self._journals.read(locator, state.offset)
        except Conflict:
            # The log was rewritten (something was forgotten): what was read of it no longer stands.
            state.__init__(  # type: ignore[misc]
                state.space, state.session_id, state.keep_cut, corrected_by=state.corrected_by
            )
            tail = self._journals.read(locator, 0)
        state.feed(tail.lines)
        state.offset = tail.end


@functools.lru_cache(maxsize=4096)
def session_locator(space: Space, session_id: str) -> Locator:
    """Where the log of a session lives: one file per id, whatever the id holds.

    Capital letters and anything a file name could not carry everywhere are written as %xx, so ids that differ
    only in case stay apart on every disk; a name too long for one segment goes on in a folder ending in "%".
    """
    coded = "".join(chr(b) if b in _PLAIN else f"%{b:02x}" for b in session_id.encode("utf-8"))
    if coded[0] == "." or _DEVICE.match(coded):
        coded = f"%{ord(coded[0]):02x}{coded[1:]}"
    parts = []
    while len(coded) > _SEGMENT_CHARS:
        # A folder's name must not end inside an escape, nor the next segment start with a dot.
        end = _SEGMENT_CHARS - next((n for n in (1, 2) if coded[_SEGMENT_CHARS - n] == "%"), 0)
        while coded[end] == ".":
            end -= 1
        parts.append(coded[:end] + "%")
        coded = coded[end:]
    return sessions_of(space).child(*parts, coded + _SUFFIX)


def sessions_of(space: Space) -> Locator:
    """The folder that holds the session logs of a space."""
    return space_locator(space).child(SESSIONS)


def place_of_session(locator: Locator) -> tuple[Space, str] | None:
    """The space and session id whose log lives at `locator`; None where no session's log can be."""
    parts = locator.parts
    if len(parts) < 4 or parts[2] != SESSIONS or not parts[-1].endswith(_SUFFIX):
        return None
    folders, name = parts[3:-1], parts[-1].removesuffix(_SUFFIX)
    if not all(folder.endswith("%") for folder in folders):
        return None
    coded = "".join(folder[:-1] for folder in folders) + name
    if not _CODED.fullmatch(coded):
        return None
    try:
        raw = re.sub(rb"%([0-9a-f]{2})", lambda m: bytes([int(m[1], 16)]), coded.encode("ascii"))
        space = space_of(locator)
        session_id = raw.decode("utf-8")
        if space is None or session_locator(space, session_id) != locator:
            return None
    except (ValueError, IndexError):
        return None
    return space, session_id


def message_id(session_id: str, ordinal: int) -> str:
    """The id of the message at `ordinal`: stable, and unique within a space."""
    return f"m_{_session_hash(session_id)}_{ordinal:06d}"


def cell_id(space: Space, session_id: str, first: int, upto: int) -> str:
    """The id of the cell of these ordinals: the same whenever it is computed."""
    named = "\0".join((space.app, space.project, session_id, str(first), str(upto)))
    return "mc_" + hashlib.sha256(named.encode("utf-8")).hexdigest()[:12]


@functools.lru_cache(maxsize=4096)
def _session_hash(session_id: str) -> str:
    return hashlib.sha256(session_id.encode("utf-8")).hexdigest()[:16]


def corrected_line(cell: str, track: str, owner: str, corrections: Corrections, at: str) -> str:
    """The line that records what `owner` corrected in a cell, all of it; none takes everything back."""
    items = [{"n": ordinal_of(one), "content": text} for one, text in corrections.items()]
    line = {"t": "corrected", "cell": cell, "owner": [track, owner], "messages": items, "at": at}
    return json.dumps(line, ensure_ascii=False, separators=(",", ":"))


def followed_line(cell: str, track: str, owner: str) -> str:
    """The line that says that what was derived from a cell agrees with the corrections before it."""
    return json.dumps({"t": "followed", "cell": cell, "owner": [track, owner]}, separators=(",", ":"))


def ordinal_of(message: str) -> int:
    """The place in its session of the message with this id."""
    return int(message.rpartition("_")[2])


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
    return raw


def message_from(raw: Mapping[str, Any], identity: str) -> Message:
    """The message a log line holds."""
    content = raw["content"]
    return Message(
        raw["sender_id"],
        raw["role"],
        raw["timestamp"],
        content if isinstance(content, str) else tuple(ContentItem(**item) for item in content),
        raw.get("sender_name"),
        tuple(
            ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"], c.get("type", "function"))
            for c in raw.get("tool_calls") or ()
        ),
        raw.get("tool_call_id"),
        identity,
    )


def _item_to(item: ContentItem) -> dict[str, Any]:
    named = ("type", "text", "uri", "base64", "ext", "name", "extras")
    return {key: value for key in named if (value := getattr(item, key)) is not None}


def cell_from(line: Mapping[str, Any]) -> CellRecord:
    """The cell a cut line records."""
    owners: Sequence[Sequence[str]] = line.get("owners") or ()
    return CellRecord(
        str(line["cell"]),
        int(line.get("first", 0)),
        int(line["upto"]),
        str(line["day"]),
        tuple((str(o[0]), str(o[1])) for o in owners),
        str(line.get("reason", "flush")),
        str(line.get("mode", "chat")),
        str(line.get("at", "")),
    )
