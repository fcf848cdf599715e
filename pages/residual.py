"""What does each part add, and where does the prediction come from?"""

from __future__ import annotations

from mha_view import state
from mha_view.panels import residual, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """One token's stream with the lens beside it, then the difference of two words split over all parts."""
    run = state.cached_run(settings)
    if run.tokens.n_typed == 0:
        shared.notes(run)
        return
    row = residual.picked_row(run)
    words = residual.picked_words(run, row)
    pack = residual.packed(settings, run, row, words)
    residual.lead(pack, words)
    shared.notes(run)
    residual.bar(run, row)
    residual.stream(run, row, pack)
    residual.attribution(run, row, pack, words)
    shared.checks(run)
