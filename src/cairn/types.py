"""The values of the domain, frozen: parsed once at the edge, then passed around."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from datetime import datetime
from functools import lru_cache
from typing import Any, Literal

from cairn.errors import Invalid

Role = Literal["user", "assistant", "tool"]
Track = Literal["user", "agent", "project", "mission", "knowledge"]

_SAFE_ID = re.compile(r"[A-Za-z0-9_.@+-]{1,128}", re.ASCII)
_TOO_LONG = 129  # letters of a refused id that are looked at, and kept: one more than an id may have
_RESERVED_IDS = frozenset({"default_app", "default_project"})
_DEVICE_NAMES = frozenset(
    {"con", "prn", "aux", "nul", *(f"com{n}" for n in range(1, 10)), *(f"lpt{n}" for n in range(1, 10))}
)


def is_device_name(name: str) -> bool:
    """Whether Windows takes a file name for a device, whatever its ending (`con`, `NUL.md`)."""
    return name.partition(".")[0].strip(" ").lower() in _DEVICE_NAMES


def checked_id(value: object, what: str) -> str:
    """Return `value` if it may name an app, project, user, agent or run; say what is wrong otherwise.

    1 to 128 characters of `A-Z a-z 0-9 _ . @ + -`. `.`, `..`, names that start or end with a dot,
    Windows device names and the directory names Cairn keeps for the id "default" are refused.
    """
    if not isinstance(value, str):
        raise Invalid(f"{what} must be a string, not {type(value).__name__}.", field=what)
    if trouble := _trouble_of(value[:_TOO_LONG]):
        raise Invalid(f'{what} "{_shown(value)}" {trouble}', field=what)
    return value


@functools.lru_cache(maxsize=4096)
def _trouble_of(value: str) -> str:
    """Why a text cannot be an id, "" where it can: each call names the same few."""
    if not _SAFE_ID.fullmatch(value):
        return "is not a usable id: use 1 to 128 of the characters A-Z a-z 0-9 _ . @ + -."
    if value.startswith(".") or value.endswith(".") or is_device_name(value):
        return "cannot be a folder name everywhere: choose one without a dot at its ends that is not a device name."
    if value.lower() in _RESERVED_IDS:
        return 'is reserved: it is the folder of the id "default".'
    return ""


def _shown(value: str) -> str:
    """The beginning of a refused id as a message may show it: letters as they are, signs that nobody sees written out."""
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in value[:60]
    )


def checked_session_id(value: object) -> str:
    """Return `value` if it may name a session: 1 to 128 printable characters that do not play path tricks."""
    if not isinstance(value, str) or not 1 <= len(value) <= 128:
        raise Invalid("session_id must be a string of 1 to 128 characters.", field="session_id")
    if not value.isprintable() or value != value.strip():
        raise Invalid(
            f'session_id "{_shown(value)}" holds control characters or outer blanks: remove them.',
            field="session_id",
        )
    if "\\" in value or value.startswith(("/", "~")) or any(p in {".", ".."} for p in value.split("/")):
        raise Invalid(
            f'session_id "{_shown(value)}" looks like a path out of the root: use a plain name.',
            field="session_id",
        )
    return value


@dataclass(frozen=True, slots=True, order=True)
class Space:
    """One (app, project) partition. Two spaces never share a directory and never meet in a search."""

    app: str = "default"
    project: str = "default"

    def __post_init__(self) -> None:
        checked_id(self.app, "app_id")
        checked_id(self.project, "project_id")

    def __str__(self) -> str:
        return f"{self.app}/{self.project}"


@dataclass(frozen=True, slots=True, order=True)
class Scope:
    """Whose a memory is: a user, an agent, one mission (run), or the project as a whole (owner "").

    Documents are the project's, too, in a scope of their own: "knowledge".
    """

    space: Space
    track: Track
    owner: str

    def __post_init__(self) -> None:
        if self.track in {"project", "knowledge"}:
            if self.owner:
                raise Invalid(f"The {self.track} scope has no owner: leave the owner empty.", field="owner")
        elif self.track in {"user", "agent", "mission"}:
            checked_id(self.owner, {"user": "user_id", "agent": "agent_id"}.get(self.track, "run_id"))
        else:
            raise Invalid(f'"{self.track}" is not a scope (user, agent, mission, project).', field="scope")

    def public_id(self, entry_id: str) -> str:
        """The id that surfaces show: owner and entry id joined, unique inside a space and kind."""
        return f"{self.owner}_{entry_id}" if self.owner else entry_id


def split_public_id(text: str) -> tuple[str, str]:
    """The owner ("" where none is named) and the entry id in a public id.

    >>> split_public_id("ann_lee_ep_20260501_00000001")
    ('ann_lee', 'ep_20260501_00000001')
    """
    parts = text.rsplit("_", 3)
    return (parts[0], "_".join(parts[1:])) if len(parts) == 4 else ("", text)


@dataclass(frozen=True, slots=True)
class ContentItem:
    """One part of a message that is not plain text alone."""

    type: Literal["text", "image", "audio", "doc", "pdf", "html", "email"]
    text: str | None = None
    uri: str | None = None
    base64: str | None = None
    ext: str | None = None
    name: str | None = None
    extras: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool the assistant asked for; `arguments` is the JSON text as it was sent."""

    id: str
    name: str
    arguments: str
    type: str = "function"


