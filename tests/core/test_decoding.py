"""Laws of writing on: with and without a cache the same text, draws that obey their limits, work that is counted."""

from collections import Counter
from dataclasses import replace
from itertools import islice, pairwise

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.testing import assert_close

from mha_core.config import AttentionConfig, ConfigError
from mha_core.decoding import (
    CacheCost,
    DecodeSettings,
    DecodeStep,
    Decoding,
    Recomputed,
    Sampling,
    cache_cost,
    decode_problems,
    generate,
    pass_work,
)
from mha_core.latent import truncated
from mha_core.masks import CAUSAL, FULL, Mask, SlidingWindow
from mha_core.transformer import Transformer, TransformerConfig
from tests.core.cases import configs, numbers

VOCAB = 23
ATTENTION = AttentionConfig(12, 6, 3, 4, rotary_base=100.0, mask=CAUSAL, seed=3)
CFG = TransformerConfig(ATTENTION, vocab_size=VOCAB, n_layers=2, d_mlp=17)
PROMPT = [5, 1, 19, 7, 2]


def model_of(cfg: TransformerConfig = CFG, mask: Mask = CAUSAL) -> Transformer:
    model = Transformer(cfg).double()
    model.use_mask(mask)
    return model.requires_grad_(False)


def compared(step: DecodeStep) -> Recomputed:
    assert step.recomputed is not None
    return step.recomputed


def tokens_of(steps):
    return [step.token for step in steps]


@st.composite
def models(draw):
    attention = draw(configs(max_d_model=48))
    mask = CAUSAL if attention.mask == FULL else attention.mask
    n_positions = draw(st.none() | st.just(13))
    return TransformerConfig(replace(attention, mask=mask), VOCAB, draw(st.integers(1, 3)), 17, n_positions)


prompts = st.lists(st.integers(0, VOCAB - 1), min_size=1, max_size=9)


# Cached is uncached.


@settings(max_examples=25)
@given(models(), prompts, st.sampled_from([0.0, 0.7]), st.integers(0, 9))
def test_with_and_without_a_cache_the_same_text_from_the_same_probabilities(cfg, prompt, temperature, seed):
    model = Transformer(cfg).double()
    how = DecodeSettings(Sampling(temperature), seed=seed, n_max=13)
    cached = list(generate(model, prompt, how, n_new=5))
    uncached = list(generate(model, prompt, replace(how, cached=False), n_new=5))
    assert tokens_of(cached) == tokens_of(uncached)
    for a, b in zip(cached, uncached, strict=True):
        assert_close(a.logits, b.logits, atol=1e-10, rtol=1e-10)
    assert [(step.number, step.n_read, step.n_seen) for step in cached] == [
        (number, len(prompt) if number == 0 else 1, len(prompt) + number) for number in range(len(cached))
    ]


@settings(max_examples=25)
@given(models(), prompts)
def test_every_layer_of_a_watched_step_is_the_newest_rows_of_the_whole_pass(cfg, prompt):
    model = Transformer(cfg).double()
    how = DecodeSettings(n_max=13, watch=True)
    tokens = list(prompt)
    for cached, uncached in zip(
        generate(model, prompt, how, n_new=4),
        generate(model, prompt, replace(how, cached=False), n_new=4),
        strict=True,
    ):
        whole = model.trace(torch.tensor([tokens]))
        for layer, other, trace in zip(cached.layers, uncached.layers, whole.layers, strict=True):
            new = slice(len(tokens) - cached.n_read, len(tokens))
            for name in ("x", "q", "k", "v", "q_rot", "k_rot", "z", "concat", "out"):
                assert_close(getattr(layer, name), getattr(trace, name)[..., new, :], atol=1e-10, rtol=1e-10)
                assert getattr(other, name).equal(getattr(trace, name)[..., new, :])
            assert_close(layer.pattern, trace.pattern[..., new, :][..., layer.positions], atol=1e-10, rtol=1e-10)
            assert other.pattern.equal(trace.pattern[..., new, :])
            assert_close(layer.pattern.sum(-1), torch.ones(1, cfg.attention.n_heads, cached.n_read).double())
        tokens.append(cached.token)


