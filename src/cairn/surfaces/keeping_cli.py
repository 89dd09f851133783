"""The subcommands that keep memories in order: sweep, consolidate, mission, core, skills, refresh."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid
from cairn.surfaces.commands import opened, space_of
from cairn.surfaces.memories_cli import one_command, place_of, scope_options
from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.surfaces.cli import Commands

CORE_FIELDS = {
    "summary": "projectSummary",
    "conventions": "criticalConventions",
    "preferences": "userPreferences",
    "focus": "activeFocus",
    "notes": "notes",
}


def add_commands(commands: Commands) -> None:
    """Declare every subcommand of this module."""
    command = commands.add(
        "sweep", sweep, "decay, demote, promote and archive what is due; refresh the pages"
    )
    command.add_argument("--dry-run", action="store_true", help="only say what would happen")
    command = commands.add(
        "consolidate",
        consolidate,
        "merge memories that say nearly the same; every run can be undone",
        examples="  cairn consolidate --dry-run\n  cairn consolidate --undo con_0123456789ab",
    )
    scope_options(command)
    command.add_argument("--dry-run", action="store_true", help="only say what would be merged")
    command.add_argument("--undo", metavar="RUN", help="take this run back")
    mission = commands.group("mission", "runs of an agent and what they learn")
    command = mission.add(
        "end",
        mission_end,
        "end a run: what it learned goes to the project, or is put away",
        examples="  cairn mission end run-42 --success",
    )
    command.add_argument("run_id", metavar="RUN", help="the run id: the owner of its memories")
    outcome = command.add_mutually_exclusive_group(required=True)
    outcome.add_argument("--success", dest="success", action="store_true")
    outcome.add_argument("--failure", dest="success", action="store_false")
    core = commands.group("core", "the small document an agent always has before it")
    command = core.add("show", core_show, "the core memory of the project, or of an agent")
    command.add_argument("--agent", default="", metavar="ID")
    command = core.add(
        "set",
        core_set,
        "set one field of the core memory; its version grows",
        examples='  cairn core set summary "A parser for tide tables."\n'
        '  cairn core set conventions "Tabs" "Tests beside modules"\n'
        '  cairn core set focus --add "the 2.0 release"',
    )
    command.add_argument("field", choices=[*CORE_FIELDS])
    command.add_argument("text", nargs="+", help='the summary, or the items of the list; "" empties it')
    command.add_argument("--add", action="store_true", help="add to the list instead of replacing it")
    command.add_argument("--agent", default="", metavar="ID")
    skills = commands.group("skills", "procedures as SKILL.md files")
    command = skills.add("list", skills_list, "the skill files that are known")
    command.add_argument("--archived", action="store_true", help="those that are gone too")
    command = skills.add(
        "scan", skills_scan, "take in new and changed skills", examples="  cairn skills scan ~/.claude/skills"
    )
    command.add_argument("folder", nargs="*", help="folders besides the root's own skills")
    command = one_command(skills, "export", skills_export, "write a procedure as a SKILL.md")
    command.add_argument("--to", metavar="DIR", help="also copy it to DIR/<name>/SKILL.md")
    command = skills.add("import", skills_import, "take one SKILL.md in as a procedure")
    command.add_argument("file", help="a SKILL.md, or the folder it is in")
    commands.add("refresh", refresh, "make the pages agents read at start anew: MEMORY.md and its topics")


def sweep(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept

    with opened(args, reading=True) as memory, output.progress("sweeping"):
        done = kept.sweep(memory.memories.sweep(dry_run=args.dry_run, **space_of(args)))
    output.value(done)
    counts = ", ".join(
        f"{done[f'entries_{name}']} {name}"
        for name in ("decayed", "demoted", "promoted", "archived", "orphaned")
    )
    output.line(f"{'Would be' if args.dry_run else 'Swept'}: {counts}.")
    for move in done["transitions"]:
        output.line(f"  {move['move']}  {move['id']}  {move['reason']}")
    return 0


def consolidate(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept

    with opened(args, reading=True) as memory:
        if args.undo:
            restored = memory.memories.undo_consolidation(args.undo, **space_of(args))
            output.value({"run_id": args.undo, "restored": restored})
            output.line(f"{restored} memories are as they were before {args.undo}.")
            return 0
        done = kept.consolidation(memory.memories.consolidate(dry_run=args.dry_run, **place_of(args)))
    output.value(done)
    for one in done["merged"]:
        output.line(f"{one['category']}: {', '.join(one['originals'])} -> {one['new_id'] or '(dry run)'}")
    if not done["merged"]:
        output.line("Nothing to merge.")
    elif not args.dry_run:
        output.line(f"Undo with `cairn consolidate --undo {done['run_id']}`.")
    return 0


def mission_end(args: argparse.Namespace, output: Output) -> int:
    from dataclasses import asdict

    with opened(args, reading=True) as memory:
        done = asdict(memory.memories.end_mission(args.run_id, success=args.success, **space_of(args)))
    output.value(done)
    output.line(
        f"{len(done['promoted'])} memories went to the project, {len(done['archived'])} were archived."
    )
    if done["already"]:
        output.line("The mission had ended before; nothing was done.")
    return 0


def core_show(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        document = memory.memories.core(args.agent, **space_of(args))
    return _say_core(document, output)


def _say_core(document: Mapping[str, Any], output: Output) -> int:
    output.value(dict(document))
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


def core_set(args: argparse.Namespace, output: Output) -> int:
    name = CORE_FIELDS[args.field]
    if args.field == "summary" and args.add:
        raise Invalid("The summary is one text; --add is for lists.", field="add")
    with opened(args) as memory:
        value: Any = " ".join(args.text) if args.field == "summary" else list(args.text)
        if args.add:
            value = [*memory.memories.core(args.agent, **space_of(args))[name], *value]
        document = memory.memories.set_core(args.agent, **space_of(args), **{name: value})
    return _say_core(document, output)


def skills_list(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        rows = [
            row for row in memory.memories.skills(**space_of(args)) if args.archived or not row["archived_at"]
        ]
    output.value({"skills": [dict(row) for row in rows]})
    output.table(
        ("kind", "memory", "path"), [(row["kind"], row["memory_id"] or "", row["path"]) for row in rows]
    )
    if not rows:
        output.line("No skills are known; `cairn skills scan FOLDER` looks for them.")
    return 0 if rows else 1


def skills_scan(args: argparse.Namespace, output: Output) -> int:
    with opened(args) as memory:
        report = memory.memories.scan_skills(args.folder, **space_of(args))
    return _say_scan(report, output)


def _say_scan(report: Any, output: Output) -> int:
    from cairn.surfaces import kept

    done = kept.scan(report)
    output.value(done)
    counts = ", ".join(f"{len(done[name])} {name}" for name in ("added", "changed", "removed", "unchanged"))
    output.line(f"{counts}.")
    for item in done["refused"]:
        output.line(f"refused: {item['path']}: {item['reason']}", style="bold")
    return 1 if done["refused"] else 0


def skills_export(args: argparse.Namespace, output: Output) -> int:
    from pathlib import Path

    with opened(args, reading=True) as memory:
        key = memory.memories.export_skill(args.id, **place_of(args))
        written = memory.settings.root / key
        copy = Path(args.to).expanduser() / Path(key).parent.name / "SKILL.md" if args.to else None
        if copy is not None:
            if copy.exists() and copy.read_bytes() != written.read_bytes():
                raise Invalid(f"{copy} is there already and differs; move it first.", path=str(copy))
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(written.read_bytes())
    output.value({"path": key, "copy": str(copy) if copy else None})
    output.line(str(copy or written))
    return 0


def skills_import(args: argparse.Namespace, output: Output) -> int:
    with opened(args) as memory:
        report = memory.memories.import_skill(args.file, **space_of(args))
    return _say_scan(report, output)


def refresh(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept

    with opened(args, reading=True) as memory:
        done = kept.pages(memory.memories.refresh(**space_of(args)))
    output.value(done)
    output.line(f"{len(done['written'])} pages written, {len(done['unchanged'])} were current.")
    for item in done["edited"]:
        output.line(f"edited by hand: {item['page']}; kept as {item['kept_as']}", style="bold")
    return 0
