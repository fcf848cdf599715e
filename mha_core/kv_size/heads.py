"""How many KV heads a layer has and how wide they are: which of the many fields counts."""

from __future__ import annotations

from dataclasses import dataclass

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.config import Config, missing
from mha_core.kv_size.specs import Latent, Origin
from mha_core.kv_size.values import ReadError, whole


@dataclass(frozen=True)
class OneLayer:
    """The KV heads of one layer, the widths of keys and values, and where they were read."""

    n_kv_heads: int
    k_dim: int
    v_dim: int
    origins: tuple[Origin, ...]
    copies: int = 1


@dataclass(frozen=True)
class Heads:
    """The heads of a whole model. n_heads: query heads, None where layers differ. latent: what MLA keeps, else None."""

    config: Config
    n_heads: int | None
    per_layer: tuple[OneLayer, ...]
    latent: Latent | None = None
    caveats: tuple[str, ...] = ()

    def of(self, kind: str, index: int) -> OneLayer:
        """The heads of layer ``index``, which is of that kind: some kinds have sizes of their own."""
        plain, own = self.per_layer[index], f.OWN_SIZES.get(kind, {})
        count = self.config.number(own.get("n_kv_heads", ()), f.MAX_HEADS)
        width = self.config.number(own.get("head_dim", ()), f.MAX_WIDTH)
        values = self.config.number(own.get("v_head_dim", ()), f.MAX_WIDTH)
        if kind == "full" and self.config.switched_off("attention_k_eq_v"):
            count = None  # transformers' Gemma 4 reads the global heads only where keys are values
        if not (count or width or values):
            return plain
        k_dim = width.value if width else plain.k_dim
        same = plain.v_dim if plain.v_dim != plain.k_dim or not width else k_dim
        found = {"KV heads": count, "head dim": width, "value dim": values}
        origins = tuple((what, one.name) for what, one in found.items() if one)
        kept = tuple(origin for origin in plain.origins if origin[0] not in dict(origins))
        n_kv_heads = count.value if count else plain.n_kv_heads
        return OneLayer(n_kv_heads, k_dim, values.value if values else same, (*origins, *kept))


def heads_of(config: Config, n_layers: int) -> Heads:
    """Heads and widths from the fields; raises ReadError for what does not fit together."""
    if config.first(f.LATENT):
        return Heads(config, _one_count(config), (), _latent(config))
    if config.get("compress_ratios") is not None:
        return Heads(config, _one_count(config), ())
    names = f.N_DECODER_HEADS
    queries = _per_layer(config, names, n_layers)
    width, caveats = _head_dim(config, queries)
    v_width = config.number(f.V_HEAD_DIM, f.MAX_WIDTH)
    origins: tuple[Origin, ...] = (("head dim", width.name),)
    if v_width:
        origins = (*origins, ("value dim", v_width.name))
    found = []
    for index, (n_heads, q_name) in enumerate(queries):
        count, name = _kv_heads(config, index, n_layers, n_heads, q_name)
        v_dim = v_width.value if v_width else width.value
        copies = n_heads // count if count and config.get("new_decoder_architecture") is True else 1
        found.append(OneLayer(count, width.value, v_dim, (("KV heads", name), *origins), copies))
    same = {n_heads for n_heads, _ in queries}
    return Heads(config, same.pop() if len(same) == 1 else None, tuple(found), caveats=caveats)


def _one_count(config: Config) -> int | None:
    found = config.number(f.N_HEADS, f.MAX_HEADS)
    return found.value if found else None


def _latent(config: Config) -> Latent:
    """MLA: kv_lora_rank + qk_rope_head_dim; KV heads and head_dim of the file play no part."""
    latent, index = config.required(f.LATENT, f.MAX_WIDTH), config.number(f.INDEXER, f.MAX_WIDTH, 0)
    rope = config.number(f.ROPE, f.MAX_WIDTH, 0) or missing(config.fields, f.ROPE)
    origins: tuple[Origin, ...] = (("latent", latent.name), ("rotary key", rope.name))
    if index:
        origins = (*origins, ("indexer", index.name))
    heads = _one_count(config)
    nope, values = config.number(f.NOPE, f.MAX_WIDTH, 0), config.number(f.V_HEAD_DIM, f.MAX_WIDTH, 0)
    expanded = (heads, nope.value + rope.value, values.value) if heads and nope and values else None
    return Latent(latent.value, rope.value, index.value if index else 0, expanded=expanded, origins=origins)


