"""The blocking twin of `memory.memories`. No logic of its own; loaded when it is first used."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any, Concatenate, ParamSpec, TypeVar

from cairn.governed_facade import Memories
from cairn.memory import Memory

P = ParamSpec("P")
T = TypeVar("T")


def _governed(
    method: Callable[Concatenate[Memories, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[BlockingMemories, P], T]:
    def call(self: BlockingMemories, /, *args: P.args, **kwargs: P.kwargs) -> T:
        answer: T = self._wait(method(self._memory.memories, *args, **kwargs))
        return answer

    functools.update_wrapper(call, method)
    return call


class BlockingMemories:
    """`memory.memories`, each call waiting for its answer."""

    def __init__(self, memory: Memory, wait: Callable[[Coroutine[Any, Any, Any]], Any]) -> None:
        self._memory = memory
        self._wait = wait

    list = _governed(Memories.list)
    show = _governed(Memories.show)
    search = _governed(Memories.search)
    history = _governed(Memories.history)
    why = _governed(Memories.why)
    edit = _governed(Memories.edit)
    supersede = _governed(Memories.supersede)
    pin = _governed(Memories.pin)
    unpin = _governed(Memories.unpin)
    archive = _governed(Memories.archive)
    restore = _governed(Memories.restore)
    promote = _governed(Memories.promote)
    forget = _governed(Memories.forget)
    sweep = _governed(Memories.sweep)
    import_from = _governed(Memories.import_from)
    consolidate = _governed(Memories.consolidate)
    undo_consolidation = _governed(Memories.undo_consolidation)
    end_mission = _governed(Memories.end_mission)
    core = _governed(Memories.core)
    set_core = _governed(Memories.set_core)
    skills = _governed(Memories.skills)
    scan_skills = _governed(Memories.scan_skills)
    export_skill = _governed(Memories.export_skill)
    import_skill = _governed(Memories.import_skill)
    refresh = _governed(Memories.refresh)
