"""What a trained model can do, and which of its heads do it: every figure is read off the model's own trace."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from mha_core.text import Vocabulary
from mha_core.trace import ModelTrace
from mha_core.training import probes
from mha_core.training.grammar import sentences
from mha_core.training.probes import Probe
from mha_core.training.recipe import PAD_ROW, next_word_loss, token_rows
from mha_core.training.scores import Controls, Evaluation, HeadScores, TaskScores, TwoNouns
from mha_core.transformer import Transformer

VALIDATION_SENTENCES = 4_000
SHIFTS = range(1, 7)
BATCH = 200


@dataclass(frozen=True, eq=False)
class Reading:
    """A model's passes over many sentences: all patterns, that of an even gaze, and the logits.

    Axes: s sentences, l layers, h heads, n rows, the start token being row 0.
    """

    patterns: Float[Tensor, "s l h n n"]
    even: Float[Tensor, "s 1 1 n n"]
    logits: Float[Tensor, "s n vocab"]


def read(model: Transformer, rows: Int[Tensor, "s n"]) -> Reading:
    """Trace every sentence; padding is kept out of sight."""
    traces = [model.trace(batch, keep=batch != PAD_ROW) for batch in rows.split(BATCH)]
    patterns = [torch.stack([layer.pattern for layer in trace.layers], 1) for trace in traces]
    logits = [trace.logits for trace in traces]
    return Reading(torch.cat(patterns), torch.cat([_even(trace) for trace in traces]), torch.cat(logits))


def evaluate(model: Transformer, vocabulary: Vocabulary) -> Evaluation:
    """Every figure of one model, always on the same probe sentences; some seconds on one thread."""
    sets = {
        "coreference": probes.coreference_probes(),
        "mismatch": probes.mismatch_probes(),
        "agreement": probes.agreement_probes(),
        "reflexive": probes.reflexive_probes(),
    }
    readings = {name: read(model, token_rows([p.words for p in asked], vocabulary)) for name, asked in sets.items()}
    shares = {name: right_share(readings[name].logits, asked, vocabulary) for name, asked in sets.items()}
    repeated, salad = (read(model, token_rows(t, vocabulary)) for t in (probes.repeated_lists(), probes.word_salad()))

    nouns = {name: noun_gaze(readings[name].patterns, sets[name]) for name in ("coreference", "agreement")}
    even = {name: noun_gaze(readings[name].even, sets[name])[0][0].mass for name in nouns}
    previous, prefix = previous_gaze(salad.patterns), prefix_gaze(repeated.patterns)
    heads = tuple(
        HeadScores(
            layer,
            head,
            nouns["coreference"][layer][head],
            nouns["agreement"][layer][head],
            previous[layer, head].item(),
            prefix[0, layer, head].item(),
            prefix[:, layer, head].max().item(),
            SHIFTS[int(prefix[:, layer, head].argmax())],
        )
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.attention.n_heads)
    )
    return Evaluation(
        TaskScores(**shares, copy=copy_share(model, vocabulary), validation_loss=validation_loss(model, vocabulary)),
        heads,
        Controls(**even, previous=previous_gaze(salad.even).item(), prefix=prefix_gaze(repeated.even)[0].item()),
    )


def right_share(logits: Float[Tensor, "s n vocab"], asked: Sequence[Probe], vocabulary: Vocabulary) -> float:
    """Share of the probes after which the words that fit are, together, likelier than those that do not."""
    right = 0
    for sentence, probe in zip(logits, asked, strict=True):
        likely = sentence[len(probe.words)].softmax(-1)
        fitting, unfitting = (likely[vocabulary.encode(list(w))].sum() for w in (probe.fitting, probe.unfitting))
        right += bool(fitting > unfitting)
    return right / len(asked)


def noun_gaze(patterns: Float[Tensor, "s l h n n"], asked: Sequence[Probe]) -> list[list[TwoNouns]]:
    """How every head chooses between the right and the wrong noun, by layer and head."""
    sentence = torch.arange(len(asked))
    gaze = patterns[sentence, :, :, [probe.asked for probe in asked]]
    right = gaze[sentence, :, :, [probe.right for probe in asked]]
    wrong = gaze[sentence, :, :, [probe.wrong for probe in asked]]
    first = torch.tensor([probe.right_first for probe in asked])
    halves = [value[half].mean(0) for value in ((right > wrong).float(), right, wrong) for half in (first, ~first)]
    # (6, l, h) -> (l, h, 6)
    return [[TwoNouns(*head) for head in layer] for layer in torch.stack(halves, -1).tolist()]


def previous_gaze(patterns: Float[Tensor, "s l h n n"]) -> Float[Tensor, "l h"]:
    """Each head's mass on the token before, leaving out the rows for which that is the start token or nothing."""
    return patterns.diagonal(-1, dim1=-2, dim2=-1)[..., 1:].mean((0, -1))


def prefix_gaze(patterns: Float[Tensor, "s l h n n"]) -> Float[Tensor, "6 l h"]:
    """Each head's mass 1 to 6 places behind the last time that the word was said, on lists said twice.

    One place behind is the prefix-matching score of Olsson et al. 2022. The last word of a list is left out: nothing
    follows it.
    """
    period = (patterns.shape[-1] - 1) // 2
    # Row 0 is the start token, so the second saying begins at row period + 1.
    second = torch.arange(period + 1, 2 * period)
    return torch.stack([patterns[..., second, second - period + shift].mean((0, -1)) for shift in SHIFTS])


@torch.no_grad()
def copy_share(model: Transformer, vocabulary: Vocabulary) -> float:
    """Share of the words of a second saying that the model expects, from the second word on (the first is a guess)."""
    rows = token_rows(probes.repeated_lists(length=None), vocabulary)
    expected = torch.cat([model(batch).argmax(-1) for batch in rows.split(BATCH)])
    period = ((rows != PAD_ROW).sum(-1, keepdim=True) - 1) // 2
    # Row i foretells word i, counted from 0; the second saying runs from word `period` to word `2 * period - 1`.
    word = torch.arange(rows.shape[1] - 1)
    certain = (word > period) & (word < 2 * period)
    return (expected[:, :-1] == rows[:, 1:])[certain].float().mean().item()


@torch.no_grad()
def validation_loss(model: Transformer, vocabulary: Vocabulary, count: int = VALIDATION_SENTENCES) -> float:
    """Nats per word on sentences that no training run has drawn its own from, none of them with unknown words."""
    rows = token_rows(sentences(count, "validation"), vocabulary)
    words = (rows[:, 1:] != PAD_ROW).sum(-1)
    losses = [next_word_loss(model, batch, batch).double() * n.sum() for batch, n in _paired(rows, words)]
    return (torch.stack(losses).sum() / words.sum()).item()


def _paired(rows: Tensor, words: Tensor) -> list[tuple[Tensor, Tensor]]:
    return list(zip(rows.split(BATCH), words.split(BATCH), strict=True))


def _even(trace: ModelTrace) -> Tensor:
    """The pattern of a head that looks at everything it may see alike, with an axis for layer and head."""
    mask = trace.layers[0].mask
    return (mask / mask.sum(-1, keepdim=True).clamp(min=1))[:, None, None]
