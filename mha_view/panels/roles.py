"""The page Head roles: from stored evidence to the map of names, the scatter of measures, and what an example hides."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import streamlit as st

from mha_core.analysis.measures import LEAST_VISIBLE
from mha_core.analysis.roles import (
    LEAST_HALF,
    LEAST_MASS,
    LEAST_MASS_RATIO,
    LEAST_OVER_EVEN,
    LEAST_RARE_RATIO,
    ROLES,
    Evidence,
    HeadEvidence,
    Label,
    Luck,
    Showing,
    Shown,
    best,
)
from mha_view import cards, state
from mha_view import evidence as stored
from mha_view.components.facts import facts_strip
from mha_view.components.notes import Note, show_notes
from mha_view.components.roles import HUE, role_map
from mha_view.components.scatter import scatter
from mha_view.components.table import table
from mha_view.evidence import TASK_WORDS
from mha_view.panels import shared
from mha_view.recipe import weights_recipe
from mha_view.results import LoadedModel
from mha_view.settings import DEFAULTS, Settings
from mha_view.theme import weight

TOLD_CHANGE = 0.02
AXES = ("coreference", "agreement")
RULE = (
    "It is a choice, the same for every model. Names that choose between two nouns: right in more "
    f"than {LEAST_HALF} of each half of a balanced set, more often than the best of all heads reaches by luck, and "
    f"in each with {LEAST_MASS_RATIO:g} times the weight of the wrong noun. Names that dwell on one place: on "
    f"average a weight of at least {LEAST_MASS} there, and {LEAST_OVER_EVEN:g} times an even gaze, in the earlier and "
    f"the later rows, counting rows that see at least {LEAST_VISIBLE} tokens. Rare word: {LEAST_RARE_RATIO:g} times "
    "the weight of a common word in its place."
)


def evidence_of(loaded: LoadedModel) -> tuple[Evidence | None, str | None]:
    """What was measured on these weights, or None with the reason where there is one to tell."""
    return (None, loaded.problem) if loaded.card is None else stored.find(loaded.card.name)


def no_evidence(settings: Settings, loaded: LoadedModel, problem: str | None) -> None:
    """Random weights, or trained ones that nobody measured: what there is instead."""
    if loaded.card is None:
        shared.untrained(settings, problem, "Heads with random weights have no jobs, so there is nothing to name.")
    else:
        show_notes([Note(problem or stored.unmeasured(loaded.card.name), kind="problem")], key="no_evidence")


def picked_head(evidence: Evidence) -> tuple[int, int]:
    """Layer and head that are framed: what was clicked, or the best coreference head."""
    found = best(evidence, ROLES[0]).head
    last = evidence.heads[-1]
    return (
        state.pick_number("layer", 0, last.layer, found.layer),
        state.pick_number("head", 0, last.head, found.head),
    )


def lead(evidence: Evidence) -> None:
    """How many heads have a name, and what the figures rest on."""
    named = {label.head.name for label in stored.named(evidence.name)}
    counts = evidence.counts
    tasks = evidence.base
    facts_strip(
        [
            ("heads with a name", f"{len(named)} of {len(evidence.heads)}", "the others have no clear role"),
            ("whom the pronoun means", f"{tasks.coreference:.2f}", "the model's answers; chance 0.5"),
            ("verb fits its subject", f"{tasks.agreement:.2f}", "chance 0.5"),
            ("copies a list said twice", f"{tasks.copy:.2f}", ""),
            (
                "best of all heads by luck",
                f"{evidence.luck.coreference:.2f}",
                f"right at “it”, {evidence.luck.flips} flips",
            ),
        ],
        key="roles_facts",
        lead=f"{len(named)} of the {len(evidence.heads)} heads of this model earned a name; what the rest do, no test "
        "here has a name for.",
        caption=f"Measured on {counts.nouns} balanced sentences a set, {counts.random_lists} lists of random words and "
        f"{counts.repeated_lists} lists said twice, all drawn for this test.",
    )


def names(evidence: Evidence, layer: int, head: int) -> None:
    """The map of layers x heads, and every name with its score, control, runner-up and two texts."""
    found = stored.named(evidence.name)
    showings = {(s.layer, s.head, s.role): s for s in evidence.showings}

    def open_head() -> None:
        index = state.component_value("role_map", "picked").get("index")
        if isinstance(index, (int, float)) and 0 <= index < len(evidence.heads):
            _open_head(evidence, evidence.heads[int(index)])

    def open_text() -> None:
        value = state.component_value("role_map", "open")
        _open_text(evidence, found, value.get("index"), value.get("which"))

    role_map(
        evidence.heads,
        found,
        showings,
        picked=(layer, head),
        told=_told(evidence.name),
        caption="Each square is one head; a colour is a name here, not a KV head. Press one to see it on page Heads in "
        "the text that shows it best; the contrast pairs are among the examples there. Below, for each name: its score "
        "(the worse half), what no skill would give, the next best head, and two texts: the word that looks is framed, "
        "the one it should look at is bold. Press a text to see it on page Heads.",
        rule=RULE,
        recipe=weights_recipe(evidence.name, evidence.sha256, figure="roles"),
        key="role_map",
        on_pick=open_head,
        on_open=open_text,
    )


def _open_head(evidence: Evidence, head: HeadEvidence) -> None:
    """Go to page Heads, with the text that shows the head best where it has a name."""
    place = (head.layer, head.head)
    showing = next((showing for showing in evidence.showings if (showing.layer, showing.head) == place), None)
    if showing is None:
        state.go_to("heads", layer=head.layer, head=head.head)
    else:
        _go(showing, showing.best)


def _open_text(evidence: Evidence, found: tuple[Label, ...], index: object, which: object) -> None:
    """Go to page Heads with one of a label's texts; a report that names none is ignored."""
    if not isinstance(index, (int, float)) or not 0 <= index < len(found):
        return
    label = found[int(index)]
    for showing in evidence.showings:
        if (showing.layer, showing.head, showing.role) == (label.head.layer, label.head.head, label.role.name):
            shown = showing.best if which == "best" else showing.counter
            if shown is not None:
                _go(showing, shown)


