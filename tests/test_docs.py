"""The documentation that is made from the code is up to date, and what it shows runs."""

import doctest
import importlib
import re
from pathlib import Path

import pytest
from tools.make_docs import DOCS, made

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("name", ["openapi.json", "settings.md", "cli.md", "http.md", "python.md"])
def test_made_pages_are_current(name):
    """Routes, settings and commands cannot drift from their pages: run `make docs`."""
    assert made()[name] == (DOCS / name).read_text(encoding="utf-8")


def test_links_between_pages_lead_somewhere():
    """Every relative link in the README and docs names a file that is there."""
    for page in [ROOT / "README.md", *DOCS.rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} -> {target}"


SHOWING = [
    ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
    for path in sorted((ROOT / "src" / "cairn").rglob("*.py"))
    if re.search(r"^ +>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)
]


@pytest.mark.parametrize("module", SHOWING)
def test_an_example_in_a_docstring_comes_out_as_shown(module):
    """What a function's description shows is what the function does."""
    done = doctest.testmod(importlib.import_module(module))
    assert done.attempted > 0
    assert done.failed == 0


def test_the_repository_says_nothing_of_machines():
    """No machine path and no registry host is in the tree."""
    pattern = re.compile(r"/root/|/home/[a-z]+/|/work/|pypi\.org|files\.pythonhosted", re.IGNORECASE)
    for page in [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        ROOT / "requirements.lock",
        ROOT / "pyproject.toml",
    ]:
        assert not pattern.search(page.read_text(encoding="utf-8")), page


def test_every_room_has_its_rules():
    """Whoever opens a file of a package is told its rules: one page per room, and every path in them leads somewhere."""
    named = set()
    for page in (ROOT / ".claude" / "rules").glob("*.md"):
        head = page.read_text(encoding="utf-8").split("---\n")[1]
        for pattern in re.findall(r'"([^"]+)"', head):
            assert list(ROOT.glob(pattern)), f"{page.name}: {pattern}"
            named.add(pattern)
    rooms = {f"src/cairn/{init.parent.name}/**" for init in (ROOT / "src/cairn").glob("*/__init__.py")}
    assert rooms <= named


def test_every_promise_of_the_security_page_names_a_test_that_exists():
    """Each row of its tables ends with what holds it: a file of tests, a test in it by name, or a target of make."""
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| Who")]
    tables = [row for row in rows if "`tests/" in row or "`make " in row]
    told = page[page.index("## What is checked where") : page.index("## What is not promised")]
    assert len(tables) == sum(
        line.startswith("| ") and not line.startswith(("| Threat", "| Attack")) for line in told.splitlines()
    )
    for row in tables:
        named = re.findall(r"`((?:tests/|make )[^`]+)`", row.rsplit(" | ", 1)[-1])
        assert named, row
        for one in named:
            if one.startswith("make "):
                assert f"\n{one.removeprefix('make ')}:" in makefile, one
                continue
            file, _, test = one.partition("::")
            assert (ROOT / file).is_file(), one
            assert not test or f"def {test}(" in (ROOT / file).read_text(encoding="utf-8"), one
