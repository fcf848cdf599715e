"""The section "Same weights, fewer KV heads": maps before and after, and what was measured on trained models."""

from __future__ import annotations

import streamlit as st

from mha_core import zoo
from mha_core.analysis.heads import layer_summaries
from mha_core.analysis.pooling import targets
from mha_core.config import or_list, valid_choices
from mha_core.text import TextError
from mha_core.trace import ModelTrace
from mha_view import cards, pooled, state
from mha_view.components.chart import line_chart
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.facts import facts_strip
from mha_view.components.maps import head_maps
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.panels.heads import picked_row
from mha_view.panels.shared import untrained
from mha_view.pooled import PooledRun
from mha_view.recipe import recipe, weights_recipe
from mha_view.results import LoadedModel, Run
from mha_view.settings import SIZES, Settings
from mha_view.theme import bytes_text, weight

UNTRAINED = (
    "Maps and output error are computed here all the same; loss and tasks were measured for trained settings only."
)


def pooled_section(settings: Settings) -> None:
    """The chosen model with fewer KV heads: what to know, a control, maps side by side, and figures where there are."""
    st.subheader("Same weights, fewer KV heads")
    facts_strip(
        [],
        key="pooled_lead",
        lead="Give a finished model fewer KV heads, here that of the knobs: W_K and W_V of those that now share become "
        f"their mean. {pooled.finding()}",
        caption=f"Nothing was trained after the pooling here. {pooled.AINSLIE}",
    )
    _problem()
    if settings.n_kv_heads == 1:
        _nothing_to_pool(settings)
        return
    loaded = state.cached_model(settings)
    if loaded.card is None:
        untrained(settings, loaded.problem, UNTRAINED)
    fewer, layer = _bar(settings, loaded)
    _sentence(settings, fewer, layer)
    if loaded.card is not None:
        _measured(loaded.card, fewer)


def _problem() -> None:
    _, problem = pooled.stored()
    if problem is not None:
        show_notes([Note(problem, kind="problem")], key="no_pooling")


def _nothing_to_pool(settings: Settings) -> None:
    """One KV head cannot be pooled: what could be chosen instead."""
    h = settings.n_heads
    larger = valid_choices(settings.d_model, h, rotary=True).n_kv_heads[1:]
    text = "g = 1: there is a single KV head, and nothing left to pool. "
    if not larger:
        show_notes([Note(f"{text}With h = 1 there never was more; choose more heads h first.")], key="one_kv_head")
        return

    def act() -> None:
        state.set_sizes(state.component_value("one_kv_head", "act"))

    sizes = {name: getattr(settings, name) for name in SIZES} | {"n_kv_heads": h}
    note = Note(f"{text}With h = {h}, g can also be {or_list(larger)}.", actions={f"Show g = {h}": sizes})
    show_notes([note], key="one_kv_head", on_act=act)


def _bar(settings: Settings, loaded: LoadedModel) -> tuple[int, int]:
    """To how many KV heads, and which layer is drawn."""
    g, n_layers = settings.n_kv_heads, loaded.model.cfg.n_layers
    words = {str(n): f"{n} (MQA)" if n == 1 else str(n) for n in reversed(targets(g))}
    fewer = state.pick_choice("pool", tuple(words), next(iter(words)))
    layer = state.pick_number("layer", 0, n_layers - 1, 0 if loaded.card is None else cards.first_head(loaded.card)[0])

    def take() -> None:
        value = state.component_value("pool_bar", "set")
        if value.get("name") == "pool":
            state.set_pick_choice("pool", value.get("value"), words)
        elif value.get("name") == "layer":
            state.set_picks(layer=value.get("value"))

    control_bar(
        [
            Control("choice", "pool", f"Pool g = {g} to", fewer, worded(words)),
            Control("choice", "layer", "Layer", layer, tuple((i, str(i), False) for i in range(n_layers))),
        ],
        actions={},
        key="pool_bar",
        on_set=take,
    )
    return int(fewer), layer


def _sentence(settings: Settings, fewer: int, layer: int) -> None:
    """The visitor's own sentence; a text that cannot be shown takes the maps with it and nothing else."""
    try:
        run, found = state.cached_run(settings), state.pooled_run(settings, fewer)
    except (TextError, state.BudgetError) as error:
        show_notes([Note(str(error), kind="problem")], key="no_pooled_maps")
        return
    _facts(run, found)
    if run.tokens.n_typed == 0:
        show_notes([Note("Type a sentence to see the maps before and after.")], key="no_pooled_maps")
        return
    _both_maps(run, found, fewer, layer)


