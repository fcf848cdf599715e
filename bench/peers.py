"""Other libraries' attention with our weights in it; each is held against ours before it is measured.

They are installed in an environment of their own (requirements-bench.txt, ``make bench``): imported inside functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn

from mha_core.attention import GroupedQueryAttention

# No peer has a reason to ask the outside for anything.
OFFLINE = {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
CLOSE = {torch.float32: 2e-4, torch.bfloat16: 6e-2}


class PeerError(AssertionError):
    """A peer computes something else than we do, so its time means nothing."""


def llama(layer: GroupedQueryAttention, x: Tensor, implementation: str) -> Callable[[], Tensor]:
    """transformers' LlamaAttention; cosines and sines are made outside the clock, once a model pass as in Llama."""
    os.environ.update(OFFLINE)
    modeling = import_module("transformers.models.llama.modeling_llama")
    cfg = llama_config(layer, x.shape[1], implementation)
    peer = modeling.LlamaAttention(cfg, 0).to(x.dtype).eval()
    _copy(layer, peer.q_proj, peer.k_proj, peer.v_proj, peer.o_proj)
    n = x.shape[1]
    turned = modeling.LlamaRotaryEmbedding(cfg)(x, torch.arange(n)[None])
    # sdpa is told that it is causal by having no mask, the quickest way; eager needs one.
    hide = torch.full((n, n), -torch.inf, dtype=x.dtype).triu(1)[None, None] if implementation == "eager" else None
    return lambda: peer(x, turned, hide)[0]


def llama_config(layer: GroupedQueryAttention, n: int, implementation: str, **more: int) -> Any:
    """The config.json of a one-layer Llama of our layer's shape."""
    cfg = layer.cfg
    return import_module("transformers").LlamaConfig(
        hidden_size=cfg.d_model,
        num_attention_heads=cfg.n_heads,
        num_key_value_heads=cfg.n_kv_heads,
        head_dim=cfg.head_dim,
        num_hidden_layers=1,
        max_position_embeddings=max(n, 16),
        rope_parameters={"rope_type": "default", "rope_theta": cfg.rotary_base},
        attention_bias=cfg.bias,
        attn_implementation=implementation,
        **more,
    )


def x_transformers(layer: GroupedQueryAttention, x: Tensor) -> Callable[[], Tensor]:
    """lucidrains' Attention with its fused path; without rotary positions, which are part of another module there.

    Its query head i reads KV head i mod g, ours i // (h/g): so the heads stand in another order there.
    """
    cfg = layer.cfg
    peer = import_module("x_transformers.x_transformers").Attention(
        cfg.d_model, dim_head=cfg.head_dim, heads=cfg.n_heads, kv_heads=cfg.n_kv_heads, causal=True, flash=True
    )
    peer = peer.to(x.dtype).eval()
    _copy(layer, peer.to_q, peer.to_k, peer.to_v, peer.to_out)
    # (g h/g d_k) -> (h/g g d_k)
    order = (
        torch.arange(cfg.n_heads * cfg.head_dim).view(cfg.n_kv_heads, cfg.heads_per_kv, -1).transpose(0, 1).flatten()
    )
    with torch.no_grad():
        peer.to_q.weight.copy_(layer.W_Q.weight[order])
        peer.to_out.weight.copy_(layer.W_O.weight[:, order])
    return lambda: peer(x)


def torch_mha(layer: GroupedQueryAttention, x: Tensor, *, weights: bool) -> Callable[[], Tensor]:
    """nn.MultiheadAttention, which knows no sharing and no rotary positions: with g < h it has more to do than we."""
    cfg, n = layer.cfg, x.shape[1]
    peer = nn.MultiheadAttention(cfg.d_model, cfg.n_heads, bias=cfg.bias, batch_first=True).to(x.dtype).eval()
    if cfg.n_heads == cfg.n_kv_heads:
        with torch.no_grad():
            peer.in_proj_weight.copy_(torch.cat((layer.W_Q.weight, layer.W_K.weight, layer.W_V.weight)))
            peer.out_proj.weight.copy_(layer.W_O.weight)
    hide = torch.zeros(n, n, dtype=x.dtype).masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), -torch.inf)
    if weights:
        return lambda: peer(x, x, x, attn_mask=hide, average_attn_weights=False)[0]
    return lambda: peer(x, x, x, attn_mask=hide, is_causal=True, need_weights=False)[0]


# The steps of a trace by the name of TransformerLens' hook.
HOOKS = {"hook_q": "q", "hook_k": "k", "hook_v": "v", "hook_rot_q": "q_rot", "hook_rot_k": "k_rot", "hook_z": "z"}
HOOKS |= {"hook_attn_scores": "scores", "hook_pattern": "pattern", "hook_out": "out"}


def transformer_lens(layer: GroupedQueryAttention, n: int) -> tuple[Tensor, Callable[[], Any]]:
    """One layer of a Llama in TransformerLens, run with a cache of the steps that a trace keeps; and its input.

    TransformerLens runs whole models: embedding, norms, an MLP four numbers wide and a ten-word output stay in the
    clock, small beside the attention from some hundred tokens on.
    """
    os.environ.update(OFFLINE)
    config = llama_config(layer, n, "eager", vocab_size=10, intermediate_size=4)
    model = import_module("transformers").LlamaForCausalLM(config).eval()
    attention = model.model.layers[0].self_attn
    _copy(layer, attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
    builder = import_module("transformer_lens.model_bridge.sources._bridge_builder")
    bridge = builder.build_bridge_from_module(model, "LlamaForCausalLM", hf_config=config)
    ids = torch.randint(0, 10, (1, n), generator=torch.Generator().manual_seed(2))
    wanted = {f"blocks.0.attn.{hook}" for hook in HOOKS}
    with torch.inference_mode():
        x = bridge.run_with_cache(ids)[1]["blocks.0.ln1.hook_out"].clone()
    return x, lambda: bridge.run_with_cache(ids, names_filter=lambda name: name in wanted)[1]


def check_captured(layer: GroupedQueryAttention, x: Tensor, capture: Callable[[], Any]) -> None:
    """TransformerLens' cache must hold the numbers of our trace; raises PeerError."""
    trace, cache = layer.trace(x), capture()
    for hook, step in HOOKS.items():
        found, right = cache[f"blocks.0.attn.{hook}"], getattr(trace, step)
        if right.ndim == 4 and step not in ("scores", "pattern"):
            # (b, n, heads, d_k) there, (b, heads, n, d_k) here
            found = found.transpose(1, 2)
        if step == "scores":
            # Hidden scores are overwritten there and kept here.
            found, right = (scores.masked_select(trace.mask[:, None]) for scores in (found, right))
        check_same(hook, found, right)


def check_same(name: str, found: Tensor, right: Tensor) -> None:
    """Raises PeerError where a peer's numbers are not ours."""
    deviation = float((found.float() - right.float()).abs().max()) / max(1.0, float(right.float().abs().max()))
    if not deviation <= CLOSE[right.dtype if right.dtype in CLOSE else torch.float32]:
        raise PeerError(f"{name} is off by {deviation:.2g} of the largest number: it computes something else.")


def _copy(layer: GroupedQueryAttention, *into: nn.Linear) -> None:
    with torch.no_grad():
        for source, target in zip((layer.W_Q, layer.W_K, layer.W_V, layer.W_O), into, strict=True):
            target.weight.copy_(source.weight)
