"""The subcommands for coding agents: the MCP server, and what is written into other programs."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from cairn.surfaces.output import Output

if TYPE_CHECKING:
    from cairn.surfaces.cli import Commands


def add_commands(commands: Commands) -> None:
    """Declare every subcommand of this module."""
    commands.add("mcp", mcp, "serve this memory to an agent over MCP, on standard input and output")


def mcp(args: argparse.Namespace | None, _output: Output) -> int:
    """Serve one host until it hangs up."""
    from cairn.surfaces import mcp_server

    return mcp_server.main(None if args is None else args.root)
