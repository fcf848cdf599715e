"""The texts beside a name: found by trying, never written by hand for a head."""

import pytest
import torch

from mha_core import zoo
from mha_core.analysis import evidence, showcase
from mha_core.analysis.roles import ROLES, best, labels
from mha_core.training.grammar import build_vocabulary

VOCABULARY = build_vocabulary()
NAMES = ("grammar-d128-h8-g8", "grammar-d128-h8-g2", "grammar-d128-h1-g1")


@pytest.fixture(scope="module", params=NAMES)
def stored(request):
    found = evidence.find(request.param)
    assert found is not None
    return found


def gaze(model, showing, shown):
    """The row of one head, traced anew, one text by itself."""
    ids = VOCABULARY.tokenize(shown.text).ids
    return model.trace(torch.tensor([ids])).layers[showing.layer].pattern[0, showing.head, shown.row]


def test_every_name_has_its_texts_and_their_weights_are_those_of_a_pass(stored):
    model, _ = zoo.load(stored.name)
    named = {(label.head.layer, label.head.head, label.role.name) for label in labels(stored)}
    assert {(s.layer, s.head, s.role) for s in stored.showings} == named
    for showing in stored.showings:
        for shown in filter(None, (showing.best, showing.counter)):
            row = gaze(model, showing, shown)
            assert row[shown.key].item() == pytest.approx(shown.weight, abs=2e-3)
            assert row[shown.instead].item() == pytest.approx(row.max().item(), abs=2e-3)


def rightly_placed(role, words, row, key):
    """Whether a name's token stands where the name says, told from the words alone."""
    rows = ["<s>", *words]
    if role in ("previous token", "two back", "three back", "itself"):
        return row - key == {"previous token": 1, "two back": 2, "three back": 3, "itself": 0}[role]
    if role == "first-token sink":
        return key == 0
    if role == "same token":
        return key < row and rows[key] == rows[row]
    if role == "induction":
        return rows[key - 1] == rows[row] and key < row
    return 0 < key < row


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_the_token_to_look_at_is_the_one_that_the_name_says(role):
    for asked in showcase.POOLS[role.name]():
        assert rightly_placed(role.name, asked.words, asked.row, asked.right), asked
        assert asked.wrong is None or asked.wrong not in (asked.right, asked.row)


def test_a_counter_text_is_one_in_which_the_head_looks_elsewhere_or_hardly(stored):
    for showing in stored.showings:
        if showing.counter is not None:
            assert showing.counter.instead != showing.counter.key or showing.counter.weight < 0.5
            assert showing.counter.weight < showing.best.weight


def test_the_same_texts_are_found_again(stored):
    model, _ = zoo.load(stored.name)
    found = showcase.showcase(model, VOCABULARY, labels(stored))
    assert [(s.layer, s.head, s.role) for s in found] == [(s.layer, s.head, s.role) for s in stored.showings]
    texts = [[(s.best.text, s.counter and s.counter.text) for s in showings] for showings in (found, stored.showings)]
    assert texts[0] == texts[1]


@pytest.mark.parametrize("role", ROLES, ids=lambda role: role.name)
def test_there_are_texts_for_every_role_and_every_word_is_known(role, stored):
    model, _ = zoo.load(stored.name)
    (showing,) = showcase.showcase(model, VOCABULARY, [best(stored, role)])
    assert showing.tried >= 50
    assert VOCABULARY.tokenize(showing.best.text).unknown == []


def test_the_default_models_coreference_heads_follow_the_verb_and_not_the_pronouns_number():
    stored = evidence.find(NAMES[0])
    assert stored is not None
    model, _ = zoo.load(stored.name)
    ids = torch.tensor([VOCABULARY.tokenize("the cats sat on the mat because it was").ids])
    for label in labels(stored):
        if label.role.name == "coreference":
            row = model.trace(ids).layers[label.head.layer].pattern[0, label.head.head, 8]
            assert int(row.argmax()) == 2
