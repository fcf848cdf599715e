"""GPUs, what fits on them, and how fast a token can be decoded at best."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from mha_core.kv_size.engines import Engine, engine_of
from mha_core.kv_size.formats import CacheFormat
from mha_core.kv_size.size import MAX_CONTEXT, KVCacheSize
from mha_core.kv_size.specs import Attention, Compressed, CrossAttention, Latent, Spec

DATA = Path(__file__).with_name("data")
MEMORY_UNITS = {"GB": 10**9, "GiB": 2**30}


@dataclass(frozen=True)
class GPU:
    """One GPU: memory in bytes, bandwidth in bytes/s, dense peaks in FLOP/s (sparse peaks are twice that, not here).

    fp8: None where the GPU has none. note: how its memory is given. source: where all that was read.
    """

    name: str
    memory: int
    bandwidth: float
    bf16: float
    fp8: float | None
    note: str
    source: str


@cache
def gpus() -> dict[str, GPU]:
    """The table, by name."""
    kept = json.loads((DATA / "gpus.json").read_text(encoding="utf-8"))
    return {one["name"]: _gpu(one) for one in kept}


def _gpu(one: dict) -> GPU:
    fp8 = one["fp8_dense_TFLOPs"]
    return GPU(
        one["name"],
        round(one["memory"] * MEMORY_UNITS[one["memory_unit"]]),
        one["bandwidth_GBps"] * 1e9,
        one["bf16_dense_TFLOPs"] * 1e12,
        None if fp8 is None else fp8 * 1e12,
        one["memory_note"],
        one["source"],
    )


@dataclass(frozen=True)
class Load:
    """What is run: a model's cache, the bytes of its weights, and how the cache is kept, on ``n_gpus`` in parallel."""

    size: KVCacheSize
    weight_bytes: int
    dtype: str | CacheFormat = "bf16"
    engine: str | Engine = "ideal"
    n_gpus: int = 1

    @cached_property
    def rank(self) -> KVCacheSize:
        """What one GPU holds of the cache."""
        return self.size.shard(self.n_gpus)

    @cached_property
    def fixed_bytes(self) -> int:
        """Bytes that one sequence takes on one GPU whatever its length: states, the encoder's keys and values."""
        return self.rank.state_bytes(engine=self.engine) + self.rank.cross_attention_bytes(None, 1, self.dtype)

    def sequence_bytes(self, context: int) -> int:
        """Bytes that one sequence takes on one GPU: cache, indexer, states and the encoder's keys and values."""
        rank, dtype, engine = self.rank, self.dtype, self.engine
        grows = rank.total_bytes(context, 1, dtype, engine) + rank.indexer_bytes(context, 1, dtype, engine)
        return grows + self.fixed_bytes


@dataclass(frozen=True)
class Fit:
    """What fits on each GPU, in bytes. left: beside the weights (negative: not even they fit).

    cache: what the sequences asked for take. longest_context: at this batch, and largest_batch: at this context; 0 when
    nothing fits, None where nothing limits them.
    """

    memory: int
    weights: int
    left: int
    cache: int
    longest_context: int | None
    largest_batch: int | None

    @property
    def fits(self) -> bool:
        """Whether weights and cache fit together."""
        return self.cache <= self.left


def fit(load: Load, gpu: GPU, context: int, batch: int = 1, share: float = 1.0) -> Fit:
    """What fits when engines may use ``share`` of the memory. Activations are not counted: real limits are lower."""
    memory = int(gpu.memory * share)
    weights = -(-load.weight_bytes // load.n_gpus)
    left, one = memory - weights, load.sequence_bytes(context)
    most = None if one == 0 else max(0, left) // one
    return Fit(memory, weights, left, one * batch, _longest(load, left, batch), most if left >= 0 else 0)


def _longest(load: Load, left: int, batch: int) -> int | None:
    """The longest context at which ``batch`` sequences fit, by halving: bytes never fall as the context grows."""

    def fits(context: int) -> bool:
        return load.sequence_bytes(context) * batch <= left

    if left < 0 or not fits(1):
        return 0
    if fits(MAX_CONTEXT):
        return None
    low, high = 1, MAX_CONTEXT
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return low


@dataclass(frozen=True)
class Roofline:
    """The least time that one decoding step can take. Times in seconds, ``tokens_per_second`` over all sequences."""

    bytes_moved: int
    flops: int
    memory_time: float
    compute_time: float
    tokens_per_second: float

    @property
    def binds(self) -> str:
        """Which side is the slower one: "memory" or "compute"."""
        return "memory" if self.memory_time >= self.compute_time else "compute"


def roofline(load: Load, gpu: GPU, n_parameters: int, context: int, batch: int = 1, *, peak: str = "bf16") -> Roofline:
    """t >= max((weights + cache read) / bandwidth, B (2 P + 4 L h d c) / FLOP/s), split over the GPUs.

    n_parameters: those that a token passes through (fewer than all with experts; then give their bytes as the weights,
    too, for a bound). peak: "bf16" or "fp8". Formula and vectors: docs of the KV data, section 6.
    """
    cache = load.sequence_bytes(context) * batch
    moved = -(-load.weight_bytes // load.n_gpus) + cache
    flops = batch * (2 * n_parameters + attention_flops(load.size, context, load.engine))
    speed = gpu.bf16 if peak == "bf16" or gpu.fp8 is None else gpu.fp8
    memory_time, compute_time = moved / gpu.bandwidth, flops / load.n_gpus / speed
    longest = max(memory_time, compute_time)
    return Roofline(moved, flops, memory_time, compute_time, batch / longest if longest else 0.0)


def attention_flops(size: KVCacheSize, context: int, engine: str | Engine = "ideal") -> int:
    """FLOPs of scores and weighted sums for one new token: 2 h (k + v) for each kept token of each layer."""
    keeper, n_heads = engine_of(engine), size.n_heads or 0
    total = 0
    for layer, where in size.counted:
        for part in layer.parts:
            streams = [stream for stream in part.streams if stream.part in ("K", "latent", "window", "compressed")]
            kept = [keeper.kept(stream, context) // stream.stride for stream in streams]
            total += sum(2 * n_heads * _widths(part) * rows for rows in kept) * len(where)
    return total


def _widths(part: Spec) -> int:
    """Numbers that a query head multiplies with per kept row: key and value, or the latent twice."""
    if isinstance(part, Attention) and not isinstance(part, CrossAttention):
        return part.k_dim + part.v_dim
    if isinstance(part, Latent):
        return 2 * part.latent + part.rope
    return 2 * part.head_dim if isinstance(part, Compressed) else 0
