"""What all visitors share: bounded caches of finished results, each keyed by all that its value depends on."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
from cachetools import LRUCache, cached

from mha_core.analysis.pruning import Head
from mha_view import pooled, pruned, results
from mha_view.settings import Settings

MODEL_CACHE_BYTES = 512 * 2**20
RUN_CACHE_BYTES = 256 * 2**20
PACK_CACHE_BYTES = 64 * 2**20
MAX_RUN_BYTES = 640 * 2**20
PRUNED_CACHE_BYTES = 64 * 2**20
POOLED_MODEL_CACHE_BYTES = 192 * 2**20
POOLED_CACHE_BYTES = 64 * 2**20
# Each a few kilobytes of whole numbers.
KV_CACHE_ENTRIES = 512


class BudgetError(ValueError):
    """Raised before a run that would take more memory than one visitor may."""


@cached(LRUCache(MODEL_CACHE_BYTES, getsizeof=lambda m: m.nbytes), results.model_key, condition=threading.Condition())
def cached_model(settings: Settings) -> results.LoadedModel:
    """The model for these settings, shared by all visitors; nobody may change it."""
    return results.load_model(settings)


def _pack_bytes(value: Any) -> int:
    """About how many bytes plain data takes."""
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, Mapping):
        return sum(map(_pack_bytes, value.values()))
    return (
        sum(map(_pack_bytes, value))
        if isinstance(value, (list, tuple))
        else len(value)
        if isinstance(value, str)
        else 8
    )


@cached(LRUCache(PACK_CACHE_BYTES, getsizeof=_pack_bytes), lambda *call: call[0], condition=threading.Condition())
def cached_pack(_name: tuple[object, ...], make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What a picture is sent, made once for all visitors; the name says all it depends on, and nobody may change it."""
    return make()


@cached(LRUCache(KV_CACHE_ENTRIES), lambda *call: call[0], condition=threading.Condition())
def cached_figures(_name: tuple[object, ...], make: Callable[[], Any]) -> Any:
    """What a picture of the page KV cache is made of; the name says all it depends on, and nobody may change it."""
    return make()


def cached_run(settings: Settings) -> results.Run:
    """The finished run for these settings, its numbers shared by all visitors.

    Raises TextError for a text that is too long, BudgetError for a run that would take too much memory.
    """
    # The colour scale is no part of a run's key: whoever computed the run first may have chosen another.
    return replace(_shared_run(settings), settings=settings)


@cached(LRUCache(RUN_CACHE_BYTES, getsizeof=lambda r: r.nbytes), results.run_key, condition=threading.Condition())
def _shared_run(settings: Settings) -> results.Run:
    n_rows = len(results.VOCABULARY.tokenize(settings.sentence).items)
    needed = results.estimated_bytes(settings, n_rows)
    if needed > MAX_RUN_BYTES:
        raise BudgetError(
            f"This run would take {needed / 2**20:,.0f} MiB and the limit is {MAX_RUN_BYTES / 2**20:,.0f} MiB; "
            "choose a smaller d_model, fewer heads or a shorter sentence."
        )
    return results.run(settings, cached_model(settings))


def pruned_run(settings: Settings, off: tuple[Head, ...]) -> results.Run:
    """The run for these settings with heads off, its numbers shared by all visitors."""
    return replace(_shared_pruned_run(settings, off), settings=settings)


@cached(
    LRUCache(PRUNED_CACHE_BYTES, getsizeof=lambda r: r.nbytes),
    lambda settings, off: (results.run_key(settings), off),
    condition=threading.Condition(),
)
def _shared_pruned_run(settings: Settings, off: tuple[Head, ...]) -> results.Run:
    return pruned.without_heads(cached_run(settings), cached_model(settings), off)


@cached(
    LRUCache(POOLED_CACHE_BYTES, getsizeof=lambda found: found.nbytes),
    lambda settings, n_kv_heads: (results.run_key(settings), n_kv_heads),
    condition=threading.Condition(),
)
def pooled_run(settings: Settings, n_kv_heads: int) -> pooled.PooledRun:
    """The sentence through the model with its KV heads pooled to ``n_kv_heads``, shared by all visitors.

    Raises what ``cached_run`` raises, and ConfigError where g cannot be pooled to that.
    """
    return pooled.pooled_run(cached_run(settings), cached_model(settings), _pooled_model(settings, n_kv_heads))


@cached(
    LRUCache(POOLED_MODEL_CACHE_BYTES, getsizeof=lambda model: model.nbytes),
    lambda settings, n_kv_heads: (results.model_key(settings), n_kv_heads),
    condition=threading.Condition(),
)
def _pooled_model(settings: Settings, n_kv_heads: int) -> results.LoadedModel:
    return pooled.pooled_model(cached_model(settings), n_kv_heads)
