"""What the app reads off the stored evidence: names of heads, their figures, and all measures as columns."""

from __future__ import annotations

from functools import cache

from mha_core import zoo
from mha_core.analysis import evidence as stored
from mha_core.analysis.roles import OFFSETS, Dwelling, Evidence, HeadEvidence, Label, labels
from mha_core.training.scores import TwoNouns
from mha_view.components.scatter import Measure

BADGE_WORDS = "Letters are roles that heads earned by tests on other sentences; page Head roles has them all."
TASK_WORDS = {
    "coreference": "whom the pronoun means",
    "mismatch": "the same, pronouns differ",
    "agreement": "verb fits its subject",
    "reflexive": "reflexive fits its subject",
    "copy": "copies a list",
    "validation_loss": "loss",
}
NOUN_WORDS = {
    "coreference": "pronoun to noun",
    "agreement": "before the verb to subject",
    "agreement_at_verb": "verb to subject",
}
Column = tuple[Measure, list[float]]


@cache
def find(name: str) -> tuple[Evidence | None, str | None]:
    """The stored evidence of a model, or None with a sentence that says why; a process reads each file once."""
    try:
        return stored.find(name), None
    except (zoo.ZooError, stored.EvidenceError) as error:
        return None, str(error)


def unmeasured(name: str) -> str:
    """What to say of weights that nobody has measured."""
    return f"Nothing was measured on {name} yet; run `make evidence`."


@cache
def named(name: str) -> tuple[Label, ...]:
    """Every name that a head of this model earned; none where nothing was measured."""
    evidence, _ = find(name)
    return () if evidence is None else labels(evidence)


def badges(name: str) -> dict[str, str]:
    """Letters for the heads that earned a name, as "layer.head" -> "C·I"."""
    found: dict[str, list[str]] = {}
    for label in named(name):
        found.setdefault(f"{label.head.layer}.{label.head.head}", []).append(label.role.letter)
    return {place: "·".join(letters) for place, letters in found.items()}


def head_facts(name: str, layer: int, head: int) -> list[tuple[str, str, str]]:
    """The scores of one head with their controls, as (label, value, note); none where nothing was measured."""
    evidence, _ = find(name)
    if evidence is None:
        return []
    chosen = evidence.head(layer, head)
    mine = ", ".join(label.role.name for label in named(name) if label.head is chosen)
    return [
        ("name", mine or "no clear role", "by the rule on page Head roles"),
        ("pronoun to its noun", _both(chosen.coreference), _mass(chosen.coreference)),
        ("before the verb, to its subject", _both(chosen.agreement), _mass(chosen.agreement)),
        ("token before", *_dwelling(chosen.offsets[OFFSETS.index(-1)])),
        ("what followed last time", *_dwelling(chosen.prefix)),
    ]


@cache
def columns(name: str) -> tuple[Column, ...]:
    """Every measure with the values of all heads of a model."""
    evidence, _ = find(name)
    assert evidence is not None
    return (*_noun_columns(evidence), *_place_columns(evidence.heads), *_other_columns(evidence))


def _noun_columns(evidence: Evidence) -> list[Column]:
    found: list[Column] = []
    for name, words in NOUN_WORDS.items():
        nouns: list[TwoNouns] = [getattr(head, name) for head in evidence.heads]
        luck = getattr(evidence.luck, name)
        found += [
            (Measure(name, f"{words}: right in the worse half", luck), [n.worse_half for n in nouns]),
            (Measure(f"{name}_first", f"{words}: right, noun first", 0.5), [n.first for n in nouns]),
            (Measure(f"{name}_second", f"{words}: right, noun second", 0.5), [n.second for n in nouns]),
            (Measure(f"{name}_mass", f"{words}: weight on it"), [n.mass for n in nouns]),
            (
                Measure(f"{name}_wrong", f"{words}: weight on the other"),
                [max(n.wrong_first, n.wrong_second) for n in nouns],
            ),
        ]
    return found


def _place_columns(heads: tuple[HeadEvidence, ...]) -> list[Column]:
    places = {f"offset{shift:+d}": f"weight at offset {shift:+d}" for shift in OFFSETS}
    found = [(name, words, [head.offsets[i] for head in heads]) for i, (name, words) in enumerate(places.items())]
    found += [
        ("first_token", "weight on the start token", [head.first_token for head in heads]),
        ("same_token", "weight on the same word before", [head.same_token for head in heads]),
        ("prefix", "induction: weight on what followed", [head.prefix for head in heads]),
        ("best_prefix", "induction at its best shift", [head.best_prefix for head in heads]),
    ]
    return [
        # What an even gaze puts at the best shift depends on which shift that is.
        (Measure(name, words, None if name == "best_prefix" else dwelt[0].even), [_mean(place) for place in dwelt])
        for name, words, dwelt in found
    ]


def _other_columns(evidence: Evidence) -> list[Column]:
    heads, base = evidence.heads, evidence.base
    without = [
        (
            Measure(f"without_{name}", f"without it: change of {words}", 0.0),
            [getattr(head.without, name) - getattr(base, name) for head in heads],
        )
        for name, words in TASK_WORDS.items()
    ]
    return [
        (Measure("best_shift", "that best shift"), [float(head.best_shift) for head in heads]),
        (Measure("rare", "rare over common noun", 1.0), [head.rare_ratio for head in heads]),
        (Measure("entropy", "mean entropy, bits"), [head.entropy for head in heads]),
        (Measure("importance", "importance, |d loss / d gate|"), [head.importance for head in heads]),
        *without,
    ]


def _mean(place: Dwelling) -> float:
    return (place.first + place.second) / 2


def _dwelling(place: Dwelling) -> tuple[str, str]:
    return (
        f"{_mean(place):.2f}",
        f"earlier rows {place.first:.2f}, later {place.second:.2f}; even gaze {place.even:.2f}",
    )


def _both(nouns: TwoNouns) -> str:
    return f"{nouns.first:.2f} / {nouns.second:.2f}"


def _mass(nouns: TwoNouns) -> str:
    wrong = max(nouns.wrong_first, nouns.wrong_second)
    return f"right when it comes first / second; chance 0.50; weight {nouns.mass:.2f}, on the wrong noun {wrong:.2f}"
