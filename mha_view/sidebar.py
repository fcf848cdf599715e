"""The shared controls: they stand on every page and own the settings."""

from __future__ import annotations

from collections.abc import Callable

import streamlit as st
from streamlit.delta_generator import DeltaGenerator

from mha_core.config import KNOB_D_MODEL, MAX_SEED, valid_choices
from mha_core.text import MAX_CHARACTERS, MAX_TOKENS, word_spans
from mha_view import state
from mha_view.cards import cards, sizes_of
from mha_view.examples import EXAMPLES
from mha_view.results import VOCABULARY
from mha_view.settings import MAX_WINDOW, Settings
from mha_view.state import widget_key

MASK_WORDS = {"causal": "causal", "full": "full", "window": "window"}
SCALE_WORDS = {"linear": "linear", "log": "log", "row": "per row"}
WEIGHT_WORDS = {"trained": "trained", "random": "random"}


def sidebar(settings: Settings) -> DeltaGenerator:
    """Draw the controls; returns the place for the link, which is known only after the page."""
    with st.sidebar:
        _sentence(settings)
        _knobs(settings)
        _segments("Mask", "mask", MASK_WORDS, "Who may look at whom. The trained weights know the causal mask only.")
        if settings.mask == "window":
            st.number_input("Window (tokens seen, itself included)", 1, MAX_WINDOW, key=widget_key("window"))
        _segments("Colour scale", "scale", SCALE_WORDS, "How weights become colour; the legend says the range.")
        link = st.container()
        st.button("Reset to defaults", on_click=state.reset, width="stretch")
    return link


def _sentence(settings: Settings) -> None:
    st.text_area("Sentence", key=widget_key("sentence"), height=96)
    st.caption(_counted(settings.sentence))
    names = [example.name for example in EXAMPLES]
    chosen = next((example for example in EXAMPLES if example.sentence == settings.sentence), None)
    st.session_state["example"] = None if chosen is None else chosen.name

    def take() -> None:
        picked = next((example for example in EXAMPLES if example.name == st.session_state["example"]), None)
        if picked is not None:
            state.set_settings(sentence=picked.sentence)

    st.pills("Examples", names, key="example", on_change=take)
    if chosen is not None:
        st.caption(chosen.notice)
    with st.popover(f"The {len(VOCABULARY.typeable)} words it knows", width="stretch"):
        st.text(", ".join(sorted(VOCABULARY.typeable)))


def _counted(sentence: str) -> str:
    """How many tokens were typed, and how many of them the model knows."""
    if len(sentence) > MAX_CHARACTERS:
        return f"{len(sentence):,} characters, more than the limit of {MAX_CHARACTERS:,}."
    words = [sentence[start:end] for start, end in word_spans(sentence)]
    unknown = sum(VOCABULARY.row(word) is None for word in words)
    known = "all known" if unknown == 0 else f"{unknown} unknown"
    return f"{len(words)} of at most {MAX_TOKENS} tokens, {known}; capitals do not matter."


def _knobs(settings: Settings) -> None:
    _segments("Weights", "weights", WEIGHT_WORDS, "Trained where there are some, or random from the seed.")
    if settings.weights == "random":
        st.number_input("Seed of the random weights", 0, MAX_SEED, key=widget_key("seed"))
    choices = valid_choices(settings.d_model, settings.n_heads, rotary=True)
    d_model, h = settings.d_model, settings.n_heads
    trained = [sizes_of(card) for card in cards()]
    widths = {sizes[0] for sizes in trained}
    st.select_slider("Width d_model", KNOB_D_MODEL, key=widget_key("d_model"), format_func=_dots(widths))
    _numbers("Heads h", "n_heads", choices.n_heads, _dots({sizes[1] for sizes in trained if sizes[0] == d_model}))
    kv_heads = {sizes[2] for sizes in trained if sizes[:2] == (d_model, h)}
    _numbers("KV heads g", "n_kv_heads", choices.n_kv_heads, _dots(kv_heads))
    per_kv = settings.n_heads // settings.n_kv_heads
    kind = "multi-head" if per_kv == 1 else "multi-query" if settings.n_kv_heads == 1 else "grouped-query"
    shared = "1 query head" if per_kv == 1 else f"{per_kv} query heads"
    st.caption(f"{shared} per KV head: {kind} attention. A dot marks trained weights.")


def _dots(trained: set[int]) -> Callable[[int], str]:
    return lambda value: f"{value} •" if value in trained else str(value)


def _numbers(label: str, name: str, options: tuple[int, ...], words: Callable[[int], str]) -> None:
    st.segmented_control(label, options, key=widget_key(name), required=True, format_func=words)


def _segments(label: str, name: str, words: dict[str, str], about: str) -> None:
    st.segmented_control(
        label,
        list(words),
        key=widget_key(name),
        required=True,
        format_func=words.__getitem__,
        help=about,
        width="stretch",
    )
