"""Right and wrong orders on any run: the loop is the oracle's, and a mistake is harmless exactly where sizes say so."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core.analysis import orders as o
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL, SlidingWindow
from tests.core import oracle
from tests.core.cases import dividing, numbers, sees

N, H, G, D_K, D = 5, 6, 3, 4, 26


def run(n=N, h=H, g=G, d_k=D_K, d_model=D, double=True, **other):
    cfg = AttentionConfig(d_model, h, g, d_k, seed=3, **other)
    layer = GroupedQueryAttention(cfg)
    x = 2 * numbers(1, n, d_model, seed=7)
    layer, x = (layer.double(), x) if double else (layer, x.float())
    return layer, o.run_of(layer, layer.trace(x))


def by_oracle(layer, one):
    cfg = one.trace.cfg
    sizes = {"h": cfg.n_heads, "g": cfg.n_kv_heads, "d_k": cfg.head_dim, "rotary_base": cfg.rotary_base}
    return oracle.attention(one.step("x"), oracle.weights_of(layer), **sizes, sees=sees(cfg.mask))


@pytest.mark.parametrize(
    "other",
    [{}, {"mask": CAUSAL, "rotary_base": 100.0}, {"mask": SlidingWindow(2), "rotary_base": 10_000.0}, {"g": 1}],
    ids=["plain", "causal, rotary", "window, rotary", "one KV head"],
)
def test_the_loop_and_the_right_order_are_the_oracles(other):
    layer, one = run(**other)
    steps = by_oracle(layer, one)
    for (pattern, z), wanted, wanted_z in zip(o.looped(one), steps["pattern"], steps["z"], strict=True):
        np.testing.assert_allclose(pattern, wanted, atol=1e-12)
        np.testing.assert_allclose(z, wanted_z, atol=1e-12)
    q, k, v = (o.split_rightly(part, one.trace.cfg) for part in o.projected(one))
    pattern, out = o.attended(one, q, k, v)
    np.testing.assert_allclose(pattern, steps["pattern"], atol=1e-12)
    np.testing.assert_allclose(out, steps["out"], atol=1e-12)
    np.testing.assert_allclose(one.forward, steps["out"], atol=1e-12)


def test_the_comparison_catches_both_mistakes_where_shapes_and_row_sums_do_not():
    _, one = run(mask=CAUSAL, rotary_base=100.0)
    right, view, tile = o.order_checks(one)
    assert [check.name for check in (right, view, tile)] == ["right", "view", "tile"]
    assert {check.q_shape for check in (right, view, tile)} == {(H, N, D_K)}
    assert {check.out_shape for check in (right, view, tile)} == {(N, D)}
    assert max(check.row_sums for check in (right, view, tile)) < 1e-12
    assert max(right.pattern, right.out) < 1e-12
    assert min(view.pattern, view.out, tile.pattern, tile.out) > 0.05
    assert [check.harmless for check in (right, view, tile)] == [True, False, False]


def test_what_is_told_is_the_largest_difference_from_the_loop():
    layer, one = run()
    steps, cfg = by_oracle(layer, one), one.trace.cfg
    for check in o.order_checks(one):
        pattern, out = o.attended(one, *(o.SPLITS[check.name](part, cfg) for part in o.projected(one)))
        assert check.pattern == pytest.approx(np.abs(pattern - steps["pattern"]).max(), abs=1e-12)
        assert check.out == pytest.approx(np.abs(out - steps["out"]).max(), abs=1e-12)


@settings(max_examples=40)
@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 4), st.data())
def test_a_mistake_is_harmless_exactly_where_the_sizes_say(n, h, d_k, data):
    g = data.draw(st.sampled_from(dividing(h, h)))
    cfg = AttentionConfig(7, h, g, d_k)
    assert o.takes_other_numbers("view", cfg, n) == (h > 1 and n > 1)
    assert o.takes_other_numbers("tile", cfg, n) == (1 < g < h)
    assert not o.takes_other_numbers("right", cfg, n)


@pytest.mark.parametrize(
    ("sizes", "name"), [({"n": 1}, "view"), ({"h": 1, "g": 1}, "view"), ({"g": 1}, "tile"), ({"g": H}, "tile")]
)
def test_where_a_mistake_is_harmless_the_outputs_are_the_loops(sizes, name):
    _, one = run(**sizes)
    check = next(check for check in o.order_checks(one) if check.name == name)
    assert check.harmless
    assert max(check.pattern, check.out) < 1e-12


def test_who_reads_whom_is_dealt_out_one_by_one():
    cfg = AttentionConfig(D, H, G, D_K)
    assert o.kv_heads_read("right", cfg) == tuple(oracle.shared_heads(H, G)) == (0, 0, 1, 1, 2, 2)
    assert o.kv_heads_read("tile", cfg) == (0, 1, 2, 0, 1, 2)


def test_a_run_in_single_precision_stays_so_and_agrees():
    _, one = run(double=False, mask=CAUSAL, rotary_base=100.0)
    right, view, _ = o.order_checks(one)
    assert 0 < right.out < 1e-5 < 0.05 < view.out
    assert o.looped(one)[0][0].dtype == np.float32


def test_scores_far_apart_stay_numbers_under_a_mask():
    visible = np.tril(np.ones((3, 3), bool))
    pattern = o.softmax(np.array([[0.0, 900.0, 0.0], [0.0, 1.0, 900.0], [0.0, 0.0, 0.0]], np.float32), visible)
    np.testing.assert_allclose(pattern[0], [1, 0, 0])
    np.testing.assert_allclose(pattern.sum(-1), 1, atol=1e-6)


def test_a_layer_with_biases_is_not_measured_in_silence():
    layer = GroupedQueryAttention(AttentionConfig(D, H, G, D_K, bias=True)).double()
    with pytest.raises(AssertionError, match="bias"):
        o.run_of(layer, layer.trace(numbers(1, N, D, seed=7)))
