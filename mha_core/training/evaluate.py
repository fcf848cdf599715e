"""What a trained model can do, and which of its heads do it: every figure is read off the model's own trace."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mha_core.text import Vocabulary
from mha_core.trace import ModelTrace
from mha_core.training import probes
from mha_core.training.grammar import sentences
from mha_core.training.probes import Probe
from mha_core.training.recipe import PAD_ROW, token_rows, word_losses
from mha_core.training.scores import Controls, Evaluation, HeadScores, TaskScores, TwoNouns
from mha_core.transformer import HeadGates, Transformer

VALIDATION_SENTENCES = 4_000
SHIFTS = range(1, 7)
BATCH = 200


@dataclass(frozen=True, eq=False)
class Reading:
    """What all heads look at in many sentences, and what an even gaze looks at.

    Axes: s sentences, l layers, h heads, n rows, the start token being row 0.
    """

    patterns: Float[Tensor, "s l h n n"]
    even: Float[Tensor, "s 1 1 n n"]


@dataclass(frozen=True, eq=False)
class Questions:
    """Probes as a model reads them: their rows, the last word's row, and which next words fit and which do not."""

    rows: Int[Tensor, "s n"]
    last: Int[Tensor, "s"]
    fitting: Bool[Tensor, "s vocab"]
    unfitting: Bool[Tensor, "s vocab"]


@dataclass(frozen=True, eq=False)
class Exam:
    """Everything a model is scored on: one set of questions for each task, lists said twice, and sentences."""

    questions: Mapping[str, Questions]
    lists: Int[Tensor, "lists n"]
    sentences: Int[Tensor, "sentences m"]


TASKS = {
    "coreference": probes.coreference_probes,
    "mismatch": probes.mismatch_probes,
    "agreement": probes.agreement_probes,
    "reflexive": probes.reflexive_probes,
}


def read(model: Transformer, rows: Int[Tensor, "s n"]) -> Reading:
    """Trace every sentence; padding is kept out of sight."""
    patterns, even = [], []
    for batch in rows.split(BATCH):
        trace = model.trace(batch, keep=batch != PAD_ROW)
        patterns.append(torch.stack([layer.pattern for layer in trace.layers], 1))
        even.append(_even(trace))
    return Reading(torch.cat(patterns), torch.cat(even))


def evaluate(model: Transformer, vocabulary: Vocabulary) -> Evaluation:
    """Every figure of one model, always on the same probe sentences; some seconds on one thread."""

    def reading(texts: Sequence[Sequence[str]]) -> Reading:
        return read(model, token_rows(texts, vocabulary))

    sets = {name: TASKS[name]() for name in ("coreference", "agreement")}
    readings = {name: reading([probe.words for probe in asked]) for name, asked in sets.items()}
    nouns = {name: noun_gaze(readings[name].patterns, sets[name]) for name in sets}
    even = {name: noun_gaze(readings[name].even, sets[name])[0][0].mass for name in sets}
    repeated, salad = reading(probes.repeated_lists()), reading(probes.word_salad())
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
        for layer, head in all_heads(model)
    )
    controls = Controls(**even, previous=previous_gaze(salad.even).item(), prefix=prefix_gaze(repeated.even)[0].item())
    return Evaluation(score(model, make_exam(vocabulary)), heads, controls)


def all_heads(model: Transformer) -> Iterator[tuple[int, int]]:
    """Layer and head of every head, the first layer first."""
    return product(range(model.cfg.n_layers), range(model.cfg.attention.n_heads))


def make_exam(
    vocabulary: Vocabulary,
    n_probes: int = probes.PROBE_SENTENCES,
    n_sentences: int = VALIDATION_SENTENCES,
    seed: str = "",
) -> Exam:
    """``n_probes`` questions and lists a task, and sentences that no training run has drawn its own from.

    Another ``seed`` gives other ones. None has unknown words.
    """
    asked = {name: ask(make(n_probes, seed + name), vocabulary) for name, make in TASKS.items()}
    lists = probes.repeated_lists(n_probes, f"{seed}repeated", length=None)
    rows = token_rows(sentences(n_sentences, f"{seed}validation"), vocabulary)
    return Exam(asked, token_rows(lists, vocabulary), rows)


def ask(asked: Sequence[Probe], vocabulary: Vocabulary) -> Questions:
    """Probes in the rows of a vocabulary."""

    def marked(choices: list[tuple[str, ...]]) -> Tensor:
        marks = torch.zeros(len(choices), len(vocabulary), dtype=torch.bool)
        for sentence, words in enumerate(choices):
            marks[sentence, vocabulary.encode(list(words))] = True
        return marks

    rows = token_rows([probe.words for probe in asked], vocabulary)
    last = torch.tensor([len(probe.words) for probe in asked])
    return Questions(rows, last, marked([p.fitting for p in asked]), marked([p.unfitting for p in asked]))


def score(model: Transformer, exam: Exam, head_gates: HeadGates | None = None) -> TaskScores:
    """How often the model is right in each task, and its loss, with all heads on or with some switched off."""
    return TaskScores(
        **{name: right_share(model, asked, head_gates) for name, asked in exam.questions.items()},
        copy=copy_share(model, exam.lists, head_gates),
        validation_loss=mean_loss(model, exam.sentences, head_gates),
    )


