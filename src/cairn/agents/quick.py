"""The fast path of `cairn hook`: sends the agent's JSON to the warm process and prints its answer, importing
C modules only.

    stdin -> "hook HOST", a line end, and what the agent sent, as it is -> the root's socket -> "=" and what to print

A prompt waits for this, so that it reads and makes no JSON, and imports C modules alone: `json`, `socket` and `hashlib` would
take as long as Python itself takes to start. Where nobody answers, or the root can only be known by reading settings, the
other half (`hook.py`) does the work.
"""

from __future__ import annotations

import _blake2
import _socket
import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_INPUT = 16 * 1024 * 1024
PROMPT_SECONDS = 1.5
START_SECONDS = 4.0
SENT, TOLD = b"hook ", b"="
"""How the bytes a hook sends begin, and the answer to them: every other message is a line of JSON."""
_MAX_ANSWER = 4 * 1024 * 1024
_EVENT = b'"hook_event_name"'


def run(argv: Sequence[str]) -> int:
    """Run one hook; always 0."""
    data = b""
    timed_out = False
    try:
        if os.environ.get("CAIRN_DISABLE") == "1":
            return 0
        data = sys.stdin.buffer.read(MAX_INPUT) if sys.stdin else b""
        root = _root(argv)
        if root is not None:
            host = (option(argv, "--host") or "").encode("utf-8", "surrogateescape")
            told = exchange(
                root, SENT + host + b"\n" + data, START_SECONDS if _begins(data) else PROMPT_SECONDS
            )
            if told.startswith(TOLD):
                sys.stdout.buffer.write(told[len(TOLD) :])
                sys.stdout.buffer.flush()
                return 0
    except TimeoutError:
        timed_out = True
    except OSError:
        pass
    from cairn.agents import hook

    return hook.main(argv, data, alone=timed_out)


def _begins(data: bytes) -> bool:
    """Whether a session begins. Inside a text the quotes of the name would be escaped."""
    return b"sessionstart" in data.partition(_EVENT)[2][:32].lower()


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
    # Hosts start an MCP server with less of the environment than a hook: both are to find one process.
    places = (os.environ.get("XDG_RUNTIME_DIR"), f"/run/user/{os.getuid()}", os.environ.get("TMPDIR"))
    base = next((one for one in places if one and os.path.isdir(one)), "/tmp")  # noqa: S108 -- a folder of this user's own below it
    name = _blake2.blake2b(os.fsencode(os.path.realpath(os.path.expanduser(root))), digest_size=8).hexdigest()
    return os.path.join(base, f"cairn-{os.getuid()}", f"{name}.sock")


def exchange(root: str, sent: bytes, seconds: float) -> bytes:
    """What the process that holds the memory open answers.

    Raises:
        TimeoutError: it is there, and has not answered in `seconds`.
        OSError: there is none, it is another user's, or it went away.
    """
    at = socket_name(root)
    if os.stat(os.path.dirname(at)).st_uid != os.getuid():
        raise PermissionError(f"{os.path.dirname(at)} is another user's")
    line = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        line.settimeout(seconds)
        line.connect(at)
        line.sendall(sent)
        line.shutdown(_socket.SHUT_WR)
        parts = []
        size = 0
        while part := line.recv(65536):
            parts.append(part)
            size += len(part)
            if size > _MAX_ANSWER:
                raise ConnectionError("the answer is too long")
    finally:
        line.close()
    return b"".join(parts)
