"""The part of a config that describes the decoder, and how its fields are asked for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from mha_core.kv_size import fields as f
from mha_core.kv_size import rules
from mha_core.kv_size.values import ReadError, listed, shown, tidy, whole

MAX_NAMED = 8
MAX_NESTING = 4
MAX_FIELDS = 10_000


@dataclass(frozen=True)
class Found:
    """A number of the config, and the field it stands in."""

    name: str
    value: int


@dataclass(frozen=True)
class Config:
    """The fields of one decoder. caveats: what had to be assumed to choose and fill them."""

    fields: Mapping[str, Any]
    model_type: str
    caveats: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def get(self, name: str) -> Any:
        """The field, None where it is missing or null."""
        return self.fields.get(name)

    def first(self, names: Sequence[str]) -> str | None:
        """The first of the names that is in the file and not null."""
        return next((name for name in names if self.fields.get(name) is not None), None)

    def number(self, names: Sequence[str], high: int, low: int = 1) -> Found | None:
        """The first of the names as a whole number, None where none is given."""
        name = self.first(names)
        return None if name is None else Found(name, whole(name, self.fields[name], low, high))

    def required(self, names: tuple[str, ...], high: int) -> Found:
        """The same, but the file must have it."""
        return self.number(names, high) or missing(self.fields, names)

    @property
    def crosses(self) -> bool:
        """An encoder-decoder: every layer of the decoder attends to the encoder's tokens, too."""
        return self.get("is_encoder_decoder") is True or self.get("decoder_layers") is not None

    def switched_off(self, name: str) -> bool:
        """Whether the file says false, not merely nothing."""
        return self.fields.get(name) is False


def missing(fields: Mapping[str, Any], names: Sequence[str]) -> NoReturn:
    """Raises ReadError for a field that is not there, naming what was looked for and what was found."""
    there = [shown(name) for name in list(fields)[:MAX_NAMED]]
    has = (
        f"the file has {listed(there)}{' and more' if len(fields) > MAX_NAMED else ''}" if there else "nothing is given"
    )
    also = f" (nor {listed(names[1:MAX_NAMED])})" if len(names) > 1 else ""
    needs = "" if there else "; needed are num_hidden_layers, num_attention_heads and hidden_size or head_dim"
    raise ReadError(f"{names[0]} is missing{also}; {has}, and nothing was assumed{needs}.")


def decoder_of(fields: Mapping[str, Any], notes: tuple[str, ...] = ()) -> Config:
    """The decoder in a config: its own fields, or those of the sub-config that has them, with defaults filled in."""
    chosen, path, others = _descend(fields)
    if len(chosen) > MAX_FIELDS:
        raise ReadError(
            f"The object has {len(chosen):,} fields, over the limit of {MAX_FIELDS:,}: no config has that size."
        )
    model_type = _model_type(chosen) or _model_type(fields)
    caveats: list[str] = []
    if others:
        caveats.append(f"There are several decoders: {path} is counted, {listed(others)} is not.")
    if path:
        chosen, filled = _with_defaults(chosen, model_type)
        if filled:
            caveats.append(f"Not in {path}: {listed(filled)}; the defaults of transformers' {shown(model_type)} class.")
    if fields.get("is_encoder_decoder") is True:
        chosen = {**chosen, "is_encoder_decoder": True}
    if isinstance(chosen.get("attn_config"), dict):
        chosen = {**chosen["attn_config"], **chosen}
    tidied = {name: tidy(value) if name in f.NUMBERS else value for name, value in chosen.items()}
    texts = [name for name in f.NUMBERS if isinstance(chosen.get(name), str) and isinstance(tidied[name], int)]
    if texts:
        notes = (*notes, f"Numbers written as text were read as numbers: {listed(sorted(texts))}.")
    return Config(tidied, model_type, tuple(caveats), notes)


def _model_type(fields: Mapping[str, Any]) -> str:
    value = fields.get("model_type")
    return value if isinstance(value, str) else ""


def has_layers(fields: Mapping[str, Any]) -> bool:
    """Whether a layer count stands in the fields themselves."""
    return any(fields.get(name) is not None for name in f.N_DECODER_LAYERS)


def _descend(fields: Mapping[str, Any]) -> tuple[Mapping[str, Any], str, list[str]]:
    """The fields of the decoder, the path to them, and the paths of other decoders beside it."""
    path: list[str] = []
    others: list[str] = []
    for _ in range(MAX_NESTING):
        inner = [name for name in f.DECODERS if isinstance(fields.get(name), dict) and _speaks(fields[name])]
        if not inner or (has_layers(fields) and not has_layers(fields[inner[0]])):
            break
        others += [".".join((*path, name)) for name in inner[1:] if name.endswith("_config")]
        path.append(inner[0])
        fields = fields[inner[0]]
    return fields, ".".join(path), others


def _speaks(fields: Mapping[str, Any]) -> bool:
    """Whether a sub-config describes a decoder, or names a class whose defaults do."""
    deeper = any(isinstance(fields.get(name), dict) for name in f.DECODERS)
    return has_layers(fields) or deeper or rules.class_default(_model_type(fields), "num_hidden_layers") is not None


ALIASES = {"num_hidden_layers": f.N_LAYERS, "num_attention_heads": f.N_HEADS, "num_key_value_heads": f.N_KV_HEADS,
           "hidden_size": f.HIDDEN, "head_dim": f.HEAD_DIM, "sliding_window": f.WINDOW,
           **{name: (name,) for name in ("num_kv_shared_layers", "attention_chunk_size", "global_head_dim",
                                         "kv_lora_rank", "qk_rope_head_dim")}}  # fmt: skip


def _with_defaults(fields: Mapping[str, Any], model_type: str) -> tuple[Mapping[str, Any], list[str]]:
    """Sub-configs are saved without what equals the class default; fill it in again, and say what."""
    filled: dict[str, Any] = {}
    for name, names in ALIASES.items():
        value = rules.class_default(model_type, name)
        if value and not any(other in fields for other in names):
            filled[name] = value
    # A window that the class has and the file does not use is no assumption that matters.
    if model_type not in rules.PATTERNS and model_type not in rules.ALL_SLIDE:
        filled.pop("sliding_window", None)
    return {**fields, **filled}, list(filled)
