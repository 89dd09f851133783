"""Commands from the table of operations: the options of one are the fields of its operation.

A `Command` says what the table cannot know: what it is called, which field stands without an option, short forms, and
how the answer is printed; `commands.toml` has its help and examples, `printed.toml` the lines of most answers. Everything else (options, types, choices, defaults)
is the operation's. Commands that are about this machine and no operation (`init`, `server start`) bring their own arguments.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

from cairn.canonical import from_json
from cairn.errors import Invalid, NotFound
from cairn.shipped import tables_of
from cairn.surfaces.output import Output, printed, printed_lines

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.memory import Memory
    from cairn.operations.table import Field, Operation

SHORT = {
    "user_id": "--user",
    "agent_id": "--agent",
    "mission_id": "--mission",
    "session_id": "--session",
    "run_id": "--run",
    "file_scope_pattern": "--files",
}
EVERYWHERE = {"app_id": "app", "project_id": "project"}
WHO = {*SHORT, "owner", "token"} - {"file_scope_pattern"}
"""Fields that name somebody or something: an option for one of them that is left empty is refused, not taken for all."""
PROSE = frozenset({"query", "question", "content", "text"})
"""Texts that are typed as words, without quotes around them."""
STEPS = "procedure"
"""A text that may be given line by line: the option again for each step."""
PERSONAL = {"user": "a user's", "agent": "an agent's", "mission": "a mission's"}
"""Scopes that an option of their own names with their owner, as for commands that know no others."""


@dataclass
class CommandCall:
    """One call of a command: the parsed arguments, the fields of its operation, and where to print."""

    args: argparse.Namespace
    fields: dict[str, Any]
    output: Output
    command: Command

    def opened(self) -> Memory:
        """The memory of this call's root."""
        return opened(self.args, reading=self.command.reading)

    def ask(self, memory: Memory) -> Any:
        """Run the operation; its answer as data. Where no owner was named, the person of the settings is meant."""
        owners = self.command.one_of.split()
        if owners and not any(self.fields[name] for name in owners):
            self.fields[owners[0]] = memory.settings.memory.person
        return told(memory, self.command.operation, self.fields)


Prints = Callable[[Any, Output], "int | None"]


@dataclass(frozen=True)
class Command:
    """One command.

    Attributes:
        name: What is typed, with its group: "memories list".
        method: The operation it calls.
        prints: Shows the answer and returns the exit code (None for 0), where `printed.toml` does not have its lines.
        positional: Fields that stand without an option, where these are others than those that are needed, in their order;
            each with its number as argparse takes it: "folders*".
        short: Other names for options.
        one_of: Fields of which at most one is given; the first is the person of the settings where none is.
        without: Fields that `more` arguments stand for.
        also: Arguments that are no fields: the words of a switch, or what argparse takes.
        more: Declares such arguments where they depend on each other.
        fill: Fills in fields from those.
        run: Does it another way than "call the operation, print its answer".
        reading: It needs a root that is there, and never makes one.
        progress: What is said while it runs.
        bare: The field of the answer that `--json` prints alone.
    """

    name: str
    method: Callable[..., Any] | None = None
    prints: Prints | None = None
    positional: str | None = None
    short: Mapping[str, str] = field(default_factory=dict)
    one_of: str = ""
    without: str = ""
    also: Mapping[str, str | Mapping[str, Any]] = field(default_factory=dict)
    more: Callable[[argparse.ArgumentParser], None] | None = None
    fill: Callable[[argparse.Namespace, dict[str, Any]], None] | None = None
    run: Callable[[CommandCall], int] | None = None
    reading: bool = True
    progress: str = ""
    bare: str = ""

    @property
    def operation(self) -> Operation:
        """The row of the table it stands for."""
        row: Operation = self.method.operation  # type: ignore[union-attr]
        return row

    @property
    def fields(self) -> list[Field]:
        """The fields that are options here."""
        if self.method is None:
            return []
        return [one for one in self.operation.fields if one.name not in (*EVERYWHERE, *self.without.split())]

    @property
    def asks_a_space(self) -> bool:
        """Whether it looks into one space alone; `recall` and `brief` look where one stands by themselves."""
        names = {one.name for one in self.operation.fields} if self.method is not None else set()
        return "project_id" in names and "folder" not in names

    @property
    def help(self) -> str:
        """One line of help; the operation's first sentence where `commands.toml` has none."""
        if told := command_words()[self.name][0]:
            return told
        told = self.operation.summary.rstrip(".")
        return told[:1].lower() + told[1:]

    def declare(self, parser: argparse.ArgumentParser) -> None:
        """Give the parser its arguments."""
        fields = {one.name: one for one in self.fields}
        for word in self._positional:
            name = word.rstrip("?+*")
            _positional(parser, fields.pop(name), word.removeprefix(name))
        group = parser.add_mutually_exclusive_group() if self.one_of else None
        for name, one in fields.items():
            is_one = name in self.one_of.split()
            flag = self.short.get(name) or flag_of(name)
            _option(group if is_one else parser, one, flag, needed=not is_one)
        for scope in self._personal:
            words = f"{PERSONAL[scope]}: short for --scope {scope} --owner"
            parser.add_argument(f"--{scope}", dest=f"of_{scope}", metavar="TEXT", action=_Named, help=words)
        self.declare_others(parser)

    @property
    def _positional(self) -> list[str]:
        """The fields that stand without an option, each with its number."""
        from cairn.operations.table import REQUIRED

        if self.positional is not None:
            return self.positional.split()
        return [
            one.name + "+" * (one.name in PROSE or _is_series(one))
            for one in self.fields
            if one.default is REQUIRED
        ]

    def declare_others(self, parser: argparse.ArgumentParser) -> None:
        """Give the parser the arguments that are no fields."""
        for name, told in self.also.items():
            options = {"action": "store_true", "help": told} if isinstance(told, str) else told
            parser.add_argument(name, **options)
        if self.more is not None:
            self.more(parser)

    @property
    def _personal(self) -> list[str]:
        """The scopes that have an option of their own here, where a scope and its owner are told."""
        names = {one.name for one in self.fields}
        return [one for one in PERSONAL if names >= {"scope", "owner"} and f"{one}_id" not in names]

    def __call__(self, args: argparse.Namespace, output: Output) -> int:
        call = CommandCall(args, self._fields(args), output, self)
        if self.fill is not None:
            self.fill(args, call.fields)
        if self.run is not None:
            return self.run(call)
        with call.opened() as memory, output.progress(self.progress) if self.progress else nullcontext():
            data = call.ask(memory)
        return say_prompt(data, output) if getattr(args, "as_prompt", False) else self.say(data, output)

    def say(self, data: Any, output: Output) -> int:
        """Print an answer; the exit code."""
        output.value(data[self.bare] if self.bare else data)
        if self.prints is not None:
            return self.prints(data, output) or 0
        return printed(printed_lines(self.name), data, output)

    def _fields(self, args: argparse.Namespace) -> dict[str, Any]:
        found = {one.name: _given(one, getattr(args, one.name)) for one in self.fields}
        defaults = {one.name: one.default for one in self.fields}
        named = {
            scope: owner for scope in self._personal if (owner := getattr(args, f"of_{scope}")) is not None
        }
        for scope, owner in named.items():
            if len(named) > 1 or found["owner"] or found["scope"] not in {defaults["scope"], scope}:
                others = [f"--{one}" for one in named if one != scope] or ["--scope", "--owner"]
                raise Invalid(f"--{scope} says whose it is: leave out {' and '.join(others)}.", field=scope)
            found |= {"scope": scope, "owner": owner}
        if self.method is not None:
            for one in self.operation.fields:
                if one.name in EVERYWHERE:
                    value = getattr(args, EVERYWHERE[one.name])
                    found[one.name] = one.default if value == "default" else value
        return found


