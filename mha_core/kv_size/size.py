"""The KV cache of a whole model: totals, layers, shards, for every dtype and engine."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property

from mha_core.kv_size.engines import Engine, engine_of
from mha_core.kv_size.formats import WHOLE_FORMAT, CacheFormat, cache_format
from mha_core.kv_size.specs import Attention, Compressed, CrossAttention, Latent, Layer, State, Stream
from mha_core.kv_size.values import whole

MAX_CONTEXT = 10**9
MAX_BATCH = 10**6
MAX_RANKS = 4096


@dataclass(frozen=True)
class Bounded:
    """The layers whose cache stops growing: how many, of which kind, after how many tokens, and which."""

    kind: str
    tokens: int
    layers: tuple[int, ...]


@dataclass(frozen=True)
class KVCacheSize:
    """What every layer of a model keeps, and how many bytes that is. One sequence unless a batch is given.

    layers: one Layer for each layer of the decoder. model_type: as the config has it, typed by a stranger.
    n_heads: query heads, None where they differ or are not in the file. max_context: the limit in the config, or None.
    encoder_tokens: how many tokens cross-attention keeps, None where the config does not say.
    config_dtype: the dtype of the weights in the file. cache_dtype: a cache dtype that the file asks for, or None.
    caveats: sentences that a reader of the numbers must see. notes: what was put right in the text.
    """

    layers: tuple[Layer, ...]
    model_type: str = ""
    n_heads: int | None = None
    hidden_size: int | None = None
    max_context: int | None = None
    encoder_tokens: int | None = None
    config_dtype: str | None = None
    cache_dtype: str | None = None
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    fields: dict[str, object] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def counted(self) -> tuple[tuple[Layer, tuple[int, ...]], ...]:
        """Each different layer once, with the indices where it stands."""
        places: dict[Layer, list[int]] = {}
        for index, layer in enumerate(self.layers):
            places.setdefault(layer, []).append(index)
        return tuple((layer, tuple(where)) for layer, where in places.items())

    @cached_property
    def _streams(self) -> tuple[tuple[Stream, int], ...]:
        counts = Counter[Stream]()
        for layer, where in self.counted:
            for stream in layer.streams:
                counts[stream] += len(where)
        return tuple(counts.items())

    @property
    def elements_per_token(self) -> int | float:
        """Numbers that one token adds over all layers before any window is full."""
        return _number(sum((s.per_token * n for s, n in self._streams if s.part != "indexer"), Fraction(0)))

    @property
    def elements_per_token_growing(self) -> int | float:
        """Numbers that one token adds when all windows are full."""
        grows = (s.per_token * n for s, n in self._streams if s.window is None and s.part != "indexer")
        return _number(sum(grows, Fraction(0)))

    def bytes_per_token(self, dtype: str | CacheFormat = "bf16") -> int | float:
        """Bytes that one token adds over all layers before any window is full (scales counted, paging not)."""
        return self._per_token(dtype, growing=False)

    def bytes_per_token_growing(self, dtype: str | CacheFormat = "bf16") -> int | float:
        """Bytes that one token adds when all windows are full: the slope of a long context."""
        return self._per_token(dtype, growing=True)

    def _per_token(self, dtype: str | CacheFormat, *, growing: bool) -> int | float:
        form = replace(cache_format(dtype), residual=0)
        found = (
            form.bytes(s, 1) * n / s.stride
            for s, n in self._streams
            if s.part != "indexer" and not (growing and s.window is not None)
        )
        return _number(sum(found, Fraction(0)))

    def total_bytes(
        self, context: int, batch: int = 1, dtype: str | CacheFormat = "bf16", engine: str | Engine = "ideal"
    ) -> int:
        """Bytes of the cache that grows with the text: ``batch`` sequences of ``context`` tokens each.

        Apart are: ``state_bytes``, ``cross_attention_bytes``, ``indexer_bytes``.
        """
        return self.totals((context,), batch, dtype, engine)[0]

    def totals(
        self,
        contexts: Sequence[int],
        batch: int = 1,
        dtype: str | CacheFormat = "bf16",
        engine: str | Engine = "ideal",
    ) -> tuple[int, ...]:
        """``total_bytes`` at many contexts at once, for a chart."""
        batch, keeper = whole("batch", batch, 0, MAX_BATCH), engine_of(engine)
        rates = [(_Rate.of(layer, dtype, keeper), len(where) * batch) for layer, where in self.counted]
        checked = [whole("context", context, 0, MAX_CONTEXT) for context in contexts]
        return tuple(sum(rate.bytes(context) * n for rate, n in rates) for context in checked)

    def layer_bytes(
        self, context: int, batch: int = 1, dtype: str | CacheFormat = "bf16", engine: str | Engine = "ideal"
    ) -> tuple[int, ...]:
        """The same for each layer: sums to ``total_bytes``."""
        keeper = engine_of(engine)
        each = {layer: _Rate.of(layer, dtype, keeper).bytes(context) * batch for layer, _ in self.counted}
        return tuple(each[layer] for layer in self.layers)

    def by_kind(
        self, context: int, batch: int = 1, dtype: str | CacheFormat = "bf16", engine: str | Engine = "ideal"
    ) -> dict[str, int]:
        """Bytes of each kind of layer, in the order in which they first stand: sums to ``total_bytes``."""
        keeper, found = engine_of(engine), dict[str, int]()
        for layer, where in self.counted:
            n_bytes = _Rate.of(layer, dtype, keeper).bytes(context) * batch * len(where)
            found[layer.kind] = found.get(layer.kind, 0) + n_bytes
        return found

    def indexer_bytes(
        self, context: int, batch: int = 1, dtype: str | CacheFormat = "bf16", engine: str | Engine = "ideal"
    ) -> int:
        """Bytes of a sparse-attention indexer's keys (DeepSeek-V3.2, GLM-5), which stand beside the latent."""
        form, keeper = cache_format(dtype), engine_of(engine)
        found = (stream_bytes(s, context, form, keeper) * n for s, n in self._streams if s.part == "indexer")
        return math.ceil(sum(found, Fraction(0))) * batch

    def state_elements(self, engine: str | Engine = "ideal") -> tuple[int, int]:
        """(numbers of convolutions, recurrent numbers) of one sequence, over all layers."""
        keeper = engine_of(engine)
        states = [
            (part, len(where)) for layer, where in self.counted for part in layer.parts if isinstance(part, State)
        ]
        return sum(keeper.conv_elements(s) * n for s, n in states), sum(s.recurrent * n for s, n in states)

    def state_bytes(self, batch: int = 1, *, recurrent_bytes: int = 4, engine: str | Engine = "ideal") -> int:
        """Bytes of the states of fixed size: convolutions in 16 bits, recurrent numbers in 32 unless told."""
        conv, recurrent = self.state_elements(engine)
        return (2 * conv + recurrent_bytes * recurrent) * batch

    def cross_attention_bytes(
        self, encoder_tokens: int | None = None, batch: int = 1, dtype: str | CacheFormat = "bf16"
    ) -> int:
        """Bytes of the encoder's keys and values, computed once; ``encoder_tokens`` as in the config where left out."""
        tokens = self.encoder_tokens if encoder_tokens is None else encoder_tokens
        form = cache_format(dtype)
        one = sum((form.bytes(s, tokens or 0) for part in self.cross_parts for s in part.encoder_streams), Fraction(0))
        return math.ceil(one) * batch

    @cached_property
    def cross_parts(self) -> tuple[CrossAttention, ...]:
        """The cross-attentions of all layers."""
        return tuple(part for layer in self.layers for part in layer.parts if isinstance(part, CrossAttention))

    def shard(self, ranks: int) -> KVCacheSize:
        """What each of ``ranks`` tensor-parallel devices holds; KV heads are copied when there are fewer of them."""
        whole("ranks", ranks, 1, MAX_RANKS)
        shards = {layer: layer.shard(ranks) for layer, _ in self.counted}
        return replace(self, layers=tuple(shards[layer] for layer in self.layers))

    def beyond_limit(self, context: int) -> str | None:
        """A sentence where the context is longer than the config says the model can read, else None."""
        if self.max_context is None or context <= self.max_context:
            return None
        return f"The config gives {self.max_context:,} tokens as the limit: beyond it this is arithmetic only."

    @property
    def layers_with_kv(self) -> int:
        """How many layers keep something of the running text."""
        return sum(len(where) for layer, where in self.counted if layer.streams)

    @cached_property
    def bounded(self) -> Bounded | None:
        """The layers with a window, or None. Layers with different windows count with the largest."""
        streams = [(s, where) for layer, where in self.counted for s in layer.streams if s.window is not None]
        if not streams:
            return None
        kinds = {layer.kind for layer, _ in self.counted for s in layer.streams if s.window is not None}
        kind = "compressed" if any("compressed" in one for one in kinds) else streams[0][0].bound
        indices = sorted({index for _, where in streams for index in where})
        return Bounded(kind, max(s.window or 0 for s, _ in streams), tuple(indices))

    @cached_property
    def attentions(self) -> tuple[Attention, ...]:
        """The self-attentions with keys and values, layer by layer."""
        found = (part for layer in self.layers for part in layer.parts)
        return tuple(part for part in found if isinstance(part, Attention) and not isinstance(part, CrossAttention))

    @property
    def kv_heads(self) -> object:
        """g: one number, two where windows have their own, a list where every layer has its own, None for a latent."""
        if isinstance(self._latent, Compressed):
            return 1
        return _shared([(part.kind, part.n_kv_heads) for part in self.attentions], None if self._latent else 0)

    @property
    def head_dim(self) -> object:
        """d_k in the same forms; {latent, rope} for MLA, {k, v} where keys and values differ, None for no cache."""
        if isinstance(self._latent, Latent):
            return {"latent": self._latent.latent, "rope": self._latent.rope}
        if isinstance(self._latent, Compressed):
            return self._latent.head_dim
        return _shared([(p.kind, p.k_dim if p.k_dim == p.v_dim else (p.k_dim, p.v_dim)) for p in self.attentions], None)

    @cached_property
    def _latent(self) -> Latent | Compressed | None:
        parts = (part for layer, _ in self.counted for part in layer.parts)
        return next((part for part in parts if isinstance(part, Latent | Compressed)), None)


