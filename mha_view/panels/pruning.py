"""The page Pruning: switches for heads, what the model still can without them, and how far one can go."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import streamlit as st

from mha_core.analysis.heads import head_summaries
from mha_core.analysis.pruning import Head, moved
from mha_view import evidence, pruned, state
from mha_view.components.facts import facts_strip
from mha_view.components.head import head_difference
from mha_view.components.maps import head_maps
from mha_view.components.notes import Note, show_notes
from mha_view.components.toggles import head_toggles
from mha_view.jobs import DONE, FAILED, JobView, QueueFullError
from mha_view.recipe import recipe
from mha_view.results import VOCABULARY, Run
from mha_view.settings import Settings

# What each figure is called, and what no skill would give.
FIGURES = {
    "coreference": ("whom the pronoun means", "chance 0.5"),
    "mismatch": ("the same, pronouns differ", "chance 0.5"),
    "agreement": ("verb fits its subject", "chance 0.5"),
    "reflexive": ("reflexive fits its subject", "one of four forms; an even guess 0"),
    "copy": ("copies a list said twice", f"chance about {1 / len(VOCABULARY):.3f}"),
    "validation_loss": ("loss, nats per word", f"even guess {pruned.even_loss():.2f}"),
}
SHOWN_MOVES = 0.005
POLL_SECONDS = 0.4


def heads_off(run: Run) -> tuple[Head, ...]:
    """The heads that are switched off: what was pressed, or what the link says."""
    return state.heads_off(len(run.trace.layers), run.layer(0).cfg.n_heads)


def toggles(run: Run, off: tuple[Head, ...]) -> None:
    """A switch for every head."""

    def take() -> None:
        state.set_heads_off(state.component_value("toggles", "set").get("off"))

    cfg, layers = run.layer(0).cfg, len(run.trace.layers)
    sharing = " Heads of one hue read the same keys and values." if cfg.heads_per_kv > 1 else ""
    head_toggles(
        off,
        layers=layers,
        kv_heads=[cfg.kv_head_of(head) for head in range(cfg.n_heads)],
        badges={} if run.card is None else evidence.badges(run.card.name),
        title=f"{layers * cfg.n_heads - len(off)} of {layers * cfg.n_heads} heads on",
        caption="Press a head to switch it off: what it found no longer enters the sentence. Nothing is trained anew."
        + sharing
        + ("" if run.card is None else f" {evidence.BADGE_WORDS}"),
        key="toggles",
        on_set=take,
    )


def prediction(run: Run, without: Run, off: tuple[Head, ...]) -> None:
    """The next word in the visitor's own sentence, with all heads and without those that are off."""
    place = pruned.asked_place(run)
    facts = [(f"after “{place.after}”, all heads on", _next(run, place.row), "the model's three likeliest words")]
    if off:
        facts.append((f"the same, {len(off)} off", _next(without, place.row), "the model's three likeliest words"))
    if place.typed is not None:
        token = int(run.trace.token_ids[0, place.row + 1])
        now = f"{pruned.chance(run, place.row, token):.2f}"
        now += f" → {pruned.chance(without, place.row, token):.2f}" if off else ""
        facts.append((f"chance of “{place.typed}”", now, "the word that was typed there"))
    facts_strip(facts, key="prediction", lead=_lead(run, off))


def figures(settings: Settings, off: tuple[Head, ...]) -> None:
    """Loss and tasks beside those with all heads on: a first look soon, a second on more sentences after it."""
    state.leave_other_looks(settings, {(), off})
    polling = _pending(_look(settings, off))
    polled(partial(_figures, settings, off, polling=polling), polling)


def polled(draw: Callable[[], None], polling: bool) -> None:
    """Draw a part of the page, and again several times a second while it waits for something."""
    if polling:
        st.fragment(draw, run_every=POLL_SECONDS)()
    else:
        draw()


def _figures(settings: Settings, off: tuple[Head, ...], *, polling: bool) -> None:
    views = _look(settings, off)
    if polling and not _pending(views):
        st.rerun()
    if isinstance(views, str):
        show_notes([Note(views, kind="problem")], key="queue_full")
        return
    base_first, base_second, first, second = views
    more = base_second.state == second.state == DONE
    base, now = (base_second, second) if more else (base_first, first)
    count = pruned.full_count(settings) if more else pruned.quick_count(settings)
    words = _figures_words(views, count, more)
    facts_strip([_fact(name, base, now, off) for name in FIGURES], key="figures", caption=words)


def _look(settings: Settings, off: tuple[Head, ...]) -> tuple[JobView, JobView, JobView, JobView] | str:
    """Both looks with all heads on, and with these off; or why the queue takes no more."""
    try:
        base = state.looks(settings, ())
        return (*base, *(state.looks(settings, off) if off else base))
    except QueueFullError as error:
        return str(error)


def _pending(views: Sequence[JobView] | str) -> bool:
    return isinstance(views, str) or any(view.unfinished for view in views)