@cache
def command_words() -> dict[str, list[str]]:
    """What each command and group of commands is for, and examples after it."""
    return tables_of(Path(__file__).with_name("commands.toml"))


def told(memory: Memory, row: Operation, fields: dict[str, Any]) -> Any:
    """Run an operation on an open memory; its answer as data."""
    room = row.room_in(memory)
    return row.told(room, row.call(room, **fields), fields)


def flag_of(name: str) -> str:
    """The option of a field."""
    return SHORT.get(name) or "--" + name.replace("_", "-")


def _positional(parser: argparse.ArgumentParser, one: Field, number: str) -> None:
    choices = _choices(one)
    more: dict[str, Any] = {"nargs": number} if number else {}
    if number == "?":
        more["default"] = one.default
    parser.add_argument(
        one.name, help=_help(one), choices=choices, metavar=None if choices else one.wire, **more
    )


def _option(home: Any, one: Field, flag: str, *, needed: bool) -> None:
    from cairn.operations.table import REQUIRED

    kinds = _kinds(one)
    if bool in kinds:
        if one.default is True:
            flag = flag.replace("--", "--no-", 1)
        shown = "switch off: " if one.default is True else ""
        const = one.default is not True
        home.add_argument(
            flag,
            dest=one.name,
            action="store_const",
            const=const,
            default=one.default,
            help=shown + one.says.words,
        )
        return
    choices = _choices(one)
    options: dict[str, Any] = {"dest": one.name, "help": _help(one)}
    if one.default is REQUIRED:
        options["required"] = needed
    else:
        options["default"] = one.default
    if choices is not None:
        options |= {"choices": choices, "type": type(choices[0])}
    elif one.name == STEPS or _is_series(one):
        # A default of its own: argparse would add to the one the operation shares with everybody.
        options |= {"action": "append", "metavar": "TEXT", "default": None}
    elif any(get_origin(kind) is Mapping for kind in kinds):
        options["metavar"] = "JSON"
    else:
        number = next((kind for kind in (int, float) if kind in kinds), None)
        if one.name in WHO:
            options["action"] = _Named
        options |= {"type": number or str, "metavar": "N" if number is int else "X" if number else "TEXT"}
    home.add_argument(flag, **options)


