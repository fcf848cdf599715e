"""The shared controls: they stand on every page and own the settings."""

from __future__ import annotations

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core.config import KNOB_D_MODEL, MAX_SEED, valid_choices
from mha_core.text import MAX_CHARACTERS, MAX_TOKENS, word_spans
from mha_view import state
from mha_view.cards import cards, sizes_of
from mha_view.components.controls import Control, control_panel, worded
from mha_view.examples import EXAMPLES
from mha_view.results import KNOWN_WORDS, VOCABULARY
from mha_view.settings import MAX_WINDOW, Settings
from mha_view.state import widget_key

MASK_WORDS = {"causal": "causal", "full": "full", "window": "window"}
SCALE_WORDS = {"linear": "linear", "log": "log", "row": "per row"}
WEIGHT_WORDS = {"trained": "trained", "random": "random"}


def sidebar(settings: Settings) -> DeltaGenerator:
    """Draw the controls; returns the place for the link, which is known only after the page."""
    chosen = next((example for example in EXAMPLES if example.sentence == settings.sentence), None)
    with st.sidebar:
        st.text_area("Sentence", key=widget_key("sentence"), height=96)
        control_panel(
            [*_knobs(settings), *_looks(settings)],
            counted=_counted(settings.sentence),
            examples=[example.name for example in EXAMPLES],
            chosen=None if chosen is None else chosen.name,
            notice="" if chosen is None else chosen.notice,
            words=KNOWN_WORDS,
            actions={"reset": "Reset to defaults"},
            key="controls",
            on_set=_take,
        )
        return st.container()


def _take() -> None:
    """Take over what a control reported; values that make no sense are ignored here or settled on the next rerun."""
    value = state.component_value("controls", "set")
    name, wanted = value.get("name"), value.get("value")
    if name == "reset":
        state.reset()
    elif name == "example":
        for example in EXAMPLES:
            if example.name == wanted:
                state.set_settings(sentence=example.sentence)
    elif isinstance(name, str):
        state.set_checked(name, wanted)


def _knobs(settings: Settings) -> list[Control]:
    """Weights, and the three sizes with the values that work; a dot marks those with trained weights."""
    d_model, h, g = settings.d_model, settings.n_heads, settings.n_kv_heads
    choices = valid_choices(d_model, h, rotary=True)
    trained = [sizes_of(card) for card in cards()]
    widths, heads = {s[0] for s in trained}, {s[1] for s in trained if s[0] == d_model}
    kv_heads = {s[2] for s in trained if s[:2] == (d_model, h)}
    about = "Trained where there are some, or random from the seed."
    found = [Control("choice", "weights", "Weights", settings.weights, worded(WEIGHT_WORDS), about=about)]
    if settings.weights == "random":
        found.append(Control("number", "seed", "Seed of the random weights", settings.seed, low=0, high=MAX_SEED))
    shared = "1 query head" if h == g else f"{h // g} query heads"
    kind = "single-head" if h == 1 else "multi-head" if h == g else "multi-query" if g == 1 else "grouped-query"
    note = f"{shared} per KV head: {kind} attention. A dot marks trained weights."
    return [
        *found,
        Control("stops", "d_model", "Width d_model", d_model, _numbers(KNOB_D_MODEL, widths)),
        Control("choice", "n_heads", "Heads h", h, _numbers(choices.n_heads, heads)),
        Control("choice", "n_kv_heads", "KV heads g", g, _numbers(choices.n_kv_heads, kv_heads), note=note),
    ]


def _looks(settings: Settings) -> list[Control]:
    """Who may look at whom, and how weights become colour."""
    about = "Who may look at whom. The trained weights learned under the causal mask."
    found = [Control("choice", "mask", "Mask", settings.mask, worded(MASK_WORDS), about=about)]
    if settings.mask == "window":
        label = "Window: tokens seen, itself included"
        found.append(Control("number", "window", label, settings.window, low=1, high=MAX_WINDOW))
    about = "How weights become colour; the legend says the range."
    return [*found, Control("choice", "scale", "Colour scale", settings.scale, worded(SCALE_WORDS), about=about)]


def _counted(sentence: str) -> str:
    """How many tokens were typed, and how many of them the model knows."""
    if len(sentence) > MAX_CHARACTERS:
        return f"{len(sentence):,} characters, more than the limit of {MAX_CHARACTERS:,}."
    words = [sentence[start:end] for start, end in word_spans(sentence)]
    unknown = sum(VOCABULARY.row(word) is None for word in words)
    known = "all known" if unknown == 0 else f"{unknown} unknown"
    return f"{len(words)} of at most {MAX_TOKENS} tokens, {known}; capitals do not matter."


def _numbers(values: tuple[int, ...], trained: set[int]) -> tuple[tuple[int, str, bool], ...]:
    return tuple((value, str(value), value in trained) for value in values)
