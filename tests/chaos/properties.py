"""Every property test with examples nobody has seen: `make test` draws the same ones each time, this part new ones.

A round is one run of all of them in a process of its own, with a seed that replays it.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

TESTS = Path(__file__).parent.parent
# A round that is cut off tells nothing; one that hangs is a finding.
_LONGEST = 1800


def run(seconds: float, seed_number: int) -> dict[str, int]:
    """Rounds until the time is up. Raises with what pytest printed on the first failure."""
    report = {"rounds": 0, "tests": 0}
    begin = time.monotonic()
    while time.monotonic() - begin < seconds or not report["rounds"]:
        report["tests"] += once(seed_number + report["rounds"], [str(TESTS)])
        report["rounds"] += 1
    return report


def once(seed: int, where: list[str]) -> int:
    """One run of the property tests in `where`; how many passed."""
    command = [
        *(sys.executable, "-m", "pytest", "-m", "hypothesis", "-p", "no:cacheprovider", "-rN"),
        *("--hypothesis-profile=chaos", f"--hypothesis-seed={seed}", *where),
    ]
    done = subprocess.run(command, cwd=TESTS.parent, capture_output=True, text=True, timeout=_LONGEST)
    if done.returncode:
        raise AssertionError(f"property tests fail with seed {seed}:\n{done.stdout}{done.stderr}")
    passed = re.search(r"(\d+) passed", done.stdout)
    return int(passed[1]) if passed else 0
