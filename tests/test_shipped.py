"""The package's own tables: what is kept of a parsed file is what the parser gives, and never that of another file."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tomllib
from pathlib import Path

import pytest

import cairn
from cairn import shipped
from cairn.shipped import tables_of

# The talk of the demo has times, which JSON has not: it is parsed whenever somebody asks for it.
SHIPPED = sorted(file for file in Path(cairn.__file__).parent.rglob("*.toml") if file.name != "demo.toml")


@pytest.fixture
def keeps(tmp_path, monkeypatch):
    """Python writes bytecode, to a folder of its own; the place of what is kept of a file."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(sys, "pycache_prefix", str(tmp_path / "pycache"))
    (tmp_path / "pycache").mkdir()

    def place(file: Path) -> Path:
        at = Path(importlib.util.cache_from_source(str(file))).with_suffix(".json")
        at.parent.mkdir(parents=True, exist_ok=True)
        return at

    return place


@pytest.fixture
def parsed(monkeypatch):
    """How often a file was parsed."""
    seen = []
    real = shipped._parsed
    monkeypatch.setattr(shipped, "_parsed", lambda data: seen.append(data) or real(data))
    return seen


@pytest.mark.parametrize("file", SHIPPED, ids=[f"{file.parent.name}/{file.name}" for file in SHIPPED])
def test_a_shipped_file_reads_the_same_from_what_is_kept(file, keeps, parsed):
    keeps(file)
    expected = tomllib.loads(file.read_text("utf-8"))
    first, second = tables_of(file), tables_of(file)
    assert (first, second) == (expected, expected)
    assert [*second] == [*expected]  # in the order of the file
    assert len(parsed) == 1


def test_a_file_that_was_changed_is_parsed_again(tmp_path, keeps, parsed):
    file = tmp_path / "words.toml"
    file.write_text("a = 1\n")
    keeps(file)
    stamp = file.stat()
    assert tables_of(file) == {"a": 1}
    file.write_text("a = 2\n")  # of the same size, and by its time as old
    os.utime(file, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert tables_of(file) == {"a": 2}
    assert tables_of(file) == {"a": 2}
    assert len(parsed) == 2


@pytest.mark.parametrize(
    "damage", [b"", b"{", b"[1]", b'{"of": 1, "tables": {"a": 9}}', b"\xff\xfe", b'{"tables": {"a": 9}}']
)
def test_what_is_kept_may_be_damaged(tmp_path, keeps, damage):
    file = tmp_path / "words.toml"
    file.write_text("a = 1\n")
    at = keeps(file)
    at.write_bytes(damage)
    assert tables_of(file) == {"a": 1}
    assert json.loads(at.read_text())["tables"] == {"a": 1}


def test_where_nothing_can_be_kept_the_file_is_parsed(tmp_path, keeps, monkeypatch):
    """A folder that cannot be made, a value that JSON has not, Python told to write no bytecode."""
    file = tmp_path / "words.toml"
    file.write_text("a = 1979-05-27\n")
    at = keeps(file)
    assert str(tables_of(file)["a"]) == "1979-05-27"
    assert list(at.parent.iterdir()) == []
    file.write_text("a = 1\n")
    at.parent.rmdir()
    at.parent.write_text("no folder")
    assert tables_of(file) == {"a": 1}
    at.parent.unlink()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert tables_of(file) == {"a": 1}
    assert not at.parent.exists()
