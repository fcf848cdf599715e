"""The residual stream of one token: what every part adds, what the model would predict on the way, and who made it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch

from mha_core.analysis.writes import cosine
from mha_core.attention import GroupedQueryAttention
from mha_core.trace import ModelTrace, StreamPart
from mha_core.transformer import Transformer

# Of the largest logit: two ways to the same sum in float32 may differ by this much.
TOLERANCE = 1e-5
KINDS = ("embedding", "head", "output bias", "attention", "mlp", "norm bias", "unembedding bias")


@dataclass(frozen=True, eq=False)
class Part:
    """One write into the stream. kind: one of KINDS; layer and head are -1 where it has none.

    write: (d_model,). norm: its length. cosine: its direction against the stream it was added to, -1 to 1; None for
    the embedding, which nothing stands before.
    """

    kind: str
    layer: int
    head: int
    write: np.ndarray
    norm: float
    cosine: float | None

    @property
    def name(self) -> str:
        """How the part is called in links and tables: "embedding", "L1H3", "L1 MLP"."""
        if self.kind == "head":
            return f"L{self.layer}H{self.head}"
        kind = "MLP" if self.kind == "mlp" else self.kind
        return kind if self.layer < 0 else f"L{self.layer} {kind}"


@dataclass(frozen=True, eq=False)
class Lens:
    """What the model would predict if it stopped here: the final norm and the unembedding on the unfinished stream.

    logits, probabilities: (vocab,).
    """

    logits: np.ndarray
    probabilities: np.ndarray

    def top(self, count: int) -> list[int]:
        """The likeliest words, likeliest first."""
        return [int(i) for i in np.argsort(-self.logits, kind="stable")[:count]]

    def rank(self, word: int) -> int:
        """How many words stand before this one, plus 1."""
        return 1 + int((self.logits > self.logits[word]).sum())


@dataclass(frozen=True, eq=False)
class Stage:
    """The stream after the embedding, an attention layer or an MLP.

    whole: what was written in all. parts: the same apart, heads first and then the output bias, where there is one.
    stream: (d_model,), the sum of all parts so far. norm: its length. deviation: largest difference from the trace.
    """

    whole: Part
    parts: tuple[Part, ...]
    stream: np.ndarray
    norm: float
    deviation: float
    lens: Lens


@dataclass(frozen=True, eq=False)
class Residual:
    """One token's way through the model. logits: (vocab,), the model's own; lens_deviation: the last lens against them.

    Deviations of logits are judged against TOLERANCE times the largest logit (at least 1), those of sums against
    TOLERANCE times the largest number in the stream (at least 1).
    """

    stages: tuple[Stage, ...]
    logits: np.ndarray
    lens_deviation: float

    @property
    def predicted(self) -> int:
        """The word that the model predicts in the end."""
        return int(self.logits.argmax())

    @property
    def logit_tolerance(self) -> float:
        """By how much two ways to a logit may differ."""
        return TOLERANCE * max(1.0, float(np.abs(self.logits).max()))

    @property
    def deviation(self) -> float:
        """The largest difference between a sum of parts and the stream of the trace."""
        return float(np.max([stage.deviation for stage in self.stages]))

    @property
    def tolerance(self) -> float:
        """By how much a sum of parts may differ from the stream of the trace."""
        return TOLERANCE * max(1.0, max(float(np.abs(stage.stream).max()) for stage in self.stages))

    @property
    def parts(self) -> tuple[Part, ...]:
        """Every part by itself, in the order of the model; they sum to the last stream."""
        return tuple(part for stage in self.stages for part in stage.parts)


@dataclass(frozen=True, eq=False)
class Attribution:
    """What each part adds to the logit of one word minus that of another, largest in size first.

    parts, values: one number a part. difference: of the model's own logits. spread: the standard deviation that the
    final norm divides by, held fixed. deviation: |sum of values - difference|, judged against ``tolerance``.
    """

    parts: tuple[Part, ...]
    values: np.ndarray
    difference: float
    spread: float
    deviation: float
    tolerance: float

    @property
    def total(self) -> float:
        """The sum of all values."""
        return float(self.values.sum())


@torch.no_grad()
def residual_of(model: Transformer, trace: ModelTrace, row: int) -> Residual:
    """All that was written for token ``row`` of the first sentence, summed anew and checked against the trace."""
    read = _Unembedding(model)
    stream = _vector(trace.embedded[0, row])
    embedding = _part("embedding", -1, -1, stream, None)
    stages = [_stage(embedding, (embedding,), stream, stream, read)]
    layers = model.attention_layers()
    for written in trace.parts:
        parts = tuple(_parts(written, layers[written.layer], trace, row, stream))
        whole = _part(written.kind, written.layer, -1, _vector(written.write[0, row]), stream)
        stream = stream + np.sum([part.write for part in parts], axis=0)
        stages.append(_stage(whole, parts, stream, _vector(written.after[0, row]), read))
    logits = _vector(trace.logits[0, row])
    return Residual(tuple(stages), logits, float(np.abs(stages[-1].lens.logits - logits).max()))


@torch.no_grad()
def attribution_of(model: Transformer, found: Residual, word: int, against: int) -> Attribution:
    """Split the logit difference of two words over all parts of the stream.

    LayerNorm subtracts the mean, which is linear, and divides by the standard deviation, which is linear once it is
    held at its real value; what is left is the norm's own bias (and the unembedding's), parts of their own.
    """
    read, parts = _Unembedding(model), list(found.parts)
    direction = read.weight[word] - read.weight[against]
    spread = read.spread(found.stages[-1].stream)
    values = [float(_centred(part.write) / spread * read.gain @ direction) for part in parts]
    for kind, vector, value in read.constants(direction, word, against):
        parts.append(_part(kind, -1, -1, vector, None))
        values.append(value)
    order = np.argsort(-np.abs(values), kind="stable")
    difference = float(found.logits[word] - found.logits[against])
    return Attribution(
        parts=tuple(parts[i] for i in order),
        values=np.array(values)[order],
        difference=difference,
        spread=spread,
        deviation=abs(sum(values) - difference),
        tolerance=found.logit_tolerance,
    )


def collected(found: Attribution, most: int) -> tuple[Attribution, int, float]:
    """At most ``most`` parts, how many were left out, and what those add together."""
    if len(found.parts) <= most:
        return found, 0, 0.0
    shown = replace(found, parts=found.parts[:most], values=found.values[:most])
    return shown, len(found.parts) - most, float(found.values[most:].sum())


class _Unembedding:
    """The final norm and the unembedding in float64: from a stream to logits."""

    def __init__(self, model: Transformer) -> None:
        norm, unembed = model.final_norm, model.unembed
        self.gain, self.shift, self.eps = _vector(norm.weight), _vector(norm.bias), norm.eps
        self.weight = _vector(unembed.weight)
        self.bias = None if unembed.bias is None else _vector(unembed.bias)

    def spread(self, stream: np.ndarray) -> float:
        return float(np.sqrt(stream.var() + self.eps))

    def lens(self, stream: np.ndarray) -> Lens:
        normed = _centred(stream) / self.spread(stream) * self.gain + self.shift
        logits = self.weight @ normed + (0.0 if self.bias is None else self.bias)
        powers = np.exp(logits - logits.max())
        return Lens(logits, powers / powers.sum())

    def constants(self, direction: np.ndarray, word: int, against: int) -> Iterator[tuple[str, np.ndarray, float]]:
        """What does not depend on the stream: kind, vector, and what it adds to the logit difference."""
        yield "norm bias", self.shift, float(self.shift @ direction)
        if self.bias is not None:
            yield "unembedding bias", self.bias, float(self.bias[word] - self.bias[against])


def _parts(
    written: StreamPart, layer: GroupedQueryAttention, trace: ModelTrace, row: int, before: np.ndarray
) -> Iterator[Part]:
    """One write apart: every head and the output bias of an attention layer; an MLP as it is."""
    if written.kind != "attention":
        yield _part(written.kind, written.layer, -1, _vector(written.write[0, row]), before)
        return
    attention = trace.layers[written.layer]
    slices = torch.stack([attention.w_o_slice(head) for head in range(attention.cfg.n_heads)]).cpu().double()
    # (h d_k,) -> (h, 1, d_k)
    pieces = attention.concat[0, row].double().unflatten(0, (-1, 1, attention.cfg.head_dim))
    for head, write in enumerate(_vector((pieces @ slices)[:, 0])):
        yield _part("head", written.layer, head, write, before)
    if layer.W_O.bias is not None:
        yield _part("output bias", written.layer, -1, _vector(layer.W_O.bias), before)


def _part(kind: str, layer: int, head: int, write: np.ndarray, before: np.ndarray | None) -> Part:
    direction = None if before is None else cosine(write, before)
    return Part(kind, layer, head, write, float(np.linalg.norm(write)), direction)


def _stage(whole: Part, parts: tuple[Part, ...], stream: np.ndarray, traced: np.ndarray, read: _Unembedding) -> Stage:
    deviation = float(np.abs(stream - traced).max())
    return Stage(whole, parts, stream, float(np.linalg.norm(stream)), deviation, read.lens(stream))


def _centred(vector: np.ndarray) -> np.ndarray:
    return vector - vector.mean()


def _vector(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().cpu().double().numpy()
