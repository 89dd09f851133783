"""Tells an event loop of what happens in a memory, for streams that go on until a client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from cairn.retrieval.events import Events, Notice

_QUIET_SECONDS = 15.0
_LOOK_SECONDS = 0.5


async def news(
    hub: Events, after: int, hears: Callable[[Notice], bool], stopping: Callable[[], bool]
) -> AsyncIterator[list[Notice]]:
    """What happened since event `after`, as far as it is heard, several at once; nothing whenever nothing did for a while.

    It ends when `stopping` says so.
    """
    loop, happened = asyncio.get_running_loop(), asyncio.Event()

    def note(event: Notice) -> None:
        if hears(event):
            with suppress(RuntimeError):  # the loop is closed: nobody listens any more
                loop.call_soon_threadsafe(happened.set)

    stop, quiet = hub.listen(note), 0.0
    try:
        while not stopping():
            happened.clear()
            fresh = hub.after(after)
            after = fresh[-1].number if fresh else after
            if told := [one for one in fresh if hears(one)]:
                quiet = 0.0
                yield told
                continue
            if quiet >= _QUIET_SECONDS:
                quiet = 0.0
                yield []
            try:
                await asyncio.wait_for(happened.wait(), _LOOK_SECONDS)
            except TimeoutError:
                quiet += _LOOK_SECONDS
    finally:
        stop()
