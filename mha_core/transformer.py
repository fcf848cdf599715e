"""A small pre-norm transformer around the attention core, with every part of its residual stream visible."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, ConfigError, Problem, whole_number_problem
from mha_core.kv_cache import RunningCache
from mha_core.masks import Mask
from mha_core.seeds import embedding, generator_for, linear
from mha_core.trace import AttentionTrace, CachedTrace, ModelTrace, StreamPart

MAX_LAYERS = 512
MAX_VOCAB = 2_000_000
MAX_POSITIONS = 1_000_000

# For each layer one factor per head, the same for all sentences or a row for each; None leaves all heads on.
HeadGates = Sequence[Float[Tensor, "h"] | Float[Tensor, "b h"] | None]


@dataclass(frozen=True)
class TransformerConfig:
    """The shape of a whole model: ``n_layers`` equal blocks around one attention shape.

    d_mlp: width of the MLP's hidden layer; 2 * d_model when left out.
    n_positions: length of a learned position table; None for none (rotary positions come with ``attention``).

    Raises ConfigError for sizes that are not whole numbers in range.
    """

    attention: AttentionConfig
    vocab_size: int
    n_layers: int = 3
    d_mlp: int = None  # pyright: ignore[reportAssignmentType] -- __post_init__ fills it in
    n_positions: int | None = None

    def __post_init__(self) -> None:
        if self.d_mlp is None:
            object.__setattr__(self, "d_mlp", 2 * self.attention.d_model)
        checks = [
            whole_number_problem("vocab_size", "vocab_size", self.vocab_size, 1, MAX_VOCAB),
            whole_number_problem("n_layers", "n_layers", self.n_layers, 1, MAX_LAYERS),
            whole_number_problem("d_mlp", "d_mlp", self.d_mlp, 1, 1_000_000),
        ]
        if self.n_positions is not None:
            checks.append(whole_number_problem("n_positions", "n_positions", self.n_positions, 1, MAX_POSITIONS))
        if problems := [problem for problem in checks if problem is not None]:
            raise ConfigError(problems)


class MLP(nn.Module):
    """Two linear maps with a GELU between them (its tanh form, Hendrycks and Gimpel 2016), biases included."""

    def __init__(self, cfg: TransformerConfig, path: tuple[object, ...]) -> None:
        super().__init__()
        d_model, seed = cfg.attention.d_model, cfg.attention.seed
        self.up = linear(d_model, cfg.d_mlp, bias=True, seed=seed, path=(*path, "up"))
        self.down = linear(cfg.d_mlp, d_model, bias=True, seed=seed, path=(*path, "down"))

    def forward(self, x: Float[Tensor, "b n d_model"]) -> Float[Tensor, "b n d_model"]:
        """What the MLP writes for each token by itself."""
        return self.down(gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    """Attention, then MLP; each reads a normalised copy of the stream and adds what it computes (pre-norm)."""

    def __init__(self, cfg: TransformerConfig, layer: int) -> None:
        super().__init__()
        layer_seed = generator_for(cfg.attention.seed, "layer", layer).initial_seed() % 2**32
        self.attention_norm = nn.LayerNorm(cfg.attention.d_model)
        self.attention = GroupedQueryAttention(replace(cfg.attention, seed=layer_seed))
        self.mlp_norm = nn.LayerNorm(cfg.attention.d_model)
        self.mlp = MLP(cfg, ("mlp", layer))

    def forward(
        self,
        stream: Float[Tensor, "b n d_model"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> Float[Tensor, "b n d_model"]:
        """The residual stream after this block. keep and head_gate as in attention."""
        stream = stream + self.attention(self.attention_norm(stream), keep=keep, head_gate=head_gate)
        return stream + self.mlp(self.mlp_norm(stream))

    def decode(
        self,
        stream: Float[Tensor, "b m d_model"],
        cache: RunningCache,
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gate: Float[Tensor, "h"] | Float[Tensor, "b h"] | None = None,
    ) -> Float[Tensor, "b m d_model"]:
        """The new tokens' residual stream after this block; arguments as in attention's ``decode``."""
        stream = stream + self.attention.decode(self.attention_norm(stream), cache, keep=keep, head_gate=head_gate)
        return stream + self.mlp(self.mlp_norm(stream))


class Transformer(nn.Module):
    """Embedding, blocks, final norm and unembedding; the unembedding has its own weights (untied)."""

    def __init__(self, cfg: TransformerConfig) -> None:
        super().__init__()
        self.cfg = cfg
        d_model, seed = cfg.attention.d_model, cfg.attention.seed
        self.embed = embedding(cfg.vocab_size, d_model, std=1.0, seed=seed, path=("embed",))
        self.position = None
        if cfg.n_positions is not None:
            self.position = embedding(cfg.n_positions, d_model, std=1.0, seed=seed, path=("position",))
        self.blocks = nn.ModuleList(Block(cfg, layer) for layer in range(cfg.n_layers))
        self.final_norm = nn.LayerNorm(d_model)
        self.unembed = linear(d_model, cfg.vocab_size, bias=False, seed=seed, path=("unembed",))

    def forward(
        self,
        token_ids: Int[Tensor, "b n"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gates: HeadGates | None = None,
    ) -> Float[Tensor, "b n vocab"]:
        """Logits for the token after each position. keep and head_gates (one per layer) as in attention."""
        stream = self.embedded(token_ids)
        for block, gate in self._blocks(head_gates):
            stream = block(stream, keep=keep, head_gate=gate)
        return self.unembed(self.final_norm(stream))

    @torch.no_grad()
    def trace(
        self,
        token_ids: Int[Tensor, "b n"],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gates: HeadGates | None = None,
    ) -> ModelTrace:
        """The same pass with everything kept: the stream around every part, and one trace per layer."""
        stream = embedded = self.embedded(token_ids)
        layers: list[AttentionTrace] = []
        parts: list[StreamPart] = []
        for layer, (block, gate) in enumerate(self._blocks(head_gates)):
            layers.append(block.attention.trace(block.attention_norm(stream), keep=keep, head_gate=gate))
            parts.append(_added(stream, layers[-1].out.to(stream.device), layer, "attention"))
            stream = parts[-1].after.to(stream.device)
            parts.append(_added(stream, block.mlp(block.mlp_norm(stream)), layer, "mlp"))
            stream = parts[-1].after.to(stream.device)
        logits = self.unembed(self.final_norm(stream)).cpu()
        return ModelTrace(token_ids.cpu(), embedded.cpu(), tuple(parts), tuple(layers), logits)

    def new_caches(self, b: int, n_max: int, *, bits: int | None = None) -> list[RunningCache]:
        """An empty cache for each layer, with room for ``n_max`` tokens of ``b`` sentences."""
        return [attention.new_cache(b, n_max, bits=bits) for attention in self.attention_layers()]

    @torch.no_grad()
    def decode(
        self,
        token_ids: Int[Tensor, "b m"],
        caches: Sequence[RunningCache],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gates: HeadGates | None = None,
    ) -> Float[Tensor, "b m vocab"]:
        """Logits of the next tokens only; everything earlier is read from the caches (one per layer), which grow.

        keep: for all tokens so far, cached and new. Sentences of uneven lengths are padded in front, so that their
        next tokens stand side by side.
        """
        stream = self.embedded(token_ids, start=caches[0].seen)
        for (block, gate), cache in zip(self._blocks(head_gates), caches, strict=True):
            stream = block.decode(stream, cache, keep=keep, head_gate=gate)
        return self.unembed(self.final_norm(stream))

    @torch.no_grad()
    def trace_decode(
        self,
        token_ids: Int[Tensor, "b m"],
        caches: Sequence[RunningCache],
        *,
        keep: Bool[Tensor, "b n"] | None = None,
        head_gates: HeadGates | None = None,
    ) -> tuple[tuple[CachedTrace, ...], Float[Tensor, "b m vocab"]]:
        """The same pass with every step of every layer kept, and the logits."""
        stream = self.embedded(token_ids, start=caches[0].seen)
        layers: list[CachedTrace] = []
        for (block, gate), cache in zip(self._blocks(head_gates), caches, strict=True):
            normed = block.attention_norm(stream)
            layers.append(block.attention.trace_decode(normed, cache, keep=keep, head_gate=gate))
            stream = stream + layers[-1].out.to(stream.device)
            stream = stream + block.mlp(block.mlp_norm(stream))
        return tuple(layers), self.unembed(self.final_norm(stream)).cpu()

    def embedded(self, token_ids: Int[Tensor, "b n"], start: int = 0) -> Float[Tensor, "b n d_model"]:
        """The residual stream before the first block: token vectors, plus position vectors where they are learned.

        start: the position of the first token.
        """
        if self.position is None:
            return self.embed(token_ids)
        n, limit = start + token_ids.shape[1], self.position.num_embeddings
        if n > limit:
            message = f"{n} tokens, but the position table has {limit} rows; use at most {limit} tokens."
            raise ConfigError([Problem("n_positions", message)])
        return self.embed(token_ids) + self.position(torch.arange(start, n, device=token_ids.device))

    def attention_layers(self) -> list[GroupedQueryAttention]:
        """The attention modules, first layer first."""
        return [block.attention for block, _ in self._blocks(None)]

    def use_mask(self, mask: Mask) -> None:
        """From now on look through another mask; a mask has no weights of its own."""
        self.cfg = replace(self.cfg, attention=replace(self.cfg.attention, mask=mask))
        for attention in self.attention_layers():
            attention.cfg = replace(attention.cfg, mask=mask)

    def _blocks(self, head_gates: Sequence[Tensor | None] | None) -> Iterator[tuple[Block, Tensor | None]]:
        gates = [None] * self.cfg.n_layers if head_gates is None else head_gates
        for block, gate in zip(self.blocks, gates, strict=True):
            assert isinstance(block, Block)
            yield block, gate


def _added(before: Tensor, write: Tensor, layer: int, kind: str) -> StreamPart:
    return StreamPart(layer, kind, before.cpu(), write.cpu(), (before + write).cpu())
