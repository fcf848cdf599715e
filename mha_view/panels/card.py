"""The page Model card: where the chosen weights come from, and what they were seen to do."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

import pandas as pd
import streamlit as st

from mha_core import zoo
from mha_core.analysis.roles import ROLES, best
from mha_core.training.scores import REQUIRED
from mha_view import evidence as stored
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.components.table import table
from mha_view.recipe import weights_recipe
from mha_view.results import KNOWN_WORDS

GATE_WORDS = {
    "coreference_head": "best coreference head",
    "coreference_mass": "its weight on the noun",
    "agreement_head": "best agreement head",
    "prefix_head": "best induction head",
    "previous_head": "best previous-token head",
    "copy": "copies a list",
    "validation_loss": "validation loss",
}


def card_facts(card: zoo.Card) -> None:
    """The recipe in one line, and how often the model expects the right next word."""
    recipe, tasks = card.recipe, card.figures.tasks
    lead = (
        f"{card.name}: {recipe.n_layers} layers, d_model {recipe.d_model}, h {recipe.n_heads}, g {recipe.n_kv_heads}, "
        f"{card.parameters:,} parameters, trained for {recipe.n_steps:,} steps on {recipe.n_sentences:,} sentences of "
        f"a small grammar, seed {recipe.seed}, on {card.date} with torch {card.torch_version}."
    )
    facts_strip(
        [
            ("whom the pronoun means", f"{tasks.coreference:.3f}", "both nouns take the same pronoun; chance 0.5"),
            ("the same, pronouns differ", f"{tasks.mismatch:.3f}", "chance 0.5"),
            (
                "verb fits its subject",
                f"{tasks.agreement:.3f}",
                "a noun of the other number stands between; chance 0.5",
            ),
            ("reflexive fits its subject", f"{tasks.reflexive:.3f}", "one of four forms; an even guess 0"),
            ("copies a list said twice", f"{tasks.copy:.3f}", f"chance about {1 / len(card.words):.3f}"),
            ("validation loss", f"{tasks.validation_loss:.3f}", "nats per word of new sentences"),
        ],
        key="tasks",
        lead=lead,
        caption=f"Accuracies on sentences made for the test. Weights file: SHA-256 {card.sha256}.",
    )


def card_best(card: zoo.Card) -> None:
    """The best head at every role, with both halves and the control, whether it earned the name or not."""
    evidence, problem = stored.find(card.name)
    if evidence is None:
        show_notes([Note(problem or stored.unmeasured(card.name), kind="problem")], key="no_evidence")
        return
    st.subheader("The best head at every job")
    earned = {(label.role.name, label.head.name) for label in stored.named(card.name)}
    found = [best(evidence, role) for role in ROLES]
    rows = [
        [
            label.role.name,
            label.head.name,
            label.score,
            label.role.detail(label.head),
            label.control,
            "yes" if (label.role.name, label.head.name) in earned else "no",
        ]
        for label in found
    ]
    table(
        ["job", "best head", "score", "in detail", "control", "earned the name"],
        rows,
        caption="Scores are the worse half. Control: what the best of all heads reaches by luck, or an even gaze, or a "
        "common word in the place of a rare one. Page Head roles has the rule and every head.",
        file="headroom-best-heads",
        recipe=weights_recipe(card.name, card.sha256, figure="best heads"),
        key="best_heads",
    )


def card_runs(card: zoo.Card) -> None:
    """Every run that was made with this recipe, beside what a shipped file must reach."""
    st.subheader("Every run that was tried")
    needed = {"run": "needed", **asdict(REQUIRED)}
    rows = [needed, *({"run": _run_words(run), **asdict(run.reached)} for run in card.tried)]
    table = pd.DataFrame(rows).rename(columns=GATE_WORDS)
    st.dataframe(table, hide_index=True, column_config=_three_digits(GATE_WORDS.values()))
    st.caption(
        "Heads count by the worse half of their balanced set; the loss must be at most, the others at least. What is "
        "needed is asked of the model of the first view only; all others are shown as they came out."
    )


def words() -> None:
    """All words that can be typed and are known."""
    st.subheader(f"The {len(KNOWN_WORDS)} words it knows")
    st.text("  ".join(KNOWN_WORDS))


def _run_words(run: zoo.Tried) -> str:
    return f"rate {run.learning_rate:g}, embedding spread {run.embedding_std:g}, seed {run.seed}"


def _three_digits(names: Iterable[str]) -> dict[str, Any]:
    return {name: st.column_config.NumberColumn(format="%.3f") for name in names}
