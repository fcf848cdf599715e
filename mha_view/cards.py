"""What the app reads off the cards of the shipped weights: which settings are trained, and what their heads scored."""

from __future__ import annotations

from functools import cache

from mha_core import zoo
from mha_core.training.grammar import LIST_LENGTHS
from mha_core.training.scores import Evaluation, HeadScores, TwoNouns

TRAINED_MASK = "causal"
# Rows of the longest training sentence: the start token and a list of eight words said twice.
TRAINED_LENGTH = 1 + 2 * max(LIST_LENGTHS)

# When a head gets a name. A choice, made once: both halves of a balanced set, and far from an even gaze.
LEAST_HALF = 0.6
LEAST_MASS_RATIO = 2.0
LEAST_MASS = 0.5
LEAST_OVER_EVEN = 5.0

LETTERS = {"coreference": "C", "agreement": "A", "previous token": "P", "induction": "I"}
BADGE_WORDS = (
    "Letters: C pronoun to its noun, A before the verb to its subject, P the token before, I induction; by tests on "
    "other sentences, see the model card."
)


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


def badges(card: zoo.Card) -> dict[str, str]:
    """Letters for the roles of the heads that earned one, as "layer.head" -> "C·I"."""
    named = {f"{head.layer}.{head.head}": names(card.figures, head) for head in card.figures.heads}
    return {place: "·".join(LETTERS[name] for name in roles) for place, roles in named.items() if roles}


def names(figures: Evaluation, head: HeadScores) -> list[str]:
    """The roles that a head's scores support, none for most heads."""
    controls = figures.controls
    rules = {
        "coreference": _chooses(head.coreference),
        "agreement": _chooses(head.agreement),
        "previous token": _dwells(head.previous, controls.previous),
        "induction": _dwells(head.prefix, controls.prefix),
    }
    return [name for name, holds in rules.items() if holds]


def head_facts(card: zoo.Card, layer: int, head: int) -> list[tuple[str, str, str]]:
    """The scores of one head with their controls, as (label, value, note)."""
    figures = card.figures
    scores = next(s for s in figures.heads if (s.layer, s.head) == (layer, head))
    controls = figures.controls
    return [
        ("pronoun to its noun", _both(scores.coreference), _mass(scores.coreference)),
        ("before the verb, to its subject", _both(scores.agreement), _mass(scores.agreement)),
        ("token before", f"{scores.previous:.2f}", f"even gaze {controls.previous:.2f}"),
        ("what followed last time", f"{scores.prefix:.2f}", f"even gaze {controls.prefix:.2f}"),
    ]


def _chooses(nouns: TwoNouns) -> bool:
    far = nouns.mass_first > LEAST_MASS_RATIO * nouns.wrong_first
    return nouns.worse_half > LEAST_HALF and far and nouns.mass_second > LEAST_MASS_RATIO * nouns.wrong_second


def _dwells(mass: float, even: float) -> bool:
    return mass >= max(LEAST_MASS, LEAST_OVER_EVEN * even)


def _both(nouns: TwoNouns) -> str:
    return f"{nouns.first:.2f} / {nouns.second:.2f}"


def _mass(nouns: TwoNouns) -> str:
    wrong = max(nouns.wrong_first, nouns.wrong_second)
    return f"right when it comes first / second; chance 0.50; weight {nouns.mass:.2f}, on the wrong noun {wrong:.2f}"
