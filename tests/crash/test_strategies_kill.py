"""kill -9 during strategies: every episode ends with its derived kinds, once."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.crash import strategies_harness


@pytest.mark.slow
def test_killed_strategies_finish_once(tmp_path: Path):
    """P1 E76: six kills of a real process, the index sometimes removed between lives; nothing missing, nothing double."""
    seed = random.SystemRandom().randrange(2**32)
    print(f"seed {seed}")

    report = strategies_harness.run(tmp_path / "root", kills=6, seed=seed)

    assert report["cells"] >= 2 and report["facts"] >= report["cells"]
