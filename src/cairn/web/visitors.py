"""Visits of the page: one-time links, cookies, and the secret of each form.

`cairn open` leaves the hash of a code in the server's folder of this machine, which only the owner of the root can write; the server
that finds it there hands out a session and removes it. Who has a token of the server signs in with it and sees what
it may see. Without either the page shows what the server shows to anybody, and changes nothing unless it was started
with `--write`. A visit outlives the server: of its cookie a hash lies in that folder, and the token of its forms follows
from the cookie, so what somebody typed while the server was away can still be sent.
"""

from __future__ import annotations

import contextlib
import hmac
import json
import os
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from cairn.canonical import from_json
from cairn.engines import plain
from cairn.rights import OPEN, Grant, digest_of

_CODE_SECONDS = 600.0
_MOST_VISITS = 1000
_IDLE_SECONDS = 14 * 24 * 3600.0
_MARK_SECONDS = 3600.0


def is_page(path: str) -> bool:
    """Whether a path is of the page; what is below /api, /health and the like is not."""
    return path == "/" or path.startswith("/view/")


def hashed(secret: str) -> bytes:
    """What is kept of a secret."""
    return digest_of(secret.encode())


@dataclass(slots=True)
class Visit:
    """One browser: the token it signed in with (none for the root's own person), and the secret of its forms."""

    digest: bytes
    is_owner: bool
    form: str
    seen: float
    said: str = ""
    undo: str = ""

    def tell(self) -> tuple[str, str]:
        """What to say on the next page, once, and how to undo it."""
        told, self.said, self.undo = (self.said, self.undo), "", ""
        return told


class Visitors:
    """The sessions of the servers of one root, each a file named by the hash of its cookie."""

    def __init__(self, server_dir: Path, *, writes: bool = False) -> None:
        self.place = server_dir / "page"
        self.writes = writes
        self._visits: OrderedDict[bytes, Visit] = OrderedDict()
        self._guard = threading.Lock()

    # ------------------------------------------------------------ who it is

    def of(self, headers: Mapping[bytes, bytes]) -> Visit | None:
        """The visit whose cookie a request brings."""
        name = cookie_name(headers)
        for piece in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            key, _, value = piece.strip().partition("=")
            if key == name and value:
                with self._guard:
                    visit = self._visits.get(hashed(value)) or self._kept(value)
                    if visit is not None and self._is_fresh(hashed(value), visit):
                        return visit
        return None

    def _kept(self, secret: str) -> Visit | None:
        """A visit that began before this server did."""
        try:
            file = self._file(hashed(secret))
            told, seen = from_json(file.read_text()), file.stat().st_mtime
            visit = Visit(bytes.fromhex(told["digest"]), told["is_owner"] is True, _form_of(secret), seen)
        except (OSError, ValueError, KeyError, TypeError):
            return None
        self._visits[hashed(secret)] = visit
        return visit

    def _is_fresh(self, key: bytes, visit: Visit) -> bool:
        """Whether a visit goes on; its file is marked at most once an hour."""
        idle = time.time() - visit.seen
        if idle >= _IDLE_SECONDS:
            self._end(key)
            return False
        if idle > _MARK_SECONDS:
            visit.seen = time.time()
            with contextlib.suppress(OSError):
                os.utime(self._file(key))
        return True

    def _file(self, key: bytes) -> Path:
        return self.place / f"visit-{key.hex()}"

    def _end(self, key: bytes) -> None:
        self._visits.pop(key, None)
        with contextlib.suppress(OSError):
            self._file(key).unlink(missing_ok=True)

    def grant(self, visit: Visit | None, grants: Sequence[Grant], *, guarded: bool) -> Grant | None:
        """What a visitor may do; None for nobody, who is asked to sign in where the server is `guarded` by tokens."""
        if visit is not None and visit.is_owner:
            return OPEN
        if not guarded:
            return replace(OPEN, write=self.writes and visit is not None)
        found = next((one for one in grants if visit and hmac.compare_digest(one.digest, visit.digest)), None)
        return found and replace(found, write=found.write and self.writes)

    def begin(self, *, digest: bytes = b"", is_owner: bool = False) -> tuple[str, Visit]:
        """A new visit, and the secret its cookie holds."""
        secret = secrets.token_urlsafe(32)
        key, visit = hashed(secret), Visit(digest, is_owner, _form_of(secret), time.time())
        with self._guard:
            self._visits[key] = visit
            while len(self._visits) > _MOST_VISITS:
                self._end(next(iter(self._visits)))
            with contextlib.suppress(OSError):  # without a file the visit ends with the server
                self._make_place()
                self._drop_old("visit-*", _IDLE_SECONDS)
                told = {"digest": digest.hex(), "is_owner": is_owner}
                plain.put(self._file(key), json.dumps(told).encode())
        return secret, visit

    def end(self, visit: Visit) -> None:
        """Forget a visit: its cookie opens nothing any more."""
        with self._guard:
            for key in [key for key, one in self._visits.items() if one is visit]:
                self._end(key)

    # ------------------------------------------------------------ one-time links

    def offer(self) -> str:
        """A code that opens the page once, within ten minutes, at whichever server serves this root."""
        code = secrets.token_urlsafe(24)
        self._make_place()
        handle = os.open(
            self.place / f"code-{hashed(code).hex()}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600
        )
        os.close(handle)
        return code

    def take(self, code: str) -> bool:
        """Whether a code was offered and not used yet; whoever takes it is the only one."""
        self._drop_old("code-*", _CODE_SECONDS)
        try:
            (self.place / f"code-{hashed(code).hex()}").unlink()
        except OSError:
            return False
        return True

    def _make_place(self) -> None:
        os.makedirs(self.place.parent, mode=0o700, exist_ok=True)
        self.place.mkdir(mode=0o700, exist_ok=True)

    def _drop_old(self, pattern: str, seconds: float) -> None:
        now = time.time()
        with contextlib.suppress(FileNotFoundError):
            for one in self.place.glob(pattern):
                if now - one.stat().st_mtime > seconds:
                    one.unlink(missing_ok=True)

    # ------------------------------------------------------------ where the server is

    def announce(self, address: str) -> None:
        """Leave word where this root is served, for `cairn open`."""
        with contextlib.suppress(OSError):
            self._make_place()
            told = {"address": address, "pid": os.getpid()}
            plain.put(self.place / "server.json", json.dumps(told).encode())

    def leave(self) -> None:
        """Take the word back, if it is ours."""
        if self.served().get("pid") == os.getpid():
            (self.place / "server.json").unlink(missing_ok=True)

    def served(self) -> dict[str, Any]:
        """Where the root is said to be served; empty for nowhere."""
        try:
            found = from_json((self.place / "server.json").read_text())
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _form_of(secret: str) -> str:
    """What the forms of a visit carry: it follows from the cookie, and tells nothing of it."""
    return hmac.new(secret.encode(), b"form", "sha256").hexdigest()


def cookie_name(headers: Mapping[bytes, bytes]) -> str:
    """A name of its own for each port: cookies of one host are shared by all of them."""
    port = headers.get(b"host", b"").decode("latin-1").rpartition(":")[2]
    return f"cairn_page_{port}" if port.isdigit() else "cairn_page"
