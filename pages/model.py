"""Where do the weights come from?"""

from __future__ import annotations

from mha_view import state
from mha_view.panels import card, shared
from mha_view.settings import Settings


def render(settings: Settings) -> None:
    """The card of the weights that are chosen, or what stands in their place; then the words."""
    loaded = state.cached_model(settings)
    if loaded.card is None:
        shared.untrained(settings, loaded.problem, "They have learned nothing, so there is no card.")
    else:
        card.card_facts(loaded.card)
        card.card_best(loaded.card)
        card.card_runs(loaded.card)
    card.words()
