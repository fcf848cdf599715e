"""The page Flow: from the settings, or the worked example, to one layer's stages and its heads' writes."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import streamlit as st

from mha_core import worked_example, zoo
from mha_core.analysis.flow import LayerFlow, layer_flow, stages_of
from mha_core.analysis.writes import changed_output, writes_of
from mha_core.attention import GroupedQueryAttention
from mha_view import cards, state
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.flow import Place, flow_view, packed_numbers, packed_weights, whole
from mha_view.components.notes import Note, show_notes
from mha_view.components.writes import MOST_LINES, packed_writes, writes_view
from mha_view.recipe import recipe
from mha_view.results import Run, model_key, run_key
from mha_view.settings import Settings

PRESETS = {"yours": "your settings", "worked": "worked example"}
WORKED = "worked"
PRONOUNS = ("it", "they", "he", "she")


@dataclass(frozen=True, eq=False)
class Shown:
    """The layer on the page: its module, its numbers, the words beside its rows, and what names it all."""

    layer: GroupedQueryAttention
    flow: LayerFlow
    labels: list[str]
    name: str
    weights_name: str
    recipe: dict[str, Any]
    first_head: int = 0


def picked_preset() -> str:
    """Whether the page shows the visitor's settings or the worked example."""
    return state.pick_choice("preset", tuple(PRESETS), "yours")


def example() -> Shown:
    """The worked example; its numbers depend on nothing that a visitor can choose."""
    layer, trace = worked_example.layer(), worked_example.trace()
    place = {"figure": "flow", "preset": "worked"}
    flow = layer_flow(layer, trace, trace.array("x"))
    return Shown(layer, flow, list(worked_example.WORDS), WORKED, "worked weights", {"shown": place}, first_head=1)


def yours(settings: Settings, run: Run, layer: int) -> Shown:
    """One layer of the visitor's run."""
    module = state.cached_model(settings).model.attention_layers()[layer]
    before = next(p.before for p in run.trace.parts if p.layer == layer and p.kind == "attention")
    flow = layer_flow(module, run.layer(layer), before[0].float().numpy())
    name, weights_name = (f"{_digest(key(settings))}/{layer}" for key in (run_key, model_key))
    place = recipe(run, figure="flow", layer=layer)
    return Shown(module, flow, run.tokens.labels, name, f"W {weights_name}", place, _recommended(run.card)[1])


def _digest(key: tuple[object, ...]) -> str:
    """A name for a cache key, the same on every server, which says nothing of what was typed."""
    return hashlib.sha256(repr(key).encode()).hexdigest()[:32]


def picked_layer(run: Run) -> int:
    """The layer that is shown: what was chosen, or that of the head which the card recommends."""
    return state.pick_number("layer", 0, len(run.trace.layers) - 1, _recommended(run.card)[0])


def _recommended(card: zoo.Card | None) -> tuple[int, int]:
    return (0, 0) if card is None else cards.first_head(card)


def bar(preset: str, layer: int | None, n_layers: int) -> None:
    """Whose numbers are shown, and of which layer."""

    def take() -> None:
        value = state.component_value("flow_bar", "set")
        if value.get("name") == "preset":
            # Another trace has other stages, heads and tokens.
            state.drop_picks("step", "head", "row", "col", "without", "swap", "with")
            state.set_pick_choice("preset", value.get("value"), PRESETS)
        elif value.get("name") == "layer":
            state.set_picks(layer=value.get("value"))

    controls = [Control("choice", "preset", "Numbers of", preset, worded(PRESETS))]
    if layer is not None:
        options = tuple((i, str(i), False) for i in range(n_layers))
        controls.append(Control("choice", "layer", "Layer", layer, options))
    control_bar(controls, actions={}, key="flow_bar", on_set=take)


def notes(shown: Shown) -> None:
    """What must be known about the numbers before they are read."""
    if shown.name == WORKED:
        show_notes([Note(worked_words(shown.flow), title="Worked example.")], key="flow_notes")


