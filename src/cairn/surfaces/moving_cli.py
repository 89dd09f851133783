"""The commands that take a memory elsewhere: move, and pull and push for a person's own editor."""

from __future__ import annotations

from typing import Any

from cairn.operations.moving import BUCKET, Moving
from cairn.surfaces.command import Command, CommandCall
from cairn.surfaces.output import Output

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
        f"{done['copied']} files brought over, {done['removed']} removed; {done['verified']} of {done['files']} "
        f"files ({done['bytes']} bytes) read back and the same -> {done['target']}"
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


COMMANDS = (
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
    Command("pull", Moving.pull, say_pulled, positional="folder"),
    Command("push", Moving.push, say_pushed, positional="folder"),
)