@dataclass(frozen=True, slots=True)
class Message:
    """What was said. `timestamp` is epoch milliseconds; `id` is given by the inbox ("" before that).

    `tags` and `metadata` are the caller's own: kept as they came, and what filters look into (`cairn.talk.messages`).
    """

    sender_id: str
    role: Role
    timestamp: int
    content: str | tuple[ContentItem, ...]
    sender_name: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    id: str = ""
    tags: tuple[str, ...] = ()
    metadata: Mapping[str, Any] | None = None

    @property
    def text(self) -> str:
        """The readable words of the message."""
        if isinstance(self.content, str):
            return self.content
        parts = []
        for item in self.content:
            if item.text:
                parts.append(item.text if item.type == "text" else f"[{item.type}: {item.text}]")
            elif item.type != "text":
                parts.append(f"[{item.type}: {item.name or item.uri or item.ext or 'no name'}]")
        return "\n".join(parts)

    @property
    def speaker(self) -> str:
        """The name to show: the sender's name, or the id where there is none."""
        return self.sender_name or self.sender_id


@dataclass(frozen=True, slots=True)
class Cell:
    """A closed stretch of messages of one session; `day` is its date bucket, decided once (YYYY-MM-DD)."""

    id: str
    space: Space
    session_id: str
    messages: tuple[Message, ...]
    day: str
    reason: str = "flush"


@dataclass(frozen=True, slots=True)
class CellEvent:
    """A cell was cut and its episodes are on disk: what capture tells the strategies.

    `episodes` names the episode written for each user scope (none for a cell without a user); `agents` are
    the agent ids that spoke in it; `mode` is the capture mode ("chat" or "agent"). It names and carries no
    text: the words are read from the session log, so an event can be rebuilt after a crash.
    """

    cell_id: str
    space: Space
    session_id: str
    day: str
    episodes: tuple[tuple[Scope, str], ...] = ()
    agents: tuple[str, ...] = ()
    mode: str = "chat"


@dataclass(frozen=True, slots=True)
class Problem:
    """Something wrong in a note that a person should see; what still parses stays usable."""

    code: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Entry:
    """One remembered thing inside a note.

    `inline` are the `**key**: value` lines in file order, `sections` the `### Title` parts with the
    escaping undone. Lists are text of the form `[a, b]`. `start`/`end` are character offsets of the block
    (markers included) in the note it was parsed from; `line` is the 1-based line of the opening marker.
    """

    id: str
    inline: Mapping[str, str] = field(default_factory=dict)
    sections: Mapping[str, str] = field(default_factory=dict)
    start: int = 0
    end: int = 0
    line: int = 0


@dataclass(frozen=True, slots=True)
class Change:
    """A note differs from what the index saw."""

    path: str
    kind: str
    change_type: Literal["added", "modified", "deleted"]
    lsn: int
    retry_count: int = 0


@dataclass(frozen=True, slots=True)
class Freshness:
    """How far the index is behind the files.

    state: "fresh" (all changes seen), "behind" (`pending` changes, or rows without their vector, wait),
    "rebuilding" (the index is being made anew; answers come from a scan of the notes).
    """

    lsn: int
    pending: int
    state: Literal["fresh", "behind", "rebuilding"]
    notes: tuple[str, ...] = ()
    generation: str = ""  # which index this was said of; another one means that it was made anew since


@dataclass(frozen=True, slots=True)
class Hit:
    """An entry that answers a query.

    `text` is what it says as a whole; `fields` has what its note says, as texts by name: `Subject`, `Summary` and `Content` of an
    episode, `Fact` of a fact, and what stands above these there.
    """

    kind: str
    scope: Scope
    entry_id: str
    path: str
    score: float
    timestamp: datetime | None
    session_id: str | None = None
    text: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    message_ids: Sequence[str] = ()
    facts: Sequence[Hit] = ()
    explain: Mapping[str, float] | None = None

    @property
    def id(self) -> str:
        """The public id: owner and entry id joined, unique inside a space and kind."""
        return self.scope.public_id(self.entry_id)


