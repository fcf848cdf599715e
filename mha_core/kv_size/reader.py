"""A published config.json to what each layer keeps: ``read_config``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.config import Config, decoder_of
from mha_core.kv_size.files import refuse_other_files, translated
from mha_core.kv_size.heads import Heads, heads_of
from mha_core.kv_size.parse import parse
from mha_core.kv_size.patterns import layer_kinds
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.specs import (
    Chunked,
    Compressed,
    CrossAttention,
    FullAttention,
    Latent,
    Layer,
    NoCache,
    SharedWithEarlier,
    SlidingWindow,
    Spec,
    State,
)
from mha_core.kv_size.states import state_of
from mha_core.kv_size.values import ReadError, listed, shown, whole

SIGNS = re.compile(f.SIGNS, re.IGNORECASE)


def read_config(source: str | bytes | dict[str, Any]) -> KVCacheSize:
    """What every layer of the model keeps. Raises ReadError with one sentence where that cannot be answered.

    source: the text, the bytes or the dict of a config.json; also GGUF metadata and params.json.
    """
    parsed = parse(source)
    refuse_other_files(parsed.fields)
    fields, notes = translated(parsed.fields)
    config = decoder_of(fields, (*parsed.notes, *notes))
    _refuse_other_models(fields, config)
    size = _without_cache(config) if _is_text_encoder(config) else _with_layers(config)
    return replace(size, **_about(fields, config), caveats=(*config.caveats, *size.caveats))


def _about(fields: Any, config: Config) -> dict[str, Any]:
    """What the file says about the model beside its cache."""
    limit = config.first(f.MAX_CONTEXT)
    value = config.get(limit) if limit else None
    dtype = config.get("torch_dtype") or config.get("dtype") or fields.get("torch_dtype") or fields.get("dtype")
    return {
        "model_type": config.model_type,
        "max_context": value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10**9 else None,
        "config_dtype": dtype if isinstance(dtype, str) else None,
        "cache_dtype": _cache_dtype(fields),
        "notes": config.notes,
        "fields": dict(config.fields),
    }


def _cache_dtype(fields: Any) -> str | None:
    """fp8 where the checkpoint asks for it (vLLM's resolve_kv_cache_dtype_string); bits of weights say nothing."""
    quantization = fields.get("quantization_config")
    quantization = quantization if isinstance(quantization, dict) else {}
    scheme = quantization.get("kv_cache_scheme")
    asked = isinstance(scheme, dict) and scheme.get("num_bits") == 8
    return "fp8" if asked or quantization.get("kv_cache_quant_algo") == "FP8" else None


def _refuse_other_models(fields: Any, config: Config) -> None:
    kind = config.model_type
    picture = "image_size" in fields and "patch_size" in fields and "vocab_size" not in fields
    if rules.is_other_encoder(kind) or (picture and not rules.is_known(kind)):
        raise ReadError(
            f"{shown(kind)} is an encoder of images or sound, not a language model: it does not decode token by token "
            "and has no KV cache."
        )


def _is_text_encoder(config: Config) -> bool:
    return rules.is_text_encoder(config.model_type) and config.get("is_decoder") is not True


def _without_cache(config: Config) -> KVCacheSize:
    n_layers = config.required(f.N_LAYERS, f.MAX_LAYERS).value
    sentence = f"{shown(config.model_type)} is an encoder: it does not decode token by token, so it keeps no KV cache."
    return KVCacheSize((Layer((NoCache(),)),) * n_layers, caveats=(sentence,))


def _with_layers(config: Config) -> KVCacheSize:
    found = config.required(f.N_DECODER_LAYERS if _crosses(config) else f.N_LAYERS, f.MAX_LAYERS)
    n_layers = found.value
    if found.name == "num_layers":
        n_layers *= rules.CACHES_PER_LAYER.get(config.model_type, 1)
    kinds, origin = layer_kinds(config, n_layers)
    attends = any(kind not in ("state", "none") for kind in kinds)
    heads = heads_of(config, n_layers) if attends else None
    reading = Reading(config, heads, (("which layers", origin), ("layers", found.name)))
    kinds, caveats = reading.window_checked(kinds)
    layers = reading.layers(kinds)
    caveats = (*caveats, *_caveats(config, layers, heads))
    return KVCacheSize(
        layers,
        n_heads=heads.n_heads if heads else None,
        hidden_size=_optional(config, f.HIDDEN),
        encoder_tokens=_encoder_tokens(config),
        caveats=caveats,
    )


def _optional(config: Config, names: tuple[str, ...]) -> int | None:
    found = config.number(names, f.MAX_WIDTH)
    return found.value if found else None


def _crosses(config: Config) -> bool:
    """An encoder-decoder: every layer of the decoder attends to the encoder's tokens, too."""
    return config.get("is_encoder_decoder") is True or config.get("decoder_layers") is not None


def _encoder_tokens(config: Config) -> int | None:
    """How many tokens the encoder always hands over, where the config fixes that (Whisper)."""
    return _optional(config, ("max_source_positions",)) if config.model_type == "whisper" else None


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

    def window_checked(self, kinds: list[str]) -> tuple[list[str], tuple[str, ...]]:
        """The kinds with windows that are off or never bind as what they are: full attention."""
        if not any(kind in ("sliding", "hybrid_sliding") for kind in kinds):
            return kinds, ()
        name = self.config.first(self.window_names)
        if self.config.switched_off("use_sliding_window") or (name and self.config.get(name) is False):
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
        if self.in_every_layer and kind in ("full", "hybrid"):
            parts = (*parts, *_state(self, index, ratio)) if kind == "full" else parts
        if _crosses(self.config) and kind != "none" and self.heads:
            one = self.heads.of("full", index)
            parts = (*parts, CrossAttention(one.n_kv_heads, one.k_dim, one.v_dim, origins=one.origins))
        return parts

    @property
    def in_every_layer(self) -> bool:
        """Whether a state stands beside attention in every layer (Falcon-H1)."""
        return self.config.model_type in rules.PARALLEL

    def attention(self, kind: str, index: int) -> Any:
        """KV heads and widths of layer ``index``; ReadError where the file gives no heads."""
        if self.heads is None:
            raise ReadError("num_attention_heads is missing, and the file has layers with attention.")
        one = self.heads.of(kind, index)
        return replace(one, origins=(*self.origins, *one.origins))


def _full(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    if reading.heads and reading.heads.latent:
        latent = reading.heads.latent
        return (replace(latent, origins=(*reading.origins, *latent.origins)),)
    one = reading.attention("full", index)
    return (NoCache() if one.n_kv_heads == 0 else FullAttention(one.n_kv_heads, one.k_dim, one.v_dim, origins=one.origins),)


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
        raise ReadError("The layers are of a type with an indexer, and kv_lora_rank is missing; its cache cannot be told.")
    return _full(reading, index)


def _cross(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    one = reading.attention("full", index)
    return (CrossAttention(one.n_kv_heads, one.k_dim, one.v_dim, origins=one.origins),)


def _state(reading: Reading, _index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (state_of(reading.config) or State("unknown", 0, 0, 0),)


def _hybrid(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (*_full(reading, index), *_state(reading, index))


def _hybrid_sliding(reading: Reading, index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (*_sliding(reading, index), *_state(reading, index))


def _none(_reading: Reading, _index: int, _ratio: str = "") -> tuple[Spec, ...]:
    return (NoCache(),)


def _compressed(reading: Reading, _index: int, ratio: str) -> tuple[Spec, ...]:
    width = reading.config.required(f.HEAD_DIM, f.MAX_WIDTH)
    window, name = reading.window()
    indexer = _optional(reading.config, f.INDEXER) or 0
    every = int(ratio)
    origins = (*reading.origins, ("row", width.name), ("window", name))
    return (Compressed(width.value, window, every, indexer if every == SPARSE_RATIO else 0, origins=origins),)


# DeepSeek-V4's sparse layers (4 tokens a row) have an indexer, its heavily compressed ones (128) have none.
SPARSE_RATIO, HEAVY_RATIO = 4, 128
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
    "csa": lambda reading, index, _: _compressed(reading, index, str(SPARSE_RATIO)),
    "hca": lambda reading, index, _: _compressed(reading, index, str(HEAVY_RATIO)),
}


def _caveats(config: Config, layers: tuple[Layer, ...], heads: Heads | None) -> tuple[str, ...]:
    """What a reader of the numbers must know; refuses signs of a scheme that this reader does not know."""
    kind, found = config.model_type, list(heads.caveats) if heads else []
    parts = {part for layer in set(layers) for part in layer.parts}
    if signs := _unread_signs(config, any(isinstance(part, State) for part in parts)):
        sentence = f"the file speaks of {listed(signs[:3])}, which no rule for {shown(kind) or 'it'} here reads"
        if not rules.is_known(kind):
            raise ReadError(f"The size cannot be told: {sentence}, and a plain sum over all layers would be a guess.")
        found.append(f"Check the number: {sentence}.")
    if not rules.is_known(kind):
        name = f"The model type {shown(kind)} is unknown" if kind else "The file names no model type"
        found.append(f"{name}: whether some layers cache otherwise could not be checked.")
    if State("unknown", 0, 0, 0) in parts:
        found.append("The file does not give all sizes of the state of its other layers; that state is not counted.")
    if not any(layer.streams for layer in layers):
        found.append(f"{shown(kind)} keeps no KV cache: its layers keep a state of fixed size, whatever the context.")
    elif any(isinstance(part, State) for part in parts):
        found.append("Beside the KV cache, layers keep a state of fixed size; it is counted apart.")
    if any(isinstance(part, CrossAttention) for part in parts):
        found.append("The encoder's keys and values are kept as well; they do not grow with the text and are counted apart.")
    if any(stream.part == "indexer" for layer in set(layers) for stream in layer.streams):
        found.append("A sparse-attention indexer keeps one more key per token; it is counted apart.")
    if kind in rules.ENGINE_CAVEATS:
        found.append(rules.ENGINE_CAVEATS[kind])
    return tuple(found)


def _unread_signs(config: Config, has_state: bool) -> list[str]:
    """Fields that speak of a caching scheme and that nothing has read."""
    given = [name for name, value in config.fields.items() if value not in (None, False, 0, "") and value != []]
    signs = [name for name in given if SIGNS.search(name) and name not in (*f.READ, *f.HARMLESS)]
    return [shown(name) for name in signs if not (has_state and name in f.STATE_FIELDS) and not _read_beside(name, config)] + [
        name for name in given if not has_state and name in f.STATE_FIELDS and name not in signs
    ]


def _read_beside(name: str, config: Config) -> bool:
    """Fields of a state that came with one that was read."""
    return name.startswith(("mamba_", "ssm_", "linear_")) and any(config.get(field) is not None for field in f.STATE_FIELDS) and (
        rules.is_known(config.model_type)
    )
