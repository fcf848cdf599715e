"""Published numbers, each computed live from a config or a shape: papers, logs and other tools' tables."""

import json
from typing import Any

import pytest

from mha_core.kv_size import KVCacheSize, read_config
from mha_core.kv_size.units import binary
from mha_core.kv_size.whatif import as_mha
from tests.core.kv_size.data import DATA, config_of

MIB, GIB = 2**20, 2**30
HEADLINES = json.loads((DATA / "headline_checks.json").read_text(encoding="utf-8"))


def preset(name: str) -> KVCacheSize:
    return read_config(config_of(name))


def shape(layers: int, kv_heads: int, head_dim: int, **more: Any) -> KVCacheSize:
    sizes = {"num_hidden_layers": layers, "num_key_value_heads": kv_heads, "head_dim": head_dim}
    return read_config({"model_type": "llama", "num_attention_heads": more.pop("heads", kv_heads), **sizes, **more})


def near(value: float, published: float, places: int) -> bool:
    """Equal in all the places that were published."""
    return round(value, places) == published


GEMMA4 = {
    "model_type": "gemma4_text", "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
    "num_global_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "hidden_size": 2816,
    "sliding_window": 1024, "attention_k_eq_v": True, "max_position_embeddings": 262144,
}  # fmt: skip
GEMMA3_4B = {"model_type": "gemma3_text", "num_hidden_layers": 34, "num_attention_heads": 8, "num_key_value_heads": 4,
             "head_dim": 256, "sliding_window": 1024, "max_position_embeddings": 131072}  # fmt: skip
GPT_OSS_120B = {**config_of("gpt-oss-20b"), "num_hidden_layers": 36, "layer_types": None}


def paged_attention() -> bool:
    size = preset("opt-13b")
    return size.bytes_per_token() == 800 * 1024 and near(size.total_bytes(2048) / 1e9, 1.678, 3)


def hardware_paper_v3() -> bool:
    return preset("deepseek-v3").bytes_per_token() == 70_272


def hardware_paper_qwen() -> bool:
    return shape(80, 8, 128, heads=64).bytes_per_token() == 327_680


def hardware_paper_llama() -> bool:
    size = preset("llama-3.1-405b")
    return size.bytes_per_token() == 516_096 and near(516_096 / preset("deepseek-v3").bytes_per_token(), 7.344, 3)


def v2_large() -> bool:
    return near(preset("deepseek-v2-236b").elements_per_token / 1000, 34.6, 1)


def v2_small() -> bool:
    return near(preset("deepseek-v2-lite").elements_per_token / 1000, 15.6, 1)


def v2_small_mha() -> bool:
    return as_mha(preset("deepseek-v2-lite")).elements_per_token == 110_592


def v2_large_mha() -> bool:
    return shape(60, 56, 128).elements_per_token == 860_160


def v2_abstract() -> bool:
    small = preset("deepseek-v2-236b").elements_per_token * 6 / (shape(95, 8, 128, heads=64).elements_per_token * 16)
    all_heads = preset("deepseek-v2-236b").elements_per_token / as_mha(preset("deepseek-v2-236b")).elements_per_token
    return near(100 * (1 - small), 93.3388, 4) and near(100 * (1 - all_heads), 98.2, 1)


def v2_equals_gqa() -> bool:
    one_layer = preset("deepseek-v2-236b").elements_per_token / 60
    return one_layer / shape(1, 1, 128).elements_per_token == 2.25


def palm() -> bool:
    return near(shape(118, 48, 128).total_bytes(2048, batch=512) / 1e12, 3.04, 2)


def llama_2_70b() -> bool:
    return preset("llama-2-70b").bytes_per_token() == 320 * 1024


def kvpress() -> bool:
    return shape(80, 8, 128, heads=64).total_bytes(1_000_000) == 327_680_000_000


def sharing() -> bool:
    size = preset("llama-3.1-8b")
    return as_mha(size).bytes_per_token() / size.bytes_per_token() == 4 == 32 / 8


def llama_cpp_log() -> bool:
    return shape(64, 8, 128).total_bytes(32_768, dtype="q8_0", engine="llama.cpp") == 4352 * MIB


def llama_cpp_table() -> bool:
    # 1040 MiB in 16 bits is 26 layers of 1,024 + 1,024 numbers for 10,240 tokens, among other shapes.
    sizes = [shape(26, 8, 128).total_bytes(10_240, dtype=dtype) / MIB for dtype in ("f16", "q8_0", "q4_0")]
    return sizes == [1040.0, 552.5, 292.5]


def ollama_log() -> bool:
    kinds = read_config(GEMMA3_4B).by_kind(131_072, dtype="f16", engine="llama.cpp")
    return kinds == {"sliding": 174 * MIB, "full": 2560 * MIB}


def ollama_table() -> bool:
    size, published = read_config(GEMMA4), {4096: 0.398, 8192: 0.482, 32_768: 0.986, 131_072: 2.999}
    return all(near(size.total_bytes(c, engine="llama.cpp") / 1e9, one, 3) for c, one in published.items())


