"""What do d_model, h and g decide?"""

from __future__ import annotations

import streamlit as st

from mha_view.panels import knobs
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """One figure against h and against g, what moving h changes and what it does not, and all trained settings."""
    knobs.lead(settings)
    figure = knobs.chosen_figure()
    left, right = st.columns(2, gap="large")
    with left:
        knobs.against_heads(settings, figure)
    with right:
        knobs.against_kv_heads(settings, figure)
    knobs.all_settings(settings)
