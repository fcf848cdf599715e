"""What each head adds to the output of one token, and what a missing head or swapped slices do to it."""

import numpy as np
import pytest

from mha_core.analysis.writes import changed_output, writes_of
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL
from tests.core import oracle
from tests.core.cases import numbers

D, H, G, D_K, N, ROW = 18, 6, 2, 4, 5, 3
CFG = AttentionConfig(d_model=D, n_heads=H, n_kv_heads=G, head_dim=D_K, rotary_base=50.0, mask=CAUSAL, seed=4)


@pytest.fixture
def layer():
    return GroupedQueryAttention(CFG).requires_grad_(False)


@pytest.fixture
def trace(layer):
    return layer.trace(numbers(1, N, D, seed=5).float())


def by_loop(layer, weights=None, gate=None):
    x = numbers(1, N, D, seed=5).float().double().numpy()[0]
    weights = weights or oracle.weights_of(layer)
    sizes = {"h": H, "g": G, "d_k": D_K, "rotary_base": 50.0}
    return oracle.attention(x, weights, sees=lambda i, j: j <= i, gate=gate, **sizes)


def test_the_writes_are_those_of_the_plain_loop_and_sum_to_the_output(layer, trace):
    found, expected = writes_of(trace, ROW, most=9), by_loop(layer)
    np.testing.assert_allclose(found.writes, expected["head_writes"][:, ROW], atol=3e-6)
    np.testing.assert_allclose(found.running[-1], expected["out"][ROW], atol=3e-6)
    np.testing.assert_allclose(np.diff(found.running, axis=0), found.writes[1:], atol=1e-6)
    assert found.deviation < 1e-5
    assert found.lines == tuple((head,) for head in range(H))


def test_the_shares_sum_to_one_and_follow_norm_and_direction(trace):
    found = writes_of(trace, ROW, most=9)
    assert found.shares.sum() == pytest.approx(1.0, abs=1e-5)
    length = np.linalg.norm(found.out)
    np.testing.assert_allclose(found.shares, found.norms * found.cosines / length, atol=1e-5)


def test_with_many_heads_the_shown_and_the_longest_stand_alone_and_all_is_counted(trace):
    every = writes_of(trace, ROW, most=9)
    shown = int(every.norms.argmin())
    found = writes_of(trace, ROW, most=4, shown={shown})
    assert len(found.lines) == 4
    assert sorted(head for line in found.lines for head in line) == list(range(H))
    assert (shown,) in found.lines
    assert (int(every.norms.argmax()),) in found.lines
    np.testing.assert_allclose(found.running[-1], every.out, atol=1e-5)


def test_an_output_of_zeros_has_no_directions(layer):
    layer.W_O.weight.zero_()
    found = writes_of(layer.trace(numbers(1, N, D, seed=5).float()), ROW, most=9)
    assert found.shares.tolist() == found.cosines.tolist() == [0.0] * H


def test_a_head_switched_off_takes_its_write_away_and_nothing_else(layer, trace):
    gate = np.array([1.0, 1, 0, 1, 1, 1])
    changed = changed_output(layer, trace, ROW, off=2, swap=None)
    np.testing.assert_allclose(changed.out, by_loop(layer, gate=gate)["out"][ROW], atol=3e-6)
    assert changed.moved == pytest.approx(writes_of(trace, ROW, most=9).norms[2], rel=1e-4)
    assert changed.pattern_change == 0.0


def test_swapped_slices_change_the_output_as_in_the_plain_loop_and_no_map(layer, trace):
    before = layer.W_O.weight.clone()
    weights = oracle.weights_of(layer)
    weights.W_O[1 * D_K : 2 * D_K], weights.W_O[4 * D_K : 5 * D_K] = (
        weights.W_O[4 * D_K : 5 * D_K].copy(),
        weights.W_O[1 * D_K : 2 * D_K].copy(),
    )
    changed = changed_output(layer, trace, ROW, off=None, swap=(1, 4))
    np.testing.assert_allclose(changed.out, by_loop(layer, weights)["out"][ROW], atol=3e-6)
    assert changed.moved > 0.01
    assert changed.pattern_change == 0.0
    assert layer.W_O.weight.equal(before)


def test_both_at_once(layer, trace):
    changed = changed_output(layer, trace, ROW, off=1, swap=(1, 4))
    alone = changed_output(layer, trace, ROW, off=None, swap=(1, 4))
    assert not np.allclose(changed.out, alone.out)
