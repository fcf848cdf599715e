"""The worked example against plain Python: lists and loops, every matrix written out as a person would on paper."""

import math

import numpy as np
import pytest

from mha_core import worked_example

# The words' rows: place, then kind.
X = [
    [1, 0, 0, 0, 1, 0, 0, 0],  # The: place 0, determiner
    [0, 1, 0, 0, 0, 1, 0, 0],  # cat: place 1, noun
    [0, 0, 1, 0, 0, 0, 1, 0],  # sat: place 2, verb
    [0, 0, 0, 1, 0, 0, 0, 1],  # down: place 3, adverb
]
W_Q = [
    [0, 4, 0, 0, 0, 0, 0, 0],  # place 0 asks for place 1
    [4, 0, 4, 0, 0, 0, 0, 0],  # place 1 asks for places 0 and 2
    [0, 4, 0, 4, 0, 0, 0, 0],
    [0, 0, 4, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 0, 0, 0],
    [0, 0, 0, 0, 0, 6, 0, 0],  # a verb asks for a noun
    [0, 0, 0, 0, 0, 0, 0, 0],
]
W_K = [[1 if i == j else 0 for j in range(8)] for i in range(8)]
W_V = [[1 if i >= 4 and j % 4 == i - 4 else 0 for j in range(8)] for i in range(8)]
W_O = [
    [1, 0, 0, 0, 1, 0, 0, 0],
    [0, 1, 0, 0, 0, 1, 0, 0],
    [0, 0, 1, 0, 0, 0, 1, 0],
    [0, 0, 0, 1, 0, 0, 0, 1],
    [-1, 0, 0, 0, 2, 0, 0, 0],
    [0, -1, 0, 0, 0, 2, 0, 0],
    [0, 0, -1, 0, 0, 0, 2, 0],
    [0, 0, 0, -1, 0, 0, 0, 2],
]


def product(a, b):
    return [[sum(row[k] * b[k][j] for k in range(len(b))) for j in range(len(b[0]))] for row in a]


def softmax(row):
    total = sum(math.exp(score) for score in row)
    return [math.exp(score) / total for score in row]


def by_hand():
    q, k, v = product(X, W_Q), product(X, W_K), product(X, W_V)
    steps = {"q": [], "k": [], "v": [], "scores": [], "pattern": [], "z": []}
    for head in range(2):
        columns = slice(4 * head, 4 * head + 4)
        mine = {name: [row[columns] for row in rows] for name, rows in (("q", q), ("k", k), ("v", v))}
        scores = [[sum(a * b for a, b in zip(one, other, strict=True)) / 2 for other in mine["k"]] for one in mine["q"]]
        pattern = [softmax(row) for row in scores]
        for name, rows in {**mine, "scores": scores, "pattern": pattern, "z": product(pattern, mine["v"])}.items():
            steps[name].append(rows)
    concat = [steps["z"][0][i] + steps["z"][1][i] for i in range(4)]
    return {**steps, "x": X, "concat": concat, "out": product(concat, W_O)}


@pytest.mark.parametrize("name", ["x", "q", "k", "v", "scores", "pattern", "z", "concat", "out"])
def test_every_step_is_what_comes_out_by_hand(name):
    np.testing.assert_allclose(worked_example.trace().array(name), by_hand()[name], atol=1e-6)


def test_head_0_looks_beside_and_head_1_from_the_verb_to_its_subject():
    pattern = worked_example.trace().array("pattern")
    cat, sat, down = (worked_example.WORDS.index(word) for word in ("cat", "sat", "down"))
    e = math.e
    assert pattern[0, sat, cat] == pattern[0, sat, down] == pytest.approx(e**2 / (2 * e**2 + 2))
    assert pattern[1, sat].argmax() == cat
    assert pattern[1, sat, cat] == pytest.approx(e**3 / (e**3 + 3))
    np.testing.assert_allclose(np.delete(pattern[1], sat, axis=0), 0.25)


def test_the_numbers_are_small_and_whole_where_a_person_starts():
    layer = worked_example.layer()
    for name in ("W_Q", "W_K", "W_V", "W_O"):
        weight = getattr(layer, name).weight
        assert weight.equal(weight.round())
        assert weight.abs().max() <= 6


def test_nobody_gets_the_layer_of_another():
    one = worked_example.layer()
    one.W_O.weight.zero_()
    assert worked_example.layer().W_O.weight.abs().sum() > 0
