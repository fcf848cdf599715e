"""How does the sentence become the output?"""

from __future__ import annotations

from mha_view import state
from mha_view.panels import flow, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """One layer stage by stage, then the sum of its heads; of the visitor's run or of the worked example."""
    if flow.picked_preset() == "worked":
        flow.bar("worked", None, 0)
        draw(flow.example(), settings)
        return
    run = state.cached_run(settings)
    if run.tokens.n_typed == 0:
        shared.notes(run)
        return
    layer = flow.picked_layer(run)
    flow.bar("yours", layer, len(run.trace.layers))
    shared.notes(run)
    draw(flow.yours(settings, run, layer), settings)
    shared.checks(run)


def draw(shown: flow.Shown, settings: Settings) -> None:
    """The stages, and under them what each head writes for the chosen token."""
    flow.notes(shown)
    at = flow.picked_place(shown)
    flow.stages(shown, at, settings.scale)
    flow.writes(shown, at)
