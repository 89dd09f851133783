"""The MCP tools: a few operations with short schemas, made from the table of operations.

    Tool -> the row of the table it stands for, and which of its fields an agent may say
         -> the schema: names, words and types of those fields, read from the row
         -> run(memory, arguments, folder, grant): text for the model, data for the program

A tool runs where a memory is open: in the warm process, in the HTTP server, or in `cairn mcp` itself. The caller's
grant is checked by the row's own rule. All that is remembered goes out framed as data, so that it is known again when a
session is captured.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import NoneType
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from cairn.errors import CairnError, Invalid, NotFound
from cairn.operations.check import checked, options_of
from cairn.operations.memories import Remember, Single
from cairn.operations.recall import Recall
from cairn.operations.repositories import Repositories
from cairn.operations.table import REQUIRED, Field, Operation, Says
from cairn.rights import OPEN, Grant
from cairn.types import Space
from cairn.wording import short

if TYPE_CHECKING:
    from cairn.memory import Memory

log = logging.getLogger("cairn.agents")

_JSON_TYPES = {str: "string", int: "integer", float: "number", bool: "boolean"}
_SHOWN_CHARS = 300
_FEW_TOKENS = 200  # what is remembered may not fit into fewer
_BY_WORDS = "The model is still being loaded, so this was looked for by its words alone: ask again for more."
_NO_UNDO = "Nothing was removed. There is no undo: ask the person, then call again with confirm set to true."


@dataclass(frozen=True, slots=True)
class ToolAnswer:
    """What a tool answers: words for the model, and the same as data."""

    text: str
    data: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ToolRun:
    """One call of a tool: on which memory, with what, from where, and by whom.

    `about` says whose memory and which space are meant, where no folder can (over HTTP).
    """

    memory: Memory
    given: dict[str, Any]
    folder: str | None
    grant: Grant
    about: Mapping[str, str] = field(default_factory=dict)

    def ask(self, call: Callable[..., Any], room: Any = None, **fields: Any) -> dict[str, Any]:
        """The operation's answer as data, its rule checked first; what is not said has its default."""
        row = _row(call)
        usual = {one.name: one.default for one in row.fields if one.default is not REQUIRED}
        data: dict[str, Any] = row.ask(room or self.memory, usual | fields, self.grant)
        return data

    @property
    def spaces(self) -> list[Space]:
        """The repository's spaces (or the one that is named), then the general one of the same app, unless the caller's
        token is of other projects alone.
        """
        from cairn.projects import spaces_at

        app, project = self.about.get("app_id", "default"), self.about.get("project_id")
        first = [Space(app, project)] if project else spaces_at(self.folder) if self.folder else []
        if first and self.grant.projects is not None and Space(app).project not in self.grant.projects:
            return first
        return list(dict.fromkeys((*first, Space(app))))

    @property
    def person(self) -> str:
        """Whose memory is meant: who is named, the one owner of the caller's token, or the settings' person."""
        alone = next(iter(self.grant.owners)) if self.grant.owners and len(self.grant.owners) == 1 else None
        return self.about.get("user_id") or alone or self.memory.settings.memory.person

    @property
    def method(self) -> str:
        """How to ask: by words alone while the model is being loaded. A host waits for its first answer."""
        parts = self.memory.parts
        return "hybrid" if parts.daemon is None or parts.embedder.is_at_hand() else "keyword"

    @property
    def place(self) -> dict[str, Any]:
        """The fields of `recall` and `brief` that say who asks, and from where."""
        space = self.spaces[0]
        return {
            "user_id": self.person,
            "folder": self.repository,
            "app_id": space.app,
            "project_id": self.about.get("project_id"),
        }

    @property
    def repository(self) -> str | None:
        """The folder, where it is in a git work tree."""
        return self.folder if self.folder and self.spaces[0] != Space() else None


