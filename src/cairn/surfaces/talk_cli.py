"""The commands for talk and recall: init, demo, add, flush, search, recall, brief, get, show, reextract."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable
from typing import Any

from cairn.canonical import from_json
from cairn.errors import Invalid
from cairn.operations.recall import Recall
from cairn.operations.talk import Talk
from cairn.surfaces.command import (
    Command,
    CommandCall,
    current_folder,
    opened,
    say_prompt,
    settings_for,
    text_of,
    told,
)
from cairn.surfaces.output import Output, printed, printed_lines
from cairn.types import Space
from cairn.wording import counted, short

# ---------------------------------------------------------------- init and demo


def init(call: CommandCall) -> int:
    from cairn.config import write_starter

    args, output = call.args, call.output
    settings = settings_for(args)
    written = write_starter(settings.root, force=args.force)
    with opened(args):
        pass
    output.value({"root": str(settings.root), "written": written})
    output.line(f"Memory root: {settings.root}")
    output.line(
        "cairn.toml "
        + ("written: every setting is in it, commented." if written else "was there; left as it is.")
    )
    output.line('Next: cairn add --session s1 --sender alice "..."   then   cairn flush --session s1')
    return 0


def demo(call: CommandCall) -> int:
    from cairn.surfaces.demo import run

    return run(call.output, keep=call.args.keep)


# ---------------------------------------------------------------- add and flush


def _fill_messages(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    fields["messages"] = _messages_from(args)


def _messages_from(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.file is None:
        if not "".join(args.text or ()).strip():
            raise Invalid("There is nothing to add: give a text or --file.", field="text")
        said: dict[str, Any] = {
            "role": args.role,
            "timestamp": _said_at(args),
            "content": " ".join(args.text),
        }
        who = {"sender_id": args.sender, "sender_name": args.name}
        return [said | {name: value for name, value in who.items() if value is not None}]
    return list(_parse_messages(text_of(args.file), args.file))


def _said_at(args: argparse.Namespace) -> int:
    """When a message was said, in epoch milliseconds; a time without an offset is one of the display zone."""
    if args.at is None:
        return time.time_ns() // 1_000_000
    try:
        return int(args.at)
    except ValueError:
        from cairn.operations.fields import moment_told

        return int(moment_told(args.at, settings_for(args).zone, "--at").timestamp() * 1000)


def _parse_messages(text: str, name: str) -> Iterable[dict[str, Any]]:
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            value = from_json(stripped, once=True)
        except ValueError as error:
            line, trouble = getattr(error, "lineno", 1), getattr(error, "msg", error)
            raise Invalid(f"{name}, line {line}: not JSON: {trouble}.", file=name) from None
        yield from value
        return
    for number, line in enumerate(text.split("\n"), start=1):  # U+2028 may stand in a line of JSON
        if not line.strip():
            continue
        try:
            yield from_json(line, once=True)
        except ValueError as error:
            trouble = getattr(error, "msg", error)
            more = " A document comes in with `cairn knowledge add`." if number == 1 else ""
            raise Invalid(f"{name}, line {number}: not JSON: {trouble}.{more}", file=name) from None


# ---------------------------------------------------------------- recall


def as_prompt_argument(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--as-prompt", action="store_true", help="print text for an agent's context, framed as data"
    )


def _search_arguments(parser: argparse.ArgumentParser) -> None:
    as_prompt_argument(parser)
    parser.add_argument(
        "--strong",
        dest="consistency",
        action="store_const",
        const="strong",
        help="short for --consistency strong",
    )


def fill_prompt(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    fields["for_injection"] = fields["for_injection"] or args.as_prompt


_SAID = 5
_NEARLY = 0.5  # of the best one's score
_BESIDE = frozenset({"evidence", "unprocessed_messages"})


def search(call: CommandCall) -> int:
    output = call.output
    with call.opened() as memory:
        data = call.ask(memory)
        said = list(data.get("evidence") or ())
        if data["episodes"] and not (said or data.get("whole") or call.args.json or call.args.as_prompt):
            # A program asks for what was said; a person reads it below the hit.
            call.fields["evidence"] = _SAID
            cut = [one for one in call.ask(memory)["evidence"] if not one["unflushed"]]
            said = [one for one in cut if one["score"] >= _NEARLY * cut[0]["score"]]
    if call.args.as_prompt:
        return say_prompt(data, output)
    output.value(data)
    found = any(value for name, value in data.items() if isinstance(value, list) and name not in _BESIDE)
    found = found or bool(said)
    if data.get("whole"):
        output.line(data["whole"])
    _show_hits(data, said, output)
    if not found:
        output.line(
            "Nothing fits. `cairn recall` also asks what was kept by `cairn remember`; `cairn owners` lists whose memory is here, "
            "and --user asks one of them."
        )
    state = data["freshness"]
    if state["state"] != "fresh" or state["notes"]:
        remarks = "; ".join(state["notes"])
        output.note(
            f"index: {state['state']}, {counted(state['pending'], 'change')} pending"
            + (f" ({remarks})" if remarks else "")
        )
    return 0 if found else 1


def _over(fact: dict[str, Any]) -> str:
    """Since when a fact is over, for the end of its line."""
    return f" (earlier, until {fact['until']})" if "until" in fact else ""


def _show_hits(data: dict[str, Any], evidence: list[dict[str, Any]], output: Output) -> None:
    for item in data["episodes"]:
        output.line(f"{item['score']:.2f}  {item['subject']}", style="bold")
        output.line(f"      {item['timestamp'][:16]}  {item['id']}  {item['path']}")
        said = [one for one in evidence if any(item["id"].endswith(entry) for entry in one["entry_ids"])]
        for one in said:
            evidence.remove(one)
            output.block(_quoted(one), indent="      ", limit=400)
        if not said:
            output.block(item["summary"], indent="      ", limit=400)
        for fact in item["atomic_facts"]:
            if fact["score"] >= _NEARLY * item["score"]:
                output.line(f"      - {fact['content']}{_over(fact)}")
        if "explain" in item:
            output.line(
                "      " + ", ".join(f"{name} {value:.3f}" for name, value in item["explain"].items())
            )
    printed(printed_lines("search"), data, output)
    for item in data.get("foresights", ()):
        output.line(f"{item['score']:.2f}  {_window(item)}{item['foresight']}", style="bold")
        output.line(f"      {item['id']}  {item['path']}")
    for item in (*data.get("atomic_facts", ()), *data.get("agent_documents", ())):
        output.line(f"{item['score']:.2f}  {short(item['content'])}{_over(item)}", style="bold")
        output.line(f"      {item['id']}  {item['path']}")
    for item in data["profiles"]:
        output.line(f"profile of {item['user_id']}: {item['path']}", style="bold")
        if data.get("whole"):
            from cairn.retrieval.whole import without_marks

            output.block(without_marks(item["profile_data"]["content"]), indent="      ", limit=2000)
    if evidence:
        output.line("also said:")
    for item in evidence:
        _show_said(item, output)
    if data["unflushed"]:
        output.line("said, in no episode yet:")
    for item in data["unflushed"]:
        _show_said(item, output)


def _quoted(item: dict[str, Any]) -> str:
    """What somebody said, word for word, behind the speaker's name."""
    mark = " (not flushed yet)" if item["unflushed"] else ""
    if item.get("earlier"):
        mark += f" (earlier, until {item['earlier']['until']})"
    return f"{item['sender_name'] or item['sender_id']}: {item['text']}{mark}"


