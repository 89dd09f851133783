"""JSON that others wrote is read in one place: it is a value, or one sentence that says what is wrong with it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import cairn
from cairn.canonical import from_json, object_in

HOSTILE = {
    "[" * 100_000: "it is nested too deeply",
    '{"a": ' * 100_000: "it is nested too deeply",
    '{"n": ' + "9" * 6000 + "}": "it holds a number of several thousand digits",
    "-" + "1" * 5000: "it holds a number of several thousand digits",
    "{": "Expecting",
    "\udc80": "Expecting",
}


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:6].encode("ascii", "replace").decode())
def test_what_cannot_be_read_is_one_kind_of_error_and_names_nothing_of_ours(text):
    """Depth and digits raise what broken JSON raises, so that no reader can forget one of them."""
    with pytest.raises(ValueError, match=HOSTILE[text]) as caught:
        from_json(text)
    assert "sys." not in str(caught.value)
    assert object_in(text) is None


def test_numbers_that_are_none_are_refused_where_asked():
    """A file of another program may hold NaN; a request and a session's log may not."""
    assert str(from_json("[NaN]")) == "[nan]"
    with pytest.raises(ValueError, match="NaN is no number of JSON"):
        from_json("[NaN]", strict=True)


# What we wrote ourselves a moment ago, or into a database of ours, and what is read for a shape alone.
_OWN = {
    "engines/jobs.py", "engines/postgres_jobs.py", "engines/rows.py", "engines/shared_tables.py",
    "operations/lookup.py", "talk/merging.py", "adapters/langchain.py", "adapters/langgraph.py", "canonical.py",
    "shipped.py",
}  # fmt: skip


def test_no_other_module_reads_json_by_itself():
    """Whoever calls `json.loads` on what others wrote has to think of depth and digits again."""
    home = Path(cairn.__file__).parent
    found = {
        path.relative_to(home).as_posix()
        for path in home.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Attribute)
        and node.attr in {"loads", "load"}
        and getattr(node.value, "id", "") == "json"
    }
    assert found == _OWN
