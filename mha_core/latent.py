"""Latent attention (MLA, DeepSeek-V2): what is cached is one short vector per token, from which K and V are computed.

Two kinds. ``LatentAttention`` is made to be trained that way: positions travel in a key of their own. In
``TruncatedAttention`` the latent is *constructed* from the K and V of a trained layer, which was never told of it.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from mha_core.attention import GroupedQueryAttention, one_query, rotate
from mha_core.config import (
    MAX_D_MODEL,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_SEED,
    AttentionConfig,
    ConfigError,
    Problem,
    whole_number_problem,
)
from mha_core.kv_cache import FullCache, RingCache, RunningCache
from mha_core.masks import FULL, Mask, SlidingWindow
from mha_core.seeds import linear
from mha_core.trace import Traced, step, steps_of
from mha_core.transformer import Block, Transformer
from mha_core.work import Product


@dataclass(frozen=True)
class LatentConfig:
    """The shape of one latent attention layer (DeepSeek-AI 2024, section 2.1).

    head_dim: width d_k of a head's content, for queries, keys and values. rank: width of the latent that K and V are
    computed from. rope_dim: width of the key that carries the position, one for all heads; even.

    Raises ConfigError with one Problem for each field that cannot work.
    """

    d_model: int
    n_heads: int
    head_dim: int
    rank: int
    rope_dim: int
    rotary_base: float = 10_000.0
    mask: Mask = FULL
    seed: int = 0

    def __post_init__(self) -> None:
        found = [
            whole_number_problem("d_model", "d_model", self.d_model, 1, MAX_D_MODEL),
            whole_number_problem("n_heads", "h", self.n_heads, 1, MAX_HEADS),
            whole_number_problem("head_dim", "d_k", self.head_dim, 1, MAX_HEAD_DIM),
            whole_number_problem("rank", "rank", self.rank, 1, MAX_D_MODEL),
            whole_number_problem("rope_dim", "rope_dim", self.rope_dim, 2, MAX_HEAD_DIM),
            whole_number_problem("seed", "seed", self.seed, 0, MAX_SEED),
        ]
        if found[4] is None and self.rope_dim % 2:
            near = f"{self.rope_dim - 1} or {self.rope_dim + 1}"
            why = "rotary positions turn pairs of numbers"
            found.append(Problem("rope_dim", f"rope_dim = {self.rope_dim} is odd: {why}; nearest are {near}."))
        if problems := [problem for problem in found if problem is not None]:
            raise ConfigError(problems)

    @property
    def scale(self) -> float:
        """What scores are multiplied with: 1 / sqrt(d_k + rope_dim)."""
        return (self.head_dim + self.rope_dim) ** -0.5

    @property
    def cached_width(self) -> int:
        """Numbers that are cached for a token, however many heads there are."""
        return self.rank + self.rope_dim


@dataclass(frozen=True, eq=False)
class LatentTrace(Traced):
    """Every step of one latent attention layer, on the CPU, in both of its forms.

    Axes: b sentences, n tokens, h heads, d_k head width, r the latent's rank, p the rotary width. *Expanded*: keys and
    values are computed from the latent for every head. *Absorbed*: the query is moved into the latent's space
    (``q_latent``), looks at the latents themselves, and what it gathers there (``z_latent``) becomes z.
    """

    cfg: LatentConfig
    x: Float[Tensor, "b n d_model"] = field(metadata=step("b n d_model", "X"))
    latent: Float[Tensor, "b n r"] = field(metadata=step("b n r", "C = X W_down (cached)", "x"))
    k_rope: Float[Tensor, "b n p"] = field(
        metadata=step("b n p", "X W_KR turned by its position, one for all heads (cached)", "x")
    )
    q: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "Q = X W_Q, split into h heads", "x"))
    q_rope: Float[Tensor, "b h n p"] = field(metadata=step("b h n p", "X W_QR turned by its position", "x"))
    k: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "K = C W_UK, split into h heads", "latent"))
    v: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "V = C W_UV, split into h heads", "latent"))
    q_latent: Float[Tensor, "b h n r"] = field(
        metadata=step("b h n r", "Q W_UK^T: the query absorbs the keys' matrix, and Q K^T = Q_latent C^T", "q")
    )
    scores: Float[Tensor, "b h n n"] = field(
        metadata=step("b h n n", "(Q K^T + Q_rope K_rope^T) / sqrt(d_k + p)", "q k q_rope k_rope")
    )
    mask: Bool[Tensor, "b n n"] = field(metadata=step("b n n", "True where a query may see a key"))
    pattern: Float[Tensor, "b h n n"] = field(
        metadata=step("b h n n", "softmax over the visible keys of scores", "scores mask")
    )
    z_latent: Float[Tensor, "b h n r"] = field(metadata=step("b h n r", "pattern C", "pattern latent"))
    z: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "pattern V = Z_latent W_UV", "pattern v"))
    concat: Float[Tensor, "b n h*d_k"] = field(
        metadata=step("b n h*d_k", "the z of all heads side by side, each times its gate", "z")
    )
    out: Float[Tensor, "b n d_model"] = field(metadata=step("b n d_model", "concat W_O", "concat"))


LATENT_STEPS = steps_of(LatentTrace)


class LatentAttention(nn.Module):
    """Attention whose heads have keys and values of their own, all computed from one latent per token.

    W_Q (d_model, h d_k), W_QR (d_model, h p), W_down (d_model, r), W_KR (d_model, p), W_UK and W_UV (r, h d_k),
    W_O (h d_k, d_model). Left out of DeepSeek-V2's layer: the norm of the latent, and the low rank of the queries.
    """

    def __init__(self, cfg: LatentConfig) -> None:
        super().__init__()
        self.cfg = cfg
        width = cfg.n_heads * cfg.head_dim
        self.W_Q = self._matrix("W_Q", cfg.d_model, width)
        self.W_QR = self._matrix("W_QR", cfg.d_model, cfg.n_heads * cfg.rope_dim)
        self.W_down = self._matrix("W_down", cfg.d_model, cfg.rank)
        self.W_KR = self._matrix("W_KR", cfg.d_model, cfg.rope_dim)
        self.W_UK = self._matrix("W_UK", cfg.rank, width)
        self.W_UV = self._matrix("W_UV", cfg.rank, width)
        self.W_O = self._matrix("W_O", width, cfg.d_model)

    def forward(
        self,
        x: Float[Tensor, "b n d_model"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
        absorbed: bool = False,
    ) -> Float[Tensor, "b n d_model"]:
        """The layer's output; ``absorbed`` computes the same without K and V. Other arguments as in attention."""
        q, q_rope = self._queries(x, 0)
        visible = self._visible(x, keep)[:, None]
        attend = self._absorbed if absorbed else self._expanded
        z = attend(q, q_rope, self._cacheable(x, 0), visible)
        return self._written(z, head_gate)

    @torch.no_grad()
    def trace(
        self,
        x: Float[Tensor, "b n d_model"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> LatentTrace:
        """The same pass, one step at a time; every step is returned, on the CPU."""
        q, q_rope = self._queries(x, 0)
        latent, k_rope = self._cacheable(x, 0).split((self.cfg.rank, self.cfg.rope_dim), -1)
        k, v = self._heads(self.W_UK(latent)), self._heads(self.W_UV(latent))
        scores = (q @ k.mT + q_rope @ k_rope[:, None].mT) * self.cfg.scale
        mask = self._visible(x, keep)
        seen = torch.where(mask[:, None], scores, -torch.inf)
        pattern = seen.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        pattern = pattern.masked_fill(~mask.any(-1)[:, None, :, None], 0.0)
        z = pattern.to(v.dtype) @ v
        concat = _concat(z, head_gate)
        steps = {
            "x": x.detach(),
            "latent": latent,
            "k_rope": k_rope,
            "q": q,
            "q_rope": q_rope,
            "k": k,
            "v": v,
            "q_latent": self._into_latent(q),
            "scores": scores,
            "mask": mask,
            "pattern": pattern,
            "z_latent": pattern.to(latent.dtype) @ latent[:, None],
            "z": z,
            "concat": concat,
            "out": self.W_O(concat),
        }
        return LatentTrace(self.cfg, **{name: step.cpu() for name, step in steps.items()})

    def new_cache(self, b: int, n_max: int, *, bits: int | None = None) -> RunningCache:
        """An empty cache of latents and rotary keys, (b, n_max, rank + rope_dim): no heads, no K, no V."""
        return latent_cache(self.W_down.weight, self.cfg.mask, (b, n_max, self.cfg.cached_width), bits)

    @torch.no_grad()
    def decode(
        self,
        x: Float[Tensor, "b m d_model"],
        cache: RunningCache,
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
        absorbed: bool = True,
    ) -> Float[Tensor, "b m d_model"]:
        """The output for the m next tokens only; arguments as in GroupedQueryAttention's ``decode``.

        Absorbed, a step reads the latents once, for all heads; expanded, it computes K and V of all tokens again.
        """
        q, q_rope = self._queries(x, cache.seen)
        (cached,) = cache.update(self._cacheable(x, cache.seen))
        visible = cache.visible(self.cfg.mask, x.shape[1], cached.shape[1], keep)[:, None].to(x.device)
        attend = self._absorbed if absorbed else self._expanded
        return self._written(attend(q, q_rope, cached, visible), head_gate)

    def products(self, m: int, n: int, *, absorbed: bool = True) -> list[Product]:
        """The matrix products of a ``decode`` of m new tokens of one sentence which look at n tokens."""
        cfg = self.cfg
        h, width = cfg.n_heads, cfg.n_heads * cfg.head_dim
        inputs = [width, h * cfg.rope_dim, cfg.rank, cfg.rope_dim]
        common = [*(Product(1, m, cfg.d_model, size) for size in inputs), Product(1, m, width, cfg.d_model)]
        if absorbed:
            moved = [Product(h, m, cfg.head_dim, cfg.rank), Product(h, m, cfg.rank, cfg.head_dim)]
            seen = [Product(1, h * m, cfg.cached_width, n), Product(1, h * m, n, cfg.cached_width)]
            return [*common, *moved, *seen]
        up = [Product(1, n, cfg.rank, width)] * 2
        return [*common, *up, Product(h, m, cfg.head_dim + cfg.rope_dim, n), Product(h, m, n, cfg.head_dim)]

    def _matrix(self, name: str, d_in: int, d_out: int) -> nn.Linear:
        return linear(d_in, d_out, bias=False, seed=self.cfg.seed, path=(name,))

    def _heads(self, product: Tensor) -> Tensor:
        # (b, n, h * width) -> (b, h, n, width)
        return product.unflatten(-1, (self.cfg.n_heads, -1)).transpose(1, 2)

    def _queries(self, x: Tensor, start: int) -> tuple[Tensor, Tensor]:
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        return self._heads(self.W_Q(x)), rotate(self._heads(self.W_QR(x)), positions, self.cfg.rotary_base)

    def _cacheable(self, x: Tensor, start: int) -> Float[Tensor, "b n cached_width"]:
        """Latent and turned rotary key of each token, side by side: all that a later token needs to know of it."""
        positions = torch.arange(start, start + x.shape[1], device=x.device)
        k_rope = rotate(self.W_KR(x)[:, None], positions, self.cfg.rotary_base)[:, 0]
        return torch.cat((self.W_down(x), k_rope), -1)

    def _visible(self, x: Tensor, keep: Tensor | None) -> Tensor:
        positions = torch.arange(x.shape[1], device=x.device)
        visible = self.cfg.mask.visible(positions, positions).expand(len(x), -1, -1)
        return visible if keep is None else visible & keep[:, None, :]

    def _into_latent(self, q: Tensor) -> Tensor:
        # Each head's rows of W_UK: (h, d_k, r), so that (b, h, n, d_k) -> (b, h, n, r)
        return q @ self.W_UK.weight.unflatten(0, (self.cfg.n_heads, -1))

    def _expanded(self, q: Tensor, q_rope: Tensor, cached: Tensor, visible: Tensor) -> Tensor:
        latent, k_rope = cached.split((self.cfg.rank, self.cfg.rope_dim), -1)
        k = self._heads(self.W_UK(latent))
        # (b, n, p) -> (b, h, n, p)
        keys = torch.cat((k, k_rope[:, None].expand(-1, self.cfg.n_heads, -1, -1)), -1)
        values = self._heads(self.W_UV(latent))
        queries = torch.cat((q, q_rope), -1)
        z = scaled_dot_product_attention(queries, keys, values, attn_mask=visible, scale=self.cfg.scale)
        return z.masked_fill(~visible.any(-1, keepdim=True), 0.0)

    def _absorbed(self, q: Tensor, q_rope: Tensor, cached: Tensor, visible: Tensor) -> Tensor:
        queries, keys = torch.cat((self._into_latent(q), q_rope), -1), cached[:, None]
        # The rotary key goes along as if it were a value and is cut off: the fused kernel wants one width.
        if q.shape[2] == 1:
            gathered = one_query(queries, keys, keys, visible, self.cfg.scale)
        else:
            gathered = scaled_dot_product_attention(
                queries, keys, keys, attn_mask=visible, scale=self.cfg.scale, enable_gqa=True
            )
        z_latent = gathered[..., : self.cfg.rank].masked_fill(~visible.any(-1, keepdim=True), 0.0)
        # Each head's rows of W_UV, turned: (h, r, d_k)
        return z_latent @ self.W_UV.weight.unflatten(0, (self.cfg.n_heads, -1)).mT

    def _written(self, z: Tensor, head_gate: Tensor | None) -> Tensor:
        return self.W_O(_concat(z, head_gate))


class TruncatedAttention(GroupedQueryAttention):
    """A trained layer made latent afterwards: K and V from the best ``rank`` directions of the input. *Constructed.*

    The singular value decomposition of W_K and W_V side by side, cut off at ``rank``, is the nearest matrix of that
    rank (Eckart and Young 1936): latent = X W_down, and K and V = latent W_up. It was not trained so, and costs what
    it costs; at full rank it is the same layer. Only the latent is cached. With rotary positions K is computed from
    the latent first and turned then, at every step for all tokens: that is exact, but nothing can be absorbed, which
    is why DeepSeek-V2 gives the positions a key of their own.

    kept: the share of the squared singular values that is left. Raises ConfigError for a rank that cannot be.
    """

    def __init__(self, layer: GroupedQueryAttention, rank: int) -> None:
        cfg = layer.cfg
        kv_width = cfg.n_kv_heads * cfg.head_dim
        if problem := rank_problem(cfg, rank):
            raise ConfigError([problem])
        super().__init__(cfg)
        self.to(layer.W_Q.weight.device, layer.W_Q.weight.dtype)
        self.load_state_dict(layer.state_dict())
        both = torch.cat((layer.W_K.weight, layer.W_V.weight)).detach()
        left, sizes, right = torch.linalg.svd(both.double(), full_matrices=False)
        # The sizes go to the way down: the way up then turns and never stretches, so a rounded latent costs least.
        up, down = left[:, :rank].to(both), (sizes[:rank, None] * right[:rank]).to(both)
        self.rank, self.kept = rank, float(sizes[:rank].square().sum() / sizes.square().sum())
        self.W_down = _with_weight(down)
        self.W_up = _with_weight(up, None if layer.W_K.bias is None else torch.cat((layer.W_K.bias, layer.W_V.bias)))
        with torch.no_grad():
            for matrix, rows in zip((self.W_K, self.W_V), up.split(kv_width), strict=True):
                matrix.weight.copy_(rows @ down)
        self.requires_grad_(layer.W_Q.weight.requires_grad)

    def new_cache(self, b: int, n_max: int, *, bits: int | None = None) -> RunningCache:
        """An empty cache of latents: (b, n_max, rank)."""
        return latent_cache(self.W_down.weight, self.cfg.mask, (b, n_max, self.rank), bits)

    def products(self, m: int, n: int, *, cached: bool = True) -> list[Product]:
        """As for any layer; with a cache the way down is for the new tokens, and the way up for all n."""
        if not cached:
            return super().products(m, n)
        cfg = self.cfg
        projections = 1 if self._joined is not None and self._joined.stands(self) else 3
        kv_width = 2 * cfg.n_kv_heads * cfg.head_dim
        return [
            Product(1, m, cfg.d_model, cfg.n_heads * cfg.head_dim),
            Product(1, m, cfg.d_model, self.rank),
            Product(1, n, self.rank, kv_width),
            *super().products(m, n)[projections:],
        ]

    def _extended(self, x: Tensor, cache: RunningCache) -> tuple[Tensor, ...]:
        cfg, m, start = self.cfg, x.shape[1], cache.seen
        q = self.W_Q(x).unflatten(-1, (cfg.n_heads, -1)).transpose(1, 2)
        (latents,) = cache.update(self.W_down(x))
        # (b, n, 2 g d_k) -> (b, g, n, d_k) twice
        k, v = self.W_up(latents).unflatten(-1, (2 * cfg.n_kv_heads, -1)).transpose(1, 2).chunk(2, 1)
        positions, newest = cache.positions(k.shape[2]).to(x.device), cache.newest(m)
        keys = k if cfg.rotary_base is None else rotate(k, positions, cfg.rotary_base)
        return q, k.narrow(2, newest, m), v.narrow(2, newest, m), *self._turned(start, q), keys, v


def truncated(model: Transformer, rank: int) -> Transformer:
    """A copy of a model whose every layer caches a constructed latent of ``rank`` numbers; raises ConfigError."""
    copy = deepcopy(model)
    for block in copy.blocks:
        assert isinstance(block, Block)
        block.attention = TruncatedAttention(block.attention, rank)
    return copy


def full_rank(cfg: AttentionConfig) -> int:
    """The smallest rank at which nothing is lost: min(d_model, 2 g d_k). Below 2 g d_k it saves cache."""
    return min(cfg.d_model, 2 * cfg.n_kv_heads * cfg.head_dim)


def rank_problem(cfg: AttentionConfig, rank: int) -> Problem | None:
    """What is wrong with a rank for a layer of this shape, or None."""
    return whole_number_problem("rank", "rank", rank, 1, full_rank(cfg))


def latent_cache(weight: Tensor, mask: Mask, shape: tuple[int, int, int], bits: int | None) -> RunningCache:
    """An empty cache of one vector per token, (b, n_max, width); under a sliding window no longer than that."""
    b, n_max, width = shape
    if isinstance(mask, SlidingWindow) and mask.width < n_max:
        return RingCache([(b, mask.width, width)], dtype=weight.dtype, device=weight.device, bits=bits)
    return FullCache([shape], dtype=weight.dtype, device=weight.device, bits=bits)


def _concat(z: Tensor, head_gate: Tensor | None) -> Tensor:
    gated = z if head_gate is None else z * head_gate.to(z)[..., None, None]
    # (b, h, n, d_k) -> (b, n, h d_k)
    return gated.transpose(1, 2).flatten(2)


def _with_weight(weight: Tensor, bias: Tensor | None = None) -> nn.Linear:
    layer = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    layer.weight = nn.Parameter(weight.clone())
    if bias is not None:
        layer.bias = nn.Parameter(bias.detach().clone())
    return layer
