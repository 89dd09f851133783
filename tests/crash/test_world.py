"""The short form of the chaos world: several processes, a person, kills and a lost index, against a model."""

from __future__ import annotations

import pytest

from tests.chaos import world

# The same schedule each time; `make chaos` draws new ones.
SEED = 20260601


@pytest.mark.slow
def test_a_world_of_processes_and_a_person_keeps_every_promise(tmp_path):
    """P1 P2 P4 P5 P7: whatever is killed, edited, moved or lost, what was acknowledged is there once, and only there."""
    report = world.one_world(tmp_path, SEED, epochs=2, steps=40)

    assert report["add"] > 0
    assert report["search"] > 0
