"""Grouped-query attention: one module for MHA (g = h), GQA and MQA (g = 1).

``forward`` is the fast path; ``trace`` is the same pass with every step kept. Query head i shares keys and values
with its neighbours: KV head i // (h/g), as in torch's ``enable_gqa`` and transformers' ``repeat_kv``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Self

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import scaled_dot_product_attention

from mha_core.config import AttentionConfig
from mha_core.joined import Joined, join
from mha_core.masks import Causal, Full, Mask
from mha_core.seeds import linear
from mha_core.trace import AttentionTrace, version_of

# 64 rows of 8 heads and 1,024 keys are 2 MB: they fit the second-level cache of one core.
QUERIES_AT_ONCE = 64
# Rows that do not fill a vector register (16 numbers): torch softmaxes columns of them in two thirds of the time.
SLOW_ROWS = range(9, 16)
# A plain -inf would be made a tensor at every call, which costs as much as the masking itself.
HIDDEN = torch.tensor(-torch.inf)


class GroupedQueryAttention(nn.Module):
    """Attention whose h query heads share g keys and values (Ainslie et al. 2023; g = h is Vaswani et al. 2017).

    W_Q (d_model, h d_k), W_K and W_V (d_model, g d_k), W_O (h d_k, d_model); weights come from cfg.seed.
    """

    def __init__(self, cfg: AttentionConfig) -> None:
        super().__init__()
        self.cfg = cfg
        q_width, kv_width = cfg.n_heads * cfg.head_dim, cfg.n_kv_heads * cfg.head_dim
        self.W_Q = linear(cfg.d_model, q_width, bias=cfg.bias, seed=cfg.seed, path=("W_Q",))
        self.W_K = linear(cfg.d_model, kv_width, bias=cfg.bias, seed=cfg.seed, path=("W_K",))
        self.W_V = linear(cfg.d_model, kv_width, bias=cfg.bias, seed=cfg.seed, path=("W_V",))
        self.W_O = linear(q_width, cfg.d_model, bias=cfg.bias, seed=cfg.seed, path=("W_O",))
        self._joined: Joined | None = None
        self._join()

    def forward(
        self,
        x: Float[Tensor, "b n d_model"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> Float[Tensor, "b n d_model"]:
        """The layer's output, computed the fast way.

        keep: False marks padding that nobody may look at. head_gate: one factor per head, 0 switches it off; with a
        row per sentence, each has its own. A token with no visible key gets zeros from attention.
        """
        q, k, v = self._project(x)
        z = self._attend(self._rotate(q), self._rotate(k), v, keep)
        return _product(_concat(_gated(z, head_gate)), self.W_O)

    @torch.no_grad()
    def trace(
        self,
        x: Float[Tensor, "b n d_model"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> AttentionTrace:
        """The same pass, one step at a time; every step is returned, on the CPU. Arguments as in ``forward``."""
        q, k, v = self._project(x)
        q_rot, k_rot = self._rotate(q), self._rotate(k)
        mask = self._visible(x, keep)
        scores = _scores(q_rot, k_rot, self.cfg.scale)
        pattern = _masked_softmax(scores, mask)
        if keep is not None:
            pattern.masked_fill_(~mask.any(-1)[:, None, :, None], 0.0)
        z = _weighted_values(pattern, v)
        concat = _concat(_gated(z, head_gate))
        matrix = self.W_O
        weight = matrix.weight
        steps = {
            "x": x.detach(),
            "q": q,
            "k": k,
            "v": v,
            "q_rot": q_rot,
            "k_rot": k_rot,
            "scores": scores,
            "mask": mask,
            "pattern": pattern,
            "z": z,
            "concat": concat,
            "out": functional.linear(concat, weight, matrix.bias),
            "W_O": weight.detach(),
        }
        if not x.is_cpu:
            steps = {name: step.cpu() for name, step in steps.items()}
        return AttentionTrace(self.cfg, **steps, W_O_version=version_of(steps["W_O"]))

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        b, n, _ = x.shape

        def heads(product: Tensor) -> Tensor:
            # (b, n, heads * d_k) -> (b, heads, n, d_k)
            return product.view(b, n, -1, self.cfg.head_dim).transpose(1, 2)

        # In training the three stay apart: each has a gradient of its own.
        if torch.is_grad_enabled() or self._joined is None or not self._joined.stands(self):
            return heads(_product(x, self.W_Q)), heads(_product(x, self.W_K)), heads(_product(x, self.W_V))
        # (b, h + g + g, n, d_k): the query heads, then the keys, then the values
        counts = [width // self.cfg.head_dim for width in self._joined.widths]
        q, k, v = heads(self._joined.product(x)).split_with_sizes(counts, 1)
        return q, k, v

    def _join(self) -> None:
        if self._joined is None or not self._joined.stands(self):
            self._joined = join({"W_Q": self.W_Q, "W_K": self.W_K, "W_V": self.W_V})

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What ``.to`` and its kin are made of: each matrix comes out with memory of its own, so join them again."""
        super()._apply(fn, recurse)
        self._join()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The end of deepcopy and of unpickling: there too each matrix comes out with memory of its own."""
        super().__setstate__(state)
        self._join()

    def _rotate(self, vectors: Tensor) -> Tensor:
        if self.cfg.rotary_base is None:
            return vectors
        return rotate(vectors, torch.arange(vectors.shape[-2], device=vectors.device), self.cfg.rotary_base)

    def _visible(self, x: Tensor, keep: Tensor | None) -> Tensor:
        """The mask of this pass: (n, n) from the rule, narrowed to (b, n, n) by the padding."""
        # A trace hands its mask out, so every pass gets a copy of its own.
        visible = _rule(self.cfg.mask, x.shape[1], x.device).clone().expand(x.shape[0], -1, -1)
        return visible if keep is None else visible & keep[:, None, :]

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, keep: Tensor | None) -> Tensor:
        """z by torch's fused kernel, the quickest in every number type that ``make bench`` measures."""
        shares = self.cfg.heads_per_kv > 1
        if keep is None and isinstance(self.cfg.mask, (Full, Causal)):
            causal = isinstance(self.cfg.mask, Causal)
            return scaled_dot_product_attention(q, k, v, is_causal=causal, scale=self.cfg.scale, enable_gqa=shares)
        # (b, n, n) -> (b, 1, n, n)
        visible = self._visible(q[:, 0], keep)[:, None]
        z = scaled_dot_product_attention(q, k, v, attn_mask=visible, scale=self.cfg.scale, enable_gqa=shares)
        return z if keep is None else z.masked_fill(~visible.any(-1, keepdim=True), 0.0)