@dataclass(frozen=True, slots=True)
class Evidence:
    """A verbatim message that supports an answer, or the passage of a long one that does.

    `passage` says which characters of the message `text` is, and of how many: (start, end, of). All of it is had by
    `show` with the message's id. `unflushed` says that it is in no episode yet: its session is still open. `earlier` is
    the fact it states that a later one has ended.
    """

    session_id: str
    message_id: str
    timestamp: datetime
    sender_id: str
    sender_name: str | None
    text: str
    score: float
    entry_ids: Sequence[str] = ()
    tags: Sequence[str] = ()
    metadata: Mapping[str, Any] | None = None
    passage: tuple[int, int, int] | None = None
    explain: Mapping[str, float] | None = None
    unflushed: bool = False
    earlier: Hit | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The gate's answer to a write: kept, merged or refused, and why."""

    accepted: bool
    memory: Mapping[str, Any] | None = None
    reason: str | None = None
    deduped: bool = False
    merged_into_id: str | None = None
    detail: str | None = None
    lsn: int | None = None
    contradicts: tuple[str, ...] = ()

    @property
    def memory_id(self) -> str | None:
        """The memory that says it now: the new one, or the one it was merged into; None where it was refused."""
        return str(self.memory["id"]) if self.accepted and self.memory is not None else None


@dataclass(frozen=True, slots=True)
class StrategyAsk:
    """One input for one strategy. `input` names what is consumed and makes a second run a no-op."""

    strategy: str
    input: str
    scope: Scope
    cell_id: str = ""
    session_id: str = ""
    day: str = ""
    entry_id: str = ""

    def payload(self) -> dict[str, str]:
        """The ask as JSON values, for the queue."""
        space = self.scope.space
        return {
            "app": space.app,
            "project": space.project,
            "track": self.scope.track,
            "owner": self.scope.owner,
            "cell": self.cell_id,
            "session": self.session_id,
            "day": self.day,
            "entry": self.entry_id,
        }

    @classmethod
    def of(cls, strategy: str, input: str, payload: Mapping[str, Any]) -> StrategyAsk:
        """The ask that `payload` was made from."""
        space = Space(str(payload["app"]), str(payload["project"]))
        return cls(
            strategy,
            input,
            Scope(space, payload["track"], str(payload["owner"])),
            str(payload.get("cell", "")),
            str(payload.get("session", "")),
            str(payload.get("day", "")),
            str(payload.get("entry", "")),
        )


@dataclass(frozen=True, slots=True)
class Job:
    """An ask that is being worked on; `attempt` counts from 1."""

    id: int
    ask: StrategyAsk
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class JobRun:
    """A run record. Times are epoch seconds; `status` is one of held, pending, running, done, skipped, dead."""

    id: int
    strategy: str
    input: str
    status: str
    attempts: int
    due_at: float
    enqueued_at: float
    started_at: float | None
    finished_at: float | None
    reason: str
    outputs: tuple[str, ...]
    ask: StrategyAsk


@dataclass(frozen=True, slots=True)
class Queued:
    """An ask on its way into the queue: what it is counted under, whether a gate holds it, when it is due.

    A due time in the future means "when things are quiet": it moves the waiting jobs of the same key along.
    """

    ask: StrategyAsk
    key: str
    held: bool
    due_at: float


# ---------------------------------------------------------------- all the texts of a value


_TEXTLESS = frozenset({type(None), bool, int, float})


@lru_cache(maxsize=256)
def _field_names(kind: type) -> tuple[str, ...] | None:
    """The fields of a dataclass; None of any other type."""
    return tuple(one.name for one in fields(kind)) if is_dataclass(kind) else None


def with_texts(value: Any, through: Callable[[str], str], *, skip: Iterable[str] = ()) -> Any:
    """`value` with every string in it taken through `through`: in mappings (their keys, too), sequences and
    dataclasses, however deep. What has none to change is returned as it is.

    Args:
        value: A message, a record, a line of a journal: anything made of plain values.
        through: What becomes of a string; it may raise to refuse it.
        skip: Fields of the outermost value that are left alone.
    """
    kind: type = type(value)
    if kind is str or isinstance(value, str):
        return through(value)
    if kind in _TEXTLESS:
        return value
    left = frozenset(skip)
    if (names := _field_names(kind)) is not None:
        changed = {}
        for name in names:
            # An empty field is the most common one: no text is in it.
            if (item := getattr(value, name)) and name not in left:
                made = with_texts(item, through)
                if made is not item:
                    changed[name] = made
        return replace(value, **changed) if changed else value
    if isinstance(value, Mapping):
        made = {
            with_texts(key, through): item if key in left else with_texts(item, through)
            for key, item in value.items()
        }
        same = made.keys() == value.keys() and all(made[key] is value[key] for key in value)
        return value if same else made
    if isinstance(value, list | tuple):
        items = [with_texts(item, through) for item in value]
        same = all(a is b for a, b in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return value
