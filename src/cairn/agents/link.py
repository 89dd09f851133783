"""The line between a hook and the warm process: one JSON line each way over a socket of this user alone."""

from __future__ import annotations

import hashlib
import json
import os
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

_MAX_ANSWER = 4 * 1024 * 1024


def socket_path(root: Path) -> Path:
    """Where the warm process of a root listens. The path is short: a socket's name may have some 100 bytes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) if runtime and Path(runtime).is_dir() else Path(tempfile.gettempdir())
    name = hashlib.sha256(os.fsencode(root.resolve())).hexdigest()[:16]
    return base / f"cairn-{os.getuid()}" / f"{name}.sock"


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
    at = socket_path(root)
    if at.parent.stat().st_uid != os.getuid():
        raise PermissionError(f"{at.parent} is another user's")
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(seconds)
        line.connect(str(at))
        line.sendall(json.dumps(message).encode("utf-8", "surrogatepass") + b"\n")
        line.shutdown(socket.SHUT_WR)
        parts = []
        size = 0
        while part := line.recv(65536):
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER:
                raise ConnectionError("the answer is too long")
    try:
        value = json.loads(b"".join(parts))
    except ValueError:
        raise ConnectionError("the warm process went away") from None
    if not isinstance(value, dict):
        raise ConnectionError("the answer is none")
    return value


def start_warm(root: Path) -> subprocess.Popen[bytes]:
    """Start the warm process apart from this one: own session, no streams; it ends by itself."""
    environment = {**os.environ, "CAIRN_DISABLE": "1"}
    with Path(os.devnull).open("r+b") as nothing:
        return subprocess.Popen(
            [sys.executable, "-m", "cairn.agents.warm", "--root", str(root)],
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            start_new_session=True,
            close_fds=True,
            env=environment,
            cwd="/",
        )
