"""The page Heads: from a run and what was clicked to its maps, lines, comparison and arithmetic."""

from __future__ import annotations

from collections import Counter

import numpy as np
from streamlit.delta_generator import DeltaGenerator

from mha_core.analysis.heads import HeadSummary, cell_arithmetic, head_summaries, without_first_token
from mha_view import cards, evidence, state
from mha_view.components.cell import cell_panel
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.facts import facts_strip
from mha_view.components.head import head_difference, head_map
from mha_view.components.lines import head_lines
from mha_view.components.maps import head_maps
from mha_view.components.notes import Note, show_notes
from mha_view.recipe import recipe
from mha_view.results import Run
from mha_view.settings import Settings
from mha_view.theme import weight

PRONOUNS = ("it", "they", "he", "she")
VIEWS = {"map": "map", "lines": "lines", "compare": "compare"}
FIRST = {"show": "shown", "hide": "hidden", "renormalise": "hidden, rows rescaled"}


def picked_head(run: Run) -> tuple[int, int]:
    """Layer and head that are shown large: what was clicked, or the head that the card recommends."""
    layer, head = (0, 0) if run.card is None else cards.first_head(run.card)
    n_layers, n_heads = len(run.trace.layers), run.layer(0).cfg.n_heads
    return (
        state.pick_number("layer", 0, n_layers - 1, layer),
        state.pick_number("head", 0, n_heads - 1, head),
    )


def picked_row(run: Run) -> int:
    """The row that is framed: what was clicked, or the first pronoun, or the last token."""
    labels = [label.casefold() for label in run.tokens.labels]
    last = len(labels) - 1
    default = next((row for row, label in enumerate(labels) if row > 0 and label in PRONOUNS), last)
    return state.pick_number("row", 0, last, default)


def picked_key(run: Run, layer: int, head: int, row: int) -> int:
    """The cell that is opened: what was clicked, or what the row looks at most."""
    pattern = run.layer(layer).array("pattern")[head, row]
    return state.pick_number("key", 0, len(pattern) - 1, int(pattern.argmax()))


def looks_at(run: Run, layer: int, head: int, row: int) -> str:
    """One sentence: what the framed row looks at most in this head."""
    pattern = run.layer(layer).array("pattern")[head, row]
    labels = run.tokens.labels
    top = int(pattern.argmax())
    return (
        f"in layer {layer}, head {head}, “{labels[row]}” looks most at “{labels[top]}”, {weight(float(pattern[top]))}."
    )


def bar(settings: Settings, layer: int, head: int) -> tuple[str, str]:
    """How the chosen head is shown, and whether the start token is: the bar over the pictures, and what it says."""
    view = state.pick_choice("view", tuple(VIEWS), "map")
    first = state.pick_choice("first", tuple(FIRST), "show")
    kept = state.pinned() is not None

    def take() -> None:
        value = state.component_value("bar", "set")
        if value.get("name") == "view":
            state.set_pick_choice("view", value.get("value"), VIEWS)
        elif value.get("name") == "first":
            state.set_pick_choice("first", value.get("value"), FIRST)
        elif value.get("name") == "pin":
            state.pin(settings, layer, head)
        elif value.get("name") == "unpin":
            state.unpin()

    control_bar(
        [
            Control("choice", "view", "View", view, worded(VIEWS)),
            Control("choice", "first", "Start token", first, worded(FIRST)),
        ],
        actions={"unpin": "Unpin"} if kept else {"pin": "Pin this view"},
        key="bar",
        on_set=take,
    )
    return view, first


def first_words(run: Run, layer: int, head: int, row: int) -> str:
    """The first sentence on the page: what to see, and what to try."""
    told = looks_at(run, layer, head, row)
    return f"{told[0].upper()}{told[1:]} Press another head, row or cell; or change one word of the sentence."