@dataclass(frozen=True)
class Tool:
    """One tool.

    Attributes:
        name: Its name.
        title: Its name for people.
        stands_for: The operation whose words, types and rules it has.
        takes: The fields of the operation that an agent may say.
        run: What it does.
        answers: What its data holds at least: JSON types by name.
        when: When to use it, after the operation's own first sentence.
        more: Fields that are not the operation's.
        destroys: Whether it may take something away.
    """

    name: str
    title: str
    stands_for: Callable[..., Any]
    takes: Sequence[str]
    run: Callable[[ToolRun], ToolAnswer]
    answers: Mapping[str, str]
    when: str = ""
    more: tuple[Field, ...] = ()
    destroys: bool = False

    @property
    def operation(self) -> str:
        """The name of the operation it stands for."""
        return _row(self.stands_for).name

    @property
    def writes(self) -> bool:
        """Whether it may change anything."""
        return _row(self.stands_for).writes

    @property
    def description(self) -> str:
        """What it does, in the operation's own first sentence, and when to use it."""
        first = _row(self.stands_for).summary.replace("`", "")
        return f"{first} {self.when}".strip()

    @cached_property
    def fields(self) -> tuple[Field, ...]:
        """What an agent says."""
        known = {one.name: one for one in _row(self.stands_for).fields}
        return (*(known[name] for name in self.takes), *self.more)

    @cached_property
    def input_schema(self) -> dict[str, Any]:
        """Its arguments as JSON Schema, short: hosts drop limits, so they are checked here."""
        properties = {one.wire: {**_type(one.type), "description": one.says.words} for one in self.fields}
        schema: dict[str, Any] = {"type": "object", "properties": properties}
        if required := [one.wire for one in self.fields if one.default is REQUIRED]:
            schema["required"] = required
        return schema

    @property
    def output_schema(self) -> dict[str, Any]:
        """What its data holds as JSON Schema."""
        return {"type": "object", "properties": {name: {"type": kind} for name, kind in self.answers.items()}}


def _row(call: Callable[..., Any]) -> Operation:
    row: Operation = call.operation  # type: ignore[attr-defined]
    return row


def _type(kind: Any) -> dict[str, Any]:
    one = next(option for option in options_of(kind) if option is not NoneType)
    if get_origin(one) is Literal:
        return {"type": "string", "enum": list(get_args(one))}
    if get_origin(one) in {list, Sequence}:
        return {"type": "array", "items": {"type": "string"}}
    return {"type": _JSON_TYPES[one]}


# ---------------------------------------------------------------- what they do


def _recall(call: ToolRun) -> ToolAnswer:
    method = call.method
    data = call.ask(Recall.recall, **call.given, **call.place, method=method)
    nothing = "Nothing that is remembered helps with this"
    if call.given["token_budget"] < _FEW_TOKENS:
        nothing += f" and fits into a token_budget of {call.given['token_budget']}"
    return _by(method, ToolAnswer(data["prompt"] or f"{nothing}.", data))


def _by(method: str, told: ToolAnswer) -> ToolAnswer:
    """The answer, and that words alone were looked at, where that is so."""
    return told if method == "hybrid" else ToolAnswer(f"{told.text}\n{_BY_WORDS}", told.data)


def _brief(call: ToolRun) -> ToolAnswer:
    data = call.ask(Recall.brief, **call.given, **call.place)
    return ToolAnswer(data["prompt"] or "Nothing is kept at hand yet.", data)


def _search(call: ToolRun) -> ToolAnswer:
    top, method = call.given["top_k"], call.method
    hits: dict[str, dict[str, Any]] = {}
    for space in call.spaces:
        where = {"query": call.given["query"], "app_id": space.app, "project_id": space.project}
        where |= {"top_k": top, "method": method}
        found = [
            call.ask(Recall.search, **where, user_id=call.person),
            call.ask(Single.search, call.memory.memories, **where, **_reached(call)),
        ]
        for data in found:
            rows = [row for name in ("episodes", "memories") for row in data.get(name, ())]
            hits |= {f"{space.project} {row['id']}": row for row in rows}
    best = sorted(hits.values(), key=lambda row: -row["score"])[: top if top > 0 else 10]
    lines = [f"{row['id']}: {_short(row)}" for row in best]
    return _by(method, ToolAnswer(_framed(lines, "Nothing is found."), {"hits": best}))


def _reached(call: ToolRun) -> dict[str, str]:
    """Which governed memories are searched: everybody's, or those of the one the caller's token is limited to."""
    return {} if call.grant.owners is None else {"scope": "user", "owner": call.person}


def _short(row: Mapping[str, Any]) -> str:
    text = row.get("content") or row.get("summary") or row.get("episode") or row.get("text") or ""
    return short(str(text), _SHOWN_CHARS)


