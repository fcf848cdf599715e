"""What a reader of the numbers must know, and the signs of schemes for which there is no number."""

from __future__ import annotations

import re
from collections.abc import Callable

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.config import Config
from mha_core.kv_size.layers import UNKNOWN_STATE
from mha_core.kv_size.specs import Compressed, CrossAttention, Latent, Layer, SlidingWindow, Spec, State
from mha_core.kv_size.values import ReadError, listed, shown

SIGNS = re.compile(f.SIGNS, re.IGNORECASE)
HARMLESS = re.compile(f.HARMLESS, re.IGNORECASE)
Parts = set[Spec]


def _has_cache(parts: Parts) -> bool:
    return any(part.streams for part in parts)


# Each sentence stands where its condition holds for the different specs of the model.
SENTENCES: tuple[tuple[Callable[[Parts], bool], str], ...] = (
    (
        lambda parts: UNKNOWN_STATE in parts,
        "The file does not give all sizes of the state that layers keep; that state is not counted.",
    ),
    (
        lambda parts: not _has_cache(parts),
        "{model} keeps no KV cache: its layers keep a state of fixed size, whatever the context.",
    ),
    (
        lambda parts: _has_cache(parts) and any(isinstance(part, State) for part in parts),
        "Beside the KV cache, layers keep a state of fixed size; it is counted apart.",
    ),
    (
        lambda parts: any(isinstance(part, CrossAttention) for part in parts),
        "The encoder's keys and values are kept as well; they do not grow with the text and are counted apart.",
    ),
    (
        lambda parts: any(stream.part == "indexer" for part in parts for stream in part.streams),
        "A sparse-attention indexer keeps one more key per token; it is counted apart.",
    ),
)


def caveats_of(config: Config, layers: tuple[Layer, ...]) -> tuple[str, ...]:
    """Sentences for the reader; raises ReadError where an unknown model has signs of an unknown scheme."""
    kind, parts = config.model_type, {part for layer in set(layers) for part in layer.parts}
    found = [*_of_signs(config, parts), *_of_type(kind, parts)]
    found += [sentence.format(model=shown(kind)) for holds, sentence in SENTENCES if holds(parts)]
    drafts = config.number(("num_nextn_predict_layers", "mtp_num_hidden_layers"), f.MAX_LAYERS, 0)
    if drafts and drafts.value:
        found.append(f"Draft layers ({drafts.name} = {drafts.value:,}) are not counted: they cache only when used.")
    if kind in rules.ENGINE_CAVEATS:
        found.append(rules.ENGINE_CAVEATS[kind])
    return tuple(found)


def _of_type(kind: str, parts: Parts) -> list[str]:
    if rules.is_known(kind):
        return []
    name = f"The model type {shown(kind)} is unknown" if kind else "The file names no model type"
    found = [f"{name}: whether some layers cache otherwise could not be checked."]
    if any(isinstance(part, SlidingWindow) for part in parts):
        found.append("Which layers have a window was read from the file alone; check it against the model's code.")
    return found


def _of_signs(config: Config, parts: Parts) -> list[str]:
    signs = _unread_signs(config, parts)
    if not signs:
        return []
    kind = config.model_type
    sentence = f"the file speaks of {listed(signs[:3])}, which no rule for {shown(kind) or 'it'} here reads"
    if not rules.is_known(kind):
        raise ReadError(f"The size cannot be told: {sentence}, and a plain sum over all layers would be a guess.")
    return [f"Check the number: {sentence}."]


def _unread_signs(config: Config, parts: Parts) -> list[str]:
    """Fields that speak of a caching scheme and that nothing has read."""
    read: tuple[str, ...] = ()
    if any(isinstance(part, Latent | Compressed) for part in parts):
        read += f.INDEX_PREFIXES
    if any(isinstance(part, State) for part in parts):
        read += (*f.STATE_PREFIXES, *f.STATE_FIELDS)
    given = [name for name, value in config.fields.items() if value not in (None, False, 0, "", [], {})]
    signs = [name for name in given if name in f.STATE_FIELDS or (SIGNS.search(name) and not HARMLESS.search(name))]
    return [shown(name) for name in signs if name not in f.READ and not name.startswith(read)]