@dataclass(frozen=True)
class _Rate:
    """Bytes of one layer and sequence as whole numbers over one denominator: fractions are slow, and charts ask often.

    rows: for each stream its bytes per row in the format, and in 16 bits for what a format leaves whole.
    """

    keeper: Engine
    residual: int
    scale: int
    rows: tuple[tuple[Stream, int, int], ...]

    @staticmethod
    def of(layer: Layer, dtype: str | CacheFormat, keeper: Engine) -> _Rate:
        """The rate of a layer; an indexer's keys are apart."""
        form = cache_format(dtype)
        streams = [stream for stream in keeper.streams(layer) if stream.part != "indexer"]
        each = [stream.heads * form.row(stream.width) for stream in streams]
        scale = math.lcm(*(one.denominator for one in each))
        whole_rows = [int(WHOLE_FORMAT * stream.elements) * scale for stream in streams]
        rows = zip(streams, (int(one * scale) for one in each), whole_rows, strict=True)
        return _Rate(keeper, form.residual, scale, tuple(rows))

    def bytes(self, context: int) -> int:
        """Rounded up to whole bytes."""
        total = 0
        for stream, row, whole_row in self.rows:
            kept = self.keeper.kept(stream, context) // stream.stride
            left_whole = min(kept, self.residual)
            total += (kept - left_whole) * row + left_whole * whole_row
        return -(-total // self.scale)


def stream_bytes(stream: Stream, context: int, form: CacheFormat, engine: Engine) -> Fraction:
    """Bytes of one stream of one sequence."""
    return form.bytes(stream, engine.kept(stream, context) // stream.stride)


def _number(value: Fraction) -> int | float:
    return value.numerator if value.denominator == 1 else float(value)


def _shared(values: list[tuple[str, object]], empty: object) -> object:
    """One value for all layers, one for each of two kinds, or a list."""
    named = [(kind, {"k": v[0], "v": v[1]} if isinstance(v, tuple) else v) for kind, v in values]
    if not named:
        return empty
    if all(value == named[0][1] for _, value in named):
        return named[0][1]
    kinds = {kind: [value for other, value in named if other == kind] for kind, _ in named}
    if all(value == found[0] for found in kinds.values() for value in found):
        return {f"{kind}_layers": found[0] for kind, found in kinds.items()}
    return [value for _, value in named]
