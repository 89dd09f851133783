"""How tests wait and measure: for a condition, and by counting. No clock decides whether a test passes.

A limit here only ends a test that hangs: it is far beyond what a busy machine needs.
"""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

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


def calls_of(action: Callable[[], object]) -> Counter[str]:
    """How often each function was called in this thread while `action` ran: work counted, whatever the machine does."""
    counted: Counter[str] = Counter()

    def note(frame: object, event: str, what: object) -> None:
        if event == "call":
            counted[frame.f_code.co_name] += 1  # type: ignore[attr-defined]
        elif event == "c_call":
            counted[what.__name__] += 1  # type: ignore[attr-defined]

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return counted
