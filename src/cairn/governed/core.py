"""Core memory: one small document per project and per agent; and who the agents are.

The truth is a Markdown page a person can edit (`shared/core.md`, `agents/<id>/core.md`); `core-memory.json`
beside the generated pages carries the same five fields for programs. The version only grows. `reconcile` lets
the newer of the two win and writes both, so a client that edits the JSON and a person who edits the page are
both heard.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any

from cairn.canonical import from_json, moment, pretty, text_hash
from cairn.errors import Invalid, NotFound
from cairn.governed.memories import Keeper, check_text
from cairn.governed.records import stamp
from cairn.notes import frontmatter
from cairn.notes.format import below_headings
from cairn.notes.kinds import KINDS
from cairn.seams import Locator
from cairn.types import Scope, Space, checked_id

KIND = "core"
_TITLES = {
    "projectSummary": "Project summary",
    "criticalConventions": "Critical conventions",
    "userPreferences": "User preferences",
    "activeFocus": "Active focus",
    "notes": "Notes",
}
LISTS = ("criticalConventions", "userPreferences", "activeFocus", "notes")
_HEADING = re.compile(r"^## (.+?)\s*$", re.MULTILINE)
_GUARD = re.compile(r"^(?=\\*#)", re.MULTILINE)
_GUARDED = re.compile(r"^\\(?=\\*#)", re.MULTILINE)
MAX_CHARACTERS = 32_768


@dataclass(frozen=True, slots=True)
class CoreMemory:
    """The document (A38). `version` 0 means that none was written yet."""

    projectSummary: str = ""
    criticalConventions: tuple[str, ...] = ()
    userPreferences: tuple[str, ...] = ()
    activeFocus: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    version: int = 0
    updatedAt: str = ""

    def payload(self) -> dict[str, Any]:
        """What stands in `core-memory.json` and in the table."""
        return {
            key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()
        }

    @property
    def mark(self) -> str:
        """A hash of what it says, without version and time."""
        said = {key: value for key, value in self.payload().items() if key not in {"version", "updatedAt"}}
        return text_hash(json.dumps(said, sort_keys=True))[:16]


def core_scope(space: Space, agent: str = "") -> Scope:
    """The scope whose core memory is meant: the project's, or an agent's."""
    return Scope(space, "agent", agent) if agent else Scope(space, "project", "")


def json_locator(keeper: Keeper, scope: Scope) -> Locator:
    return keeper.root.scope(scope).child("pages", "core-memory.json")


def show(keeper: Keeper, scope: Scope) -> CoreMemory:
    """The core memory as it is once page and JSON are settled; an empty one where there is none. Nothing is written."""
    return _settled(keeper, scope)[0]


def page_of(keeper: Keeper, scope: Scope) -> CoreMemory:
    """The core memory as the page says it, whatever the JSON holds."""
    return _read_page(keeper, scope)[0]


def update(keeper: Keeper, scope: Scope, **fields: Any) -> CoreMemory:
    """Set some of the five fields, raise the version, and write page and JSON.

    Raises:
        Invalid: an unknown field, or a value of another type. Nothing was written.
    """
    clean = {name: _checked(keeper, name, value) for name, value in fields.items()}
    with keeper.locks.hold(f"core {keeper.root.scope(scope).key}"):
        current = _reconciled(keeper, scope)
        fresh = replace(current, **clean, version=current.version + 1, updatedAt=stamp(keeper.clock.now()))
        if fresh.mark == current.mark and current.version:
            return current
        _write(keeper, scope, fresh)
        return fresh


def reconcile(keeper: Keeper, scope: Scope) -> CoreMemory:
    """Let the newer of page and JSON win and write both (A40, A97).

    A page edited by hand counts as newer than the version it carries. Otherwise the higher version wins, then
    the later `updatedAt`, and on a tie the JSON file.
    """
    with keeper.locks.hold(f"core {keeper.root.scope(scope).key}"):
        return _reconciled(keeper, scope)


def reconcile_all(keeper: Keeper, space: Space) -> dict[str, CoreMemory]:
    """Reconcile the project's core memory and every agent's; by agent id, "" for the project."""
    out = {"": reconcile(keeper, core_scope(space))}
    for scope in keeper.root.scopes(space, "agent"):
        if any(map(keeper.storage.exists, (keeper.root.note(KIND, scope), json_locator(keeper, scope)))):
            out[scope.owner] = reconcile(keeper, scope)
    return out


def _reconciled(keeper: Keeper, scope: Scope) -> CoreMemory:
    chosen, is_new = _settled(keeper, scope)
    if is_new:
        _write(keeper, scope, chosen)
    return chosen


def _settled(keeper: Keeper, scope: Scope) -> tuple[CoreMemory, bool]:
    """Which of page and JSON holds, and whether either of them is to be written."""
    page, by_hand = _read_page(keeper, scope)
    file = _read_json(keeper, scope)
    if by_hand:
        base = max(page.version, file.version if file is not None else 0)
        chosen = replace(page, version=base + 1, updatedAt=stamp(keeper.clock.now()))
    elif file is None:
        chosen = page
    else:
        left = (page.version, moment(page.updatedAt) or _EARLY)
        right = (file.version, moment(file.updatedAt) or _EARLY)
        chosen = page if left > right else file
        if left == right and file.mark != page.mark:
            chosen = replace(file, version=file.version + 1, updatedAt=stamp(keeper.clock.now()))
    return chosen, bool(chosen.version and (by_hand or chosen != page or file != chosen))


_EARLY = datetime.fromisoformat("1970-01-01T00:00:00+00:00")


def _read_page(keeper: Keeper, scope: Scope) -> tuple[CoreMemory, bool]:
    """The document on the page, and whether a person changed it since it was written."""
    try:
        note = keeper.notebook.read(keeper.root.note(KIND, scope))
    except NotFound:
        return CoreMemory(), False
    parts = dict(below_headings(note.body, _HEADING))
    values: dict[str, Any] = {}
    for name, title in _TITLES.items():
        text = _GUARDED.sub("", parts.get(title.casefold(), ""))
        values[name] = _bullets(text) if name in LISTS else text
    version = note.frontmatter.get("version")
    document = CoreMemory(
        **values,
        version=version if isinstance(version, int) and not isinstance(version, bool) and version > 0 else 0,
        updatedAt=str(note.frontmatter.get("updated_at") or ""),
    )
    return document, str(note.frontmatter.get("mark")) != document.mark


def _read_json(keeper: Keeper, scope: Scope) -> CoreMemory | None:
    try:
        value = from_json(keeper.storage.read(json_locator(keeper, scope)))
        return CoreMemory(
            projectSummary=str(value.get("projectSummary") or ""),
            **{name: tuple(str(item) for item in value.get(name) or ()) for name in LISTS},
            version=int(value.get("version") or 0),
            updatedAt=str(value.get("updatedAt") or ""),
        )
    except (NotFound, ValueError, TypeError, AttributeError):
        return None


def _write(keeper: Keeper, scope: Scope, document: CoreMemory) -> None:
    body = ["# Core memory", ""]
    for name, title in _TITLES.items():
        value = getattr(document, name)
        text = "\n".join(f"- {item}" for item in value) if name in LISTS else value
        body += [f"## {title}", *([_GUARD.sub(r"\\", text)] if text else []), ""]
    fields = {"version": document.version, "updated_at": document.updatedAt, "mark": document.mark}
    text = KINDS[KIND].document(scope, fields, "\n".join(body))
    keeper.notebook.rewrite(keeper.root.note(KIND, scope), lambda _: text)
    file = json_locator(keeper, scope)
    keeper.storage.write(file, pretty(document.payload()))


def _bullets(text: str) -> tuple[str, ...]:
    items: list[str] = []
    for line in text.splitlines():
        if line.startswith(("- ", "* ")):
            items.append(line[2:].strip())
        elif line.strip():
            if items:
                items[-1] = f"{items[-1]} {line.strip()}"
            else:
                items.append(line.strip())
    return tuple(item for item in items if item)


def _checked(keeper: Keeper, name: str, value: Any) -> Any:
    if name not in _TITLES:
        raise Invalid(f'Core memory has no field "{name}"; it has {", ".join(_TITLES)}.', field=name)
    if name not in LISTS:
        check_text(value)
        return _clean(keeper, value.strip())
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise Invalid(f"{name} is a list of texts.", field=name)
    check_text(*value)
    return tuple(_clean(keeper, " ".join(item.split())) for item in value if item.strip())


def _clean(keeper: Keeper, text: str) -> str:
    if len(text) > MAX_CHARACTERS:
        raise Invalid(f"Core memory is small: {len(text)} characters are too many.", field="core")
    return keeper.cut(text)


@dataclass(frozen=True, slots=True)
class AgentIdentity:
    """Who an agent is (A41); kept as `agents/<id>/identity.json`."""

    id: str
    project_id: str
    name: str
    profile: Mapping[str, Any] = field(default_factory=dict)
    persona: Mapping[str, Any] = field(default_factory=dict)
    tool_policy: Mapping[str, Any] = field(default_factory=dict)
    user_preferences: Mapping[str, Any] = field(default_factory=dict)
    heartbeat: Mapping[str, Any] | None = None
    model_preference: str | None = None
    created_at: str = ""
    updated_at: str = ""


def identity(keeper: Keeper, space: Space, agent: str) -> AgentIdentity | None:
    """The identity of an agent, where one is on record."""
    try:
        value = from_json(keeper.storage.read(_identity_at(keeper, space, agent)))
        return AgentIdentity(**{**value, "id": agent, "project_id": str(space)})
    except NotFound:
        return None
    except (ValueError, TypeError):
        raise Invalid(
            f"agents/{agent}/identity.json is not an identity: mend or remove it.", agent=agent
        ) from None


def identities(keeper: Keeper, space: Space) -> list[AgentIdentity]:
    """Every agent of a space that has an identity."""
    out = []
    for scope in keeper.root.scopes(space, "agent"):
        with suppress(Invalid):
            if (found := identity(keeper, space, scope.owner)) is not None:
                out.append(found)
    return out


def set_identity(keeper: Keeper, space: Space, agent: str, **fields: Any) -> AgentIdentity:
    """Put an agent's identity on record, or change some of its fields."""
    known = {"name", "profile", "persona", "tool_policy", "user_preferences", "heartbeat", "model_preference"}
    if unknown := fields.keys() - known:
        raise Invalid(f"An identity has no {', '.join(sorted(unknown))}.", field=min(unknown))
    at = _identity_at(keeper, space, agent)
    now = stamp(keeper.clock.now())
    with keeper.locks.hold(at.key):
        old = identity(keeper, space, agent) or AgentIdentity(agent, "", agent, created_at=now)
        fresh = replace(old, **fields, project_id=str(space), updated_at=now)
        try:
            text = pretty(asdict(fresh))
        except (TypeError, ValueError) as error:
            raise Invalid(f"An identity is JSON: {error}.", agent=agent) from None
        keeper.storage.write(at, text)
    return fresh


