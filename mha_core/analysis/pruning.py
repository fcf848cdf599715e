"""How many heads a model can do without: its figures with heads switched off, by hand or one after another.

A head is switched off by a gate of 0 on its output, without training anything anew. Three orders: *greedy* tries every
head that is left and takes the one whose loss rises least; *importance* goes by how much the loss depends on each gate
(Michel et al. 2019), measured once with all heads on; *random* is drawn from a seed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from random import Random
from typing import TypeVar

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy

from mha_core.analysis import measures
from mha_core.text import Vocabulary
from mha_core.trace import ModelTrace
from mha_core.training import probes
from mha_core.training.evaluate import TASKS, Questions, ask, copy_share, right_share
from mha_core.training.grammar import SHARES, sentences
from mha_core.training.probes import Probe
from mha_core.training.recipe import token_rows
from mha_core.training.scores import TaskScores
from mha_core.transformer import Transformer

ORDERS = ("greedy", "importance", "random")
RANDOM_SEEDS = range(5)
SETS = len(fields(TaskScores))

Head = tuple[int, int]
Gates = list[Float[Tensor, "h"]]
T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Exam:
    """The sentences that a model is measured on, ``count`` of them for each figure.

    trial: sentences by which heads are chosen. They are others than those that measure the loss (``held_out``), since
    a choice looks better than it is on the sentences that it was made by. Sentences of one length stand together, so
    that nothing is padded: any mask may be measured, and nothing is computed in vain.
    """

    count: int
    trial: list[Int[Tensor, "_ _"]]
    tasks: dict[str, list[Questions]]
    lists: list[Int[Tensor, "_ _"]]
    held_out: list[Int[Tensor, "_ _"]]


@dataclass(frozen=True)
class CurvePoint:
    """What a model scores with ``kept`` heads on. off: the head that was switched off last; None at the beginning."""

    kept: int
    off: Head | None
    scores: TaskScores


@dataclass(frozen=True)
class Curve:
    """One order of switching off, from all heads on to as far as it was measured."""

    order: str
    seed: int
    points: tuple[CurvePoint, ...]

    @property
    def taken(self) -> tuple[Head, ...]:
        """The heads that were switched off, first one first."""
        return tuple(point.off for point in self.points if point.off is not None)


@dataclass(frozen=True)
class Progress:
    """How far a measurement is: ``done`` of ``of`` passes over a set of sentences, and the curves so far."""

    done: int
    of: int
    curves: tuple[Curve, ...]


def exam(count: int, vocabulary: Vocabulary) -> Exam:
    """The same sentences for every model: those of the probe sets and of the held-out text, ``count`` of each.

    Raises ValueError for a count that is no multiple of 4.
    """
    return Exam(
        count,
        _by_length(mixed_sentences(count, "heads to switch off"), vocabulary),
        {name: _by_length_asked(make(count), vocabulary) for name, make in TASKS.items()},
        _by_length(probes.repeated_lists(count, length=None), vocabulary),
        _by_length(mixed_sentences(count, "validation"), vocabulary),
    )


def mixed_sentences(count: int, seed: str) -> list[list[str]]:
    """New sentences in which lists said twice have exactly their share (rounded).

    A list costs twice the loss of other sentences: left to chance, their number would move the loss of a small set
    more than any head does.
    """
    drawn = sentences(8 * count, seed)
    n_lists = round(SHARES["list"] * count)
    lists = [text for text in drawn if _said_twice(text)][:n_lists]
    return [*lists, *[text for text in drawn if not _said_twice(text)][: count - n_lists]]


def gates(model: Transformer, off: Sequence[Head]) -> Gates:
    """One gate per head and layer: 0 for the heads that are ``off``, 1 for the others."""
    found = [torch.ones(model.cfg.attention.n_heads, device=_device(model)) for _ in range(model.cfg.n_layers)]
    for layer, head in off:
        found[layer][head] = 0.0
    return found


def measure(model: Transformer, asked: Exam, off: Sequence[Head] = ()) -> TaskScores:
    """All figures of a model with some heads off."""
    *_, scores = measuring(model, asked, off)
    assert scores is not None, "the last thing that is measured completes the figures"
    return scores


def measuring(model: Transformer, asked: Exam, off: Sequence[Head] = ()) -> Iterator[TaskScores | None]:
    """The same, one set of sentences at a time, so that it can be stopped: None until the figures are complete."""
    open_heads = gates(model, off)
    shares: dict[str, float] = {}
    for name, sets in asked.tasks.items():
        shares[name] = _right_share(model, sets, open_heads)
        yield None
    copied = _copy_share(model, asked.lists, open_heads)
    yield None
    yield TaskScores(**shares, copy=copied, validation_loss=loss(model, asked.held_out, open_heads))


@torch.inference_mode()
def loss(model: Transformer, held_out: Sequence[Tensor], open_heads: Gates) -> float:
    """Nats per word of new sentences, mean over the words."""
    parts = [_summed_loss(model, rows, model.embedded(rows[:, :-1]), 0, open_heads) for rows in _on(model, held_out)]
    return _per_word(parts, held_out)


def importance(model: Transformer, rows: Sequence[Tensor]) -> Float[Tensor, "layers heads"]:
    """Mean over sentences of |d loss / d gate| (see ``measures.importance``), for sentences in sets of one length."""
    summed = [len(texts) * measures.importance(model, texts) for texts in _on(model, rows)]
    return torch.stack(summed).sum(0) / sum(map(len, rows))


def prune(model: Transformer, asked: Exam, order: str) -> Iterator[Progress]:
    """Switch heads off one after another in ``order`` and measure every step; the last thing given is the whole.

    Something is given after every pass over a set, so that a curve can be stopped and shown while it grows.
    Raises ValueError for an order that is not one of ORDERS.
    """
    if order not in ORDERS:
        raise ValueError(f"{order!r} is no order; the orders are {', '.join(ORDERS)}")
    of, done = n_passes(model.cfg.n_layers * model.cfg.attention.n_heads, order), 0
    finished: list[Curve] = []
    for seed in RANDOM_SEEDS if order == "random" else (0,):
        points: tuple[CurvePoint, ...] = ()
        for point in _walk(model, asked, order, seed):
            done += 1
            points = points if point is None else (*points, point)
            yield Progress(done, of, (*finished, Curve(order, seed, points)))
        finished.append(Curve(order, seed, points))


def n_passes(n_heads: int, order: str) -> int:
    """How many passes over a set of sentences a curve of ``n_heads`` heads, in all layers together, will take."""
    measured = SETS * (n_heads + 1)
    if order == "greedy":
        return measured + n_heads * (n_heads + 1) // 2
    return measured * len(RANDOM_SEEDS) if order == "random" else measured


def can_go(curve: Curve, more_loss: float) -> int:
    """How many heads are off at the last point whose loss is at most (1 + more_loss) times the first one's."""
    first = curve.points[0]
    limit = (1 + more_loss) * first.scores.validation_loss
    return first.kept - min(point.kept for point in curve.points if point.scores.validation_loss <= limit)


