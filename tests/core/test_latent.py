"""Laws of latent attention: absorbed is expanded, cached is uncached, and only the latent is cached."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, ConfigError
from mha_core.latent import (
    LATENT_STEPS,
    LatentAttention,
    LatentConfig,
    TruncatedAttention,
    full_rank,
    truncated,
)
from mha_core.masks import CAUSAL, FULL, SlidingWindow
from mha_core.transformer import Transformer, TransformerConfig
from mha_core.work import Counted, work_of
from tests.core import oracle
from tests.core.cases import Case, cases, masks, numbers, sees, splits

# Every axis has a size of its own.
SIZES = {"b": 3, "n": 7, "h": 6, "d_k": 4, "d_model": 10, "r": 5, "p": 2, "h*d_k": 24}
CFG = LatentConfig(10, 6, 4, rank=5, rope_dim=2, rotary_base=100.0, mask=CAUSAL, seed=3)


def close(actual, expected):
    assert_close(actual, expected, atol=1e-10, rtol=1e-10)


@st.composite
def latent_cases(draw, mask=masks):
    """A latent layer's shape, and a case of the same sizes that knows its input, padding and gates."""
    cfg = LatentConfig(
        d_model=draw(st.sampled_from([1, 10, 24])),
        n_heads=draw(st.sampled_from([1, 3, 6])),
        head_dim=draw(st.integers(1, 8)),
        rank=draw(st.integers(1, 30)),
        rope_dim=2 * draw(st.integers(1, 4)),
        rotary_base=draw(st.sampled_from([10.0, 10_000.0])),
        mask=draw(mask),
        seed=draw(st.integers(0, 99)),
    )
    b, n = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 7, 11]))
    like = AttentionConfig(cfg.d_model, cfg.n_heads, cfg.n_heads, cfg.head_dim, mask=cfg.mask)
    return cfg, Case(like, b, n, draw(st.integers(0, 99)), draw(st.booleans()), draw(st.booleans()))


def by_hand(layer: LatentAttention, x: np.ndarray, rule, gate) -> np.ndarray:
    """DeepSeek-V2's formulas for one sentence, head by head and cell by cell, with K and V written out."""
    cfg, n, d_k, p = layer.cfg, len(x), layer.cfg.head_dim, layer.cfg.rope_dim
    W = {name: getattr(layer, name).weight.detach().numpy().T for name in ("W_Q", "W_QR", "W_down", "W_KR", "W_UK")}
    W |= {name: getattr(layer, name).weight.detach().numpy().T for name in ("W_UV", "W_O")}
    latent = x @ W["W_down"]
    k_rope = [oracle.turned(row, i, cfg.rotary_base) for i, row in enumerate(x @ W["W_KR"])]
    out = np.zeros_like(x)
    for head in range(cfg.n_heads):
        own, turns = slice(head * d_k, (head + 1) * d_k), slice(head * p, (head + 1) * p)
        q, k, v = x @ W["W_Q"][:, own], latent @ W["W_UK"][:, own], latent @ W["W_UV"][:, own]
        q_rope = [oracle.turned(row, i, cfg.rotary_base) for i, row in enumerate(x @ W["W_QR"][:, turns])]
        for i in range(n):
            scores = np.array([(q[i] @ k[j] + q_rope[i] @ k_rope[j]) / np.sqrt(d_k + p) for j in range(n)])
            row = oracle.softmax_row(scores, [rule(i, j) for j in range(n)])
            out[i] += (row @ v) * (1.0 if gate is None else gate[head]) @ W["W_O"][own]
    return out


@given(latent_cases())
def test_absorbed_is_expanded_is_the_trace_is_the_plain_loop(cfg_and_case):
    cfg, case = cfg_and_case
    layer, arguments = LatentAttention(cfg).double(), case.arguments()
    with torch.no_grad():
        expanded = layer(case.x(), **arguments)
        close(layer(case.x(), absorbed=True, **arguments), expanded)
    close(layer.trace(case.x(), **arguments).out, expanded)
    gate = None if case.gate() is None else case.gate().numpy()
    for sentence in range(case.b):
        rule = sees(case.cfg.mask, None if case.keep is None else case.keep[sentence].numpy())
        close(expanded[sentence].numpy(), by_hand(layer, case.x()[sentence].numpy(), rule, gate))


