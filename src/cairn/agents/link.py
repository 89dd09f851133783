"""The connection between a hook and the warm process: one JSON line each way over a Unix socket that only
this user can open.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from cairn.agents import quick
from cairn.canonical import from_json


def socket_path(root: Path) -> Path:
    """Where the warm process of a root listens."""
    return Path(quick.socket_name(str(root)))


def ask(root: Path, message: dict[str, Any], seconds: float) -> dict[str, Any] | None:
    """The warm process's answer; None where there is none, it is another user's, or it takes too long."""
    try:
        return converse(root, message, seconds)
    except OSError:
        return None


def converse(root: Path, message: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The warm process's answer.

    Raises:
        TimeoutError: it is there, and has not answered in `seconds`.
        OSError: there is none, it is another user's, or it went away.
    """
    sent = json.dumps(message).encode("utf-8", "surrogatepass") + b"\n"
    try:
        value = from_json(quick.exchange(str(root), sent, seconds))
    except ValueError:
        raise ConnectionError("the process went away") from None
    if not isinstance(value, dict):
        raise ConnectionError("the answer is none")
    return value


def start_warm(root: Path) -> subprocess.Popen[bytes]:
    """Start the warm process apart from this one: own session, no streams; it ends by itself."""
    environment = {**os.environ, "CAIRN_DISABLE": "1"}
    with Path(os.devnull).open("r+b") as nothing:
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "cairn.agents.warm", "--root", str(root)],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            close_fds=True,
            env=environment,
            cwd="/",
        )
