"""The doors: a credential put into any field of any operation reaches no byte of the root.

The fields come from the table of operations and from the description of a message, so a new one is tried as soon as
it is declared.
"""

from __future__ import annotations

import base64
import json
import random
import string
from collections.abc import Iterator
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

import cairn
from cairn.agents.tools import TOOLS, reply
from cairn.errors import CairnError, Invalid
from cairn.memory import Memories, Memory
from cairn.operations.answers import shapes_of
from cairn.operations.check import options_of
from cairn.operations.table import IDS, REQUIRED, Field, Operation, fields_of, operations_of
from cairn.rights import OPEN
from cairn.web.acts import ACTS
from cairn.web.desk import Desk
from tests.held import holding
from tests.surfaces.served import serving_here
from tests.surfaces.test_scenario import ENV

SECRET = "Zq7" + "".join(random.Random(11).choices(string.ascii_letters + string.digits, k=33))
TOKEN = "gh" + "p_" + SECRET
# What a tool answers: JSON in JSON in JSON.
NESTED = json.dumps({"result": json.dumps({"env": json.dumps({"api" + "_key": SECRET})})})
ROWS: dict[str, tuple[type, Operation]] = {
    **{f"memory.{name}": (Memory, row) for name, row in operations_of(Memory).items()},
    **{f"memories.{name}": (Memories, row) for name, row in operations_of(Memories).items()},
}


def is_text(one: Field) -> bool:
    return any(kind is str for kind in options_of(one.type))


def is_texts(one: Field) -> bool:
    return any(get_args(kind)[:1] == (str,) for kind in options_of(one.type) if get_origin(kind) is not None)


def doors() -> Iterator[tuple[str, str]]:
    """Every field of a writing operation that takes a text, or a list of texts."""
    for name, (_, row) in ROWS.items():
        if row.writes:
            yield from ((name, one.name) for one in row.fields if is_text(one) or is_texts(one))


DOORS = sorted(doors())


def filled(row: Operation, ids: dict[str, Any], **planted: Any) -> dict[str, Any]:
    """A call that would do something: every field without a default from its example, and what is planted."""
    given = {one.name: one.says.example for one in row.fields if one.default is REQUIRED}
    given |= {name: value for name, value in ids.items() if name in {one.name for one in row.fields}}
    return given | planted


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # some operations take a path on this machine


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Memory]:
    root = tmp_path_factory.mktemp("doors") / "root"
    with cairn.open_blocking(root, embedding__provider="none", index__watch=False) as memory:
        yield memory


def settled(memory: Memory) -> list[str]:
    """Where the secret stands once everything that follows from a call is done."""
    memory.index_status()
    with suppress(CairnError):
        memory.memories.refresh()
    memory.search("anything", user_id="alice", consistency="strong", method="keyword")
    memory.parts.observer.settle()
    return holding(memory.settings.root, SECRET)


def test_there_are_doors() -> None:
    """The table is read: the doors that matter most are among them."""
    assert len(DOORS) > 60
    for one in [
        ("memory.add", "idempotency_key"), ("memory.add", "session_id"), ("memory.checkpoint", "label"),
        ("memories.supersede", "reason"), ("memories.archive", "reason"), ("memories.edit", "reason"),
        ("memory.remember", "source_id"), ("memory.remember", "file_scope_pattern"), ("memories.import_from", "text"),
        ("memories.set_core", "notes"),
    ]:  # fmt: skip
        assert one in DOORS


@pytest.mark.parametrize(("name", "field"), DOORS, ids=lambda value: value)
def test_no_credential_comes_in_by_any_field(opened: Memory, name: str, field: str) -> None:
    """Doors: the call may refuse it, cut it out or keep a hash; the bytes of the root never hold it."""
    home, row = ROWS[name]
    room = opened if home is Memory else opened.memories
    [asked] = [one for one in row.fields if one.name == field]
    made = opened.remember(
        f"The tide table of pier {len(DOORS)} is on the wall.", scope="user", owner="alice"
    )
    assert made.memory is not None
    ids = {
        "memory_id": made.memory["id"],
        "reason": "it is so",
        "content": "The tide table hangs by the door.",
    }
    for planted in (TOKEN, f"as {TOKEN} says", NESTED, f"token={SECRET}\nand more"):
        value: Any = planted if is_text(asked) else [planted]
        with suppress(CairnError, TypeError):
            row.call(room, **filled(row, ids, **{field: value}))
    assert settled(opened) == []


