"""The subcommands about single memories: remember, and memories list, search, show, edit, forget and so on."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from cairn.errors import Invalid
from cairn.surfaces.commands import opened, space_of
from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.surfaces.cli import Commands
    from cairn.types import Verdict

CATEGORIES = (
    "fact", "preference", "pattern", "decision", "gotcha", "convention", "episode", "procedure", "digest", "handoff",
)  # fmt: skip
SCOPES = ("project", "agent", "mission", "user")
ORIGINS = ("human", "agent", "tool", "web", "recalled", "import")


def add_commands(commands: Commands) -> None:
    """Declare every subcommand of this module."""
    command = commands.add(
        "remember",
        remember,
        "keep one fact, if the gate lets it in; exit code 1 if it is refused",
        examples='  cairn remember "Deploys wait for the migration job." --category gotcha\n'
        '  cairn remember "Prefers short answers." --category preference --scope user --owner alice\n'
        '  cairn remember "We use tabs." --category convention --mode strict --json',
    )
    command.add_argument("text", nargs="+", help="what to remember; - reads standard input")
    command.add_argument("--category", default="fact", metavar="C", help=f"one of {', '.join(CATEGORIES)}")
    command.add_argument("--scope", choices=SCOPES, default="project", help="whose it is (default project)")
    command.add_argument(
        "--owner", default="", metavar="ID", help="the user, agent or run; not for the project"
    )
    command.add_argument(
        "--mode", choices=["default", "strict"], default="default", help="strict promotes at once"
    )
    command.add_argument("--importance", choices=["low", "medium", "high"], default="medium")
    command.add_argument("--pin", action="store_true", help="keep it at hand: no decay")
    command.add_argument("--origin", choices=ORIGINS, default="human", help="where the words come from")
    command.add_argument("--files", metavar="GLOB", help="which files it is about")
    command.add_argument("--trigger", default="", metavar="TEXT", help="when a procedure applies")
    command.add_argument("--steps", default="", metavar="TEXT", help="how a procedure goes")
    _add_memories(commands.group("memories", "governed memories: look, correct, forget"))


def _add_memories(memories: Commands) -> None:
    command = memories.add(
        "list",
        list_,
        "the memories, newest change first",
        examples="  cairn memories list --scope project --category decision\n"
        "  cairn memories list --scope user --owner alice --archived",
    )
    scope_options(command)
    command.add_argument("--status", choices=["candidate", "promoted", "archived"])
    command.add_argument("--category", choices=CATEGORIES)
    command.add_argument("--pinned", action="store_true", help="only pinned ones")
    command.add_argument("--archived", action="store_true", help="archived ones too")
    command.add_argument(
        "--no-skills", action="store_true", help="leave out those that stand for skill files"
    )
    command.add_argument("--offset", type=int, default=0, metavar="N")
    command.add_argument("--limit", type=int, default=50, metavar="N", help="1 to 500 (default 50)")

    command = memories.add(
        "search",
        search,
        "find memories of one scope; the project's unless another is named",
        examples='  cairn memories search "what waits for migrations"\n'
        '  cairn memories search --scope agent --owner coder --as-prompt "how do we deploy"',
    )
    command.add_argument("query", nargs="+", help="the question, in plain words")
    scope_options(command)
    command.add_argument("--method", choices=["keyword", "vector", "hybrid"], default="hybrid")
    command.add_argument("--top-k", type=int, default=-1, metavar="N", help="how many (default 10)")
    command.add_argument("--min-score", type=float, metavar="X", help="leave out hits below this score")
    command.add_argument(
        "--token-budget", type=int, metavar="N", help="return at most this many tokens of text"
    )
    command.add_argument("--archived", action="store_true", help="archived ones too")
    command.add_argument(
        "--as-prompt", action="store_true", help="print text for an agent's context, framed as data"
    )

    one_command(memories, "show", show, "one memory with every field")
    command = one_command(
        memories,
        "edit",
        edit,
        "change a memory where it stands; the old text stays in its history",
        examples='  cairn memories edit mem_20260601_00000001 --content "Deploys run migrations first."',
    )
    command.add_argument("--content", metavar="TEXT")
    command.add_argument("--category", choices=CATEGORIES)
    command.add_argument("--importance", choices=["low", "medium", "high"])
    command.add_argument("--confidence", type=float, metavar="X", help="0 to 1")
    command.add_argument("--tier", type=int, metavar="N", help="1 to 3")
    command.add_argument("--files", dest="file_scope_pattern", metavar="GLOB")
    command.add_argument("--trigger", metavar="TEXT")
    command.add_argument("--steps", dest="procedure", metavar="TEXT")
    command.add_argument("--reason", default="", metavar="TEXT")
    command = one_command(
        memories,
        "supersede",
        supersede,
        "replace a memory; the old one stays readable and says by what and why",
        examples='  cairn memories supersede mem_20260601_00000001 "We use spaces." --reason "new formatter"',
    )
    command.add_argument("text", nargs="+", help="the new memory")
    command.add_argument("--reason", required=True, metavar="TEXT")
    one_command(memories, "pin", pin, "keep a memory at hand: promoted, tier 1, no decay")
    one_command(memories, "unpin", unpin, "let a pinned memory age again")
    command = one_command(memories, "archive", archive, "put a memory away: kept, but out of answers")
    command.add_argument("--reason", default="", metavar="TEXT")
    one_command(memories, "restore", restore, "bring an archived memory back")
    one_command(memories, "promote", promote, "vouch for a candidate, whatever its origin")
    command = one_command(
        memories,
        "forget",
        forget,
        "remove a memory and what was made from it, and print a receipt; there is no undo",
        examples="  cairn memories forget alice_mem_20260601_00000001 --dry-run\n"
        "  cairn memories forget alice_mem_20260601_00000001 --yes\n"
        '  cairn memories forget --words "Elm Street 12" --scope user --owner alice --yes',
        needed=False,
    )
    command.add_argument(
        "--words",
        action="append",
        default=[],
        metavar="TEXT",
        help="also remove this phrase wherever it stands",
    )
    command.add_argument("--dry-run", action="store_true", help="only show what would go, and what is alike")
    command.add_argument(
        "--also", action="append", default=[], metavar="ID", help="also remove this one of what is alike"
    )
    command.add_argument(
        "--also-alike", "--similar", dest="similar", action="store_true", help="also remove all that is alike"
    )
    command.add_argument(
        "--all-owners", action="store_true", help="look in everybody's memory, not in one owner's alone"
    )
    command.add_argument("--yes", action="store_true", help="do not ask; needed where nobody can answer")
    command = memories.add(
        "import",
        import_,
        "take in another program's export through the gate, each item once",
        examples="  cairn memories import --from mem0 export.json\n"
        "  cairn memories import --from claude ~/project/MEMORY.md",
    )
    command.add_argument("file", help="the export; - for standard input")
    command.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="PROGRAM",
        help="ade, mem0, everos, basic-memory or claude",
    )
    command.add_argument("--owner", default="", metavar="ID", help="the user whose memories they are")
    command.add_argument("--trust", action="store_true", help="you vouch for them: they count as yours")
    one_command(memories, "history", history, "everything on record about a memory, oldest first")
    one_command(memories, "why", why, "why a memory is kept as it is")


def scope_options(command: argparse.ArgumentParser) -> None:
    command.add_argument("--scope", choices=SCOPES, help="only this scope")
    command.add_argument("--owner", default="", metavar="ID", help="the user, agent or run of that scope")


def one_command(
    commands: Commands, name: str, run: Any, text: str, *, examples: str = "", needed: bool = True
) -> argparse.ArgumentParser:
    """A command about one memory: its id, and whose it is where the id is not enough."""
    command = commands.add(name, run, text, examples=examples)
    command.add_argument("id", nargs=None if needed else "?", help="for example alice_mem_20260601_00000001")
    scope_options(command)
    return command


def place_of(args: argparse.Namespace) -> dict[str, Any]:
    return {"scope": args.scope, "owner": args.owner, **space_of(args)}


# ---------------------------------------------------------------- remember and look


def remember(args: argparse.Namespace, output: Output) -> int:
    text = sys.stdin.read() if args.text == ["-"] else " ".join(args.text)
    more = {"file_scope_pattern": args.files, "trigger": args.trigger, "procedure": args.steps}
    with opened(args) as memory:
        verdict = memory.remember(
            text,
            args.category,
            args.scope,
            args.owner,
            **space_of(args),
            mode=args.mode,
            importance=args.importance,
            pinned=args.pin,
            origin=args.origin,
            **{name: value for name, value in more.items() if value},
        )
    return _say_verdict(verdict, output)


def _say_verdict(verdict: Verdict, output: Output) -> int:
    from cairn.governed.memories import verdict_json

    output.value(verdict_json(verdict))
    detail = f" {verdict.detail}" if verdict.detail else ""
    if not verdict.accepted:
        output.line(f"refused ({verdict.reason}):{detail}", style="bold")
        return 1
    assert verdict.memory is not None
    row = verdict.memory
    if verdict.deduped:
        output.line(f"merged ({verdict.reason}) into {verdict.merged_into_id}.{detail}", style="bold")
    else:
        output.line(f"accepted as {row['status']}: {row['id']}.{detail}", style="bold")
    output.line(f"      {row['path']}")
    return 0


def list_(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        page = memory.memories.list(
            **place_of(args),
            status=args.status,
            category=args.category,
            pinned=True if args.pinned else None,
            archived=args.archived,
            skills=not args.no_skills,
            offset=args.offset,
            limit=args.limit,
        )
    output.value({"memories": list(page.memories), "total": page.total})
    output.table(
        ("id", "scope", "category", "status", "tier", "content"),
        [
            (
                row["id"],
                f"{row['scope']} {row['scope_owner_id']}".strip(),
                row["category"],
                row["status"] + (" pinned" if row["pinned"] else ""),
                row["tier"],
                _short(row["content"]),
            )
            for row in page.memories
        ],
    )
    output.line(f"{len(page.memories)} of {page.total}")
    return 0 if page.total else 1


def _short(text: str, limit: int = 100) -> str:
    line = " ".join(text.split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def search(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept, views

    with opened(args, reading=True) as memory:
        result = memory.memories.search(
            " ".join(args.query),
            scope=args.scope or "project",
            owner=args.owner,
            **space_of(args),
            method=args.method,
            top_k=args.top_k,
            min_score=args.min_score,
            token_budget=args.token_budget,
            archived=args.archived,
            for_injection=args.as_prompt,
        )
        zone = memory.settings.zone
    hits = [views.memory(hit, zone) for hit in result.memories]
    data: dict[str, Any] = {"memories": hits, "freshness": views.freshness(result.freshness)}
    if args.as_prompt:
        data["prompt"] = kept.prompt(result, budget=args.token_budget, zone=zone)
        output.value(data)
        output.line(data["prompt"])
        return 0 if data["prompt"] else 1
    output.value(data)
    for item in hits:
        output.line(
            f"{item['score']:.2f}  [{item.get('category', 'memory')}] {item['content']}", style="bold"
        )
        output.line(f"      {item['id']}  {item['path']}")
    if not hits:
        output.line("Nothing fits.")
    return 0 if hits else 1


def show(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        row = memory.memories.show(args.id, **place_of(args))
    return _say_row(row, output)


def _say_row(row: Mapping[str, Any], output: Output) -> int:
    output.value(dict(row))
    output.line(f"{row['id']}  ({row['category']}, {row['status']}, tier {row['tier']})", style="bold")
    output.block(str(row["content"]))
    hidden = {"id", "content", "category", "status", "tier", "dedupe_key"}
    output.fields(
        {name: value for name, value in row.items() if name not in hidden and value not in {None, ""}}
    )
    return 0


def history(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept

    with opened(args, reading=True) as memory:
        lines = kept.history(memory.memories.history(args.id, **place_of(args)))
    output.value(lines)
    for line in lines:
        by = f" by {line['by']}" if line.get("by") else ""
        why_ = f": {line['reason']}" if line.get("reason") else ""
        output.line(f"{line['at'][:19]}  {line['what']}{by}{why_}", style="bold")
        for name in ("old", "new"):
            for field, value in (line.get(name) or {}).items():
                output.line(f"      {name} {field}: {_short(str(value), 200)}")
    return 0


def why(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        lines = list(memory.memories.why(args.id, **place_of(args)))
    output.value({"id": args.id, "why": lines})
    for line in lines:
        output.line(line)
    return 0


# ---------------------------------------------------------------- correct and forget


def edit(args: argparse.Namespace, output: Output) -> int:
    names = (
        "content",
        "category",
        "importance",
        "confidence",
        "tier",
        "file_scope_pattern",
        "trigger",
        "procedure",
    )
    changes = {name: getattr(args, name) for name in names if getattr(args, name) is not None}
    with opened(args, reading=True) as memory:
        row = memory.memories.edit(args.id, **place_of(args), reason=args.reason, **changes)
    return _say_row(row, output)


def supersede(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        verdict = memory.memories.supersede(
            args.id, " ".join(args.text), reason=args.reason, **place_of(args)
        )
    return _say_verdict(verdict, output)


def pin(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        return _say_row(memory.memories.pin(args.id, **place_of(args)), output)


def unpin(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        return _say_row(memory.memories.unpin(args.id, **place_of(args)), output)


def archive(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        return _say_row(memory.memories.archive(args.id, **place_of(args), reason=args.reason), output)


def restore(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        return _say_row(memory.memories.restore(args.id, **place_of(args)), output)


def promote(args: argparse.Namespace, output: Output) -> int:
    with opened(args, reading=True) as memory:
        return _say_row(memory.memories.promote(args.id, **place_of(args)), output)


def forget(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept

    if args.id is None and not args.words:
        raise Invalid("Say what to forget: an id, or --words.", field="id")
    named = {"words": args.words, "also": args.also, "similar": args.similar, "all_owners": args.all_owners}
    with opened(args, reading=True) as memory:
        if args.dry_run or not args.yes:
            told = kept.receipt(memory.memories.forget(args.id, **named, **place_of(args), dry_run=True))
            if args.dry_run:
                output.value(told)
                _say_preview(told, output.line)
                return 0
            _confirm(told, output)
        receipt = kept.receipt(memory.memories.forget(args.id, **named, **place_of(args)))
    output.value(receipt)
    output.line(f"Forgotten: {receipt['id']}, {receipt['at']}", style="bold")
    for name, count in receipt["removed"].items():
        output.line(f"      {count} {name}")
    for place in receipt["places"]:
        output.line(f"      {place}")
    _say_alike(receipt, output.line)
    for item in receipt["left"]:
        output.line(f"NOT removed: {item['where']}: {item['why']}", style="bold")
    return 0 if receipt["complete"] else 1


def _say_preview(told: Mapping[str, Any], say: Callable[[str], None]) -> None:
    say("This goes:" if told["taken"] else "Nothing goes.")
    for one in told["taken"]:
        say(f"  {one['id']} ({one['owner']}, {one['why']}): {_short(one['words'])}")
    _say_alike(told, say)


def _say_alike(told: Mapping[str, Any], say: Callable[[str], None]) -> None:
    if told["alike"]:
        say("This is merely alike and stays; --also ID takes one, --also-alike all:")
    for one in told["alike"]:
        say(f"  {one['id']} ({one['owner']}, {one['why']}): {_short(one['words'])}")


def _confirm(told: Mapping[str, Any], output: Output) -> None:
    if output.as_json or not sys.stdin.isatty():
        raise Invalid("Forgetting cannot be undone: say --yes where nobody can be asked.", field="yes")
    _say_preview(told, output.note)
    output.note("There is no undo. Forget it? [y/N] ")
    if input().strip().lower() not in {"y", "yes"}:
        raise Invalid("Nothing was forgotten.", field="yes")


def import_(args: argparse.Namespace, output: Output) -> int:
    from cairn.surfaces import kept
    from cairn.surfaces.commands import text_of

    text = text_of(args.file)
    with opened(args) as memory:
        report = memory.memories.import_from(
            args.source, text, owner=args.owner, trust=args.trust, **space_of(args)
        )
    done = kept.imported(report)
    output.value(done)
    output.line(
        f"{len(report.kept)} kept, {len(report.merged)} merged, {len(report.known)} known already, "
        f"{len(report.refused)} refused."
    )
    for item in done["refused"]:
        output.line(f"refused: {item['key']}: {item['reason']}")
    return 0
