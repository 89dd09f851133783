"""`cairn project ...`: commands as thin calls of the library.

`add_commands` hangs them into the main command line. The library is imported by the command that needs it. Run as a module, this is also the background runner of `automate start`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import CairnError, Unavailable
from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.project.consolidate import Plan
    from cairn.project.imports import Capture
    from cairn.project.project import ProjectChange, ProjectMemory
    from cairn.seams import Writer
    from cairn.surfaces.cli import Commands, Run
    from cairn.types import Message, Space


def open_project(
    folder: Path, *, writer: Writer | None = None, capture: Capture | None = None
) -> ProjectMemory:
    """The memory of the work tree that `folder` belongs to, on the local file system."""
    from cairn import projects

    return projects.open_project(folder, writer=writer, capture=capture)


# ---------------------------------------------------------------- the parser


def add_commands(commands: Commands) -> None:
    """Declare `project` and what is below it."""
    project = commands.group("project", "memory of the repository you stand in")
    _add_project(project)
    _add_automate(project.group("automate", "import, consolidate and prune in the background"))


def _in_tree(commands: Commands, name: str, run: Run, text: str) -> argparse.ArgumentParser:
    parser = commands.add(name, run, text)
    parser.add_argument("-C", "--dir", default=".", metavar="DIR", help="the work tree (default: here)")
    return parser


def _add_project(commands: Commands) -> None:
    from cairn.project.options import POLICIES, SECTION_NAMES, SOURCE_SCOPES

    init = _in_tree(commands, "init", _init, "read the repository and set up its memory")
    init.add_argument("--force", action="store_true", help="start anew: the old record is removed")
    _in_tree(commands, "update", _update, "read the repository again; what was learned stays")
    record = _in_tree(commands, "record", _record, "add one event: what was done or learned")
    record.add_argument("summary", help="what happened, in a sentence")
    for flag, key, text in (
        ("--decision", "decisions", "something that was decided"),
        ("--gotcha", "gotchas", "a trap: `topic: what goes wrong. Use the way around.`"),
        ("--next", "nextStepHints", "a task (`NEXT: title: why`), or one that is done (`DONE: title`)"),
        ("--path", "keyPaths", "a file or folder it was about"),
        ("--check", "validationObservations", "the result of a check"),
    ):
        record.add_argument(flag, dest=key, action="append", default=[], metavar="TEXT", help=text)
    fold = _in_tree(commands, "consolidate", _consolidate, "fold new events into the bundle")
    fold.add_argument("--section", choices=SECTION_NAMES, help="change this section only")
    fold.add_argument("--source", choices=SOURCE_SCOPES, help="whose events")
    fold.add_argument("--policy", choices=POLICIES, help="what may change, and from what")
    fold.add_argument("--yes", action="store_true", help="apply without asking")
    fold.add_argument("--diff", action="store_true", default=None, help="show the diffs too")
    fold.add_argument("--dry-run", action="store_true", help="show the preview only")
    ask = _in_tree(commands, "query", _query, "ask about the repository")
    ask.add_argument("question", nargs="+", help="in your words")
    ask.add_argument("--scope", choices=["state", "history", "all"], default="all", help="where to look")
    state = _in_tree(commands, "status", _status, "what waits, what drifted, what to do next")
    state.add_argument(
        "--checkpoint", metavar="ID", help="compare with this checkpoint instead of the newest"
    )
    _in_tree(commands, "validate", _validate, "check the record; exit code 1 if something fails")
    sources = commands.group("sources", "where sessions are imported from")
    add = _in_tree(sources, "add", _sources_add, "register a folder of sessions")
    add.add_argument("type", choices=["claude-local", "codex-local", "jsonl"], help="whose format")
    add.add_argument("path", help="the folder, or one file")
    _in_tree(sources, "list", _sources_list, "list the registered folders")
    _in_tree(sources, "remove", _sources_remove, "forget a folder; what was imported stays").add_argument(
        "id"
    )
    take = _in_tree(commands, "import", _import, "import sessions, each once for ever")
    take.add_argument("ids", nargs="*", metavar="SOURCE", help="sources to import (default: all)")
    take.add_argument("--all", action="store_true", help="import every registered source (the default)")
    take.add_argument("--capture", action="store_true", help="remember what was said in the memory root too")
    take.add_argument(
        "--user", default="me", metavar="ID", help='whose prompts they are, with --capture (default "me")'
    )
    prune = _in_tree(commands, "prune", _prune, "archive old, consolidated history; expire old archives")
    prune.add_argument("--dry-run", action="store_true", help="say what would leave")
    back = _in_tree(
        commands, "restore", _project_restore, "bring back a checkpoint's bundle or an archive batch"
    )
    back.add_argument("id", help="chk-000001, or prune-<time>")


def _add_automate(commands: Commands) -> None:
    _in_tree(commands, "start", _automate_start, "start the runner of this work tree")
    _in_tree(commands, "stop", _automate_stop, "stop it")
    _in_tree(commands, "status", _automate_status, "is it running, and how did the last run go")
    _in_tree(commands, "run-once", _automate_once, "one cycle, here and now")
    _in_tree(commands, "ensure-running", _automate_start, "start it unless it runs already")


# ---------------------------------------------------------------- saying it


def _say(output: Output, value: Any, text: str) -> None:
    output.value(value)
    output.line(text)


def _project(args: argparse.Namespace) -> ProjectMemory:
    return open_project(Path(args.dir), writer=getattr(args, "writer", None))


def _say_written(output: Output, written: ProjectChange) -> None:
    changed = ", ".join(written.changed) or "nothing"
    lines = [
        f"{written.summary}: {written.checkpoint_id}, changed {changed}.",
        *(f"  {note}" for note in written.notes),
    ]
    _say(output, written.to_json(), "\n".join(lines))


def _init(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    _say_written(output, project.init(force=args.force))
    output.line("Read docs/cairn/README.md; commit .cairn and docs/cairn when they look right.")
    return 0


def _update(args: argparse.Namespace, output: Output) -> int:
    _say_written(output, _project(args).update())
    return 0


def _record(args: argparse.Namespace, output: Output) -> int:
    keys = ("decisions", "gotchas", "nextStepHints", "keyPaths", "validationObservations")
    event = _project(args).record(args.summary, {key: getattr(args, key) for key in keys})
    _say(output, event.to_json(), f"Recorded {event.id}: {event.summary}")
    return 0


def _consolidate(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    show = args.diff if args.diff is not None else project.options.get("recall.preview.showDiffByDefault")

    def confirm(plan: Plan) -> bool:
        output.line(_preview(plan, diffs=bool(show)))
        if args.dry_run:
            return False
        if args.yes:
            return True
        if not sys.stdin.isatty():
            return False
        return input("Apply? [y/N] ").strip().lower() in {"y", "yes"}

    plan, written = project.consolidate(
        section=args.section, source=args.source, policy=args.policy, confirm=confirm
    )
    value = {
        "noop": plan.is_noop,
        "applied": written is not None,
        "summary": plan.summary,
        "diffs": plan.diffs,
    }
    told = "Not applied. Use --yes to apply without asking."
    if plan.is_noop:
        told = "Nothing to recall."
    elif written:
        told = f"Applied as {written.checkpoint_id}."
    _say(output, {**value, "written": written.to_json() if written else None}, told)
    return 0


def _preview(plan: Plan, *, diffs: bool) -> str:
    told = plan.summary
    lines = [
        f"{len(plan.events)} events from {plan.source}; would change: {', '.join(told['changedSections'])}."
    ]
    for label, key in (
        ("new gotcha", "addedGotchas"),
        ("merged gotcha", "mergedGotchas"),
        ("dropped gotcha", "removedGotchas"),
        ("new step", "addedNextSteps"),
        ("merged step", "mergedNextSteps"),
        ("dropped step", "removedNextSteps"),
    ):
        lines += [f"  {label}: {item}" for item in told[key]]
    if told["protectedSections"]:
        lines.append(f"  left as they are: {', '.join(told['protectedSections'])}")
    if diffs:
        lines += [f"\n{diff}" for diff in plan.diffs.values()]
    return "\n".join(lines)


def _query(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    result = project.query(" ".join(args.question), scope=args.scope)
    if project.options.get("query.defaultOutput") == "json":
        output = Output(as_json=True)
    lines = [result.answer, ""]
    for number, citation in enumerate(result.citations, start=1):
        where = citation.projectionPath or citation.sourceId
        if f"[{number}]" in result.answer or not result.enough:
            part = f" ({citation.pathOrSection})" if citation.pathOrSection != where else ""
            lines.append(f"  [{number}] {where}{part}")
    if result.mode == "next" and not result.enough:
        lines.append(
            'Nothing is noted as a next step. Note one: cairn project record "..." --next "NEXT: title: why".'
        )
    _say(output, result.to_json(), "\n".join(lines).rstrip())
    return 0 if result.enough else 1


def _status(args: argparse.Namespace, output: Output) -> int:
    value = _project(args).status(checkpoint=args.checkpoint)
    waiting = value["backlog"]
    lines = [
        f"{value['state']['latestCheckpointId']} of {value['state']['generatedAt'][:16]}, {value['state']['events']} events",
        f"backlog: {waiting['all']['count']} (local {waiting['local']['count']}, imports {waiting['imports']['count']})",
        *(f"  {group['events'][0]}..: {group['summary']}" for group in value["groups"][:5]),
        *(f"source {source['id']}: {source['lastSyncStatus']}" for source in value["sources"]),
        f"drift: {value['drift']['summary']}",
        f"retention: {value['retention']['prunableEvents']} events and {value['retention']['prunableCheckpoints']} checkpoints may be archived",
        *(f"note: {problem}" for problem in value["problems"]),
        f"-> {value['suggestedAction']}",
    ]
    _say(output, value, "\n".join(lines))
    return 0


def _validate(args: argparse.Namespace, output: Output) -> int:
    findings = _project(args).validate()
    failed = [finding for finding in findings if finding.status == "fail"]
    lines = [f"{finding.status:4} {finding.code}: {finding.message}" for finding in findings]
    _say(
        output, {"ok": not failed, "findings": [finding.to_json() for finding in findings]}, "\n".join(lines)
    )
    return 1 if failed else 0


def _sources_add(args: argparse.Namespace, output: Output) -> int:
    source = _project(args).add_source(args.type, Path(args.path))
    _say(output, source.to_json(), f"Added {source.id}: {source.path}")
    return 0


def _sources_list(args: argparse.Namespace, output: Output) -> int:
    sources = _project(args).sources()
    lines = [f"{source.id}  {source.type}  {source.lastSyncStatus}  {source.path}" for source in sources]
    _say(output, [source.to_json() for source in sources], "\n".join(lines) or "No sources.")
    return 0


def _sources_remove(args: argparse.Namespace, output: Output) -> int:
    source = _project(args).remove_source(args.id)
    _say(output, source.to_json(), f"Removed {source.id}.")
    return 0


def _import(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    show = not output.as_json and sys.stderr.isatty()

    def progress(done: int, total: int, name: str) -> None:
        width = 30 * done // max(total, 1)
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r[{'#' * width}{'.' * (30 - width)}] {done}/{total} {name[:40]:40}{end}")
        sys.stderr.flush()

    with ExitStack() as stack:
        if args.capture:
            project = open_project(Path(args.dir), capture=_remembering(args, project.space, stack))
        reports = project.import_(args.ids, capture=args.capture, progress=progress if show else None)
    lines = []
    for report in reports:
        told = report.to_json()
        lines.append(
            f"{report.source}: {told['imported']} new, {told['grown']} grown, {told['known']} known, "
            f"{told['elsewhere']} of other projects, {told['failed']} failed"
        )
        lines += [f"  {item['path']}: {item['error']}" for item in told["failures"]]
        lines += [f"  {report.error}"] if report.error else []
    _say(
        output,
        [report.to_json() for report in reports],
        "\n".join(lines) or "No sources: add one with `cairn project sources add`.",
    )
    return 1 if any(report.first_error for report in reports) else 0


def _remembering(args: argparse.Namespace, space: Space, stack: ExitStack) -> Capture:
    """A capture that adds a session's messages to the memory root, in the repository's own space."""
    from dataclasses import replace

    from cairn.canonical import text_hash
    from cairn.surfaces.command import opened

    memory = stack.enter_context(opened(args))
    sessions: set[str] = set()

    def flush_all() -> None:
        for item in sorted(sessions):
            memory.flush(item, space.app, space.project)

    stack.callback(flush_all)

    def keep(item: str, messages: Sequence[Message]) -> None:
        said = [
            replace(message, id="", sender_id=args.user if message.role == "user" else message.sender_id)
            for message in messages
        ]
        # The same stretch told twice (a crash between here and the event) is one stretch.
        key = text_hash("\0".join(f"{message.timestamp} {message.text}" for message in said))[:32]
        memory.add(item, said, space.app, space.project, idempotency_key=key)
        sessions.add(item)

    return keep


def _prune(args: argparse.Namespace, output: Output) -> int:
    plan, batch = _project(args).prune(dry_run=args.dry_run)
    value = {**plan.to_json(), "batch": batch, "dryRun": args.dry_run}
    text = f"{len(plan.events)} events, {len(plan.checkpoints)} checkpoints, {len(plan.expired)} old batches"
    _say(
        output,
        value,
        f"{'Would archive' if args.dry_run else 'Archived'} {text}{f' into {batch}' if batch else ''}.",
    )
    return 0


def _project_restore(args: argparse.Namespace, output: Output) -> int:
    _say_written(output, _project(args).restore(args.id))
    return 0


# ---------------------------------------------------------------- automation


def _runner_status(project: ProjectMemory) -> dict[str, Any]:
    from cairn.project.automate import runner_status

    return runner_status(project.record_.storage, project.locks)


def _automate_status(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    project.record_.require()
    value = _runner_status(project)
    run = value["latestRun"]
    text = f"running (pid {value['pid']})" if value["running"] else "not running"
    _say(output, value, f"{text}; last run: {run['status'] + ' at ' + run['finishedAt'] if run else 'never'}")
    return 0


def _automate_once(args: argparse.Namespace, output: Output) -> int:
    from cairn.project.automate import in_progress, run_once

    project = _project(args)
    project.record_.require()
    result = run_once(project)
    busy = in_progress(project)
    _say(
        output,
        result.to_json(),
        f"{result.status}{f' ({busy})' if busy else ''}{f': {result.error}' if result.error else ''}",
    )
    return 1 if result.status == "failed" else 0


def start_runner(project: ProjectMemory) -> dict[str, Any]:
    """Start the background runner unless it runs already; its status, and whether it was started now."""
    project.record_.require()
    value = _runner_status(project)
    if value["running"]:
        return {**value, "started": False}
    # Through a shell that ends at once: the runner is nobody's child, so it outlives us and leaves no zombie.
    subprocess.run(
        [
            "sh",
            "-c",
            '"$0" "$@" &',
            sys.executable,
            "-P",
            "-m",
            "cairn.surfaces.project_cli",
            str(project.tree),
        ],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        check=True,
    )
    value = _wait_for(project, running=True)
    if not value["running"]:
        raise Unavailable(
            "The runner did not start within 10 seconds. Try `cairn project automate run-once`."
        )
    return {**value, "started": True}


def _automate_start(args: argparse.Namespace, output: Output) -> int:
    value = start_runner(_project(args))
    _say(output, value, f"{'Started' if value['started'] else 'Running already'}, pid {value['pid']}.")
    return 0


def _automate_stop(args: argparse.Namespace, output: Output) -> int:
    project = _project(args)
    project.record_.require()
    value = _runner_status(project)
    if value["running"] and isinstance(value["pid"], int):
        os.kill(value["pid"], signal.SIGTERM)
        value = _wait_for(project, running=False)
    _say(output, value, "Still running." if value["running"] else "Stopped.")
    return 1 if value["running"] else 0


def _wait_for(project: ProjectMemory, *, running: bool, seconds: float = 10.0) -> dict[str, Any]:
    until = time.monotonic() + seconds
    while True:
        value = _runner_status(project)
        settled = value["running"] == running and (not running or value["pid"])
        if settled or time.monotonic() > until:
            return value
        time.sleep(0.05)


# ---------------------------------------------------------------- the runner, as a process


def main(argv: Sequence[str] | None = None) -> int:
    """The background runner: `python -m cairn.surfaces.project_cli TREE`."""
    from cairn.project.automate import Runner

    arguments = list(sys.argv[1:] if argv is None else argv)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        Runner(open_project(Path(arguments[0]))).run(stop)
    except CairnError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
