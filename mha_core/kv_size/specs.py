"""What one layer keeps for later tokens: one frozen class per caching scheme, and callers only ask for bytes.

The idea is vLLM's KVCacheSpec (v1/kv_cache_interface.py). A spec names its streams: rows of numbers that the kept
tokens leave behind. Everything else (elements, bytes, windows, paging, shards) follows from the streams.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import ClassVar, Self

# Where a number of a spec came from: what it is ("KV heads") and the field of the config.
Origin = tuple[str, str]


@dataclass(frozen=True)
class Stream:
    """Rows that every kept token leaves: ``heads`` rows of ``width`` numbers.

    window: how many tokens are kept, None for all. bound: "full", "sliding" or "chunked".
    stride: how many tokens share one row (1 but for compressed layers).
    part: "K", "V", "latent", "window", "compressed" or "indexer".
    """

    part: str
    heads: int
    width: int
    window: int | None = None
    bound: str = "full"
    stride: int = 1

    @property
    def elements(self) -> int:
        """Numbers in the rows of one kept token."""
        return self.heads * self.width

    @property
    def per_token(self) -> Fraction:
        """Numbers that one more token adds before a window is full."""
        return Fraction(self.elements, self.stride)

    def kept(self, context: int, *, window_ignored: bool = False) -> int:
        """How many of ``context`` tokens are kept, as the definition has it: a window of W keeps W."""
        return context if self.window is None or window_ignored else min(context, self.window)


@dataclass(frozen=True)
class Spec(ABC):
    """One caching scheme of one layer."""

    origins: tuple[Origin, ...] = field(default=(), compare=False, repr=False, kw_only=True)

    kind: ClassVar[str]
    sentence: ClassVar[str]

    @property
    @abstractmethod
    def streams(self) -> tuple[Stream, ...]:
        """What the tokens of the running text leave behind."""

    def shard(self, ranks: int) -> Self:  # noqa: ARG002 -- what is not split is the same on every rank
        """The part that one of ``ranks`` tensor-parallel devices holds."""
        return self


def kv_streams(
    n_kv_heads: int, k_dim: int, v_dim: int, window: int | None = None, bound: str = "full"
) -> tuple[Stream, ...]:
    """One row per KV head for the keys and one for the values."""
    return Stream("K", n_kv_heads, k_dim, window, bound), Stream("V", n_kv_heads, v_dim, window, bound)


@dataclass(frozen=True)
class Attention(Spec, ABC):
    """Keys of width ``k_dim`` and values of width ``v_dim`` for each of ``n_kv_heads`` KV heads (g).

    copies: how many times transformers stores each KV head (its Falcon copies them to the query heads first).
    """

    n_kv_heads: int
    k_dim: int
    v_dim: int
    copies: int = field(default=1, kw_only=True)

    def shard(self, ranks: int) -> Self:
        """KV heads are dealt out; with more ranks than KV heads each rank holds a copy of one (vLLM)."""
        return replace(self, n_kv_heads=max(1, -(-self.n_kv_heads // ranks)))


@dataclass(frozen=True)
class FullAttention(Attention):
    """Keys and values of every token so far (MHA, GQA and MQA differ in the number of KV heads only)."""

    kind: ClassVar[str] = "full"
    sentence: ClassVar[str] = "keeps every token"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """K and V, never bounded."""
        return kv_streams(self.n_kv_heads, self.k_dim, self.v_dim)


@dataclass(frozen=True)
class SlidingWindow(Attention):
    """Keys and values of the last ``window`` tokens (Beltagy et al. 2020)."""

    window: int

    kind: ClassVar[str] = "sliding"
    sentence: ClassVar[str] = "keeps the last tokens only"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """K and V, bounded by the window."""
        return kv_streams(self.n_kv_heads, self.k_dim, self.v_dim, self.window, "sliding")


@dataclass(frozen=True)
class Chunked(Attention):
    """Keys and values of the running chunk of ``chunk`` tokens (Llama 4)."""

    chunk: int

    kind: ClassVar[str] = "chunked"
    sentence: ClassVar[str] = "keeps the running chunk only"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """K and V, bounded by the chunk."""
        return kv_streams(self.n_kv_heads, self.k_dim, self.v_dim, self.chunk, "chunked")


@dataclass(frozen=True)
class Latent(Spec):
    """One latent of width ``latent`` and one rotary key of width ``rope`` for all heads: MLA (DeepSeek-V2).

    index_dim: width of the key of a sparse-attention indexer, 0 for none.
    expanded: (heads, key width, value width) that an engine caches which expands the latent, None where not known.
    """

    latent: int
    rope: int
    index_dim: int = 0
    window: int | None = None
    expanded: tuple[int, int, int] | None = None

    kind: ClassVar[str] = "latent"
    sentence: ClassVar[str] = "keeps one latent per token for all heads"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """One row per token, and one of the indexer."""
        bound = "full" if self.window is None else "sliding"
        latent = Stream("latent", 1, self.latent + self.rope, self.window, bound)
        return (latent, Stream("indexer", 1, self.index_dim)) if self.index_dim else (latent,)


@dataclass(frozen=True)
class Compressed(Spec):
    """The last ``window`` tokens, and one row of ``head_dim`` (+ indexer) for each ``ratio`` tokens (DeepSeek-V4).

    Keys and values are one and the same row.
    """

    head_dim: int
    window: int
    ratio: int
    index_dim: int = 0

    kind: ClassVar[str] = "compressed"
    sentence: ClassVar[str] = "keeps the last tokens, and one row for many earlier ones"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """A bounded row per token, and a row per ``ratio`` tokens."""
        window = Stream("window", 1, self.head_dim, self.window, "sliding")
        if not self.ratio:
            return (window,)
        return window, Stream("compressed", 1, self.head_dim + self.index_dim, stride=self.ratio)


@dataclass(frozen=True)
class CrossAttention(Attention):
    """Keys and values of the encoder's tokens, computed once: no token of the running text adds to it."""

    kind: ClassVar[str] = "cross-attention"
    sentence: ClassVar[str] = "keeps the encoder's tokens, computed once"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Nothing of the running text."""
        return ()

    @property
    def encoder_streams(self) -> tuple[Stream, ...]:
        """K and V of each token of the encoder."""
        return kv_streams(self.n_kv_heads, self.k_dim, self.v_dim)


@dataclass(frozen=True)
class SharedWithEarlier(Spec):
    """Reads the keys and values of an earlier layer and keeps none of its own (Gemma 3n)."""

    kind: ClassVar[str] = "shared"
    sentence: ClassVar[str] = "reads the cache of an earlier layer"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True)
class State(Spec):
    """A state of fixed size: ``conv_columns`` columns of ``conv_width`` numbers and ``recurrent`` numbers.

    The recurrent numbers are usually kept in 32 bits.
    """

    scheme: str
    conv_width: int
    conv_columns: int
    recurrent: int

    kind: ClassVar[str] = "state"
    sentence: ClassVar[str] = "keeps a state of fixed size"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Nothing: the state does not grow."""
        return ()

    @property
    def conv(self) -> int:
        """Numbers of the convolution's columns."""
        return self.conv_width * self.conv_columns

    def shard(self, ranks: int) -> Self:
        """Channels and heads of a state are dealt out."""
        return replace(self, conv_width=-(-self.conv_width // ranks), recurrent=-(-self.recurrent // ranks))


@dataclass(frozen=True)
class NoCache(Spec):
    """A layer without attention and without a state (an MLP, or attention left out)."""

    kind: ClassVar[str] = "none"
    sentence: ClassVar[str] = "keeps nothing"

    @property
    def streams(self) -> tuple[Stream, ...]:
        """Nothing."""
        return ()


@dataclass(frozen=True)
class Layer:
    """What one layer keeps: usually one spec, two where attention and a state stand side by side."""

    parts: tuple[Spec, ...]

    @property
    def streams(self) -> tuple[Stream, ...]:
        """The streams of all parts."""
        return tuple(stream for part in self.parts for stream in part.streams)

    @property
    def kind(self) -> str:
        """The kinds of its parts, as in "full + state"."""
        return " + ".join(dict.fromkeys(part.kind for part in self.parts))

    def shard(self, ranks: int) -> Layer:
        """The part that one of ``ranks`` tensor-parallel devices holds."""
        return Layer(tuple(part.shard(ranks) for part in self.parts))
