"""A published config.json to what each layer keeps: ``read_config``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.caveats import caveats_of
from mha_core.kv_size.config import Config, decoder_of
from mha_core.kv_size.files import refuse_other_files, translated
from mha_core.kv_size.heads import heads_of
from mha_core.kv_size.layers import Reading
from mha_core.kv_size.parse import parse
from mha_core.kv_size.patterns import layer_kinds
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.specs import Layer, NoCache
from mha_core.kv_size.values import ReadError, shown, whole


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
    asked = _cache_dtype(fields) if size.layers_with_kv else None
    caveats = [*config.caveats, *size.caveats]
    if asked:
        caveats.append(f"The checkpoint asks for an {asked} cache: engines that follow it keep one byte per number.")
    return replace(size, **_about(fields, config), cache_dtype=asked, caveats=tuple(caveats), notes=config.notes)


def _about(fields: Mapping[str, Any], config: Config) -> dict[str, Any]:
    """What the file says about the model beside its cache."""
    limits = [config.get(name) for name in f.MAX_CONTEXT]
    good = [one for one in limits if isinstance(one, int) and not isinstance(one, bool) and 0 < one <= f.MAX_WINDOW]
    dtypes = [where.get(name) for where in (config.fields, fields) for name in f.DTYPE]
    hidden = config.number(f.HIDDEN, f.MAX_WIDTH)
    return {
        "model_type": config.model_type,
        "hidden_size": hidden.value if hidden else None,
        "max_context": good[0] if good else None,
        "config_dtype": next((one for one in dtypes if isinstance(one, str)), None),
        "encoder_tokens": _encoder_tokens(fields, config),
        "fields": dict(config.fields),
    }


def _cache_dtype(fields: Mapping[str, Any]) -> str | None:
    """fp8 where the checkpoint asks for it (vLLM's resolve_kv_cache_dtype_string); bits of weights say nothing."""
    quantization = fields.get("quantization_config")
    quantization = quantization if isinstance(quantization, dict) else {}
    scheme = quantization.get("kv_cache_scheme")
    asked = isinstance(scheme, dict) and scheme.get("num_bits") == 8
    return "fp8" if asked or quantization.get("kv_cache_quant_algo") == "FP8" else None


def _encoder_tokens(fields: Mapping[str, Any], config: Config) -> int | None:
    """How many tokens the encoder always hands over, where the config fixes it (Whisper; a picture of Llama 3.2)."""
    if config.model_type == "whisper":
        found = config.number(("max_source_positions",), f.MAX_WINDOW)
        return found.value if found else None
    vision = fields.get("vision_config")
    if config.get("cross_attention_layers") is None or not isinstance(vision, dict):
        return None
    names = ("max_num_tiles", "image_size", "patch_size")
    if any(vision.get(name) is None for name in names):
        return None
    tiles, image, patch = (whole(name, vision[name], 1, f.MAX_WIDTH) for name in names)
    return tiles * ((image // patch) ** 2 + 1)


def _refuse_other_models(fields: Mapping[str, Any], config: Config) -> None:
    types = [one for one in (fields.get("model_type"), config.model_type) if isinstance(one, str)]
    encoder = next((one for one in types if rules.is_other_encoder(one)), None)
    picture = all(name in fields for name in ("image_size", "patch_size")) and "vocab_size" not in fields
    if encoder is None and not (picture and not any(rules.is_known(one) for one in types)):
        return
    raise ReadError(
        f"{shown(encoder or config.model_type)} is an encoder of images or sound, not a language model: it does not "
        "decode token by token and has no KV cache."
    )


def _is_text_encoder(config: Config) -> bool:
    return rules.is_text_encoder(config.model_type) and config.get("is_decoder") is not True


def _without_cache(config: Config) -> KVCacheSize:
    n_layers = config.required(f.N_LAYERS, f.MAX_LAYERS).value
    heads = config.number(f.N_HEADS, f.MAX_HEADS)
    sentence = f"{shown(config.model_type)} is an encoder: it does not decode token by token, so it keeps no KV cache."
    return KVCacheSize((Layer((NoCache(),)),) * n_layers, n_heads=heads.value if heads else None, caveats=(sentence,))


def _with_layers(config: Config) -> KVCacheSize:
    found = config.required(f.N_DECODER_LAYERS if config.crosses else f.N_LAYERS, f.MAX_LAYERS)
    caches = rules.CACHES_PER_LAYER.get(config.model_type, 1) if found.name == "num_layers" else 1
    n_layers = found.value * caches
    kinds, origin = layer_kinds(config, n_layers)
    attends = any(kind not in ("state", "none") for kind in kinds)
    heads = heads_of(config, n_layers) if attends else None
    reading = Reading(config, heads, (("which layers", origin), ("layers", found.name)))
    kinds, caveats = reading.window_checked(kinds)
    layers = reading.layers(kinds)
    of_heads = heads.caveats if heads else ()
    return KVCacheSize(
        layers, n_heads=heads.n_heads if heads else None, caveats=(*caveats, *of_heads, *caveats_of(config, layers))
    )
