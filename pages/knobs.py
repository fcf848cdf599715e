"""What do d_model, h and g decide?"""

from __future__ import annotations

import streamlit as st

from mha_view.panels import knobs
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """What moving h changes and what it does not, one figure against h and g, all settings, four claims."""
    knobs.lead(settings)
    figure = knobs.chosen_figure()
    left, right = st.columns(2, gap="large")
    with left:
        knobs.against_heads(settings, figure)
    with right:
        knobs.against_kv_heads(settings, figure)
    knobs.all_settings(settings)
    knobs.four_claims()