@pytest.mark.parametrize("window", [1, 3, 4, 99])
def test_a_window_shorter_and_longer_than_the_prompt(window):
    steps = list(generate(model_of(mask=SlidingWindow(window)), PROMPT, DecodeSettings(n_max=13, check=True), n_new=6))
    assert len(steps) == 6
    assert all(compared(step).logit_difference < 1e-10 for step in steps)
    held = [2 * 2 * 3 * 4 * 8 * min(step.n_seen, window) for step in steps]
    assert [step.nbytes_used for step in steps] == held
    assert [step.nbytes_added for step in steps] == [held[0], *(b - a for a, b in pairwise(held))]


def test_a_check_measures_the_difference_and_sees_a_cache_that_was_spoilt():
    decoding = Decoding(model_of(), PROMPT, DecodeSettings(check=True))
    assert compared(decoding.step()).difference < 1e-12
    keys = decoding.caches[1]._rows[0].tensors()[0]
    keys[:, :, 2] += 1.0
    spoilt = compared(decoding.step())
    assert spoilt.difference > 1e-6
    assert spoilt.logit_difference > 1e-4


@settings(max_examples=25)
@given(models(), st.lists(st.integers(0, 5), min_size=3, max_size=3), st.booleans())
def test_several_uneven_prompts_go_on_side_by_side_as_in_one_pass_and_as_each_alone(cfg, paddings, gated):
    model = Transformer(cfg).double()
    ids = numbers(3, 11, seed=1).abs().mul(7).long() % VOCAB
    keep = torch.arange(11) >= torch.tensor([[padding] for padding in paddings])
    # Every sentence has heads of its own switched off.
    gates = [(numbers(3, cfg.attention.n_heads, seed=layer) > 0).double() for layer in range(cfg.n_layers)]
    gates = gates if gated else None
    caches = model.new_caches(3, 11)
    pieces = [(0, 7), (7, 8), (8, 9), (9, 10), (10, 11)]
    logits = [model.decode(ids[:, a:b], caches, keep=keep[:, :b], head_gates=gates) for a, b in pieces]
    together = torch.cat(logits, 1)
    with torch.no_grad():
        whole = model(ids, keep=keep, head_gates=gates)
        assert_close(together[keep], whole[keep], atol=1e-10, rtol=1e-10)
        for sentence, padding in enumerate(paddings):
            own = None if gates is None else [gate[sentence] for gate in gates]
            alone = model(ids[sentence : sentence + 1, padding:], head_gates=own)
            # A table of positions counts the padding too; rotary positions only know distances.
            if cfg.n_positions is None:
                assert_close(together[sentence : sentence + 1, padding:], alone, atol=1e-9, rtol=1e-9)


# Heads switched off half-way.


def logits_by_gates_of_each_token(model, tokens, gates):
    """The uncached pass in which every token has the gates of its time: gates[layer] is (h, n)."""
    stream = model.embedded(torch.tensor([tokens]))
    for block, gate in zip(model.blocks, gates, strict=True):
        trace = block.attention.trace(block.attention_norm(stream))
        z = trace.z * gate[None, :, :, None]
        stream = stream + block.attention.W_O(z.transpose(1, 2).flatten(2))
        stream = stream + block.mlp(block.mlp_norm(stream))
    return model.unembed(model.final_norm(stream))[0, -1]


