"""kill -9 during add and flush: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import pytest

from tests.crash import talk_harness as capture_harness

# The same schedule each time; `make chaos` draws new ones.
SEED = 20260603


@pytest.mark.slow
def test_killed_at_random_instants_nothing_is_lost_or_doubled(tmp_path):
    """P1: ten kills of real processes, two at a time on one root, the index removed before each restart."""
    report = capture_harness.run(tmp_path, kills=10, seed=SEED)

    assert report["kills"] >= 10
    assert report["messages"] > 0
    assert (report["lost"], report["doubled"]) == (0, 0)
