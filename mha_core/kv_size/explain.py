"""The size of a cache as a sum, term by term, each number with the field of the config it came from."""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from mha_core.kv_size.engines import Engine, engine_of
from mha_core.kv_size.formats import CacheFormat, cache_format
from mha_core.kv_size.size import KVCacheSize, stream_bytes
from mha_core.kv_size.specs import Layer, Origin, Stream
from mha_core.kv_size.units import exact


@dataclass(frozen=True)
class Term:
    """What equal layers keep of one sequence.

    kind: as in "sliding". layers: their indices. rows: the streams of one such layer. tokens: how many of the context
    each stream keeps. per_token: numbers that one token adds in one layer. bytes: of all of them, for the batch.
    formula: the numbers multiplied, as text. origins: (what, field) for each number in it.
    """

    kind: str
    layers: tuple[int, ...]
    rows: tuple[Stream, ...]
    tokens: tuple[int, ...]
    per_token: Fraction
    bytes: int
    formula: str
    origins: tuple[Origin, ...]

    @property
    def sentence(self) -> str:
        """The term as a sentence."""
        fields = ", ".join(f"{what}: {name}" for what, name in self.origins)
        return f"{self.formula} = {exact(self.bytes)}" + (f" ({fields})" if fields else "")


def explain(
    size: KVCacheSize,
    context: int,
    batch: int = 1,
    dtype: str | CacheFormat = "bf16",
    engine: str | Engine = "ideal",
) -> tuple[Term, ...]:
    """One term for each different layer that keeps something of the text; their bytes sum to ``total_bytes``."""
    form, keeper = cache_format(dtype), engine_of(engine)
    terms = (_term(layer, where, context, batch, form, keeper) for layer, where in size.counted)
    return tuple(term for term in terms if term.rows)


def _term(layer: Layer, where: tuple[int, ...], context: int, batch: int, form: CacheFormat, keeper: Engine) -> Term:
    rows = tuple(stream for stream in keeper.streams(layer) if stream.part != "indexer")
    tokens = tuple(keeper.kept(stream, context) for stream in rows)
    one = math.ceil(sum((stream_bytes(stream, context, form, keeper) for stream in rows), Fraction(0)))
    per_token = sum((stream.per_token for stream in rows), Fraction(0))
    n_bytes = one * batch * len(where)
    origins = tuple(dict.fromkeys(origin for part in layer.parts for origin in part.origins if part.streams))
    return Term(
        layer.kind, where, rows, tokens, per_token, n_bytes, _formula(layer, where, rows, tokens, batch, form), origins
    )


def _formula(
    layer: Layer,
    where: tuple[int, ...],
    rows: tuple[Stream, ...],
    tokens: tuple[int, ...],
    batch: int,
    form: CacheFormat,
) -> str:
    parts = [f"{_row(stream)} x {kept // stream.stride:,} tokens" for stream, kept in zip(rows, tokens, strict=True)]
    if len(set(tokens)) == 1 and all(stream.stride == 1 for stream in rows):
        inner = " + ".join(_row(stream) for stream in rows)
        parts = [f"{f'({inner})' if len(rows) > 1 else inner} x {tokens[0]:,} tokens"]
    sequences = f" x {batch:,} sequences" if batch != 1 else ""
    n = len(where)
    body = " + ".join(parts)
    body = f"({body})" if len(parts) > 1 else body
    return f"{n:,} {layer.kind} layer{'s' * (n != 1)} x {body} x {_width(form)}{sequences}"


def _row(stream: Stream) -> str:
    heads = f"{stream.heads:,} heads x " if stream.part in ("K", "V") else ""
    return f"{stream.part} {heads}{stream.width:,}"


def _width(form: CacheFormat) -> str:
    extra = f" and {form.per_row} per row" if form.per_row else ""
    return f"{float(form.per_element):g} bytes{extra}"
