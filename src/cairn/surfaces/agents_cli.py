"""The subcommands for coding agents: the MCP server, and what is written into other programs."""

from __future__ import annotations

import argparse
import difflib
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from cairn.agents.hosts import HOSTS
from cairn.errors import Invalid
from cairn.surfaces.command import Command, CommandCall
from cairn.surfaces.output import Output
from cairn.wording import counted

if TYPE_CHECKING:
    from cairn.agents.integrate import HostChange

_LONGEST = 300
_DOES = {  # hosts that do less than capture and recall
    "cursor": "Turns are captured by themselves. It recalls by its tools alone: its hooks take no context.",
    "opencode": "It has its tools, and no hooks: nothing is captured or recalled by itself.",
}
_TRUST = "Codex runs no hook before you have accepted it: open its hooks view (/hooks) once and accept these."


def _integrate_arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "host",
        choices=[*HOSTS, "off", "on"],
        metavar="HOST",
        help="claude, codex, cursor, gemini or opencode; off or on for the repository you stand in",
    )
    command.add_argument("--user", action="store_true", help="for all your projects (the default)")
    command._optionals.conflict_handler = "resolve"  # noqa: SLF001 -- here --project says where, not which
    command.add_argument(
        "--project", dest="in_project", action="store_true", help="for the repository you stand in alone"
    )
    command.add_argument(
        "--notes", action="store_true", help="also add a block of text to AGENTS.md or CLAUDE.md"
    )
    command.add_argument("--dry-run", action="store_true", help="only show what would change")
    command.add_argument("--remove", action="store_true", help="take back exactly what was written")


def mcp(args: argparse.Namespace | None, _output: Output) -> int:
    """Serve one host until it hangs up."""
    from cairn.surfaces import mcp_server

    return mcp_server.main(None if args is None else args.root)


def integrate(call: CommandCall) -> int:
    """Show what changes in which files, then write it."""
    args, output = call.args, call.output
    from cairn.agents import integrate as plans
    from cairn.config import load
    from cairn.engines import spool
    from cairn.project.git import top_of

    here = top_of(Path.cwd())
    if args.host in {"off", "on"}:
        return _switch(here, args.host, output)
    if args.user and args.in_project:
        raise Invalid("--user and --project: say one of them.", field="project")
    project = here if args.in_project else None
    if project is not None and not args.remove:
        _check_apart(project, "leave --project out to set it up for all your projects")
    settings = load(args.root)
    at = plans.receipt_path(settings.root, args.host, project)
    left: list[str] = []
    if args.remove:
        changes, left = plans.planned_removal(plans.read_receipt(at, args.host))
    else:
        # What a repository holds is for everybody who works there: a program is named, not its place on this machine.
        program = "cairn" if args.in_project else plans.program(shutil.which("cairn"), Path(sys.prefix))
        place = plans.HostPlace(Path.home(), project, os.environ, program)
        of_this_shell = settings.origins.get("memory.root", "").startswith("environment") and not project
        root = str(settings.root) if args.root or of_this_shell else None
        entries = plans.wanted(args.host, place, root, notes=args.notes)
        changes = plans.planned(entries, plans.known(at))
        for path, command in plans.beside(entries, changes):
            output.note(
                f"cairn: {path} also runs `{command}`, which was not written for this memory: take it out by hand if it "
                f"is not wanted."
            )
        for path, setting in plans.switched_off(args.host, entries):
            output.note(
                f"cairn: {path} has {setting}, so {args.host} runs no hooks: nothing is captured or recalled by itself "
                "until that is changed."
            )
    if args.remove and not args.dry_run:
        plans.write(changes)
        if not left:
            at.unlink(missing_ok=True)
    elif changes and not args.dry_run:
        spool.prepared(settings.root)
        plans.apply(changes, at)
    _tell(args, output, changes, left)
    if not args.remove and args.host != "opencode":  # which has no hooks
        _say_twice(args, plans.other_places(settings.root, args.host, project), output)
    if not output.as_json and not args.remove:
        output.line(_after(args, settings.root))
    return 1 if left else 0


def _say_twice(args: argparse.Namespace, others: int, output: Output) -> None:
    """A host runs the hooks of its user and of a repository; of the same command some run only one."""
    if not others:
        return
    place, undone = "for all your projects", f"cairn integrate {args.host} --remove"
    if not args.in_project:
        place, undone = (
            f"in {counted(others, 'repository')}",
            f"cairn integrate {args.host} --project --remove",
        )
    output.note(
        f"{args.host} is set up {place}, too: where both hold, its hooks may run twice, and what is recalled stands there "
        f"twice. Keep one: `{undone}`{'' if args.in_project else ' in the repository'} takes the other back."
    )


def _after(args: argparse.Namespace, root: Path) -> str:
    what = _DOES.get(args.host, "Turns are captured, and what fits a prompt is recalled, by themselves.")
    if args.in_project:
        return (
            f"Whoever starts {args.host} there needs `cairn` on the PATH; here the memory is {root}. {what}"
        )
    when = "Then" if args.dry_run else "From its next session on"
    return f"{when} {args.host} has the memory {root}. {what}"


def _tell(args: argparse.Namespace, output: Output, changes: list[HostChange], left: list[str]) -> None:
    if output.as_json:
        files = [{"path": str(one.path), "diff": _diff(one)} for one in changes]
        output.value({"host": args.host, "written": not args.dry_run, "files": files, "left": left})
        return
    for change in changes:
        output.line(_diff(change))
    what = "would be changed" if args.dry_run else "changed"
    output.line(f"{counted(len(changes), 'file')} {what}." if changes else "Nothing to change.")
    for path in left:
        output.note(
            f"cairn: {path} no longer holds what was written there as it was: look at it and take it out by hand."
        )
    if args.host == "codex" and changes and not args.remove:
        output.line(_TRUST)


def _diff(change: HostChange) -> str:
    old = (change.before or "").splitlines()
    new = (change.after or "").splitlines()
    name = str(change.path)
    lines = difflib.unified_diff(
        old,
        new,
        name if change.before is not None else "/dev/null",
        name if change.after is not None else "/dev/null",
        n=1,
        lineterm="",
    )
    return "\n".join(line if len(line) <= _LONGEST else line[:_LONGEST] + " …" for line in lines)


def _check_apart(here: Path, instead: str) -> None:
    """A home folder is no repository: what is written there would count for everything below it."""
    if here.resolve() == Path.home().resolve():
        raise Invalid(f"{here} is your home folder: go to the repository, or {instead}.", path=str(here))


def _switch(here: Path, to: str, output: Output) -> int:
    """Leave a file in the repository that every hook and server looks for, or take it away."""
    from cairn.agents.hook import OFF_SWITCH

    at = here / OFF_SWITCH
    if to == "off":
        _check_apart(here, "`cairn integrate HOST --remove` switches an agent off for all your projects")
        at.parent.mkdir(exist_ok=True)
        at.touch()
    else:
        at.unlink(missing_ok=True)
    if output.as_json:
        output.value({"folder": str(here), "memory": to})
    else:
        output.line(f"Agents' memory is {to} in {here}.")
    return 0


COMMANDS = (
    Command("mcp", run=lambda call: mcp(call.args, call.output)),
    Command("integrate", more=_integrate_arguments, run=integrate),
)
