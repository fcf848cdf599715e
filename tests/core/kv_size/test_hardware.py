"""GPUs, what fits, the roofline's vectors, parameter counts, presets and what other attention would keep."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.kv_size import KVCacheSize, ReadError, read_config
from mha_core.kv_size.hardware import GPU, Load, attention_flops, fit, gpus, roofline
from mha_core.kv_size.presets import DATA, preset_size, presets
from mha_core.kv_size.specs import FullAttention, Layer
from mha_core.kv_size.weights import Parameters, parameters, weight_bytes
from tests.core.kv_size.data import PLAIN, config_of

LLAMA_8B = {**PLAIN, "intermediate_size": 14336, "vocab_size": 128256}
N_LLAMA_8B = 8_030_261_248


def llama_8b():
    return read_config(LLAMA_8B)


# A GPU for laws: 1,000 bytes, 10 bytes a second, 100 FLOPs a second.
SMALL = GPU("small", 1000, 10.0, 100.0, 200.0, "", "")


@pytest.mark.parametrize(
    ("gpu", "batch", "memory_ms", "compute_ms", "speed"),
    [
        ("H100 80GB SXM", 1, 5.115, 0.0206, 195.5),
        ("H100 80GB SXM", 32, 15.051, 0.6586, 2126.1),
        ("A100 80GB SXM", 1, 8.403, 0.0652, 119.0),
        ("A100 80GB SXM", 32, 24.728, 2.0877, 1294.1),
        ("L4", 1, 57.114, 0.1682, 17.5),
        ("L4", 32, 168.068, 5.3833, 190.4),
    ],
)
def test_the_vectors_of_the_roofline_come_out(gpu, batch, memory_ms, compute_ms, speed):
    load = Load(llama_8b(), weight_bytes(N_LLAMA_8B))
    assert load.weight_bytes == 16_060_522_496
    assert load.sequence_bytes(8192) * batch == 1_073_741_824 * batch
    found = roofline(load, gpus()[gpu], N_LLAMA_8B, 8192, batch)
    assert round(found.memory_time * 1e3, 3) == memory_ms
    assert round(found.compute_time * 1e3, 4) == compute_ms
    assert round(found.tokens_per_second, 1) == speed
    assert found.binds == "memory"


def test_a_batch_that_does_not_fit_is_told_before_a_speed():
    load = Load(llama_8b(), weight_bytes(N_LLAMA_8B))
    assert not fit(load, gpus()["L4"], 8192, 32).fits
    assert fit(load, gpus()["L4"], 8192, 9).fits
    assert fit(load, gpus()["H100 80GB SXM"], 8192, 32).fits


def test_compute_binds_where_the_memory_is_fast():
    fast = GPU("fast", 10**12, 1e15, 1e9, 2e9, "", "")
    found = roofline(Load(llama_8b(), 16), fast, N_LLAMA_8B, 128, 4)
    assert found.binds == "compute"
    assert found.flops == 4 * (2 * N_LLAMA_8B + 4 * 32 * 32 * 128 * 128)
    assert roofline(Load(llama_8b(), 16), fast, N_LLAMA_8B, 128, 4, peak="fp8").compute_time == found.compute_time / 2


def test_flops_count_kept_tokens_only():
    gemma = read_config(config_of("gemma3-27b-nested-no-pattern"))
    assert attention_flops(gemma, 10_000) == 4 * 32 * 128 * (10 * 10_000 + 52 * 1024)
    deepseek = read_config(config_of("deepseek-v3"))
    assert attention_flops(deepseek, 10) == 2 * 128 * (2 * 512 + 64) * 10 * 61


TINY = KVCacheSize((Layer((FullAttention(2, 3, 3),)),), n_heads=4)


@given(st.integers(0, 1100), st.integers(1, 50), st.integers(1, 40), st.integers(1, 5))
def test_the_longest_context_and_the_largest_batch_are_the_last_that_fit(weights, context, batch, n_gpus):
    load = Load(TINY, weights, n_gpus=n_gpus)
    found = fit(load, SMALL, context, batch)
    assert found.left == 1000 - -(-weights // n_gpus)
    longest, largest = found.longest_context, found.largest_batch
    assert longest is not None
    assert largest is not None
    assert fit(load, SMALL, longest, batch).fits or longest == 0
    assert not fit(load, SMALL, longest + 1, batch).fits
    assert fit(load, SMALL, context, largest).fits or largest == 0
    assert not fit(load, SMALL, context, largest + 1).fits
    assert found.fits == (batch <= largest and found.left >= 0)


def test_nothing_limits_a_model_whose_cache_stops_growing():
    sliding = read_config({**PLAIN, "model_type": "mistral", "sliding_window": 4096})
    found = fit(Load(sliding, 0), gpus()["L4"], 8192)
    assert found.longest_context is None
    encoder = fit(Load(preset_size("bert-encoder-only"), 0), gpus()["L4"], 8192)
    assert encoder.largest_batch is None


def test_states_and_the_encoder_take_room_too():
    jamba, whisper = preset_size("jamba-v0.1"), preset_size("whisper-tiny")
    assert Load(jamba, 0).sequence_bytes(7) == jamba.total_bytes(7) + jamba.state_bytes()
    assert Load(whisper, 0).sequence_bytes(448) == 11_968_512


def test_several_gpus_share_weights_and_heads_but_not_a_latent():
    one, four = (Load(llama_8b(), 4000, n_gpus=n) for n in (1, 4))
    assert four.sequence_bytes(10) * 4 == one.sequence_bytes(10)
    assert fit(four, SMALL, 1).weights == 1000
    deepseek = preset_size("deepseek-v3")
    assert Load(deepseek, 0, n_gpus=8).sequence_bytes(10) == Load(deepseek, 0).sequence_bytes(10)


def test_every_gpu_has_a_source_and_a_dense_peak():
    table = gpus()
    assert len(table) == 15
    assert all(gpu.source and gpu.memory > 0 and gpu.bandwidth > 0 for gpu in table.values())
    # An H100 is sold with 1,979 TFLOP/s in 16 bits, which is the sparse peak.
    assert table["H100 80GB SXM"].bf16 == 989e12
    assert table["RTX 4090"].bf16 == 165.15e12
    assert all(gpu.fp8 is None or 1.9 < gpu.fp8 / gpu.bf16 < 2.1 for gpu in table.values())
    assert table["A100 40GB SXM"].memory == 40 * 10**9
    assert table["A100 80GB SXM"].memory == 80 * 2**30


def llama(hidden, layers, heads, kv_heads, mlp, vocab, **more):
    return {"model_type": "llama", "hidden_size": hidden, "num_hidden_layers": layers, "num_attention_heads": heads,
            "num_key_value_heads": kv_heads, "intermediate_size": mlp, "vocab_size": vocab, **more}  # fmt: skip


# The numbers of parameters that the hub shows for the safetensors of these models.
PUBLISHED = {
    "Llama-3.1-8B": (LLAMA_8B, N_LLAMA_8B),
    "Llama-2-7B": (llama(4096, 32, 32, 32, 11008, 32000), 6_738_415_616),
    "Llama-2-70B": (llama(8192, 80, 64, 8, 28672, 32000), 68_976_648_192),
    "Llama-3.2-1B": (llama(2048, 16, 32, 8, 8192, 128256, tie_word_embeddings=True), 1_235_814_400),
    "SmolLM2-135M": (llama(576, 30, 9, 3, 1536, 49152, tie_word_embeddings=True), 134_515_008),
    "Mistral-7B": ({**llama(4096, 32, 32, 8, 14336, 32000), "model_type": "mistral"}, 7_241_732_096),
    "Phi-3-mini": ({**llama(3072, 32, 32, 32, 8192, 32064), "model_type": "phi3"}, 3_821_079_552),
    "Qwen2.5-7B": ({**llama(3584, 28, 28, 4, 18944, 152064), "model_type": "qwen2"}, 7_615_616_512),
    "Qwen3-8B": ({**llama(4096, 36, 32, 8, 12288, 151936, head_dim=128), "model_type": "qwen3"}, 8_190_735_360),
    "Gemma-2B": ({**llama(2048, 18, 8, 1, 16384, 256000, head_dim=256), "model_type": "gemma"}, 2_506_172_416),
    "Gemma-2-9B": ({**llama(3584, 42, 16, 8, 14336, 256000, head_dim=256, sliding_window=4096),
                    "model_type": "gemma2"}, 9_241_705_984),
    "Gemma-3-1B": ({**llama(1152, 26, 4, 1, 6912, 262144, head_dim=256, sliding_window=512),
                    "model_type": "gemma3_text"}, 999_885_952),
    "Mixtral-8x7B": ({**llama(4096, 32, 32, 8, 14336, 32000, num_local_experts=8, num_experts_per_tok=2),
                      "model_type": "mixtral"}, 46_702_792_704),
    "Qwen3-30B-A3B": ({**llama(2048, 48, 32, 4, 6144, 151936, head_dim=128, num_experts=128, num_experts_per_tok=8,
                               moe_intermediate_size=768), "model_type": "qwen3_moe"}, 30_532_122_624),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_are_counted_exactly(name):
    config, published = PUBLISHED[name]
    found = parameters(read_config(config))
    assert found is not None
    assert found.total == published


def test_a_token_passes_through_the_chosen_experts_only():
    config, total = PUBLISHED["Mixtral-8x7B"]
    found = parameters(read_config(config))
    assert found == Parameters(total, total - 32 * 6 * 3 * 4096 * 14336)
    dense = parameters(llama_8b())
    assert dense is not None
    assert dense.total == dense.active


NOT_COUNTED = [
    {"intermediate_size": None}, {"intermediate_size": -1}, {"vocab_size": None}, {"vocab_size": "many"},
    {"model_type": "deepseek_v3"}, {"attention_bias": True}, {"mlp_bias": True},
]  # fmt: skip


@pytest.mark.parametrize("change", NOT_COUNTED, ids=str)
def test_what_cannot_be_counted_exactly_is_not_counted(change):
    assert parameters(read_config({**LLAMA_8B, **change})) is None


WIDTHS = json.loads((DATA / "widths.json").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", WIDTHS)
def test_a_preset_has_as_many_parameters_as_the_hub_shows(name):
    found = parameters(preset_size(name))
    assert found is not None
    assert found.total == WIDTHS[name]["parameters"]


def test_presets_have_a_source_and_are_read():
    kept = presets()
    assert len({one.name for one in kept}) == len(kept) == 80
    assert all(one.source for one in kept)
    assert preset_size("llama-2-70b").bytes_per_token() == 327_680
    assert json.dumps(next(one for one in kept if one.name == "dbrx").config) == json.dumps(config_of("dbrx"))
    with pytest.raises(ReadError, match="nobody"):
        preset_size("nobody")
