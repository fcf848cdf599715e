"""What does each head look at?"""

from __future__ import annotations

import streamlit as st

from mha_view import state
from mha_view.panels import heads, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """All heads first, then one head, one row, one cell, and the sum behind it."""
    run = state.cached_run(settings)
    if run.tokens.n_typed == 0:
        shared.notes(run)
        return
    layer, head = heads.picked_head(run)
    row = heads.picked_row(run)
    key = heads.picked_key(run, layer, head, row)
    shared.facts(run, row, heads.first_words(run, layer, head, row))
    shared.notes(run)

    view, first = heads.bar(settings, layer, head)
    overview, detail = st.columns([2, 3], gap="large")
    below = st.container()
    with overview:
        heads.overview(run, layer, head, row, first)
    with detail:
        if view == "map":
            heads.large_map(run, layer, head, row, key, first)
        elif view == "lines":
            heads.wires(run, layer, first)
        else:
            heads.comparison(run, layer, head, row, first, below)
        heads.head_scores(run, layer, head)
    heads.arithmetic(run, layer, head, row, key)
    shared.checks(run)
