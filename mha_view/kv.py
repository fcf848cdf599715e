"""The models of the page KV cache: the visitor's own, published ones, a pasted one; each as what its layers keep."""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass, replace
from functools import cache

import torch

from mha_core.config import AttentionConfig
from mha_core.kv_cache import FullCache, RingCache
from mha_core.kv_size import KVCacheSize
from mha_core.kv_size.presets import Preset, preset_size, presets
from mha_core.kv_size.specs import FullAttention, Layer, SlidingWindow
from mha_core.kv_size.values import shown
from mha_core.kv_size.weights import Parameters, parameters
from mha_core.masks import SlidingWindow as WindowMask
from mha_core.params import model_parameters
from mha_core.text import MAX_TOKENS
from mha_view.results import model_config
from mha_view.settings import N_LAYERS, Settings

KNOBS, PASTED = "knobs", "pasted"
LONG_CONTEXT = 131_072
MAX_MEASURED_BYTES = 8 * 2**20
TORCH_DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16, "int8": torch.int8}


@dataclass(frozen=True)
class Model:
    """A model on the page.

    key: KNOBS, PASTED or the name of a preset. source: where its config was read. token: stands for it in the keys of
    caches that all visitors share; of a pasted config it holds the layers and none of the words.
    """

    key: str
    name: str
    source: str
    size: KVCacheSize
    parameters: Parameters | None
    token: Hashable

    @property
    def context(self) -> int:
        """The context that is shown when none is asked for: the longest that the model allows."""
        return LONG_CONTEXT if self.size.max_context is None else self.size.max_context

    @property
    def dtype(self) -> str:
        """The cache dtype that is shown when none is asked for."""
        return "f32" if self.key == KNOBS else "bf16"

    @property
    def bare(self) -> KVCacheSize:
        """Its layers without the words of a pasted config: what a cache that visitors share may hold."""
        return self.token if isinstance(self.token, KVCacheSize) else self.size


@cache
def preset_names() -> tuple[str, ...]:
    """The names of all published models."""
    return tuple(preset.name for preset in presets())


@cache
def preset_model(name: str) -> Model:
    """A published model."""
    size = preset_size(name)
    return Model(name, name, _preset(name).source, size, parameters(size), name)


def _preset(name: str) -> Preset:
    return next(preset for preset in presets() if preset.name == name)


def pasted_model(size: KVCacheSize) -> Model:
    """The model whose config was pasted."""
    name = f"Pasted {shown(size.model_type)}" if size.model_type else "The pasted config"
    bare = replace(size, model_type="", config_dtype=None, caveats=(), notes=(), fields={})
    return Model(PASTED, name, "the text that was pasted", size, parameters(size), bare)


def knobs_model(settings: Settings) -> Model:
    """The small model that the knobs in the sidebar describe."""
    cfg = settings.attention()
    count = sum(model_parameters(model_config(settings)).values())
    name = f"Your model (d_model {cfg.d_model}, h {cfg.n_heads}, g {cfg.n_kv_heads})"
    size = KVCacheSize(
        (_knobs_layer(cfg),) * N_LAYERS,
        n_heads=cfg.n_heads,
        hidden_size=cfg.d_model,
        max_context=MAX_TOKENS,
        config_dtype="f32",
        caveats=_knobs_caveats(settings),
    )
    return Model(KNOBS, name, "the knobs in the sidebar", size, Parameters(count, count), (KNOBS, cfg, settings.mask))


def _knobs_layer(cfg: AttentionConfig) -> Layer:
    origins = (("layers", "this app's models"), ("KV heads", "knob g"), ("head dim", "knobs d_model / h"))
    g, width, mask = cfg.n_kv_heads, cfg.head_dim, cfg.mask
    if isinstance(mask, WindowMask):
        return Layer((SlidingWindow(g, width, width, mask.width, origins=(*origins, ("window", "knob window"))),))
    return Layer((FullAttention(g, width, width, origins=origins),))


def _knobs_caveats(settings: Settings) -> tuple[str, ...]:
    if settings.mask != "full":
        return ()
    return (
        "Under a full mask earlier tokens look at later ones, so their keys and values change with every new token: "
        "nothing could be reused. The figure is what a causal model of these sizes keeps.",
    )


@dataclass(frozen=True)
class Measured:
    """A cache that was really made: how many tensors of which shape (b, g, n, d_k), and their bytes in all."""

    tensors: int
    shape: tuple[int, int, int, int]
    nbytes: int


def measured(cfg: AttentionConfig, tokens: int, batch: int, dtype: str) -> Measured | None:
    """Make the running cache of all layers and ask for its bytes; None if empty, too large, or no dtype of torch."""
    kind = RingCache if isinstance(cfg.mask, WindowMask) else FullCache
    kept = min(tokens, cfg.mask.width) if isinstance(cfg.mask, WindowMask) else tokens
    shape, numbers = (batch, cfg.n_kv_heads, kept, cfg.head_dim), TORCH_DTYPES.get(dtype)
    if numbers is None or not 0 < 2 * N_LAYERS * 4 * math.prod(shape) <= MAX_MEASURED_BYTES:
        return None
    caches = [kind((shape, shape), dtype=numbers) for _ in range(N_LAYERS)]
    return Measured(2 * len(caches), shape, sum(cache.nbytes for cache in caches))
