"""What the three knobs decide: the figures of all trained settings side by side, with the spread of other seeds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache

from mha_core import zoo
from mha_core.analysis import claims
from mha_core.analysis.roles import ROLES
from mha_core.training.scores import Gates, TaskScores
from mha_view import evidence
from mha_view.cards import cards, find, sizes_of

# Two settings differ in a figure when they differ by more than this. A choice; the seeds of the slice differ by less
# in most figures, and the page shows by how much in each.
CHANGED = 0.1
SAME = 0.02
COREFERENCE = ROLES[0].name


@dataclass(frozen=True)
class Figure:
    """One figure that every trained model has: its name in a link, and its words on screen."""

    name: str
    words: str
    of: Callable[[TaskScores, Gates], float]


@dataclass(frozen=True)
class Point:
    """One setting in a chart: where it stands, seed 0, and the lowest and highest of all its seeds."""

    x: int
    value: float
    low: float
    high: float
    seeds: int


FIGURES = (
    Figure("loss", "validation loss, nats per word", lambda tasks, _: tasks.validation_loss),
    Figure("copy", "copies a list said twice, share right", lambda tasks, _: tasks.copy),
    Figure("coreference", "best coreference head, worse half", lambda _, gates: gates.coreference_head),
    Figure("agreement", "best agreement head, worse half", lambda _, gates: gates.agreement_head),
    Figure("prefix", "best induction head, weight", lambda _, gates: gates.prefix_head),
    Figure("previous", "best previous-token head, weight", lambda _, gates: gates.previous_head),
    Figure("pronoun", "whom the pronoun means, share right", lambda tasks, _: tasks.coreference),
    Figure("verb", "verb fits its subject, share right", lambda tasks, _: tasks.agreement),
    Figure("reflexive", "reflexive fits its subject, share right", lambda tasks, _: tasks.reflexive),
)


@cache
def seed_runs() -> tuple[zoo.SeedRun, ...]:
    """What other seeds reached; none where the file cannot be read."""
    try:
        return zoo.seed_runs()
    except zoo.ZooError:
        return ()


@cache
def stored_claims() -> tuple[claims.Claims | None, str | None]:
    """The figures behind four claims about heads, or None with a sentence that says why; a process reads them once."""
    try:
        return claims.stored(), None
    except claims.ClaimsError as error:
        return None, str(error)


def of_card(card: zoo.Card, figure: Figure) -> float:
    """A figure of a trained model."""
    return _figures(*sizes_of(card))[figure.name]


@cache
def _figures(d_model: int, n_heads: int, n_kv_heads: int) -> dict[str, float]:
    """All figures of a trained setting; kept, for they ask every head of the model."""
    card = find(d_model, n_heads, n_kv_heads)
    assert card is not None, "only trained settings have figures"
    tasks, gates = card.figures.tasks, card.figures.gates()
    return {figure.name: figure.of(tasks, gates) for figure in FIGURES}


def values(sizes: tuple[int, int, int], figure: Figure) -> list[float]:
    """A figure of a setting for every seed that was trained, the shipped one first; empty without weights."""
    card = find(*sizes)
    others = [figure.of(r.tasks, r.reached) for r in seed_runs() if (r.d_model, r.n_heads, r.n_kv_heads) == sizes]
    return [] if card is None else [of_card(card, figure), *others]


def against_heads(d_model: int, figure: Figure) -> list[Point]:
    """A figure against h, with one KV head per query head (g = h)."""
    found = sorted({card.recipe.n_heads for card in cards() if card.recipe.d_model == d_model})
    return [point for h in found for point in _point(h, (d_model, h, h), figure)]


def against_kv_heads(d_model: int, n_heads: int, figure: Figure) -> list[Point]:
    """A figure against g, for a fixed h."""
    recipes = [card.recipe for card in cards()]
    found = sorted({r.n_kv_heads for r in recipes if (r.d_model, r.n_heads) == (d_model, n_heads)})
    return [point for g in found for point in _point(g, (d_model, n_heads, g), figure)]


def widths() -> list[int]:
    """Every d_model with trained weights."""
    return sorted({card.recipe.d_model for card in cards()})


def verdict(few: float, many: float) -> str:
    """Whether a figure changes from one setting to another, stays, or does something in between."""
    difference = abs(many - few)
    return "changes" if difference >= CHANGED else "stays" if difference <= SAME else "moves a little"


def redundancy(card: zoo.Card) -> int:
    """How many heads of a model earned the name coreference, and so do the same job."""
    return sum(label.role.name == COREFERENCE for label in evidence.named(card.name))


@cache
def all_settings() -> tuple[tuple[int | float, ...], ...]:
    """Every trained setting in a line: d_model, h, g, d_k, parameters, all figures, heads named coreference."""
    return tuple(
        (
            *sizes_of(card),
            card.recipe.d_model // card.recipe.n_heads,
            card.parameters,
            *(of_card(card, figure) for figure in FIGURES),
            redundancy(card),
        )
        for card in sorted(cards(), key=sizes_of)
    )


def _point(x: int, sizes: tuple[int, int, int], figure: Figure) -> list[Point]:
    found = values(sizes, figure)
    return [Point(x, found[0], min(found), max(found), len(found))] if found else []
