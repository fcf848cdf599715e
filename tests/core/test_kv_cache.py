"""Laws of the running caches, and of attention that reads them: cached is uncached, in g heads and never in h."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, ConfigError
from mha_core.kv_cache import FullCache, RingCache, RunningCache, cache_nbytes
from mha_core.masks import CAUSAL, FULL, SlidingWindow
from mha_core.trace import CACHED_STEPS
from tests.core import oracle
from tests.core.cases import DISTINCT, TOLERANCE, Case, cases, numbers, sees, splits

# b sentences, g KV heads, n_max tokens, d_k numbers, w the width of a window: every size is another number.
B, G, N_MAX, D_K, W = 2, 3, 11, 6, 5


def close(actual, expected, dtype=torch.float64):
    assert_close(actual, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype], check_dtype=False)


def cache_of(layer: GroupedQueryAttention, b: int, n_max: int, kind: str) -> RunningCache:
    """The cache that a layer makes for itself, one that keeps every token, or a ring wider than it need be."""
    cfg, dtype = layer.cfg, layer.W_K.weight.dtype
    if kind == "own":
        return layer.new_cache(b, n_max)
    room = cfg.mask.width + 2 if kind == "wide ring" and isinstance(cfg.mask, SlidingWindow) else n_max
    shape = (b, cfg.n_kv_heads, room, cfg.head_dim)
    return (RingCache if room != n_max else FullCache)((shape, shape), dtype=dtype)


def read_through(layer, case: Case, cache, pieces, dtype=torch.float64):
    """The outputs of ``decode`` for a text in pieces, side by side."""
    x, keep, gate = case.x(dtype), case.keep, case.gate(dtype)
    outs = [
        layer.decode(x[:, start:stop], cache, keep=None if keep is None else keep[:, :stop], head_gate=gate)
        for start, stop in pieces
    ]
    return torch.cat(outs, 1)


kinds = st.sampled_from(["own", "full", "wide ring"])
looking_back = cases(max_d_model=96).map(
    lambda case: replace(case, cfg=replace(case.cfg, mask=CAUSAL if case.cfg.mask == FULL else case.cfg.mask))
)


@given(looking_back, kinds, st.data())
def test_cached_is_uncached(case, kind, data):
    layer, pieces = case.layer(), data.draw(splits(case.n))
    out = read_through(layer, case, cache_of(layer, case.b, case.n, kind), pieces)
    with torch.no_grad():
        close(out, layer(case.x(), **case.arguments()))


@pytest.mark.parametrize("g", [1, 2, 3, 6])
@pytest.mark.parametrize("mask", [CAUSAL, SlidingWindow(1), SlidingWindow(4), SlidingWindow(13)], ids=str)
@pytest.mark.parametrize("base", [None, 100.0])
def test_cached_is_uncached_for_every_g_mask_and_kind_of_positions(g, mask, base):
    case = replace(DISTINCT, cfg=replace(DISTINCT.cfg, n_kv_heads=g, mask=mask, rotary_base=base), n=13)
    layer, pieces = case.layer(), [(0, 7), *((n, n + 1) for n in range(7, 13))]
    with torch.no_grad():
        expected = layer(case.x())
    for kind in ("own", "full", "wide ring"):
        close(read_through(layer, case, cache_of(layer, 5, 13, kind), pieces), expected)


@given(cases(max_d_model=96, mask=FULL), st.integers(1, 12))
def test_under_the_full_mask_the_newest_tokens_see_all_and_come_out_the_same(case, m):
    m = min(m, case.n)
    layer = case.layer()
    pieces = [(0, case.n - m), (case.n - m, case.n)] if m < case.n else [(0, m)]
    out = read_through(layer, case, layer.new_cache(case.b, case.n), pieces)
    with torch.no_grad():
        close(out[:, -m:], layer(case.x(), **case.arguments())[:, -m:])


@given(looking_back, st.data())
def test_a_step_with_a_cache_is_the_plain_loop_over_heads(case, data):
    """The oracle knows no cache: its last rows are what the newest tokens must find."""
    layer, cfg = case.layer(), case.cfg
    cache, pieces, weights = layer.new_cache(case.b, case.n), data.draw(splits(case.n)), oracle.weights_of(layer)
    keep, gate = case.keep, case.gate()
    for start, stop in pieces:
        so_far = None if keep is None else keep[:, :stop]
        trace = layer.trace_decode(case.x()[:, start:stop], cache, keep=so_far, head_gate=gate)
        for sentence in range(case.b):
            steps = oracle.attention(
                case.x()[sentence, :stop].numpy(),
                weights,
                h=cfg.n_heads,
                g=cfg.n_kv_heads,
                d_k=cfg.head_dim,
                sees=sees(cfg.mask, None if keep is None else keep[sentence].numpy()),
                rotary_base=cfg.rotary_base,
                gate=None if gate is None else gate.numpy(),
            )
            for name in ("x", "q", "k", "v", "q_rot", "k_rot", "z", "concat", "out"):
                close(getattr(trace, name)[sentence].numpy(), steps[name][..., start:stop, :])
            for name in ("scores", "pattern", "mask"):
                close(
                    getattr(trace, name)[sentence].numpy(),
                    steps[name][..., start:stop, :][..., trace.positions.numpy()],
                )


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@given(case=looking_back, data=st.data())
def test_decode_and_trace_decode_agree_in_every_number_type(dtype, case, data):
    layer, pieces = case.layer(dtype), data.draw(splits(case.n))
    out = read_through(layer, case, layer.new_cache(case.b, case.n), pieces, dtype)
    cache, traced = layer.new_cache(case.b, case.n), []
    for start, stop in pieces:
        keep = None if case.keep is None else case.keep[:, :stop]
        gate = case.gate(dtype)
        traced.append(layer.trace_decode(case.x(dtype)[:, start:stop], cache, keep=keep, head_gate=gate).out)
    assert out.dtype is dtype
    assert out.isfinite().all()
    close(torch.cat(traced, 1), out, dtype)
    with torch.no_grad():
        close(out, layer(case.x(dtype), **case.arguments(dtype)), dtype)


SIZES = {"b": 5, "m": 2, "n": 9, "h": 6, "g": 3, "d_k": 4, "d_model": 10, "h*d_k": 24}


@pytest.mark.parametrize("step", CACHED_STEPS, ids=lambda step: step.name)
def test_every_step_has_the_shape_its_axes_say(step):
    assert len(set(SIZES.values())) == len(SIZES)
    layer, x = DISTINCT.layer(), numbers(5, 9, 10, seed=1)
    cache = layer.new_cache(5, 9)
    layer.decode(x[:, :7], cache)
    trace = layer.trace_decode(x[:, 7:], cache)
    assert getattr(trace, step.name).shape == tuple(SIZES[axis] for axis in step.axes)
    assert trace.array(step.name).shape == tuple(SIZES[axis] for axis in step.axes[1:])
    assert not trace.array(step.name).flags.writeable
    names = [other.name for other in CACHED_STEPS]
    assert set(step.reads) <= set(names[: names.index(step.name)])
    assert trace.positions.tolist() == list(range(9))


def test_what_a_trace_keeps_does_not_change_with_the_next_token():
    case = replace(DISTINCT, cfg=replace(DISTINCT.cfg, mask=SlidingWindow(2)))
    layer, cache = case.layer(), case.layer().new_cache(5, 7)
    traces = [layer.trace_decode(case.x()[:, at : at + 1], cache) for at in range(7)]
    whole = layer.trace(case.x())
    for at, trace in enumerate(traces):
        close(trace.k_rot, whole.k_rot[:, :, at : at + 1])
        close(trace.v, whole.v[:, :, at : at + 1])


# Memory.


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("g", [6, 3, 1])
def test_the_bytes_of_a_cache_are_2_b_g_n_max_d_k_numbers_and_h_is_not_in_it(dtype, g):
    for mask, kept in ((CAUSAL, 11), (SlidingWindow(5), 5), (SlidingWindow(11), 11), (SlidingWindow(99), 11)):
        layer = GroupedQueryAttention(AttentionConfig(10, 6, g, 4, mask=mask)).to(dtype)
        cache = layer.new_cache(7, 11)
        assert cache.nbytes == 2 * 7 * g * kept * 4 * dtype.itemsize
        assert cache.nbytes == cache_nbytes([(7, g, kept, 4)] * 2, bytes_per_number=dtype.itemsize)
        assert cache.room == kept


@pytest.mark.parametrize(("bits", "d_k", "row"), [(8, 6, 6), (8, 7, 7), (4, 6, 3), (4, 7, 4), (4, 1, 1)])
def test_the_bytes_of_a_quantised_cache_are_its_codes_and_a_scale_per_row(bits, d_k, row):
    shapes = [(B, G, N_MAX, d_k)] * 2
    cache = FullCache(shapes, bits=bits)
    assert cache.nbytes == 2 * B * G * N_MAX * (row + 4) == cache_nbytes(shapes, bits=bits)


@given(st.integers(1, 40))
def test_bytes_used_grow_with_every_token_until_the_ring_is_full(n_steps):
    cache = RingCache([(B, G, W, D_K)] * 2, dtype=torch.float64)
    for seen in range(n_steps):
        assert cache.nbytes_used == 2 * B * G * D_K * 8 * min(seen, W)
        assert cache.size == min(seen, W)
        cache.update(*numbers(2, B, G, 1, D_K, seed=seen))
    assert cache.nbytes == 2 * B * G * D_K * 8 * W


class Made(TorchDispatchMode):
    """The sizes of the tensors that calls under it make; views of what went in are none."""

    def __init__(self):
        super().__init__()
        self.sizes = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        given, made = ([leaf for leaf in tree_leaves(t) if isinstance(leaf, torch.Tensor)] for t in (args, out))
        known = {t.untyped_storage().data_ptr() for t in given}
        self.sizes += [t.numel() for t in made if t.untyped_storage().data_ptr() not in known]
        return out


@pytest.mark.parametrize("g", [8, 4, 1])
@pytest.mark.parametrize("mask", [CAUSAL, SlidingWindow(300)], ids=str)
def test_a_step_copies_nothing_of_the_cache_and_never_expands_it(g, mask):
    layer = GroupedQueryAttention(AttentionConfig(16, 8, g, 2, rotary_base=100.0, mask=mask)).requires_grad_(False)
    cache = layer.new_cache(1, 500)
    layer.decode(numbers(1, 450, 16, seed=1).float(), cache)
    layer.decode(numbers(1, 1, 16, seed=2).float(), cache)
    with Made() as made:
        layer.decode(numbers(1, 1, 16, seed=3).float(), cache)
    # 300 keys of one head are 600 numbers; a step makes vectors of one token only.
    assert max(made.sizes) < 100


def test_what_comes_back_of_a_full_cache_are_views():
    cache = FullCache([(B, G, N_MAX, D_K)] * 2, dtype=torch.float64)
    keys, values = cache.update(*numbers(2, B, G, 7, D_K, seed=1))
    more, _ = cache.update(*numbers(2, B, G, 1, D_K, seed=2))
    assert keys.shape == (B, G, 7, D_K)
    assert more.shape == (B, G, 8, D_K)
    assert keys.data_ptr() == more.data_ptr() != values.data_ptr()


def test_decoding_leaves_no_graph_behind():
    layer = DISTINCT.layer()
    assert layer.W_K.weight.requires_grad
    cache = layer.new_cache(5, 7)
    assert not layer.decode(DISTINCT.x(), cache).requires_grad
    assert not any(t.requires_grad for rows in cache._rows for t in rows.tensors())


# What is held, and where it stands.


@given(st.sampled_from([RingCache, FullCache]), st.sampled_from([None, 8, 4]), st.data())
def test_every_row_that_comes_back_is_the_row_of_its_position(kind, bits, data):
    n = data.draw(st.integers(1, N_MAX))
    text = numbers(2, B, G, n, D_K, seed=n)
    cache = kind([(B, G, W if kind is RingCache else N_MAX, D_K)] * 2, dtype=torch.float64, bits=bits)
    for start, stop in data.draw(splits(n)):
        before = cache.size
        keys, values = cache.update(*text[:, :, :, start:stop])
        positions = cache.positions(keys.shape[2])
        # All that a window of W tokens may see: from the last but W - 1 before the first new token on.
        assert set(range(max(0, start - W + 1), stop)) <= set(positions.tolist())
        assert len(set(positions.tolist())) == keys.shape[2] <= before + stop - start
        for came, whole in ((keys, text[0]), (values, text[1])):
            size = whole[:, :, positions].abs().amax(-1, keepdim=True)
            allowed = 1e-12 if bits is None else size / (2 ** (bits - 1) - 1) * 0.50001
            assert ((came - whole[:, :, positions]).abs() <= allowed).all()
        newest = cache.newest(stop - start)
        assert positions[newest : newest + stop - start].tolist() == list(range(start, stop))
    assert cache.seen == n
    assert cache.size == min(n, cache.room)


def test_a_full_cache_says_so_and_stays_as_it_was():
    cache = FullCache([(B, G, N_MAX, D_K)] * 2, dtype=torch.float64)
    text = numbers(2, B, G, N_MAX + 1, D_K, seed=3)
    cache.update(*text[:, :, :, :9])
    with pytest.raises(ConfigError, match=r"room for 11 tokens, and 12 are too many"):
        cache.update(*text[:, :, :, 9:])
    assert cache.seen == 9
    keys, _ = cache.update(*text[:, :, :, 9:11])
    close(keys, text[0, :, :, :11])


@pytest.mark.parametrize("kind", [FullCache, RingCache])
def test_a_cache_that_is_reset_is_as_new_and_a_copy_goes_its_own_way(kind):
    cache = kind([(B, G, W, D_K)] * 2, dtype=torch.float64)
    first, second = numbers(2, 2, B, G, 3, D_K, seed=4)
    cache.update(*first)
    twin = cache.copy()
    cache.reset()
    assert cache.size == cache.nbytes_used == 0
    close(cache.update(*second)[0], second[0])
    close(twin.update(*second[:, :, :, :1])[0], torch.cat((first[0], second[0, :, :, :1]), 2))


@pytest.mark.parametrize(("room", "bits", "told"), [(0, None, "n_max = 0"), (5, 3, "4 or 8 bits, not 3"), (5, 0, "0")])
def test_a_cache_that_cannot_be_is_told_why(room, bits, told):
    with pytest.raises(ConfigError, match=told):
        FullCache([(B, G, room, D_K)], bits=bits)


# Uneven prompts.


@given(cases(max_d_model=64, rotary=True), st.sampled_from([CAUSAL, SlidingWindow(3)]), st.lists(st.integers(0, 5)))
def test_sentences_padded_in_front_go_on_as_each_would_alone(case, mask, paddings):
    cfg = replace(case.cfg, mask=mask)
    layer, lengths = GroupedQueryAttention(cfg).double(), [7 - padding for padding in [*paddings, 0, 2, 5][:3]]
    x = numbers(3, 10, cfg.d_model, seed=case.seed)
    keep = torch.arange(10) >= torch.tensor([[7 - length] for length in lengths])
    cache = layer.new_cache(3, 10)
    out = [layer.decode(x[:, :7], cache, keep=keep[:, :7])]
    out += [layer.decode(x[:, at : at + 1], cache, keep=keep[:, : at + 1]) for at in (7, 8, 9)]
    for sentence, length in enumerate(lengths):
        alone = x[sentence : sentence + 1, 7 - length :]
        with torch.no_grad():
            close(torch.cat(out, 1)[sentence : sentence + 1, 7 - length :], layer(alone))


# Quantised.


def rounded_by_hand(row: list[float], bits: int) -> list[float]:
    """One vector of one head, number by number."""
    largest = 2 ** (bits - 1) - 1
    scale = max(abs(number) for number in row) / largest
    return [0.0 if scale == 0 else round(number / scale) * scale for number in row]


@pytest.mark.parametrize("kind", [FullCache, RingCache])
@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("d_k", [1, 6, 7])
def test_rounding_is_the_plain_loop_over_rows_and_heads(kind, bits, d_k):
    text = numbers(2, B, G, 5, d_k, seed=d_k)
    text[0, 1, 2, 3] = 0.0
    cache = kind([(B, G, N_MAX, d_k)] * 2, bits=bits, dtype=torch.float64)
    for came, whole in zip(cache.update(*text), text, strict=True):
        by_hand = [[[rounded_by_hand(row, bits) for row in head] for head in heads] for heads in whole.tolist()]
        assert_close(came, torch.tensor(by_hand, dtype=torch.float64), atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("bits", [8, 4])
def test_a_loud_head_costs_its_quiet_neighbours_and_other_tokens_nothing(bits):
    text = numbers(1, G, 7, D_K, seed=5)
    loud = text.clone()
    loud[:, 1] *= 1000.0
    loud[:, :, 4] *= 1000.0
    quiet = [(head, token) for head in (0, 2) for token in (0, 1, 2, 3, 5, 6)]
    kept = [FullCache([(1, G, 7, D_K)], bits=bits, dtype=torch.float64).update(each)[0] for each in (text, loud)]
    for head, token in quiet:
        assert kept[1][0, head, token].equal(kept[0][0, head, token])


@given(looking_back, st.sampled_from([8, 4]), st.data())
def test_attention_over_a_quantised_cache_is_attention_over_rounded_keys_and_values(case, bits, data):
    layer, cfg = case.layer(), case.cfg
    whole = layer.trace(case.x(), keep=case.keep)
    heads = np.array(oracle.shared_heads(cfg.n_heads, cfg.n_kv_heads))
    k, v = (
        torch.tensor([[[rounded_by_hand(r, bits) for r in head] for head in heads_] for heads_ in t.tolist()]).double()
        for t in (whole.k_rot, whole.v)
    )
    scores = (whole.q_rot @ k[:, heads].mT * cfg.head_dim**-0.5).masked_fill(~whole.mask[:, None], -torch.inf)
    z = scores.softmax(-1).nan_to_num(0.0) @ v[:, heads]
    z = z if case.gate() is None else z * case.gate()[:, None, None]
    with torch.no_grad():
        expected = layer.W_O(z.transpose(1, 2).flatten(2))
    out = read_through(layer, case, layer.new_cache(case.b, case.n, bits=bits), data.draw(splits(case.n)))
    assert_close(out, expected, atol=1e-4, rtol=1e-4)


def test_fewer_bits_cost_more():
    layer = GroupedQueryAttention(AttentionConfig(24, 6, 3, 8, mask=CAUSAL, rotary_base=100.0)).double()
    x = numbers(2, 13, 24, seed=6)
    with torch.no_grad():
        exact = layer(x)
    errors = [float((layer.decode(x, layer.new_cache(2, 13, bits=bits)) - exact).abs().max()) for bits in (8, 4)]
    assert 0 < errors[0] < 0.01 < errors[1] < 0.3
    assert layer.new_cache(2, 13, bits=4).nbytes < layer.new_cache(2, 13, bits=8).nbytes
