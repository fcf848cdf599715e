"""Laws of the attention layer, over the whole domain of the knobs."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_core.attention import GroupedQueryAttention, rotate
from mha_core.config import KNOB_D_MODEL, AttentionConfig
from mha_core.masks import CAUSAL, FULL, SlidingWindow
from tests.core import oracle
from tests.core.cases import DISTINCT, TOLERANCE, Case, cases, configs, dividing, numbers, sees

DTYPES = list(TOLERANCE)


def close(actual, expected, dtype=torch.float64):
    assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype], check_dtype=False)


def steps_by_hand(case: Case, layer: GroupedQueryAttention) -> list[dict[str, np.ndarray]]:
    """The oracle's answer for every sentence of a case, from the layer's own weights."""
    cfg, keep, gate = case.cfg, case.keep, case.gate()
    sizes = {"h": cfg.n_heads, "g": cfg.n_kv_heads, "d_k": cfg.head_dim, "rotary_base": cfg.rotary_base}
    return [
        oracle.attention(
            case.x()[sentence].numpy(),
            oracle.weights_of(layer),
            **sizes,
            sees=sees(cfg.mask, None if keep is None else keep[sentence].numpy()),
            gate=None if gate is None else gate.numpy(),
        )
        for sentence in range(case.b)
    ]


@given(cases())
def test_every_step_of_a_trace_is_the_plain_loop_over_heads(case):
    layer = case.layer()
    trace = layer.trace(case.x(), **case.arguments())
    for sentence, expected in enumerate(steps_by_hand(case, layer)):
        for name in ("x", "q", "k", "v", "q_rot", "k_rot", "scores", "mask", "pattern", "z", "concat", "out"):
            assert_close(getattr(trace, name)[sentence].numpy(), expected[name], atol=1e-10, rtol=1e-10, msg=name)
        close(trace.head_writes()[sentence].numpy(), expected["head_writes"])


@given(cases())
def test_forward_is_the_plain_loop_over_heads(case):
    layer = case.layer()
    with torch.no_grad():
        out = layer(case.x(), **case.arguments())
    close(out.numpy(), np.stack([steps["out"] for steps in steps_by_hand(case, layer)]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=cases())
def test_forward_and_trace_agree(dtype, case):
    layer, x, arguments = case.layer(dtype), case.x(dtype), case.arguments(dtype)
    with torch.no_grad():
        out = layer(x, **arguments)
    trace = layer.trace(x, **arguments)
    assert out.dtype is trace.out.dtype is dtype
    assert out.isfinite().all()
    close(trace.out, out, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=cases(max_d_model=64))
def test_rows_sum_to_one_and_masked_cells_are_exactly_zero(dtype, case):
    trace = case.layer(dtype).trace(case.x(dtype), **case.arguments(dtype))
    hidden = ~trace.mask[:, None].expand_as(trace.pattern)
    assert (trace.pattern[hidden] == 0).all()
    assert (trace.pattern >= 0).all()
    # A row adds up to 1, or to 0 where the token may see nothing at all.
    expected = (~trace.rows_without_keys).double()[:, None].expand(trace.pattern.shape[:-1])
    assert_close(trace.pattern.double().sum(-1), expected, atol=1e-5, rtol=0)
    assert trace.rows_without_keys.equal(~trace.mask.any(-1))


@pytest.mark.parametrize(("dtype", "softmax_dtype"), [(d, torch.promote_types(d, torch.float32)) for d in DTYPES])
def test_softmax_runs_in_at_least_float32_and_scores_keep_their_type(dtype, softmax_dtype):
    trace = DISTINCT.layer(dtype).trace(DISTINCT.x(dtype))
    assert trace.pattern.dtype is softmax_dtype
    assert {trace.scores.dtype, trace.z.dtype, trace.out.dtype} == {dtype}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("mask", [FULL, CAUSAL, SlidingWindow(2)])
def test_a_token_without_a_visible_key_gets_zeros_and_never_nan(dtype, mask):
    cfg = AttentionConfig(12, 4, 2, 5, bias=True, mask=mask, seed=5)
    layer, x = GroupedQueryAttention(cfg).to(dtype), numbers(3, 7, 12, seed=8).to(dtype)
    keep = torch.ones(3, 7, dtype=torch.bool)
    keep[0] = False
    keep[1, :3] = False
    trace = layer.trace(x, keep=keep)
    alone = trace.rows_without_keys
    assert alone[0].all()
    assert not trace.pattern.transpose(1, 2)[alone].any()
    assert not trace.concat[alone].any()
    with torch.no_grad():
        out = layer(x, keep=keep)
    close(out[alone], layer.W_O.bias.detach().expand_as(out[alone]), dtype)
    assert out.isfinite().all()


LONG = [FULL, CAUSAL, SlidingWindow(1), SlidingWindow(70)]


@pytest.mark.parametrize("n", [64, 65, 150])
@pytest.mark.parametrize("mask", LONG, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_long_sentences_which_are_softmaxed_in_blocks_obey_the_same_laws(dtype, mask, n):
    cfg = AttentionConfig(12, 6, 3, 4, mask=mask, seed=6)
    layer, x = GroupedQueryAttention(cfg).to(dtype), numbers(2, n, 12, seed=n).to(dtype)
    keep = numbers(2, n, seed=1) > -0.5
    # The second sentence is all padding behind its first block of queries: windows there see nothing.
    keep[1, 40:] = False
    for arguments in ({}, {"keep": keep}):
        trace = layer.trace(x, **arguments)
        visible = trace.mask[:, None]
        scores = trace.scores.to(trace.pattern.dtype).masked_fill(~visible, -torch.inf)
        expected = scores.softmax(-1).masked_fill(~visible.any(-1, keepdim=True), 0.0)
        assert_close(trace.pattern, expected)
        assert not trace.pattern[~visible.expand_as(trace.pattern)].any()
        with torch.no_grad():
            close(layer(x, **arguments), trace.out, dtype)


def test_scores_are_kept_as_they_were_before_the_mask():
    everything = GroupedQueryAttention(replace(DISTINCT.cfg, mask=FULL)).trace(DISTINCT.x().float())
    masked = DISTINCT.layer(torch.float32).trace(DISTINCT.x().float())
    close(masked.scores, everything.scores, torch.float32)
    assert masked.scores.isfinite().all()
    assert masked.scores.data_ptr() != masked.pattern.data_ptr()


def with_keys_and_values_repeated(layer: GroupedQueryAttention) -> GroupedQueryAttention:
    """The MHA layer that a GQA layer stands for: every KV head written out once for each head that reads it."""
    cfg = layer.cfg
    mha = GroupedQueryAttention(replace(cfg, n_kv_heads=cfg.n_heads)).double()
    mha.load_state_dict(
        layer.state_dict() | {name: repeated(layer, name) for name in mha.state_dict() if name[2] in "KV"}
    )
    return mha


def repeated(layer: GroupedQueryAttention, name: str) -> torch.Tensor:
    cfg, tensor = layer.cfg, layer.state_dict()[name]
    # (g d_k, ...) -> (g, d_k, ...) -> (h, d_k, ...) -> (h d_k, ...): [K1, K2] becomes [K1, K1, K2, K2]
    heads = tensor.unflatten(0, (cfg.n_kv_heads, cfg.head_dim))
    return heads.repeat_interleave(cfg.n_heads // cfg.n_kv_heads, dim=0).flatten(0, 1)


@given(cases())
def test_gqa_is_mha_whose_keys_and_values_are_repeated(case):
    layer = case.layer()
    mha = with_keys_and_values_repeated(layer)
    assert mha.cfg.heads_per_kv == 1
    with torch.no_grad():
        close(layer(case.x(), **case.arguments()), mha(case.x(), **case.arguments()))
    close(layer.trace(case.x()).pattern, mha.trace(case.x()).pattern)


@given(configs())
def test_query_head_i_reads_kv_head_i_over_h_over_g(cfg):
    assert [cfg.kv_head_of(head) for head in range(cfg.n_heads)] == oracle.shared_heads(cfg.n_heads, cfg.n_kv_heads)
    assert cfg.heads_per_kv * cfg.n_kv_heads == cfg.n_heads


@given(cases(mask=CAUSAL) | cases(mask=SlidingWindow(4)), st.integers(0, 12))
def test_changing_later_tokens_never_changes_earlier_outputs(case, cut):
    cut = min(cut, case.n - 1)
    layer, x, changed = case.layer(), case.x(), case.x()
    changed[:, cut + 1 :] = numbers(case.b, case.n - cut - 1, case.cfg.d_model, seed=case.seed + 9)
    before, after = layer.trace(x, **case.arguments()), layer.trace(changed, **case.arguments())
    close(after.out[:, : cut + 1], before.out[:, : cut + 1])
    with torch.no_grad():
        close(layer(changed, **case.arguments())[:, : cut + 1], layer(x, **case.arguments())[:, : cut + 1])


@given(cases(mask=FULL), st.randoms(use_true_random=False))
def test_without_mask_and_positions_the_order_of_tokens_means_nothing(case, random):
    case = replace(case, cfg=replace(case.cfg, rotary_base=None), padded=False)
    order = list(range(case.n))
    random.shuffle(order)
    layer, x = case.layer(), case.x()
    with torch.no_grad():
        close(layer(x[:, order]), layer(x)[:, order])


@given(cases(), st.booleans(), st.integers(1, 5))
def test_a_padded_batch_equals_each_sentence_alone(case, left, n_padding):
    case = replace(case, b=2, padded=False)
    layer, x, n = case.layer(), case.x(), case.n
    padding = numbers(2, n_padding, case.cfg.d_model, seed=case.seed + 5)
    keep = torch.ones(2, n + n_padding, dtype=torch.bool)
    # The first sentence is the shorter one; the second fills the row with tokens of its own.
    real = slice(n_padding, None) if left else slice(0, n)
    filler = slice(0, n_padding) if left else slice(n, None)
    batch = torch.cat((padding, x) if left else (x, padding), dim=1)
    keep[0, filler] = False
    gate = case.gate()
    with torch.no_grad():
        together = layer(batch, keep=keep, head_gate=gate)
        close(together[:1, real], layer(x[:1], head_gate=gate))
        close(together[1:], layer(batch[1:], head_gate=gate))
    close(layer.trace(batch, keep=keep, head_gate=gate).out, together)


@pytest.mark.parametrize("bias", [False, True])
@given(cases(), st.sampled_from(KNOB_D_MODEL[:10]))
def test_mha_equals_torch_nn_multiheadattention(bias, case, d_model):
    n_heads = dividing(d_model, 16)[-1]
    cfg = AttentionConfig(d_model, n_heads, n_heads, bias=bias, mask=CAUSAL, seed=case.seed)
    layer = GroupedQueryAttention(cfg).double()
    peer = nn.MultiheadAttention(d_model, n_heads, bias=bias, batch_first=True).double()
    state = layer.state_dict()
    in_names = [("in_proj_weight", "weight")] + [("in_proj_bias", "bias")] * bias
    stacked = {into: torch.cat([state[f"W_{m}.{end}"] for m in "QKV"]) for into, end in in_names}
    peer.load_state_dict(stacked | {f"out_proj.{end}": state[f"W_O.{end}"] for _, end in in_names})
    x = numbers(case.b, case.n, d_model, seed=case.seed)
    later = torch.ones(case.n, case.n, dtype=torch.bool).triu(1)
    with torch.no_grad():
        out, pattern = peer(x, x, x, attn_mask=later, need_weights=True, average_attn_weights=False)
        close(layer(x), out)
    close(layer.trace(x).pattern, pattern)


@given(cases())
def test_z_equals_torch_scaled_dot_product_attention_with_enable_gqa(case):
    trace = case.layer().trace(case.x())
    mask = trace.mask[:, None]
    expected = scaled_dot_product_attention(trace.q_rot, trace.k_rot, trace.v, attn_mask=mask, enable_gqa=True)
    close(trace.z, expected)


@given(cases(), st.data())
def test_a_gate_of_zero_removes_exactly_that_heads_write(case, data):
    head = data.draw(st.integers(0, case.cfg.n_heads - 1))
    layer, x, keep = case.layer(), case.x(), case.keep
    gate = torch.ones(case.cfg.n_heads, dtype=torch.float64)
    gate[head] = 0.0
    whole, without = layer.trace(x, keep=keep), layer.trace(x, keep=keep, head_gate=gate)
    close(whole.out - without.out, whole.head_writes()[:, head])
    assert not without.head_writes()[:, head].any()
    close(without.pattern, whole.pattern)
    with torch.no_grad():
        close(layer(x, keep=keep, head_gate=gate), without.out)
        close(layer(x, keep=keep, head_gate=torch.ones_like(gate)), whole.out)


@given(cases(), st.integers(0, 99))
def test_gates_with_a_row_per_sentence_act_on_each_sentence_alone(case, seed):
    layer, x, keep = case.layer(), case.x(), case.keep
    gates = numbers(case.b, case.cfg.n_heads, seed=seed)
    with torch.no_grad():
        together = layer(x, keep=keep, head_gate=gates)
        for i in range(case.b):
            kept = None if keep is None else keep[i : i + 1]
            close(together[i : i + 1], layer(x[i : i + 1], keep=kept, head_gate=gates[i]))
    close(layer.trace(x, keep=keep, head_gate=gates).out, together)


@given(cases(rotary=True), st.integers(1, 40))
def test_rotary_scores_depend_only_on_the_distance(case, shift):
    base = case.cfg.rotary_base
    trace = case.layer().trace(case.x())
    here = torch.arange(case.n)
    q, k = rotate(trace.q, here + shift, base), rotate(trace.k, here + shift, base)
    k_of_head = k.repeat_interleave(case.cfg.heads_per_kv, dim=1)
    close(q @ k_of_head.transpose(2, 3) * case.cfg.head_dim**-0.5, trace.scores)


@given(cases(rotary=True))
def test_rotary_keeps_lengths_leaves_values_alone_and_starts_at_no_turn(case):
    trace = case.layer().trace(case.x())
    close(trace.q_rot.norm(dim=-1), trace.q.norm(dim=-1))
    close(trace.k_rot.norm(dim=-1), trace.k.norm(dim=-1))
    close(trace.q_rot[:, :, 0], trace.q[:, :, 0])
    plain = GroupedQueryAttention(replace(case.cfg, rotary_base=None)).double().trace(case.x())
    assert trace.v.equal(plain.v)
    if case.n > 1:
        assert not torch.allclose(trace.q_rot[:, :, 1:], plain.q_rot[:, :, 1:])
        assert not torch.allclose(trace.scores, plain.scores)


@given(cases(rotary=False))
def test_without_rotary_nothing_is_turned_and_nothing_is_copied(case):
    trace = case.layer().trace(case.x())
    assert trace.q_rot.equal(trace.q)
    assert trace.k_rot.data_ptr() == trace.k.data_ptr()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=cases(max_d_model=32))
def test_no_pass_changes_its_arguments_or_an_earlier_trace(dtype, case):
    layer, x, arguments = case.layer(dtype), case.x(dtype), case.arguments(dtype)
    kept = {name: None if value is None else value.clone() for name, value in (("x", x), *arguments.items())}
    first = layer.trace(x, **arguments)
    scores, pattern = first.scores.clone(), first.pattern.clone()
    with torch.no_grad():
        layer(x, **arguments)
    layer.trace(-x, **arguments)
    assert first.scores.equal(scores)
    assert first.pattern.equal(pattern)
    for name, value in {"x": x, **arguments}.items():
        assert value is None or value.equal(kept[name])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@given(case=cases(max_d_model=32))
def test_gradients_flow_and_stay_finite_with_padding_too(dtype, case):
    layer, x = case.layer(dtype), case.x(dtype).requires_grad_()
    layer(x, **case.arguments(dtype)).float().square().sum().backward()
    assert x.grad is not None
    assert x.grad.isfinite().all()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in layer.parameters())


@settings(max_examples=8)
@given(cases(max_d_model=16))
def test_gradients_are_the_slopes_of_forward(case):
    case = replace(case, n=min(case.n, 4), b=min(case.b, 2))
    layer = case.layer()
    assert torch.autograd.gradcheck(lambda x: layer(x, **case.arguments()), case.x().requires_grad_(), fast_mode=True)


class BigBuffers(TorchDispatchMode):
    """Keeps every tensor that an operation makes, and counts the memory blocks of at least ``n_bytes``."""

    def __init__(self, n_bytes):
        super().__init__()
        self.n_bytes, self.made = n_bytes, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        self.made += [made for made in tree_leaves(result) if isinstance(made, torch.Tensor)]
        return result

    @property
    def count(self):
        storages = {made.untyped_storage().data_ptr(): made.untyped_storage().nbytes() for made in self.made}
        return sum(n_bytes >= self.n_bytes for n_bytes in storages.values())


@pytest.mark.parametrize(("dtype", "n_buffers"), [(torch.float32, 2), (torch.float64, 2), (torch.bfloat16, 3)], ids=str)
def test_a_trace_of_a_long_sentence_makes_scores_and_pattern_and_no_third_copy(dtype, n_buffers):
    """In half precision the pattern is rounded once more for its product with V: the one buffer that is not kept."""
    cfg = AttentionConfig(12, 6, 3, 4, mask=CAUSAL)
    layer, x = GroupedQueryAttention(cfg).to(dtype), numbers(1, 300, 12, seed=1).to(dtype)
    with BigBuffers(6 * 300 * 300 * dtype.itemsize) as buffers:
        layer.trace(x)
    assert buffers.count == n_buffers


def test_a_trace_carries_no_gradients():
    trace = DISTINCT.layer().trace(DISTINCT.x().requires_grad_())
    assert not any(getattr(trace, name).requires_grad for name in ("x", "q", "pattern", "out", "W_O"))


def test_both_paths_work_in_inference_mode():
    layer, x = DISTINCT.layer(torch.float32), DISTINCT.x(torch.float32)
    with torch.inference_mode():
        close(layer.trace(x).out, layer(x), torch.float32)
        assert layer.trace(x).head_writes().shape == (5, 6, 7, 10)
        made_inside = DISTINCT.layer(torch.float32)
        close(made_inside.trace(x).out, layer(x), torch.float32)
