"""Exact counts: parameters of every matrix, and bytes of cache for every token."""

from __future__ import annotations

import torch

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.transformer import TransformerConfig


def attention_parameters(cfg: AttentionConfig) -> dict[str, int]:
    """Parameters of each attention matrix, biases included.

    Without biases and with d_k = d_model/h the sum is 2 d_model^2 + 2 d_model g d_k: h alone never changes it, g does.
    """
    q_width, kv_width = cfg.n_heads * cfg.head_dim, cfg.n_kv_heads * cfg.head_dim
    per_input = cfg.d_model + cfg.bias
    return {
        "W_Q": per_input * q_width,
        "W_K": per_input * kv_width,
        "W_V": per_input * kv_width,
        "W_O": (q_width + cfg.bias) * cfg.d_model,
    }


def held_parameters(cfg: AttentionConfig) -> dict[str, int]:
    """What a real module holds in each matrix, counted with numel(), biases included.

    It is built on torch's meta device, which has shapes and no numbers: a width of 1,024 costs as little as one of 8.
    """
    with torch.device("meta"):
        layer = GroupedQueryAttention(cfg)
    names = ("W_Q", "W_K", "W_V", "W_O")
    return {name: sum(parameter.numel() for parameter in getattr(layer, name).parameters()) for name in names}


def model_parameters(cfg: TransformerConfig) -> dict[str, int]:
    """Parameters of a whole model by part: embedding, positions, attention, MLP, norms, unembedding."""
    d_model = cfg.attention.d_model
    mlp = d_model * cfg.d_mlp + cfg.d_mlp + cfg.d_mlp * d_model + d_model
    return {
        "embedding": cfg.vocab_size * d_model,
        "positions": 0 if cfg.n_positions is None else cfg.n_positions * d_model,
        "attention": cfg.n_layers * sum(attention_parameters(cfg.attention).values()),
        "MLP": cfg.n_layers * mlp,
        "norms": (2 * cfg.n_layers + 1) * 2 * d_model,
        "unembedding": d_model * cfg.vocab_size,
    }


def kv_cache_bytes_per_token(cfg: AttentionConfig, n_layers: int, bytes_per_number: int) -> int:
    """Bytes that one more token adds to the cache: keys and values of g heads in every layer, 2 L g d_k bytes."""
    return 2 * n_layers * cfg.n_kv_heads * cfg.head_dim * bytes_per_number
