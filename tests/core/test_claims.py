"""The four claims: each figure against arithmetic of another kind, on other sizes than the stored ones."""

import json
import math
from dataclasses import asdict, replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core.analysis import claim_measures as m
from mha_core.analysis import claims as c
from mha_core.analysis import orders
from mha_core.analysis.claim_values import Parameters, Setting, run, runs
from mha_core.analysis.claims import ClaimsError, stored
from mha_core.config import KNOB_D_MODEL, KNOB_MAX_HEADS
from tests.core import oracle
from tests.core.cases import dividing

EXACT = 1e-12
SEEDS = (11, 12, 13)
# No two axes of a setting have the same size; two where 1 < g < h, one with a KV head for each, one with a single one.
SETTINGS = (
    Setting(5, 14, 6, 3, 4, "causal"),
    Setting(11, 17, 8, 2, 5, "full"),
    Setting(7, 9, 3, 3, 5, "causal"),
    Setting(6, 13, 4, 1, 5, "full"),
)
CASES = list(runs(SETTINGS, SEEDS))
FRESH = c.measure()


def by_oracle(one):
    """Every step by the text's plain loop, which calls nothing of ours."""
    cfg, d_model = one.trace.cfg, one.trace.cfg.d_model
    q_width, kv_width = one.W_Q.shape[1], one.W_K.shape[1]
    biases = (np.zeros(width) for width in (q_width, kv_width, kv_width, d_model))
    weights = oracle.Weights(one.W_Q, one.W_K, one.W_V, one.W_O, *biases)
    mask = one.step("mask")
    sizes = {"h": cfg.n_heads, "g": cfg.n_kv_heads, "d_k": cfg.head_dim}
    return oracle.attention(one.step("x"), weights, **sizes, sees=lambda i, j: bool(mask[i, j]))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_parameters_follow_the_formula_for_every_valid_choice(data):
    d_model = data.draw(st.sampled_from(KNOB_D_MODEL))
    rows = m.parameters((d_model,)).rows if d_model <= 128 else ()
    h = data.draw(st.sampled_from(dividing(d_model, KNOB_MAX_HEADS)))
    g = data.draw(st.sampled_from(dividing(h, h)))
    row = m._counted(d_model, h, g)
    assert row.held == row.counted == row.formula
    # Neither count knows the other: h query slices and g slices each of K and V, of d_k columns.
    assert row.held * h == 2 * d_model**2 * (h + g)
    assert not rows or row in rows


@pytest.mark.parametrize("d_model", [24, 60])
def test_every_valid_pair_is_counted_once_and_mha_never_changes(d_model):
    counted = m.parameters((d_model,))
    pairs = [(h, g) for h in dividing(d_model, KNOB_MAX_HEADS) for g in dividing(h, h)]
    assert [(row.n_heads, row.n_kv_heads) for row in counted.rows] == pairs
    assert {row.held for row in counted.mha()} == {4 * d_model**2}
    assert len({row.held for row in counted.rows}) > 1


def test_a_wrong_count_shows():
    rows = m.parameters((24,)).rows
    assert Parameters((*rows, replace(rows[0], counted=rows[0].held - 3))).off() == 3
    assert Parameters((*rows, replace(rows[0], formula=rows[0].held + 5))).off() == 5


@pytest.mark.parametrize("one", CASES)
def test_one_softmax_is_that_of_the_summed_scores(one):
    steps, single = by_oracle(one), m.block_diagonal_head(one)
    mask = one.step("mask")
    summed = np.stack([oracle.softmax_row(steps["scores"].sum(0)[i], mask[i]) for i in range(len(mask))])
    assert np.abs(single.pattern[0, 0].numpy() - summed).max() < EXACT
    multiplied = m.normalised_product(steps["pattern"])
    assert np.abs(multiplied - summed).max() < EXACT
    assert np.abs(multiplied.sum(-1) - 1).max() < EXACT
    assert min(np.abs(summed - head).max() for head in steps["pattern"]) > 0.05


def test_what_one_softmax_is_told_to_be():
    told = m.one_softmax(SETTINGS, SEEDS)
    assert told.to_product < EXACT
    assert 0.05 < told.to_nearest_head.low < told.to_nearest_head.high <= 1
    assert 0.1 < told.output.low < told.output.high


def test_with_a_single_head_product_and_head_are_the_same():
    told = m.one_softmax((Setting(6, 10, 1, 1, 4, "causal"),), SEEDS)
    assert max(told.to_product, told.to_nearest_head.high, told.output.high) < EXACT


@pytest.mark.parametrize("one", CASES)
def test_the_expanded_tokens_give_multi_head_attention(one):
    right = by_oracle(one)["out"]
    assert np.abs(m.expanded_output(one) - right).max() < EXACT
    assert np.abs(m.expanded_output(one, masked=False) - right).max() > 0.01


def test_the_expanded_tokens_cost_h_times_the_scores():
    told = m.expanded(SETTINGS, SEEDS[:1])
    assert told.difference < EXACT
    assert told.without_mask.low > 0.05
    assert told.scores == (150, 968, 147, 144)
    assert told.expanded_scores == (900, 7744, 441, 576)


def test_no_single_head_reaches_two_whole_keys():
    small = m.counterexample()
    assert small.two_heads == (1, 1)
    assert small.a == 0.5
    assert small.searched == pytest.approx(math.sqrt(0.5), abs=1e-15)
    assert small.formula == pytest.approx(math.sqrt(0.5), abs=1e-15)


