"""The commit subject check accepts the house form and names what is wrong otherwise."""

import pytest
from tools.check_subject import trouble_with


@pytest.mark.parametrize(
    "message",
    [
        "search: answer nothing rather than junk",
        "feat(notes): keep superseded text readable\n\nThe reason.",
        "Merge branch 'x'",
        "docs/http: say what 413 means",
    ],
)
def test_good_subjects_pass(message):
    """The house form, Conventional types with a scope, and merges pass."""
    assert trouble_with(message) is None


@pytest.mark.parametrize(
    ("message", "part"),
    [
        ("fixed stuff", "form"),
        ("Search: capital topic", "form"),
        ("search: " + "x" * 80, "72"),
        ("search: ends with a stop.", "full stop"),
        ("search: fine\nno blank", "blank"),
        ("", "form"),
    ],
)
def test_bad_subjects_are_named(message, part):
    """Each kind of trouble is named."""
    assert part in (trouble_with(message) or "")
