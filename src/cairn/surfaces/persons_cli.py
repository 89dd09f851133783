"""The commands for all of a person or a session: person, session."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from cairn.errors import Conflict, Invalid
from cairn.operations.persons import Persons
from cairn.surfaces.command import Command, CommandCall, after_a_look
from cairn.surfaces.output import Output

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


def forget(call: CommandCall) -> int:
    return after_a_look(call, _confirm, _say, _say)


def _confirm(told: Any, output: Output) -> None:
    if not sys.stdin.isatty():
        raise Invalid("Forgetting cannot be undone: look with --dry-run, then say --yes.", field="yes")
    _say(told, output)
    output.note("This cannot be undone. Go on? [y/N] ")
    if sys.stdin.readline().strip().lower() not in {"y", "yes"}:
        raise Invalid("Nothing was forgotten.", field="yes")


def _say(receipt: Any, output: Output) -> None:
    output.line("Would go:" if receipt["dry_run"] else f"Forgotten, {receipt['at']}:", style="bold")
    for name, count in receipt["removed"].items():
        output.line(f"      {count} {name}")
    for name in receipt["sessions"]:
        output.line(f"      session {json.dumps(name, ensure_ascii=False)}")
    for item in receipt["stays"]:
        output.line(f"stays: {item['where']}: {item['why']}")


COMMANDS = (
    Command("person export", Persons.export_person, positional="user_id", also=_TO, run=export),
    Command("person forget", Persons.forget_person, positional="user_id", also=_YES, run=forget),
    Command("session export", Persons.export_session, positional="session_id", also=_TO, run=export),
    Command("session forget", Persons.forget_session, positional="session_id", also=_YES, run=forget),
)
