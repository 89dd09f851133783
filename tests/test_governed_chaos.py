"""A short form of the chaos run: a few kills in the everyday tests."""

from __future__ import annotations

import pytest

from tests.chaos import governed as keeping


@pytest.mark.slow
def test_kills_lose_and_double_nothing() -> None:
    """P1: acknowledged memories survive kill -9 of writers, sweeps and consolidations; none is there twice."""
    report = keeping.run(3.0, 7)
    assert report["kills"] >= 2
    assert report["acknowledged"] > 0
