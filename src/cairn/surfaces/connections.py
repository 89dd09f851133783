"""Limits a server's connections: how many, and how long each may take to send a request and to take the answer.

A connection costs a handle, and a process has few. So each must bring the whole head of a request in time; there are
only so many; and when there are, the one that has waited longest without a request makes room for the next.
A caller that takes nothing of its answer for as long is cut off, or it could keep its place for ever by not reading.
What else a caller does once its request is there (a slow body, many calls at once) is the guard's to judge.
"""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

log = logging.getLogger("cairn.http")

# What the server itself has open at most, measured with 24 clients: databases per thread, notes, journals, locks.
_OWN_HANDLES = 256
_WANTED_HANDLES = 4096
_BACKLOG = 128
HEAD_BYTES = 65_536
_LATE = b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
_LARGE = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"


@lru_cache(maxsize=1)
def _speaking() -> Any:
    """The server's own protocol, which takes the host out of a target that names one.

    Such a target (`GET http://somewhere/health`) overrules the Host header (RFC 9112, 3.2.2). The server would drop its
    host unread; here it takes the header's place, so that the guard judges the host that was really asked for.
    """
    from uvicorn.protocols.http.auto import AutoHTTPProtocol

    class Speaking(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def on_headers_complete(self) -> None:
            if not self.url.startswith((b"/", b"*")):
                asked = self.url.partition(b"://")[2]
                host = re.split(rb"[/?#]", asked, maxsplit=1)[0]
                self.headers[:] = [(b"host", host), *(one for one in self.headers if one[0] != b"host")]
            super().on_headers_complete()

    return Speaking


def share_of_handles(wanted: int) -> tuple[int, int]:
    """How many connections to keep, and how many to let queue, so that handles are left for the server's own files."""
    handles = _handles()
    spare = max(handles - _OWN_HANDLES, handles // 4)
    backlog = min(_BACKLOG, spare // 4)
    return min(wanted, spare - backlog), backlog


def _handles() -> int:
    """How many files this process may have open, after asking for as many as are of use here."""
    try:
        import resource
    except ImportError:  # pragma: no cover -- Windows has no such limit worth a thought
        return _WANTED_HANDLES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    best = _WANTED_HANDLES if hard == resource.RLIM_INFINITY else min(hard, _WANTED_HANDLES)
    if soft != resource.RLIM_INFINITY and soft < best:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (best, hard))
            soft = best
        except (OSError, ValueError):  # pragma: no cover -- a system that promises more than it gives
            pass
    return _WANTED_HANDLES if soft == resource.RLIM_INFINITY else soft


@dataclass
class Connections:
    """All connections of one server, oldest first, and what became of those that were let go."""

    limit: int
    seconds: float
    late: int = 0
    crowded: int = 0
    _open: dict[Watched, None] = field(default_factory=dict)

    def gauges(self) -> dict[str, tuple[str, float]]:
        """Figures for /metrics."""
        return {
            "cairn_connections": ("Connections that are open.", len(self._open)),
            "cairn_connections_late": (
                "Connections closed because no request came, or no answer was taken, in time.",
                self.late,
            ),
            "cairn_connections_crowded": ("Connections closed because there were too many.", self.crowded),
        }

    def protocol(self, **made_of: Any) -> asyncio.Protocol:
        """What the server calls for each new connection."""
        return Watched(self, _speaking()(**made_of))

    def enter(self, newcomer: Watched) -> bool:
        """Count a connection in; False where all the others are at work, so that there is no place for it."""
        if len(self._open) >= self.limit:
            if self.crowded % self.limit == 0:
                log.warning(
                    "%d connections are open, the most this server keeps: the idle ones make room", self.limit
                )
            self.crowded += 1
            idle = [one for one in self._open if not one.is_busy]
            if not idle:
                return False
            (next((one for one in idle if one.is_new), idle[0])).let_go()
        self._open[newcomer] = None
        return True

    def leave(self, gone: Watched) -> None:
        self._open.pop(gone, None)


class Watched(asyncio.Protocol):
    """One connection: the server's own protocol, with a clock that runs while no request is complete."""

    def __init__(self, all_of_them: Connections, inner: Any) -> None:
        self._all = all_of_them
        self._inner = inner
        self._transport: Any = None
        self._clock: asyncio.TimerHandle | None = None
        self._taking: asyncio.TimerHandle | None = None  # runs while the caller takes nothing of its answer
        self._entered = False
        self._has_begun = False
        self._head = 0  # bytes of a head that is not complete yet

    @property
    def is_new(self) -> bool:
        """Whether it has brought no request so far."""
        return self._inner.cycle is None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being answered."""
        return not self.is_new and not self._inner.cycle.response_complete

    def let_go(self) -> None:
        """Close it and count it out at once."""
        self._all.leave(self)
        self._stop_clock()
        if self._transport.get_write_buffer_size():
            self._transport.abort()  # a caller that does not read would keep the handle of a closed connection
        else:
            self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport
        self._entered = self._all.enter(self)
        if not self._entered:
            self._transport.abort()
            return
        self._inner.connection_made(transport)
        self._start_clock()

    def connection_lost(self, exc: Exception | None) -> None:
        self._all.leave(self)
        self._stop_clock()
        self._stop_taking()
        if self._entered:
            self._inner.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._entered or self._transport.is_closing():
            return
        self._has_begun = True
        self._inner.data_received(data)
        if self.is_busy:
            self._has_begun = False
            self._head = 0
            self._stop_clock()
            return
        self._head += len(data)
        if self._head > HEAD_BYTES and not self._transport.is_closing():
            self._transport.write(_LARGE)
            self.let_go()
        elif self._clock is None:
            self._start_clock()

    def eof_received(self) -> bool | None:
        """A caller that says it will send no more still hears the answer to a request that is all here, and then the end."""
        cycle = self._inner.cycle
        if not self.is_busy or cycle.more_body or cycle.response_started:
            return bool(self._inner.eof_received())
        cycle.keep_alive = False
        return True

    def pause_writing(self) -> None:
        self._inner.pause_writing()
        self._await_taking()

    def resume_writing(self) -> None:
        self._stop_taking()
        self._inner.resume_writing()

    def _stop_taking(self) -> None:
        if self._taking is not None:
            self._taking.cancel()
            self._taking = None

    def _await_taking(self) -> None:
        left = self._transport.get_write_buffer_size()
        self._taking = asyncio.get_running_loop().call_later(self._all.seconds, self._is_taken, left)

    def _is_taken(self, left: int) -> None:
        """Wait on for a caller that is slow, and cut off one that took nothing since `left` bytes were left."""
        if self._transport.get_write_buffer_size() < left:
            self._await_taking()
            return
        self._taking = None
        self._all.late += 1
        self._transport.abort()

    def _start_clock(self) -> None:
        self._clock = asyncio.get_running_loop().call_later(self._all.seconds, self._time_is_up)

    def _stop_clock(self) -> None:
        if self._clock is not None:
            self._clock.cancel()
            self._clock = None

    def _time_is_up(self) -> None:
        self._clock = None
        if self._transport.is_closing() or self.is_busy:
            return
        self._all.late += 1
        if self._has_begun:
            self._transport.write(_LATE)
        self.let_go()
