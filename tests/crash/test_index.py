"""Several processes, one root: nothing lost, nothing doubled, no error."""

from __future__ import annotations

import pytest

from tests.crash import index_harness


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["memory", "lancedb"])
def test_processes_killed_and_index_removed_lose_nothing(tmp_path, engine):
    """E71, P1, P5 in short: three processes write and read one root, one is killed -9 and `.index` removed meanwhile."""
    report = index_harness.run(
        tmp_path / "root", processes=3, writes=40, kills=1, removals=1, seed=11, engine=engine
    )
    assert report["promised"] >= 120
