"""The page Residual stream: from a run and a token to what was added, what would be predicted, and by whom."""

from __future__ import annotations

from typing import Any

import streamlit as st

from mha_core.analysis.flow import STAGES
from mha_core.analysis.residual import attribution_of, residual_of
from mha_view import state
from mha_view.components.attribution import attribution_view, packed_attribution
from mha_view.components.controls import Control, control_bar
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.components.stream import link_of, packed_stream, stream_view
from mha_view.panels.flow import PRONOUNS
from mha_view.recipe import recipe
from mha_view.results import KNOWN_WORDS, VOCABULARY, Run, run_key
from mha_view.settings import Settings

# What the source text's sentence leads to: why "tired", and not "soft"?
ASKED_AFTER = ["the", "cat", "sat", "on", "the", "mat", "because", "it", "was"]
ASKED = ("tired", "soft")
# A person looks for a word; what nobody can type stands last.
WORDS = {word: word for word in (*KNOWN_WORDS, *(w for w in VOCABULARY.words if w not in KNOWN_WORDS))}
OUTPUT_STEP = [stage.name for stage in STAGES].index("W_O")
LONGEST_LABEL = 24


def picked_row(run: Run) -> int:
    """The token whose stream is shown: what was clicked, or the one after the first pronoun, or the last."""
    labels = [label.casefold() for label in run.tokens.labels]
    last = len(labels) - 1
    default = next((row + 1 for row, word in enumerate(labels[:-1]) if word in PRONOUNS), last)
    return state.pick_number("row", 0, last, default)


def picked_words(run: Run, row: int) -> tuple[str, str]:
    """The two words that are compared: what was chosen, those of the source text, or the two likeliest."""
    typed = [label.casefold() for label in run.tokens.labels[1 : row + 1]]
    likeliest = [word for word, _ in run.next_words(2, row)]
    first, second = ASKED if typed == ASKED_AFTER else likeliest
    return state.pick_choice("word", tuple(WORDS), first), state.pick_choice("against", tuple(WORDS), second)


def bar(run: Run, row: int) -> None:
    """The sentence, to choose the token from."""

    def take() -> None:
        state.set_picks(row=state.component_value("residual_bar", "set").get("value"))

    options = tuple((i, _short(label), False) for i, label in enumerate(run.tokens.labels))
    control_bar([Control("choice", "row", "Stream of", row, options)], actions={}, key="residual_bar", on_set=take)


def packed(settings: Settings, run: Run, row: int, words: tuple[str, str]) -> dict[str, Any]:
    """All that both pictures are sent for one token and two words, made once for all visitors."""

    def make() -> dict[str, Any]:
        model, token = state.cached_model(settings).model, run.tokens.labels[row]
        found, per_kv = residual_of(model, run.trace, row), run.layer(0).cfg.heads_per_kv
        ids = [VOCABULARY.words.index(word) for word in words]
        shares = attribution_of(model, found, *ids)
        followed = dict.fromkeys((found.predicted, *ids))
        first = next(part for part in shares.parts if part.kind == "head")
        return {
            "stream": packed_stream(
                found, token=token, words=VOCABULARY.words, followed=tuple(followed), per_kv=per_kv
            ),
            "attribution": packed_attribution(shares, words=words, token=token, per_kv=per_kv),
            "first": link_of(first),
        }

    return state.cached_pack(("residual", run_key(settings), row, words), make)


def lead(pack: dict[str, Any], words: tuple[str, str]) -> None:
    """Where the first word comes from, in one sentence; or why there is nothing to compare."""
    if words[0] == words[1]:
        text = f"Both words are “{words[0]}”: there is no difference to split. Choose another word below."
        show_notes([Note(text)], key="same_words")
    else:
        facts_strip([], key="residual_lead", lead=pack["attribution"]["told"])


def stream(run: Run, row: int, pack: dict[str, Any]) -> None:
    """The stream as one picture, with the lens beside it and the chosen part under it."""
    links = [part["link"] for stage in pack["stream"]["stages"] for part in stage["parts"]]
    picked = state.pick_choice("stage", tuple(links), pack["first"])

    def move() -> None:
        value = state.component_value("stream", "at")
        state.set_pick_choice("stage", value.get("stage"), links)
        _open(value.get("open"), value.get("stage"), row, pack)

    echo = state.component_value("stream", "at").get("count")
    with st.container(gap=None):
        stream_view(
            pack["stream"],
            picked=picked,
            echo=echo if isinstance(echo, int) else 0,
            recipe=recipe(run, figure="residual stream", row=row),
            on_move=move,
        )


def attribution(run: Run, row: int, pack: dict[str, Any], words: tuple[str, str]) -> None:
    """Two words to choose, and every part's direct contribution to the difference of their logits."""
    st.subheader("Where does the prediction come from?")
    for column, name, label, word in zip(st.columns(2), ("word", "against"), ("Word", "against"), words, strict=True):
        with column:
            state.select_control(name, label, WORDS, word)
    if words[0] == words[1]:
        return

    def take() -> None:
        _open("heads", state.component_value("attribution", "open").get("stage"), row, pack)

    place = recipe(run, figure="logit attribution", row=row, word=words[0], against=words[1])
    with st.container(gap=None):
        attribution_view(pack["attribution"], recipe=place, on_open=take)


def _open(page: object, link: object, row: int, pack: dict[str, Any]) -> None:
    """Open a head or a layer's attention on another page, if this page has it."""
    stages = pack["stream"]["stages"]
    places = {part["link"]: (stage["layer"], part["head"]) for stage in stages for part in stage["parts"]}
    layer, head = places.get(link, (-1, -1)) if isinstance(link, str) else (-1, -1)
    if page not in ("flow", "heads") or layer < 0:
        return
    state.drop_picks("preset", "head", "key", "col")
    state.go_to(str(page), layer=layer, row=row, step=OUTPUT_STEP, **({} if head < 0 else {"head": head}))


def _short(label: str) -> str:
    return label if len(label) <= LONGEST_LABEL else label[:LONGEST_LABEL] + "…"
