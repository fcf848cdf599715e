"""Which kind each layer is: read from whatever field says so, else from what is known of the model type."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.config import Config, missing
from mha_core.kv_size.values import ReadError, shown, whole

# The kinds that this room knows: f.LAYER_NAMES maps what files say to these.
Kinds = list[str]
Rule = Callable[[str, Any, Config, int], Kinds | None]


def layer_kinds(config: Config, n_layers: int) -> tuple[Kinds, str]:
    """The kind of each layer, and where it was read."""
    for name, rule in RULES:
        value = config.get(name)
        if value is not None and (found := rule(name, value, config, n_layers)) is not None:
            return found, name
    return _by_model_type(config, n_layers)


def _by_model_type(config: Config, n_layers: int) -> tuple[Kinds, str]:
    of_type = f"not in the file, in the code of {shown(config.model_type)}"
    if config.model_type in rules.ATTENTION_FREE:
        return ["state"] * n_layers, of_type
    if config.model_type in rules.PARALLEL:
        return ["hybrid"] * n_layers, of_type
    if pattern := rules.PATTERNS.get(config.model_type):
        return pattern.kinds(n_layers), f"{of_type}: one in {pattern.period} is full"
    if window := config.first(f.WINDOW):
        return ["sliding"] * n_layers, window
    if chunk := config.first(f.CHUNK):
        return ["chunked"] * n_layers, chunk
    return ["full"] * n_layers, "all layers"


def _names(name: str, value: Any, config: Config, n_layers: int) -> Kinds:
    """A list of names, one for each layer; layers of a draft head at the end are left out."""
    drafts = config.number(("num_nextn_predict_layers", "mtp_num_hidden_layers"), f.MAX_LAYERS, 0)
    names = _list(name, value, n_layers, drafts.value if drafts else 0)
    unknown = next((one for one in names if not isinstance(one, str) or one not in f.LAYER_NAMES), None)
    if unknown is not None or None in names:
        raise ReadError(f"{name} has a layer of an unknown type, {shown(unknown)}; its cache cannot be told.")
    return [f.LAYER_NAMES[one] for one in names]


def _list(name: str, value: Any, n_layers: int, spare: int = 0) -> list[Any]:
    if not isinstance(value, list):
        raise ReadError(f"{name} must be a list with one entry for each layer, not {shown(value)}.")
    if not n_layers <= len(value) <= n_layers + spare:
        raise ReadError(f"{name} has {len(value):,} entries for {n_layers:,} layers.")
    return value[:n_layers]


def _repeated(name: str, value: Any, config: Config, n_layers: int) -> Kinds:
    """A short list that is repeated over the layers (RecurrentGemma's _block_types)."""
    if not isinstance(value, list) or not value:
        raise ReadError(f"{name} must be a list of layer types, not {shown(value)}.")
    kinds = _names(name, value, config, len(value))
    kinds = ["sliding" if kind == "full" and config.first(f.WINDOW) else kind for kind in kinds]
    return [kinds[i % len(kinds)] for i in range(n_layers)]


def _letters(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
    """Nemotron-H: M is Mamba-2, * attention, - an MLP, E experts."""
    if not isinstance(value, str):
        raise ReadError(f"{name} must be a text with one character for each layer, not {shown(value)}.")
    if len(value) != n_layers:
        raise ReadError(f"{name} has {len(value):,} characters for {n_layers:,} layers.")
    if unknown := [letter for letter in value if letter not in f.LETTERS]:
        raise ReadError(f"{name} has an unknown character, {shown(unknown[0])}.")
    return [f.LETTERS[letter] for letter in value]


def _flags(where_one: str, where_zero: str) -> Rule:
    """A list of 0 and 1, one for each layer."""

    def rule(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
        kinds = {1: where_one, 0: where_zero}
        flags = [whole(name, one, 0, 1) for one in _list(name, value, n_layers)]
        return [kinds[flag] for flag in flags]

    return rule


def _indices(there: str, elsewhere: str) -> Rule:
    """A list of the layers of one kind, counted from 0."""

    def rule(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
        if not isinstance(value, list):
            raise ReadError(f"{name} must be a list of layer numbers, not {shown(value)}.")
        chosen = {whole(name, one, 0, n_layers - 1) for one in value}
        return [there if i in chosen else elsewhere for i in range(n_layers)]

    return rule


def _blocks(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
    """Nemotron-NAS: each block says whether its attention is left out, or replaced."""
    kinds = []
    for block in _list(name, value, n_layers):
        attention = block.get("attention") if isinstance(block, dict) else None
        if not isinstance(attention, dict):
            raise ReadError(f"{name} has a block without attention settings.")
        left_out = attention.get("no_op") or attention.get("replace_with_linear")
        kinds.append("none" if left_out else "sliding" if attention.get("window_length") else "full")
    return kinds


def _linear_lists(name: str, value: Any, _config: Config, n_layers: int) -> Kinds | None:
    """Kimi Linear: two lists that together name every layer, counted from 1 (or from 0)."""
    if not isinstance(value, dict) or not isinstance(value.get("full_attn_layers"), list):
        return None
    full = [whole(f"{name}.full_attn_layers", one, 0, n_layers) for one in value["full_attn_layers"]]
    given = value.get("kda_layers")
    linear = [whole(f"{name}.kda_layers", one, 0, n_layers) for one in given] if isinstance(given, list) else []
    first = 0 if 0 in (*full, *linear) else 1
    if sorted(full + linear) != list(range(first, n_layers + first)):
        raise ReadError(f"{name} does not name each of the {n_layers:,} layers once.")
    return ["full" if i + first in full else "state" for i in range(n_layers)]


def _period(name: str, value: Any, config: Config, n_layers: int) -> Kinds:
    """Jamba: layer i attends where i % period == offset. Zamba's code starts two layers late."""
    period = whole(name, value, 1, f.MAX_LAYERS)
    offset = config.number(("attn_layer_offset",), f.MAX_LAYERS, 0) or missing(config.fields, ("attn_layer_offset",))
    kinds = ["full" if i % period == offset.value else "state" for i in range(n_layers)]
    if config.model_type == "zamba":
        kinds = ["hybrid" if kind == "full" else kind for kind in kinds]
        return ["state", "state", "hybrid", *kinds][:n_layers]
    return kinds


def _interval(other: str) -> Rule:
    """The last of every so many layers is full."""

    def rule(name: str, value: Any, config: Config, n_layers: int) -> Kinds:
        period = whole(name, value, 1, f.MAX_LAYERS)
        return (rules.PATTERNS.get(config.model_type) or rules.last_of(period, other)).kinds(n_layers, period)

    return rule


def _window_pattern(name: str, value: Any, config: Config, n_layers: int) -> Kinds | None:
    """A number (the last of so many layers is full), or letters that are repeated (EXAONE-4: "LLLG")."""
    if config.first(f.WINDOW) is None and config.model_type not in rules.PATTERNS:
        return None
    if not isinstance(value, str):
        return _interval("sliding")(name, value, config, n_layers)
    if not value or any(letter not in f.WINDOW_LETTERS for letter in value):
        raise ReadError(f"{name} must be a number or letters such as LLLG, not {shown(value)}.")
    kinds = [f.WINDOW_LETTERS[value[i % len(value)]] for i in range(n_layers)]
    # transformers' EXAONE-4 never lets the last layer slide.
    return [*kinds[:-1], "full"]


def _neo(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
    """GPT-Neo: [[["global", "local"], 12]]."""
    names: list[Any] = []
    for pair in value if isinstance(value, list) else ():
        if isinstance(pair, list) and len(pair) == 2 and isinstance(pair[0], list):
            names += pair[0] * whole(name, pair[1], 1, f.MAX_LAYERS)
    return _names(name, names, _config, n_layers)


def _ratios(name: str, value: Any, _config: Config, n_layers: int) -> Kinds:
    """DeepSeek-V4: how many tokens share one row, 0 for a window only; entries of a draft head are left out."""
    ratios = [whole(name, one, 0, f.MAX_WINDOW) for one in _list(name, value, n_layers, f.MAX_LAYERS)]
    return [f"compressed {ratio}" for ratio in ratios]


def _rope(_name: str, value: Any, config: Config, n_layers: int) -> Kinds | None:
    """Llama 4: layers with rotary positions attend within a chunk. In other models they say nothing about the cache."""
    if config.model_type not in ("llama4", "llama4_text") or not value:
        return None
    return [("full", "chunked")[whole(_name, one, 0, 1)] for one in _list(_name, value, n_layers)]


def _rope_interval(name: str, value: Any, config: Config, n_layers: int) -> Kinds | None:
    """Llama 4 again: the last of every so many layers has no rotary positions and is full."""
    if config.model_type not in ("llama4", "llama4_text"):
        return None
    return _interval("chunked")(name, value, config, n_layers)


def _from_layer(name: str, value: Any, config: Config, n_layers: int) -> Kinds | None:
    """Qwen: layers from this one on slide, where windows are switched on."""
    start = whole(name, value, 0, f.MAX_WINDOW)
    on = config.get("use_sliding_window") is True or config.model_type in rules.WINDOW_WITHOUT_FLAG
    if not on or config.first(f.WINDOW) is None:
        return ["full"] * n_layers
    return ["sliding" if i >= start else "full" for i in range(n_layers)]


RULES: Sequence[tuple[str, Rule]] = (
    ("block_configs", _blocks),
    ("compress_ratios", _ratios),
    ("layer_types", _names),
    ("layers_block_type", _names),
    ("attention_layers", _names),
    ("block_types", _repeated),
    ("_block_types", _repeated),
    ("hybrid_override_pattern", _letters),
    ("hybrid_layer_pattern", _flags("sliding", "full")),
    ("attn_type_list", _flags("full", "state")),
    ("linear_attn_config", _linear_lists),
    ("attn_layer_indices", _indices("full", "state")),
    ("full_attn_idxs", _indices("full", "state")),
    ("hybrid_layer_ids", _indices("hybrid", "state")),
    ("local_layer_ids", _indices("sliding", "full")),
    ("cross_attention_layers", _indices("cross", "full")),
    ("attn_layer_period", _period),
    ("full_attention_interval", _interval("state")),
    ("layer_group_size", _interval("state")),
    ("attention_types", _neo),
    ("no_rope_layers", _rope),
    ("no_rope_layer_interval", _rope_interval),
    ("max_window_layers", _from_layer),
    ("sliding_window_pattern", _window_pattern),
    ("_sliding_window_pattern", _window_pattern),
    ("global_attn_every_n_layers", _window_pattern),
)
