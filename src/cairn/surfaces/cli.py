"""The command line: it mirrors the library, call for call.

    cairn add --session s1 --sender alice "I moved to Lisbon in May."
    cairn flush --session s1
    cairn search --user alice "where does she live"

`--root --app --project --json` are accepted before and after the subcommand. Exit codes: 0 done, 1 nothing
found or refused with a reason, 2 bad input, 3 not found, 4 conflict, 5 unavailable now, 6 misconfigured.
"""

from __future__ import annotations

import argparse
import difflib
import gc
import importlib
import io
import logging
import os
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from cairn.engines import quiet
from cairn.errors import CairnError, Conflict, Invalid, Misconfigured, NotFound, Unavailable
from cairn.surfaces.command import Command, command_words, current_folder, settings_for
from cairn.surfaces.output import Output
from cairn.systems import check as check_system
from cairn.version import VERSION
from cairn.wording import words_of_system

EXIT_CODES: Sequence[tuple[type[CairnError], int]] = (
    (NotFound, 3),
    (Conflict, 4),
    (Unavailable, 5),
    (Misconfigured, 6),
    (Invalid, 2),
    (CairnError, 1),
)


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are errors like all others: one sentence, JSON where JSON was asked for."""

    def error(self, message: str) -> NoReturn:
        wrong = re.match(r"argument COMMAND: invalid choice: '(.*?)' \(choose from (.*)\)", message)
        if wrong:
            meant = _near(wrong[1], re.findall(r"[\w-]+", wrong[2]), f"{self.prog} ")
            message = f'`{self.prog}` has no command "{wrong[1][:60]}"{meant}'
        else:
            message += "."
        raise Invalid(f"{message} See `{self.prog} --help`.", field="arguments")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """As usual, but what no command takes is told by the name of the command that does not take it."""
        found, left = self.parse_known_args(args, namespace)
        if left:
            command = f"cairn {found.run.name}"
            wrong = left[0].partition("=")[0]
            if wrong.startswith("-"):
                flags = [flag for one in _leaf(self, command)._actions for flag in one.option_strings]  # noqa: SLF001 -- argparse tells them nowhere else
                told = f"has no option {wrong[:60]}{_near(wrong, flags)}"
            else:
                told = f'takes no further words, as "{left[0][:60]}"; what it takes besides goes by options.'
            raise Invalid(f"`{command}` {told} See `{command} --help`.", field="arguments")
        return found

    def format_help(self) -> str:
        """The usual help; where all commands are listed, by what they are for."""
        text = super().format_help()
        start, end = text.find("positional arguments:\n  COMMAND\n"), text.find("\noptions:")
        if self.prog != "cairn" or start < 0:
            return text
        helps = {one.dest: one.help or "" for one in _sub(self)._choices_actions}  # noqa: SLF001 -- argparse tells them nowhere else
        width = max(40, shutil.get_terminal_size().columns - 2)
        lines = [
            line
            for title, names in GROUPS.items()
            for line in (f"{title}:", *(_entry(name, helps[name], width) for name in names.split()), "")
        ]
        return text[:start] + "\n".join(lines) + text[end:]


def _sub(parser: argparse.ArgumentParser) -> Any:
    return next((one for one in parser._actions if isinstance(one, argparse._SubParsersAction)), None)  # noqa: SLF001 -- as above


def _leaf(parser: argparse.ArgumentParser, command: str) -> argparse.ArgumentParser:
    """The parser of a command, by all its words."""
    for word in command.split()[1:]:
        parser = _sub(parser).choices[word]
    return parser


def _entry(name: str, words: str, width: int) -> str:
    return textwrap.fill(words, width, initial_indent=f"  {name:<12}", subsequent_indent=" " * 14)


def _near(word: str, known: Iterable[str], before: str = "") -> str:
    near = next(iter(difflib.get_close_matches(word, list(known), 1)), "")
    return f". Did you mean `{before}{near}`?" if near else "."


class Commands:
    """Collects subcommands; each gets the global options, so that they may stand on either side."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self._commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)

    def add(self, name: str, help_text: str, examples: Sequence[str] = ()) -> argparse.ArgumentParser:
        """Make the subcommand `name`, or a group of its own subcommands."""
        return self._commands.add_parser(
            name,
            help=help_text,
            description=help_text[:1].upper() + help_text[1:] + ".",
            epilog="\n  ".join(["examples:", *examples]) if examples else None,
            formatter_class=argparse.RawDescriptionHelpFormatter,
            parents=[_global_options()],
        )