def _show(call: ToolRun) -> ToolAnswer:
    wanted = call.given["entry_id"]
    if not (found := _in_spaces(call, wanted)):
        places = " or ".join(map(str, call.spaces))
        told = f"There is no entry {wanted[:200]} in {places}; recall and search print ids."
        raise NotFound(told, id=wanted)
    first, *others = found.values()
    lines = [line for one in (first, *others) for line in _shown(one)]
    return ToolAnswer(_framed("\n".join(lines), ""), {**first, "others": others} if others else first)


def _in_spaces(call: ToolRun, wanted: str, *passed: type[CairnError]) -> dict[Space, dict[str, Any]]:
    """What goes by an id in the spaces at hand, as far as the caller may see it."""
    from cairn.operations.lookup import in_spaces

    def shown(space: Space) -> dict[str, Any]:
        return call.ask(Recall.show, entry_id=wanted, app_id=space.app, project_id=space.project)

    return in_spaces(call.spaces, shown, *passed)


def _shown(found: Mapping[str, Any]) -> list[str]:
    lines = [f"{found['kind']} {found['id']} ({found['path']})"]
    lines += [f"{name}: {value}" for name, value in found["inline"].items()]
    lines += [f"## {title}\n{text}" for title, text in found["sections"].items()]
    lines += [
        f"{one['timestamp']} {one['sender_name'] or one['sender_id']}: {one['text']}"
        for one in found["messages"]
    ]
    return lines


def _remember(call: ToolRun) -> ToolAnswer:
    given = call.given
    if given["scope"] == "user":
        given["owner"] = given["owner"] or call.person
    space = call.spaces[-1 if given["scope"] == "user" else 0]
    data = call.ask(Remember.remember, **given, origin="agent", app_id=space.app, project_id=space.project)
    row = data.get("memory") or {}
    kept = str(row.get("id") or data.get("merged_into_id") or "")
    data |= {"id": kept}
    if not data["accepted"]:
        return ToolAnswer(f"Not kept: {str(data.get('detail') or data.get('reason')).rstrip('.')}.", data)
    return ToolAnswer(f"{kept} {'was known already' if data.get('deduped') else 'is kept'}.", data)


def _forget(call: ToolRun) -> ToolAnswer:
    confirmed = bool(call.given.pop("confirm"))
    spaces = [_space_of_named(call)] if call.given["memory_id"] else call.spaces
    told = [
        call.ask(
            Single.forget,
            call.memory.memories,
            **call.given,
            dry_run=not confirmed,
            app_id=space.app,
            project_id=space.project,
        )
        for space in spaces
    ]
    data = _together(told)
    counted = ", ".join(f"{count} {what}" for what, count in data["removed"].items() if count) or "nothing"
    if not confirmed:
        lines = [f"would go: {one['id']}: {one['words']}" for one in data["taken"][:20]]
        lines += [f"alike, stays: {one['id']}: {one['words']}" for one in data["alike"][:20]]
        return ToolAnswer(
            f"{_framed(lines, 'Nothing goes by that.')}\nIt would remove {counted}. {_NO_UNDO}", data
        )
    left = "; ".join(f"{one['where']}: {one['why']}" for one in data["left"])
    return ToolAnswer(f"Removed: {counted}." + (f" Not removed: {left}." if left else ""), data)


def _space_of_named(call: ToolRun) -> Space:
    """Where the entry that is named lies; a place (`PATH#ID`) becomes its id there. It is to be one entry alone."""
    wanted = call.given["memory_id"]
    found = _in_spaces(call, wanted, Invalid)  # what is no entry may yet go by its id
    if len(found) > 1:
        places = [f"{one['path']}#{one['id'].removeprefix(one['owner'] + '_')}" for one in found.values()]
        raise Invalid(
            f"{wanted} is not one entry: look at each with show, and name the one that is meant, as {' or '.join(places)}.",
            field="id",
        )
    for space, one in found.items():
        call.given["memory_id"] = one["id"]
        return space
    return call.spaces[0]


