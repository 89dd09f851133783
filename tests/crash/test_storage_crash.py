"""The short form of the storage chaos: real kills and swapped links, a few seconds."""

from tests.chaos import storage


def test_killed_writers_and_swapped_links_do_no_harm():
    """P1, P6: one round of each; acknowledged lines are there once, nothing is written outside."""
    report = storage.run(0, seed=7)
    assert report["kills"] == 6
    assert report["acknowledged"] >= 6
    assert report["links"] > 0
