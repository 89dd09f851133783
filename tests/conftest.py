"""What holds for every test."""

from hypothesis import HealthCheck, settings

# A busy machine is not a failure: time is measured by benchmarks, not by property tests.
settings.register_profile("cairn", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cairn")
