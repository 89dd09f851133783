"""docs/spec.md: every row that a test or a module cites is there, and says truly where it is held."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "spec.md"
# A row, or a span of rows such as E37-E41.
_ROW = re.compile(r"\b([EASMCPXY])(\d{1,3})(?:-\1?(\d{1,3}))?\b|\b(?i:(tenet|design|trap)) (\d{1,2})\b")


def words_of(source: str) -> Iterator[str]:
    """The docstrings and comments of a module."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield ast.get_docstring(node) or ""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and "noqa" not in token.string:
            yield token.string


def cited_in(text: str) -> Iterator[str]:
    for letter, first, last, word, number in _ROW.findall(text):
        if word:
            yield f"{word.lower()} {number}"
        else:
            yield from (f"{letter}{n}" for n in range(int(first), int(last or first) + 1))


@cache
def cited(path: Path) -> frozenset[str]:
    return frozenset(row for words in words_of(path.read_text(encoding="utf-8")) for row in cited_in(words))


def rows() -> dict[str, tuple[str, str]]:
    """Row -> (what holds, where it is held)."""
    found: dict[str, tuple[str, str]] = {}
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("| ") else []
        if len(cells) in {3, 4} and cells[0] != "Row":
            assert cells[0] not in found, f"{cells[0]} stands there twice"
            found[cells[0]] = (cells[1], cells[-1])
    return found


def places() -> dict[str, list[str]]:
    """Row of the four designs -> the modules that do it."""
    lines = [line.strip("|").split("|") for line in PAGE.read_text(encoding="utf-8").splitlines()]
    return {
        cells[0].strip(): re.findall(r"`([^`]+)`", cells[2])
        for cells in lines
        if len(cells) == 4 and re.fullmatch(r"[ESAM]\d+", cells[0].strip())
    }


def test_every_cited_row_is_there():
    """A reader who meets "E69" in a test finds what it means."""
    known = rows()
    for path in sorted([*(ROOT / "tests").rglob("*.py"), *(ROOT / "src").rglob("*.py")]):
        missing = cited(path) - known.keys()
        assert not missing, (
            f"{path.relative_to(ROOT)} cites {sorted(missing)}, which docs/spec.md does not have"
        )


def test_every_named_test_is_there_and_holds_its_row():
    """Where a row names a test file, that file is there and cites the row; each row says where it is held, or why not."""
    for row, (holds, where) in rows().items():
        assert holds and where, row
        for name in re.findall(r"`(tests/[^`]+\.py)`", where):
            assert (ROOT / name).exists(), f"{row}: {name} is gone"
        for name in re.findall(r"\[[^\]]+\]\(\.\./(tests/[^)]+\.py)\)", where):
            assert row in cited(ROOT / name), f"{row}: {name} does not cite it"


def test_every_row_of_the_four_designs_has_its_place_and_its_test():
    """All 375 rows: a module that is there, and a test that is there or a check of `make lint`; "none" gives its reason."""
    where, told = places(), rows()
    counts = {"E": 123, "S": 90, "A": 98, "M": 64}
    assert set(where) == {f"{letter}{n}" for letter, last in counts.items() for n in range(1, last + 1)}
    for row, modules in where.items():
        held = told[row][1]
        if held.startswith("none: "):
            assert len(held) > 20, f"{row}: say why"
            continue
        assert modules, f"{row} names no module"
        for name in modules:
            assert (ROOT / "src" / "cairn" / name).exists() or (ROOT / name).exists(), (
                f"{row}: {name} is gone"
            )
        assert re.search(r"tests/[\w/]+\.py|`make lint`", held), f"{row} is held by no test"


def test_spans_and_words_are_understood():
    """The reading of citations itself: single rows, spans, and the numbered tenets."""
    assert list(cited_in("E37-E41 S1, M21-M24")) == [
        *("E37", "E38", "E39", "E40", "E41"),
        *("S1", "M21", "M22", "M23", "M24"),
    ]
    assert list(cited_in("Tenet 3, trap 14; A4 paper")) == ["tenet 3", "trap 14", "A4"]
