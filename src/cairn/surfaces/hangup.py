"""Signals: SIGHUP reloads settings; SIGTERM reports not ready, drains calls, then ends.

SIGHUP: it reads its settings again, takes those that can change, and goes on. A hang-up of the terminal the server was started in is something else: nobody can stop it there any more, so it ends
as it does on SIGTERM. The two are told apart by whether that terminal is still there.
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable
from dataclasses import fields, replace
from types import FrameType

import uvicorn

from cairn.config import SECTIONS, Settings
from cairn.errors import CairnError, Misconfigured
from cairn.surfaces import logs
from cairn.surfaces.connections import Connections
from cairn.surfaces.guard import Guard

log = logging.getLogger("cairn.server")

RELOADED = frozenset(
    {
        "logging.level",
        "logging.format",
        "server.tokens",
        "server.allowed_hosts",
        "server.allowed_origins",
        "server.max_body_bytes",
        "server.max_concurrency",
        "server.header_timeout_seconds",
        "server.body_timeout_seconds",
    }
)
"""Settings a running server takes over; the others hold from its start."""


class Draining(uvicorn.Server):
    """A server that goes on taking calls for a while after SIGTERM, and says meanwhile that it is not ready.

    A balancer that asks now and then turns away by itself, so nobody meets a closed door. A second signal ends it at once.

    Args:
        config: How it serves.
        seconds: For how long it goes on.
    """

    def __init__(self, config: uvicorn.Config, seconds: float) -> None:
        super().__init__(config)
        self._seconds = seconds
        self._told = False
        self._loop: asyncio.AbstractEventLoop | None = None

    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self._told or self.should_exit

    async def startup(self, sockets: list[object] | None = None) -> None:  # type: ignore[override]
        self._loop = asyncio.get_running_loop()
        await super().startup(sockets=sockets)  # type: ignore[arg-type]

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Note that it is to end, and end after a while."""
        if sig != signal.SIGTERM or self._told or not self._seconds or self._loop is None:
            super().handle_exit(sig, frame)
            return
        self._told = True
        end = super().handle_exit
        self._loop.call_soon_threadsafe(self._loop.call_later, self._seconds, end, sig, frame)


class Hangup:
    """What SIGHUP does to one server."""

    def __init__(
        self,
        settings: Settings,
        read: Callable[[], Settings],
        guard: Guard,
        connections: Connections,
        stop: Callable[[], None],
    ) -> None:
        self.settings = settings
        self._read = read
        self._guard = guard
        self._connections = connections
        self._stop = stop
        self._had_terminal = _has_terminal()
        self._turn = asyncio.Lock()
        self._tasks: set[asyncio.Task[None]] = set()

    def listen(self) -> None:
        """Answer SIGHUP from now on, on the running loop. Windows has no such signal."""
        if hasattr(signal, "SIGHUP"):
            asyncio.get_running_loop().add_signal_handler(signal.SIGHUP, self._heard)

    def _heard(self) -> None:
        if self._had_terminal and not _has_terminal():
            log.warning("the terminal is gone: the server finishes what it has begun, and stops")
            self._stop()
            return
        task = asyncio.get_running_loop().create_task(self._reload())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _reload(self) -> None:
        async with self._turn:
            try:
                self.take(await asyncio.to_thread(self._read))
            except CairnError as error:
                log.error("settings were not reloaded, the old ones hold: %s", error)  # noqa: TRY400
            except Exception:
                log.exception("settings were not reloaded, the old ones hold")

    def take(self, found: Settings) -> None:
        """Go over to what can change of `found`, and say in the log what did and what waits for a restart.

        Raises:
            Misconfigured: a token that cannot be read, or none left where there were some; nothing has changed then.
        """
        new = changed(self.settings, found)
        taken = _merged(self.settings, found)
        if self._guard.grants and not taken.server.tokens and not self._guard.begun:
            raise Misconfigured(
                "server.tokens is empty now, which would let everybody in. Restart the server if that is meant.",
                setting="server.tokens",
            )
        self._guard.take(taken.server)
        self._connections.seconds = taken.server.header_timeout_seconds
        logs.configure(taken.logging)
        self.settings = taken
        waiting = sorted(new - RELOADED)
        # A warning, so that whoever sent the signal sees the answer at the usual level.
        log.warning(
            "settings reloaded: %s%s",
            ", ".join(sorted(new & RELOADED)) or "nothing has changed",
            f"; {', '.join(waiting)} changed, too, and wait for a restart" if waiting else "",
        )


def changed(old: Settings, new: Settings) -> set[str]:
    """The names ("section.key") of the settings in which two differ."""
    return {
        f"{section}.{one.name}"
        for section in SECTIONS
        for one in fields(getattr(old, section))
        if getattr(getattr(old, section), one.name) != getattr(getattr(new, section), one.name)
    }


def _merged(old: Settings, new: Settings) -> Settings:
    """`old` with what can be reloaded of `new`."""
    parts = {}
    for section in ("logging", "server"):
        names = [name.partition(".")[2] for name in RELOADED if name.startswith(f"{section}.")]
        given = getattr(new, section)
        parts[section] = replace(getattr(old, section), **{name: getattr(given, name) for name in names})
    return replace(old, **parts)


def _has_terminal() -> bool:
    """Whether this process has a controlling terminal that answers."""
    try:
        os.close(os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY | os.O_CLOEXEC))
    except OSError:
        return False
    return True