def _identity_at(keeper: Keeper, space: Space, agent: str) -> Locator:
    return keeper.root.scope(Scope(space, "agent", agent)).child("identity.json")


DOCUMENTS = ("agent", "soul", "tools", "behaviors")


def documents(keeper: Keeper, space: Space, agent: str) -> dict[str, str]:
    """The documents an agent is given, by name."""
    out = {}
    for name in DOCUMENTS:
        try:
            out[name] = keeper.notebook.read(keeper.root.note(name, core_scope(space, agent))).body.strip()
        except NotFound:
            continue
    return out


def write_document(keeper: Keeper, space: Space, agent: str, name: str, text: str) -> tuple[str, int]:
    """Write one of an agent's documents; its path and the change. The head a person gave it stays."""
    check_text(text)
    scope = core_scope(space, checked_id(agent, "agent"))
    at = keeper.root.note(name, scope)
    body = _clean(keeper, text.strip()) + "\n"
    now = stamp(keeper.clock.now())

    def edit(old: str | None) -> str:
        if old is None:
            return KINDS[name].document(scope, {"updated_at": now}, body)
        note = KINDS[name].parse(old)
        if note.body == body:
            return old
        return frontmatter.in_head(old[: note.head.body], {"updated_at": now}, note.head) + body

    return at.key, keeper.notebook.rewrite(at, edit)
