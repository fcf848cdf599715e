"""The page Reshape, timed: a loop over heads against one big product, on the machine that serves the page."""

from __future__ import annotations

from functools import partial

import streamlit as st

from mha_core.analysis.timing import MAX_TOKENS, Timing, TooLargeError, refuse_too_large
from mha_core.config import KNOB_D_MODEL, nearest, valid_choices
from mha_view import state
from mha_view.components.chart import Series, line_chart
from mha_view.components.controls import Control, control_bar
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.jobs import DONE, JobView
from mha_view.panels.pruning import polled
from mha_view.recipe import app_recipe
from mha_view.settings import Settings
from mha_view.state import Sizes
from mha_view.theme import small

TOKENS = (1, 16, 64, 256, MAX_TOKENS)
WAYS = {"loop": "loop over heads", "big": "one big product"}
ABOUT = (
    "The same random layer and input both ways, with K and V for every head and no mask. Loop: for each head three "
    "products with its own W_Q, W_K, W_V and its own attention, then concat and W_O. Big: the layer's forward pass, "
    "all heads at once. Both use the same fused attention kernel."
)


def bar(settings: Settings, own: int) -> Sizes:
    """Tokens, width and heads to be timed, and a button that starts or stops it. own: tokens of the visitor's run."""
    n = state.pick_number("time_n", 1, MAX_TOKENS, min(own, MAX_TOKENS))
    d_model = int(state.pick_choice("time_d", tuple(map(str, KNOB_D_MODEL)), str(settings.d_model)))
    heads = valid_choices(d_model, 1, rotary=False).n_heads
    usual = nearest(settings.n_heads, heads)[0]
    n_heads = int(state.pick_choice("time_h", tuple(map(str, heads)), str(usual)))
    sizes = (n, d_model, n_heads)

    def take() -> None:
        value = state.component_value("timing_bar", "set")
        name, wanted = value.get("name"), value.get("value")
        if name == "start":
            state.start_timing(sizes)
        elif name == "stop":
            state.stop_timing(sizes)
        elif name == "time_d":
            # Another width has other heads.
            state.drop_picks("time_h")
            state.set_picks(time_d=wanted)
        elif name in ("time_n", "time_h"):
            state.set_picks(**{name: wanted})

    controls = [
        _choice("time_n", "Tokens n", n, sorted({*TOKENS, min(own, MAX_TOKENS), n})),
        _choice("time_d", "Width d_model", d_model, KNOB_D_MODEL),
        _choice("time_h", "Heads h", n_heads, heads),
    ]
    control_bar(controls, actions=_action(sizes), key="timing_bar", on_set=take)
    return sizes


def _choice(name: str, label: str, value: int, options: tuple[int, ...] | list[int]) -> Control:
    return Control("choice", name, label, value, tuple((option, f"{option:,}", False) for option in options))


def _action(sizes: Sizes) -> dict[str, str]:
    view = state.timed(sizes)
    if refusal(sizes) is not None:
        return {}
    if view is not None and view.unfinished:
        return {"stop": "Stop"}
    return {"start": "Measure" if view is None else "Measure again"}


def refusal(sizes: Sizes) -> str | None:
    """Why these sizes are not timed, or None."""
    try:
        refuse_too_large(*sizes)
    except TooLargeError as error:
        return str(error)
    return None


def result(sizes: Sizes) -> None:
    """The measurement as far as it is, drawn anew several times a second while it grows."""
    view = state.timed(sizes)
    polling = view is not None and view.unfinished
    polled(partial(_result, sizes, polling=polling), polling)


def _result(sizes: Sizes, *, polling: bool) -> None:
    view = state.timed(sizes)
    if polling and not (view is not None and view.unfinished):
        st.rerun()
    show_notes(_notes(sizes, view), key="timing_notes")
    if view is not None and isinstance(view.latest, Timing):
        _figures(sizes, view.latest)
    elif view is None and refusal(sizes) is None:
        facts_strip([], key="timing_facts", caption=f"{ABOUT} It takes a second or two.")


def _notes(sizes: Sizes, view: JobView | None) -> list[Note]:
    refused = refusal(sizes)
    if refused is not None:
        return [Note(refused, title="Not measured.", kind="problem")]
    if view is None:
        return []
    timing = view.latest
    reached = f"{len(timing.loop)} of at most {timing.of} rounds" if isinstance(timing, Timing) else "warming up"
    waiting = f"; {view.before} come first" if view.before else ""
    told = {
        "waiting": Note(f"It waits for its turn{waiting}.", title="Waiting."),
        "running": Note(f"{reached}.", title="Measuring:"),
        "stopped": Note(f"It ends after {reached}; what was reached is shown.", title="Stopped."),
        "failed": Note("The measurement failed; press to try again.", title="Failed.", kind="problem"),
    }
    return [Note(verdict(timing), title="Measured.")] if view.state == DONE else [told[view.state]]


def verdict(timing: Timing) -> str:
    """Which way is quicker, if the spread lets one say so; and that both give the same numbers."""
    loop, big = (timing.spread(name).median for name in WAYS)
    equal = f"Both give the same output: largest difference {small(timing.difference)}"
    scale = f" (largest number {timing.largest:.2f}). "
    rounds = f"the loop was slower in {timing.slower} of {len(timing.loop)} rounds"
    if not timing.apart:
        return f"{equal}{scale}In time they cannot be told apart here: {rounds}."
    if loop > big:
        return f"{equal}{scale}The loop takes {loop / big:.1f} times as long: {rounds}."
    return (
        f"{equal}{scale}Here the loop is no slower: {rounds}, and the big product takes {big / loop:.1f} times as long."
    )


def _figures(sizes: Sizes, timing: Timing) -> None:
    n, d_model, n_heads = sizes
    facts = [_fact(timing, name) for name in WAYS]
    facts.append(("largest difference of the outputs", small(timing.difference), "computed before the timing"))
    threads = f"{timing.threads} thread{'s' if timing.threads > 1 else ''}"
    facts.append(("measured on", timing.where, f"float32, {threads}, the machine that serves this page"))
    facts_strip(facts, key="timing_facts", lead=f"n = {n:,}, d_model = {d_model:,}, h = {n_heads}")
    rounds = list(range(1, len(timing.loop) + 1))
    line_chart(
        [Series(label, rounds, [1e3 * s for s in getattr(timing, name)]) for name, label in WAYS.items()],
        x_label="round",
        y_label="milliseconds a pass",
        title="Every round, in the order in which it was measured",
        caption=ABOUT,
        recipe=app_recipe(figure="timing", n=n, d_model=d_model, n_heads=n_heads, where=timing.where),
        key="timing",
        file="headroom-timing",
        y_range=(0.0, 0.0),
    )


def _fact(timing: Timing, name: str) -> tuple[str, str, str]:
    spread = timing.spread(name)
    note = f"median of {len(timing.loop)}; quartiles {1e3 * spread.low:.3f} to {1e3 * spread.high:.3f}"
    return WAYS[name], f"{1e3 * spread.median:.3f} ms", note
