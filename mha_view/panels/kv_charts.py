"""The page KV cache, charts: the same model with other attention, its layers by kind, and models beside each other."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st

from mha_core.kv_size import KVCacheSize
from mha_core.kv_size.whatif import MAX_RANK
from mha_view import kv, kv_figures, state
from mha_view.components.chart import Series, line_chart
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.kv import Model
from mha_view.kv_figures import AGAINST, Asked
from mha_view.numbers import Span
from mha_view.panels.kv_answer import KIND_HUES, OTHER_HUE, unbroken
from mha_view.panels.kv_choose import model_by_key
from mha_view.recipe import app_recipe
from mha_view.settings import Settings

AXES = {"log": "log", "linear": "linear"}
AGAINST_WORDS = {"context": "context", "batch": "batch"}
X_LABELS = {"context": "tokens of context", "batch": "sequences at once"}
RANK = Span("Rank", 1, MAX_RANK)
WINDOW = Span("Window", 1, 10**9, kilo=1024)
# What published models have; a small model starts with half its width, and a quarter of its context.
FIRST_RANK, FIRST_WINDOW = 512, 4096


def charts(model: Model, asked: Asked) -> None:
    """What the cache would take with other attention, and which kinds of layers it consists of."""
    st.subheader("What other attention would keep")
    if model.size.layers_with_kv == 0 or asked.context * asked.batch == 0:
        show_notes([Note("There is no cache here to draw: nothing grows with the text.")], key="kv_nothing")
        return
    against, axis, rank, window = _bar(model)
    xs = kv_figures.stops(asked, model.context, against, axis, [model.size])
    left, right = st.columns(2, gap="medium")
    with left:
        _other_attention(model, asked, xs, (against, axis), (rank, window))
    with right:
        _by_kind(model, asked, against)


def _bar(model: Model) -> tuple[str, str, int, int]:
    against = state.pick_choice("along", AGAINST, "context")
    axis = state.pick_choice("axis", tuple(AXES), "log")
    rank = state.typed_number("rank", RANK, max(1, min(FIRST_RANK, (model.size.hidden_size or 2 * FIRST_RANK) // 2)))
    window = state.typed_number("span", WINDOW, max(1, min(FIRST_WINDOW, model.context // 4)))

    def take() -> None:
        value = state.component_value("kv_charts", "set")
        name, wanted = value.get("name"), value.get("value")
        if name in ("rank", "span"):
            state.set_typed(name, wanted)
        elif name in ("along", "axis"):
            state.set_pick_choice(name, wanted, AGAINST if name == "along" else AXES)

    control_bar(
        [
            Control("choice", "along", "Against", against, worded(AGAINST_WORDS)),
            Control("choice", "axis", "Axes", axis, worded(AXES)),
            Control("text", "rank", "Rank of the MLA", f"{rank.value:,}"),
            Control("text", "span", "Width of the window", f"{window.value:,}"),
        ],
        actions={},
        key="kv_charts",
        on_set=take,
    )
    show_notes([Note(typed.problem) for typed in (rank, window) if typed.problem], key="kv_chart_typed")
    return against, axis, rank.value, window.value


def _other_attention(
    model: Model, asked: Asked, xs: Sequence[int], view: tuple[str, str], other: tuple[int, int]
) -> None:
    against, axis = view

    sizes = state.cached_figures(("alternatives", model.token, other), lambda: kv_figures.others_of(model.bare, *other))

    def make() -> list[tuple[str, list[int]]]:
        return kv_figures.curves(sizes, xs, asked, against)

    found = state.cached_figures(("other", model.token, asked, view, other), make)
    line_chart(
        [Series(_short(name), xs, ys, look=_look(name), hue=_hue(name)) for name, ys in found],
        x_label=X_LABELS[against],
        y_label="",
        title=f"Total against {against}: as it is, and as it might be",
        caption=state.cached_figures(("saving", model.token, asked), lambda: _saving_words(model, asked, sizes)),
        recipe=app_recipe(figure="other attention", model=model.name, asked=list(asked.values), against=against),
        key="kv_other",
        file="headroom-kv-other-attention",
        doubling_x=axis == "log",
        log_y=axis == "log",
        in_bytes=True,
        x_ticks=kv_figures.marks(xs, axis),
    )


def _look(name: str) -> str:
    return "main" if name == "as it is" else "fan" if "g = " in name else ""


def _hue(name: str) -> int:
    return KIND_HUES["latent"] if name.startswith("MLA") else KIND_HUES["sliding"] if name.startswith("window") else 0


def _short(name: str) -> str:
    return name.replace("GQA, ", "").replace(", g = ", " g = ")


def _saving_words(model: Model, asked: Asked, sizes: Sequence[tuple[str, KVCacheSize]]) -> str:
    """The saving factor of every g, written out."""
    h, totals = model.size.n_heads, {}
    for name, size in sizes:
        if "g = " in name:
            totals[name.split("g = ")[1]] = size.total_bytes(*asked.values)
    if not h or not totals:
        return "The number of query heads is not one number here: only MLA and a window can be drawn beside it."
    most = max(totals.values())
    factors = [f"{h:,}/{g} = {most / n:g}" for g, n in totals.items()]
    return f"How many times less than MHA each g keeps, h / g: {', '.join(factors)}."


def _by_kind(model: Model, asked: Asked, against: str) -> None:
    xs = kv_figures.stops(asked, model.context, against, "linear", [model.size])

    def make() -> list[tuple[str, list[int]]]:
        return kv_figures.kind_curves(model.size, xs, asked, against)

    found = state.cached_figures(("kinds", model.token, asked, against), make)
    line_chart(
        [Series(f"{kind} layers", xs, ys, hue=KIND_HUES.get(kind, OTHER_HUE)) for kind, ys in found],
        x_label=X_LABELS[against],
        y_label="",
        title="Which layers it is made of",
        caption="Stacked: the upper edge is the total. Axes are linear and begin at zero.",
        recipe=app_recipe(figure="by kind", model=model.name, asked=list(asked.values), against=against),
        key="kv_kinds",
        file="headroom-kv-kinds",
        in_bytes=True,
        stacked=True,
        x_ticks=kv_figures.marks(xs, "linear"),
    )


def compare(settings: Settings, model: Model, asked: Asked) -> None:
    """Up to four models at one context, in a table and as curves."""
    st.subheader("Models side by side")
    words = {kv.KNOBS: "your knobs", **({} if state.pasted().size is None else {kv.PASTED: "the pasted config"})}
    names = [name for name in (*words, *kv.preset_names()) if name != model.key]
    keys = state.others(names, model.key)
    state.select_others(names, keys, words)
    found = [model, *(other for key in keys if (other := model_by_key(settings, key)) is not None)]
    if len(found) == 1:
        return
    _figures_of(found, asked)
    _curves_of(found, asked)


def _curves_of(models: Sequence[Model], asked: Asked) -> None:
    xs = kv_figures.stops(asked, max(model.context for model in models), "context", "log")
    sizes = [(model.name, model.size) for model in models if model.size.layers_with_kv]

    def make() -> list[list[int]]:
        return [ys for _, ys in kv_figures.curves(sizes, xs, asked, "context")]

    key = ("compared", tuple(model.token for model in models), asked, tuple(xs))
    found = state.cached_figures(key, make)
    line_chart(
        [Series(name, xs, ys) for (name, _), ys in zip(sizes, found, strict=True) if all(ys)],
        x_label=X_LABELS["context"],
        y_label="",
        title="Total against context",
        caption=f"Batch {asked.batch:,}, {asked.dtype}; both axes are logarithmic.",
        recipe=app_recipe(figure="compared", models=[model.name for model in models], asked=list(asked.values)),
        key="kv_compared",
        file="headroom-kv-compared",
        doubling_x=True,
        log_y=True,
        in_bytes=True,
        x_ticks=kv_figures.marks(xs, "log"),
    )


def _figures_of(models: Sequence[Model], asked: Asked) -> None:
    def make() -> list[list[str]]:
        return [_row(model, asked) for model in models]

    key = ("compared rows", tuple(model.token for model in models), asked)
    table(
        ["model", "total", "bytes", "bytes a token adds", "windows full", "layers that cache"],
        [[model.name, *row] for model, row in zip(models, state.cached_figures(key, make), strict=True)],
        caption=f"At {asked.context:,} tokens x {asked.batch:,} in {asked.dtype}; the first is the model above.",
        file="headroom-kv-compared",
        recipe=app_recipe(figure="compared", models=[model.name for model in models], asked=list(asked.values)),
        key="kv_compared_table",
        marked=0,
    )


def _row(model: Model, asked: Asked) -> list[str]:
    size, total = model.size, model.size.total_bytes(*asked.values)
    each = (round(n) for n in (size.bytes_per_token(asked.dtype), size.bytes_per_token_growing(asked.dtype)))
    caching = f"{size.layers_with_kv:,} of {len(size.layers):,}"
    return [unbroken(total), f"{total:,}", *(f"{n:,}" for n in each), caching]