def _global_options() -> argparse.ArgumentParser:
    options = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    shared = options.add_argument_group("everywhere")
    shared.add_argument(
        "--root", metavar="DIR", help="the memory root (default ~/.cairn, or CAIRN_MEMORY__ROOT)"
    )
    shared.add_argument("--app", metavar="ID", help='the app id (default "default")')
    shared.add_argument(
        "--project",
        metavar="ID",
        help='the project id (default "default"); . for the repository you stand in',
    )
    shared.add_argument("--json", action="store_true", help="print one JSON value")
    return options


# Where each command is declared, in the order of the help: only the module of the one that is called is loaded.
HOMES = {
    name: module
    for module, names in (
        ("talk_cli", "init demo add flush search recall brief get show tasks task reextract"),
        ("browse_cli", "open owners timeline upcoming find linked connections revise"),
        ("memories_cli", "memories remember"),
        ("knowledge_cli", "knowledge"),
        ("keeping_cli", "agents runs daily capture sweep consolidate mission core skills refresh"),
        ("upkeep_cli", "status cascade ome config model doctor server export backup import log diff fold restore undo"),
        ("upkeep_cli", "move pull push token audit"),
        ("memories_cli", "person session"),
        ("project_cli", "project"),
        ("agents_cli", "mcp integrate"),
    )
    for name in names.split()
}  # fmt: skip
# The same by what they are for: what `cairn --help` shows.
GROUPS = {
    "everyday": "init demo add flush remember search recall brief show",
    "coding agents and repositories": "integrate mcp project",
    "look around": "open owners timeline upcoming find get linked connections daily knowledge",
    "put right, undo, forget": "revise memories log diff restore undo person session",
    "how it stands": "status doctor tasks task runs config model",
    "serve and carry": "server token audit export backup import move pull push",
    "tend": "agents capture core skills mission sweep consolidate refresh reextract cascade ome fold",
}
# Loggers whose warnings a person reads at once: settings that were not taken, another program's files, databases set aside.
_FOR_PEOPLE = ("cairn.settings", "cairn.carried", "cairn.index")
# Words that people type, and the command that does it: they are taken as if that had been typed.
SAME = {
    "health": "doctor",
    "list": "memories list",
    "ls": "memories list",
    "forget": "memories forget",
    "why": "memories why",
    "delete": "memories forget",
    "remove": "memories forget",
    "rm": "memories forget",
    "edit": "memories edit",
    "history": "log",
    "reindex": "cascade rebuild",
    "rebuild": "cascade rebuild",
    "sync": "cascade sync",
    "cat": "show",
    "query": "search",
    "ask": "recall",
    "serve": "server start",
    "start": "server start",
    "settings": "config show",
    "checkpoint": "log --mark",
    "checkpoints": "log --checkpoints",
    "tokens": "token list",
}


def build_parser(only: str = "", *, with_words: bool = True) -> argparse.ArgumentParser:
    """The command line; with `only` the part of it that begins with that command. Words are for who reads its help."""
    parser = Parser(
        prog="cairn",
        description="Long-term memory for AI agents that a person can read.",
        epilog='first steps:\n  cairn demo                      a guided tour in a temporary folder\n  cairn init                      make ~/.cairn with commented settings\n  cairn add --session s1 --sender alice "I moved to Lisbon in May."\n  cairn flush --session s1\n  cairn search --user alice "where does Alice live"',
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_global_options()],
    )
    parser.add_argument("--version", action="version", version=f"cairn {VERSION}")
    table = Commands(parser)
    for name, module in HOMES.items():
        if only in ("", name):
            commands = importlib.import_module(f"cairn.surfaces.{module}").COMMANDS
            _declare(table, [one for one in commands if one.name.partition(" ")[0] == name], with_words)
    return parser


def _declare(table: Commands, commands: Iterable[Command], with_words: bool) -> None:
    """Hang commands into the command line, and groups where the first of them is."""
    groups: dict[str, Commands] = {"": table}

    def group(name: str) -> Commands:
        if name not in groups:
            above, _, last = name.rpartition(" ")
            groups[name] = Commands(group(above).add(last, command_words()[name][0] if with_words else ""))
        return groups[name]

    for command in commands:
        above, _, last = command.name.rpartition(" ")
        told = (command.help, command_words()[command.name][1:]) if with_words else ("",)
        parser = group(above).add(last, *told)
        parser.set_defaults(run=command)
        command.declare(parser)


