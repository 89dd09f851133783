"""The subcommands for talk and recall: init, add, flush, search, get, show."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid, NotFound
from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.config import Settings
    from cairn.memory import Memory
    from cairn.surfaces.cli import Commands


def settings_for(args: argparse.Namespace) -> Settings:
    from cairn.config import load

    return load(args.root)


def opened(args: argparse.Namespace, *, reading: bool = False) -> Memory:
    """The memory of this call's root. A lone call does its own indexing; beside a server it leaves that to it.

    Raises:
        NotFound: the call only reads (`reading`) and there is no such root. A misspelt name makes no folder.
    """
    from cairn.memory import Memory

    settings = settings_for(args)
    if reading and not settings.root.exists():
        raise NotFound(
            f"There is no memory at {settings.root}: `cairn init` makes one, --root names another.",
            root=settings.root,
        )
    return Memory(settings, background=False)


def add_commands(commands: Commands) -> None:
    """Declare every subcommand of this module."""
    command = commands.add(
        "init",
        init,
        "make a memory root with commented settings",
        examples="  cairn init\n  cairn --root ~/notes/memory init",
    )
    command.add_argument("--force", action="store_true", help="rewrite cairn.toml even if it is there")

    command = commands.add("demo", demo, "a guided tour in a temporary folder")
    command.add_argument("--keep", action="store_true", help="keep the folder and print where it is")

    command = commands.add(
        "add",
        add,
        "add messages to a session",
        examples='  cairn add --session s1 --sender alice "I moved to Lisbon in May."\n'
        "  cairn add --session s1 --file messages.jsonl\n"
        "  cat messages.json | cairn add --session s1 --file -",
    )
    command.add_argument("text", nargs="*", help="what was said, as one message")
    command.add_argument("--session", required=True, metavar="ID", help="the session the messages belong to")
    command.add_argument("--sender", default="me", metavar="ID", help='who said it (default "me")')
    command.add_argument("--name", metavar="NAME", help="the sender's name as it should read")
    command.add_argument("--role", choices=["user", "assistant", "tool"], default="user")
    command.add_argument("--at", type=int, metavar="MS", help="when, in epoch milliseconds (default now)")
    command.add_argument(
        "--file", metavar="FILE", help="a JSON array or JSON lines of messages; - for standard input"
    )
    command.add_argument("--defer", action="store_true", help="only keep; cut no cell on this call")
    command.add_argument("--key", metavar="KEY", help="idempotency key: the same key is kept once")
    command.add_argument("--mode", choices=["chat", "agent"], help="whose memory the session feeds")

    command = commands.add("flush", flush, "close the open stretch of a session and write its episode")
    command.add_argument("--session", required=True, metavar="ID")

    command = commands.add(
        "search",
        search,
        "find what answers a query",
        examples='  cairn search --user alice "where does Alice live"\n'
        '  cairn search --user alice --method keyword --json "Lisbon"\n'
        '  cairn search --user alice --evidence 5 "what did she say about work"',
    )
    command.add_argument("query", nargs="+", help="the question, in plain words")
    _owner_options(command)
    command.add_argument("--method", choices=["keyword", "vector", "hybrid", "agentic"], default="hybrid")
    command.add_argument(
        "--top-k", type=int, default=-1, metavar="N", help="how many of each kind (default 10)"
    )
    command.add_argument(
        "--min-score", type=float, metavar="X", help="leave out hits below this score (0 to 1)"
    )
    command.add_argument("--filters", metavar="JSON", help='for example \'{"session_id": "s1"}\'')
    command.add_argument(
        "--evidence", type=int, default=0, metavar="N", help="show N verbatim messages behind the answer"
    )
    command.add_argument(
        "--token-budget", type=int, metavar="N", help="return at most this many tokens of text"
    )
    command.add_argument("--explain", action="store_true", help="show what each leg contributed")
    command.add_argument("--profile", action="store_true", help="include the owner's profile")
    command.add_argument(
        "--strong", action="store_true", help="first wait until every change so far is indexed"
    )
    command.add_argument(
        "--for-injection", action="store_true", help="nothing rather than junk: for use in a prompt"
    )
    command.add_argument(
        "--as-prompt", action="store_true", help="print text for an agent's context, framed as data"
    )
    command.add_argument("--as-of", metavar="TIME", help="answer from what was known at that time (ISO 8601)")

    command = commands.add("get", get, "list memories page by page")
    command.add_argument("kind", choices=["episode", "profile", "agent_case", "agent_skill"])
    _owner_options(command)
    command.add_argument("--page", type=int, default=1, metavar="N")
    command.add_argument("--page-size", type=int, default=20, metavar="N")
    command.add_argument("--sort-by", choices=["timestamp", "updated_at"], default="timestamp")
    command.add_argument("--ascending", action="store_true", help="oldest first")
    command.add_argument("--filters", metavar="JSON")

    command = commands.add(
        "show", show, "one thing by any id that is printed: its text, its place, what was said"
    )
    command.add_argument(
        "id", help="an entry, profile, skill, message or cell, or path#id: alice_ep_20260601_00000001"
    )

    command = commands.add("reextract", reextract, "write episodes anew from their transcripts, in place")
    command.add_argument("--session", metavar="ID")
    command.add_argument("--user", metavar="ID")
    command.add_argument("--date", metavar="YYYY-MM-DD")


def _owner_options(command: argparse.ArgumentParser) -> None:
    owner = command.add_mutually_exclusive_group(required=True)
    owner.add_argument("--user", metavar="ID", help="whose memory: a user's")
    owner.add_argument("--agent", metavar="ID", help="whose memory: an agent's")


def space_of(args: argparse.Namespace) -> dict[str, Any]:
    return {"app_id": args.app, "project_id": args.project}


def _json_option(text: str | None, what: str) -> dict[str, Any] | None:
    if text is None:
        return None
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise Invalid(f"{what} is not JSON: {error}.", field=what) from None
    if not isinstance(value, dict):
        raise Invalid(f"{what} must be a JSON object.", field=what)
    return value


# ---------------------------------------------------------------- talk and recall


def init(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces.starter import write_starter

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


def demo(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces.demo import run

    return run(output, keep=args.keep)


def _messages_from(args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.file is None:
        if not args.text:
            raise Invalid("There is nothing to add: give a text or --file.", field="text")
        said: dict[str, Any] = {
            "sender_id": args.sender,
            "role": args.role,
            "timestamp": args.at if args.at is not None else time.time_ns() // 1_000_000,
            "content": " ".join(args.text),
        }
        return [{**said, "sender_name": args.name} if args.name else said]
    return list(_parse_messages(text_of(args.file), args.file))


def text_of(name: str) -> str:
    """The text of a file named on the command line; - is standard input."""
    try:
        raw = sys.stdin.buffer.read() if name == "-" else Path(name).expanduser().read_bytes()
        return raw.decode("utf-8")
    except FileNotFoundError:
        raise NotFound(f"{name}: there is no such file.", file=name) from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{name}: cannot be read as UTF-8 text ({error}).", file=name) from None


def _parse_messages(text: str, name: str) -> Iterable[dict[str, Any]]:
    stripped = text.lstrip()
    if stripped.startswith("["):
        try:
            value = json.loads(stripped)
        except json.JSONDecodeError as error:
            raise Invalid(f"{name}, line {error.lineno}: not JSON: {error.msg}.", file=name) from None
        yield from value
        return
    for number, line in enumerate(text.splitlines(), start=1):
        if not line.strip():
            continue
        try:
            yield json.loads(line)
        except json.JSONDecodeError as error:
            raise Invalid(f"{name}, line {number}: not JSON: {error.msg}.", file=name) from None


def add(args: argparse.Namespace, output: Output) -> int:
    messages = _messages_from(args)
    with opened(args) as memory:
        outcome = memory.add(
            args.session,
            messages,
            **space_of(args),
            defer_extraction=args.defer,
            idempotency_key=args.key,
            mode=args.mode,
        )
    waiting = [str(one) for one in outcome.waiting]
    output.value(
        {
            "status": outcome.status,
            "message_count": outcome.message_count,
            "lsn": outcome.lsn,
            "waiting": waiting,
        }
    )
    output.line(
        f"{outcome.status}: {outcome.message_count} message{'s' if outcome.message_count != 1 else ''} kept."
    )
    for one in waiting:
        output.line(one)
    return 0


def flush(args: argparse.Namespace, output: Output) -> int:
    with opened(args) as memory:
        outcome = memory.flush(args.session, **space_of(args))
    waiting = [str(one) for one in outcome.waiting]
    output.value({"status": outcome.status, "lsn": outcome.lsn, "waiting": waiting})
    output.line(
        "extracted: the episode is written."
        if outcome.status == "extracted"
        else "no_extraction: nothing was open."
    )
    for one in waiting:
        output.line(one)
    return 0


def search(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept, views

    with opened(args, reading=True) as memory:
        result = memory.search(
            " ".join(args.query),
            user_id=args.user,
            agent_id=args.agent,
            app_id=args.app,
            project_id=args.project,
            method=args.method,
            top_k=args.top_k,
            min_score=args.min_score,
            filters=_json_option(args.filters, "--filters"),
            include_profile=args.profile,
            evidence=args.evidence,
            token_budget=args.token_budget,
            explain=args.explain,
            for_injection=args.for_injection or args.as_prompt,
            consistency="strong" if args.strong else "eventual",
            as_of=args.as_of,
        )
        zone = memory.settings.zone
    data = views.search_result(result, app=args.app, project=args.project, zone=zone)
    if args.as_prompt:
        data["prompt"] = kept.prompt(result, budget=args.token_budget, zone=zone)
        output.value(data)
        output.line(data["prompt"])
        return 0 if data["prompt"] else 1
    output.value(data)
    _show_hits(data, output)
    found = any(data[name] for name in ("episodes", "profiles", "agent_cases", "agent_skills", "memories"))
    if not found and not data.get("evidence"):
        output.line("Nothing fits.")
    state = data["freshness"]
    if state["state"] != "fresh" or state["notes"]:
        remarks = "; ".join(state["notes"])
        output.note(
            f"index: {state['state']}, {state['pending']} changes pending"
            + (f" ({remarks})" if remarks else "")
        )
    return 0 if found or data.get("evidence") else 1


def _show_hits(data: dict[str, Any], output: Output) -> None:
    for item in data["episodes"]:
        output.line(f"{item['score']:.2f}  {item['subject']}", style="bold")
        output.line(f"      {item['timestamp'][:16]}  {item['id']}  {item['path']}")
        output.block(item["summary"], indent="      ", limit=400)
        for fact in item["atomic_facts"]:
            output.line(f"      - {fact['content']}")
        if "explain" in item:
            output.line(
                "      " + ", ".join(f"{name} {value:.3f}" for name, value in item["explain"].items())
            )
    for item in data["memories"]:
        output.line(
            f"{item['score']:.2f}  [{item.get('category', 'memory')}] {item['content']}", style="bold"
        )
        output.line(f"      {item['id']}  {item['path']}")
    for item in data["agent_cases"]:
        output.line(f"{item['score']:.2f}  case: {item['task_intent']}", style="bold")
        output.line(f"      {item['id']}  {item['path']}")
    for item in data["agent_skills"]:
        output.line(f"{item['score']:.2f}  skill: {item['name']}: {item['description']}", style="bold")
        output.line(f"      {item['path']}")
    for item in data["profiles"]:
        output.line(f"profile of {item['user_id']}: {item['path']}", style="bold")
    if data.get("evidence"):
        output.line("evidence:")
    for item in data.get("evidence") or ():
        output.line(
            f"{item['score']:.2f}  {item['timestamp'][:16]}  {item['sender_name'] or item['sender_id']}: {item['text']}"
        )


def get(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import views

    with opened(args, reading=True) as memory:
        result = memory.get(
            args.kind,
            user_id=args.user,
            agent_id=args.agent,
            app_id=args.app,
            project_id=args.project,
            page=args.page,
            page_size=args.page_size,
            sort_by=args.sort_by,
            sort_order="asc" if args.ascending else "desc",
            filters=_json_option(args.filters, "--filters"),
        )
        data = views.get_result(result)
    output.value(data)
    rows = [
        (
            item["id"],
            item.get("timestamp", "")[:16],
            _headline(item),
        )
        for kind in ("episodes", "profiles", "agent_cases", "agent_skills")
        for item in data[kind]
    ]
    output.table(("id", "time", "what"), rows)
    output.line(f"{data['count']} of {data['total_count']}")
    return 0 if data["total_count"] else 1


def _headline(item: dict[str, Any]) -> str:
    """What a listing says of one memory: its subject, its task, a skill's purpose or a profile's summary."""
    for name in ("subject", "task_intent", "description"):
        if item.get(name):
            return str(item[name])
    return str((item.get("profile_data") or {}).get("summary") or item.get("name") or "")


def show(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        found = memory.show(args.id, **space_of(args))
    output.value(found)
    output.line(f"{found['id']}  ({found['kind']})", style="bold")
    output.line(f"{found['path']}, line {found['line']}" if found["line"] else found["path"])
    for name, value in found["inline"].items():
        output.line(f"{name}: {value}")
    for title, text in found["sections"].items():
        output.line()
        output.line(title, style="bold")
        output.block(text)
    if found["messages"]:
        output.line()
        output.line("Said:", style="bold")
        for item in found["messages"]:
            output.line(
                f"    {item['timestamp'][:16]}  {item['sender_name'] or item['sender_id']}: {item['text']}"
            )
    return 0


def reextract(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        count = memory.reextract(session_id=args.session, user_id=args.user, date=args.date, **space_of(args))
    output.value({"rewritten": count})
    output.line(f"{count} episode{'s' if count != 1 else ''} written anew.")
    return 0 if count else 1
