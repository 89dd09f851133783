"""Where `cairn` begins: a hook takes the quick way, everything else the command line.

A coding agent waits for its hook at every prompt, so the parser and all that it needs are not even imported for one.
"""

from __future__ import annotations

import sys


def main() -> int:
    """Run one command and return its exit code."""
    if sys.argv[1:2] == ["hook"]:
        from cairn.agents import quick

        return quick.run(sys.argv[2:])
    from cairn.surfaces import cli

    return cli.main()