def worked_words(flow: LayerFlow) -> str:
    """Why the worked example does what it does, with its numbers."""
    labels, scores, pattern = list(worked_example.WORDS), flow.matrices("scores"), flow.matrices("pattern")
    cat, sat, down = (labels.index(word) for word in ("cat", "sat", "down"))
    return (
        "These weights are constructed, not learned, and small enough to check by hand. A word's row has a 1 for its "
        f"place (columns 0 to 3) and a 1 for its kind ({', '.join(worked_example.KINDS)}: columns 4 to 7). Head 0 asks "
        f"for the places beside: “sat” gives “cat” and “down” the score {scores[0, sat, cat]:g} and the weights "
        f"{pattern[0, sat, cat]:.2f} and {pattern[0, sat, down]:.2f}. In head 1 only the verb asks, for a noun: “sat” "
        f"gives “cat” the score {scores[1, sat, cat]:g} and the weight {pattern[1, sat, cat]:.2f}; who asks nothing "
        f"looks evenly, {pattern[1, cat, cat]:.2f} each. No mask, no rotary positions."
    )


def picked_place(shown: Shown) -> Place:
    """Stage, head, token and column: what was clicked or linked, or where the page starts."""
    cfg, n = shown.flow.trace.cfg, len(shown.labels)
    last_col = max(cfg.d_model, n) - 1
    labels = [label.casefold() for label in shown.labels]
    row = next((i for i, word in enumerate(labels) if word in PRONOUNS), n - 1)
    col = min(row, last_col)
    if shown.name == WORKED:
        row, col = labels.index("sat"), labels.index("cat")
    return Place(
        step=state.pick_number("step", 0, len(stages_of(shown.flow)) - 1, 0),
        head=state.pick_number("head", 0, cfg.n_heads - 1, shown.first_head),
        row=state.pick_number("row", 0, n - 1, row),
        col=state.pick_number("col", 0, last_col, col),
    )


def stages(shown: Shown, at: Place, scale: str) -> None:
    """The stepper."""

    def move() -> None:
        value = state.component_value("flow", "at")
        state.set_picks(**{name: value.get(name) for name in ("step", "head", "row", "col")})

    told, flow = state.component_value("flow", "at"), shown.flow
    key = shown.name if whole(flow) else f"{shown.name}/{at.head}"
    lacks = stages_of(flow)[at.step].weights and told.get("have") != shown.weights_name
    zoom, echo = told.get("zoom"), told.get("count")
    with st.container(gap=None):
        flow_view(
            flow,
            labels=shown.labels,
            at=at,
            key=key,
            numbers=state.cached_pack(("numbers", key), lambda: packed_numbers(flow, at.head)),
            weights=(
                shown.weights_name,
                state.cached_pack(("weights", shown.weights_name), lambda: packed_weights(flow)) if lacks else None,
            ),
            zoom=zoom if isinstance(zoom, dict) else {},
            echo=echo if isinstance(echo, int) else 0,
            scale=scale,
            recipe=shown.recipe,
            on_move=move,
        )


def writes(shown: Shown, at: Place) -> None:
    """Concat and W_O head by head, for the chosen token; and the layer computed anew where something is changed."""
    last = shown.flow.trace.cfg.n_heads - 1
    off, one, other = (state.pick_number(name, -1, last, -1) for name in ("without", "swap", "with"))
    swap = (one, other) if one != other and min(one, other) >= 0 else (-1, -1)

    def change() -> None:
        value = state.component_value("writes", "change")
        state.set_picks(**{"without": value.get("off"), "swap": value.get("swap"), "with": value.get("with")})

    def packed_now() -> dict[str, Any]:
        trace, changed = shown.flow.trace, None
        if off >= 0 or swap[0] >= 0:
            wanted = {"off": off if off >= 0 else None, "swap": swap if swap[0] >= 0 else None}
            changed = changed_output(shown.layer, trace, at.row, **wanted)
        found = writes_of(trace, at.row, most=MOST_LINES, shown={at.head, off, *swap})
        return packed_writes(shown.flow, found, at.row, changed=changed, off=off, swap=swap, token=token)

    token = shown.labels[at.row]
    with st.container(gap=None):
        data = state.cached_pack(("writes", shown.name, at.row, at.head, off, swap), packed_now)
        writes_view(data, token=token, on_change=change)
