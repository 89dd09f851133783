"""Write the parts of the documentation that are made from the code: `make docs`.

docs/openapi.json from the route table, the threads and chores in docs/architecture.md, the classes in docs/glossary.md,
the reference in docs/cli.md from the argument parser, docs/settings.md from the settings classes. With `--check` nothing is written: what differs is named and the exit code is 1; `make lint`
runs that, so none of them can drift.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import json
import re
import sys
from pathlib import Path
from typing import get_type_hints

from cairn.background import CHORES, WORKERS
from cairn.config import SECTIONS, Settings
from cairn.surfaces.cli import build_parser
from cairn.surfaces.http import VERSIONS
from cairn.surfaces.openapi import describe
from cairn.surfaces.routes import ROUTES
from tools.make_pages import http_reference, python_page

DOCS = Path(__file__).parent.parent / "docs"
START, END = "<!-- reference: made by `make docs` -->", "<!-- end of reference -->"


def subcommands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """Every command that does something, by its full name."""
    found: dict[str, argparse.ArgumentParser] = {}
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for name, command in action.choices.items():
                inner = subcommands(command)
                if inner:
                    found.update({f"{name} {rest}": sub for rest, sub in inner.items()})
                else:
                    found[name] = command
    return found


def cli_reference() -> str:
    """One section per command: what it is for, its arguments, its examples."""
    lines = []
    for name, command in subcommands(build_parser()).items():
        lines += [f"### cairn {name}", "", command.description or "", ""]
        rows = []
        for action in command._actions:
            if action.dest in {"help", "root", "app", "project", "json"} or action.help == argparse.SUPPRESS:
                continue
            if action.option_strings:
                value = (
                    ""
                    if action.nargs == 0
                    else f" {action.metavar or '|'.join(map(str, action.choices or [])) or action.dest.upper()}"
                )
                shown = f"`{', '.join(action.option_strings)}{value}`"
            else:
                shown = f"`{action.dest.upper()}`"
            text = (action.help or "").replace("|", "\\|")
            shown = shown.replace("|", "\\|")
            rows.append(f"| {shown} | {text} |")
        if rows:
            lines += ["| argument | meaning |", "|---|---|", *rows, ""]
        if command.epilog:
            lines += ["```sh", inspect.cleandoc(command.epilog.removeprefix("examples:\n")), "```", ""]
    return "\n".join(lines).rstrip() + "\n"


def settings_page() -> str:
    """Every setting with its default."""
    lines = [
        "# Settings",
        "",
        "Every setting with its default, and where to set it. Later sources override earlier ones: defaults, `cairn.toml` in",
        "the root, `.env`, the environment (`CAIRN_SECTION__KEY`), arguments. `cairn config show` prints each value and",
        "where it came from; `cairn init` writes a commented `cairn.toml`. Unknown names are errors.",
        "",
        "Your own `.env` is the first found of `$XDG_CONFIG_HOME/cairn/.env` and `~/.cairn/.env`. A `.env` in the working",
        "directory overrides it, but may have come with somebody else's repository. So only `[capture]`, `[search]`,",
        "`memory.timezone`, `logging.level` and `logging.format` are taken from it, and a warning names every other line. To",
        "trust it, set `CAIRN_DOTENV=1` in the environment or in your own `.env`: then it alone is read, whole.",
    ]
    defaults = Settings()
    for section, cls in SECTIONS.items():
        words = " ".join((inspect.getdoc(cls) or "").split())
        lines += [
            "",
            f"## [{section}]",
            "",
            words,
            "",
            "| setting | default | environment |",
            "|---|---|---|",
        ]
        for key in get_type_hints(cls):
            value = getattr(getattr(defaults, section), key)
            shown = "[]" if value == () else f"`{str(value).lower() if isinstance(value, bool) else value}`"
            lines.append(
                f"| `{key}` | {shown if value != '' else '(empty)'} | `CAIRN_{section.upper()}__{key.upper()}` |"
            )
    return "\n".join(lines) + "\n"


def with_reference(name: str, reference: str) -> str:
    """A page as it stands, with the part between the marks made anew."""
    page = (DOCS / name).read_text(encoding="utf-8")
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return f"{before}{START}\n\n{reference}\n{END}{after}"


def background_table() -> str:
    """Every thread and chore of the background: when it runs, who waits for it, how it gives way to calls."""
    lines = ["| Thread | Does | When | Who waits for it | Gives way |", "|---|---|---|---|---|"]
    lines += [
        f"| `{one.name}` | {one.does} | {one.when} | {one.waits} | {one.gives_way} |" for one in WORKERS
    ]
    lines += ["", "| Chore | Every | Who waits for it |", "|---|---|---|"]
    for task in CHORES:
        every = (
            f"{task.every_seconds:g} s" if task.every_seconds < 3600 else f"{task.every_seconds / 3600:g} h"
        )
        lines.append(f"| {task.name} | {every} | {task.waits} |")
    return "\n".join(lines) + "\n"


def classes_table() -> str:
    """Every public class of the package: its room and first words."""
    package, found = DOCS.parent / "src" / "cairn", []
    for file in sorted(package.rglob("*.py")):
        room = file.relative_to(package).with_suffix("").as_posix().removesuffix("/__init__")
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                found.append((node.name, room, _first_words(node)))
    rows = [f"| `{name}` | `{room}` | {words} |" for name, room, words in sorted(found)]
    return "\n".join(["| Class | Module | What it is |", "|---|---|---|", *rows]) + "\n"


def _first_words(node: ast.ClassDef) -> str:
    """The first sentence of a class's docstring; of a strategy without one, what it is for."""
    told = ast.get_docstring(node) or next(
        ast.literal_eval(line.value)
        for line in node.body
        if isinstance(line, ast.Assign) and ast.unparse(line.targets[0]) == "purpose"
    )
    words = " ".join(told.partition("\n\n")[0].split())
    return re.split(r"(?<=[.:;])\s", words)[0].rstrip(".:;").replace("|", "\\|")


def made() -> dict[str, str]:
    """File name -> the text it should have."""
    document = json.dumps(describe(ROUTES, VERSIONS), indent=1, ensure_ascii=False) + "\n"
    return {
        "openapi.json": document,
        "settings.md": settings_page(),
        "architecture.md": with_reference("architecture.md", background_table()),
        "glossary.md": with_reference("glossary.md", classes_table()),
        "cli.md": with_reference("cli.md", cli_reference()),
        "http.md": with_reference("http.md", http_reference()),
        "python.md": python_page(),
    }


def main(argv: list[str]) -> int:
    """Write each file, or with `--check` say which of them is not as it should be."""
    drifted = [
        name
        for name, text in made().items()
        if not (DOCS / name).exists() or (DOCS / name).read_text(encoding="utf-8") != text
    ]
    if "--check" in argv:
        for name in drifted:
            print(f"docs/{name} is not what the code says: run `make docs` and commit it")
        return 1 if drifted else 0
    for name, text in made().items():
        (DOCS / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
