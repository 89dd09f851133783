"""The short forms of the fuzzers: filters, settings and HTTP."""

from __future__ import annotations

import pytest

from tests.chaos import fuzz
from tests.surfaces.served import serving

# The same cases each time; `make chaos PART=fuzz` draws new ones.
SEED = 20260604


def test_filters_are_refused_or_mean_the_same_everywhere():
    """P6: any JSON as a filter is refused by name, or SQL and predicate agree on every row."""
    assert sum(fuzz._each("filter", SEED, n, fuzz.filter_case) for n in range(2000)) > 20


def test_settings_are_refused_by_name_or_usable(tmp_path):
    """P6: any TOML and any environment is refused by name, or gives settings that can be shown."""
    assert sum(fuzz._each("settings", SEED, n, fuzz.settings_case, tmp_path) for n in range(300)) > 5


@pytest.mark.slow
def test_http_never_answers_with_a_server_error(tmp_path):
    """P6: bodies made from the server's own description, odd ones and raw bytes: never a 5xx, always answered."""
    with serving(tmp_path / "root", env=fuzz.QUIET) as server:
        for number in range(100):
            fuzz._each("http", SEED, number, fuzz.http_case, server)
        fuzz._each("garbage", SEED, 1, fuzz.garbage, server)
        fuzz.by_description(server, SEED, 2, "fuzzing")