def _together(receipts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The receipts of several spaces as one. What stands elsewhere only the last can tell, since the others went by then."""
    from cairn.governed.wanted import ELSEWHERE

    *earlier, last = receipts
    counts: Counter[str] = Counter()
    for one in receipts:
        counts.update(one["removed"])
        if one is not last:
            one["left"] = [left for left in one["left"] if left["where"] != ELSEWHERE]
    joined = {
        name: [line for one in receipts for line in one[name]]
        for name in ("taken", "alike", "left", "places")
    }
    complete = last["complete"] and not any(one["left"] for one in earlier)
    return {**last, **joined, "removed": dict(counts), "complete": complete}


def _project_query(call: ToolRun) -> ToolAnswer:
    from cairn.projects import open_project

    if call.repository is None:
        raise NotFound("This session is in no git repository, so there is no project memory to ask.")
    project = open_project(call.repository)
    if not project.exists:
        raise NotFound(
            f"{project.tree.name} has no project memory yet: `cairn project init` in the repository makes it."
        )
    # The folder is where the agent works already, so the server's list of repositories is not asked.
    data = project.query(**call.given).to_json()
    lines = [data["answer"], *(f"[{one['sourceId']}] {one['summary']}" for one in data["citations"][:6])]
    return ToolAnswer(_framed(lines, ""), data)


def _framed(lines: Sequence[str] | str, otherwise: str) -> str:
    from cairn.governed.framing import frame

    return frame(lines) or otherwise


TOOLS: Mapping[str, Tool] = {
    tool.name: tool
    for tool in (
        Tool(
            "recall",
            "Recall",
            Recall.recall,
            ("query", "token_budget"),
            _recall,
            {"items": "array"},
            when="Use before answering about earlier work, people or decisions.",
        ),
        Tool("brief", "Brief", Recall.brief, (), _brief, {"items": "array"}),
        Tool(
            "search",
            "Search",
            Recall.search,
            ("query", "top_k"),
            _search,
            {"hits": "array"},
            when="Lists ids; read one with show.",
        ),
        Tool("show", "Show", Recall.show, ("entry_id",), _show, {"id": "string"}),
        Tool(
            "remember",
            "Remember",
            Remember.remember,
            ("content", "category", "scope", "owner"),
            _remember,
            {"accepted": "boolean", "id": "string"},
            when="Use when the person asks for it, or for a decision or trap worth keeping.",
        ),
        Tool(
            "forget",
            "Forget",
            Single.forget,
            ("memory_id", "words"),
            _forget,
            {"dry_run": "boolean", "complete": "boolean"},
            when="Without confirm it only tells what would go.",
            more=(Field("confirm", bool, False, Says("carry it out; the person has agreed", True)),),
            destroys=True,
        ),
        Tool(
            "project_query",
            "Project query",
            Repositories.project_query,
            ("question",),
            _project_query,
            {"answer": "string"},
        ),
    )
}


def may_write(message: Mapping[str, Any]) -> bool:
    """Whether a message asks for a tool that may change anything."""
    tool = TOOLS.get(str(message.get("name")))
    return tool is not None and tool.writes


def run(call: ToolRun, name: str) -> ToolAnswer:
    """Run a tool with what was given, unchecked, in a call.

    Raises:
        Invalid: there is no such tool, or an argument is wrong; the message names it.
        CairnError: the operation refuses or cannot.
    """
    tool = TOOLS.get(name)
    if tool is None:
        raise Invalid(f'There is no tool "{name[:60]}"; there are {", ".join(TOOLS)}.', field="name")
    said = {wire: value for wire, value in call.given.items() if value is not None}
    return tool.run(replace(call, given=checked(tool.fields, said, what="argument")))


def reply(memory: Memory, message: Mapping[str, Any], grant: Grant = OPEN) -> dict[str, Any]:
    """The answer to one message of an MCP server: what a tool says, the pages there are, or why neither."""
    folder = str(message.get("folder") or "") or None
    given, about = message.get("arguments") or {}, message.get("about") or {}
    call = ToolRun(memory, given, folder, grant, about)
    try:
        if message.get("op") == "pages":
            return {"pages": pages(call)}
        told = run(call, str(message.get("name")))
        return {"text": told.text, "data": told.data}
    except CairnError as error:
        return {"error": str(error)}
    except Exception as error:
        log.exception("tool %s", message.get("name"))
        return {"error": f"It failed: {type(error).__name__}: {error}"}


def pages(call: ToolRun) -> list[str]:
    """The pages for agents of the repository's space and the general one, as paths that `show` takes."""
    from cairn.governed import pages as kept
    from cairn.types import Scope

    found = []
    for space in call.spaces:
        call.grant.reach_space(space)
        parts = call.memory.parts
        at = kept.folder(parts.keeper, Scope(space, "project", ""))
        try:
            listed = parts.storage.list(at)
        except NotFound:
            continue
        found += [one.key for one in listed if one.name.endswith(".md")]
    return found
