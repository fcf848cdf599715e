"""The one rule between figures and names: what is just enough earns a name, what falls short in one half does not."""

import dataclasses

import pytest

from mha_core.analysis import roles as r
from mha_core.analysis.roles import ROLES, Counts, Dwelling, Evidence, HeadEvidence, Luck, best, labels
from mha_core.training.scores import TaskScores, TwoNouns

CHANCE = TwoNouns(0.5, 0.5, 0.1, 0.1, 0.1, 0.1)
EVEN = Dwelling(0.09, 0.06, 0.09, 0.06)
SCORES = TaskScores(1.0, 0.9, 0.8, 0.7, 0.6, 2.0)
LUCK = Luck(0.55, 0.56, 0.57, 200)
PLAIN = HeadEvidence(0, 0, CHANCE, CHANCE, CHANCE, (EVEN,) * 7, EVEN, EVEN, EVEN, EVEN, 1, 0.1, 0.1, 1.5, SCORES, 0.01)
NOUNS = {"coreference": "coreference", "agreement": "agreement", "agreement at the verb": "agreement_at_verb"}
PLACES = {"same token": "same_token", "first-token sink": "first_token", "induction": "prefix"}
OFFSET_ROLES = {"previous token": 2, "two back": 1, "three back": 0, "itself": 3}


def evidence(*heads):
    placed = tuple(dataclasses.replace(head, head=number) for number, head in enumerate(heads))
    return Evidence("m", "0", 0, Counts(1, 1, 1, 1, 1, 1), SCORES, LUCK, placed)


def names(head):
    return [label.role.name for label in labels(evidence(head))]


def dwelling_head(role, found):
    if role in PLACES:
        return dataclasses.replace(PLAIN, **{PLACES[role]: found})
    offsets = [EVEN] * 7
    offsets[OFFSET_ROLES[role]] = found
    return dataclasses.replace(PLAIN, offsets=tuple(offsets))


def test_a_head_like_any_other_has_no_name():
    assert names(PLAIN) == []


def test_every_role_is_tried_here():
    assert {role.name for role in ROLES} == {*NOUNS, *PLACES, *OFFSET_ROLES, "rare word"}
    assert len({role.letter for role in ROLES}) == len(ROLES)


@pytest.mark.parametrize("role", NOUNS)
@pytest.mark.parametrize(
    ("nouns", "earned"),
    [
        (TwoNouns(0.61, 0.61, 0.21, 0.21, 0.1, 0.1), True),
        # The first noun, whoever it is: right in half of the sentences.
        (TwoNouns(1.0, 0.0, 0.9, 0.0, 0.0, 0.9), False),
        (TwoNouns(1.0, 0.6, 0.9, 0.9, 0.1, 0.1), False),
        (TwoNouns(0.6, 1.0, 0.9, 0.9, 0.1, 0.1), False),
        (TwoNouns(1.0, 1.0, 0.2, 0.9, 0.1, 0.1), False),
        (TwoNouns(1.0, 1.0, 0.9, 0.2, 0.1, 0.1), False),
    ],
)
def test_a_choice_between_two_nouns_must_hold_in_both_halves(role, nouns, earned):
    assert names(dataclasses.replace(PLAIN, **{NOUNS[role]: nouns})) == [role] * earned


@pytest.mark.parametrize("role", NOUNS)
def test_a_choice_must_beat_the_luckiest_head(role):
    head = dataclasses.replace(PLAIN, **{NOUNS[role]: TwoNouns(0.7, 0.8, 0.5, 0.5, 0.1, 0.1)})
    for control, earned in ((0.74, 1), (0.76, 0)):
        luck = dataclasses.replace(LUCK, **{NOUNS[role]: control})
        found = labels(dataclasses.replace(evidence(head), luck=luck))
        assert [label.role.name for label in found] == [role] * earned
        assert all((label.score, label.control) == (0.7, control) for label in found)


@pytest.mark.parametrize("role", [*PLACES, *OFFSET_ROLES])
@pytest.mark.parametrize(
    ("found", "earned"),
    [
        (Dwelling(0.5, 0.5, 0.1, 0.1), True),
        (Dwelling(0.49, 1.0, 0.01, 0.01), False),
        (Dwelling(1.0, 0.49, 0.01, 0.01), False),
        (Dwelling(0.99, 0.99, 0.2, 0.1), False),
        (Dwelling(0.99, 0.99, 0.1, 0.2), False),
    ],
)
def test_a_place_needs_half_of_the_gaze_and_five_times_the_even_one_in_each_half(role, found, earned):
    assert names(dwelling_head(role, found)) == [role] * earned


@pytest.mark.parametrize(("rare", "common", "earned"), [(0.2, 0.1, 1), (0.199, 0.1, 0), (0.1, 0.2, 0), (0.1, 0.0, 0)])
def test_a_rare_word_needs_twice_the_weight(rare, common, earned):
    assert names(dataclasses.replace(PLAIN, rare=rare, common=common)) == ["rare word"] * earned


def test_a_label_names_the_next_best_head():
    heads = [dwelling_head("induction", Dwelling(mass, mass, 0.1, 0.1)) for mass in (0.3, 0.8, 0.6, 0.2)]
    first, second = labels(evidence(*heads))
    assert (first.head.name, first.score, first.control) == ("L0H1", 0.8, 0.1)
    assert first.runner_up is not None
    assert (first.runner_up.name, first.runner_up_score) == ("L0H2", 0.6)
    assert second.runner_up is not None
    assert (second.head.name, second.runner_up.name) == ("L0H2", "L0H1")
    assert best(evidence(*heads), first.role) == first


def test_the_only_head_has_no_runner_up():
    (label,) = labels(evidence(dwelling_head("induction", Dwelling(0.8, 0.8, 0.1, 0.1))))
    assert (label.runner_up, label.runner_up_score) == (None, 0.0)


def test_the_thresholds_are_those_of_the_design():
    assert (r.LEAST_HALF, r.LEAST_MASS_RATIO, r.LEAST_MASS, r.LEAST_OVER_EVEN, r.LEAST_RARE_RATIO) == (
        0.6,
        2,
        0.5,
        5,
        2,
    )
