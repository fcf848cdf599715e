"""The numbers of the pictures of the page KV cache as plain data: what each layer keeps, curves, what fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mha_core.kv_size import KVCacheSize
from mha_core.kv_size.hardware import Fit, Load, Roofline, fit, gpus, roofline
from mha_core.kv_size.size import MAX_BATCH, MAX_CONTEXT
from mha_core.kv_size.weights import Parameters, weight_bytes
from mha_core.kv_size.whatif import alternatives

AGAINST = ("context", "batch")
LOG_STEPS, LINEAR_STEPS = 10, 16
LEAST_CONTEXT, LEAST_BATCH = 1024, 64


@dataclass(frozen=True)
class Asked:
    """How a cache is kept: tokens of each sequence, sequences at once, the cache dtype, and the engine."""

    context: int
    batch: int = 1
    dtype: str = "bf16"
    engine: str = "ideal"

    @property
    def values(self) -> tuple[int, int, str, str]:
        """In the order in which the core takes them."""
        return self.context, self.batch, self.dtype, self.engine


def layer_rows(size: KVCacheSize, asked: Asked) -> tuple[list[tuple[str, int]], list[tuple[int, int, int]]]:
    """(kinds and how many layers are of each, (kind, bytes, bytes with windows ignored) of each layer)."""
    kinds = sorted(
        Counter(layer.kind for layer in size.layers).items(), key=lambda kind: not kind[0].startswith("full")
    )
    index = {name: i for i, (name, _) in enumerate(kinds)}
    kept = size.layer_bytes(*asked.values)
    everything = size.layer_bytes(asked.context, asked.batch, asked.dtype, "window-ignored")
    rows = zip(size.layers, kept, everything, strict=True)
    return kinds, [(index[layer.kind], mine, whole) for layer, mine, whole in rows]


def stops(asked: Asked, longest: int, against: str, axis: str, sizes: Iterable[KVCacheSize] = ()) -> list[int]:
    """Where the curves are computed: doublings on a log axis, even steps on a linear one, and the point asked for.

    sizes: models whose windows' ends are points too, since their curves bend there.
    """
    here = asked.context if against == "context" else asked.batch
    high = max(here, longest, LEAST_CONTEXT) if against == "context" else max(here, LEAST_BATCH)
    power = 1 << (high - 1).bit_length()
    top = min(power, MAX_CONTEXT if against == "context" else MAX_BATCH)
    if axis == "log":
        found = {min(power >> i, top) for i in range(LOG_STEPS + 1)} - {0}
    else:
        found = {top * i // LINEAR_STEPS for i in range(LINEAR_STEPS + 1)}
    bends = {here} | ({size.bounded.tokens for size in sizes if size.bounded} if against == "context" else set())
    return sorted(found | {bend for bend in bends if min(found) <= bend <= top})


def even_stops(xs: Sequence[int]) -> list[int]:
    """Those of the stops that lie evenly on a linear axis."""
    return [x for x in xs if x * LINEAR_STEPS % max(xs) == 0]


def short(number: int) -> str:
    """A number of an axis: 128k and 1M are powers of two."""
    for power, letter in ((30, "G"), (20, "M"), (10, "k")):
        if number >= 2**power and number % 2 ** (power - 4) == 0:
            return f"{number / 2**power:g}{letter}"
    return f"{number:,}"


def marks(xs: Sequence[int], axis: str) -> dict[float, str]:
    """What stands on the x axis: every second stop, so that labels do not touch."""
    found = [x for x in xs if x & (x - 1) == 0][::-2] if axis == "log" else even_stops(xs)[::4]
    return {float(x): short(x) for x in sorted(found)}


def curves(
    sizes: Iterable[tuple[str, KVCacheSize]], xs: Sequence[int], asked: Asked, against: str
) -> list[tuple[str, list[int]]]:
    """The total of each model at each x."""
    if against == "context":
        return [(name, list(size.totals(xs, *asked.values[1:]))) for name, size in sizes]
    one = [(name, size.total_bytes(asked.context, 1, asked.dtype, asked.engine)) for name, size in sizes]
    return [(name, [n_bytes * batch for batch in xs]) for name, n_bytes in one]


def others_of(size: KVCacheSize, rank: int, window: int) -> list[tuple[str, KVCacheSize]]:
    """The same model with other attention, by name; as it is comes first."""
    return list(alternatives(size, rank, window).items())


def kind_curves(size: KVCacheSize, xs: Sequence[int], asked: Asked, against: str) -> list[tuple[str, list[int]]]:
    """What the layers of each kind keep at each x, for kinds that keep anything."""
    found: dict[str, list[int]] = {}
    for x in xs:
        context, batch = (x, asked.batch) if against == "context" else (asked.context, x)
        for kind, n_bytes in size.by_kind(context, batch, asked.dtype, asked.engine).items():
            found.setdefault(kind, []).append(n_bytes)
    return [(kind, ys) for kind, ys in found.items() if any(ys)]


@dataclass(frozen=True)
class Fitting:
    """What fits on the GPUs, and the least time of a decoding step (None where nothing runs)."""

    fit: Fit
    roof: Roofline
    total_weights: int
    active_weights: int


def fitting(size: KVCacheSize, asked: Asked, count: Parameters, weights: str, gpu: str, n_gpus: int) -> Fitting:
    """Memory first, then speed. Of a model with experts a step reads the active weights at least."""
    card = gpus()[gpu]
    total, active = weight_bytes(count.total, weights), weight_bytes(count.active, weights)
    load = Load(size, total, asked.dtype, asked.engine, n_gpus)
    step = Load(size, active, asked.dtype, asked.engine, n_gpus)
    peak = "fp8" if weights == "fp8" else "bf16"
    speed = roofline(step, card, count.active, asked.context, asked.batch, peak=peak)
    return Fitting(fit(load, card, asked.context, asked.batch), speed, total, active)
