"""How many heads can go?"""

from __future__ import annotations

import streamlit as st

from mha_view import state
from mha_view.panels import curves, pruning, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """Switches and what they cost first, then the maps that change, then the curves."""
    run = state.cached_run(settings)
    shared.notes(run)
    if run.tokens.n_typed == 0:
        return
    off = pruning.heads_off(run)
    without = state.pruned_run(settings, off) if off else run
    switches, results = st.columns([2, 3], gap="large")
    with switches:
        pruning.toggles(run, off)
    with results:
        pruning.prediction(run, without, off)
        pruning.figures(settings, off)
    if off:
        pruning.changed_maps(run, without, off)
    st.subheader("Prune step by step")
    order, figure = curves.curve_bar(settings)
    curves.curves(run, order, figure)
