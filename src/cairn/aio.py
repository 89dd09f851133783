"""The same calls awaited: `async with cairn.open(root) as memory`. No logic of its own.

Each operation of the table becomes a coroutine that runs it in a thread, so that an event loop never waits for a
disk: readers have four threads, writers sixteen, since a writer mostly waits for its turn at the disk. What looks through
everything (`apart`: doctor, diff, export and the like) has two of its own, so that nobody else waits behind it. What type
checkers see is written to `aio.pyi` from the same table by `make docs`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from cairn.errors import Invalid
from cairn.memory import Memories, Memory
from cairn.operations.table import operations_of

_CLOSED = "This memory is not open: use it inside `async with cairn.open(...) as memory`."


class Pools:
    """The threads that calls run in while the memory is open."""

    def __init__(self) -> None:
        self.writers: ThreadPoolExecutor | None = None
        self.readers: ThreadPoolExecutor | None = None
        self.apart: ThreadPoolExecutor | None = None

    def open(self) -> None:
        self.writers = ThreadPoolExecutor(16, "cairn-write")
        self.readers = ThreadPoolExecutor(4, "cairn-read")
        self.apart = ThreadPoolExecutor(2, "cairn-apart")

    def close(self) -> None:
        for pool in (self.writers, self.readers, self.apart):
            if pool is not None:
                pool.shutdown(wait=True)
        self.writers = self.readers = self.apart = None

    async def run(self, call: Callable[[], Any], *, writes: bool, apart: bool = False) -> Any:
        pool = self.apart if apart else self.writers if writes else self.readers
        if pool is None:
            raise Invalid(_CLOSED)
        return await asyncio.get_running_loop().run_in_executor(pool, call)


class AsyncMemory:
    """`Memory`, each call awaited. Takes what `Memory` takes; use it inside an `async with` statement."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.memory = Memory(*args, **options)
        self.pools = Pools()
        self.memories = AsyncMemories(self.memory.memories, self.pools)

    @property
    def settings(self) -> Any:
        return self.memory.settings

    @property
    def parts(self) -> Any:
        """The parts of the open root, for those who build on them."""
        return self.memory.parts

    async def __aenter__(self) -> AsyncMemory:
        if self.pools.writers is not None:
            return self  # open already
        self.pools.open()
        try:
            await self.pools.run(self.memory.__enter__, writes=True)
        except BaseException:
            self.pools.close()
            raise
        return self

    async def __aexit__(self, *error: object) -> None:
        try:
            await self.pools.run(lambda: self.memory.__exit__(None, None, None), writes=True)
        finally:
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
