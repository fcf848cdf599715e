"""What the app reads off the cards of the shipped weights: which settings are trained, and where to look first."""

from __future__ import annotations

from functools import cache

from mha_core import zoo
from mha_core.training.grammar import LIST_LENGTHS

TRAINED_MASK = "causal"
# Rows of the longest training sentence: the start token and a list of eight words said twice.
TRAINED_LENGTH = 1 + 2 * max(LIST_LENGTHS)


@cache
def cards() -> tuple[zoo.Card, ...]:
    """The cards of all weights that can be read, by name; a process reads them once."""
    found, _ = zoo.scan()
    return tuple(found)


@cache
def card_problems() -> tuple[str, ...]:
    """A sentence for each card that cannot be read."""
    _, problems = zoo.scan()
    return tuple(problems)


def find(d_model: int, n_heads: int, n_kv_heads: int) -> zoo.Card | None:
    """The card of a setting, or None where no weights are shipped for it."""
    sizes = (d_model, n_heads, n_kv_heads)
    return next((card for card in cards() if sizes_of(card) == sizes), None)


def sizes_of(card: zoo.Card) -> tuple[int, int, int]:
    """The three knobs of a card: d_model, h, g."""
    return card.recipe.d_model, card.recipe.n_heads, card.recipe.n_kv_heads


def first_head(card: zoo.Card) -> tuple[int, int]:
    """The head to show first: the one that best looks from a pronoun to the noun it means."""
    best = card.figures.coreference_head
    return best.layer, best.head
