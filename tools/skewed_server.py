"""A server whose clock is wrong: `SKEW_SECONDS=600 python -m tools.skewed_server server start`.

The clock of the whole program is moved, as far as it asks for the time of day; what it measures by a stopwatch is not.
"""

from __future__ import annotations

import os
import sys
import time
from datetime import datetime, timedelta

from cairn.seams import SystemClock
from cairn.surfaces.cli import main


def move_clock(seconds: float) -> None:
    """Let this process believe that it is so much later."""
    now, wall = SystemClock.now, time.time

    def later(self: SystemClock) -> datetime:
        return now(self) + timedelta(seconds=seconds)

    SystemClock.now = later  # type: ignore[method-assign]
    time.time = lambda: wall() + seconds


if __name__ == "__main__":
    move_clock(float(os.environ.get("SKEW_SECONDS", "0")))
    sys.exit(main())