@lru_cache(maxsize=8)
def _rule(mask: Mask, n: int, device: torch.device) -> Tensor:
    """The (n, n) cells that a mask shows: the same for every pass over n tokens, so made once. Read, never written."""
    positions = torch.arange(n, device=device)
    return mask.visible(positions, positions)


def rotate(vectors: Float[Tensor, "b heads n d_k"], positions: Tensor, base: float) -> Float[Tensor, "b heads n d_k"]:
    """Turn each vector by an angle that grows with its position (rotary positions, Su et al. 2021).

    Dimension i is paired with dimension i + d_k/2, as in transformers, and turned by position * base^(-2i/d_k).
    """
    half = vectors.shape[-1] // 2
    frequencies = base ** (-torch.arange(half, device=vectors.device, dtype=torch.float64) / half)
    angles = positions.double()[:, None] * frequencies
    cos, sin = angles.cos().to(vectors.dtype), angles.sin().to(vectors.dtype)
    first, second = vectors[..., :half], vectors[..., half:]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)


def _product(x: Tensor, matrix: nn.Linear) -> Tensor:
    """x times one of the four matrices; calling the module itself costs a short sentence a tenth of its time."""
    return functional.linear(x, matrix.weight, matrix.bias)


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """q k^T * scale for every head, keys unexpanded: the h/g heads of one KV head become rows of one product."""
    b, h, n, d_k = q.shape
    g = k.shape[1]
    # (b, h, n, d_k) -> (b g, h/g n, d_k): consecutive heads share
    folded = q.reshape(b * g, h // g * n, d_k)
    keys = k.reshape(b * g, n, d_k).transpose(1, 2)
    # alpha scales inside the product and saves a pass over n x n numbers; with beta=0 the empty tensor is never read.
    products = torch.baddbmm(folded.new_empty(()), folded, keys, beta=0, alpha=scale)
    return products.view(b, h, n, n)


def _masked_softmax(scores: Tensor, visible: Tensor) -> Tensor:
    """Softmax over the visible keys, in at least float32; a row that sees nothing comes out as NaN.

    It takes a block of queries at a time, which stays in the processor's cache, and leaves out the keys that none of
    them sees: half of the work under a causal mask.
    """
    n, dtype = scores.shape[-1], torch.promote_types(scores.dtype, torch.float32)
    # (b, n, n) -> (b, 1, n, n)
    visible = visible.unsqueeze(1)
    if n <= QUERIES_AT_ONCE:
        masked = torch.where(visible, scores, HIDDEN)
        if n in SLOW_ROWS:
            return masked.mT.contiguous().softmax(-2, dtype=dtype).mT
        return masked.softmax(-1, dtype=dtype)
    pattern = scores.new_empty(scores.shape, dtype=dtype)
    for start in range(0, n, QUERIES_AT_ONCE):
        rows = slice(start, start + QUERIES_AT_ONCE)
        keys = _seen_keys(visible[..., rows, :])
        masked = torch.where(visible[..., rows, keys], scores[..., rows, keys], HIDDEN)
        torch.softmax(masked, -1, dtype, out=pattern[..., rows, keys])
        pattern[..., rows, : keys.start] = 0.0
        pattern[..., rows, keys.stop :] = 0.0
    return pattern


def _seen_keys(visible: Tensor) -> slice:
    """From the first key that any of these queries sees to the last one."""
    seen = visible.flatten(0, -2).any(0).nonzero()
    return slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)


def _weighted_values(pattern: Tensor, v: Tensor) -> Tensor:
    """pattern V for every head, values unexpanded."""
    b, h, n, _ = pattern.shape
    g, d_k = v.shape[1], v.shape[-1]
    # (b, h, n, n) -> (b g, h/g n, n)
    rounded = pattern if pattern.dtype is v.dtype else pattern.to(v.dtype)
    folded = rounded.reshape(b * g, h // g * n, n)
    return torch.bmm(folded, v.reshape(b * g, n, d_k)).view(b, h, n, d_k)


def _gated(z: Tensor, head_gate: Tensor | None) -> Tensor:
    return z if head_gate is None else z * head_gate.to(z)[..., None, None]


def _concat(z: Tensor) -> Tensor:
    # (b, h, n, d_k) -> (b, n, h d_k)
    return z.transpose(1, 2).flatten(2)
