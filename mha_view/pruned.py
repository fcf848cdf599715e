"""A model with heads off: what a measurement costs, the work for the queue, and one sentence through it.

Knows no screen and keeps no state. How many sentences a measurement takes is decided before it starts, by what it will
cost, so that no knob can hold up the queue that all visitors share.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from mha_core.analysis import pruning
from mha_core.analysis.pruning import Head, Progress
from mha_core.params import model_parameters
from mha_core.training.scores import TaskScores
from mha_core.transformer import TransformerConfig
from mha_view.results import VOCABULARY, LoadedModel, Run, model_config
from mha_view.settings import N_LAYERS, Settings

QUICK_SENTENCES, FULL_SENTENCES, CURVE_SENTENCES = 100, 600, 100
# With fewer sentences a curve says nothing; then it is not offered.
LEAST_CURVE_SENTENCES = 20
QUICK_SECONDS, FULL_SECONDS, CURVE_SECONDS = 1.0, 8.0, 40.0
# Fitted to passes over the probe sets on one busy core, d_model 32 to 128 and 8 to 16 heads.
WORDS = 10
SECONDS_PER_WEIGHT, SECONDS_PER_HEAD = 8e-11, 5.5e-7
FINISHED_SIGNS = (".", "!", "?")


@dataclass(frozen=True)
class Place:
    """Where the next word is asked for: after row ``row``. typed: the word that stands there, if there is one."""

    row: int
    after: str
    typed: str | None


def sentences_within(cfg: TransformerConfig, passes: int, seconds: float, most: int) -> int:
    """How many sentences a set may have so that ``passes`` passes stay within ``seconds``: a multiple of 4, or 0."""
    weights, heads = sum(model_parameters(cfg).values()), cfg.n_layers * cfg.attention.n_heads
    per_sentence = passes * WORDS * (SECONDS_PER_WEIGHT * weights + SECONDS_PER_HEAD * heads)
    return min(most, 4 * math.floor(seconds / per_sentence / 4))


def quick_count(settings: Settings) -> int:
    """Sentences per figure of the first look."""
    return max(4, sentences_within(model_config(settings), pruning.SETS, QUICK_SECONDS, QUICK_SENTENCES))


def full_count(settings: Settings) -> int:
    """Sentences per figure of the second look."""
    return max(4, sentences_within(model_config(settings), pruning.SETS, FULL_SECONDS, FULL_SENTENCES))


def curve_count(settings: Settings, order: str) -> int:
    """Sentences per figure of a curve; 0 where it would take too long with any number that says something.

    All orders that are offered share one number: only curves over the same sentences may be compared.
    """
    cfg, n_heads = model_config(settings), N_LAYERS * settings.n_heads
    counts = {
        name: sentences_within(cfg, pruning.n_passes(n_heads, name), CURVE_SECONDS, CURVE_SENTENCES)
        for name in pruning.ORDERS
    }
    if counts[order] < LEAST_CURVE_SENTENCES:
        return 0
    return min(count for count in counts.values() if count >= LEAST_CURVE_SENTENCES)


def measuring(loaded: LoadedModel, off: Sequence[Head], count: int) -> Iterator[TaskScores | None]:
    """Work for the queue: the figures with these heads off, set by set; the last thing given is all of them."""
    return pruning.measuring(loaded.model, pruning.exam(count, VOCABULARY), off)


def pruning_curve(loaded: LoadedModel, order: str, count: int) -> Iterator[Progress]:
    """Work for the queue: a curve, pass by pass."""
    return pruning.prune(loaded.model, pruning.exam(count, VOCABULARY), order)


def without_heads(run: Run, loaded: LoadedModel, off: Sequence[Head]) -> Run:
    """The same sentence through the same model with heads off; the self-checks belong to the run with all of them."""
    ids = run.trace.token_ids.to(next(loaded.model.parameters()).device)
    trace = loaded.model.trace(ids, head_gates=pruning.gates(loaded.model, off))
    return replace(run, trace=trace, checks=())


def asked_place(run: Run) -> Place:
    """Where to ask for the next word: before the last word of a finished sentence, at the end of an unfinished one."""
    labels = list(run.tokens.labels)
    last = len(labels) - 1
    if labels[last] not in FINISHED_SIGNS:
        return Place(last, labels[last], None)
    while last > 1 and labels[last] in FINISHED_SIGNS:
        last -= 1
    return Place(last - 1, labels[last - 1], labels[last])


def chance(run: Run, row: int, token: int) -> float:
    """How likely the model holds one vocabulary entry after a row."""
    return float(run.trace.next_token_probabilities(row)[token])


def even_loss() -> float:
    """The loss of a model that holds every word equally likely, in nats per word."""
    return math.log(len(VOCABULARY))


def random_like(loss: float) -> bool:
    """Whether a model with this loss knows no more than an even guess does."""
    return loss >= even_loss()
