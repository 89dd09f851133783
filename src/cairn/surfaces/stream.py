"""Events as they happen, over HTTP: server-sent events, one per change, for pages and programs that follow a memory.

    id: 1780300000001
    event: changed
    data: {"id": 1780300000001, "event": "changed", "path": "...", ...}

A client that reconnects says the last number it saw (`Last-Event-ID`, or `after`) and gets what came since. A line that
says nothing goes out while nothing happens, so that both sides notice when the other is gone. Half of a server's
connections may be streams, so that calls always find a place, and a stream ends with the token it was opened by.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import StreamingResponse

from cairn.canonical import as_line
from cairn.listening import news
from cairn.surfaces.guard import Refusal
from cairn.types import Space

if TYPE_CHECKING:
    from cairn.retrieval.events import Events

MEDIA_TYPE = "text/event-stream"


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
    seen = hub.last if after is None else after
    yield b"retry: 1000\n\n"
    async for found in news(hub, seen, lambda one: one.concerns(space, owner), stopping):
        yield b"".join(_told(one.as_data()) for one in found) or b": still here\n\n"


def _told(data: Mapping[str, Any]) -> bytes:
    text = as_line(data)
    return f"id: {data['id']}\nevent: {data['event']}\ndata: {text}\n\n".encode("utf-8", "replace")