@pytest.mark.parametrize("mask", [CAUSAL, SlidingWindow(3)], ids=str)
@pytest.mark.parametrize("recompute", [True, False])
def test_a_head_switched_off_half_way(mask, recompute):
    model = model_of(mask=mask)
    off = [torch.ones(6), torch.ones(6)]
    off[0][4] = off[1][1] = 0.0
    decoding = Decoding(model, PROMPT, DecodeSettings(n_max=13))
    before = [decoding.step() for _ in range(3)]
    decoding.switch(off, recompute=recompute)
    for _ in range(3):
        n = len(decoding.tokens)
        gates = torch.stack(off)[:, :, None].repeat(1, 1, n).double()
        if not recompute:
            # The last of the three tokens was chosen, but not yet read: it is the first that meets the new gates.
            gates[:, :, : len(PROMPT) + 2] = 1.0
        tokens = list(decoding.tokens)
        step = decoding.step()
        assert_close(step.logits, logits_by_gates_of_each_token(model, tokens, gates), atol=1e-10, rtol=1e-10)
        if recompute:
            with torch.no_grad():
                alone = model(torch.tensor([tokens]), head_gates=[gate.double() for gate in off])[0, -1]
            assert_close(step.logits, alone, atol=1e-10, rtol=1e-10)
    assert tokens_of(before) == decoding.tokens[5:8]


def test_the_past_cannot_keep_its_heads_where_nothing_is_kept():
    decoding = Decoding(model_of(), PROMPT, DecodeSettings(cached=False))
    with pytest.raises(ConfigError, match="Without a cache"):
        decoding.switch(None, recompute=False)


# Choosing.

logit_lists = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=VOCAB, unique=True)


@given(logit_lists, st.floats(0.01, 1), st.floats(0.05, 5))
def test_top_p_keeps_the_fewest_tokens_that_reach_p(logits, p, temperature):
    logits = torch.tensor(logits)
    plain = Sampling(temperature).chances(logits)
    kept = Sampling(temperature, top_p=p).chances(logits)
    chosen = kept > 0
    # They reach p, and without the least likely of them they would not.
    assert plain[chosen].sum() >= p - 1e-9
    assert plain[chosen].sum() - plain[chosen].min() < p + 1e-9
    assert not chosen.all() or plain.min() == 0 or plain.sum() - plain.min() < p + 1e-9
    assert not (~chosen).any() or plain[chosen].min() >= plain[~chosen].max()
    assert_close(kept[chosen], plain[chosen] / plain[chosen].sum())


@given(logit_lists, st.integers(1, VOCAB), st.floats(0.05, 5))
def test_top_k_keeps_the_k_likeliest(logits, k, temperature):
    k = min(k, len(logits))
    chances = Sampling(temperature, top_k=k).chances(torch.tensor(logits))
    likeliest = sorted(range(len(logits)), key=lambda i: -logits[i])[:k]
    assert set(chances.nonzero().flatten().tolist()) <= set(likeliest)
    plain = Sampling(temperature).chances(torch.tensor(logits))
    assert_close(chances[likeliest], plain[likeliest] / plain[likeliest].sum())


@given(logit_lists, st.sampled_from([1e-9, 1e-300, 5e-324]), st.none() | st.just(1), st.none() | st.just(0.9))
def test_a_temperature_of_nearly_nothing_is_greedy_and_never_nan(logits, temperature, top_k, top_p):
    chances = Sampling(temperature, top_k, top_p).chances(torch.tensor(logits))
    assert chances.isfinite().all()
    assert chances.sum() == pytest.approx(1.0)
    gap = sorted(logits)[-1] - sorted(logits)[-2]
    if gap > 1e-6:
        assert_close(chances, Sampling().chances(torch.tensor(logits)))


@given(logit_lists, st.floats(0.05, 5), st.floats(0.05, 5))
def test_a_lower_temperature_makes_the_likeliest_token_likelier(logits, a, b):
    low, high = sorted((a, b))
    best = torch.tensor(logits).argmax()
    logits = torch.tensor(logits)
    assert Sampling(low).chances(logits)[best] >= Sampling(high).chances(logits)[best] - 1e-12
    assert_close(Sampling(1.0).chances(logits), logits.double().softmax(-1))


