"""The chaos part that draws new examples runs property tests, and only those, and tells a failure with its seed."""

from __future__ import annotations

import pytest

from tests.chaos import properties

FAILING = """
from hypothesis import given, strategies as st

@given(st.integers())
def test_numbers_are_small(number):
    assert number < 1000
"""


def test_a_round_runs_property_tests_and_tells_a_failure(tmp_path):
    """`make chaos PART=properties` in small: one round that passes, and one that must not."""
    assert properties.once(7, [str(properties.TESTS / "test_words.py")]) == 2
    wrong = tmp_path / "test_wrong.py"
    wrong.write_text(FAILING)
    with pytest.raises(AssertionError, match=r"seed 8:(.|\n)*1000"):
        properties.once(8, [str(wrong), "-c", "/dev/null", "-p", "tests.conftest"])
