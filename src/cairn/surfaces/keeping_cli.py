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


def say_swept(done: Any, output: Output) -> None:
    counts = ", ".join(
        f"{done[f'entries_{name}']} {name}"
        for name in ("decayed", "demoted", "promoted", "archived", "orphaned")
    )
    output.line(f"{'Would be' if done['dry_run'] else 'Swept'}: {counts}.")
    for move in done["transitions"]:
        output.line(f"  {move['move']}  {move['id']}  {move['reason']}")


def say_consolidated(done: Any, output: Output) -> None:
    for one in done["merged"]:
        output.line(f"{one['category']}: {', '.join(one['originals'])} -> {one['new_id'] or '(dry run)'}")
    if not done["merged"]:
        output.line("Nothing to merge.")
    elif not done["dry_run"]:
        output.line(f"Undo with `cairn undo {done['run_id']}`.")


def say_ended(done: Any, output: Output) -> None:
    output.line(
        f"{len(done['promoted'])} memories went to the project, {len(done['archived'])} were archived."
    )
    if done["already"]:
        output.line("The mission had ended before; nothing was done.")


# ---------------------------------------------------------------- core memory


def say_core(document: Any, output: Output) -> int:
    if not document["version"]:
        output.line('There is no core memory yet: `cairn core set summary "..."` begins it.')
        return 1
    for short, name in CORE_FIELDS.items():
        value = document[name]
        output.line(f"{short}:", style="bold")
        for item in [value] if isinstance(value, str) else value:
            output.block(str(item))
    output.line(f"version {document['version']}, {document['updatedAt']}")
    return 0


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


def say_scanned(done: Any, output: Output) -> int:
    counts = ", ".join(f"{len(done[name])} {name}" for name in ("added", "changed", "removed", "unchanged"))
    output.line(f"{counts}.")
    for item in done["refused"]:
        output.line(f"refused: {item['path']}: {item['reason']}", style="bold")
    return 1 if done["refused"] else 0


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


def say_pages(done: Any, output: Output) -> None:
    output.line(f"{len(done['written'])} pages written, {len(done['unchanged'])} were current.")
    for item in done["edited"]:
        output.line(f"edited by hand: {item['page']}; kept as {item['kept_as']}", style="bold")


def say_captured(data: Any, output: Output) -> int:
    if data["captured"]:
        memory = data["verdict"]["memory"]
        output.line(f"kept as {memory['status']}: {memory['content']}  ({memory['id']})")
        return 0
    output.line(f"nothing was kept: {data['reason']}")
    return 1


def say_captures(data: Any, output: Output) -> int:
    for row in data["captures"]:
        output.line(
            f"{row['created_at'][:16]}  {row['source_type']}  {row['source_key']}  {row['memory_id'] or '-'}"
        )
    output.line(f"{len(data['captures'])} of {data['total']}")
    return 0 if data["total"] else 1


def say_agents(data: Any, output: Output) -> int:
    for one in data["agents"]:
        output.line(f"{one['id']}: {one['name']}")
    if not data["agents"]:
        output.line("No agent has an identity: `cairn agents set AGENT --name ...` gives it one.")
    return 0 if data["agents"] else 1


def say_agent(data: Any, output: Output) -> None:
    for name, value in (data["identity"] or {}).items():
        if value:
            output.line(f"{name}: {value}")
    for name, text in data["documents"].items():
        output.line(f"{name}.md", style="bold")
        output.block(text)


def say_document(data: Any, output: Output) -> None:
    output.line(f"{data['path']} {'is written.' if data['lsn'] else 'says so already.'}")


def say_runs(data: Any, output: Output) -> int:
    swept, merged = data["last_sweep"], data["last_consolidation"]
    output.line(f"last sweep: {swept['completed_at'] if swept else 'never'}")
    output.line(f"last consolidation: {merged['completed_at'] if merged else 'never'}")
    for run in data["runs"]:
        undone = f", undone {run['undone_at']}" if run["undone_at"] else ""
        output.line(f"{run['run_id']}  {run['at']}  {run['kind']}, {run['entries']} changes{undone}")
    return 0 if swept or merged or data["runs"] else 1


def say_days(data: Any, output: Output) -> int:
    for day, lines in data["days"].items():
        output.line(day, style="bold")
        for line in lines:
            output.line(line)
    return 0 if any(data["days"].values()) else 1


COMMANDS = (
    Command("agents list", Keeping.agents, say_agents),
    Command("agents show", Keeping.agent, say_agent, positional="agent"),
    Command("agents set", Keeping.set_agent, "{id}: {name}", positional="agent", reading=False),
    Command(
        "agents write",
        Keeping.set_agent_document,
        say_document,
        positional="agent document text+",
        reading=False,
    ),
    Command("runs", Keeping.runs, say_runs),
    Command("daily add", Keeping.note_day, say_days, positional="text+", reading=False),
    Command("daily show", Keeping.daily, say_days),
    Command(
        "capture add", Keeping.capture, say_captured, positional="source_type source_key text+", reading=False
    ),
    Command("capture list", Keeping.captures, say_captures),
    Command("sweep", Keeping.sweep, say_swept, progress="sweeping"),
    Command("consolidate", Keeping.consolidate, say_consolidated),
    Command(
        "mission end", Keeping.end_mission, say_ended, positional="run_id", **outcome("it reached its goal")
    ),
    Command("core show", Keeping.core, say_core),
    Command(
        "core set",
        Keeping.set_core,
        say_core,
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
    Command("skills scan", Keeping.scan_skills, say_scanned, positional="folders*", reading=False),
    Command(
        "skills export",
        Keeping.export_skill,
        positional="memory_id",
        also={"--to": {"metavar": "DIR", "help": "also copy it to DIR/<name>/SKILL.md"}},
        run=skills_export,
    ),
    Command("skills import", Keeping.import_skill, say_scanned, positional="path?", reading=False),
    Command("refresh", Keeping.refresh, say_pages),
)
