"""The whole model: its trace is its forward pass, and its residual stream adds up."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha_core.config import AttentionConfig, ConfigError
from mha_core.masks import CAUSAL
from mha_core.transformer import Block, Transformer, TransformerConfig
from tests.core.cases import configs, numbers

ATTENTION = AttentionConfig(12, 6, 3, 4, rotary_base=100.0, mask=CAUSAL, seed=3)
CFG = TransformerConfig(ATTENTION, vocab_size=23, n_layers=2, d_mlp=17)


def model_of(cfg):
    return Transformer(cfg).double()


def ids(b, n, vocab, seed):
    return torch.randint(vocab, (b, n), generator=torch.Generator().manual_seed(seed))


@st.composite
def models(draw):
    n_positions = draw(st.none() | st.just(13))
    attention = draw(configs(max_d_model=64))
    return TransformerConfig(attention, 23, draw(st.integers(1, 3)), draw(st.none() | st.just(17)), n_positions)


@settings(max_examples=25)
@given(models(), st.sampled_from([1, 7, 13]), st.booleans(), st.booleans())
def test_logits_of_trace_and_forward_are_the_same(cfg, n, padded, gated):
    model, token_ids = model_of(cfg), ids(3, n, 23, seed=n)
    keep = numbers(3, n, seed=5) > -0.5 if padded else None
    gates = [None, *(numbers(cfg.attention.n_heads, seed=layer) for layer in range(1, cfg.n_layers))] if gated else None
    trace = model.trace(token_ids, keep=keep, head_gates=gates)
    with torch.no_grad():
        assert_close(trace.logits, model(token_ids, keep=keep, head_gates=gates), atol=1e-10, rtol=1e-10)
    assert trace.logits.shape == (3, n, 23)
    assert trace.token_ids.equal(token_ids)


@settings(max_examples=25)
@given(models())
def test_the_residual_stream_adds_up_and_hangs_together(cfg):
    trace = model_of(cfg).trace(ids(3, 7, 23, seed=1))
    assert [(part.layer, part.kind) for part in trace.parts] == [
        (layer, kind) for layer in range(cfg.n_layers) for kind in ("attention", "mlp")
    ]
    stream = trace.embedded
    for part in trace.parts:
        assert part.before.equal(stream)
        assert part.after.equal(part.before + part.write)
        stream = part.after
    writes = torch.stack([part.write for part in trace.parts]).sum(0)
    assert_close(stream, trace.embedded + writes)
    attention_writes = [part.write for part in trace.parts if part.kind == "attention"]
    assert all(layer.out.equal(write) for layer, write in zip(trace.layers, attention_writes, strict=True))


def layer_norm(x, norm):
    weight, bias = norm.weight.detach().numpy(), norm.bias.detach().numpy()
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def linear(x, layer):
    return x @ layer.weight.detach().numpy().T + layer.bias.detach().numpy()


def test_each_part_reads_the_normed_stream_and_computes_its_formula():
    model = model_of(CFG)
    with torch.no_grad():
        for p in model.parameters():
            # Norms start as plain 1 and 0, which would hide a norm that is left out or taken for another.
            p.add_(0.1 * numbers(*p.shape, seed=p.numel()))
    trace = model.trace(ids(1, 7, 23, seed=1))
    for layer, block in enumerate(model.blocks):
        assert isinstance(block, Block)
        attention, mlp = trace.parts[2 * layer], trace.parts[2 * layer + 1]
        assert_close(trace.layers[layer].x.numpy(), layer_norm(attention.before.numpy(), block.attention_norm))
        hidden = linear(layer_norm(mlp.before.numpy(), block.mlp_norm), block.mlp.up)
        gelu = 0.5 * hidden * (1 + np.tanh(np.sqrt(2 / np.pi) * (hidden + 0.044715 * hidden**3)))
        assert_close(mlp.write.numpy(), linear(gelu, block.mlp.down))
    logits = layer_norm(trace.parts[-1].after.numpy(), model.final_norm) @ model.unembed.weight.detach().numpy().T
    assert_close(trace.logits.numpy(), logits)


def test_layers_differ_and_share_the_shape():
    trace = model_of(CFG).trace(ids(1, 7, 23, seed=1))
    first, second = trace.layers
    assert not torch.allclose(first.pattern, second.pattern)
    assert first.W_O.shape == second.W_O.shape
    assert not first.W_O.equal(second.W_O)


def test_learned_positions_are_added_and_tell_equal_tokens_apart():
    plain = replace(CFG, attention=replace(ATTENTION, rotary_base=None))
    token_ids = torch.full((1, 7), 5)
    with_table, without = model_of(replace(plain, n_positions=11)), model_of(plain)
    assert with_table.position is not None
    added = with_table.embedded(token_ids) - with_table.embed(token_ids)
    assert_close(added[0], with_table.position.weight[:7])
    assert_close(without.embedded(token_ids), without.embed(token_ids))
    rows = with_table.trace(token_ids).layers[0].pattern[0, 0, -1]
    assert rows.unique().numel() == 7
    assert_close(without.trace(token_ids).layers[0].pattern[0, 0, -1], torch.full((7,), 1 / 7, dtype=torch.float64))


def test_rotary_positions_alone_tell_order_in_a_whole_model():
    model = model_of(CFG)
    one = model.trace(torch.tensor([[1, 2, 3, 4]])).logits[0, -1]
    other = model.trace(torch.tensor([[3, 2, 1, 4]])).logits[0, -1]
    assert not torch.allclose(one, other)


@pytest.mark.parametrize("run", [Transformer.forward, Transformer.trace])
def test_a_sentence_too_long_for_the_position_table_is_told_both_numbers(run):
    model = Transformer(replace(CFG, n_positions=11))
    assert run(model, torch.zeros(1, 11, dtype=torch.long)) is not None
    with pytest.raises(ConfigError, match="12 tokens, but the position table has 11 rows; use at most 11 tokens"):
        run(model, torch.zeros(1, 12, dtype=torch.long))


def test_changing_later_tokens_never_changes_earlier_logits():
    model, token_ids = model_of(CFG), ids(3, 7, 23, seed=1)
    changed = token_ids.clone()
    changed[:, 4:] = (changed[:, 4:] + 1) % 23
    assert_close(model.trace(changed).logits[:, :4], model.trace(token_ids).logits[:, :4])


@pytest.mark.parametrize("left", [False, True])
def test_a_padded_batch_equals_each_sentence_alone(left):
    model, token_ids = model_of(CFG), ids(2, 7, 23, seed=1)
    padded, keep = token_ids.clone(), torch.ones(2, 7, dtype=torch.bool)
    filler, real = (slice(0, 3), slice(3, None)) if left else (slice(4, None), slice(0, 4))
    padded[0, filler], keep[0, filler] = 0, False
    together = model.trace(padded, keep=keep)
    with torch.no_grad():
        assert_close(together.logits[:1, real], model(token_ids[:1, real]))
        assert_close(together.logits[1:], model(token_ids[1:]))


def test_a_gate_reaches_its_own_layer_only():
    model, token_ids = model_of(CFG), ids(1, 7, 23, seed=1)
    off = torch.zeros(6, dtype=torch.float64)
    whole, gated = model.trace(token_ids), model.trace(token_ids, head_gates=[None, off])
    assert gated.layers[0].out.equal(whole.layers[0].out)
    assert not gated.layers[1].out.any()


def test_gates_must_be_as_many_as_layers():
    with pytest.raises(ValueError, match="zip"):
        model_of(CFG).trace(ids(1, 7, 23, seed=1), head_gates=[None])


def test_next_token_probabilities_are_a_distribution_of_the_asked_position():
    trace = model_of(CFG).trace(ids(1, 7, 23, seed=1))
    for position in (0, 3, -1):
        expected = np.exp(trace.logits[0, position].numpy())
        np.testing.assert_allclose(trace.next_token_probabilities(position), expected / expected.sum(), rtol=1e-5)


def test_nbytes_counts_the_stream_once():
    trace = Transformer(CFG).trace(ids(1, 7, 23, seed=1))
    stream = 4 * 7 * 12
    assert trace.nbytes == 9 * stream + 4 * 7 * 23 + sum(layer.nbytes for layer in trace.layers)


@pytest.mark.parametrize("field", ["vocab_size", "n_layers", "d_mlp", "n_positions"])
@pytest.mark.parametrize("value", [0, -1, True, 2.0, "3", 10**400], ids=lambda value: str(type(value)))
def test_sizes_of_a_model_are_answered_too(field, value):
    with pytest.raises(ConfigError) as caught:
        TransformerConfig(**{"attention": ATTENTION, "vocab_size": 23, field: value})
    assert [problem.field for problem in caught.value.problems] == [field]


def test_the_mlp_is_twice_as_wide_when_left_out():
    assert TransformerConfig(ATTENTION, 23).d_mlp == 24
