"""The servers of a root that are up, and which of them is home to an owner.

Every server says once a second that it is there, with the address at which the others reach it, and learns of them with the
same question. Whoever has not said so for three seconds is gone, and what it was home to has another home. The home of a
name is chosen by its hash among the servers that are up, so all choose the same one without asking, and of a server that
comes or goes only its own share moves.

Nothing rests on it: any server answers any call. That one of them is asked about an owner as a rule is why an owner's talk is
indexed, and its vectors made, once.
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import logging
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

from cairn.engines.postgres import Postgres
from cairn.errors import CairnError

BEAT_SECONDS, LEASE_SECONDS = 1.0, 3.0
_KEPT_HOMES = 16_384
_BEAT = """
WITH me AS (
    INSERT INTO cairn_servers (root, name, address, place, until)
    VALUES (%(root)s, %(writer)s, %(address)s, %(place)s, clock_timestamp() + %(lease)s * interval '1 second')
    ON CONFLICT (root, name) DO UPDATE SET until = excluded.until)
SELECT name, address FROM cairn_servers
WHERE root = %(root)s AND name <> %(writer)s AND place IN ('', %(place)s) AND until > clock_timestamp()
"""
_LEAVE = """
DELETE FROM cairn_servers WHERE root = %(root)s AND (name = %(writer)s OR until < clock_timestamp() - interval '1 hour')
RETURNING true
"""
_log = logging.getLogger(__name__)


class Servers:
    """Those that are up, as this server knows them.

    Args:
        database: Where they meet.
        address: "host:port" at which the others reach this one.
        place: Where alone that address means this server; "" if it does everywhere.
        is_ready: Whether this one can be home to anybody yet, or still.
    """

    def __init__(
        self, database: Postgres, address: str, place: str = "", is_ready: Callable[[], bool] = lambda: True
    ) -> None:
        self._database, self._address, self._place, self._is_ready = database, address, place, is_ready
        self.name = database.writer
        self._others: dict[str, str] = {}
        self._heard = 0.0
        self._is_in = False
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._chosen = functools.lru_cache(_KEPT_HOMES)(self._choose)

    def start(self) -> None:
        """Say from now on that this server is there."""
        self._thread = threading.Thread(target=self._live, name="cairn-servers", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Say no more, and that at once: the others stop sending calls here."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEASE_SECONDS)
        self._leave()

    def home(self, name: str) -> tuple[str, str] | None:
        """The server that is home to a name, and its address; None where that is this one."""
        if not self._others or time.monotonic() - self._heard > LEASE_SECONDS:
            return None
        chosen = self._chosen(name)
        address = self._others.get(chosen)
        return None if address is None else (chosen, address)

    def is_up(self, server: str) -> bool:
        """Whether another server has said lately that it is there."""
        return server in self._others

    def beat(self) -> None:
        """Say that this server is there, and learn which others are."""
        try:
            if not self._is_ready():
                self._leave()
                return
            rows = self._database.ask(_BEAT, address=self._address, place=self._place, lease=LEASE_SECONDS)
        except CairnError as error:
            _log.debug("the other servers are not heard: %s", error)
            if time.monotonic() - self._heard > LEASE_SECONDS:
                self._know({})
            return
        self._heard, self._is_in = time.monotonic(), True
        self._know(dict(rows))

    def _know(self, others: dict[str, str]) -> None:
        if others != self._others:
            self._others = others
            self._chosen.cache_clear()

    def _choose(self, name: str) -> str:
        return max((self.name, *self._others), key=lambda server: _weight(server, name))

    def _leave(self) -> None:
        self._know({})
        if self._is_in:
            try:
                self._database.ask(_LEAVE)
                self._is_in = False
            except CairnError:  # the lease ends by itself
                return

    def _live(self) -> None:
        while not self._stop.is_set():
            try:
                self.beat()
            except Exception:
                _log.exception("this server could not say that it is there")
            self._stop.wait(BEAT_SECONDS)


def reached_at(host: str, port: int, database: str) -> tuple[str, str]:
    """Where other servers reach one that listens on `host`, and the place where alone they do: an address of this machine
    for itself means another program elsewhere.

    >>> reached_at("10.0.0.7", 8000, "postgresql://cairn@db/cairn")
    ('10.0.0.7:8000', '')
    """
    if host in {"", "0.0.0.0", "::"}:  # noqa: S104 -- what was bound, not what to bind
        host = _facing(database)
    try:
        is_own = ipaddress.ip_address(host).is_loopback
    except ValueError:
        is_own = host == "localhost"
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return (address, _this_network()) if is_own else (address, "")


def _facing(database: str) -> str:
    """The address that this machine has on the way to the database."""
    from psycopg.conninfo import conninfo_to_dict

    try:
        given = conninfo_to_dict(database)
        host = str(given.get("hostaddr") or given.get("host") or "")
        found = socket.getaddrinfo(host, int(str(given.get("port") or 5432)), type=socket.SOCK_DGRAM)
        family, kind, _, _, target = found[0]
        with socket.socket(family, kind) as probe:
            probe.connect(target)  # of a datagram: nothing is sent
            return str(probe.getsockname()[0])
    except (OSError, ValueError):
        return "127.0.0.1"


def _this_network() -> str:
    """A name for what the addresses of this machine for itself mean: the start of its system, and its network in there."""
    try:
        return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()}/{Path('/proc/self/ns/net').stat().st_ino}"
    except OSError:
        return f"process {os.getpid()} of {uuid.getnode()}"


def _weight(server: str, name: str) -> bytes:
    return hashlib.blake2b(f"{server} {name}".encode("utf-8", "surrogatepass"), digest_size=8).digest()