def _show_said(item: dict[str, Any], output: Output) -> None:
    output.line(f"{item['score']:.2f}  {item['timestamp'][:16]}  {_quoted(item)}")


def _window(item: dict[str, Any]) -> str:
    """When a plan is due: its first day, and its last where that is another."""
    begin, end = (str(item.get(name) or "")[:10] for name in ("start_time", "end_time"))
    return "".join([begin, f" to {end}" if end and end != begin else "", ": "]) if begin else ""


def show(call: CommandCall) -> int:
    """Show what goes by an id, and name what else does in the repository one stands in: each space counts its own entries."""
    from cairn.operations.lookup import in_spaces
    from cairn.projects import spaces_at

    fields, asked = call.fields, Space(call.fields["app_id"], call.fields["project_id"])
    spaces = dict.fromkeys((asked, *(spaces_at(current_folder()) if asked == Space() else ())))
    with call.opened() as memory:

        def shown(space: Space) -> Any:
            place = {"app_id": space.app, "project_id": space.project}
            return told(memory, call.command.operation, {**fields, **place})

        found = in_spaces(spaces, shown) or {asked: shown(asked)}  # which says that it is nowhere
    (first, data), *others = found.items()
    code = call.command.say(data, call.output)
    if first != asked:
        call.output.note(f"It is in {first}, the memory of this repository.")
    for space, _ in others:
        call.output.note(
            f"Something else goes by this id in {space}: cairn show --project {space.project} {fields['entry_id']}"
        )
    return code


