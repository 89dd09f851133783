"""What commands print of their answers, where `printed.toml` has the lines."""

import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from cairn.operations.table import fields_of
from cairn.surfaces import output as module
from cairn.surfaces.cli import HOMES
from cairn.surfaces.output import _FIELD, _HEAD, Output, printed, printed_lines

COMMANDS = {
    one.name: one for home in set(HOMES.values()) for one in import_module(f"cairn.surfaces.{home}").COMMANDS
}
TABLE = tomllib.loads(Path(module.__file__).with_name("printed.toml").read_text(encoding="utf-8"))
HEADS = {"bold", "block", "note", "each", "table", "if", "unless", "fail"}


def fields_named(lines: list) -> set[str]:
    """The fields of the answer itself that lines name; not those of the items of its lists."""
    found = set()
    for line in lines:
        first, *inner = line if isinstance(line, list) else (line,)
        head = _HEAD.match(first)
        words = [word.removeprefix("fail ").split() for word in head[1].split(", ")] if head else []
        assert {word[0] for word in words} <= HEADS, first
        words = [word for word in words if word[0] != "block"]
        lists = [word[1] for word in words if word[0] in {"each", "table"}]
        if lists:
            found |= {*lists}
            continue
        found |= {name for word in words for name in word[1:]}
        found |= {name for paths, _, _ in _FIELD.findall(first) for name in paths.split("|")}
        found |= fields_named(inner)
    return {name.partition("=")[0].partition(".")[0] for name in found}


@pytest.mark.parametrize("name", TABLE)
def test_lines_name_fields_of_the_answer(name: str):
    """A command that has lines has no function beside them, and each field they name is one of its answer."""
    command = COMMANDS[name]
    assert command.prints is None
    assert fields_named(printed_lines(name)) <= {one.name for one in fields_of(command.operation.shape)}


def test_every_answer_is_printed():
    """A command either prints by itself, or has a function or lines that do."""
    silent = {
        name for name, one in COMMANDS.items() if one.run is None and one.prints is None and name not in TABLE
    }
    assert not silent


@pytest.mark.parametrize(
    ("lines", "told", "code"),
    [
        (["{name}: {count#file}, {some#} of them {some}"], "a {x}$: 1 file, 2 of them p, q\n", 0),
        (["{far.near:.2f}{gone? never}{name? is $|no}{gone?yes|no}"], "0.50 is a {x}$no\n", 0),
        (["[each some] - {it} of {count}"], "- p of 1\n- q of 1\n", 0),
        (["[each rows, if more] {id}{more}"], "2!\n", 0),
        (["{gone|name} {count|gone} {gone|none}"], "a {x}$ 1 \n", 0),
        (["[block] {name}", "[block 2 5] {name}", "{name~4}"], "    a {x}$\n  a {x…\na {…\n", 0),
        (["[each far] {it} {value}"], "near 0.5\n", 0),
        ([["[each rows]", "{id}", "[if more, block] {more}"]], "1\n2\n    !\n", 0),
        ([["[table rows]", "the id: {id}", "more: {more?$|-}"]], "1\t-\n2\t!\n", 0),
        (["[if gone] no", "[unless gone, bold] yes", "[if name, unless count] no"], "yes\n", 0),
        (["[if state=open] open", "[if state=shut] shut"], "open\n", 0),
        (
            ["{rows#memory}, {some#old batch}, {count#key}, {far#memory}"],
            "2 memories, 2 old batches, 1 key, 1 memory\n",
            0,
        ),
        (["[fail if gone none]", "[fail unless name gone]"], "", 0),
        (["[fail if gone name]", "said all the same"], "said all the same\n", 1),
        ([["[each rows]", "[fail if more]"]], "", 1),
    ],
)
def test_lines_are_printed_by_what_they_say(lines: list, told: str, code: int, capsys):
    """Conditions, items, tables, counts and the exit code; words of people are never read as fields."""
    data = {
        "name": "a {x}$",
        "count": 1,
        "some": ["p", "q"],
        "far": {"near": 0.5},
        "rows": [{"id": 1, "more": ""}, {"id": 2, "more": "!"}],
        "state": "open",
        "gone": None,
        "none": [],
    }
    assert printed(lines, data, Output()) == code
    assert capsys.readouterr().out == told


def test_remarks_go_to_standard_error_and_a_missing_field_is_no_word(capsys):
    """A note never mixes with results; a line cannot print a field that the answer does not have."""
    assert printed(["[note] {it}"], {"it": "mind"}, Output()) == 0
    assert capsys.readouterr() == ("", "mind\n")
    with pytest.raises(KeyError):
        printed(["{missing}"], {}, Output())