@pytest.mark.parametrize("one", CASES)
def test_heads_add_up_to_the_joined_product(one):
    steps = by_oracle(one)
    assert np.abs(m.summed_heads(one) - steps["concat"] @ one.W_O).max() < EXACT
    assert np.abs(m.summed_heads(one) - steps["head_writes"].sum(0)).max() < EXACT


def test_both_sums_are_told():
    told = m.head_sums(SETTINGS, SEEDS)
    assert max(told.head_writes, told.plain_loop) < EXACT


@pytest.mark.parametrize("one", CASES)
def test_the_loop_over_heads_is_the_plain_one(one):
    steps = by_oracle(one)
    for found, pattern, z in zip(orders.looped(one), steps["pattern"], steps["z"], strict=True):
        assert np.abs(found[0] - pattern).max() < EXACT
        assert np.abs(found[1] - z).max() < EXACT


def split_rightly(x, one):
    """Token by token and head by head, no reshape."""
    d_k, h = one.trace.cfg.head_dim, one.trace.cfg.n_heads
    dealt = oracle.shared_heads(h, x.shape[1] // d_k)
    return np.stack([x[:, kv * d_k : (kv + 1) * d_k] for kv in dealt])


@pytest.mark.parametrize("one", CASES)
def test_the_mistakes_are_mistakes_of_the_split_alone(one):
    _, out = orders.attended(one, *(split_rightly(x, one) for x in orders.projected(one)))
    assert np.abs(out - by_oracle(one)["out"]).max() < EXACT


def test_which_numbers_each_mistake_takes():
    one = run(SETTINGS[0], 11)
    n, g, d_k = 5, 3, 4
    x = np.arange(n * g * d_k).reshape(n, g * d_k)
    viewed, tiled = orders.split_by_view(x, one.trace.cfg), orders.split_and_tiled(x, one.trace.cfg)
    assert viewed.shape == tiled.shape == split_rightly(x, one).shape == (6, n, d_k)
    # By the view the second vector of head 0 is token 0's of head 1; tile gives head 1 KV head 1, where it is 0.
    assert viewed[0, 1].tolist() == x[0, d_k : 2 * d_k].tolist()
    assert [int(head[0, 0]) // d_k for head in tiled] == [0, 1, 2, 0, 1, 2]
    assert [int(head[0, 0]) // d_k for head in split_rightly(x, one)] == [0, 0, 1, 1, 2, 2]


def test_wrong_reshapes_look_right_and_are_far_off():
    told = m.reshapes(SETTINGS, SEEDS)
    assert max(told.loop, told.row_sums) < EXACT
    assert min(told.view.low, told.tile.low) > 0.2
    assert told.same_shape == told.mistaken_runs == len(SEEDS) * (4 + 2)


def floats(value):
    """All numbers and words of nested values, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [leaf for item in value for leaf in floats(item)]
    return [value]


def test_stored_figures_are_measured_again():
    kept, fresh = asdict(stored()), asdict(FRESH)
    # The version of torch is what it was made with; on another machine rounding may differ, not what is told.
    del kept["torch"], fresh["torch"]
    for told, found in zip(floats(kept), floats(fresh), strict=True):
        assert told == (pytest.approx(found, rel=0.06, abs=EXACT) if isinstance(found, float) else found)


@pytest.mark.parametrize(
    ("value", "kept"), [(0.0, 0.0), (3.7e-15, 1e-14), (1.1e-16, 1e-15), (2.4e-11, 2.4e-11), (0.34567, 0.346)]
)
def test_rounding_errors_are_kept_as_a_bound_and_figures_in_three_digits(value, kept):
    assert c.shorten(value) == kept


def test_a_difference_counts_whatever_its_sign():
    assert m._largest(np.array([[0.25, -3.0], [1.5, 0.0]])) == 3


def test_what_is_stored_is_read_back(tmp_path):
    path = tmp_path / "claims.json"
    c.store(FRESH, path)
    assert stored(path).parameters == FRESH.parameters
    assert stored(path).settings == m.SETTINGS
    assert max(map(len, path.read_text().splitlines())) < 120


@pytest.mark.parametrize("spoil", [lambda text: text[:-40], lambda text: json.dumps({"torch": 1}), lambda text: "[]"])
def test_figures_that_cannot_be_read_are_told_so(tmp_path, spoil):
    path = tmp_path / "claims.json"
    path.write_text(spoil(c.PATH.read_text()))
    with pytest.raises(ClaimsError, match=r"claims\.json holds no figures .* run `make evidence`"):
        stored(path)
    with pytest.raises(ClaimsError, match=r"absent\.json"):
        stored(tmp_path / "absent.json")


def test_the_command_prints_every_figure_and_stores_them(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(c, "measure", lambda: FRESH)
    assert c.main(tmp_path / "claims.json") == 0
    assert len(capsys.readouterr().out.splitlines()) == len(c.table(FRESH)) == 12
    assert stored(tmp_path / "claims.json").reshapes.same_shape == FRESH.reshapes.same_shape


def test_what_does_not_hold_is_told_with_a_distance_and_what_holds_with_none():
    rows = c.table(c.stored())
    assert {holds for _, holds, _ in rows} == {"yes", "no"}
    for what, holds, measured in rows:
        exact = measured == "below 1e-12" or measured.startswith("0 off")
        assert exact == (holds == "yes"), what
