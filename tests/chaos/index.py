"""The index under fire: kept up to date against made anew (P2), and many processes on one root (P5)."""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.crash import index_harness
from tests.properties.test_index import KeptIndex


def run(seconds: float, seed_number: int) -> dict[str, int]:
    """Half of the time for each part, in rounds. Raises on any difference, loss, doubled row or error."""
    report = {"histories": 0, "promised": 0, "kills": 0, "removals": 0}
    begin = time.monotonic()
    number = seed_number
    while time.monotonic() - begin < seconds / 2 or not report["histories"]:
        machine = seed(number)(type("KeptIndex", (KeptIndex,), {}))
        run_state_machine_as_test(
            machine,
            settings=settings(
                max_examples=10,
                stateful_step_count=25,
                deadline=None,
                database=None,
                suppress_health_check=list(HealthCheck),
                print_blob=True,
            ),
        )
        report["histories"] += 10
        number += 1
    while time.monotonic() - begin < seconds or not report["promised"]:
        with tempfile.TemporaryDirectory(prefix="cairn-chaos-") as folder:
            found = index_harness.run(
                Path(folder) / "root", processes=8, writes=1000 // 8, kills=4, removals=4, seed=number,
                engine=("memory", "lancedb")[number % 2],
            )  # fmt: skip
        for key in ("promised", "kills", "removals"):
            report[key] += found[key]
        number += 1
    return report
