"""The short forms of the fuzzers: filters, settings and HTTP."""

from __future__ import annotations

import random

import pytest

from tests.chaos import fuzz
from tests.surfaces.served import serving


def seed() -> int:
    chosen = random.SystemRandom().randrange(2**32)
    print(f"seed {chosen}")
    return chosen


def test_filters_are_refused_or_mean_the_same_everywhere():
    """P6: any JSON as a filter is refused by name, or SQL and predicate agree on every row."""
    start = seed()
    assert sum(fuzz._each("filter", start, n, fuzz.filter_case) for n in range(2000)) > 20


def test_settings_are_refused_by_name_or_usable(tmp_path):
    """P6: any TOML and any environment is refused by name, or gives settings that can be shown."""
    start = seed()
    assert sum(fuzz._each("settings", start, n, fuzz.settings_case, tmp_path) for n in range(300)) > 5


@pytest.mark.slow
def test_http_never_answers_with_a_server_error(tmp_path):
    """P6: bodies made from the server's own description, odd ones and raw bytes: never a 5xx, always answered."""
    start = seed()
    with serving(tmp_path / "root", env=fuzz.QUIET) as server:
        for number in range(100):
            fuzz._each("http", start, number, fuzz.http_case, server)
        fuzz._each("garbage", start, 1, fuzz.garbage, server)
        fuzz.by_description(server, start, 2, "fuzzing")
