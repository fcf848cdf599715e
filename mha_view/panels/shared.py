"""What every page shows: refusals, notices, the strip of results, what limits the maps, the self-checks, the link."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from mha_core.analysis.heads import entropy_bits
from mha_core.text import TextError
from mha_view import cards, state
from mha_view.components.checks import check_strip
from mha_view.components.facts import facts_strip
from mha_view.components.link import link_box
from mha_view.components.notes import Note, show_notes
from mha_view.results import VOCABULARY, Run, trained_settings
from mha_view.settings import SIZES, Settings
from mha_view.theme import bytes_text

MAX_UNKNOWN_TOLD = 4


def guarded(draw: Callable[[], None]) -> None:
    """Draw a page; a text or a size that cannot be shown becomes one sentence instead."""
    try:
        draw()
    except (TextError, state.BudgetError) as error:
        show_notes([Note(str(error), kind="problem")], key="refused")


def notices() -> None:
    """What a link asked for in vain, or what a knob had to move."""
    show_notes([Note(sentence) for sentence in state.notices()], key="notices")


def link() -> None:
    """Mirror this view in the address bar and offer the link to it."""
    link_box(state.close_page(), without=("s", "row", "key", "pin"), key="link")


def facts(run: Run, row: int, lead: str) -> None:
    """A leading sentence, and the strip: what the knobs amount to, and what the model expects after the framed row."""
    cfg, per_matrix = run.layer(0).cfg, run.parameters()
    next_words = " · ".join(f"{word} {chance:.2f}" for word, chance in run.next_words(position=row))
    facts_strip(
        [
            ("width of a head, d_k", str(cfg.head_dim), f"{cfg.d_model} / {cfg.n_heads}"),
            ("query heads per KV head", str(cfg.heads_per_kv), f"{cfg.n_heads} / {cfg.n_kv_heads}"),
            (
                "parameters per attention layer",
                f"{sum(per_matrix.values()):,}",
                f"W_Q, W_O {per_matrix['W_Q']:,} each · W_K, W_V {per_matrix['W_K']:,} each",
            ),
            (
                "KV cache per token",
                bytes_text(run.kv_bytes_per_token()),
                f"2 x {len(run.trace.layers)} layers x {cfg.n_kv_heads} x {cfg.head_dim} x 4 bytes",
            ),
            (f"next after “{run.tokens.labels[row]}”", next_words, "the model's three likeliest words"),
            ("runs on", run.device, run.dtype),
        ],
        key="facts",
        lead=lead,
    )


def weight_notes(run: Run) -> list[Note]:
    """What must be known about the weights before a map is believed."""
    found = [Note(problem, kind="problem") for problem in cards.card_problems()]
    if run.problem is not None:
        found.append(Note(run.problem, title="Random weights.", kind="problem"))
    if run.card is None:
        found.append(_random_note(run))
    elif run.settings.mask != cards.TRAINED_MASK:
        text = f"These weights learned under the {cards.TRAINED_MASK} mask; another shows them what they never learned."
        found.append(Note(text, title="Not the trained mask."))
    if run.card is not None and len(run.tokens.items) > cards.TRAINED_LENGTH:
        lengths = (
            f"up to {cards.TRAINED_LENGTH} tokens; this text has {len(run.tokens.items)}, the start token included."
        )
        text = f"The model learned from {lengths}"
        found.append(Note(text, title="Longer than the training."))
    return found


def _random_note(run: Run) -> Note:
    pattern = run.layer(0).array("pattern")
    measured = float(entropy_bits(pattern)[:, -1].mean())
    n_visible = int(run.layer(0).array("mask")[-1].sum())
    text = (
        f"Near-uniform patterns are expected: the last row's entropy is {measured:.2f} bits, mean over the heads of "
        f"layer 0; log2({n_visible}) = {np.log2(n_visible):.2f} would be even."
    )
    return Note(text, title="Random weights.", actions=_nearest_trained(run.settings))


def untrained(settings: Settings, problem: str | None, so: str) -> None:
    """A page about trained weights, opened with random ones: why there is nothing, and the nearest trained setting."""
    notes = [] if problem is None else [Note(problem, kind="problem")]
    sizes = f"d_model {settings.d_model}, h {settings.n_heads}, g {settings.n_kv_heads}"
    text = f"For {sizes} the weights are random numbers from the seed. {so}"

    def act() -> None:
        state.set_sizes(state.component_value("untrained", "act"))

    notes.append(Note(text, title="Random weights.", actions=_nearest_trained(settings)))
    show_notes(notes, key="untrained", on_act=act)


def _nearest_trained(settings: Settings) -> dict[str, dict[str, object]]:
    """The action that leads to the nearest trained setting; none where this one is, or none is there."""
    trained = trained_settings(settings)
    if trained is None or trained == settings:
        return {}
    label = f"Show trained weights: d_model {trained.d_model}, h {trained.n_heads}, g {trained.n_kv_heads}"
    return {label: {name: getattr(trained, name) for name in SIZES}}


def text_notes(run: Run) -> list[Note]:
    """Words that the model does not know, with known ones to put in their place."""
    if run.tokens.n_typed == 0:
        return [Note("Type a sentence, or press an example, to see what its words look at.")]
    unknown = run.tokens.unknown
    found = []
    for word in unknown[:MAX_UNKNOWN_TOLD]:
        near = VOCABULARY.nearest_words(word)
        actions = {f"use “{other}”": {"replace": word, "with": other} for other in near}
        shown = word if len(word) <= 40 else word[:40] + "…"
        found.append(Note(f"The model does not know “{shown}”; it reads it as <unk>.", actions=actions))
    if len(unknown) > MAX_UNKNOWN_TOLD:
        found.append(Note(f"{len(unknown) - MAX_UNKNOWN_TOLD} more words are unknown to it."))
    return found


def notes(run: Run) -> None:
    """Weights and words: everything that limits what the maps mean."""

    def act() -> None:
        value = state.component_value("notes", "act")
        if "replace" in value:
            state.replace_word(str(value["replace"]), str(value.get("with", "")))
        else:
            state.set_sizes(value)

    show_notes([*weight_notes(run), *text_notes(run)], key="notes", on_act=act)


def checks(run: Run) -> None:
    """The self-check strip of this run."""
    check_strip(run.checks, key="checks")
