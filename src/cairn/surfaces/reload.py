"""`cairn server start --reload`: run the server in a child and start it anew when the package changes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import cairn


def serve_with_reload(argv: Sequence[str]) -> int:
    """Watch the package; restart the child on a change. Ends with Ctrl-C or when the child fails by itself."""
    from watchfiles import PythonFilter, watch

    command = [
        sys.executable,
        "-P",
        "-m",
        "cairn.surfaces.cli",
        *(word for word in argv[1:] if word != "--reload"),
    ]
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