def _fact(name: str, base: JobView, now: JobView, off: tuple[Head, ...]) -> tuple[str, str, str]:
    label, control = FIGURES[name]
    if base.state != DONE or now.state != DONE:
        return label, "…", control
    before, value = getattr(base.latest, name), getattr(now.latest, name)
    return label, f"{value:.3f}", f"all heads on {before:.3f}; {control}" if off else control


def _figures_words(views: Sequence[JobView], count: int, more: bool) -> str:
    if any(view.state == FAILED for view in views):
        return "A measurement failed. Change a head or a setting, and it is tried again."
    if more:
        return f"{count} sentences for each figure, the same for every model."
    waiting = max(view.before for view in views)
    queue = f" {waiting} measurements come first." if waiting > len(views) else ""
    return f"{count} sentences for each figure; more are being measured.{queue}"


def changed_maps(run: Run, without: Run, off: tuple[Head, ...]) -> None:
    """All maps as they are with the heads off, and one of them as the difference from before."""
    shares = moved(run.trace, without.trace)
    # What a head that is off looks at reaches nobody.
    shares[tuple(np.array(off).T)] = 0.0
    top = (int(i) for i in np.unravel_index(shares.argmax(), shares.shape))
    layer, head = _framed(shares.shape, *top)
    left, right = st.columns([1, 1], gap="large")
    with left:
        _maps(run, without, off, shares, (layer, head))
    with right:
        _difference(run, without, off, layer, head)


def _framed(shape: tuple[int, int], layer: int, head: int) -> tuple[int, int]:
    """The head that is shown large: what was clicked, or the one that changed most."""
    return state.pick_number("layer", 0, shape[0] - 1, layer), state.pick_number("head", 0, shape[1] - 1, head)


def _maps(run: Run, without: Run, off: tuple[Head, ...], shares: np.ndarray, framed: tuple[int, int]) -> None:
    row = pruned.asked_place(run).row
    badges = {f"{i}.{j}": f"{shares[i, j]:.2f}" for i, j in np.argwhere(shares >= SHOWN_MOVES)}

    def pick() -> None:
        value = state.component_value("pruned_maps", "picked")
        state.set_picks(layer=value.get("layer"), head=value.get("head"))

    head_maps(
        [attention.array("pattern") for attention in without.trace.layers],
        without.layer(0).array("mask"),
        summaries=head_summaries(without.trace, row),
        labels=run.tokens.labels,
        shown_rows=len(run.tokens.labels),
        row=row,
        picked=framed,
        scale=run.settings.scale,
        title=f"Every head's map with {len(off)} off",
        caption=_changed_words(shares, len(badges)),
        badges=badges | {f"{i}.{j}": "off" for i, j in off},
        recipe=recipe(run, figure="maps with heads off", off=off, row=row),
        key="pruned_maps",
        on_pick=pick,
    )


def _changed_words(shares: np.ndarray, changed: int) -> str:
    layer, head = (int(i) for i in np.unravel_index(shares.argmax(), shares.shape))
    if changed == 0:
        return "No head that is on looks elsewhere than before: the layers above take nothing from what is off."
    return (
        f"{changed} of the heads that are on look elsewhere than before. Layer {layer}, head {head} changed most: "
        f"{shares[layer, head]:.2f} of its weight moved to other tokens, mean over the rows. The numbers are these "
        "shares. Layers up to the first one with a head off cannot change."
    )


def _difference(run: Run, without: Run, off: tuple[Head, ...], layer: int, head: int) -> None:
    before, after = (one.layer(layer) for one in (run, without))
    unread = " It is off: whatever it looks at, nobody reads it." if (layer, head) in off else ""
    head_difference(
        after.array("pattern")[head],
        before.array("pattern")[head],
        before.array("mask"),
        labels=run.tokens.labels,
        kv_head=before.cfg.kv_head_of(head),
        picked=(-1, -1),
        names=(f"L{layer}H{head} now", "all heads on"),
        title=f"Layer {layer}, head {head}: now minus before",
        caption=f"In its hue where it looks more than with all heads on, in grey where less.{unread}",
        recipe=recipe(run, figure="difference to all heads on", off=off, layer=layer, head=head),
        key="pruned_difference",
        file=f"headroom-pruned-L{layer}H{head}",
    )


def _lead(run: Run, off: tuple[Head, ...]) -> str:
    total = len(run.trace.layers) * run.layer(0).cfg.n_heads
    if not off:
        return f"All {total} heads are on. Switch some off, and see what the model still expects and can do."
    if len(off) == total:
        return (
            f"All {total} heads are off. What remains is each token's own vector and the MLPs: every word is "
            "predicted from the word before it alone."
        )
    return f"{len(off)} of {total} heads {'is' if len(off) == 1 else 'are'} off ({len(off) / total:.0%})."


def _next(run: Run, row: int) -> str:
    return " · ".join(f"{word} {chance:.2f}" for word, chance in run.next_words(position=row))