@given(latent_cases(st.just(CAUSAL) | st.integers(1, 9).map(SlidingWindow)), st.booleans(), st.data())
def test_cached_is_uncached_absorbed_and_expanded(cfg_and_case, absorbed, data):
    cfg, case = cfg_and_case
    layer, keep = LatentAttention(cfg).double(), case.keep
    cache, outs = layer.new_cache(case.b, case.n), []
    for start, stop in data.draw(splits(case.n)):
        so_far = None if keep is None else keep[:, :stop]
        x = case.x()[:, start:stop]
        outs.append(layer.decode(x, cache, keep=so_far, head_gate=case.gate(), absorbed=absorbed))
    with torch.no_grad():
        close(torch.cat(outs, 1), layer(case.x(), **case.arguments()))


def test_the_cache_holds_rank_and_rotary_key_and_knows_no_heads():
    for h in (1, 6):
        cache = LatentAttention(replace(CFG, n_heads=h)).new_cache(3, 11)
        assert cache.nbytes == 3 * 11 * (5 + 2) * 4
        assert [t.shape for rows in cache._rows for t in rows.tensors()] == [(3, 11, 7)]
    windowed = LatentAttention(replace(CFG, mask=SlidingWindow(4))).double().new_cache(3, 11)
    assert windowed.nbytes == 3 * 4 * (5 + 2) * 8


@pytest.mark.parametrize("step", LATENT_STEPS, ids=lambda step: step.name)
def test_every_step_has_the_shape_its_axes_say_and_reads_earlier_ones(step):
    assert len(set(SIZES.values())) == len(SIZES)
    trace = LatentAttention(CFG).double().trace(numbers(3, 7, 10, seed=1))
    assert getattr(trace, step.name).shape == tuple(SIZES[axis] for axis in step.axes)
    assert trace.array(step.name).shape == tuple(SIZES[axis] for axis in step.axes[1:])
    names = [other.name for other in LATENT_STEPS]
    assert set(step.reads) <= set(names[: names.index(step.name)])


def test_a_query_in_the_latents_space_scores_as_the_keys_would():
    layer = LatentAttention(CFG).double()
    trace = layer.trace(numbers(3, 7, 10, seed=1))
    close(trace.q_latent @ trace.latent[:, None].mT, trace.q @ trace.k.mT)
    close(trace.pattern @ trace.latent[:, None], trace.z_latent)
    for head in range(6):
        own = layer.W_UV.weight.detach()[head * 4 : (head + 1) * 4]
        close(trace.z_latent[:, head] @ own.T, trace.z[:, head])


@pytest.mark.parametrize("absorbed", [True, False])
def test_the_products_of_a_step_are_those_that_run(absorbed):
    layer = LatentAttention(CFG).requires_grad_(False)
    cache = layer.new_cache(1, 9)
    layer.decode(numbers(1, 8, 10, seed=1).float(), cache)
    with sdpa_kernel(SDPBackend.MATH), Counted() as counted:
        layer.decode(numbers(1, 1, 10, seed=2).float(), cache, absorbed=absorbed)
    assert work_of(layer.products(1, 9, absorbed=absorbed), 4).flops == counted.work.flops


@pytest.mark.parametrize(
    ("changed", "told"),
    [
        ({"rope_dim": 3}, "rope_dim = 3 is odd.*2 or 4"),
        ({"rank": 0}, "rank = 0 is out of range"),
        ({"n_heads": 0}, "h = 0 is out of range"),
        ({"d_model": 1.5}, "d_model must be a whole number"),
    ],
)
def test_a_shape_that_cannot_work_is_told_why(changed, told):
    with pytest.raises(ConfigError, match=told):
        replace(CFG, **changed)


