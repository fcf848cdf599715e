"""Random weights: the same for a link anywhere, and no shared random state."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL
from mha_core.seeds import embedding, generator_for, linear
from mha_core.transformer import Transformer, TransformerConfig
from tests.core.cases import configs, dividing

SMALL = TransformerConfig(AttentionConfig(12, 4, 2, mask=CAUSAL, seed=5), vocab_size=23, n_layers=2, n_positions=9)


def same(one, other):
    a, b = one.state_dict(), other.state_dict()
    return a.keys() == b.keys() and all(a[name].equal(b[name]) for name in a)


@given(configs(max_d_model=96))
def test_the_same_seed_gives_the_same_weights_and_another_seed_others(cfg):
    assert same(GroupedQueryAttention(cfg), GroupedQueryAttention(cfg))
    other = GroupedQueryAttention(replace(cfg, seed=(cfg.seed + 1) % 2**32))
    assert not other.W_Q.weight.equal(GroupedQueryAttention(cfg).W_Q.weight)


@given(configs(max_d_model=96), st.data())
def test_a_change_of_g_leaves_w_q_and_w_o_alone(cfg, data):
    g = data.draw(st.sampled_from(dividing(cfg.n_heads, cfg.n_heads)))
    before, after = GroupedQueryAttention(cfg), GroupedQueryAttention(replace(cfg, n_kv_heads=g))
    assert same(before.W_Q, after.W_Q)
    assert same(before.W_O, after.W_O)


@settings(max_examples=10)
@given(st.integers(0, 2**32 - 1))
def test_making_and_running_a_model_leaves_the_global_random_state_alone(seed):
    state = torch.random.get_rng_state()
    model = Transformer(replace(SMALL, attention=replace(SMALL.attention, seed=seed)))
    model.trace(torch.zeros(1, 3, dtype=torch.long))
    assert torch.random.get_rng_state().equal(state)


@pytest.mark.parametrize("seed", [0, 1, 2**32 - 1])
def test_no_two_matrices_of_a_model_share_their_numbers(seed):
    model = Transformer(replace(SMALL, attention=replace(SMALL.attention, n_kv_heads=4, seed=seed)))
    drawn = [p.detach().flatten()[:8] for name, p in model.named_parameters() if "norm" not in name]
    for at, numbers in enumerate(drawn):
        for other in drawn[at + 1 :]:
            # The same stream with another spread would still be the same numbers up to a factor.
            assert not torch.allclose(numbers / numbers[0], other / other[0])


def test_weights_are_spread_as_torch_spreads_them():
    layer = linear(400, 300, bias=True, seed=1, path=("here",))
    assert layer.weight.abs().max() <= 400**-0.5
    assert abs(float(layer.weight.detach().std()) - (3 * 400) ** -0.5) < 1e-3
    table = embedding(300, 200, std=0.5, seed=1, path=("there",))
    assert abs(float(table.weight.detach().std()) - 0.5) < 1e-2


def test_the_numbers_of_a_link_do_not_change_between_versions():
    """A stored link shows the same picture next year: these numbers may only change with a new link version."""
    first = torch.rand(3, generator=generator_for(7, "W_Q"), dtype=torch.float64).tolist()
    assert first == pytest.approx(PINNED, abs=1e-12)


PINNED = [0.020289561774060605, 0.8984311750833548, 0.7614870289699955]