def moved(before: ModelTrace, after: ModelTrace) -> Float[np.ndarray, "layers heads"]:
    """The share of its weight that a head puts elsewhere in the second pass, 0 to 1, mean over the rows."""
    both = zip(before.layers, after.layers, strict=True)
    return np.stack([abs(a.array("pattern") - b.array("pattern")).sum(-1).mean(-1) / 2 for a, b in both])


def _walk(model: Transformer, asked: Exam, order: str, seed: int) -> Iterator[CurvePoint | None]:
    """The points of one curve; None after every pass that completes no point."""
    left = [(layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.attention.n_heads)]
    planned = _planned(model, asked, order, seed, left)
    off: list[Head] = []
    yield from _point(model, asked, off, len(left))
    while left:
        if planned is None:
            losses: dict[Head, float] = {}
            for head, without in _losses_without(model, asked.trial, off, left):
                losses[head] = without
                yield None
            chosen = min(left, key=losses.__getitem__)
        else:
            chosen = planned[len(off)]
        left.remove(chosen)
        off.append(chosen)
        yield from _point(model, asked, off, len(left))


def _planned(model: Transformer, asked: Exam, order: str, seed: int, heads: list[Head]) -> list[Head] | None:
    """The whole order, where it is known before anything is switched off."""
    if order == "random":
        return Random(f"prune {seed}").sample(heads, len(heads))
    if order == "importance":
        found = importance(model, asked.trial)
        return sorted(heads, key=lambda head: found[head].item())
    return None


