"""Fewer KV heads: what they hold is the mean of those that share, and nothing else of the model changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mha_core.analysis.pooling import distance, pooled, side_by_side, targets
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, ConfigError
from mha_core.masks import CAUSAL, SlidingWindow
from mha_core.params import attention_parameters, kv_cache_bytes_per_token, model_parameters
from mha_core.training.grammar import build_vocabulary, sentences
from mha_core.training.recipe import Recipe, token_rows
from mha_core.transformer import Transformer, TransformerConfig
from tests.core import oracle
from tests.core.cases import configs, numbers, sees

# Every axis has a size of its own: d_model 10, h 12, g 6, d_k 4, vocabulary 17, 2 layers, d_mlp 23, 19 positions.
ATTENTION = AttentionConfig(10, 12, 6, 4, bias=True, rotary_base=100.0, mask=CAUSAL, seed=3)
CONFIG = TransformerConfig(ATTENTION, vocab_size=17, n_layers=2, d_mlp=23, n_positions=19)
EXACT = {"rtol": 0, "atol": 1e-12}
VOCABULARY = build_vocabulary()


def model_of(cfg=CONFIG, dtype=torch.float64):
    return Transformer(cfg).to(dtype)


def tokens(b=3, n=7):
    return torch.randint(17, (b, n), generator=torch.Generator().manual_seed(5))


def plainly_pooled(layer, fewer):
    """The weights of a layer, pooled head by head in numpy."""
    weights, g, d_k = oracle.weights_of(layer), layer.cfg.n_kv_heads, layer.cfg.head_dim
    of_kv_heads = ("W_K", "W_V", "bias_k", "bias_v")
    return replace(weights, **{n: oracle.pooled_heads(getattr(weights, n), g, fewer, d_k) for n in of_kv_heads})


def make_equal(model, fewer):
    """Give all KV heads that will share the weights of the first of them."""
    with torch.no_grad():
        for layer in model.attention_layers():
            for matrix in (layer.W_K, layer.W_V):
                for rows in matrix.parameters():
                    heads = rows.unflatten(0, (layer.cfg.n_kv_heads, -1))
                    for kv_head, first in enumerate(oracle.shared_heads(layer.cfg.n_kv_heads, fewer)):
                        heads[kv_head] = heads[first * (layer.cfg.n_kv_heads // fewer)].clone()
    return model


@pytest.mark.parametrize("fewer", [3, 2, 1])
def test_keys_and_values_are_means_over_consecutive_heads_and_all_else_is_as_it_was(fewer):
    model = model_of()
    found = pooled(model, fewer)
    for before, after in zip(model.attention_layers(), found.attention_layers(), strict=True):
        right, held = plainly_pooled(before, fewer), oracle.weights_of(after)
        for name in ("W_Q", "W_K", "W_V", "W_O", "bias_q", "bias_k", "bias_v", "bias_o"):
            np.testing.assert_allclose(getattr(held, name), getattr(right, name), err_msg=name, **EXACT)
    others = {name: value for name, value in model.state_dict().items() if "W_K" not in name and "W_V" not in name}
    assert len(others) == 2 + 2 * (4 + 4 + 4) + 3
    assert all(torch.equal(found.state_dict()[name], value) for name, value in others.items())


@settings(max_examples=25)
@given(configs(max_d_model=48), st.data())
def test_a_pooled_layer_is_the_plain_loop_with_plainly_pooled_weights(attention, data):
    assume(attention.n_kv_heads > 1)
    fewer = data.draw(st.sampled_from(targets(attention.n_kv_heads)))
    model = model_of(TransformerConfig(attention, vocab_size=5, n_layers=1))
    layer = model.attention_layers()[0]
    x = numbers(1, 7, attention.d_model, seed=8)
    right = oracle.attention(
        x[0].numpy(), plainly_pooled(layer, fewer), h=attention.n_heads, g=fewer, d_k=attention.head_dim,
        sees=sees(attention.mask), rotary_base=attention.rotary_base,
    )  # fmt: skip
    found = pooled(model, fewer).attention_layers()[0]
    trace = found.trace(x)
    for name in ("k", "v", "k_rot", "pattern", "out"):
        np.testing.assert_allclose(getattr(trace, name)[0], right[name], err_msg=name, rtol=0, atol=1e-10)
    np.testing.assert_allclose(found(x)[0], right["out"], rtol=0, atol=1e-10)


@pytest.mark.parametrize("fewer", [3, 2, 1])
def test_pooling_heads_that_are_equal_changes_nothing(fewer):
    model = make_equal(model_of(), fewer)
    both = side_by_side(model, tokens(), fewer)
    torch.testing.assert_close(both.after.logits, both.before.logits, **EXACT)
    for before, after in zip(both.before.layers, both.after.layers, strict=True):
        for name in ("pattern", "z", "out"):
            torch.testing.assert_close(getattr(after, name), getattr(before, name), **EXACT)
    with torch.no_grad():
        torch.testing.assert_close(pooled(model, fewer)(tokens()), model(tokens()), **EXACT)


def test_pooling_heads_that_differ_changes_the_output():
    both = side_by_side(make_equal(model_of(), 3), tokens(), 1)
    assert (both.after.logits - both.before.logits).abs().max() > 0.01


@pytest.mark.parametrize("between", [3, 2])
def test_two_steps_give_what_one_gives(between):
    model = model_of()
    one, two = pooled(model, 1).state_dict(), pooled(pooled(model, between), 1).state_dict()
    assert one.keys() == two.keys()
    for name, value in one.items():
        torch.testing.assert_close(two[name], value, **EXACT)


@pytest.mark.parametrize("fewer", [3, 2, 1])
def test_keys_pooled_before_they_are_turned_are_turned_keys_pooled(fewer):
    both = side_by_side(model_of(), tokens(), fewer)
    before, after = both.before.layers[0], both.after.layers[0]
    for name in ("k", "k_rot", "v"):
        # (b, 6, n, d_k) -> (b, fewer, 6/fewer, n, d_k)
        means = getattr(before, name).unflatten(1, (fewer, 6 // fewer)).mean(2)
        torch.testing.assert_close(getattr(after, name), means, **EXACT)
    assert not torch.allclose(before.k_rot, before.k)


@pytest.mark.parametrize("fewer", [3, 2, 1])
def test_parameters_and_cache_fall_by_the_formula(fewer):
    model = model_of()
    found = pooled(model, fewer)
    cfg, held = found.cfg, sum(p.numel() for p in found.parameters())
    assert (cfg.attention.n_kv_heads, cfg.attention.n_heads, cfg.attention.head_dim) == (fewer, 12, 4)
    assert held == sum(model_parameters(cfg).values())
    # 2 layers, each with W_K and W_V of 10 inputs and a bias, 4 columns for each head that is gone.
    assert sum(p.numel() for p in model.parameters()) - held == 2 * 2 * (10 + 1) * 4 * (6 - fewer)
    one = found.attention_layers()[0]
    assert attention_parameters(one.cfg)["W_K"] == (10 + 1) * 4 * fewer
    trace = found.trace(tokens(1, 1))
    cached = sum(step.nbytes for layer in trace.layers for step in (layer.k, layer.v))
    assert cached == kv_cache_bytes_per_token(cfg.attention, 2, 8) == 2 * 2 * 4 * 8 * fewer


def test_multi_query_attention_has_one_kv_head_that_all_heads_read():
    trace = pooled(model_of(), 1).trace(tokens())
    assert [layer.k.shape[1] for layer in trace.layers] == [1, 1]
    assert [layer.pattern.shape[1] for layer in trace.layers] == [12, 12]


def test_a_g_can_be_pooled_to_its_smaller_divisors():
    assert [targets(g) for g in (1, 2, 6, 8, 9)] == [(), (1,), (1, 2, 3), (1, 2, 4), (1, 3)]


@pytest.mark.parametrize(
    ("asked", "told"),
    [
        (6, "g = 6 cannot be pooled to 6: it must be smaller and divide it; g can be 1, 2 or 3."),
        (12, "g = 6 cannot be pooled to 12: it must be smaller and divide it; g can be 1, 2 or 3."),
        (4, "g = 6 cannot be pooled to 4: it must be smaller and divide it; g can be 1, 2 or 3."),
        (0, "g = 0 is out of range"),
        (-3, "g = -3 is out of range"),
        (10**400, "g = a number of 401 digits is out of range"),
        (True, "g must be a whole number from 1 to 1,024, not True."),
        (2.0, "g must be a whole number from 1 to 1,024, not 2.0."),
        (None, "g must be a whole number from 1 to 1,024, not None."),
    ],
)
def test_any_other_g_is_refused_and_told_why(asked, told):
    with pytest.raises(ConfigError) as caught:
        pooled(model_of(), asked)
    (problem,) = caught.value.problems
    assert problem.field == "n_kv_heads"
    assert problem.message.startswith(told)
    with pytest.raises(ConfigError):
        side_by_side(model_of(), tokens(), asked)


def test_a_single_kv_head_cannot_be_pooled():
    model = model_of(replace(CONFIG, attention=replace(ATTENTION, n_kv_heads=1)))
    with pytest.raises(ConfigError, match="a single KV head, g = 1; there is nothing left to pool"):
        pooled(model, 1)


def test_the_model_stays_as_it_was_and_keeps_its_memory_to_itself():
    model, state = model_of(), torch.get_rng_state()
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    found = pooled(model, 2)
    assert torch.equal(torch.get_rng_state(), state)
    with torch.no_grad():
        for parameter in found.parameters():
            assert not parameter.requires_grad
            parameter.fill_(0.5)
    assert all(torch.equal(model.state_dict()[name], value) for name, value in weights.items())
    for layer in (*model.attention_layers(), *found.attention_layers()):
        assert isinstance(layer, GroupedQueryAttention)
        assert layer._joined is not None
        assert layer._joined.stands(layer)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
def test_the_kind_of_numbers_is_kept(dtype):
    found = pooled(model_of(dtype=dtype), 3)
    assert {parameter.dtype for parameter in found.parameters()} == {dtype}


def test_the_mask_in_use_is_kept():
    model = model_of()
    model.use_mask(SlidingWindow(2))
    both = side_by_side(model, tokens(), 3)
    assert all(torch.equal(a.mask, b.mask) for a, b in zip(both.before.layers, both.after.layers, strict=True))
    assert both.after.layers[1].cfg.mask == SlidingWindow(2)


def test_both_patterns_of_a_layer_have_a_map_for_every_head():
    model, ids = model_of(), tokens(1, 7)
    both = side_by_side(model, ids, 2)
    for layer in range(2):
        before, after = both.patterns(layer)
        assert before.shape == after.shape == (12, 7, 7)
        np.testing.assert_array_equal(before, model.trace(ids).layers[layer].array("pattern"))
        np.testing.assert_array_equal(after, pooled(model, 2).trace(ids).layers[layer].array("pattern"))
        assert np.abs(before - after).max() > 0.001


def test_how_far_one_sentence_is_off_is_told_layer_by_layer():
    model, ids = model_of(), tokens(1, 7)
    both, other = side_by_side(model, ids, 2), pooled(model, 2).trace(ids)
    for layer, told in enumerate(both.out_errors()):
        right, found = (trace.layers[layer].out[0].numpy() for trace in (model.trace(ids), other))
        rows = [np.sqrt(((a - b) ** 2).sum() / (a**2).sum()) for a, b in zip(right, found, strict=True)]
        assert told == pytest.approx(sum(rows) / 7)
    p, q = (np.exp(logits[0].numpy()) for logits in (model.trace(ids).logits, other.logits))
    p, q = p / p.sum(-1, keepdims=True), q / q.sum(-1, keepdims=True)
    assert both.divergence() == pytest.approx((p * np.log(p / q)).sum() / 7)


def distances_word_by_word(before, after, texts):
    """Sentence by sentence, nothing padded: (errors of out, errors of the stream, KL), one of each for each word."""
    outs, streams, divergences = [], [], []
    for text in texts:
        ids = token_rows([text], VOCABULARY)
        a, b = before.trace(ids), after.trace(ids)
        for i in range(len(text)):
            for errors, steps in ((outs, (a.layers[-1].out, b.layers[-1].out)), (streams, (a, b))):
                right, found = (s if torch.is_tensor(s) else s.parts[-1].after for s in steps)
                right, found = right[0, i].double().numpy(), found[0, i].double().numpy()
                errors.append(np.sqrt(((right - found) ** 2).sum() / (right**2).sum()))
            p, q = (np.exp(t.logits[0, i].double().numpy()) for t in (a, b))
            p, q = p / p.sum(), q / q.sum()
            divergences.append((p * np.log(p / q)).sum())
    return outs, streams, divergences


def test_distance_is_over_every_word_and_no_padding():
    recipe = Recipe(d_model=20, n_heads=5, n_kv_heads=5, n_layers=2, seed=2)
    model = Transformer(recipe.config(len(VOCABULARY)))
    fewer, texts = pooled(model, 1), sentences(31, "pooling")
    assert len({len(text) for text in texts}) > 3
    found = distance(model, fewer, token_rows(texts, VOCABULARY))
    outs, streams, divergences = distances_word_by_word(model, fewer, texts)
    expected = (np.mean(outs), np.max(outs), np.mean(streams), np.max(streams), np.mean(divergences))
    told = (found.out_mean, found.out_largest, found.stream_mean, found.stream_largest, found.kl)
    assert told == pytest.approx(expected, rel=1e-4)
    assert distance(fewer, model, token_rows(texts, VOCABULARY)).kl != pytest.approx(found.kl, rel=1e-3)


def test_a_model_is_at_no_distance_from_itself():
    model = Transformer(Recipe(d_model=12, n_heads=3, n_kv_heads=3).config(len(VOCABULARY)))
    found = distance(model, model, token_rows(sentences(9, "pooling"), VOCABULARY))
    assert (found.out_mean, found.out_largest, found.stream_mean, found.stream_largest, found.kl) == (0, 0, 0, 0, 0)
