"""The page Knobs: one figure of all trained settings against h and against g, and what h changes at this width."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

import streamlit as st

from mha_core.analysis import claims
from mha_core.config import or_list
from mha_view import cards, knobs, state
from mha_view.components.chart import Series, line_chart
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.knobs import FIGURES, Figure, Point
from mha_view.recipe import app_recipe
from mha_view.settings import Settings

HEADS = (1, 2, 4, 8, 16)
FEW, MANY = 1, 8
SHORT = {
    "loss": "loss",
    "copy": "copying",
    "coreference": "coreference head",
    "agreement": "agreement head",
    "prefix": "induction head",
    "previous": "previous-token head",
    "pronoun": "pronoun task",
    "verb": "verb task",
    "reflexive": "reflexive task",
}


def chosen_figure() -> Figure:
    """The figure that the charts show, and the bar to choose it."""
    name = state.pick_choice("measure", tuple(SHORT), "copy")

    def take() -> None:
        value = state.component_value("measure_bar", "set")
        state.set_pick_choice("measure", value.get("value"), SHORT)

    control_bar(
        [Control("choice", "measure", "Figure", name, worded(SHORT))], actions={}, key="measure_bar", on_set=take
    )
    return next(figure for figure in FIGURES if figure.name == name)


def lead(settings: Settings) -> None:
    """What changes and what stays when h grows at this width, figure by figure, read off the cards."""
    found = {h: card for h in HEADS if (card := cards.find(settings.d_model, h, h)) is not None}
    if not {FEW, MANY} <= set(found):
        text = f"d_model = {settings.d_model} has no trained weights; here d_model can be {or_list(knobs.widths())}."
        show_notes([Note(text)], key="no_width")
        return
    rows = [
        _compared(figure.words, {h: knobs.of_card(card, figure) for h, card in found.items()}) for figure in FIGURES
    ]
    named = {h: knobs.redundancy(card) for h, card in found.items()}
    redundancy = ["heads named coreference", *map(str, named.values()), "how many do the same job"]
    layers = found[FEW].recipe.n_layers
    facts_strip([], key="knob_lead", lead=_lead(settings.d_model, rows, named[FEW], named[MANY]))
    table(
        ["figure", *(f"h = {h}" for h in found), f"from {FEW} to {MANY}"],
        [*rows, redundancy],
        caption=f"d_model {settings.d_model}, g = h, seed 0. “Changes”: by {knobs.CHANGED} or more from h = {FEW} to "
        f"{MANY}; “stays”: within {knobs.SAME}. One head a layer is no single head: {layers} layers give {layers}.",
        file="headroom-against-h",
        recipe=app_recipe(figure="what h changes", d_model=settings.d_model),
        key="what_changes",
    )


def _compared(words: str, values: dict[int, float]) -> list[str | float]:
    return [words, *values.values(), knobs.verdict(values[FEW], values[MANY])]


def _lead(d_model: int, rows: list[list[str | float]], few: int, many: int) -> str:
    """The verdicts in one sentence."""
    said = {
        verdict: [str(row[0]).split(",")[0] for row in rows if row[-1] == verdict] for verdict in ("changes", "stays")
    }
    changes, stays = (", ".join(said[verdict]) or "nothing" for verdict in said)
    return (
        f"At d_model {d_model}, from h = {FEW} to h = {MANY}, what changes: {changes}, and heads named coreference "
        f"({few} to {many}). What stays: {stays}."
    )


def against_heads(settings: Settings, figure: Figure) -> None:
    """The figure against h with g = h, one line per width."""
    found = {width: knobs.against_heads(width, figure) for width in knobs.widths()}
    _chart(found, figure, settings, "heads h (g = h)", "against_heads", lambda width: f"d_model {width}")


def against_kv_heads(settings: Settings, figure: Figure) -> None:
    """The figure against g for the chosen h, one line per width."""
    h = settings.n_heads
    found = {width: knobs.against_kv_heads(width, h, figure) for width in knobs.widths()}
    if not any(found.values()):
        show_notes([Note(f"h = {h} has no trained weights at any width.")], key="no_heads")
        return
    _chart(found, figure, settings, f"KV heads g (h = {h})", "against_kv_heads", lambda width: f"d_model {width}")


def _chart(
    found: dict[int, list[Point]],
    figure: Figure,
    settings: Settings,
    x_label: str,
    key: str,
    name: Callable[[int], str],
) -> None:
    lines = {name(width): points for width, points in found.items() if points}
    spread = [p for points in lines.values() for p in points if p.seeds > 1]
    widest = max((p.high - p.low for p in spread), default=0.0)
    told = (
        f"Points are seed 0; the band is the lowest and highest of {max(p.seeds for p in spread)} seeds, at most "
        f"{widest:.2f} wide: differences smaller than that mean nothing."
        if spread
        else "One seed a point: small differences mean nothing."
    )
    line_chart(
        [
            Series(
                title,
                [p.x for p in points],
                [p.value for p in points],
                [p.low for p in points],
                [p.high for p in points],
            )
            for title, points in lines.items()
        ],
        x_label=x_label,
        y_label=figure.words,
        title=f"{figure.words.split(',')[0].capitalize()}, against {x_label}",
        doubling_x=True,
        caption=told,
        recipe=app_recipe(figure=figure.name, axis=x_label, d_model=settings.d_model),
        key=key,
        file=f"headroom-{figure.name}-{key.replace('_', '-')}",
    )


def all_settings(settings: Settings) -> None:
    """Every trained setting with its figures; the chosen one in bold."""
    rows = knobs.all_settings()
    sizes = (settings.d_model, settings.n_heads, settings.n_kv_heads)
    marked = next((i for i, row in enumerate(rows) if row[:3] == sizes), None)
    head = ["d_model", "h", "g", "d_k", "parameters", *(SHORT[figure.name] for figure in FIGURES), "named coreference"]
    table(
        head,
        rows,
        caption=f"All {len(rows)} trained settings, seed 0, one recipe. Heads count by the worse half of their "
        "balanced set; the chosen setting is set in bold.",
        file="headroom-trained-settings",
        recipe=app_recipe(figure="trained settings"),
        key="all_settings",
        marked=marked,
    )


def four_claims() -> None:
    """What is often said of heads, and what was measured."""
    st.subheader("Four claims, measured")
    found, problem = knobs.stored_claims()
    if found is None:
        show_notes([Note(str(problem), kind="problem")], key="no_claims")
        return
    table(
        ["claim", "true?", "measured"],
        claims.table(found),
        caption=f"On {len(found.settings)} layers with random weights and {len(found.seeds)} seeds each, in float64, "
        "lowest and highest; made by `make evidence`. “Off”: length of the error over that of the right output.",
        file="headroom-four-claims",
        recipe=app_recipe(figure="four claims", seeds=list(found.seeds), settings=[asdict(s) for s in found.settings]),
        key="four_claims",
    )
