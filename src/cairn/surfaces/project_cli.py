"""`cairn project ...`: the memory of the repository one stands in.

Fields, choices and help are those of the operations; the memory is opened in its folder, without a root. Only where a
language model is set does consolidating open the root, too, since that counts what is spent. Run as a module, this is
also the background runner of `automate start`.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cairn
from cairn.errors import CairnError, Unavailable
from cairn.operations.repositories import Repositories
from cairn.surfaces.command import Command, CommandCall, Prints, opened
from cairn.surfaces.output import Output
from cairn.wording import counted

if TYPE_CHECKING:
    from cairn.project.consolidate import Plan
    from cairn.project.imports import Capture
    from cairn.project.project import ProjectMemory
    from cairn.seams import Writer
    from cairn.types import Message, Space


_START_SECONDS = 10.0


class _Here(Repositories):
    """The operations on a repository, without a root."""

    def __init__(self, writer: Writer | None = None) -> None:
        """Nothing is opened: the memory is that of the folder each call names."""
        self._writer = writer

    def _project(self, path: str) -> ProjectMemory:
        return cairn.open_project(Path(path), writer=self._writer)


def here(call: CommandCall, writer: Writer | None = None) -> int:
    """Run a command's operation on the folder one stands in, and print what it answers."""
    row, room = call.command.operation, _Here(writer)
    return call.command.say(row.told(room, row.call(room, **call.fields), call.fields), call.output)


def run_once(call: CommandCall) -> int:
    with ExitStack() as stack:
        return here(call, _writer(call.args.root, stack))


def _writer(root: str | None, stack: ExitStack) -> Writer | None:
    """The language model of the settings, if one is set; its root stays open, where what is spent is counted."""
    from cairn.config import load

    settings = load(root)
    if not settings.llm.base_url:
        return None
    from cairn.memory import Memory

    return stack.enter_context(Memory(settings, background=False)).parts.writer


def _project(call: CommandCall) -> ProjectMemory:
    return cairn.open_project(Path(call.args.path))


def _tree(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-C", "--dir", dest="path", default=".", metavar="DIR", help="the work tree (default: here)"
    )


