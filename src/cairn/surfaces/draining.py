"""A server that is told to end says so before it closes its door."""

from __future__ import annotations

import asyncio
import signal
from types import FrameType

import uvicorn


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
