"""The commands about single memories (remember, and memories list, search, show, edit, forget and so on) and about all of a
person or a session.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from cairn.engines.ade import is_database, rows_text
from cairn.errors import Conflict, Invalid, NotFound
from cairn.operations.keeping import Keeping
from cairn.operations.memories import Remember, Single
from cairn.operations.persons import Persons
from cairn.surfaces.command import Command, CommandCall, after_a_look, outcome, text_of
from cairn.surfaces.output import Output, rounded
from cairn.surfaces.talk_cli import as_prompt_argument, fill_prompt
from cairn.wording import short


def _from_standard_input(_args: argparse.Namespace, fields: dict[str, Any]) -> None:
    if fields["content"] == "-":
        fields["content"] = sys.stdin.read()


def say_row(row: Any, output: Output) -> None:
    output.line(f"{row['id']}  ({row['category']}, {row['status']}, tier {row['tier']})", style="bold")
    output.block(str(row["content"]))
    hidden = {"id", "content", "category", "status", "tier", "dedupe_key"}
    output.fields(
        {
            name: rounded(value)
            for name, value in row.items()
            if name not in hidden and value not in {None, ""}
        }
    )


def why(call: CommandCall) -> int:
    with call.opened() as memory:
        return call.command.say({"id": call.fields["memory_id"], **call.ask(memory)}, call.output)


# ---------------------------------------------------------------- forget and import


def forget(call: CommandCall) -> int:
    if call.fields["memory_id"] is None and not call.fields["words"]:
        raise Invalid("Say what to forget: an id, or --words.", field="id")
    return after_a_look(call, _say_preview, _say_receipt)


def _say_receipt(receipt: Any, output: Output) -> None:
    output.line(f"Forgotten: {receipt['id']}, {receipt['at']}", style="bold")
    for name, count in receipt["removed"].items():
        output.line(f"      {count} {name}")
    for place in receipt["places"]:
        output.line(f"      {place}")
    _say_alike(receipt, output.line)
    for item in receipt["left"]:
        output.line(f"NOT removed: {item['where']}: {item['why']}", style="bold")


def _say_preview(told: Mapping[str, Any], say: Callable[[str], None]) -> None:
    say("This goes:" if told["taken"] else "Nothing goes.")
    for one in told["taken"]:
        say(f"  {one['id']} ({one['owner']}, {one['why']}): {short(one['words'])}")
    _say_alike(told, say)


def _say_alike(told: Mapping[str, Any], say: Callable[[str], None]) -> None:
    if told["alike"]:
        say("This is similar and stays; --also ID removes one of them, --similar all:")
    for one in told["alike"]:
        say(f"  {one['id']} ({one['owner']}, {one['why']}): {short(one['words'])}")


def _read_file(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    path = Path(args.file).expanduser()
    if fields["source"] == "claude" and path.is_dir():
        fields["text"] = _folder(path)
    elif fields["source"] == "ade" and path.is_file() and is_database(path):
        fields["text"] = rows_text(path)
    else:
        fields["text"] = text_of(args.file)
        if not fields["text"]:
            raise Invalid(f"{args.file} is empty: there is nothing to bring in.", file=args.file)


def _folder(at: Path) -> str:
    """The notes of a memory folder as one text; nothing in it is changed."""
    from cairn.governed.migrate import folder_text

    files = sorted(path for path in at.rglob("*.md") if path.is_file())
    if not files:
        raise NotFound(f"{at}: there is no note in this folder.", file=str(at))
    return folder_text((str(path.relative_to(at)), text_of(str(path))) for path in files)


# ---------------------------------------------------------------- all of a person or a session

_TO = {"--to": {"metavar": "FILE", "help": "write it there as JSON, readable by you alone"}}


def export(call: CommandCall) -> int:
    with call.opened() as memory:
        found = call.ask(memory)
    text = json.dumps(found, ensure_ascii=False, indent=2) + "\n"
    if not call.args.to:
        sys.stdout.write(text)
        return 0
    place = Path(call.args.to).expanduser()
    try:
        file = os.open(place, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        raise Conflict(f"{place} is there already. Choose another name.", target=str(place)) from None
    with open(file, "w", encoding="utf-8", errors="replace") as target:
        target.write(text)
    call.output.value({"target": str(place), "bytes": len(text.encode("utf-8", "replace"))})
    call.output.line(str(place))
    return 0


_YES = {"--yes": "do not ask; needed where nobody can answer"}


def forget_whole(call: CommandCall) -> int:
    return after_a_look(call, _say_whole, lambda receipt, output: _say_whole(receipt, output.line))


def _say_whole(receipt: Mapping[str, Any], say: Callable[[str], None]) -> None:
    say("Would go:" if receipt["dry_run"] else f"Forgotten, {receipt['at']}:")
    for name, count in receipt["removed"].items():
        say(f"      {count} {name}")
    for name in receipt["sessions"]:
        say(f"      session {json.dumps(name, ensure_ascii=False)}")
    for item in receipt["stays"]:
        say(f"stays: {item['where']}: {item['why']}")


COMMANDS = (
    Command("memories outcome", Single.outcome, **outcome("it worked")),
    Command("memories procedure", Single.procedure),
    Command(
        "remember",
        Remember.remember,
        short={"pinned": "--pin", "procedure": "--steps"},
        fill=_from_standard_input,
        reading=False,
    ),
    Command("memories list", Single.list),
    Command("memories search", Single.search, more=as_prompt_argument, fill=fill_prompt),
    Command("memories show", Single.show, say_row),
    Command("memories edit", Single.edit, say_row, short={"procedure": "--steps"}),
    Command("memories supersede", Single.supersede, positional="memory_id content+"),
    Command("memories pin", Single.pin, say_row),
    Command("memories unpin", Single.unpin, say_row),
    Command("memories archive", Single.archive, say_row),
    Command("memories restore", Single.restore, say_row),
    Command("memories promote", Single.promote, say_row),
    Command(
        "memories forget",
        Single.forget,
        positional="memory_id?",
        also={
            "--yes": "do not ask; needed where nobody can answer",
            "--also-alike": {
                "dest": "similar",
                "action": "store_const",
                "const": True,
                "help": "the same as --similar",
            },
        },
        run=forget,
    ),
    Command(
        "memories import",
        Keeping.import_from,
        positional="",
        without="text",
        short={"source": "--from", "owner": "--user"},
        also={"file": {"help": "the export; - for standard input; of claude also its memory folder"}},
        fill=_read_file,
        reading=False,
    ),
    Command("memories history", Single.history, bare="history"),
    Command("memories why", Single.why, run=why),
    Command("person export", Persons.export_person, also=_TO, run=export),
    Command("person forget", Persons.forget_person, also=_YES, run=forget_whole),
    Command("session export", Persons.export_session, also=_TO, run=export),
    Command("session forget", Persons.forget_session, also=_YES, run=forget_whole),
)
