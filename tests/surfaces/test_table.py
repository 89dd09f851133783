"""The table of operations through every surface: none offers more or less than it says."""

import argparse
import inspect
import json
from importlib import import_module
from pathlib import Path

import pytest

import cairn
from cairn.agents.tools import TOOLS
from cairn.aio import AsyncMemories, AsyncMemory
from cairn.memory import Memories, Memory
from cairn.operations import answers
from cairn.operations.check import checked, object_schema
from cairn.operations.table import REQUIRED, fields_of, operations_of
from cairn.surfaces.cli import HOMES, SAME, build_parser, main
from cairn.surfaces.command import EVERYWHERE, PERSONAL, command_words
from cairn.surfaces.http import VERSIONS
from cairn.surfaces.openapi import describe
from cairn.surfaces.routes import ROUTES

ROWS = [(room, row) for room in (Memory, Memories) for row in operations_of(room).values()]
IDS = [f"{room.__name__}.{row.name}" for room, row in ROWS]

# Not over HTTP: files of the machine that calls, what other answers hold already, and the two bare pages of a server.
NOT_HTTP = {
    "backup",
    "export_sqlite",
    "knowledge_add",
    "export_to",
    "move_to",
    "read_back",
    "pull",
    "push",
    "import_from",
    "unprocessed",
    "session_owners",
    "health",
    "gauges",
}
# Not typed: events are those of a process that stays; `export --sqlite` stands for `export_sqlite`, `restore database` for `read_back`; `add --async-mode` and `search` show what waits, and `log` stands for the others.
NOT_TYPED = {
    "events", "export_sqlite", "read_back", "unprocessed", "session_owners", "health", "gauges", "checkpoint", "checkpoints", "repair",
}  # fmt: skip


def commands():
    """Every command that stands for an operation."""
    modules = [import_module(f"cairn.surfaces.{name}") for name in dict.fromkeys(HOMES.values())]
    return [one for module in modules for one in module.COMMANDS if one.method is not None]


def test_there_is_a_table():
    """The walk below walks over something."""
    assert len(ROWS) > 50


@pytest.mark.parametrize(("room", "row"), ROWS, ids=IDS)
def test_every_field_says_what_it_means(room, row):
    """Words and an example for each field of the request, and the example is one that the checks let through."""
    assert row.summary
    assert row.answers is None or fields_of(row.answers.shape)
    for one in row.fields:
        assert one.says.words, one.name
        assert one.says.example is not None, one.name
        checked([one], {one.wire: one.says.example})


@pytest.mark.parametrize(("room", "row"), ROWS, ids=IDS)
def test_a_call_in_python_is_held_to_its_fields(room, row, tmp_path):
    """What is of no kind of a field, or beyond its limits, is refused by name before the memory is looked at."""
    memory = Memory(tmp_path)
    call = getattr(row.room_in(memory), row.name)
    needed = {one.name: one.says.example for one in row.fields if one.default is REQUIRED}
    for one in row.fields:
        wrong = [object(), {1: object()} if "Mapping" not in str(one.type) else 7]
        if "'str'" in str(one.type) or "str |" in str(one.type):
            wrong += ["half \ud800", *([["text"]] if "Sequence" not in str(one.type) else [])]
        if "int" in str(one.type) and one.says.low is not None:
            wrong += [one.says.low - 1, float("nan"), "5"]
        for value in wrong:
            with pytest.raises(cairn.Invalid, match=rf"{one.name}: "):
                call(**{**needed, one.name: value})
    assert list(tmp_path.iterdir()) == []


def test_every_field_of_an_answer_says_what_it_means():
    """The same for what comes back."""
    rooms = [one.stem for one in Path(answers.__path__[0]).glob("*.toml")]
    shapes = [shape for room in rooms for shape in answers.shapes_of(room).values()]
    assert len(shapes) > 40
    for shape in shapes:
        assert shape.__doc__
        for one in fields_of(shape):
            assert one.says.words, (shape, one.name)


@pytest.mark.parametrize(("room", "row"), ROWS, ids=IDS)
def test_the_twin_and_the_types_have_it(room, row):
    """The awaited call has the same parameters, and type checkers know it."""
    twin = AsyncMemory if room is Memory else AsyncMemories
    assert inspect.iscoroutinefunction(getattr(twin, row.name))
    assert inspect.signature(getattr(twin, row.name)) == inspect.signature(getattr(room, row.name))