def _per_layer(config: Config, names: tuple[str, ...], n_layers: int) -> list[tuple[int, str]]:
    """Query heads of each layer and the field they stand in."""
    name = config.first(names) or missing(config.fields, f.N_HEADS)
    value = config.fields[name]
    if isinstance(value, list):
        return [(whole(name, one, 1, f.MAX_HEADS), name) for one in _entries(name, value, n_layers)]
    return [(whole(name, value, 1, f.MAX_HEADS), name)] * n_layers


def _entries(name: str, value: list[object], n_layers: int) -> list[object]:
    if len(value) != n_layers:
        raise ReadError(f"{name} has {len(value):,} entries for {n_layers:,} layers.")
    return value


def _kv_heads(config: Config, index: int, n_layers: int, n_heads: int, q_name: str) -> tuple[int, str]:
    """KV heads of one layer: blocks, flags, then the fields in vLLM's order, else as many as query heads."""
    if config.get("block_configs") is not None:
        return _of_block(config, index, n_heads)
    if one := _multi_query(config):
        return 1, one
    name = config.first(f.N_KV_HEADS)
    if name == "multi_query_group_num" and not config.get("multi_query_attention"):
        name = None
    if name is None:
        return n_heads, q_name
    value = config.fields[name]
    if isinstance(value, list):
        # llama.cpp writes 0 for a layer without attention.
        count = whole(name, _entries(name, value, n_layers)[index], 0, f.MAX_HEADS)
    else:
        count = whole(name, value, 1, f.MAX_HEADS)
    return _fitting(name, count, n_heads, q_name), name


def _fitting(name: str, count: int, n_heads: int, q_name: str) -> int:
    if count > n_heads:
        raise ReadError(f"{name} = {count:,} is more than {q_name} = {n_heads:,}: KV heads are shared by query heads.")
    if count and n_heads % count:
        raise ReadError(f"{q_name} = {n_heads:,} query heads cannot be split evenly over {name} = {count:,} KV heads.")
    return count


def _of_block(config: Config, index: int, n_heads: int) -> tuple[int, str]:
    """Nemotron-NAS: n_heads_in_group is queries per KV head (the opposite meaning of g)."""
    attention = config.fields["block_configs"][index]["attention"]
    if attention.get("no_op") or attention.get("replace_with_linear"):
        return 1, "block_configs"
    own = attention.get("num_key_value_heads")
    if own is not None:
        return _fitting(
            "num_key_value_heads", whole("num_key_value_heads", own, 1, n_heads), n_heads, "num_attention_heads"
        ), ("block_configs")
    shared_by = whole("n_heads_in_group", attention.get("n_heads_in_group"), 1, n_heads)
    if n_heads % shared_by:
        raise ReadError(f"n_heads_in_group = {shared_by:,} does not divide num_attention_heads = {n_heads:,}.")
    return n_heads // shared_by, "block_configs"


def _multi_query(config: Config) -> str | None:
    """The field that says one KV head for all. Falcon's newer architecture ignores it and reads num_kv_heads."""
    if config.get("new_decoder_architecture") is True:
        return None
    if config.get("attn_type") == "multiquery_attention":
        return "attn_type"
    flag = config.get("multi_query")
    if flag is None and config.model_type in rules.MULTI_QUERY_DEFAULT:
        return "multi_query (true by default)"
    return "multi_query" if flag is True else None


@dataclass(frozen=True)
class _Width:
    name: str
    value: int


def _head_dim(config: Config, queries: list[tuple[int, str]]) -> tuple[_Width, tuple[str, ...]]:
    """head_dim where it is given, else the default of the class, else hidden size over heads."""
    if found := config.number(f.HEAD_DIM, f.MAX_WIDTH):
        return _Width(found.name, found.value), ()
    default = rules.class_default(config.model_type, "head_dim")
    hidden = config.number(f.HIDDEN, f.MAX_WIDTH)
    if isinstance(default, int):
        split = hidden is not None and hidden.value == default * queries[0][0]
        caveat = f"head_dim is not in the file; {default:,} is the default of transformers' class."
        return _Width("head_dim (class default)", default), () if split else (caveat,)
    if hidden is None:
        return missing(config.fields, (f.HEAD_DIM[0], *f.HIDDEN))
    wide = 2 if config.model_type in rules.DOUBLE_WIDTH else 1
    n_heads, q_name = queries[0]
    if hidden.value * wide % n_heads:
        raise ReadError(
            f"{hidden.name} = {hidden.value:,} is not a multiple of {q_name} = {n_heads:,}, and head_dim is not given."
        )
    return _Width(f"{hidden.name} / {q_name}", hidden.value * wide // n_heads), ()