# Constructed from a trained layer.


@given(cases(max_d_model=48))
def test_at_full_rank_a_constructed_latent_is_the_layer_itself(case):
    layer = case.layer()
    latent = TruncatedAttention(layer, full_rank(case.cfg))
    assert latent.kept == pytest.approx(1.0)
    with torch.no_grad():
        assert_close(latent(case.x(), **case.arguments()), layer(case.x(), **case.arguments()), atol=1e-8, rtol=1e-8)


@given(cases(max_d_model=48), st.floats(0, 1), st.data())
def test_at_every_rank_what_is_cached_gives_what_the_truncated_matrices_give(case, share, data):
    case = replace(case, cfg=replace(case.cfg, mask=CAUSAL if case.cfg.mask == FULL else case.cfg.mask))
    rank = max(1, round(share * full_rank(case.cfg)))
    latent, keep = TruncatedAttention(case.layer(), rank), case.keep
    cache, twin, outs = latent.new_cache(case.b, case.n), latent.new_cache(case.b, case.n), []
    whole = latent.trace(case.x(), **case.arguments())
    for start, stop in data.draw(splits(case.n)):
        so_far = None if keep is None else keep[:, :stop]
        arguments = {"keep": so_far, "head_gate": case.gate()}
        outs.append(latent.decode(case.x()[:, start:stop], cache, **arguments))
        trace = latent.trace_decode(case.x()[:, start:stop], twin, **arguments)
        for name in ("q", "k", "v", "q_rot", "k_rot", "z", "out"):
            close(getattr(trace, name), getattr(whole, name)[..., start:stop, :])
    close(torch.cat(outs, 1), whole.out)
    assert [t.shape[-1] for rows in cache._rows for t in rows.tensors()] == [rank]


def test_the_cut_is_the_best_of_its_rank_and_kept_says_how_much_is_left():
    cfg = AttentionConfig(10, 6, 3, 4, mask=CAUSAL, seed=5)
    layer = GroupedQueryAttention(cfg).double()
    both = torch.cat((layer.W_K.weight, layer.W_V.weight)).detach().numpy()
    sizes = np.linalg.svd(both, compute_uv=False)
    for rank in (1, 4, 9):
        latent = TruncatedAttention(layer, rank)
        cut = torch.cat((latent.W_K.weight, latent.W_V.weight)).detach().numpy()
        assert np.linalg.matrix_rank(cut) == rank
        assert np.linalg.norm(both - cut) == pytest.approx(np.sqrt((sizes[rank:] ** 2).sum()))
        assert latent.kept == pytest.approx((sizes[:rank] ** 2).sum() / (sizes**2).sum())
        assert latent.new_cache(2, 11).nbytes == 2 * 11 * rank * 8


def test_truncating_a_model_leaves_the_model_alone_and_changes_every_layer():
    attention = AttentionConfig(12, 6, 3, 4, rotary_base=100.0, mask=CAUSAL, seed=3, bias=True)
    model = Transformer(TransformerConfig(attention, vocab_size=23, n_layers=2, d_mlp=17)).double()
    ids, before = torch.tensor([[3, 1, 4, 1, 5]]), model.state_dict()["blocks.1.attention.W_K.weight"].clone()
    with torch.no_grad():
        assert_close(truncated(model, 12)(ids), model(ids), atol=1e-9, rtol=1e-9)
        assert (truncated(model, 5)(ids) - model(ids)).abs().max() > 1e-3
    assert model.state_dict()["blocks.1.attention.W_K.weight"].equal(before)
    assert [type(layer) for layer in truncated(model, 5).attention_layers()] == [TruncatedAttention] * 2


@pytest.mark.parametrize(("rank", "told"), [(0, "rank = 0"), (11, "1 to 10, nearest is 10"), (2.5, "whole number")])
def test_a_rank_that_cannot_be_is_told_why(rank, told):
    with pytest.raises(ConfigError, match=told):
        TruncatedAttention(GroupedQueryAttention(AttentionConfig(10, 6, 3, 4)), rank)
