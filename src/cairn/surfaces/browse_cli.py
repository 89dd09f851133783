"""Commands to look through a memory: open, owners, timeline, upcoming, find, linked, connections, revise."""

from __future__ import annotations

import argparse
from typing import Any

from cairn.operations.browse import Browse
from cairn.surfaces.command import Command, CommandCall, text_of
from cairn.surfaces.output import Output
from cairn.wording import short


def say_owners(data: Any, output: Output) -> None:
    rows = [
        (
            f"{one['app_id']}/{one['project_id']}",
            one["scope"],
            one["owner"],
            ", ".join(f"{n} {kind}" for kind, n in sorted(one["kinds"].items())),
        )
        for one in data["owners"]
    ]
    output.table(("space", "scope", "owner", "entries"), rows)


def _day_of(one: dict[str, Any]) -> str:
    """When an entry is from; of a plan when it is due, or until when it matters where no day was told."""
    if "due" in one:
        return str(one["due"] or f"until {one['ends']}")
    return str(one["timestamp"])[:16].replace("T", " ")


def say_entries(data: Any, output: Output) -> int:
    for one in data.get("entries", data.get("hits", ())):
        day = _day_of(one)
        words, owner = short(one["title"] or one["text"]), one["owner"] or "project"
        if words.casefold().startswith(f"{owner}: ".casefold()):
            words = words[len(owner) + 2 :]  # a plan begins with who said it
        output.line(f"{day}  {one['kind']:11} {owner}: {words}")
        output.line(f"    {one['id']}")
    for note in data["freshness"]["notes"]:
        output.note(note)
    found = bool(data.get("entries", data.get("hits")))
    if not found:
        output.line("Nothing is there.")
    return 0 if found else 1


def say_linked(data: Any, output: Output) -> int:
    for relation, entries in data.items():
        for one in entries:
            output.line(f"{relation.replace('_', ' '):14} {one['id']}  {short(one['title'])}")
    if not any(data.values()):
        output.line("It is linked to nothing.")
    return 0 if any(data.values()) else 1


def say_connections(data: Any, output: Output) -> int:
    known = {one["id"]: one for one in data["entries"]}
    for link in data["links"]:
        newer, other = known[link["from_id"]], known[link["to_id"]]
        output.line(f"{_day_of(newer)}  {short(newer['title'])}")
        output.line(f"    {link['how']}: {_day_of(other)}  {short(other['title'])}")
        output.line(f"    {newer['id']} -> {other['id']}")
    if not data["links"]:
        output.line("No two entries hang together.")
    return 0 if data["links"] else 1


def _from_file(args: argparse.Namespace, fields: dict[str, Any]) -> None:
    fields["source"] = text_of(args.file)


def open_page(call: CommandCall) -> int:
    """Open the page; where no server serves this root, serve it here until Ctrl-C."""
    from cairn.config import load
    from cairn.web.visitors import Visitors

    args, output = call.args, call.output
    settings = load(args.root)
    visitors = Visitors(settings.server_dir)
    address = str(visitors.served().get("address", ""))
    if address and _answers(address):
        _show(f"{address}/view/open?code={visitors.offer()}", args, output)
        return 0
    from cairn.surfaces.http import serve

    host = "127.0.0.1"
    port = args.port or _free_port(host, settings.server.port)
    here = load(args.root, server__host=host, server__port=port)

    def ready(at: str) -> None:
        _show(f"{at}/view/open?code={visitors.offer()}", args, output)
        output.line("The page is served from here: Ctrl-C ends it.")

    serve(here, ready=ready, reread=lambda: load(args.root, server__host=host, server__port=port))
    return 0


def _show(link: str, args: argparse.Namespace, output: Output) -> None:
    import threading
    import webbrowser

    output.value({"link": link})
    output.line(f"{link}\nThe link works once, within ten minutes.")
    if not args.no_browser and not output.as_json:
        # A browser may take its time, or be a text browser: nothing waits for it.
        threading.Thread(target=webbrowser.open, args=(link,), daemon=True).start()


def _answers(address: str) -> bool:
    import http.client
    from urllib.parse import urlsplit

    parts = urlsplit(address)
    try:
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=3)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException, ValueError):
        return False


def _free_port(host: str, wanted: int) -> int:
    """The usual port, or any other where it is taken."""
    import socket

    for port in (wanted, 0):
        with socket.socket() as probe:
            try:
                probe.bind((host, port))
                return int(probe.getsockname()[1])
            except OSError:
                continue
    return wanted


COMMANDS = (
    Command(
        "open",
        run=open_page,
        also={
            "--port": {"type": int, "metavar": "N", "help": "where to serve the page, if no server runs"},
            "--no-browser": "only print the link",
        },
    ),
    Command("owners", Browse.overview, say_owners, bare="owners"),
    Command("timeline", Browse.timeline, say_entries),
    Command("upcoming", Browse.upcoming, say_entries),
    Command("find", Browse.find, say_entries),
    Command("linked", Browse.linked, say_linked),
    Command("connections", Browse.connections, say_connections),
    Command(
        "revise",
        Browse.revise,
        positional="entry_id",
        without="source",
        also={
            "--file": {
                "required": True,
                "metavar": "FILE",
                "help": "the new Markdown; - reads standard input",
            }
        },
        fill=_from_file,
    ),
)