def _facts(run: Run, found: PooledRun) -> None:
    before, after, g = found.before, found.after, run.settings.n_kv_heads
    errors = " · ".join(f"{error:.2f}" for error in found.out_errors)
    ratio = f"{before.cache_bytes / after.cache_bytes:g} times smaller"
    left = found.trace.layers[0]
    facts_strip(
        [
            ("output error, layer by layer", errors, "this sentence: length of the error over that of the output"),
            (
                "next word, before to after",
                f"{found.divergence:.2f} nats",
                "this sentence: KL divergence, mean of rows",
            ),
            ("parameters", f"{before.parameters:,} → {after.parameters:,}", "W_K and W_V shrink, all else stays"),
            (
                "KV cache per token",
                f"{bytes_text(before.cache_bytes)} → {bytes_text(after.cache_bytes)}",
                f"{ratio}: g = {g} → {left.cfg.n_kv_heads}, {left.k.element_size()} bytes a number",
            ),
        ],
        key="pooled_facts",
    )


def _both_maps(run: Run, found: PooledRun, fewer: int, layer: int) -> None:
    """All heads of one layer twice, on one scale, in the hues of the KV heads that they read then."""
    shares = found.moved[layer]
    most = int(shares.argmax())
    head = state.pick_number("head", 0, len(shares) - 1, most)
    told = f"Head {most} changed most: {weight(float(shares[most]))} of its weight moved, mean over the rows."
    g = run.settings.n_kv_heads
    left, right = st.columns(2, gap="large")
    with left:
        words = "As the model is. Rows look, columns are looked at; heads of one hue read the same keys and values."
        _maps(run, run.trace, (layer, head), f"Layer {layer} before, g = {g}", words, "pooled_before")
    with right:
        words = f"The same sentence, scale and heads; hues are those of the {fewer} KV heads left. {told}"
        _maps(run, found.trace, (layer, head), f"Layer {layer} pooled, g = {fewer}", words, "pooled_after")


def _maps(run: Run, trace: ModelTrace, at: tuple[int, int], title: str, caption: str, key: str) -> None:
    layer, row = at[0], picked_row(run)
    attention = trace.layers[layer]

    def pick() -> None:
        state.set_picks(head=state.component_value(key, "picked").get("head"))

    head_maps(
        [attention.array("pattern")],
        attention.array("mask"),
        summaries=layer_summaries(trace, layer, row),
        labels=run.tokens.labels,
        shown_rows=len(run.tokens.labels),
        row=row,
        picked=at,
        scale=run.settings.scale,
        title=title,
        caption=caption,
        badges={},
        recipe=recipe(run, figure="KV heads pooled", layer=layer, row=row, n_kv_heads=attention.cfg.n_kv_heads),
        key=key,
        on_pick=pick,
        first_layer=layer,
        file=f"headroom-{key.replace('_', '-')}-L{layer}",
    )


def _measured(card: zoo.Card, fewer: int) -> None:
    """Loss, tasks and distance on sentences made for the purpose, beside the models trained with fewer KV heads."""
    found = pooled.comparison(card.name, fewer)
    if found is None:
        return
    left, right = st.columns([3, 2], gap="large")
    with left:
        _chart(card)
    with right:
        facts_strip([], key="pooled_reading", lead=pooled.reading(found))
    table(
        pooled.COLUMNS,
        pooled.table_rows(found),
        caption=f"Measured under the {cards.TRAINED_MASK} mask on {pooled.SENTENCES}, one training seed. Loss in nats "
        "per word, also on each half of the sentences: how much their choice matters. Tasks: share right; all heads "
        "off: what is right without attention. Output error: of the last layer's attention, mean over the words.",
        file="headroom-pooled",
        recipe=weights_recipe(card.name, card.sha256, figure="KV heads pooled", n_kv_heads=fewer),
        key="pooled_table",
        marked=1,
    )


def _chart(card: zoo.Card) -> None:
    line_chart(
        pooled.lines(card.name),
        x_label="KV heads g",
        y_label="loss, nats per word",
        title="Loss against g: pooled, and trained so",
        caption="From the model as it is to a single KV head. The band spans the two halves of the sentences.",
        recipe=weights_recipe(card.name, card.sha256, figure="loss against g, pooled and trained"),
        key="pooled_chart",
        file="headroom-pooled-loss",
        falling_x=True,
        doubling_x=True,
    )
