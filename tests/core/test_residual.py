"""The residual stream of a token, held against a whole model in plain numpy: writes, sums, lens and attribution."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from mha_core.analysis.residual import KINDS, attribution_of, collected, residual_of
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL
from mha_core.trace import ModelTrace
from mha_core.transformer import Transformer, TransformerConfig
from tests.core import oracle
from tests.core.cases import numbers

D, H, G, D_K, N, ROW, VOCAB, LAYERS, D_MLP = 18, 6, 2, 4, 5, 3, 23, 3, 31
SIZES = {"h": H, "g": G, "d_k": D_K, "rotary_base": 50.0}
WORD, AGAINST = 19, 7


def model_of(*, bias: bool = True, positions: int | None = 9, **changes) -> Transformer:
    """A random model whose norms have gains and biases of their own, as trained ones have."""
    sizes = {"d_model": D, "n_heads": H, "n_kv_heads": G, "head_dim": D_K} | changes
    attention = AttentionConfig(**sizes, bias=bias, rotary_base=None if "head_dim" in changes else 50.0, mask=CAUSAL)
    cfg = TransformerConfig(attention, VOCAB, n_layers=LAYERS, d_mlp=D_MLP, n_positions=positions)
    model = Transformer(cfg).requires_grad_(False)
    norms = [part for part in model.modules() if isinstance(part, torch.nn.LayerNorm)]
    for i, norm in enumerate(norms):
        norm.weight.copy_(1 + 0.4 * numbers(cfg.attention.d_model, seed=70 + i))
        norm.bias.copy_(0.7 * numbers(cfg.attention.d_model, seed=90 + i))
    return model


def traced(model: Transformer, n: int = N) -> ModelTrace:
    return model.trace(torch.tensor([[(5 * i + 2) % VOCAB for i in range(n)]]))


@pytest.fixture
def model():
    return model_of().double()


@pytest.fixture
def found(model):
    return residual_of(model, traced(model), ROW)


def normed(x, norm):
    """LayerNorm of one vector, number by number."""
    mean = sum(x) / len(x)
    spread = np.sqrt(sum((value - mean) ** 2 for value in x) / len(x) + norm.eps)
    gain, shift = norm.weight.numpy(), norm.bias.numpy()
    return np.array([(x[i] - mean) / spread * gain[i] + shift[i] for i in range(len(x))])


def plain(model, row=ROW):
    """The whole pass of the first sentence again: (kind, layer, head) -> write for the row, and the streams."""
    ids = [(5 * i + 2) % VOCAB for i in range(N)]
    stream = model.embed.weight.numpy()[ids] + model.position.weight.numpy()[:N]
    writes, streams = {("embedding", -1, -1): stream[row]}, [stream[row]]
    for layer, block in enumerate(model.blocks):
        x = np.stack([normed(token, block.attention_norm) for token in stream])
        weights = oracle.weights_of(block.attention)
        steps = oracle.attention(x, weights, sees=lambda i, j: j <= i, **SIZES)
        for head in range(H):
            writes["head", layer, head] = steps["head_writes"][head, row]
        writes["output bias", layer, -1] = weights.bias_o
        stream = stream + steps["out"]
        streams.append(stream[row])
        x = np.stack([normed(token, block.mlp_norm) for token in stream])
        inner = x @ block.mlp.up.weight.numpy().T + block.mlp.up.bias.numpy()
        inner = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
        written = inner @ block.mlp.down.weight.numpy().T + block.mlp.down.bias.numpy()
        writes["mlp", layer, -1] = written[row]
        stream = stream + written
        streams.append(stream[row])
    return writes, streams


def plain_logits(model, stream):
    return np.array([normed(stream, model.final_norm) @ word for word in model.unembed.weight.numpy()])


def test_every_write_is_that_of_the_plain_model_in_its_order(model, found):
    writes, _ = plain(model)
    assert [(part.kind, part.layer, part.head) for part in found.parts] == list(writes)
    for part, expected in zip(found.parts, writes.values(), strict=True):
        np.testing.assert_allclose(part.write, expected, atol=1e-12, err_msg=part.name)
        assert part.norm == pytest.approx(np.sqrt(sum(expected**2)))


def test_every_direction_is_against_the_stream_that_stood_before(model, found):
    _, streams = plain(model)
    assert found.parts[0].cosine is None
    for stage, before in zip(found.stages[1:], streams, strict=False):
        for part in (*stage.parts, stage.whole):
            lengths = np.sqrt(sum(part.write**2)) * np.sqrt(sum(before**2))
            assert part.cosine == pytest.approx(sum(part.write * before) / lengths), part.name


def test_the_parts_add_up_to_the_stream_after_every_stage(model, found):
    _, streams = plain(model)
    assert len(found.stages) == 1 + 2 * LAYERS
    for stage, expected in zip(found.stages, streams, strict=True):
        np.testing.assert_allclose(stage.stream, expected, atol=1e-12)
        assert stage.norm == pytest.approx(np.sqrt(sum(expected**2)))
        np.testing.assert_allclose(sum(part.write for part in stage.parts), stage.whole.write, atol=1e-12)
    assert found.deviation < 1e-12 < found.tolerance


def test_a_stream_that_the_parts_do_not_explain_is_measured(model):
    trace = traced(model)
    for place in (1, len(trace.parts) - 1):
        after = trace.parts[place].after.clone()
        after[0, ROW, 4] += 0.25
        parts = list(trace.parts)
        parts[place] = replace(parts[place], after=after)
        found = residual_of(model, replace(trace, parts=tuple(parts)), ROW)
        assert found.deviation == pytest.approx(0.25)
        assert [stage.deviation > 0.2 for stage in found.stages].index(True) == place + 1


def test_the_lens_reads_every_stream_as_the_plain_model_reads_the_last(model, found):
    _, streams = plain(model)
    for stage, stream in zip(found.stages, streams, strict=True):
        expected = plain_logits(model, stream)
        np.testing.assert_allclose(stage.lens.logits, expected, atol=1e-11)
        chances = np.exp(expected) / np.exp(expected).sum()
        np.testing.assert_allclose(stage.lens.probabilities, chances, atol=1e-12)
        order = sorted(range(VOCAB), key=lambda i: -expected[i])
        assert stage.lens.top(4) == order[:4]
        assert [stage.lens.rank(word) for word in order] == list(range(1, VOCAB + 1))


def test_the_last_lens_gives_the_models_own_logits_and_word(model, found):
    logits = traced(model).logits[0, ROW].numpy()
    np.testing.assert_array_equal(found.logits, logits)
    assert found.lens_deviation < 1e-12
    assert found.predicted == int(logits.argmax()) == found.stages[-1].lens.top(1)[0]
    wrong = replace(traced(model), logits=traced(model).logits + 0.125)
    assert residual_of(model, wrong, ROW).lens_deviation == pytest.approx(0.125)


def test_the_contributions_are_those_of_the_plain_model(model, found):
    writes, streams = plain(model)
    shares = attribution_of(model, found, WORD, AGAINST)
    direction = model.unembed.weight.numpy()[WORD] - model.unembed.weight.numpy()[AGAINST]
    gain, last = model.final_norm.weight.numpy(), streams[-1]
    spread = np.sqrt(sum((last - sum(last) / D) ** 2) / D + model.final_norm.eps)
    expected = {key: sum((v - sum(v) / D) / spread * gain * direction) for key, v in writes.items()}
    expected["norm bias", -1, -1] = sum(model.final_norm.bias.numpy() * direction)
    assert shares.spread == pytest.approx(spread)
    assert len(shares.parts) == len(expected)
    for part, value in zip(shares.parts, shares.values, strict=True):
        assert value == pytest.approx(expected[part.kind, part.layer, part.head], abs=1e-12), part.name
    assert list(np.abs(shares.values)) == sorted(np.abs(shares.values), reverse=True)


def test_the_contributions_sum_to_the_true_difference_of_the_logits(model, found):
    shares = attribution_of(model, found, WORD, AGAINST)
    logits = plain_logits(model, plain(model)[1][-1])
    assert shares.difference == pytest.approx(logits[WORD] - logits[AGAINST], abs=1e-11)
    assert shares.total == pytest.approx(shares.difference, abs=1e-11)
    assert shares.deviation == pytest.approx(0, abs=1e-11)
    other = replace(found, logits=np.where(np.arange(VOCAB) == WORD, found.logits + 0.5, found.logits))
    assert attribution_of(model, other, WORD, AGAINST).deviation == pytest.approx(0.5)


def test_the_other_way_round_every_contribution_turns_and_one_word_has_none(model, found):
    one, other = attribution_of(model, found, WORD, AGAINST), attribution_of(model, found, AGAINST, WORD)
    np.testing.assert_allclose(one.values, -other.values, atol=1e-14)
    same = attribution_of(model, found, WORD, WORD)
    assert not same.values.any()
    assert same.difference == same.deviation == 0


def test_a_bias_of_the_unembedding_is_a_part_of_its_own(model):
    model.unembed.bias = torch.nn.Parameter(numbers(VOCAB, seed=8), requires_grad=False)
    found = residual_of(model, traced(model), ROW)
    shares = attribution_of(model, found, WORD, AGAINST)
    by_kind = {part.kind: value for part, value in zip(shares.parts, shares.values, strict=True)}
    bias = model.unembed.bias.numpy()
    assert by_kind["unembedding bias"] == pytest.approx(bias[WORD] - bias[AGAINST])
    assert max(found.lens_deviation, shares.deviation) < 1e-11
    assert set(by_kind) == set(KINDS) - {"attention"}


@pytest.mark.parametrize(
    ("n", "row", "changes"),
    [
        (1, 0, {}),
        (7, 6, {"d_model": 24, "n_heads": 1, "n_kv_heads": 1, "head_dim": 24}),
        (7, 2, {"d_model": 8, "n_heads": 8, "n_kv_heads": 1, "head_dim": 1}),
        (6, 5, {"d_model": 128, "n_heads": 64, "n_kv_heads": 4, "head_dim": 2, "bias": False}),
    ],
    ids=["one token", "one head", "d_k 1, g 1", "64 heads, no bias"],
)
def test_all_sums_close_in_float32(n, row, changes):
    model = model_of(**changes)
    found = residual_of(model, traced(model, n), row)
    shares = attribution_of(model, found, WORD, AGAINST)
    assert found.deviation <= found.tolerance < 1e-3
    assert found.lens_deviation <= found.logit_tolerance < 1e-3
    assert shares.deviation <= shares.tolerance == found.logit_tolerance
    heads, bias = changes.get("n_heads", H), changes.get("bias", True)
    assert len(found.parts) == 1 + LAYERS * (heads + bias + 1)


def test_the_smallest_are_collected_and_nothing_is_lost(model, found):
    shares = attribution_of(model, found, WORD, AGAINST)
    shown, left_out, rest = collected(shares, 5)
    assert (len(shown.parts), left_out) == (5, len(shares.parts) - 5)
    assert shown.total + rest == pytest.approx(shares.total)
    assert min(np.abs(shown.values)) >= max(np.abs(shares.values[5:]))
    assert collected(shares, len(shares.parts)) == (shares, 0, 0.0)


def test_every_part_has_a_name_of_its_own(found):
    names = [part.name for part in (*found.parts, *(stage.whole for stage in found.stages[1:] if stage.parts[1:]))]
    assert len(set(names)) == len(names)
    assert {"embedding", "L1H5", "L2 MLP", "L0 attention", "L2 output bias"} <= set(names)
