"""Counted parameters against the parameters that a layer really has."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_core.attention import GroupedQueryAttention
from mha_core.config import KNOB_D_MODEL, KNOB_MAX_HEADS, AttentionConfig
from mha_core.params import attention_parameters, held_parameters, kv_cache_bytes_per_token, model_parameters
from mha_core.transformer import Block, Transformer, TransformerConfig
from tests.core.cases import configs, dividing


@given(configs())
def test_counts_are_what_each_matrix_holds(cfg):
    layer = GroupedQueryAttention(cfg)
    held = {name: sum(p.numel() for p in getattr(layer, name).parameters()) for name in ("W_Q", "W_K", "W_V", "W_O")}
    assert attention_parameters(cfg) == held == held_parameters(cfg)
    assert sum(held.values()) == sum(p.numel() for p in layer.parameters())


@pytest.mark.parametrize("d_model", KNOB_D_MODEL)
def test_mha_has_four_d_model_squared_whatever_h(d_model):
    for h in dividing(d_model, KNOB_MAX_HEADS):
        assert sum(attention_parameters(AttentionConfig(d_model, h, h)).values()) == 4 * d_model**2


@pytest.mark.parametrize("d_model", KNOB_D_MODEL)
def test_gqa_has_two_d_model_squared_and_two_d_model_g_d_k(d_model):
    for h in dividing(d_model, KNOB_MAX_HEADS):
        for g in dividing(h, h):
            count = sum(attention_parameters(AttentionConfig(d_model, h, g)).values())
            assert count == 2 * d_model**2 + 2 * d_model * g * (d_model // h)


@settings(max_examples=15)
@given(
    configs(max_d_model=48),
    st.integers(1, 29),
    st.integers(1, 3),
    st.none() | st.integers(1, 31),
    st.none() | st.integers(1, 17),
)
def test_a_whole_model_adds_up(attention, vocab_size, n_layers, d_mlp, n_positions):
    cfg = TransformerConfig(attention, vocab_size, n_layers, d_mlp, n_positions)
    model = Transformer(cfg)
    counts = model_parameters(cfg)
    assert sum(counts.values()) == sum(p.numel() for p in model.parameters())
    blocks = [block for block in model.blocks if isinstance(block, Block)]
    assert counts["attention"] == sum(p.numel() for block in blocks for p in block.attention.parameters())
    assert counts["MLP"] == sum(p.numel() for block in blocks for p in block.mlp.parameters())
    assert counts["embedding"] == counts["unembedding"] == model.embed.weight.numel()
    assert counts["positions"] == (0 if model.position is None else model.position.weight.numel())


@given(configs(max_d_model=96), st.integers(1, 99), st.sampled_from([2, 4]))
def test_one_more_token_costs_the_cache_its_keys_and_values(cfg, n_layers, bytes_per_number):
    layer = GroupedQueryAttention(cfg)
    keys_and_values = layer.W_K.out_features + layer.W_V.out_features
    assert kv_cache_bytes_per_token(cfg, n_layers, bytes_per_number) == n_layers * keys_and_values * bytes_per_number


def test_a_wide_layer_is_counted_without_its_numbers():
    with CountBytes() as made:
        assert sum(held_parameters(AttentionConfig(1024, 64, 64)).values()) == 4 * 1024**2
    assert made.largest == 0
    assert GroupedQueryAttention(AttentionConfig(6, 3, 3)).W_Q.weight.device.type == "cpu"


class CountBytes(TorchDispatchMode):
    """The largest tensor with numbers that is made meanwhile."""

    largest = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        made = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(made):
            if isinstance(tensor, torch.Tensor) and tensor.device.type != "meta":
                self.largest = max(self.largest, tensor.nbytes)
        return made
