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
from mha_core.kv_cache import FullCache, RingCache, RunningCache
from mha_core.masks import Causal, Full, Mask, SlidingWindow
from mha_core.seeds import linear
from mha_core.trace import AttentionTrace, CachedTrace, version_of
from mha_core.work import Product

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
        return self._written(z, head_gate)

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

    def new_cache(self, b: int, n_max: int, *, bits: int | None = None) -> RunningCache:
        """An empty cache for ``n_max`` tokens of ``b`` sentences; under a sliding window it holds no more than that.

        bits: 8 or 4 to keep it quantised.
        """
        mask, weight = self.cfg.mask, self.W_K.weight
        window = mask.width if isinstance(mask, SlidingWindow) and mask.width < n_max else None
        shape = (b, self.cfg.n_kv_heads, n_max if window is None else window, self.cfg.head_dim)
        kind = FullCache if window is None else RingCache
        return kind((shape, shape), dtype=weight.dtype, device=weight.device, bits=bits)

    @torch.no_grad()
    def decode(
        self,
        x: Float[Tensor, "b m d_model"],
        cache: RunningCache,
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> Float[Tensor, "b m d_model"]:
        """The output for the m next tokens only: their queries look at the keys and values of the cache, which grows.

        Equals the last m rows of ``forward`` over all tokens, as long as the cache holds every key that the mask
        shows. keep: for all tokens so far, cached and new. head_gate: of the new tokens.
        """
        _, _, _, q, keys, values = self._extended(x, cache)
        z = self._attend_cached(q, keys, values, cache, keep)
        return self._written(z, head_gate)

    @torch.no_grad()
    def trace_decode(
        self,
        x: Float[Tensor, "b m d_model"],
        cache: RunningCache,
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> CachedTrace:
        """The same step with everything kept, on the CPU; arguments as in ``decode``."""
        q, k, v, q_rot, keys, values = self._extended(x, cache)
        positions, m, n = cache.positions(keys.shape[2]), x.shape[1], keys.shape[2]
        mask = cache.visible(self.cfg.mask, m, n, keep).expand(len(x), -1, -1)
        scores = _scores(q_rot, keys, self.cfg.scale)
        pattern = _softmax(torch.where(mask[:, None], scores, HIDDEN)).masked_fill(~mask.any(-1)[:, None, :, None], 0.0)
        z = _weighted_values(pattern, values)
        concat = _concat(_gated(z, head_gate))
        steps = {
            "x": x.detach(),
            "q": q,
            "k": k,
            "v": v,
            "q_rot": q_rot,
            "k_rot": keys.narrow(2, cache.newest(m), m).clone(),
            "scores": scores,
            "mask": mask,
            "pattern": pattern,
            "z": z,
            "concat": concat,
            "out": _product(concat, self.W_O),
        }
        return CachedTrace(self.cfg, positions, **{name: step.cpu() for name, step in steps.items()})

    def products(self, m: int, n: int, *, cached: bool = True) -> list[Product]:  # noqa: ARG002 -- others ask
        """The matrix products of one pass over m new tokens of one sentence which look at n keys, their own included.

        K and V are read once for each of the g KV heads, not for each of the h heads. cached: whether the other
        tokens' keys and values are in a cache; here the products are the same, for then m is n.
        """
        h, g, d_k, d_model = self.cfg.n_heads, self.cfg.n_kv_heads, self.cfg.head_dim, self.cfg.d_model
        widths = [h * d_k, g * d_k, g * d_k]
        if self._joined is not None and self._joined.stands(self):
            widths = [sum(widths)]
        return [
            *(Product(1, m, d_model, width) for width in widths),
            Product(g, h // g * m, d_k, n),
            Product(g, h // g * m, n, d_k),
            Product(1, m, h * d_k, d_model),
        ]

    def _extended(self, x: Tensor, cache: RunningCache) -> tuple[Tensor, ...]:
        """q, k, v and turned q of the new tokens; then all turned keys and all values, now that these have joined."""
        q, k, v = self._project(x)
        q_rot, k_rot = self._turned(cache.seen, q, k)
        return q, k, v, q_rot, *cache.update(k_rot, v)

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

    def _turned(self, start: int, *vectors: Tensor) -> tuple[Tensor, ...]:
        """Vectors whose first token stands at ``start``, turned by a table: no angle is computed twice."""
        base, m, d_k = self.cfg.rotary_base, vectors[0].shape[2], self.cfg.head_dim
        if base is None:
            return vectors
        # Tables for 64, 128, 256 ... positions: a growing text asks for a new one rarely.
        table = _turns(d_k, base, max(64, 1 << (start + m - 1).bit_length()), vectors[0].dtype, vectors[0].device)
        cos, sin = table.narrow(1, start, m).unbind()
        return tuple(torch.addcmul(each * cos, each.roll(d_k // 2, -1), sin) for each in vectors)

    def _written(self, z: Tensor, head_gate: Tensor | None) -> Tensor:
        return _product(_concat(_gated(z, head_gate)), self.W_O)

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

    def _attend_cached(
        self, q: Tensor, keys: Tensor, values: Tensor, cache: RunningCache, keep: Tensor | None
    ) -> Tensor:
        """z of the m newest tokens; what the cache gave back is not copied."""
        m, n, mask = q.shape[2], keys.shape[2], self.cfg.mask
        if m == n > 1:
            return self._attend(q, keys, values, keep)
        if m == 1 and keep is None and not (isinstance(mask, SlidingWindow) and n > mask.width):
            return one_query(q, keys, values, None, self.cfg.scale)
        # (b or 1, m, n) -> (b or 1, 1, m, n)
        visible = cache.visible(mask, m, n, keep)[:, None].to(q.device)
        shares, scale = self.cfg.heads_per_kv > 1, self.cfg.scale
        if m == 1:
            z = one_query(q, keys, values, visible, scale)
        else:
            z = scaled_dot_product_attention(q, keys, values, attn_mask=visible, scale=scale, enable_gqa=shares)
        return torch.where(visible.any(-1, keepdim=True), z, 0.0)


@lru_cache(maxsize=8)
def _turns(d_k: int, base: float, n: int, dtype: torch.dtype, device: torch.device) -> Float[Tensor, "2 n d_k"]:
    """Cosines, and sines with the sign that ``rotate`` gives each half, for positions 0 to n-1. Read, never written."""
    frequencies = base ** (-torch.arange(d_k // 2, dtype=torch.float64) / (d_k // 2))
    angles = torch.arange(n, dtype=torch.float64)[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    return torch.stack((torch.cat((cos, cos), -1), torch.cat((-sin, sin), -1))).to(device, dtype)


def one_query(q: Tensor, keys: Tensor, values: Tensor, visible: Tensor | None, scale: float) -> Tensor:
    """z of one new token: the h/g query heads of a KV head are h/g rows that look at the same keys.

    So each key and value is read once from memory, not once per query head: with h = 16, g = 1 and 8,192 keys the
    kernel takes a fifth of the time that it takes with ``enable_gqa`` (docs/adr/0011).
    """
    b, h, _, d_k = q.shape
    # (b, h, 1, d_k) -> (b, g, h/g, d_k)
    rows = q.reshape(b, keys.shape[1], -1, d_k)
    z = scaled_dot_product_attention(rows, keys, values, attn_mask=visible, scale=scale)
    return z.reshape(b, h, 1, d_k)


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
    g, n_keys = k.shape[1], k.shape[2]
    # (b, h, n, d_k) -> (b g, h/g n, d_k): consecutive heads share
    folded = q.reshape(b * g, h // g * n, d_k)
    keys = k.reshape(b * g, n_keys, d_k).transpose(1, 2)
    # alpha scales inside the product and saves a pass over n x n numbers; with beta=0 the empty tensor is never read.
    products = torch.baddbmm(folded.new_empty(()), folded, keys, beta=0, alpha=scale)
    return products.view(b, h, n, n_keys)


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


def _softmax(masked: Tensor) -> Tensor:
    return masked.softmax(-1, dtype=torch.promote_types(masked.dtype, torch.float32))


def _seen_keys(visible: Tensor) -> slice:
    """From the first key that any of these queries sees to the last one."""
    seen = visible.flatten(0, -2).any(0).nonzero()
    return slice(int(seen[0]), int(seen[-1]) + 1) if len(seen) else slice(0, 0)


def _weighted_values(pattern: Tensor, v: Tensor) -> Tensor:
    """pattern V for every head, values unexpanded."""
    b, h, n, n_keys = pattern.shape
    g, d_k = v.shape[1], v.shape[-1]
    # (b, h, n, n_keys) -> (b g, h/g n, n_keys)
    rounded = pattern if pattern.dtype is v.dtype else pattern.to(v.dtype)
    folded = rounded.reshape(b * g, h // g * n, n_keys)
    return torch.bmm(folded, v.reshape(b * g, n_keys, d_k)).view(b, h, n, d_k)


def _gated(z: Tensor, head_gate: Tensor | None) -> Tensor:
    return z if head_gate is None else z * head_gate.to(z)[..., None, None]


def _concat(z: Tensor) -> Tensor:
    # (b, h, n, d_k) -> (b, n, h d_k)
    return z.transpose(1, 2).flatten(2)