def overview(run: Run, layer: int, head: int, row: int, first: str) -> None:
    """All heads as small maps."""
    labels, patterns, visible, offset = _shown(run, first)
    summaries = head_summaries(run.trace, row)

    def pick() -> None:
        value = state.component_value("maps", "picked")
        state.set_picks(layer=value.get("layer"), head=value.get("head"))

    head_maps(
        patterns,
        visible,
        summaries=summaries,
        labels=run.tokens.labels,
        shown_rows=len(labels),
        row=row,
        picked=(layer, head),
        scale=run.settings.scale,
        title=f"All heads, {len(patterns)} layers x {patterns[0].shape[0]}",
        caption=f"{_favourites(summaries, run.tokens.labels, row)} Each square is one head: rows look, columns are "
        f"looked at; heads of one hue read the same keys and values.{_first_words(first, offset)}"
        + ("" if run.card is None else f" {evidence.BADGE_WORDS}"),
        badges={} if run.card is None else evidence.badges(run.card.name),
        recipe=recipe(run, figure="all heads", row=row, first=first),
        key="maps",
        on_pick=pick,
    )


def _favourites(summaries: list[HeadSummary], labels: list[str], row: int) -> str:
    """What to notice in the overview: where the chosen row looks, counted over the heads."""
    counted = Counter(summary.top_key for summary in summaries).most_common(3)
    places = ", ".join(f"“{labels[top]}” in {count}" for top, count in counted)
    return f"Of {len(summaries)} heads, “{labels[row]}” looks most at {places}."


def large_map(run: Run, layer: int, head: int, row: int, key: int, first: str) -> None:
    """One head, large, with the sorted row beside it."""
    labels, patterns, visible, offset = _shown(run, first)

    def pick() -> None:
        value = state.component_value("head", "picked")
        state.set_picks(row=value.get("row"), key=value.get("key"))

    cfg = run.layer(layer).cfg
    head_map(
        patterns[layer][head],
        visible,
        labels=labels,
        kv_head=cfg.kv_head_of(head),
        picked=(row - offset, max(key - offset, 0)),
        scale=run.settings.scale,
        title=f"Layer {layer}, head {head}" + (f" (KV head {cfg.kv_head_of(head)})" if cfg.heads_per_kv > 1 else ""),
        caption=f"Rows look, columns are looked at: {looks_at(run, layer, head, row)} Click a row's name to sort it, "
        f"a cell to see its arithmetic.{_first_words(first, offset)}",
        recipe=recipe(run, figure="head", layer=layer, head=head, row=row, key=key, first=first),
        key="head",
        file=f"headroom-L{layer}H{head}",
        offset=offset,
        unknown=[row - offset for row, token in enumerate(run.tokens.items) if not token.known],
        on_pick=pick,
    )


def arithmetic(run: Run, layer: int, head: int, row: int, key: int) -> None:
    """The sum behind the framed cell."""
    labels, attention = run.tokens.labels, run.layer(layer)
    cell_panel(
        cell_arithmetic(attention, head, row, key),
        row_label=labels[row],
        key_label=labels[key],
        kv_head=attention.cfg.kv_head_of(head),
        recipe=recipe(run, figure="cell", layer=layer, head=head, row=row, key=key),
        key="cell",
    )


def wires(run: Run, layer: int, first: str) -> None:
    """One layer as lines from token to token."""
    labels, patterns, _, offset = _shown(run, first)
    cfg = run.layer(layer).cfg
    head_lines(
        patterns[layer],
        labels=labels,
        kv_heads=[cfg.kv_head_of(i) for i in range(cfg.n_heads)],
        title=f"Layer {layer}: who looks at whom",
        caption="Left looks, right is looked at." + _first_words(first, offset),
        recipe=recipe(run, figure="lines", layer=layer, first=first),
        key="lines",
        file=f"headroom-lines-L{layer}",
    )


