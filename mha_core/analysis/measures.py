"""One figure for every head, from what the heads look at, what goes wrong without them, and what their gates weigh."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mha_core.analysis.heads import entropy_bits
from mha_core.analysis.roles import Dwelling
from mha_core.training.evaluate import BATCH, Exam, Reading, all_heads, place_gaze, score
from mha_core.training.recipe import PAD_ROW, word_losses
from mha_core.training.scores import TaskScores
from mha_core.transformer import Transformer

SURE = 0.95
# A row that sees fewer keys tells little of where a head looks: an even gaze would give each more than a tenth.
LEAST_VISIBLE = 10


def dwellings(reading: Reading, places: Bool[Tensor, "s n n"]) -> list[list[Dwelling]]:
    """How every head dwells on the marked keys, by layer and head.

    Rows count that have such a key and see at least LEAST_VISIBLE keys under a causal mask. In their order they are
    cut into an earlier and a later half.
    """
    rows = places.any(-1).any(0).nonzero().flatten()
    rows = rows[rows >= LEAST_VISIBLE - 1]
    halves = [torch.isin(torch.arange(places.shape[-1]), half) for half in rows.tensor_split(2)]
    marked = [places & half[:, None] for half in halves]
    masses = torch.stack([place_gaze(reading.patterns, half) for half in marked], -1)
    even = [place_gaze(reading.even, half).item() for half in marked]
    # (l, h, 2) -> by layer and head
    return [[Dwelling(*mass, *even) for mass in layer] for layer in masses.tolist()]


def start_places(n: int) -> Bool[Tensor, "n n"]:
    """The start token, from every row but its own."""
    places = torch.zeros(n, n, dtype=torch.bool)
    places[1:, 0] = True
    return places


def same_word_places(rows: Int[Tensor, "s n"]) -> Bool[Tensor, "s n n"]:
    """All earlier keys that are the same word as the row."""
    return (rows[:, :, None] == rows[:, None, :]).tril(-1)


def later_rows(position: Sequence[int], length: Sequence[int], n: int) -> Bool[Tensor, "s n n"]:
    """One key per sentence, seen from every row after it, up to the last of the sentence's ``length`` rows."""
    places = torch.zeros(len(position), n, n, dtype=torch.bool)
    for sentence, (key, end) in enumerate(zip(position, length, strict=True)):
        places[sentence, key + 1 : end, key] = True
    return places


def mean_entropy(reading: Reading, rows: Int[Tensor, "s n"]) -> Float[Tensor, "l h"]:
    """Bits per row of every head, over all words; the start token and padding are no words."""
    bits = torch.from_numpy(entropy_bits(reading.patterns.numpy()))
    word = (rows != PAD_ROW).float()
    word[:, 0] = 0
    return torch.einsum("slhn,sn->lh", bits, word) / word.sum()


def best_by_luck(
    right: Float[Tensor, "s l h"], wrong: Float[Tensor, "s l h"], flips: int, generator: torch.Generator
) -> float:
    """The accuracy that the best of all heads stays under in 95 of 100 tries when the answers are made up.

    A try swaps the right and the wrong noun of every sentence with a chance of one half.
    """
    taken, missed = ((a > b).flatten(1).float() for a, b in ((right, wrong), (wrong, right)))
    swapped = (torch.rand(flips, len(taken), generator=generator) < 0.5).float()
    # (flips, s) times (s, l h) -> (flips, l h)
    accuracy = (swapped @ missed + (1 - swapped) @ taken) / len(taken)
    return accuracy.amax(-1).quantile(SURE).item()


def without_each(model: Transformer, exam: Exam) -> list[list[TaskScores]]:
    """What the model scores when one head is switched off and all others stay on, by layer and head."""
    found: list[list[TaskScores]] = [[] for _ in range(model.cfg.n_layers)]
    for layer, head in all_heads(model):
        gates = torch.ones(model.cfg.n_layers, model.cfg.attention.n_heads)
        gates[layer, head] = 0
        found[layer].append(score(model, exam, list(gates)))
    return found


def importance(model: Transformer, rows: Int[Tensor, "s n"]) -> Float[Tensor, "l h"]:
    """How much each head's gate weighs: |d loss / d gate| at 1, on average over sentences (Michel et al. 2019).

    The loss is a sentence's own, in nats per word. The size is taken sentence by sentence: what helps in one sentence
    and harms in another does not cancel.
    """
    total = torch.zeros(model.cfg.n_layers, model.cfg.attention.n_heads, device=rows.device)
    for batch in rows.split(BATCH):
        total += _slopes(model, batch).abs().sum(1)
    return total / len(rows)


def _slopes(model: Transformer, rows: Int[Tensor, "s n"]) -> Float[Tensor, "l s h"]:
    """d loss / d gate for every sentence: each has gates of its own, so one backward pass gives them all."""
    shape = (len(rows), model.cfg.attention.n_heads)
    gates = [torch.ones(shape, requires_grad=True, device=rows.device) for _ in range(model.cfg.n_layers)]
    losses = word_losses(model, rows, gates).sum(-1) / (rows[:, 1:] != PAD_ROW).sum(-1)
    return torch.stack(torch.autograd.grad(losses.sum(), gates))
