"""The same model with other attention: as MHA, with other numbers of KV heads, as MLA, with a window."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from mha_core.config import divisors, or_list
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.specs import Chunked, CrossAttention, FullAttention, Latent, Layer, SlidingWindow, Spec
from mha_core.kv_size.values import ReadError, whole

MAX_RANK = 65_536
# The rotary key of DeepSeek-V2 and V3.
ROPE = 64


def valid_kv_heads(size: KVCacheSize) -> tuple[int, ...]:
    """Every g that divides the query heads h, smallest first; empty where h is not one number or nothing is cached."""
    return divisors(size.n_heads) if size.n_heads and any(_plain(size, part) for part in _parts(size)) else ()


def with_kv_heads(size: KVCacheSize, n_kv_heads: int) -> KVCacheSize:
    """The same layers and windows with ``n_kv_heads`` KV heads (g): h of them are MHA, one is MQA.

    A latent becomes heads as wide as its values, which is how the DeepSeek-V2 paper compares.
    """
    valid = valid_kv_heads(size)
    if n_kv_heads not in valid:
        raise ReadError(
            f"g = {n_kv_heads:,} cannot be; g can be {or_list(valid)}." if valid else "No g fits this model."
        )

    def change(part: Spec) -> Spec:
        plain = _plain(size, part)
        return part if plain is None else replace(plain, n_kv_heads=n_kv_heads, copies=1)

    return _changed(size, change)


def as_mha(size: KVCacheSize) -> KVCacheSize:
    """The same model with as many KV heads as query heads."""
    return with_kv_heads(size, size.n_heads or 0)


def as_mqa(size: KVCacheSize) -> KVCacheSize:
    """The same model with one KV head for all."""
    return with_kv_heads(size, 1)


def as_mla(size: KVCacheSize, rank: int, rope: int = ROPE) -> KVCacheSize:
    """The same model with one latent of width ``rank`` and a rotary key in every layer that caches; windows stay."""
    whole("rank", rank, 1, MAX_RANK)

    def change(part: Spec) -> Spec:
        plain = _plain(size, part)
        if plain is None:
            return part
        expanded = (size.n_heads, plain.k_dim, plain.v_dim) if size.n_heads else None
        return Latent(rank, rope, window=_window(plain), expanded=expanded)

    return _changed(size, change)


def windowed(size: KVCacheSize, window: int) -> KVCacheSize:
    """The same model where every layer that caches keeps the last ``window`` tokens at most."""
    whole("window", window, 1, 10**9)

    def change(part: Spec) -> Spec:
        if isinstance(part, Latent):
            return replace(part, window=min(window, part.window or window))
        if not isinstance(part, FullAttention | SlidingWindow | Chunked):
            return part
        width = min(window, _window(part) or window)
        return SlidingWindow(part.n_kv_heads, part.k_dim, part.v_dim, width, copies=part.copies, origins=part.origins)

    return _changed(size, change)


def alternatives(size: KVCacheSize, rank: int = 512, window: int = 4096) -> dict[str, KVCacheSize]:
    """The charts' curves by name: as it is, MHA, GQA with every valid g, MQA, MLA of ``rank``, windowed."""
    found = {"as it is": size}
    for n_kv_heads in reversed(valid_kv_heads(size)):
        named = {size.n_heads: "MHA", 1: "MQA"}.get(n_kv_heads, "GQA")
        found[f"{named}, g = {n_kv_heads:,}"] = with_kv_heads(size, n_kv_heads)
    if size.layers_with_kv:
        found[f"MLA, rank {rank:,}"] = as_mla(size, rank)
        found[f"window {window:,}"] = windowed(size, window)
    return found


def saving(size: KVCacheSize) -> float | None:
    """How many times smaller the cache of a token is than with MHA (h/g where all layers share one g), or None."""
    mine = size.elements_per_token
    return as_mha(size).elements_per_token / mine if mine and valid_kv_heads(size) else None


def _parts(size: KVCacheSize) -> list[Spec]:
    return [part for layer, _ in size.counted for part in layer.parts]


def _plain(size: KVCacheSize, part: Spec) -> FullAttention | SlidingWindow | Chunked | None:
    """A part as attention with heads, None where it is none and cannot be made one."""
    if isinstance(part, CrossAttention) or not size.n_heads:
        return None
    if isinstance(part, FullAttention | SlidingWindow | Chunked):
        return part
    if isinstance(part, Latent) and part.expanded:
        _, _, width = part.expanded
        plain = FullAttention(size.n_heads, width, width)
        return plain if part.window is None else SlidingWindow(size.n_heads, width, width, part.window)
    return None


def _window(part: FullAttention | SlidingWindow | Chunked) -> int | None:
    return part.window if isinstance(part, SlidingWindow) else part.chunk if isinstance(part, Chunked) else None


def _changed(size: KVCacheSize, change: Callable[[Spec], Spec]) -> KVCacheSize:
    made = {layer: Layer(tuple(change(part) for part in layer.parts)) for layer, _ in size.counted}
    return replace(size, layers=tuple(made[layer] for layer in size.layers))
