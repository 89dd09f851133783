"""The same calls awaited: `async with cairn.open(root) as memory`. No logic of its own.

Each operation of the table becomes a coroutine that runs it in a thread, so that an event loop never waits for a
disk. They share one pool, each kind by number in each loop: four calls at a time read, sixteen write, since a writer mostly waits for its
turn at the disk, and two look through everything (`apart`: doctor, diff, export and the like), so that nobody else waits
behind them. What type checkers see is written to `aio.pyi` from the same table by `make docs`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakKeyDictionary

from cairn.errors import Invalid
from cairn.memory import Memories, Memory
from cairn.operations.table import operations_of

_AT_A_TIME = (4, 16, 2)  # reads, writes, apart
_PATIENCE = 10.0  # seconds that closing waits for calls that do not end
_CLOSED = "This memory is not open: use it inside `async with cairn.open(...) as memory`."


class Pools:
    """The threads that calls run in while the memory is open, and how many calls of each kind run at a time."""

    def __init__(self) -> None:
        self.calls: ThreadPoolExecutor | None = None

    def open(self) -> None:
        self.calls = ThreadPoolExecutor(sum(_AT_A_TIME), "cairn-call")
        # A semaphore serves one event loop alone, and a program may have several: each counts its own calls.
        self._limits: WeakKeyDictionary[asyncio.AbstractEventLoop, tuple[asyncio.Semaphore, ...]] = (
            WeakKeyDictionary()
        )
        self._running: set[asyncio.Future[Any]] = set()

    def close(self) -> None:
        if self.calls is not None:
            self.calls.shutdown(wait=True)
        self.calls = None

    async def run(self, call: Callable[[], Any], *, writes: bool, apart: bool = False) -> Any:
        if (pool := self.calls) is None:
            raise Invalid(_CLOSED)
        here = asyncio.get_running_loop()
        if (limits := self._limits.get(here)) is None:
            limits = self._limits[here] = tuple(map(asyncio.Semaphore, _AT_A_TIME))
        limit = limits[2 if apart else 1 if writes else 0]
        await limit.acquire()
        running = here.run_in_executor(pool, call)
        self._running.add(running)

        def done(ended: asyncio.Future[Any]) -> None:
            # A call that nobody waits for any more still has its place until its thread is done; how it ended is told to nobody.
            self._running.discard(ended)
            limit.release()
            if not ended.cancelled():
                ended.exception()

        running.add_done_callback(done)
        return await asyncio.shield(running)

    async def settle(self) -> None:
        """Wait for the calls under way, those that nobody waits for any more included."""
        here = asyncio.get_running_loop()
        while mine := [one for one in list(self._running) if one.get_loop() is here]:
            if not (await asyncio.wait(mine, timeout=_PATIENCE))[0]:
                break


class AsyncMemory:
    """`Memory`, each call awaited. Takes what `Memory` takes; use it inside an `async with` statement."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.memory = Memory(*args, **options)
        self.pools = Pools()
        self._entered = 0
        self.memories = AsyncMemories(self.memory.memories, self.pools)

    @property
    def settings(self) -> Any:
        return self.memory.settings

    @property
    def parts(self) -> Any:
        """The parts of the open root, for those who build on them."""
        return self.memory.parts

    async def __aenter__(self) -> AsyncMemory:
        if self.pools.calls is None:
            self.pools.open()
        self._entered += 1
        try:
            await self.pools.run(self.memory.__enter__, writes=True)
        except BaseException:
            self._left()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        if self.pools.calls is None:
            return
        try:
            if self._entered == 1:
                await self.pools.settle()
            await self.pools.run(lambda: self.memory.__exit__(None, None, None), writes=True)
        finally:
            self._left()

    def _left(self) -> None:
        self._entered -= 1
        if not self._entered:
            self.pools.close()


class AsyncMemories:
    """`memory.memories`, each call awaited."""

    def __init__(self, memory: Memories, pools: Pools) -> None:
        self.memory = memory
        self.pools = pools


def _awaited(
    called: Callable[..., Any], *, writes: bool, apart: bool = False
) -> Callable[..., Coroutine[Any, Any, Any]]:
    @functools.wraps(called)
    async def call(self: AsyncMemory | AsyncMemories, /, *args: Any, **named: Any) -> Any:
        return await self.pools.run(
            functools.partial(called, self.memory, *args, **named), writes=writes, apart=apart
        )

    return call


for _room, _twin in ((Memory, AsyncMemory), (Memories, AsyncMemories)):
    for _name, _row in operations_of(_room).items():
        setattr(_twin, _name, _awaited(_row.call, writes=_row.writes, apart=_row.apart))
setattr(AsyncMemory, "subscribe", _awaited(Memory.subscribe, writes=False))  # noqa: B010 -- made like the others
setattr(AsyncMemories, "on_upserted", _awaited(Memories.on_upserted, writes=False))  # noqa: B010
