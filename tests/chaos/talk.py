"""Capture under fire: at least 200 kills of adding and flushing processes, then every word is looked up."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.crash import talk_harness as capture_harness

KILLS_PER_ROOT = 50
MIN_KILLS = 200


def run(seconds: float, seed: int) -> dict[str, int]:
    """Roots of 50 kills each, until the time is up and 200 kills are done. Raises on a lost or doubled message."""
    until = time.monotonic() + seconds
    total: dict[str, int] = {}
    number = 0
    while total.get("kills", 0) < MIN_KILLS or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            report = capture_harness.run(Path(folder), KILLS_PER_ROOT, seed + number)
        for key, value in report.items():
            total[key] = total.get(key, 0) + value
        number += 1
    return total