def text_leaves(shape: type, at: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every text in a message, by its description; lists are entered once."""
    for one in fields_of(shape):
        here = (*at, one.wire)
        for kind in options_of(one.type):
            if kind is str:
                yield here
            elif (
                get_origin(kind) is list
                and isinstance(get_args(kind)[0], type)
                and get_args(kind)[0] is not str
            ):
                yield from text_leaves(get_args(kind)[0], (*here, 0))
            elif get_origin(kind) is dict or kind is dict:
                yield (*here, "any", "deep", 0)
                yield (*here, "KEY")
            elif isinstance(kind, type) and "__annotations__" in vars(kind):
                yield from text_leaves(kind, here)


LEAVES = sorted(text_leaves(shapes_of("talk")["MessageItem"]), key=str)


def message_with(path: tuple[Any, ...], value: str) -> dict[str, Any]:
    """A message that is right but for `value` at `path`."""
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    item = {"type": "text", "text": "here it is", "name": "a", "uri": "b", "base64": "aGk=", "ext": "txt"}
    message: dict[str, Any] = {
        "sender_id": "alice", "sender_name": "Alice", "role": "user", "timestamp": 1780300000000,
        "content": [{**item, "extras": {"any": {"deep": ["x"]}}}], "tool_calls": [call], "tool_call_id": "call_1",
        "metadata": {"any": {"deep": ["x"]}}, "tags": ["a"],
    }  # fmt: skip
    if path[-1] == "KEY":
        path = (*path[:-1], value)
    at: Any = message
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = value
    return message


def test_a_message_has_the_leaves_that_are_known() -> None:
    """The description of a message is read to the end."""
    flat = {"/".join(map(str, path)) for path in LEAVES}
    assert {"content", "content/0/base64", "content/0/ext", "content/0/extras/any/deep/0", "content/0/extras/KEY",
            "tool_calls/0/id", "tool_calls/0/function/name", "tool_calls/0/function/arguments", "tool_call_id",
            "sender_id", "sender_name"} <= flat  # fmt: skip


@pytest.mark.parametrize("path", LEAVES, ids=lambda path: "/".join(map(str, path)))
def test_no_credential_comes_in_by_any_part_of_a_message(opened: Memory, path: tuple[Any, ...]) -> None:
    """Doors: content items' further fields, tool names, ids, arguments and results, names, and what is nested in them."""
    for n, planted in enumerate((TOKEN, f"see {TOKEN} there", NESTED, f"it says\npass{'word'}={SECRET}")):
        session = f"{'-'.join(map(str, path))[:60]}-{n}".replace("/", "-")
        with suppress(CairnError):
            opened.add(session, [message_with(path, planted)])
            opened.flush(session)
    assert settled(opened) == []


def test_a_text_that_is_attached_is_looked_into(opened: Memory) -> None:
    """Doors: what is text inside base64 loses its credential; what is not stays to the byte."""
    picture = base64.b64encode(bytes(range(256)) * 8).decode()
    notes = base64.b64encode(f"user: ann\ntoken: {TOKEN}\n".encode()).decode()
    items = [
        {"type": "doc", "base64": notes, "ext": "txt"},
        {"type": "image", "base64": picture, "ext": "png"},
    ]
    said = {"sender_id": "alice", "role": "user", "timestamp": 1780300000000, "content": items}
    opened.add("attached", [said])
    [kept] = opened.unprocessed("attached")
    text, image = kept.content
    assert base64.b64decode(text.base64).decode() == "user: ann\ntoken: [redacted: github-token]\n"
    assert image.base64 == picture


def test_an_id_that_holds_a_credential_is_refused_by_name(opened: Memory) -> None:
    """Doors: ids stand in names of files; the message says which field, and nothing is written."""
    said = {"sender_id": "alice", "role": "user", "timestamp": 1780300000000, "content": "Tea."}
    with pytest.raises(Invalid, match="session_id holds a credential"):
        opened.add(f"s-{TOKEN}", [said])
    with pytest.raises(Invalid, match=r"messages\[0\].sender_id holds a credential"):
        opened.add("s9", [{**said, "sender_id": TOKEN}])
    with pytest.raises(Invalid, match="owner holds a credential"):
        opened.remember("Tea is at four.", scope="user", owner=TOKEN)
    with pytest.raises(Invalid, match="app_id holds a credential"):
        opened.checkpoint("x", app_id=TOKEN)
    assert "session_id" in IDS
    assert settled(opened) == []


def test_a_key_and_an_import_with_a_credential_still_count_once(opened: Memory) -> None:
    """Doors: idempotency works without the words of the key, and items whose ids hold credentials stay apart."""
    said = {
        "sender_id": "alice",
        "role": "user",
        "timestamp": 1780300000000,
        "content": "Tea is at four today.",
    }
    first = opened.add("once", [said], idempotency_key=TOKEN)
    again = opened.add("once", [said], idempotency_key=TOKEN)
    assert (first.message_count, again.message_count) == (1, 1)
    assert len(opened.unprocessed("once")) == 1
    with pytest.raises(Invalid, match="other messages"):
        opened.add("once", [{**said, "content": "Another thing."}], idempotency_key=TOKEN)
    items = [{"id": f"{TOKEN}{n}", "memory": f"The boat number {n} is called after a bird of the coast.", "user_id": "alice"}
             for n in ("one", "two")]  # fmt: skip
    export = json.dumps({"results": items})
    report = opened.memories.import_from("mem0", export)
    assert len(report.kept) + len(report.merged) == 2
    assert len(opened.memories.import_from("mem0", export).known) == 2
    assert settled(opened) == []


def test_what_is_allowed_or_refused_as_a_whole_follows_the_setting(tmp_path: Path) -> None:
    """Doors: `keeping.secrets` decides at every door alike."""
    with cairn.open_blocking(tmp_path / "a", embedding__provider="none", keeping__secrets="refuse") as memory:
        with pytest.raises(Invalid, match="label holds a credential"):
            memory.checkpoint(f"before {TOKEN}")
        assert memory.checkpoints() == []
    with cairn.open_blocking(tmp_path / "b", embedding__provider="none", keeping__secrets="allow") as memory:
        assert memory.checkpoint(f"before {TOKEN}")["label"] == f"before {TOKEN}"


def test_the_same_doors_over_http(tmp_path: Path) -> None:
    """Doors: what comes over HTTP goes through the same ones."""
    root = tmp_path / "root"
    with serving_here(root, env=ENV) as server:

        def call(path: str, body: dict[str, Any]) -> int:
            status, _ = server.call("POST", f"/api/v1/{path}", body)
            assert status < 500
            return int(status)

        status, made = server.call("POST", "/api/v1/memories", {"content": "The ferry leaves at noon."})
        assert status == 200
        key = made["data"]["memory"]["id"]
        assert call("checkpoints", {"label": f"at {TOKEN}"}) == 200
        assert call("memories", {"content": "The quay is closed on Mondays.", "source_id": TOKEN}) == 200
        assert (
            call(f"memories/{key}/supersede", {"content": "The ferry leaves at one.", "reason": NESTED})
            == 200
        )
        said = {"sender_id": "alice", "role": "user", "timestamp": 1780300000000, "content": NESTED}
        assert call("memory/add", {"session_id": "s1", "messages": [said], "idempotency_key": TOKEN}) == 200
        assert call("memory/add", {"session_id": TOKEN, "messages": [said]}) == 422
        assert call("memory/flush", {"session_id": "s1"}) == 200
        for path in LEAVES:
            call("memory/add", {"session_id": "s2", "messages": [message_with(path, f"x {TOKEN}")]})
        call("memory/flush", {"session_id": "s2"})
        server.call("GET", "/api/v1/log")
    assert holding(root, SECRET) == []


class Planted(dict[str, Any]):
    """A form in which every field that is asked for holds a credential, but for those that say what is meant."""

    def __missing__(self, _name: str) -> str:
        return f"as {TOKEN} says"

    def get(self, name: str, _default: Any = None) -> Any:
        return self[name]


@pytest.mark.parametrize(
    "act", sorted(name for name, act in ACTS.items() if "_form" not in signature(act).parameters)
)
def test_no_credential_comes_in_by_a_form_of_the_page(opened: Memory, act: str) -> None:
    """Doors: every form of the page, with a credential in whatever field it reads; a file that is sent is one."""
    made = opened.remember("The tide table of the page is on the wall.", scope="user", owner="alice")
    assert made.memory is not None
    meant = {"id": made.memory["id"], "scope": "user", "owner": "alice"}
    source = f"# Tides\n\nThe key is {TOKEN}.\n".encode()
    for form in (
        {**meant},
        {"file": source, "file_name": "tides.md"},
        {"file": source, "file_name": f"{TOKEN}.md"},
    ):
        with suppress(CairnError, TypeError, ValueError, KeyError):
            ACTS[act](Desk(opened, OPEN), Planted(form))
    assert settled(opened) == []


@pytest.mark.parametrize("name", sorted(TOOLS))
def test_no_credential_comes_in_by_a_tool(opened: Memory, name: str) -> None:
    """Doors: every tool of MCP, with a credential in every argument, and in each alone."""
    words = [one.wire for one in TOOLS[name].fields if is_text(one)]
    whole = {one.wire: one.says.example for one in TOOLS[name].fields}
    for planted in [dict.fromkeys(words, f"as {TOKEN} says"), *({wire: NESTED} for wire in words)]:
        reply(opened, {"name": name, "arguments": {**whole, **planted, "confirm": True}})
        reply(opened, {"name": name, "arguments": {**whole, **planted}})
    assert settled(opened) == []