def _point(model: Transformer, asked: Exam, off: list[Head], kept: int) -> Iterator[CurvePoint | None]:
    for scores in measuring(model, asked, off):
        yield None if scores is None else CurvePoint(kept, off[-1] if off else None, scores)


def _losses_without(
    model: Transformer, trial: Sequence[Tensor], off: Sequence[Head], left: Sequence[Head]
) -> Iterator[tuple[Head, float]]:
    """The loss without each head that is left, layer by layer: what stands before a layer is computed once for all."""
    open_heads, batches = gates(model, off), _on(model, trial)
    streams = [_embedded(model, rows) for rows in batches]
    for layer in range(model.cfg.n_layers):
        for _, head in [place for place in left if place[0] == layer]:
            tried = list(open_heads)
            tried[layer] = open_heads[layer].clone()
            tried[layer][head] = 0.0
            yield (layer, head), _loss_from(model, batches, streams, layer, tried)
        streams = [_through(model, stream, layer, open_heads) for stream in streams]


@torch.inference_mode()
def _embedded(model: Transformer, rows: Tensor) -> Tensor:
    return model.embedded(rows[:, :-1])


@torch.inference_mode()
def _through(model: Transformer, stream: Tensor, layer: int, open_heads: Gates) -> Tensor:
    return model.blocks[layer](stream, head_gate=open_heads[layer])


@torch.inference_mode()
def _loss_from(
    model: Transformer, batches: Sequence[Tensor], streams: Sequence[Tensor], layer: int, open_heads: Gates
) -> float:
    both = zip(batches, streams, strict=True)
    return _per_word([_summed_loss(model, rows, stream, layer, open_heads) for rows, stream in both], batches)


def _summed_loss(model: Transformer, rows: Tensor, stream: Tensor, start: int, open_heads: Gates) -> Tensor:
    """The loss of a batch, summed over its words, from the stream before block ``start``."""
    for block, gate in list(zip(model.blocks, open_heads, strict=True))[start:]:
        stream = block(stream, head_gate=gate)
    logits = model.unembed(model.final_norm(stream))
    return cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten(), reduction="sum")


def _per_word(summed: Sequence[Tensor], batches: Sequence[Tensor]) -> float:
    words = sum(rows[:, 1:].numel() for rows in batches)
    return torch.stack(list(summed)).double().sum().item() / words


def _right_share(model: Transformer, sets: Sequence[Questions], open_heads: Gates) -> float:
    """Share of all probes that are answered rightly."""
    right = [len(asked.rows) * right_share(model, asked, open_heads) for asked in sets]
    return sum(right) / sum(len(asked.rows) for asked in sets)


def _copy_share(model: Transformer, lists: Sequence[Tensor], open_heads: Gates) -> float:
    """Share of all words of a second saying that the model expects, from the second word on."""
    # A list said twice has a start token in front, and one word of its second saying is a guess.
    words = [len(rows) * ((rows.shape[1] - 1) // 2 - 1) for rows in lists]
    right = [n * copy_share(model, rows, open_heads) for n, rows in zip(words, lists, strict=True)]
    return sum(right) / sum(words)


def _by_length_asked(found: Sequence[Probe], vocabulary: Vocabulary) -> list[Questions]:
    return [ask(same, vocabulary) for same in _same_length(found, [len(probe.words) for probe in found])]


def _by_length(texts: Sequence[Sequence[str]], vocabulary: Vocabulary) -> list[Tensor]:
    return [token_rows(same, vocabulary) for same in _same_length(texts, [len(text) for text in texts])]


def _said_twice(text: Sequence[str]) -> bool:
    half = len(text) // 2
    return text[:half] == text[half:]


def _same_length(items: Sequence[T], lengths: Sequence[int]) -> list[list[T]]:
    """The items sorted into lists of one length each, shortest first."""
    return [[item for item, n in zip(items, lengths, strict=True) if n == length] for length in sorted(set(lengths))]


def _on(model: Transformer, batches: Sequence[Tensor]) -> list[Tensor]:
    return [rows.to(_device(model)) for rows in batches]


def _device(model: Transformer) -> torch.device:
    return model.unembed.weight.device
