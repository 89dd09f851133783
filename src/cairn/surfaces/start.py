"""The entry point of `cairn`: hooks take a fast path, everything else goes to the command line.

A coding agent waits for its hook at every prompt, so the parser and all that it needs are not even imported for one.
"""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run one command and return its exit code."""
    if sys.argv[1:2] == ["hook"]:
        try:
            from cairn.agents import quick

            quick.run(sys.argv[2:])
        except BaseException:  # noqa: S110 -- no terminal, no streams, an interrupt: an agent's work goes on
            pass
        os._exit(0)  # an interpreter that is taken down in order takes as long as this whole client
    from cairn.surfaces import cli

    return cli.main()
