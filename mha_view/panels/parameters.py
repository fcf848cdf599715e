"""The page Reshape, counted: what h and g do to the parameters of one layer; first a guess, then the count."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import streamlit as st

from mha_core.config import AttentionConfig, divisors, valid_choices
from mha_core.params import attention_parameters, held_parameters
from mha_view import state
from mha_view.components.chart import Series, bar_chart
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.recipe import app_recipe
from mha_view.settings import Settings

GUESSES = {"none": "none", "half": "half as many again", "twice": "twice as many", "unsure": "I do not know"}
UNANSWERED = "unanswered"
FORMULA = "2 d_model² + 2 d_model g d_k"


def question(settings: Settings) -> None:
    """The misconception as a question; the answer stays in the link."""
    few, many = doubled(settings)
    guess = _guess()

    def take() -> None:
        value = state.component_value("guess_bar", "set")
        if value.get("name") == "again":
            state.drop_picks("guess")
        else:
            state.set_pick_choice("guess", value.get("value"), GUESSES)

    asked = (
        f"From {few} to {many} heads at d_model {settings.d_model:,}, each with K and V of its own: more parameters?"
    )
    control = Control("choice", "guess", asked, guess, worded(GUESSES))
    control_bar(
        [control], actions={} if guess == UNANSWERED else {"again": "Ask me again"}, key="guess_bar", on_set=take
    )
    if guess != UNANSWERED:
        show_notes([Note(answer(settings, guess), title=_title(settings))], key="answer")


def _guess() -> str:
    return state.pick_choice("guess", (*GUESSES, UNANSWERED), UNANSWERED)


def doubled(settings: Settings) -> tuple[int, int]:
    """The heads that are asked about: the visitor's h and twice as many, or half as many where twice do not fit."""
    h = settings.n_heads
    return (h, 2 * h) if settings.d_model % (2 * h) == 0 else (h // 2, h)


def _title(settings: Settings) -> str:
    few, many = (_total(settings.d_model, h, h) for h in doubled(settings))
    return "None." if many == few else f"{many - few:+,}."


def answer(settings: Settings, guess: str) -> str:
    """The counts before and after, why they are as they are, and what does change them."""
    d_model, (few, many) = settings.d_model, doubled(settings)
    before, after, one = _total(d_model, few, few), _total(d_model, many, many), _total(d_model, many, 1)
    said = "" if guess == "unsure" else f"You said “{GUESSES[guess]}”. "
    why = (
        f"{few} heads of width {d_model // few} need {before:,}, {many} of width {d_model // many} need {after:,}: "
        f"h d_k is {d_model:,} both times, so the matrices have the same size and are only cut finer. "
    )
    return f"{said}{why}What makes them smaller is sharing: {many} heads on one KV head need {one:,}."


def _total(d_model: int, h: int, g: int) -> int:
    (row,) = _counted(d_model, ((h, g),))
    return sum(row["held"].values())


def bars(settings: Settings) -> None:
    """Bars for every h, and for every g at this h, with formula and count beside them; after the guess."""
    if _guess() == UNANSWERED:
        return
    d_model, h = settings.d_model, settings.n_heads
    against_h = [(i, i) for i in valid_choices(d_model, 1, rotary=False).n_heads]
    against_g = [(h, g) for g in divisors(h)]
    counts = _counted(d_model, (*against_h, *against_g))
    left, right = st.columns(2, gap="large")
    with left:
        _chart(
            settings,
            counts[: len(against_h)],
            "h",
            f"More heads, each with K and V of its own (g = h): {_flat(counts, against_h)}",
        )
    with right:
        _chart(settings, counts[len(against_h) :], "g", f"{h} heads that share fewer KV heads")
    _table(settings, counts)


def _flat(counts: Sequence[dict[str, Any]], against_h: Sequence[tuple[int, int]]) -> str:
    totals = {sum(row["held"].values()) for row in counts[: len(against_h)]}
    return "flat" if len(totals) == 1 else "not flat"


def _counted(d_model: int, pairs: tuple[tuple[int, int], ...]) -> list[dict[str, Any]]:
    """Formula and count of every matrix for each (h, g), counted once for all visitors."""

    def made() -> dict[str, Any]:
        configs = [AttentionConfig(d_model, h, g) for h, g in pairs]
        rows = [
            {"h": c.n_heads, "g": c.n_kv_heads, "formula": attention_parameters(c), "held": held_parameters(c)}
            for c in configs
        ]
        return {"rows": rows}

    return state.cached_pack(("counts", d_model, pairs), made)["rows"]


def _chart(settings: Settings, counts: Sequence[dict[str, Any]], against: str, title: str) -> None:
    x = [row[against] for row in counts]
    bar_chart(
        [Series(name, x, [row["held"][name] for row in counts]) for name in ("W_Q", "W_K", "W_V", "W_O")],
        x_label="heads h" if against == "h" else "KV heads g",
        y_label="parameters",
        title=title,
        caption=f"numel() of a real layer without biases, d_model {settings.d_model:,}; both charts have one scale.",
        recipe=app_recipe(figure="parameters", d_model=settings.d_model, against=against, h=settings.n_heads),
        key=f"parameters_{against}",
        file=f"headroom-parameters-{against}",
        top=4 * settings.d_model**2,
        marked=settings.n_heads if against == "h" else settings.n_kv_heads,
        falling_x=against == "g",
    )


def _table(settings: Settings, counts: Sequence[dict[str, Any]]) -> None:
    unique = list({(row["h"], row["g"]): row for row in counts}.values())
    places = [(row["h"], row["g"]) for row in unique]
    rows = []
    for row in unique:
        formula, held = (sum(row[name].values()) for name in ("formula", "held"))
        rows.append((row["h"], row["g"], settings.d_model // row["h"], formula, held, held - formula))
    table(
        ("h", "g", "d_k", FORMULA, "numel()", "difference"),
        rows,
        caption="The formula beside what a real module holds; yours is set in bold.",
        file="headroom-parameters",
        recipe=app_recipe(figure="parameters", d_model=settings.d_model, h=settings.n_heads),
        key="parameters",
        marked=places.index((settings.n_heads, settings.n_kv_heads)),
    )