def _fill_folder(_args: argparse.Namespace, fields: dict[str, Any]) -> None:
    """Without a folder or project the current repository is asked, as hooks and tools do."""
    if fields["folder"] is None and fields["project_id"] is None:
        from cairn.projects import space_at

        here = current_folder()
        fields["folder"] = here if space_at(here) != Space() else None


def say_page(data: Any, output: Output) -> int:
    rows = [
        (item["id"], item.get("timestamp", "")[:16], _headline(item))
        for items in data.values()
        if isinstance(items, list)
        for item in items
    ]
    output.table(("id", "time", "what"), rows)
    output.line(f"{data['count']} of {data['total_count']}")
    return 0 if data["total_count"] else 1


def _headline(item: dict[str, Any]) -> str:
    """What a listing says of one memory: its subject, its task, a skill's purpose or a profile's summary."""
    if item.get("foresight"):
        return f"{_window(item)}{item['foresight']}"
    for name in ("subject", "task_intent", "description", "content"):
        if item.get(name):
            return str(item[name])
    return str((item.get("profile_data") or {}).get("summary") or item.get("name") or "")


COMMANDS = (
    Command("init", run=init, also={"--force": "rewrite cairn.toml even if it is there"}, reading=False),
    Command("demo", run=demo, also={"--keep": "keep the folder and print where it is"}),
    Command(
        "add",
        Talk.add,
        positional="",
        without="messages",
        short={"defer_extraction": "--defer", "idempotency_key": "--key"},
        also={
            "text": {"nargs": "*", "help": "what was said, as one message"},
            "--sender": {"metavar": "ID", "help": "who said it (default --user, or memory.person)"},
            "--name": {"metavar": "NAME", "help": "the sender's name as it should read"},
            "--role": {
                "choices": ["user", "assistant", "tool"],
                "default": "user",
                "help": "whose turn it was",
            },
            "--at": {
                "metavar": "WHEN",
                "help": "when: a day or time like 2026-06-01T12:00, or epoch milliseconds (default now)",
            },
            "--file": {
                "metavar": "FILE",
                "help": "a JSON array or JSON lines of messages; - for standard input",
            },
        },
        fill=_fill_messages,
        reading=False,
    ),
    Command("flush", Talk.flush, positional="", reading=False),
    Command(
        "search",
        Recall.search,
        one_of="user_id agent_id",
        short={"include_profile": "--profile", "enable_llm_rerank": "--rerank"},
        more=_search_arguments,
        fill=fill_prompt,
        run=search,
    ),
    Command("recall", Recall.recall, fill=_fill_folder),
    Command("brief", Recall.brief, fill=_fill_folder),
    Command(
        "get",
        Recall.get,
        say_page,
        one_of="user_id agent_id",
        also={
            "--ascending": {
                "dest": "sort_order",
                "action": "store_const",
                "const": "asc",
                "help": "oldest first",
            }
        },
    ),
    Command("show", Recall.show, run=show),
    Command("tasks", Talk.tasks),
    Command("task", Talk.task),
    Command("reextract", Talk.reextract),
)
