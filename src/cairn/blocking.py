"""The same Memory for callers without an event loop. No logic of its own.

with cairn.open_blocking("~/.cairn") as memory:
    memory.add("s1", messages)
    memory.flush("s1")
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from cairn.config import Settings
from cairn.errors import Invalid
from cairn.memory import Memory
from cairn.seams import Clock

if TYPE_CHECKING:
    from cairn.blocking_memories import BlockingMemories

P = ParamSpec("P")
T = TypeVar("T")


def _blocking(
    method: Callable[Concatenate[Memory, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingMemory, P], T]:
    def call(self: BlockingMemory, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self._wait(method(self.memory, *args, **kwargs))

    functools.update_wrapper(call, method)
    return call


class BlockingMemory:
    """`Memory`, each call waiting for its answer. Safe to share between threads."""

    def __init__(self, settings: Settings, *, background: bool = True, clock: Clock | None = None) -> None:
        self.memory = Memory(settings, background=background, clock=clock)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @functools.cached_property
    def memories(self) -> BlockingMemories:
        """Governed memories, each call waiting for its answer."""
        from cairn.blocking_memories import BlockingMemories

        return BlockingMemories(self.memory, self._wait)

    @property
    def settings(self) -> Settings:
        return self.memory.settings

    def __enter__(self) -> BlockingMemory:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cairn-loop", daemon=True)
        self._thread.start()
        try:
            self._wait(self.memory.__aenter__())
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._wait(self.memory.__aexit__(kind, error, trace))
        finally:
            self._stop()

    def _stop(self) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()
            self._loop = None

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise Invalid("This memory is not open: use it inside `with cairn.open_blocking(...) as memory`.")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    add = _blocking(Memory.add)
    flush = _blocking(Memory.flush)
    remember = _blocking(Memory.remember)
    search = _blocking(Memory.search)
    get = _blocking(Memory.get)
    show = _blocking(Memory.show)
    reextract = _blocking(Memory.reextract)
    index_status = _blocking(Memory.index_status)
    sync = _blocking(Memory.sync)
    failures = _blocking(Memory.failures)
    rebuild = _blocking(Memory.rebuild)
    strategies = _blocking(Memory.strategies)
    trigger = _blocking(Memory.trigger)
    undo_reflection = _blocking(Memory.undo_reflection)
    doctor = _blocking(Memory.doctor)
    repair = _blocking(Memory.repair)
    log = _blocking(Memory.log)
    checkpoint = _blocking(Memory.checkpoint)
    checkpoints = _blocking(Memory.checkpoints)
    diff = _blocking(Memory.diff)
    restore = _blocking(Memory.restore)
    health = _blocking(Memory.health)
    gauges = _blocking(Memory.gauges)
    session_owners = _blocking(Memory.session_owners)
    unprocessed = _blocking(Memory.unprocessed)
    export_to = _blocking(Memory.export_to)
    import_from = _blocking(Memory.import_from)
