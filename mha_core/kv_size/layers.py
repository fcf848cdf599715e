"""The kind of each layer to what it keeps: windows checked, heads and widths filled in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.config import Config
from mha_core.kv_size.heads import Heads, OneLayer
from mha_core.kv_size.specs import (
    Chunked,
    Compressed,
    CrossAttention,
    FullAttention,
    Layer,
    NoCache,
    SharedWithEarlier,
    SlidingWindow,
    Spec,
    State,
)
from mha_core.kv_size.states import state_of
from mha_core.kv_size.values import ReadError, whole

UNKNOWN_STATE = State("unknown", 0, 0, 0)


@dataclass(frozen=True)
class Reading:
    """One config being read: turns the kind of a layer into its specs."""

    config: Config
    heads: Heads | None
    origins: tuple[tuple[str, str], ...]

    @property
    def window_names(self) -> tuple[str, ...]:
        """The fields that may hold the window."""
        return (*f.WINDOW, *rules.EXTRA_WINDOW.get(self.config.model_type, ()))

    @property
    def switched_on(self) -> bool:
        """Whether windows count: some models must say so, the others may say that they do not."""
        if self.config.model_type in rules.WINDOW_NEEDS_FLAG:
            return self.config.get("use_sliding_window") is True
        return not self.config.switched_off("use_sliding_window")

    def window_checked(self, kinds: list[str]) -> tuple[list[str], tuple[str, ...]]:
        """The kinds with windows that are off or never bind as what they are: full attention."""
        if not any(kind in ("sliding", "hybrid_sliding") for kind in kinds):
            return kinds, ()
        name = self.config.first(self.window_names)
        if not self.switched_on or (name and self.config.get(name) is False):
            return self.unbound(kinds), ()
        if name is None:
            return self.no_window(kinds)
        value = whole(name, self.config.get(name), -1, f.MAX_WINDOW)
        if value <= 0:
            return self.unbound(kinds), (f"{name} = {value} was read as: no window.",)
        limit = self.config.first(f.MAX_CONTEXT)
        most = self.config.get(limit) if limit else None
        if isinstance(most, int) and not isinstance(most, bool) and value >= most > 0:
            return self.unbound(kinds), (f"{name} = {value:,} never binds: {limit} is {most:,}.",)
        return kinds, ()

    def no_window(self, kinds: list[str]) -> tuple[list[str], tuple[str, ...]]:
        """Layers that slide, and no window in the file: null means off, absent means the default of the class."""
        names = [name for name in self.window_names if name in self.config.fields]
        if names:
            return self.unbound(kinds), (f"{names[0]} is null, so no layer has a window.",)
        if rules.class_default(self.config.model_type, "sliding_window") is None:
            raise ReadError("sliding_window is missing, and the file says that layers have a window.")
        return kinds, ("sliding_window is not in the file; the default of transformers' class was used.",)

    @staticmethod
    def unbound(kinds: list[str]) -> list[str]:
        """Layers that would slide as layers that do not."""
        return [{"sliding": "full", "hybrid_sliding": "hybrid"}.get(kind, kind) for kind in kinds]

    def window(self) -> tuple[int, str]:
        """The window and its field."""
        found = self.config.number(self.window_names, f.MAX_WINDOW)
        if found is None:
            default = rules.class_default(self.config.model_type, "sliding_window")
            return whole("sliding_window", default, 1, f.MAX_WINDOW), "the class default"
        return found.value, found.name

    def layers(self, kinds: list[str]) -> tuple[Layer, ...]:
        """What each layer keeps."""
        shared = self.config.number(("num_kv_shared_layers",), len(kinds), 0)
        owners = len(kinds) - (shared.value if shared else 0)
        found: list[Layer] = []
        for i, kind in enumerate(kinds):
            if i >= owners:
                found.append(Layer((SharedWithEarlier(origins=(("which layers", "num_kv_shared_layers"),)),)))
            else:
                found.append(Layer(self.parts(kind, i)))
        return tuple(found)

    def parts(self, kind: str, index: int) -> tuple[Spec, ...]:
        """The specs of layer ``index``."""
        name, _, ratio = kind.partition(" ")
        parts = BUILDERS[name](self, index, ratio)
        if self.config.crosses and kind != "none" and self.heads:
            one = self.heads.of("full", index)
            parts = (*parts, CrossAttention(one.n_kv_heads, one.k_dim, one.v_dim, origins=one.origins))
        return parts

    def attention(self, kind: str, index: int) -> OneLayer:
        """KV heads and widths of layer ``index``; ReadError where the file gives no heads."""
        if self.heads is None:
            raise ReadError("num_attention_heads is missing, and the file has layers with attention.")
        one = self.heads.of(kind, index)
        return replace(one, origins=(*self.origins, *one.origins))


def _full(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    if reading.heads and reading.heads.latent:
        latent = reading.heads.latent
        indexers = reading.config.get("indexer_types")
        shared = isinstance(indexers, list) and index < len(indexers) and indexers[index] == "shared"
        index_dim = 0 if shared else latent.index_dim
        return (replace(latent, index_dim=index_dim, origins=(*reading.origins, *latent.origins)),)
    one = reading.attention("full", index)
    if one.n_kv_heads == 0:
        return (NoCache(),)
    return (FullAttention(one.n_kv_heads, one.k_dim, one.v_dim, copies=one.copies, origins=one.origins),)


def _sliding(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    window, name = reading.window()
    if reading.heads and reading.heads.latent:
        latent = reading.heads.latent
        return (replace(latent, window=window, index_dim=0, origins=(*latent.origins, ("window", name))),)
    one = reading.attention("sliding", index)
    return (SlidingWindow(one.n_kv_heads, one.k_dim, one.v_dim, window, origins=(*one.origins, ("window", name))),)


def _chunked(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    one, chunk = reading.attention("chunked", index), reading.config.required(f.CHUNK, f.MAX_WINDOW)
    return (Chunked(one.n_kv_heads, one.k_dim, one.v_dim, chunk.value, origins=(*one.origins, ("chunk", chunk.name))),)


def _indexed(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    if not (reading.heads and reading.heads.latent):
        raise ReadError(
            "The layers are of a type with an indexer, and kv_lora_rank is missing; its cache cannot be told."
        )
    return _full(reading, index)


def _cross(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    one = reading.attention("full", index)
    return (CrossAttention(one.n_kv_heads, one.k_dim, one.v_dim, origins=one.origins),)


def _state(reading: Reading, _index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (state_of(reading.config) or UNKNOWN_STATE,)


def _hybrid(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (*_full(reading, index), *_state(reading, index))


def _hybrid_sliding(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (*_sliding(reading, index), *_state(reading, index))


def _none(_reading: Reading, _index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (NoCache(),)


# DeepSeek-V4's sparse layers (4 tokens a row) have an indexer, its heavily compressed ones (128) have none.
SPARSE_RATIO, HEAVY_RATIO = 4, 128


def _compressed(reading: Reading, _index: int, ratio: str) -> tuple[Spec, ...]:
    width = reading.config.required(f.HEAD_DIM, f.MAX_WIDTH)
    window, name = reading.window()
    index = reading.config.number(f.INDEXER, f.MAX_WIDTH, 0)
    every = int(ratio)
    origins = (*reading.origins, ("row", width.name), ("window", name))
    return (
        Compressed(width.value, window, every, index.value if index and every == SPARSE_RATIO else 0, origins=origins),
    )


def _sparse(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return _compressed(reading, index, _rate(reading.config, "compressed_sparse_attention", SPARSE_RATIO))


def _heavy(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return _compressed(reading, index, _rate(reading.config, "heavily_compressed_attention", HEAVY_RATIO))


def _rate(config: Config, kind: str, default: int) -> str:
    rates = config.get("compress_rates")
    value = rates.get(kind, default) if isinstance(rates, dict) else default
    return str(whole("compress_rates", value, 1, f.MAX_WINDOW))


BUILDERS: dict[str, Callable[[Reading, int, str], tuple[Spec, ...]]] = {
    "full": _full,
    "sliding": _sliding,
    "chunked": _chunked,
    "indexed": _indexed,
    "cross": _cross,
    "state": _state,
    "hybrid": _hybrid,
    "hybrid_sliding": _hybrid_sliding,
    "none": _none,
    "compressed": _compressed,
    "csa": _sparse,
    "hca": _heavy,
}