def _have_streams() -> None:
    """Whoever closed ours (`>&-`, a daemon) wants to hear and say nothing."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115 -- as long as the process


def command_in(given: Sequence[str]) -> str:
    """The first word of a command line that is neither a global option nor its value."""
    words = iter(given)
    for word in words:
        if word in {"--root", "--app", "--project"}:
            next(words, None)
        elif not word.startswith("-"):
            return word
    return ""


def _unknown(word: str) -> Invalid:
    return Invalid(
        f'There is no command "{word[:60]}"{_near(word, (*HOMES, *SAME), "cairn ")} See `cairn --help`.',
        field="command",
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    quiet.hush()
    quiet.alone()
    given = sys.argv[1:] if argv is None else list(argv)
    if given[:1] == ["hook"] or (given[:1] == ["--root"] and given[2:3] == ["hook"]):
        from cairn.agents import quick

        return quick.run([word for word in given if word != "hook"])
    _have_streams()
    if given == ["mcp"]:
        # A host waits for the first answer: the parser of everything else is not built.
        from cairn.surfaces import agents_cli

        return _run(lambda output: agents_cli.mcp(None, output), Output(as_json=False))
    if argv is None:
        gc.set_threshold(
            50_000, 10, 10
        )  # a process of our own: looking for garbage while it imports is a tenth of its start
        if isinstance(sys.stdout, io.TextIOWrapper):
            # An argument of bytes that are no text may have to be said again; in JSON this is a valid escape.
            sys.stdout.reconfigure(errors="backslashreplace")
    if not given:
        build_parser().print_help()
        return 2
    word = command_in(given)
    if word == "help":  # of whichever command follows
        at = given.index(word)
        given = [*given[:at], *given[at + 1 :], "--help"]
        word = command_in(given)
    if word.lower() in SAME:
        at = given.index(word)
        given = [*given[:at], *SAME[word.lower()].split(), *given[at + 1 :]]
        word = given[at]
    if not word and "--version" in given:
        print(f"cairn {VERSION}")
        return 0
    try:
        check_system()
        if word and word not in HOMES:
            raise _unknown(word)
        wants_help = any(one == "-h" or (len(one) > 2 and "--help".startswith(one)) for one in given)
        args = build_parser(word, with_words=wants_help or not word).parse_args(given)
    except (Invalid, Misconfigured) as error:
        return _report(error, Output(as_json="--json" in given))
    for name, default in {"root": None, "app": "default", "project": "default", "json": False}.items():
        if not hasattr(args, name):
            setattr(args, name, default)
    output = Output(as_json=args.json)
    logging.basicConfig(level=logging.ERROR, format="%(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    for name in _FOR_PEOPLE:
        logging.getLogger(name).setLevel(logging.WARNING)
    return _run(lambda out: _in_space(args, out), output)


def _in_space(args: argparse.Namespace, output: Output) -> int:
    """Run the command in the space that is meant; where it finds nothing there, say that the repository's is another."""
    if args.project == ".":
        args.app, args.project = _space_here(args)
    is_general = args.project == "default"
    try:
        code: int = args.run(args, output)
    except NotFound:
        if is_general:
            _point_out(args, output)
        raise
    if code == 1 and is_general:
        _point_out(args, output)
    return code


def _space_here(args: argparse.Namespace) -> tuple[str, str]:
    from cairn.projects import space_at
    from cairn.types import Space

    space = space_at(current_folder())
    if space == Space():
        raise Invalid(
            "--project . is the repository you stand in, and there is none here: go to one, or name the project.",
            field="project",
        )
    return space.app if args.app == "default" else args.app, space.project


def _point_out(args: argparse.Namespace, output: Output) -> None:
    """Agents' talk in a repository lies in its own space, where a person who stands there would look for it."""
    command = args.run
    if output.as_json or not command.reading or not command.asks_a_space:
        return
    from cairn.notes.kinds import space_locator
    from cairn.projects import space_at
    from cairn.types import Space

    space = space_at(current_folder())
    if space != Space() and (settings_for(args).root / space_locator(space).key).is_dir():
        output.note(f"This repository has a memory of its own, {space.project}: add `--project .` to ask it.")


def _run(run: Callable[[Output], int], output: Output) -> int:
    """Run a command; every error is one sentence and an exit code."""
    try:
        code = run(output)
        sys.stdout.flush()
        return code
    except CairnError as error:
        return _report(error, output)
    except BrokenPipeError:
        # The reader of our output went away (`cairn search ... | head -1`): that is not an error.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        gone = "The folder you stand in is no longer there: go to another."
        is_gone = not error.filename and _stands_nowhere()
        return _report(Unavailable(gone if is_gone else words_of_system(error)), output)
    except KeyboardInterrupt:
        return 130


def _stands_nowhere() -> bool:
    """Whether the current folder was removed; it can be looked at all the same, and has no name."""
    try:
        os.getcwd()
    except FileNotFoundError:
        return True
    return False


def _report(error: CairnError, output: Output) -> int:
    code = next(number for kind, number in EXIT_CODES if isinstance(error, kind))
    if output.as_json:
        facts: dict[str, Any] = {name: str(value) for name, value in error.facts.items()}
        output.value({"error": {"type": type(error).__name__, "message": str(error), "facts": facts}})
    else:
        output.note(f"cairn: {error}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
