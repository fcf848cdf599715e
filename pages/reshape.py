"""How does one row become h heads?"""

from __future__ import annotations

import streamlit as st

from mha_view import state
from mha_view.panels import parameters, reshape, shared, timing
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """The memory of one projection and the wrong orders; then what the loop costs, and what the heads cost."""
    run = state.cached_run(settings)
    if run.tokens.n_typed > 0:
        layer, matrix = reshape.bar(run)
        shared.notes(run)
        shown = reshape.shown(settings, run, layer, matrix)
        reshape.memory(shown)
        reshape.order_table(shown)
        reshape.way_out(shown)
    else:
        shared.notes(run)
    st.subheader("A loop over heads, or one big product?")
    sizes = timing.bar(settings, len(run.tokens.items))
    timing.result(sizes)
    st.subheader("Do more heads need more parameters?")
    parameters.question(settings)
    parameters.bars(settings)
    if run.tokens.n_typed > 0:
        shared.checks(run)