@pytest.mark.parametrize(("room", "row"), ROWS, ids=IDS)
def test_its_route_takes_its_fields(room, row):
    """Every field of the caller's is in the path, the query or the body of one of its routes, and nothing else is."""
    routes = [route for route in ROUTES if route.operation is row]
    if not row.http:
        assert not routes
        # `show`, `import_from` exist in both rooms; the names stand for those without a route.
        assert row.name in NOT_HTTP
        return
    assert row.allow is not None, "nobody said who may call it"
    wanted = {one.name for one in row.fields if not one.says.here}
    for route in routes:
        taken = [one.name for one in (*route.in_path, *route.query, *route.body)]
        assert len(taken) == len(set(taken))
        assert set(taken) <= wanted
    assert set().union(*([one.name for one in (*r.in_path, *r.query, *r.body)] for r in routes)) == wanted


@pytest.mark.parametrize(("room", "row"), ROWS, ids=IDS)
def test_its_command_takes_its_fields(room, row):
    """Every field is an argument of its command, or one of the arguments the command declares instead.

    Where a scope and its owner can be told, an option for each of the personal scopes stands for both.
    """
    mine = [one for one in commands() if one.operation is row]
    if not mine:
        assert row.name in NOT_TYPED
        return
    for one in mine:
        parser = argparse.ArgumentParser()
        one.declare(parser)
        taken = {action.dest for action in parser._actions} - {"help"}
        assert {field.name for field in row.fields} <= taken | {*EVERYWHERE, *one.without.split()}
        extra = argparse.ArgumentParser()
        one.declare_others(extra)
        declared = {action.dest for action in extra._actions}
        if {"scope", "owner"} <= taken:
            declared |= {f"of_{scope}" for scope in PERSONAL}
        assert taken <= {field.name for field in row.fields} | declared


def test_the_description_is_whole():
    """Every parameter and property has a description and an example, and every reference leads somewhere."""
    document = describe(ROUTES, VERSIONS)
    schemas = document["components"]["schemas"]
    text = json.dumps(document)
    for name in {part.split('"')[0] for part in text.split("#/components/schemas/")[1:]}:
        assert name in schemas
    for name, schema in schemas.items():
        for key, one in schema["properties"].items():
            assert one["description"], (name, key)
            assert one["examples"], (name, key)
    for path in document["paths"].values():
        for made in path.values():
            assert made["summary"]
            for one in made.get("parameters", ()):
                assert one["description"]
                assert one["schema"]["examples"]


def test_tools_can_be_made_of_it():
    """What is offered to agents has a closed JSON Schema with its needed fields."""
    offered = [tool.stands_for.operation for tool in TOOLS.values()]
    assert {"search", "recall", "remember", "forget"} <= {row.name for row in offered}
    for row in offered:
        schema = object_schema(row.fields, {}, row.summary, closed=True)
        assert schema["additionalProperties"] is False
        assert schema.get("required", []) == [one.wire for one in row.fields if one.default is REQUIRED]


def test_the_words_of_commands_are_of_commands():
    """Every line of the data file is a command's or a group's, and each of those has one."""
    names = {
        one.name for module in HOMES.values() for one in import_module(f"cairn.surfaces.{module}").COMMANDS
    }
    groups = {" ".join(name.split()[:size]) for name in names for size in range(1, name.count(" ") + 1)}
    assert set(command_words()) == names | groups


def test_the_homes_of_commands_are_right():
    """The index that spares loading the other commands names each of them."""
    everything = build_parser()._subparsers._group_actions[0].choices
    declared = {
        one.name for home in HOMES.values() for one in import_module(f"cairn.surfaces.{home}").COMMANDS
    }
    assert {name.partition(" ")[0] for name in declared} == set(HOMES) == set(everything)
    for name in HOMES:
        assert name in build_parser(name)._subparsers._group_actions[0].choices


@pytest.mark.parametrize("word", sorted(SAME))
def test_a_word_that_people_type_is_the_command(word, tmp_path, capsys):
    """What has one clear meaning is done, not pointed to: the same help, and the same refusal of what it lacks."""
    said = []
    for words in ([word], [word.upper()], SAME[word].split()):
        with pytest.raises(SystemExit):
            main(["--root", str(tmp_path), *words, "x", "--help"])
        said.append(capsys.readouterr().out)
    assert said[0] == said[1] == said[2] != ""


def test_a_slip_of_the_fingers_is_understood(capsys):
    """A name that is nearly right is told."""
    assert main(["serch", "x"]) == 2
    assert "`cairn search`" in capsys.readouterr().err


def test_help_tells_the_fields():
    """`help` shows plain types and each field's words."""
    search = cairn.Memory.search
    assert "user_id: the" not in str(inspect.signature(search))
    assert "query: str" in str(inspect.signature(search))
    assert "query: the question, in plain words" in inspect.getdoc(search)
    assert "query: the question, in plain words" in inspect.getdoc(cairn.AsyncMemory.search)