def _go(showing: Showing, shown: Shown) -> None:
    state.go_to_text("heads", shown.text, layer=showing.layer, head=showing.head, row=shown.row, key=shown.key)


@cache
def _told(name: str) -> tuple[str, ...]:
    """Every head in words: its names or how far it is from one, and what the model loses without it."""
    evidence, _ = stored.find(name)
    assert evidence is not None
    return tuple(_head_words(evidence, head) for head in evidence.heads)


def _head_words(evidence: Evidence, head: HeadEvidence) -> str:
    mine = [label for label in stored.named(evidence.name) if label.head is head]
    told = ", ".join(f"{label.role.name} {weight(label.score)} (control {weight(label.control)})" for label in mine)
    if not mine:
        told = f"no clear role; nearest to one: {_nearest(head, evidence.luck)}"
    return f"{head.name}: {told}. {_cost(evidence, head)}"


def _cost(evidence: Evidence, head: HeadEvidence) -> str:
    """What the model loses when the head is switched off."""
    base, without = evidence.base, head.without
    falls = {name: getattr(base, name) - getattr(without, name) for name in TASK_WORDS if name != "validation_loss"}
    told = [
        f"{TASK_WORDS[name]} {getattr(base, name):.2f} to {getattr(without, name):.2f}"
        for name, fall in falls.items()
        if abs(fall) >= TOLD_CHANGE
    ]
    tasks = "; ".join(told) if told else f"no task changes by {TOLD_CHANGE} or more"
    return f"Switched off: loss {without.validation_loss - base.validation_loss:+.3f} nats per word, {tasks}."


def _nearest(head: HeadEvidence, luck: Luck) -> str:
    role = max(ROLES, key=lambda role: role.score(head) / max(role.control(head, luck), 1e-9))
    return f"{role.name}, {weight(role.score(head))} (control {weight(role.control(head, luck))})"


def example_alone(settings: Settings, evidence: Evidence) -> None:
    """Heads that look alike in the example sentence, and what the balanced set says of them."""
    st.subheader("Why one sentence proves nothing")
    run = state.cached_run(replace(settings, sentence=DEFAULTS.sentence, mask=cards.TRAINED_MASK))
    row, key = (run.tokens.labels.index(word) for word in ("it", "cat"))
    named = {label.head.name for label in stored.named(evidence.name) if label.role is ROLES[0]}
    rows = []
    for head in evidence.heads:
        gaze = run.layer(head.layer).array("pattern")[head.head, row]
        if int(gaze.argmax()) == key:
            found = head.coreference
            verdict = "coreference" if head.name in named else "not earned"
            rows.append([head.name, float(gaze[key]), found.first, found.second, verdict])
    fooled = [line[0] for line in rows if line[-1] == "not earned"]
    said = f"{', '.join(fooled)} would have been called coreference by this sentence." if fooled else ""
    table(
        ["head", "weight from “it” to “cat”", "right, noun first", "right, noun second", "name"],
        rows,
        caption=f"“{DEFAULTS.sentence}”: in {len(rows)} heads “it” looks most at “cat”, who is also the first noun, "
        "the subject and the only animal. Only a set in which the meant noun stands first in half of the "
        f"{evidence.counts.nouns} sentences tells these apart. {said}",
        file="headroom-example-alone",
        recipe=weights_recipe(evidence.name, evidence.sha256, figure="one sentence"),
        key="example_alone",
    )


def measures(evidence: Evidence, layer: int, head: int) -> None:
    """Any two measures of all heads against each other, and all of them as a table."""
    columns = stored.columns(evidence.name)
    options = tuple(measure.name for measure, _ in columns)
    axes = tuple(state.pick_choice(name, options, default) for name, default in zip("xy", AXES, strict=True))
    found = stored.named(evidence.name)
    mine = [[label.role for label in found if label.head is head] for head in evidence.heads]
    places = [(head.layer, head.head) for head in evidence.heads]

    def pick() -> None:
        picked = state.component_value("measures", "picked").get("picked")
        if isinstance(picked, (int, float)) and 0 <= picked < len(places):
            layer, head = places[int(picked)]
            state.set_picks(layer=layer, head=head)

    def change() -> None:
        value = state.component_value("measures", "axes")
        for name in "xy":
            state.set_pick_choice(name, value.get(name), options)

    scatter(
        [measure for measure, _ in columns],
        np.array([values for _, values in columns]).T,
        names=[head.name for head in evidence.heads],
        letters=["·".join(role.letter for role in roles) for roles in mine],
        hues=[HUE[roles[0].name] if roles else None for roles in mine],
        axes=(axes[0], axes[1]),
        picked=places.index((layer, head)),
        title="All heads by two of their measures",
        caption="Each point is one head; dashed: what no skill would give. The table holds all measures of all heads.",
        recipe=weights_recipe(evidence.name, evidence.sha256, figure="measures", seed=evidence.seed),
        key="measures",
        on_pick=pick,
        on_axes=change,
    )
