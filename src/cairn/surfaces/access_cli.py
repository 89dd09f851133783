"""The commands about who may call the server: token, audit."""

from __future__ import annotations

import json
from typing import Any

from cairn.operations.access import Access
from cairn.surfaces.command import Command
from cairn.surfaces.output import Output


def say_tokens(data: Any, output: Output) -> None:
    columns = ("name", "state", "rights", "made", "expires")
    output.table(columns, [[row[name] or "" for name in columns] for row in data["tokens"]])
    if not data["tokens"]:
        output.line("No tokens were made here: `cairn token add NAME` makes one (server.tokens has others).")


def say_new_token(made: Any, output: Output) -> None:
    output.line(made["secret"])
    ends = f" until {made['expires']}" if made["expires"] else ""
    output.note(f'Token "{made["name"]}" ({made["rights"]}){ends}. It is shown this once: keep it now.')


def say_revoked(gone: Any, output: Output) -> None:
    output.line(f'Token "{gone["name"]}" holds no more; running servers refuse it from the next call on.')


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
    Command("token add", Access.add_token, say_new_token, positional="name", reading=False),
    Command("token list", Access.tokens, say_tokens, bare="tokens"),
    Command("token revoke", Access.revoke_token, say_revoked, positional="name"),
    Command("audit", Access.audit, say_calls, bare="calls"),
)
