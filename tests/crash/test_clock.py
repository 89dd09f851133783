"""The wall clock of a real server jumps by years, between calls and across a restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.chaos import clock


def test_a_clock_that_jumps_loses_and_doubles_nothing(tmp_path: Path) -> None:
    """Set back a year, forward ten, between an add and its flush and while the server is down."""
    library = clock.built(tmp_path)
    if library is None:
        pytest.skip("there is no C compiler here, or no such library")
    told = clock.one_life(tmp_path, library, seed=3, turns=2, rounds=1)
    assert told["messages"] == 8 and told["memories"] == 2 and told["jumps"] >= 6