@torch.no_grad()
def right_share(model: Transformer, asked: Questions, head_gates: HeadGates | None = None) -> float:
    """Share of the probes after which the words that fit are, together, likelier than those that do not."""
    right = 0
    for first in range(0, len(asked.rows), BATCH):
        some = slice(first, first + BATCH)
        logits = model(asked.rows[some].to(model.unembed.weight.device), head_gates=head_gates).cpu()
        likely = logits[torch.arange(len(logits)), asked.last[some]].softmax(-1)
        fitting, unfitting = ((likely * words[some]).sum(-1) for words in (asked.fitting, asked.unfitting))
        right += int((fitting > unfitting).sum())
    return right / len(asked.rows)


@torch.no_grad()
def copy_share(model: Transformer, rows: Int[Tensor, "s n"], head_gates: HeadGates | None = None) -> float:
    """Share of the words of a second saying that the model expects, from the second word on (the first is a guess)."""
    batches = rows.to(model.unembed.weight.device).split(BATCH)
    expected = torch.cat([model(batch, head_gates=head_gates).argmax(-1) for batch in batches]).cpu()
    period = ((rows != PAD_ROW).sum(-1, keepdim=True) - 1) // 2
    # Row i foretells word i, counted from 0; the second saying runs from word `period` to word `2 * period - 1`.
    word = torch.arange(rows.shape[1] - 1)
    certain = (word > period) & (word < 2 * period)
    return (expected[:, :-1] == rows[:, 1:])[certain].float().mean().item()


@torch.no_grad()
def mean_loss(model: Transformer, rows: Int[Tensor, "s n"], head_gates: HeadGates | None = None) -> float:
    """Nats per word; padding counts for nothing."""
    total = sum(word_losses(model, batch, head_gates).double().sum() for batch in rows.split(BATCH))
    return float(total / (rows[:, 1:] != PAD_ROW).sum())


def noun_gaze(patterns: Float[Tensor, "s l h n n"], asked: Sequence[Probe]) -> list[list[TwoNouns]]:
    """How every head chooses between the right and the wrong noun, by layer and head."""
    right, wrong = noun_masses(patterns, asked)
    first = torch.tensor([probe.right_first for probe in asked])
    halves = [value[half].mean(0) for value in ((right > wrong).float(), right, wrong) for half in (first, ~first)]
    # (6, l, h) -> (l, h, 6)
    return [[TwoNouns(*head) for head in layer] for layer in torch.stack(halves, -1).tolist()]


def noun_masses(
    patterns: Float[Tensor, "s l h n n"], asked: Sequence[Probe]
) -> tuple[Float[Tensor, "s l h"], Float[Tensor, "s l h"]]:
    """Every head's weight on the right and on the wrong noun, sentence by sentence."""
    sentence = torch.arange(len(asked))
    gaze = patterns[sentence, :, :, [probe.asked for probe in asked]]
    right = gaze[sentence, :, :, [probe.right for probe in asked]]
    return right, gaze[sentence, :, :, [probe.wrong for probe in asked]]


def place_gaze(patterns: Float[Tensor, "s l h n n"], places: Bool[Tensor, "s n n"]) -> Float[Tensor, "l h"]:
    """Each head's mean weight on the marked keys, over the rows that have one."""
    mass = torch.einsum("slhqk,sqk->lh", patterns, places.to(patterns))
    return mass / places.any(-1).sum()


def offset_places(n: int, shift: int) -> Bool[Tensor, "n n"]:
    """The key ``shift`` rows ahead of each row (behind it, if negative); the start token is neither row nor key."""
    places = torch.ones(n, n, dtype=torch.bool).triu(shift).tril(shift)
    places[0], places[:, 0] = False, False
    return places


def prefix_places(n: int, shift: int) -> Bool[Tensor, "n n"]:
    """In a list said twice, the key ``shift`` rows behind the last time that a row's word was said.

    Only rows of the second saying have one; the last word is left out, for nothing followed it.
    """
    period = (n - 1) // 2
    places = offset_places(n, shift - period)
    # Row 0 is the start token, so the second saying begins at row period + 1.
    places[: period + 1], places[2 * period :] = False, False
    return places


def previous_gaze(patterns: Float[Tensor, "s l h n n"]) -> Float[Tensor, "l h"]:
    """Each head's mass on the token before, leaving out the rows for which that is the start token or nothing."""
    return place_gaze(patterns, _for_all(patterns, offset_places(patterns.shape[-1], -1)))


def prefix_gaze(patterns: Float[Tensor, "s l h n n"]) -> Float[Tensor, "6 l h"]:
    """Each head's mass 1 to 6 places behind the last time that the word was said, on lists said twice.

    One place behind is the prefix-matching score of Olsson et al. 2022.
    """
    n = patterns.shape[-1]
    return torch.stack([place_gaze(patterns, _for_all(patterns, prefix_places(n, shift))) for shift in SHIFTS])


def _for_all(patterns: Tensor, places: Tensor) -> Tensor:
    # (n, n) -> (s, n, n)
    return places.expand(len(patterns), -1, -1)


def _even(trace: ModelTrace) -> Tensor:
    """The pattern of a head that looks at everything it may see alike, with an axis for layer and head."""
    mask = trace.layers[0].mask
    return (mask / mask.sum(-1, keepdim=True).clamp(min=1))[:, None, None]