def _fill_tree(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    fields["path"] = args.path


def _on_tree(
    name: str, method: Callable[..., Any] | None = None, prints: Prints | None = None, **more: Any
) -> Command:
    """A command about the work tree that `--dir` names."""
    without = f"path {more.pop('without', '')}"
    whole = {"run": here, "more": _tree, "fill": _fill_tree, **more}
    return Command(f"project {name}", method, prints, without=without, **whole)


# ---------------------------------------------------------------- saying it


def say_status(value: Any, output: Output) -> None:
    state, waiting, kept = value["state"], value["backlog"], value["retention"]
    for line in (
        f"{state['latestCheckpointId']} of {state['generatedAt'][:16]}, {counted(state['events'], 'event')}",
        f"backlog: {waiting['all']['count']} (local {waiting['local']['count']}, imports {waiting['imports']['count']})",
        *(f"  {group['events'][0]}..: {group['summary']}" for group in value["groups"][:5]),
        *(f"source {source['id']}: {source['lastSyncStatus']}" for source in value["sources"]),
        f"drift: {value['drift']['summary']}",
        f"retention: {counted(kept['prunableEvents'], 'event')} and {counted(kept['prunableCheckpoints'], 'checkpoint')} may be archived",
        *(f"note: {problem}" for problem in (*value["problems"], value["unbound"]) if problem),
        f"-> {value['suggestedAction']}",
    ):
        output.line(line)


# ---------------------------------------------------------------- commands that ask, show progress, or start something


def _fold_arguments(parser: argparse.ArgumentParser) -> None:
    _tree(parser)
    parser.add_argument("--yes", action="store_true", help="apply without asking")
    parser.add_argument("--diff", action="store_true", default=None, help="show the diffs too")
    parser.add_argument("--dry-run", action="store_true", help="show the preview only")


def consolidate(call: CommandCall) -> int:
    args, output = call.args, call.output
    with ExitStack() as stack:
        project = cairn.open_project(Path(args.path), writer=_writer(args.root, stack))
        done = _folded(call, project)
    return call.command.say(call.command.operation.told(_Here(), done, call.fields), output)


def _folded(call: CommandCall, project: ProjectMemory) -> Any:
    args, output = call.args, call.output
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

    return project.consolidate(section=args.section, source=args.source, policy=args.policy, confirm=confirm)


def _preview(plan: Plan, *, diffs: bool) -> str:
    told = plan.summary
    lines = [
        f"{counted(len(plan.events), 'event')} from {plan.source}; would change: {', '.join(told['changedSections'])}."
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


def query(call: CommandCall) -> int:
    """The answer with what it rests on; exit code 1 where nothing was found to rest on."""
    project = _project(call)
    result = project.query(call.fields["question"], scope=call.fields["scope"])
    output = call.output
    if project.options.get("query.defaultOutput") == "json":
        output = Output(as_json=True)
    output.value(result.to_json())
    output.line(result.answer)
    for number, citation in enumerate(result.citations, start=1):
        where = citation.projectionPath or citation.sourceId
        if f"[{number}]" in result.answer or not result.enough:
            part = f" ({citation.pathOrSection})" if citation.pathOrSection != where else ""
            output.line(f"  [{number}] {where}{part}")
    if result.mode == "next" and not result.enough:
        output.line(
            'Nothing is noted as a next step. Note one: cairn project record "..." --next "NEXT: title: why".'
        )
    return 0 if result.enough else 1


def _import_arguments(parser: argparse.ArgumentParser) -> None:
    _tree(parser)
    parser.add_argument("--all", action="store_true", help="import every registered source (the default)")
    parser.add_argument(
        "--capture", action="store_true", help="remember what was said in the memory root too"
    )
    parser.add_argument(
        "--user", default="me", metavar="ID", help='whose prompts they are, with --capture (default "me")'
    )


def take_in(call: CommandCall) -> int:
    args, project = call.args, _project(call)
    show = not call.output.as_json and sys.stderr.isatty()

    def progress(done: int, total: int, name: str) -> None:
        width = 30 * done // max(total, 1)
        end = "\n" if done == total else ""
        sys.stderr.write(f"\r[{'#' * width}{'.' * (30 - width)}] {done}/{total} {name[:40]:40}{end}")
        sys.stderr.flush()

    with ExitStack() as stack:
        if args.capture:
            project = cairn.open_project(Path(args.path), capture=_remembering(args, project.space, stack))
        reports = project.import_(args.ids, capture=args.capture, progress=progress if show else None)
    return call.command.say(call.command.operation.told(_Here(), reports, call.fields), call.output)


def _remembering(args: argparse.Namespace, space: Space, stack: ExitStack) -> Capture:
    """A capture that adds a session's messages to the memory root, in the repository's own space."""
    from dataclasses import replace

    from cairn.canonical import text_hash

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


def _runner_status(project: ProjectMemory) -> dict[str, Any]:
    from cairn.project.automate import runner_status

    return runner_status(project.record_.storage, project.locks)


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


def automate_start(call: CommandCall) -> int:
    value = start_runner(_project(call))
    call.output.value(value)
    call.output.line(f"{'Started' if value['started'] else 'Running already'}, pid {value['pid']}.")
    return 0


def automate_stop(call: CommandCall) -> int:
    project = _project(call)
    project.record_.require()
    value = _runner_status(project)
    if value["running"] and isinstance(value["pid"], int):
        os.kill(value["pid"], signal.SIGTERM)
        value = _wait_for(project, running=False)
    call.output.value(value)
    call.output.line("Still running." if value["running"] else "Stopped.")
    return 1 if value["running"] else 0


def _wait_for(project: ProjectMemory, *, running: bool) -> dict[str, Any]:
    until = time.monotonic() + _START_SECONDS
    while True:
        value = _runner_status(project)
        settled = value["running"] == running and (not running or value["pid"])
        if settled or time.monotonic() > until:
            return value
        time.sleep(0.05)


COMMANDS = (
    _on_tree("init", Repositories.project_init),
    _on_tree("update", Repositories.project_update),
    _on_tree(
        "record",
        Repositories.project_record,
        short={
            "decisions": "--decision",
            "gotchas": "--gotcha",
            "next_steps": "--next",
            "paths": "--path",
            "checks": "--check",
        },
    ),
    _on_tree(
        "consolidate",
        Repositories.project_consolidate,
        without="apply",
        more=_fold_arguments,
        run=consolidate,
    ),
    _on_tree("query", Repositories.project_query, run=query),
    _on_tree("story", Repositories.project_story),
    _on_tree("status", Repositories.project_status, say_status),
    _on_tree("validate", Repositories.project_validate),
    _on_tree("sources add", Repositories.project_source_add),
    _on_tree("sources list", Repositories.project_sources, bare="sources"),
    _on_tree("sources remove", Repositories.project_source_remove),
    _on_tree(
        "import",
        Repositories.project_import,
        positional="ids*",
        more=_import_arguments,
        run=take_in,
        bare="reports",
    ),
    _on_tree("prune", Repositories.project_prune),
    _on_tree("restore", Repositories.project_restore),
    _on_tree("automate start", run=automate_start),
    _on_tree("automate stop", run=automate_stop),
    _on_tree("automate status", Repositories.project_runner),
    _on_tree("automate run-once", Repositories.project_run_once, run=run_once),
    _on_tree("automate ensure-running", run=automate_start),
)


# ---------------------------------------------------------------- the runner, as a process


def main(argv: Sequence[str] | None = None) -> int:
    """The background runner: `python -m cairn.surfaces.project_cli TREE`."""
    from cairn.project import automate

    arguments = list(sys.argv[1:] if argv is None else argv)
    stop = threading.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        signal.signal(name, lambda *_: stop.set())
    try:
        with ExitStack() as stack:
            automate.run(cairn.open_project(Path(arguments[0]), writer=_writer(None, stack)), stop)
    except CairnError:
        return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