def comparison(run: Run, layer: int, head: int, row: int, first: str, below: DeltaGenerator) -> None:
    """Two heads on one scale, ``below``, and here their difference where both see as many tokens."""
    other, other_layer, other_head, name = _other(run, layer, head)
    mine = f"L{layer}H{head}"
    sides = [(run, layer, head, mine, "compare_a"), (other, other_layer, other_head, name, "compare_b")]
    _difference(run, other, (layer, head), (other_layer, other_head), (mine, name), first)
    for column, (shown, at_layer, at_head, title, key) in zip(below.columns(2, gap="medium"), sides, strict=True):
        labels, patterns, visible, offset = _shown(shown, first)
        with column:
            head_map(
                patterns[at_layer][at_head],
                visible,
                labels=labels,
                kv_head=shown.layer(at_layer).cfg.kv_head_of(at_head),
                picked=(row - offset if row < len(shown.tokens.items) else -1, -1),
                scale=run.settings.scale,
                title=title,
                caption=shown.settings.title() + "." + _first_words(first, offset),
                recipe=recipe(shown, figure="head", layer=at_layer, head=at_head, first=first),
                key=key,
                file=f"headroom-{key}",
                bars=False,
            )


def _difference(
    run: Run, other: Run, a: tuple[int, int], b: tuple[int, int], names: tuple[str, str], first: str
) -> None:
    labels, patterns, visible, offset = _shown(run, first)
    _, others, other_visible, _ = _shown(other, first)
    if others[0].shape[-1] != patterns[0].shape[-1]:
        show_notes([Note("The two texts have different lengths, so there is no difference map.")], key="no_difference")
        return
    same = run.tokens.labels == other.tokens.labels
    head_difference(
        patterns[a[0]][a[1]],
        others[b[0]][b[1]],
        visible | other_visible,
        labels=labels,
        kv_head=run.layer(a[0]).cfg.kv_head_of(a[1]),
        picked=(-1, -1),
        names=names,
        title=f"{names[0]} minus {names[1]}",
        caption="Cell by cell, on the scale of the legend."
        + ("" if same else " The texts differ; cells are matched by position.")
        + _first_words(first, offset),
        recipe=recipe(run, figure="difference", first_head=a, second_head=b, other=other.settings.title()),
        key="difference",
        file="headroom-difference",
        offset=offset,
    )


def _other(run: Run, layer: int, head: int) -> tuple[Run, int, int, str]:
    """What the chosen head is compared with: another head of this run, or the pinned view."""
    n_layers, n_heads = len(run.trace.layers), run.layer(0).cfg.n_heads
    kept = state.pinned()
    options = {f"{i}.{j}": f"L{i}H{j}" for i in range(n_layers) for j in range(n_heads)}
    if kept is not None:
        options = {"pin": f"pinned view: L{kept[1]}H{kept[2]}, {kept[0].title()}", **options}
    default = "pin" if kept is not None else f"{layer}.{(head + 1) % n_heads}"
    chosen = state.select_control("other", "Compare with", options, default)
    if chosen == "pin" and kept is not None:
        return state.cached_run(kept[0]), kept[1], kept[2], "pinned " + f"L{kept[1]}H{kept[2]}"
    other_layer, other_head = (int(part) for part in chosen.split("."))
    return run, other_layer, other_head, f"L{other_layer}H{other_head}"


def head_scores(run: Run, layer: int, head: int) -> None:
    """What the chosen head scored in the card's tests, beside its control."""
    if run.card is None:
        return
    facts_strip(
        evidence.head_facts(run.card.name, layer, head),
        key="head_scores",
        lead=f"What layer {layer}, head {head} scored:",
        caption="Measured on sentences made for the purpose, not on the one above: an example alone proves nothing. "
        "The control is what a head reaches by chance.",
    )


def _shown(run: Run, first: str) -> tuple[list[str], list[np.ndarray], np.ndarray, int]:
    """Labels, patterns of every layer and the mask as they are drawn; and how many first rows are left out."""
    patterns = [attention.array("pattern") for attention in run.trace.layers]
    visible = run.layer(0).array("mask")
    labels = run.tokens.labels
    if first == "show" or len(labels) < 2:
        return labels, patterns, visible, 0
    renormalise = first == "renormalise"
    return labels[1:], [without_first_token(p, renormalise=renormalise) for p in patterns], visible[1:, 1:], 1


def _first_words(first: str, offset: int) -> str:
    if offset == 0:
        return ""
    rest = "rows are rescaled to sum to 1" if first == "renormalise" else "rows sum to less than 1"
    return f" The start token is left out: {rest}."
