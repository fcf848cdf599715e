"""How does the sentence become the output?"""

from __future__ import annotations

from mha_view import state
from mha_view.panels import flow, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """One layer stage by stage, then the sum of its heads; of the visitor's run or of the worked example."""
    preset = flow.picked_preset()
    if preset == "worked":
        flow.bar(preset, None, 0)
        shown = flow.example()
    else:
        run = state.cached_run(settings)
        if run.tokens.n_typed == 0:
            shared.notes(run)
            return
        layer = flow.picked_layer(run)
        flow.bar(preset, layer, len(run.trace.layers))
        shared.notes(run)
        shown = flow.yours(settings, run, layer)
    flow.notes(shown)
    at = flow.picked_place(shown)
    flow.stages(shown, at, settings.scale)
    if preset == "yours":
        shared.checks(run)
