"""What every test shares: one fixed hypothesis profile, so that a run gives the same answer twice."""

from hypothesis import HealthCheck, Phase, settings

# Timings of a busy machine decide nothing here: no deadline, and slow draws are no failure.
settings.register_profile(
    "laws", derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.too_slow]
)
# For scripts/mutate.py: that a law is broken is the answer, the smallest example of it is not asked for.
settings.register_profile("hunt", settings.get_profile("laws"), phases=(Phase.explicit, Phase.generate))
settings.load_profile("laws")
