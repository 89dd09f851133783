"""Events as they happen, over HTTP: server-sent events, one per change, for pages and programs that follow a memory.

    id: 1780300000001
    event: changed
    data: {"id": 1780300000001, "event": "changed", "path": "...", ...}

A client that reconnects says the last number it saw (`Last-Event-ID`, or `after`) and gets what came since. A line that
says nothing goes out while nothing happens, so that both sides notice when the other is gone. Half of a server's
connections may be streams, so that calls always find a place, and a stream ends with the token it was opened by.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from cairn.canonical import as_line
from cairn.surfaces.guard import Refusal
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.retrieval.events import Events, Notice

MEDIA_TYPE = "text/event-stream"
_QUIET_SECONDS = 15.0
_LOOK_SECONDS = 0.5


@dataclass
class Streams:
    """The open streams of one server, and how many there may be."""

    most: int
    open: int = 0

    def counted(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        """`lines` as one of them.

        Raises:
            Refusal: there are too many.
        """
        if self.open >= self.most:
            raise Refusal(
                429,
                "EXTERNAL_SERVICE_UNAVAILABLE",
                f"{self.open} streams are open, the most this server keeps. Ask again later, or without a stream.",
                headers={"retry-after": "10"},
            )
        return self._passed(lines)

    async def _passed(self, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        self.open += 1
        try:
            async for line in lines:
                yield line
        finally:
            self.open -= 1


def is_wanted(headers: Mapping[str, str]) -> bool:
    """Whether a caller asked for a stream."""
    return MEDIA_TYPE in headers.get("accept", "")


def number_of(headers: Mapping[str, str]) -> int | None:
    """The last number a client saw before it lost its connection."""
    given = headers.get("last-event-id", "")
    return int(given) if given.isascii() and given.isdigit() and len(given) < 20 else None


def respond(
    hub: Events,
    space: Space,
    owner: str | None,
    after: int | None,
    stopping: Callable[[], bool],
    streams: Streams,
) -> StreamingResponse:
    """A response that goes on until the client leaves, `stopping` says so, or it may not begin at all."""
    headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
    lines = streams.counted(_lines(hub, space, owner, after, stopping))
    return StreamingResponse(lines, media_type=MEDIA_TYPE, headers=headers)


async def _lines(
    hub: Events, space: Space, owner: str | None, after: int | None, stopping: Callable[[], bool]
) -> AsyncIterator[bytes]:
    loop, happened = asyncio.get_running_loop(), asyncio.Event()

    def heard(_event: Notice) -> None:
        with suppress(RuntimeError):  # the loop is closed: nobody listens any more
            loop.call_soon_threadsafe(happened.set)

    stop = hub.listen(heard)
    seen = hub.last if after is None else after
    quiet = 0.0
    try:
        yield b"retry: 1000\n\n"
        while not stopping():
            happened.clear()
            news = hub.after(seen)
            seen = news[-1].number if news else seen
            told = [_told(one.as_data()) for one in news if one.concerns(space, owner)]
            if told:
                quiet = 0.0
                yield b"".join(told)
                continue
            if quiet >= _QUIET_SECONDS:
                quiet = 0.0
                yield b": still here\n\n"
            try:
                await asyncio.wait_for(happened.wait(), _LOOK_SECONDS)
            except TimeoutError:
                quiet += _LOOK_SECONDS
    finally:
        stop()


def _told(data: Mapping[str, Any]) -> bytes:
    text = as_line(data)
    return f"id: {data['id']}\nevent: {data['event']}\ndata: {text}\n\n".encode("utf-8", "replace")
