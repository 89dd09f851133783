"""Strategies under fire: 50 kills per root while they work, then every derived entry is looked up."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from tests.crash import strategies_harness

KILLS_PER_ROOT = 50


def run(seconds: float, seed: int) -> dict[str, int]:
    """Roots of 50 kills each until the time is up, one at least. Raises on a missing or doubled entry."""
    until = time.monotonic() + seconds
    total: dict[str, int] = {}
    number = 0
    while not number or time.monotonic() < until:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            report = strategies_harness.run(Path(folder) / "root", KILLS_PER_ROOT, seed + number)
        for key, value in report.items():
            total[key] = total.get(key, 0) + value
        number += 1
    return total
