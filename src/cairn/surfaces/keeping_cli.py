"""The commands that keep memories in order: sweep, consolidate, mission, core, skills, refresh."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from cairn.errors import Invalid
from cairn.operations.keeping import Keeping
from cairn.surfaces.command import Command, CommandCall, outcome
from cairn.surfaces.output import Output

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
    output = call.output
    with call.opened() as memory:
        rows = [row for row in call.ask(memory)["skills"] if call.args.archived or not row["archived_at"]]
    output.value({"skills": rows})
    output.table(
        ("kind", "memory", "path"), [(row["kind"], row["memory_id"] or "", row["path"]) for row in rows]
    )
    if not rows:
        output.line("No skills are known; `cairn skills scan FOLDER` looks for them.")
    return 0 if rows else 1


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


def say_days(data: Any, output: Output) -> int:
    for day, lines in data["days"].items():
        output.line(day, style="bold")
        for line in lines:
            output.line(line)
    return 0 if any(data["days"].values()) else 1


COMMANDS = (
    Command("agents list", Keeping.agents),
    Command("agents show", Keeping.agent, positional="agent"),
    Command("agents set", Keeping.set_agent, positional="agent", reading=False),
    Command(
        "agents write",
        Keeping.set_agent_document,
        positional="agent document text+",
        reading=False,
    ),
    Command("runs", Keeping.runs),
    Command("daily add", Keeping.note_day, say_days, positional="text+", reading=False),
    Command("daily show", Keeping.daily, say_days),
    Command("capture add", Keeping.capture, positional="source_type source_key text+", reading=False),
    Command("capture list", Keeping.captures),
    Command("sweep", Keeping.sweep, progress="sweeping"),
    Command("consolidate", Keeping.consolidate),
    Command("mission end", Keeping.end_mission, positional="run_id", **outcome("it reached its goal")),
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
        positional="memory_id",
        also={"--to": {"metavar": "DIR", "help": "also copy it to DIR/<name>/SKILL.md"}},
        run=skills_export,
    ),
    Command("skills import", Keeping.import_skill, positional="path?", reading=False),
    Command("refresh", Keeping.refresh),
)
