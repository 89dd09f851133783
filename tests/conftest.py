"""What holds for every test."""

from hypothesis import settings

# A busy machine is not a failure: time is measured by benchmarks, not by property tests.
settings.register_profile("cairn", deadline=None)
settings.load_profile("cairn")