def test_tokens_are_drawn_as_often_as_their_chances_say():
    model, how = model_of(), DecodeSettings(Sampling(1.5, top_k=4))
    runs = [next(generate(model, PROMPT, replace(how, seed=seed), n_new=1)) for seed in range(600)]
    drawn = Counter(tokens_of(runs))
    assert len(drawn) == 4
    for token, count in drawn.items():
        # Four standard deviations of 600 draws.
        chance = runs[0].chances[token]
        assert abs(count / 600 - chance) < 4 * (chance * (1 - chance) / 600) ** 0.5
    assert runs[0].probabilities.sum() == pytest.approx(1.0)
    assert (runs[0].chances > 0).sum() == 4


def test_same_seed_same_text_and_another_seed_another():
    texts = [
        tokens_of(generate(model_of(), PROMPT, DecodeSettings(Sampling(2.0), seed=seed), n_new=9)) for seed in (4, 4, 5)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_back_one_step_and_on_again_is_the_same_text():
    how = DecodeSettings(Sampling(2.0), seed=4)
    whole = tokens_of(generate(model_of(), PROMPT, how, n_new=9))
    assert tokens_of(generate(model_of(), PROMPT + whole[:6], how, n_new=3)) == whole[6:]


def test_a_forced_token_is_taken_and_the_draws_behind_it_stay_where_they_were():
    how = DecodeSettings(Sampling(2.0), seed=4)
    free = list(generate(model_of(), PROMPT, how, n_new=5))
    other = (free[2].token + 1) % VOCAB
    forced = list(generate(model_of(), PROMPT, how, n_new=5, forced={2: other}))
    assert [step.forced for step in forced] == [False, False, True, False, False]
    assert tokens_of(forced)[:3] == [*tokens_of(free)[:2], other]
    assert forced[2].logits.equal(free[2].logits)
    again = list(generate(model_of(), [*PROMPT, *tokens_of(free)[:2], other], how, n_new=2))
    assert tokens_of(again) == tokens_of(forced)[3:]


# Where it ends.


def test_a_text_ends_at_its_stop_token_at_n_new_and_where_the_model_reads_no_more():
    free = tokens_of(generate(model_of(), PROMPT, n_new=6))
    at = next(i for i, token in enumerate(free) if token not in free[:i] and i > 1)
    assert tokens_of(generate(model_of(), PROMPT, n_new=6, stop_at=free[at])) == free[: at + 1]
    assert tokens_of(generate(model_of(), PROMPT, DecodeSettings(n_max=7), n_new=6)) == free[:3]
    assert list(generate(model_of(), PROMPT, n_new=0)) == []


def test_whoever_stops_asking_stops_the_work():
    model, calls = model_of(), []
    decode = model.decode
    model.decode = lambda *args, **kwargs: calls.append(1) or decode(*args, **kwargs)
    steps = generate(model, PROMPT, n_new=100)
    assert calls == []
    assert len(list(islice(steps, 3))) == len(calls) == 3


def test_a_prompt_at_the_limit_gives_one_token_and_beyond_it_a_sentence():
    learned = Transformer(replace(CFG, n_positions=5)).double()
    for model, how in ((learned, DecodeSettings()), (model_of(), DecodeSettings(n_max=5))):
        decoding = Decoding(model, PROMPT, how)
        assert not decoding.full
        decoding.step()
        assert decoding.full
        with pytest.raises(ConfigError, match="has reached 5 tokens"):
            decoding.step()
        with pytest.raises(ConfigError, match=r"has 7 tokens and at most 5 can be read; take out at least 2\."):
            Decoding(model, [*PROMPT, 1, 1], how)


@pytest.mark.parametrize(
    ("prompt", "how", "told"),
    [
        ([], DecodeSettings(), "The prompt is empty"),
        ([1, 23], DecodeSettings(), "token = 23 is out of range; token can be 0 to 22"),
        ([1, -1], DecodeSettings(), "token = -1"),
        ([1], DecodeSettings(Sampling(-0.5)), "temperature must be a number from 0 to 100, not -0.5"),
        ([1], DecodeSettings(Sampling(float("nan"))), "not nan"),
        ([1], DecodeSettings(Sampling(1.0, top_k=0)), "top-k = 0 is out of range; top-k can be 1 to 23, nearest is 1"),
        ([1], DecodeSettings(Sampling(1.0, top_k=24)), "top-k can be 1 to 23, nearest is 23"),
        ([1], DecodeSettings(Sampling(1.0, top_p=0.0)), "top-p must be a number above 0 and at most 1, not 0.0"),
        ([1], DecodeSettings(Sampling(1.0, top_p=1.5)), "not 1.5"),
        ([1], DecodeSettings(n_max=0), "n_max = 0|length of the text = 0"),
        ([1], DecodeSettings(bits=5), "4 or 8 bits, not 5"),
    ],
)
def test_what_cannot_work_is_told_before_the_first_step(prompt, how, told):
    with pytest.raises(ConfigError, match=told):
        generate(model_of(), prompt, how, n_new=3)


def test_a_forced_token_outside_the_vocabulary_is_refused_and_nothing_is_lost():
    decoding = Decoding(model_of(), PROMPT)
    for wrong in (23, -1, True):
        with pytest.raises(ConfigError, match="token"):
            decoding.step(forced=wrong)
    assert decoding.tokens == PROMPT
    assert decoding.step(forced=22).token == 22


def test_a_window_of_nothing_is_refused():
    with pytest.raises(ConfigError, match="window = 0 is out of range"):
        model_of(mask=SlidingWindow(0))


def test_the_full_mask_keeps_nothing_but_can_be_decoded_without_a_cache():
    model = model_of(mask=FULL)
    with pytest.raises(ConfigError, match="choose the causal mask, or decode without a cache"):
        Decoding(model, PROMPT)
    assert len(list(generate(model, PROMPT, DecodeSettings(cached=False), n_new=3))) == 3
    one_layer = model_of(replace(CFG, n_layers=1), FULL)
    steps = [
        tokens_of(generate(one_layer, PROMPT, DecodeSettings(Sampling(2.0), cached=cached), n_new=5))
        for cached in (True, False)
    ]
    assert steps[0] == steps[1]


# Work and bytes.


@pytest.mark.parametrize("mask", [CAUSAL, SlidingWindow(3), SlidingWindow(99)], ids=str)
@pytest.mark.parametrize("cached", [True, False])
@pytest.mark.parametrize("rank", [None, 5])
def test_the_formula_is_what_was_counted(mask, cached, rank):
    model = model_of(mask=mask)
    model = model if rank is None else truncated(model, rank)
    how = DecodeSettings(n_max=13, watch=True, cached=cached)
    steps = list(generate(model, PROMPT, how, n_new=5))
    assert [step.formula for step in steps] == [step.counted for step in steps]
    assert len({step.formula for step in steps}) > 1


def test_work_by_hand():
    """h 6, g 3, d_k 4, d_model 12, d_mlp 17, vocabulary 23, 2 layers; one token that looks at 9."""
    qkv, scores, values, out = 12 * (24 + 12 + 12), 6 * 4 * 9, 6 * 9 * 4, 24 * 12
    flops = 2 * (23 * 12 + 2 * (qkv + scores + values + out + 12 * 17 + 17 * 12))
    work = pass_work(model_of(), 1, 9)
    assert work.flops == flops
    moved = 12 + qkv + 48 + (24 + 3 * 4 * 9 + 54) + (54 + 3 * 9 * 4 + 24) + 24 + out + 12
    moved += 12 + 12 * 17 + 17 + 17 + 17 * 12 + 12
    assert work.nbytes == 8 * (2 * moved + 12 + 12 * 23 + 23)


def test_fewer_kv_heads_move_fewer_bytes_and_compute_as_much():
    works = {
        g: pass_work(model_of(replace(CFG, attention=replace(ATTENTION, n_kv_heads=g))), 1, 999) for g in (6, 3, 1)
    }
    for g, work in works.items():
        # In 2 layers, K and V of a KV head: 4 columns of a matrix with 12 rows, and 999 rows of the cache.
        assert work.flops - works[1].flops == 2 * 2 * (g - 1) * 2 * 12 * 4
        assert work.nbytes - works[1].nbytes == 2 * 2 * (g - 1) * 4 * (12 + 1 + 999) * 8


def test_a_smaller_cache_says_what_it_saves_and_costs():
    model, tokens = model_of(), numbers(11, seed=1).abs().mul(7).long()[None]
    plain = cache_cost(model, model, tokens)
    assert plain == CacheCost(plain.nbytes, 2 * 2 * 3 * 4 * 11 * 8, 0.0, plain.loss, plain.loss)
    with torch.no_grad():
        logits = model(tokens)[0]
    assert plain.loss == pytest.approx(float(torch.nn.functional.cross_entropy(logits[:-1], tokens[0, 1:])))
    eight, four = (cache_cost(model, model, tokens, bits=bits) for bits in (8, 4))
    assert 0 < eight.difference < four.difference
    assert four.nbytes == 2 * 2 * 3 * 11 * (2 + 4) < eight.nbytes == 2 * 2 * 3 * 11 * (4 + 4) < plain.nbytes
    latent = cache_cost(model, truncated(model, 5), tokens)
    assert latent.nbytes == 2 * 5 * 11 * 8
    assert latent.difference > 1e-3
    whole = cache_cost(model, truncated(model, 12), tokens)
    rounded = cache_cost(model, truncated(model, 12), tokens, bits=8)
    assert whole.difference < 1e-9 < rounded.difference < 0.1
    assert rounded.nbytes == 2 * 11 * (12 + 4)
    assert cache_cost(model, model, torch.tensor([[3]])).loss is None
    with pytest.raises(ConfigError, match="empty"):
        cache_cost(model, model, torch.zeros(1, 0, dtype=torch.long))


def test_several_texts_cost_what_each_costs_and_padding_counts_for_nothing():
    model, other, texts = model_of(), truncated(model_of(), 5), [[5, 1, 19, 7, 2, 6], [4, 9, 3]]
    rows = torch.tensor([texts[0], [*texts[1], 0, 0, 0]])
    both = cache_cost(model, other, rows, padding=0)
    one, two = (cache_cost(model, other, torch.tensor([text])) for text in texts)
    assert both.nbytes == one.nbytes == 2 * two.nbytes
    assert both.difference == pytest.approx(max(one.difference, two.difference))
    for name in ("loss", "loss_plain"):
        assert getattr(both, name) == pytest.approx((5 * getattr(one, name) + 2 * getattr(two, name)) / 7)


@pytest.mark.parametrize("mask", [CAUSAL, SlidingWindow(3)], ids=["full", "ring"])
@pytest.mark.parametrize("bits", [None, 4])
def test_a_text_that_was_read_before_goes_on_as_if_it_had_been_written(mask, bits):
    model, how = model_of(mask=mask), DecodeSettings(bits=bits, n_max=13, watch=True, check=True)
    written = Decoding(model, PROMPT, how)
    for _ in range(4):
        tokens, step = list(written.tokens), written.step()
        again = Decoding(model, tokens, how, n_before=len(tokens) - step.n_read)
        other = again.step()
        assert_close(other.logits, step.logits, atol=1e-10, rtol=1e-10)
        same = ("n_read", "n_seen", "token", "nbytes_added", "nbytes_used", "formula", "counted")
        assert [getattr(other, name) for name in same] == [getattr(step, name) for name in same]
        assert compared(other).counted == compared(step).counted == compared(step).formula
        for cache, fresh in zip(written.caches, again.caches, strict=True):
            for held, rows in zip(cache.held(), fresh.held(), strict=True):
                assert_close(rows, held, atol=1e-10, rtol=1e-10)
            assert fresh.held_positions().equal(cache.held_positions())
    with pytest.raises(ConfigError, match="n_before"):
        Decoding(model, PROMPT, how, n_before=5)


def test_every_problem_is_told_at_once():
    problems = decode_problems(model_of(), [], DecodeSettings(Sampling(-1.0, 0, 2.0)))
    assert [problem.field for problem in problems] == ["temperature", "top_k", "top_p", "prompt"]
