"""The commands that keep memories in order: sweep, consolidate, mission, core, skills, refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.errors import Invalid
from cairn.operations.keeping import Keeping
from cairn.surfaces.command import Command, CommandCall, outcome

CORE_FIELDS = {
    "summary": "projectSummary",
    "conventions": "criticalConventions",
    "preferences": "userPreferences",
    "focus": "activeFocus",
    "notes": "notes",
}


# ---------------------------------------------------------------- core memory


def core_set(call: CommandCall) -> int:
    args, name = call.args, CORE_FIELDS[call.args.field]
    if args.field == "summary" and args.add:
        raise Invalid("The summary is one text; --add is for lists.", field="add")
    with call.opened() as memory:
        value: Any = " ".join(args.text) if args.field == "summary" else list(args.text)
        if args.add:
            value = [*memory.memories.core(**call.fields)[name], *value]
        call.fields[name] = value
        return call.command.say(call.ask(memory), call.output)


# ---------------------------------------------------------------- skills


def skills_list(call: CommandCall) -> int:
    with call.opened() as memory:
        rows = [row for row in call.ask(memory)["skills"] if call.args.archived or not row["archived_at"]]
    return call.command.say({"skills": rows}, call.output)


def skills_export(call: CommandCall) -> int:
    with call.opened() as memory:
        key = call.ask(memory)["path"]
        written = memory.settings.root / key
    copy = Path(call.args.to).expanduser() / Path(key).parent.name / "SKILL.md" if call.args.to else None
    if copy is not None:
        if copy.exists() and copy.read_bytes() != written.read_bytes():
            raise Invalid(f"{copy} is there already and differs; move it first.", path=str(copy))
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(written.read_bytes())
    call.output.value({"path": key, "copy": str(copy) if copy else None})
    call.output.line(str(copy or written))
    return 0


COMMANDS = (
    Command("agents list", Keeping.agents),
    Command("agents show", Keeping.agent),
    Command("agents set", Keeping.set_agent, reading=False),
    Command("agents write", Keeping.set_agent_document, reading=False),
    Command("runs", Keeping.runs),
    Command("daily add", Keeping.note_day, reading=False),
    Command("daily show", Keeping.daily),
    Command("capture add", Keeping.capture, reading=False),
    Command("capture list", Keeping.captures),
    Command("sweep", Keeping.sweep, progress="sweeping"),
    Command("consolidate", Keeping.consolidate),
    Command("mission end", Keeping.end_mission, **outcome("it reached its goal")),
    Command("core show", Keeping.core),
    Command(
        "core set",
        Keeping.set_core,
        without=" ".join(CORE_FIELDS.values()),
        also={
            "field": {"choices": [*CORE_FIELDS], "help": "which field"},
            "text": {"nargs": "+", "help": 'the summary, or the items of the list; "" empties it'},
            "--add": "add to the list instead of replacing it",
        },
        run=core_set,
        reading=False,
    ),
    Command("skills list", Keeping.skills, also={"--archived": "those that are gone too"}, run=skills_list),
    Command("skills scan", Keeping.scan_skills, positional="folders*", reading=False),
    Command(
        "skills export",
        Keeping.export_skill,
        also={"--to": {"metavar": "DIR", "help": "also copy it to DIR/<name>/SKILL.md"}},
        run=skills_export,
    ),
    Command("skills import", Keeping.import_skill, positional="path?", reading=False),
    Command("refresh", Keeping.refresh),
)