class _Named(argparse.Action):
    """Takes a name. An empty one is a variable that was not set more often than a wish for everybody."""

    def __call__(
        self, _parser: Any, args: argparse.Namespace, value: Any, _option: str | None = None
    ) -> None:
        if not value:
            raise argparse.ArgumentError(self, "the name is empty: name one, or leave the option out")
        setattr(args, self.dest, value)


def _kinds(one: Field) -> tuple[Any, ...]:
    from cairn.operations.check import options_of

    return options_of(one.type)


def _is_series(one: Field) -> bool:
    return any(get_origin(kind) is Sequence for kind in _kinds(one))


def _choices(one: Field) -> list[Any] | None:
    return next((list(get_args(kind)) for kind in _kinds(one) if get_origin(kind) is Literal), None)


def _help(one: Field) -> str:
    from cairn.operations.table import REQUIRED

    shown = one.default not in (REQUIRED, None, "", (), -1) and not isinstance(one.default, bool)
    words = one.says.words + (f" (default {one.default})" if shown else "")
    return words.replace("%", "%%") + ("; again for each step" if one.name == STEPS else "")


def _given(one: Field, value: Any) -> Any:
    """An argument as the operation takes it: words as one text, JSON as a value, a list where none was given."""
    kinds = _kinds(one)
    if one.name == STEPS and isinstance(value, list) and len(value) > 1:
        return "\n".join(f"{number}. {step}" for number, step in enumerate(value, 1))
    if isinstance(value, list) and str in kinds:
        return " ".join(value)
    if _is_series(one):
        return list(value) if value is not None else one.default
    if isinstance(value, str) and any(get_origin(kind) is Mapping for kind in kinds):
        return json_value(value, flag_of(one.name))
    return value


# ---------------------------------------------------------------- what commands share


def say_prompt(data: Any, output: Output) -> int:
    """What was found as text for an agent's context, of a command with `--as-prompt`."""
    output.value(data)
    output.line(data["prompt"])
    return 0 if data["prompt"] else 1


def outcome(words: str) -> dict[str, Any]:
    """What a command needs whose `success` is told by --success, in these words, or --failure."""

    def declare(parser: argparse.ArgumentParser) -> None:
        how = parser.add_mutually_exclusive_group(required=True)
        how.add_argument("--success", dest="success", action="store_true", help=words)
        how.add_argument("--failure", dest="success", action="store_false", help="it did not")

    def fill(args: argparse.Namespace, fields: dict[str, Any]) -> None:
        fields["success"] = args.success

    return {"without": "success", "more": declare, "fill": fill}


def after_a_look(
    call: CommandCall,
    preview: Callable[[Any, Callable[[str], None]], None],
    prints: Callable[[Any, Output], None],
) -> int:
    """What cannot be undone: a dry run first, shown before a person is asked, unless --yes was said, then the receipt."""
    output, fields = call.output, call.fields
    with call.opened() as memory:
        if fields["dry_run"] or not call.args.yes:
            call.fields = {**fields, "dry_run": True}
            looked = call.ask(memory)
            if fields["dry_run"]:
                output.value(looked)
                preview(looked, output.line)
                return 0
            if output.as_json or not sys.stdin.isatty():
                told = "Forgetting cannot be undone: look with --dry-run, then say --yes where nobody can be asked."
                raise Invalid(told, field="yes")
            preview(looked, output.note)
            output.note("There is no undo. Go on? [y/N] ")
            if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
                raise Invalid("Nothing was forgotten.", field="yes")
        call.fields = fields
        receipt = call.ask(memory)
    output.value(receipt)
    prints(receipt, output)
    return 0 if receipt["complete"] else 1


def settings_for(args: argparse.Namespace) -> Settings:
    from cairn.config import load

    return load(args.root)


def current_folder() -> str:
    """Where one stands; "" where that folder is no more."""
    try:
        return str(Path.cwd())
    except FileNotFoundError:
        return ""


def opened(args: argparse.Namespace, *, reading: bool = False) -> Memory:
    """The memory of this call's root. A lone call does its own indexing; beside a server it leaves that to it.

    Raises:
        NotFound: the call only reads (`reading`) and there is no such root. A misspelt name makes no folder. Of a
            memory in a bucket the root is this machine's own folder, which a first look makes.
    """
    from cairn.memory import Memory

    settings = settings_for(args)
    if reading and not settings.storage.url and not settings.root.exists():
        raise NotFound(
            f"There is no memory at {settings.root}: `cairn init` makes one, --root names another.",
            root=settings.root,
        )
    return Memory(settings, background=False)


def json_value(text: str, what: str) -> dict[str, Any]:
    """A JSON object that stands in an argument."""
    try:
        value = from_json(text)
    except ValueError as error:
        raise Invalid(f"{what} is not JSON: {error}.", field=what) from None
    if not isinstance(value, dict):
        raise Invalid(f"{what} must be a JSON object.", field=what)
    return value


def text_of(name: str) -> str:
    """The text of a file named on the command line; - is standard input."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).expanduser().read_bytes()
        return raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise NotFound(f"{name}: there is no such file.", file=name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{name}: cannot be read as UTF-8 text ({error}).", file=name) from None