def hf_mem_log() -> bool:
    size = read_config(GPT_OSS_120B)
    return size.bytes_per_token() == 73_728 and near(78_384 * size.bytes_per_token() / GIB, 5.38, 2)


def sglang_log() -> bool:
    rank = preset("qwen3-235b-a22b").shard(4)
    return rank.bytes_per_token() == 48_128 and near(367_404 * rank.bytes_per_token() / 2 / GIB, 8.234, 3)


def lm_studio_log() -> bool:
    return preset("qwen3.5-27b-nested").total_bytes(262_144, dtype="f16") == 16_384 * MIB


def unsloth_table() -> bool:
    published = {"gemma3-27b-nested-no-pattern": (131_072, 10.406), "qwen3.5-27b-nested": (262_144, 16.0),
                 "deepseek-v3": (163_840, 10.723), "kimi-k2": (262_144, 17.156), "qwen3-0.6b": (40_960, 4.375),
                 "glm-5-decoy-head-dim": (202_752, 16.967)}  # fmt: skip
    return all(near(preset(name).total_bytes(c) / GIB, one, 3) for name, (c, one) in published.items())


def llama_cpp_python() -> bool:
    size = shape(60, 52, 128)
    return (size.total_bytes(512, dtype="f32"), size.total_bytes(512, dtype="f16")) == (1560 * MIB, 780 * MIB)


CHECKS = (
    paged_attention, hardware_paper_v3, hardware_paper_qwen, hardware_paper_llama, v2_large, v2_small, v2_small_mha,
    v2_large_mha, v2_abstract, v2_equals_gqa, palm, llama_2_70b, kvpress, sharing, llama_cpp_log, llama_cpp_table,
    ollama_log, ollama_table, hf_mem_log, sglang_log, lm_studio_log, unsloth_table, llama_cpp_python,
)  # fmt: skip


@pytest.mark.parametrize(
    ("headline", "check"), list(zip(HEADLINES, CHECKS, strict=True)), ids=[c.__name__ for c in CHECKS]
)
def test_a_published_number_comes_out(headline, check):
    assert check(), headline["published"]


@pytest.mark.parametrize(
    ("config", "per_token"),
    [
        ({"num_hidden_layers": 36, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
          "hidden_size": 2560}, 147_456),
        (config_of("deepseek-v3"), 70_272),
        (config_of("llama-2-70b"), 327_680),
        (config_of("llama-2-7b"), 524_288),
        (config_of("qwen3-next-80b-a3b"), 24_576),
        (config_of("qwen3.5-27b-nested"), 65_536),
        (config_of("lfm2-vl-1.6b-nested"), 12_288),
        (config_of("qwen3-0.6b"), 114_688),
        (config_of("qwen3-vl-8b-nested"), 147_456),
    ],
)  # fmt: skip
def test_what_other_calculators_were_reported_to_get_wrong_is_right(config, per_token):
    assert read_config(config).bytes_per_token() == per_token


def test_reports_of_totals_come_out():
    falcon_180b = {"model_type": "falcon", "num_hidden_layers": 80, "num_attention_heads": 232, "num_kv_heads": 8,
                   "hidden_size": 14848, "new_decoder_architecture": True, "multi_query": True}  # fmt: skip
    assert near(read_config(falcon_180b).total_bytes(2048, batch=64) / 1e9, 21.47, 2)
    gpt_oss = preset("gpt-oss-20b")
    assert near(gpt_oss.total_bytes(8192, batch=32) / GIB, 6.09, 2)
    assert near(gpt_oss.total_bytes(8192, batch=32, engine="window-ignored") / GIB, 12.00, 2)
    gemma3 = preset("gemma3-27b-nested-no-pattern")
    assert near(gemma3.total_bytes(85_000, dtype="q8_0") / 1e9, 3.93, 2)
    deepseek = preset("deepseek-v3")
    assert near(deepseek.total_bytes(65_536) / GIB, 4.29, 2)
    assert near(deepseek.total_bytes(65_536, engine="transformers-4") / GIB, 305, 0)
    kivi = preset("llama-2-7b")
    assert near(kivi.total_bytes(4196) / GIB, 2.05, 2)
    local = {**GEMMA4, "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16}
    gemma4 = read_config({**local, "num_global_key_value_heads": 4})
    assert near(gemma4.total_bytes(8192) / 1e9, 1.51, 2)
    assert near(gemma4.total_bytes(8192, engine="window-ignored") / 1e9, 7.38, 2)
    assert gemma4.by_kind(1_000_000)["sliding"] == 838_860_800


def test_gemma_3_is_ten_gibibytes_and_not_sixty_two():
    size = preset("gemma3-27b-nested-no-pattern")
    assert binary(size.total_bytes(131_072)) == "10.41 GiB"
    assert binary(size.total_bytes(131_072, engine="window-ignored")) == "62.00 GiB"
