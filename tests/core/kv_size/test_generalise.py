"""Configs that are in no case: new kinds, other spellings, and signs of schemes that nothing here knows."""

from typing import Any

import pytest

from mha_core.kv_size import ReadError, read_config
from mha_core.kv_size.specs import CrossAttention, SharedWithEarlier
from tests.core.kv_size.data import PLAIN, config_of

MLA = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "qk_nope_head_dim": 128, "v_head_dim": 128}
KDA = {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4}
FULL = [4, 8, 12, 16, 20, 24, 27]
LINEAR = [i for i in range(1, 28) if i not in FULL]
COMPRESSED = [0, 0] + [4 if i % 2 == 0 else 128 for i in range(41)] + [0]

# name: (config, elements per token, growing, layers with a cache)
MODELS: dict[str, tuple[dict[str, Any], int, int, int]] = {
    "MiMo-V2-Flash: widths and heads of windows are their own, 1 is sliding": (
        {"model_type": "mimo_v2_flash", "num_hidden_layers": 48, "num_attention_heads": 64, "num_key_value_heads": 4,
         "swa_num_key_value_heads": 8, "head_dim": 192, "v_head_dim": 128, "swa_head_dim": 192, "swa_v_head_dim": 128,
         "hidden_size": 4096, "sliding_window": 128, "attention_chunk_size": 128,
         "hybrid_layer_pattern": [0, 1, 1, 1, 1] + [0, 1, 1, 1, 1, 1] * 7 + [0]},
        39 * 8 * 320 + 9 * 4 * 320, 9 * 4 * 320, 48),
    "Gemma 4: full layers have other heads": (
        {"model_type": "gemma4", "text_config": {
            "model_type": "gemma4_text", "num_hidden_layers": 30, "num_attention_heads": 16, "num_key_value_heads": 8,
            "num_global_key_value_heads": 2, "head_dim": 256, "global_head_dim": 512, "attention_k_eq_v": True,
            "sliding_window": 1024, "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 5}},
        25 * 8 * 512 + 5 * 2 * 1024, 5 * 2 * 1024, 30),
    "Gemma 4 without global heads": (
        {"model_type": "gemma4_text", "num_hidden_layers": 35, "num_attention_heads": 8, "num_key_value_heads": 1,
         "num_global_key_value_heads": None, "head_dim": 256, "global_head_dim": 512, "sliding_window": 512,
         "num_kv_shared_layers": 20, "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 7},
        12 * 512 + 3 * 1024, 3 * 1024, 15),
    "DeepSeek-V4": (
        {"model_type": "deepseek_v4", "num_hidden_layers": 43, "num_attention_heads": 64, "num_key_value_heads": 1,
         "head_dim": 512, "sliding_window": 128, "index_head_dim": 128, "q_lora_rank": 1024,
         "num_nextn_predict_layers": 1, "compress_ratios": COMPRESSED, "compress_rope_theta": 160000},
        43 * 512 + 21 * 160 + 20 * 4, 21 * 160 + 20 * 4, 43),
    "Kimi Linear: lists counted from 1": (
        {"model_type": "kimi_linear", "num_hidden_layers": 27, "num_attention_heads": 32, "head_dim": 72, **MLA,
         "linear_attn_config": {**KDA, "full_attn_layers": FULL, "kda_layers": LINEAR}},
        7 * 576, 7 * 576, 7),
    "the same counted from 0": (
        {"model_type": "kimi_linear", "num_hidden_layers": 4, "num_attention_heads": 32, **MLA,
         "linear_attn_config": {**KDA, "full_attn_layers": [3], "kda_layers": [0, 1, 2]}}, 576, 576, 1),
    "Llama 3.2 Vision: cross-attention layers keep the picture": (
        {"model_type": "mllama", "text_config": {
            "model_type": "mllama_text_model", "num_hidden_layers": 40, "num_attention_heads": 32, "hidden_size": 4096,
            "num_key_value_heads": 8, "cross_attention_layers": [3, 8, 13, 18, 23, 28, 33, 38]},
         "vision_config": {"num_hidden_layers": 32, "image_size": 560, "patch_size": 14, "max_num_tiles": 4}},
        32 * 2048, 32 * 2048, 32),
    "EXAONE 4: LLLG": (
        {"model_type": "exaone4", "num_hidden_layers": 64, "num_attention_heads": 40, "num_key_value_heads": 8,
         "head_dim": 128, "sliding_window": 4096, "sliding_window_pattern": "LLLG", "max_position_embeddings": 131072},
        64 * 2048, 16 * 2048, 64),
    "MiniMax-Text-01: 1 is full": (
        {"model_type": "minimax_text_01", "num_hidden_layers": 80, "num_attention_heads": 64, "num_key_value_heads": 8,
         "head_dim": 128, "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10}, 10 * 2048, 10 * 2048, 10),
    "Granite 4 hybrid": (
        {"model_type": "granitemoehybrid", "num_hidden_layers": 40, "num_attention_heads": 12, "num_key_value_heads": 4,
         "hidden_size": 1536, "layer_types": (["mamba"] * 5 + ["attention"] + ["mamba"] * 4) * 4, "mamba_n_heads": 48,
         "mamba_d_head": 64, "mamba_d_state": 128, "mamba_n_groups": 1, "mamba_d_conv": 4, "mamba_expand": 2},
        4 * 1024, 4 * 1024, 4),
    "Falcon 180B": (
        {"model_type": "falcon", "num_hidden_layers": 80, "num_attention_heads": 232, "num_kv_heads": 8,
         "hidden_size": 14848, "new_decoder_architecture": True, "multi_query": True}, 80 * 1024, 80 * 1024, 80),
    "GPT-Neo": (
        {"model_type": "gpt_neo", "num_layers": 24, "num_heads": 16, "hidden_size": 2048, "window_size": 256,
         "attention_types": [[["global", "local"], 12]], "max_position_embeddings": 2048}, 24 * 4096, 12 * 4096, 24),
    "Gemma 3 4B: heads stand in the class": (
        {"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 2560,
                                                 "num_hidden_layers": 34, "sliding_window": 1024}},
        34 * 2048, 5 * 2048, 34),
    "Qwen with windows from a layer on": (
        {"model_type": "qwen2", "num_hidden_layers": 28, "num_attention_heads": 28, "num_key_value_heads": 4,
         "hidden_size": 3584, "use_sliding_window": True, "sliding_window": 4096, "max_window_layers": 20,
         "max_position_embeddings": 32768}, 28 * 1024, 20 * 1024, 28),
    "Qwen that does not say whether windows count": (
        {"model_type": "qwen2", "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
         "hidden_size": 60, "sliding_window": 40, "max_position_embeddings": 500}, 3 * 40, 3 * 40, 3),
    "a new model that does not say so either, with max_window_layers": (
        {"model_type": "some_future_arch", "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 2,
         "hidden_size": 60, "sliding_window": 40, "max_window_layers": 1}, 3 * 40, 3 * 40, 3),
    "layers without rotary positions are no chunks": (
        {"model_type": "smollm3", "num_hidden_layers": 4, "num_attention_heads": 6, "num_key_value_heads": 2,
         "hidden_size": 60, "no_rope_layers": [1, 1, 1, 0], "no_rope_layer_interval": 4}, 4 * 40, 4 * 40, 4),
    "LongCat: two attentions a layer": (
        {"model_type": "longcat_flash", "num_layers": 28, "num_attention_heads": 64, **MLA}, 56 * 576, 56 * 576, 56),
    "BERT as a decoder": (
        {"model_type": "bert", "num_hidden_layers": 12, "num_attention_heads": 12, "hidden_size": 768,
         "is_decoder": True},
        12 * 1536, 12 * 1536, 12),
    "MPT with one KV head": (
        {"model_type": "mpt", "n_layers": 3, "n_heads": 5, "d_model": 35,
         "attn_config": {"attn_type": "multiquery_attention"}},
        3 * 14, 3 * 14, 3),
    "ChatGLM without shared heads": (
        {"model_type": "chatglm", "num_layers": 3, "num_attention_heads": 5, "kv_channels": 7,
         "multi_query_attention": False, "multi_query_group_num": 2}, 3 * 5 * 14, 3 * 5 * 14, 3),
    "blocks that say how many queries share a KV head": (
        {"model_type": "nemotron-nas", "num_hidden_layers": 3, "num_attention_heads": 12, "hidden_size": 60,
         "block_configs": [{"attention": {"n_heads_in_group": 3}}, {"attention": {"no_op": True}},
                           {"attention": {"n_heads_in_group": 2}}]}, (4 + 6) * 10, (4 + 6) * 10, 2),
    "Moonshine: an encoder and a decoder of other sizes": (
        {"model_type": "moonshine", "is_encoder_decoder": True, "encoder_num_hidden_layers": 9, "hidden_size": 36,
         "decoder_num_hidden_layers": 3, "decoder_num_attention_heads": 6, "decoder_num_key_value_heads": 2},
        3 * 2 * 12, 3 * 2 * 12, 3),
    "draft layers at the end of layer_types": (
        {**PLAIN, "num_hidden_layers": 2, "num_nextn_predict_layers": 1, "layer_types": ["full_attention"] * 3},
        2 * 2048, 2 * 2048, 2),
    "GGUF with MLA": (
        {"general.architecture": "deepseek2", "deepseek2.block_count": 61, "deepseek2.attention.head_count": 128,
         "deepseek2.attention.head_count_kv": 128, "deepseek2.attention.kv_lora_rank": 512,
         "deepseek2.rope.dimension_count": 64}, 61 * 576, 61 * 576, 61),
    "GGUF with layers without attention": (
        {"general.architecture": "lfm2", "lfm2.block_count": 4, "lfm2.attention.head_count": 32,
         "lfm2.attention.head_count_kv": [0, 8, 0, 8], "lfm2.embedding_length": 2048}, 2 * 1024, 2 * 1024, 2),
    "GGUF with windows": (
        {"general.architecture": "gemma3", "gemma3.block_count": 62, "gemma3.attention.head_count": 32,
         "gemma3.attention.head_count_kv": 16, "gemma3.attention.key_length": 128, "gemma3.attention.value_length": 128,
         "gemma3.attention.sliding_window": 1024}, 62 * 4096, 10 * 4096, 62),
}  # fmt: skip


@pytest.mark.parametrize("name", MODELS)
def test_a_model_outside_the_cases_comes_out(name):
    config, per_token, growing, with_kv = MODELS[name]
    size = read_config(config)
    assert (size.elements_per_token, size.elements_per_token_growing) == (per_token, growing)
    assert size.layers_with_kv == with_kv


def test_sizes_that_differ_between_kinds_are_told_apart():
    mimo = read_config(MODELS["MiMo-V2-Flash: widths and heads of windows are their own, 1 is sliding"][0])
    assert mimo.kv_heads == {"full_layers": 4, "sliding_layers": 8}
    assert mimo.head_dim == {"k": 192, "v": 128}
    gemma = read_config(MODELS["Gemma 4: full layers have other heads"][0])
    assert gemma.head_dim == {"sliding_layers": 256, "full_layers": 512}


def test_deepseek_v4_keeps_a_row_for_many_tokens():
    size = read_config(MODELS["DeepSeek-V4"][0])
    assert size.total_bytes(1024) == 2 * (43 * 128 * 512 + 21 * 256 * 640 + 20 * 8 * 512)
    assert size.total_bytes(127) == 2 * (43 * 127 * 512 + 21 * 31 * 640)


def test_states_of_new_kinds_follow_their_formulas():
    kimi = read_config(MODELS["Kimi Linear: lists counted from 1"][0])
    assert kimi.state_elements() == (20 * 3 * 3 * 32 * 128, 20 * 32 * 128 * 128)
    granite = read_config(MODELS["Granite 4 hybrid"][0])
    assert granite.state_elements() == (36 * 3 * (48 * 64 + 2 * 128), 36 * 48 * 64 * 128)
    minimax = read_config(MODELS["MiniMax-Text-01: 1 is full"][0])
    assert minimax.state_elements() == (0, 70 * 64 * 128 * 128)


def test_cross_attention_layers_keep_the_picture_and_nothing_of_the_text():
    size = read_config(MODELS["Llama 3.2 Vision: cross-attention layers keep the picture"][0])
    assert [i for i, layer in enumerate(size.layers) if isinstance(layer.parts[0], CrossAttention)][:3] == [3, 8, 13]
    assert size.cross_attention_bytes(1) == 8 * 2048 * 2
    assert size.encoder_tokens == 4 * (40 * 40 + 1)


def test_layers_that_read_an_earlier_cache_keep_none():
    size = read_config(config_of("gemma-3n-e4b-kv-shared"))
    assert [isinstance(layer.parts[0], SharedWithEarlier) for layer in size.layers] == [False] * 20 + [True] * 15


def test_an_indexer_is_counted_where_it_is_and_not_where_it_is_shared():
    base = {
        "model_type": "deepseek_v32",
        "num_hidden_layers": 4,
        "num_attention_heads": 128,
        **MLA,
        "index_head_dim": 128,
    }
    assert read_config(base).indexer_bytes(10) == 4 * 128 * 2 * 10
    shared = read_config({**base, "indexer_types": ["full", "shared", "shared", "full"]})
    assert shared.indexer_bytes(10) == 2 * 128 * 2 * 10
    assert shared.total_bytes(10) == read_config(base).total_bytes(10)


SIGNS = {
    "kv_latent_dim": 512, "latent_size": 256, "kv_compression_rank": 64, "mamba_d_state": 128, "rwkv_head_size": 64,
    "linear_attention_layers": [1, 2], "retention_heads": 4, "ssm_state_size": 16, "hybrid_schedule": "AABB",
    "cross_layer_kv": 2, "sparse_attention_config": {"block": 64}, "index_head_dim": 128, "state_size": 16,
}  # fmt: skip


@pytest.mark.parametrize("field", SIGNS)
def test_an_unknown_model_with_a_sign_of_an_unknown_scheme_is_refused_by_name(field):
    config = {**PLAIN, "model_type": "some_future_arch"}
    assert read_config(config).elements_per_token == 65_536
    with pytest.raises(ReadError, match=field):
        read_config({**config, field: SIGNS[field]})


@pytest.mark.parametrize("field", SIGNS)
def test_a_known_model_with_such_a_sign_is_answered_with_a_caveat(field):
    size = read_config({**PLAIN, field: SIGNS[field]})
    assert any(field in sentence for sentence in size.caveats)


@pytest.mark.parametrize("value", [None, False, 0, [], {}])
def test_a_sign_that_is_switched_off_is_none(value):
    assert read_config({**PLAIN, "model_type": "some_future_arch", "mamba_d_state": value}).layers_with_kv == 32


def test_half_a_latent_is_refused():
    with pytest.raises(ReadError, match="qk_rope_head_dim"):
        read_config({**PLAIN, "kv_lora_rank": 512})


@pytest.mark.parametrize("kind", ["minimax_m3_sparse", "quantum_attention", None, 3, ["full_attention"]])
def test_a_layer_of_an_unknown_type_is_refused(kind):
    with pytest.raises(ReadError, match="layer_types"):
        read_config({**PLAIN, "layer_types": ["full_attention"] * 31 + [kind]})


@pytest.mark.parametrize("kind", ["wav2vec2", "clip", "vit", "siglip_vision_model", "swin"])
def test_encoders_of_pictures_and_sound_are_refused(kind):
    with pytest.raises(ReadError, match="encoder"):
        read_config({**PLAIN, "model_type": kind})


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert", "deberta-v2", "modernbert"])
def test_encoders_of_text_keep_nothing_and_say_why(kind):
    size = read_config({**PLAIN, "model_type": kind})
    assert size.total_bytes(131_072) == 0
    assert any("encoder" in sentence for sentence in size.caveats)


@pytest.mark.parametrize("kind", ["mamba", "mamba2", "falcon_mamba", "rwkv", "xlstm"])
def test_models_without_attention_keep_no_cache_and_say_why(kind):
    size = read_config({"model_type": kind, "num_hidden_layers": 24, "hidden_size": 768})
    assert size.total_bytes(131_072) == 0
    assert any("no KV cache" in sentence for sentence in size.caveats)


def test_bits_of_weights_are_no_bits_of_the_cache():
    for block in ({"bits": 4, "quant_method": "gptq"}, {"quant_method": "fp8"}, {"kv_cache_scheme": None}, "odd"):
        assert read_config({**PLAIN, "quantization_config": block}).cache_dtype is None
    assert read_config({**PLAIN, "quantization_config": {"kv_cache_quant_algo": "FP8"}}).cache_dtype == "fp8"
