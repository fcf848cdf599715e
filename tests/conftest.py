"""What every test shares: one fixed hypothesis profile, so that a run gives the same answer twice."""

from hypothesis import HealthCheck, settings

# Timings of a busy machine decide nothing here: no deadline, and slow draws are no failure.
settings.register_profile(
    "laws", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("laws")
