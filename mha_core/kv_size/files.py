"""Files that are not a config.json: named as what they are, or translated where they say enough."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mha_core.kv_size.config import has_layers
from mha_core.kv_size.fields import DECODERS
from mha_core.kv_size.values import ReadError, shown

# A file with one of these keys, and without layers, is of the kind that the sentence names.
OTHER_FILES: tuple[tuple[tuple[str, ...], str], ...] = (
    (
        ("_diffusers_version", "_class_name"),
        "This is a file of a diffusers pipeline: a diffusion model has no autoregressive KV cache.",
    ),
    (
        ("peft_type", "lora_alpha", "base_model_name_or_path"),
        "This is an adapter_config.json: an adapter has no shape of its own and does not change the KV cache; "
        "paste the config.json of {base_model_name_or_path}.",
    ),
    (("weight_map",), "This is the index of safetensors files: it holds no attention shape; paste config.json."),
    (
        ("tokenizer_class", "added_tokens_decoder", "pre_tokenizer", "clean_up_tokenization_spaces"),
        "This is a file of the tokenizer; paste the config.json of the same model.",
    ),
    (
        ("image_processor_type", "feature_extractor_type", "processor_class", "image_mean"),
        "This is a preprocessor_config.json; paste the config.json of the same model.",
    ),
    (
        ("do_sample", "temperature", "top_p", "top_k", "max_new_tokens", "_from_model_config", "repetition_penalty"),
        "This is generation_config.json; paste the config.json of the same model.",
    ),
    (
        ("producer", "kv_cache_quant_algo"),
        "This is hf_quant_config.json: it holds no attention shape; paste config.json.",
    ),
)

# GGUF names, after "{architecture}."; llama.cpp's src/llama-arch.cpp.
GGUF_NAMES = {
    "block_count": "num_hidden_layers",
    "embedding_length": "hidden_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.value_length": "v_head_dim",
    "attention.sliding_window": "sliding_window",
    "attention.kv_lora_rank": "kv_lora_rank",
    "attention.chunk_size": "attention_chunk_size",
    "attention.shared_kv_layers": "num_kv_shared_layers",
    "attention.key_length_swa": "swa_head_dim",
    "attention.value_length_swa": "swa_v_head_dim",
    "full_attention_interval": "full_attention_interval",
    "context_length": "max_position_embeddings",
    "vocab_size": "vocab_size",
    "feed_forward_length": "intermediate_size",
    "ssm.conv_kernel": "mamba_d_conv",
    "ssm.state_size": "mamba_d_state",
}
# llama.cpp's names for architectures whose rules stand in code, as transformers has them.
GGUF_TYPES = {
    "gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "gpt-oss": "gpt_oss", "deepseek2": "deepseek_v2",
    "llama4": "llama4_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe", "qwen3next": "qwen3_next",
    "minicpm3": "minicpm3", "phi3": "phi3", "starcoder2": "starcoder2", "gemma4": "gemma4_text",
}  # fmt: skip
PARAMS_NAMES = ("dim", "n_layers", "n_heads")


def refuse_other_files(fields: Mapping[str, Any]) -> None:
    """Raises ReadError for a file of a model that is not its config."""
    if has_layers(fields) or any(isinstance(fields.get(name), dict) for name in DECODERS):
        return
    for keys, sentence in OTHER_FILES:
        if any(key in fields for key in keys):
            base = fields.get("base_model_name_or_path")
            name = shown(base) if isinstance(base, str) else "the base model"
            raise ReadError(sentence.format(base_model_name_or_path=name))


def translated(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], tuple[str, ...]]:
    """The fields under the names of config.json, and a note where the file was of another format."""
    kind = fields.get("general.architecture")
    if isinstance(kind, str):
        return _from_gguf(fields, kind), ("These are GGUF metadata; they were read under the names of config.json.",)
    if all(name in fields for name in PARAMS_NAMES) and "model_type" not in fields:
        return fields, ("This is a params.json, as Meta and Mistral publish it.",)
    return fields, ()


def _from_gguf(fields: Mapping[str, Any], kind: str) -> dict[str, Any]:
    own = {name.removeprefix(f"{kind}."): value for name, value in fields.items() if name.startswith(f"{kind}.")}
    found = {GGUF_NAMES[name]: value for name, value in own.items() if name in GGUF_NAMES}
    found["model_type"] = GGUF_TYPES.get(kind, kind)
    if found.get("kv_lora_rank") is not None:
        found["qk_rope_head_dim"] = own.get("rope.dimension_count")
    pattern = own.get("attention.sliding_window_pattern")
    if isinstance(pattern, list) and all(isinstance(one, bool) for one in pattern):
        found["hybrid_layer_pattern"] = [int(one) for one in pattern]
    elif pattern is not None:
        found["sliding_window_pattern"] = pattern
    return found
