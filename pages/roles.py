"""Which heads have a job, and how do we know?"""

from __future__ import annotations

from mha_view import state
from mha_view.panels import roles
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """The names that heads earned and what they rest on, all measures, and why one sentence proves nothing."""
    loaded = state.cached_model(settings)
    evidence, problem = roles.evidence_of(loaded)
    if evidence is None:
        roles.no_evidence(settings, loaded, problem)
        return
    layer, head = roles.picked_head(evidence)
    roles.lead(evidence)
    roles.names(evidence, layer, head)
    roles.example_alone(settings, evidence)
    roles.measures(evidence, layer, head)
