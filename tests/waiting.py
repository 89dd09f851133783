"""How tests wait and measure: for a condition, and by counting. No clock decides whether a test passes.

A limit here only ends a test that hangs: it is far beyond what a busy machine needs.
"""

from __future__ import annotations

import gc
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from cairn.memory import Memory

T = TypeVar("T")
LONG = 240.0  # seconds; hanging, not slowness


def until(true: Callable[[], T], what: str = "it did not come true") -> T:
    """Look again and again until `true()` is, less often with time; returns what it gave."""
    end, pause = time.monotonic() + LONG, 0.002
    while not (found := true()):
        assert time.monotonic() < end, what
        time.sleep(pause)
        pause = min(pause * 1.3, 0.05)
    return found


def at_rest(memory: Memory) -> bool:
    """Whether the strategies are done, and what they wrote is indexed."""
    counts = memory.parts.engine.jobs.counts().values()
    busy = any(one.get("pending") or one.get("running") for one in counts)
    return not busy and not memory.parts.indexer.status().pending


def folded(memory: Memory) -> None:
    """Have the tables of LanceDB hold every row. Strategies that are not done would add some, and only one may fold at a time."""
    from cairn.engines.lance import marks_of

    parts = memory.parts

    def all_rows() -> bool:
        parts.lance.fold(parts.index)
        return at_rest(memory) and not parts.index.changed_count(marks_of(parts.lance.state(), parts.index))

    until(lambda: at_rest(memory), "the strategies are done")
    until(all_rows, "the tables hold every row")
    parts.lance.load(wait=True)


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """How often each function was called in this thread while `action` ran: work counted, whatever the machine does."""
    counted: Counter[str] = Counter()

    def note(frame: object, event: str, what: object) -> None:
        if event == "call":
            counted[frame.f_code.co_name] += 1  # type: ignore[attr-defined]
        elif event == "c_call":
            counted[what.__name__] += 1  # type: ignore[attr-defined]

    before, collects = sys.getprofile(), gc.isenabled()
    gc.disable()  # whoever listens to the collector would be counted, whenever it comes
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
        if collects:
            gc.enable()
    return counted
