"""How many parameters a model has, counted from its config where that is exact, else not at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mha_core.kv_size import fields as f
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.specs import FullAttention, SlidingWindow
from mha_core.kv_size.values import ReadError, whole

WEIGHT_BYTES = {"f32": 4.0, "bf16": 2.0, "f16": 2.0, "fp8": 1.0, "int8": 1.0, "int4": 0.5}


@dataclass(frozen=True)
class Recipe:
    """What a model type adds to the common block: three MLP matrices, four projections, two norms.

    norms: norms of the model's width per layer. qkv_bias: biases on the three input projections.
    head_norms: a norm of the head's width for queries and for keys. tied: embedding and output are one matrix where
    the file does not say. mlp: matrices of the MLP.
    """

    norms: int = 2
    qkv_bias: bool = False
    head_norms: bool = False
    tied: bool = False
    mlp: int = 3


# Read off transformers 5.24.0 modeling_*.py; tests hold published counts against them.
RECIPES: dict[str, Recipe] = {
    "llama": Recipe(),
    "mistral": Recipe(),
    "mixtral": Recipe(),
    "phi3": Recipe(),
    "granite": Recipe(),
    "smollm3": Recipe(tied=True),
    "gemma": Recipe(tied=True),
    "gemma2": Recipe(norms=4, tied=True),
    "gemma3_text": Recipe(norms=4, head_norms=True, tied=True),
    "qwen2": Recipe(qkv_bias=True),
    "qwen3": Recipe(head_norms=True),
    "qwen3_moe": Recipe(head_norms=True),
}
EXPERTS = ("num_local_experts", "num_experts")
CHOSEN = ("num_experts_per_tok",)
# The width of an expert where it is not the model's intermediate_size.
EXPERT_WIDTH = {"qwen3_moe": "moe_intermediate_size"}
# Fields that add parameters which no recipe counts.
UNCOUNTED = ("vision_config", "mlp_only_layers", "num_shared_experts", "n_shared_experts")
# Settings of these would add parameters; where one is on, there is no exact count.
BIASES = ("attention_bias", "mlp_bias")


@dataclass(frozen=True)
class Parameters:
    """total: all of them. active: those that one token passes through (fewer with experts)."""

    total: int
    active: int


def parameters(size: KVCacheSize) -> Parameters | None:
    """The number of parameters of the decoder; None where the config does not give all that an exact count needs."""
    try:
        return _counted(size)
    except ReadError:
        return None


def _counted(size: KVCacheSize) -> Parameters | None:
    fields, recipe = size.fields, RECIPES.get(size.model_type)
    needed = ("vocab_size", "intermediate_size")
    if recipe is None or size.n_heads is None or size.hidden_size is None or any(fields.get(n) is None for n in needed):
        return None
    if any(fields.get(name) for name in (*BIASES, *UNCOUNTED)):
        return None
    if not all(isinstance(part, FullAttention | SlidingWindow) for layer, _ in size.counted for part in layer.parts):
        return None
    vocab = whole("vocab_size", fields["vocab_size"], 1, f.MAX_WINDOW)
    tied = fields.get("tie_word_embeddings", recipe.tied)
    outside = vocab * size.hidden_size * (1 if tied else 2) + size.hidden_size
    inside = [_attention(size, part, recipe) for part in size.attentions]
    total, active = _mlp(fields, size.model_type, size.hidden_size, recipe)
    attention = sum(inside)
    return Parameters(outside + attention + len(inside) * total, outside + attention + len(inside) * active)


def _attention(size: KVCacheSize, part: Any, recipe: Recipe) -> int:
    """W_Q, W_K, W_V, W_O, norms and biases of one layer."""
    queries, keys = (size.n_heads or 0) * part.k_dim, part.n_kv_heads * part.k_dim
    hidden = size.hidden_size or 0
    count = 2 * hidden * queries + 2 * hidden * keys + recipe.norms * hidden
    return count + recipe.qkv_bias * (queries + 2 * keys) + recipe.head_norms * 2 * part.k_dim


def _mlp(fields: Mapping[str, Any], model_type: str, hidden: int, recipe: Recipe) -> tuple[int, int]:
    """(all, active) parameters of one layer's MLP or experts."""
    width = whole("intermediate_size", fields["intermediate_size"], 1, f.MAX_WINDOW)
    name = next((name for name in EXPERTS if fields.get(name) is not None), None)
    if name is None:
        return recipe.mlp * hidden * width, recipe.mlp * hidden * width
    own = EXPERT_WIDTH.get(model_type, "intermediate_size")
    one = recipe.mlp * hidden * whole(own, fields.get(own), 1, f.MAX_WINDOW)
    experts, chosen = whole(name, fields[name], 1, f.MAX_WIDTH), whole(CHOSEN[0], fields.get(CHOSEN[0]), 1, f.MAX_WIDTH)
    return experts * (one + hidden), chosen * one + experts * hidden


def weight_bytes(n_parameters: int, dtype: str = "bf16") -> int:
    """Bytes of that many weights; scales of quantised weights are not counted."""
    return int(n_parameters * WEIGHT_BYTES[dtype])
