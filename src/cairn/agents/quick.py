"""The quick half of `cairn hook`: it hands what the agent sent to the process that holds the memory open, and prints the answer.

    stdin -> {"op": "hook", "input": ...} over the root's socket -> what to print

A prompt waits for this, so that nothing but `json`, `socket` and a hash is imported. Where nobody answers, or the root can
only be known by reading settings, the other half (`hook.py`) does the work.
"""

from __future__ import annotations

import hashlib
import json
import os
import socket
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

MAX_INPUT = 16 * 1024 * 1024
PROMPT_SECONDS = 1.5
START_SECONDS = 4.0
_MAX_ANSWER = 4 * 1024 * 1024


def run(argv: Sequence[str]) -> int:
    """Run one hook; always 0."""
    data: Any = None
    timed_out = False
    try:
        if os.environ.get("CAIRN_DISABLE") == "1":
            return 0
        data = json.loads(sys.stdin.buffer.read(MAX_INPUT) or b"{}")
        root = _root(argv)
        if root is not None and isinstance(data, dict):
            begins = str(data.get("hook_event_name")).lower() == "sessionstart"
            message = {"op": "hook", "input": data, "host": option(argv, "--host")}
            told = converse(root, message, START_SECONDS if begins else PROMPT_SECONDS)
            if "out" in told:
                sys.stdout.write(told["out"])
                sys.stdout.flush()
                return 0
    except TimeoutError:
        timed_out = True
    except (OSError, ValueError, RecursionError):
        pass
    from cairn.agents import hook

    return hook.main(argv, data, alone=timed_out)


def _root(argv: Sequence[str]) -> str | None:
    """The memory's folder, where it can be told without reading settings."""
    named = option(argv, "--root") or os.environ.get("CAIRN_MEMORY__ROOT")
    if named:
        return named
    home = os.environ.get("HOME") or "~"
    config = os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config")
    files = (os.path.join(config, "cairn", ".env"), os.path.join(home, ".cairn", ".env"), ".env")
    if os.environ.get("MEMORY_VAULT_PATH") or any(os.path.exists(os.path.expanduser(one)) for one in files):
        return None
    return "~/.cairn"


def option(argv: Sequence[str], name: str) -> str | None:
    """The value of an option, in either form."""
    for number, word in enumerate(argv):
        if word == name and number + 1 < len(argv):
            return argv[number + 1]
        if word.startswith(f"{name}="):
            return word.partition("=")[2]
    return None


def socket_name(root: str) -> str:
    """Where the process of a root listens. The path is short: a socket's name may have some 100 bytes."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = runtime if runtime and os.path.isdir(runtime) else os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 -- a folder of this user's own below it
    name = hashlib.sha256(os.fsencode(os.path.realpath(os.path.expanduser(root)))).hexdigest()[:16]
    return os.path.join(base, f"cairn-{os.getuid()}", f"{name}.sock")


def converse(root: str, message: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The answer of the process that holds the memory open.

    Raises:
        TimeoutError: it is there, and has not answered in `seconds`.
        OSError: there is none, it is another user's, or it went away.
    """
    at = socket_name(root)
    if os.stat(os.path.dirname(at)).st_uid != os.getuid():
        raise PermissionError(f"{os.path.dirname(at)} is another user's")
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(seconds)
        line.connect(at)
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
        raise ConnectionError("the process went away") from None
    if not isinstance(value, dict):
        raise ConnectionError("the answer is none")
    return value
