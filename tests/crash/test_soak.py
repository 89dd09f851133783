"""The short form of the soak: steady work, and nothing creeps."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.chaos import soak


@pytest.mark.slow
def test_steady_work_does_not_let_anything_creep(tmp_path):
    """Memory, handles and threads stay; the index keeps its bound, however often notes are rewritten.

    In a process of its own: what other tests left in this one is not the soak's. Latency is for the long form.
    """
    done = subprocess.run(
        [sys.executable, "-m", "tests.chaos.soak", str(tmp_path / "root")],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["cycles"] >= 2 * soak.WINDOW


def test_the_checks_bite():
    """What would be a leak, a bloated index or a slowdown is called one."""
    fine = {"rss": 10**8, "handles": 40, "threads": 12, "index": 10**7, "truth": 10**5}
    soak.check_growth(fine, fine)
    for name, much in (("rss", 10**9), ("handles", 200), ("threads", 40), ("index", 10**9)):
        with pytest.raises(soak.Violation):
            soak.check_growth(fine, {**fine, name: much})
    with pytest.raises(soak.Violation):
        soak.check_drift({"add": [0.001] * 50 + [0.1] * 50})
