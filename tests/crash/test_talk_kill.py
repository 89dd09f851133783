"""kill -9 during add and flush: nothing acknowledged is lost, nothing is doubled."""

from __future__ import annotations

import random

import pytest

from tests.crash import talk_harness as capture_harness


@pytest.mark.slow
def test_killed_at_random_instants_nothing_is_lost_or_doubled(tmp_path):
    """P1: ten kills of real processes, two at a time on one root, the index removed before each restart."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")

    report = capture_harness.run(tmp_path, kills=10, seed=seed)

    assert report["kills"] >= 10
    assert report["messages"] > 0
    assert (report["lost"], report["doubled"]) == (0, 0)
