"""kill -9 during strategies: every episode ends with its derived kinds, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.crash import strategies_harness

# The same schedule each time; `make chaos` draws new ones.
SEED = 20260602


@pytest.mark.slow
def test_killed_strategies_finish_once(tmp_path: Path):
    """P1 E76: six kills of a real process, the index sometimes removed between lives; nothing missing, nothing double."""
    report = strategies_harness.run(tmp_path / "root", kills=6, seed=SEED)

    assert report["cells"] >= 2 and report["facts"] >= report["cells"]
