"""The same weights with fewer KV heads: one sentence through them, and what was measured on every trained model.

Knows no screen and keeps no state.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache

import numpy as np

from mha_core.analysis import pooling_cost
from mha_core.analysis.pooling import SideBySide, pooled
from mha_core.analysis.pooling_cost import Comparison, Conversion, Figures, PoolingError, comparisons
from mha_core.analysis.pruning import moved
from mha_core.params import kv_cache_bytes_per_token, model_parameters
from mha_core.trace import ModelTrace
from mha_core.training.evaluate import VALIDATION_SENTENCES
from mha_core.training.probes import PROBE_SENTENCES
from mha_core.training.scores import TaskScores
from mha_core.transformer import Transformer
from mha_core.zoo import ZooError
from mha_view.components.chart import Series
from mha_view.results import LoadedModel, Run

AINSLIE = "Ainslie et al. (2023), who proposed this, go on to train for 5% of the first training's steps."
SENTENCES = f"{VALIDATION_SENTENCES:,} new sentences for the loss, {PROBE_SENTENCES} for each task"
TASKS = {
    "coreference": "whom the pronoun means",
    "mismatch": "the same, pronouns differ",
    "agreement": "verb fits",
    "reflexive": "reflexive fits",
    "copy": "copies a list",
}
COLUMNS = ("model", "loss", "first half", "second half", *TASKS.values(), "output error", "KL, nats")
COLUMNS += ("parameters", "cache bytes per token")


@dataclass(frozen=True)
class Cost:
    """What a model takes: parameters, and the bytes that one more token adds to its cache."""

    parameters: int
    cache_bytes: int


@dataclass(frozen=True, eq=False)
class PooledRun:
    """One sentence through a pooled model, and how far that is from the model before.

    out_errors: of each layer's attention output, as a share of its length. divergence: of the next word, nats per word.
    moved: (layers, h), the share of its weight that a head puts elsewhere. before, after: what the two models take.
    """

    trace: ModelTrace
    out_errors: tuple[float, ...]
    divergence: float
    moved: np.ndarray
    before: Cost
    after: Cost

    @property
    def nbytes(self) -> int:
        """Bytes held by this run, for a cache that must stay bounded."""
        return self.trace.nbytes


def pooled_model(loaded: LoadedModel, n_kv_heads: int) -> LoadedModel:
    """The model with its KV heads pooled; no card stands behind it. Raises ConfigError where g cannot be pooled so."""
    return LoadedModel(pooled(loaded.model, n_kv_heads), None, None)


def pooled_run(run: Run, loaded: LoadedModel, fewer: LoadedModel) -> PooledRun:
    """The run's sentence through the pooled model, beside the model that the run came from."""
    trace = fewer.model.trace(run.trace.token_ids.to(fewer.model.unembed.weight.device))
    both = SideBySide(run.trace, trace)
    return PooledRun(
        trace=trace,
        out_errors=both.out_errors(),
        divergence=both.divergence(),
        moved=moved(run.trace, trace),
        before=_cost(loaded.model),
        after=_cost(fewer.model),
    )


def _cost(model: Transformer) -> Cost:
    cfg, size = model.cfg, model.unembed.weight.element_size()
    cache_bytes = kv_cache_bytes_per_token(cfg.attention, cfg.n_layers, size)
    return Cost(sum(model_parameters(cfg).values()), cache_bytes)


@cache
def stored() -> tuple[tuple[Conversion, ...], str | None]:
    """What was measured on all trained models, or nothing with a sentence that says why; a process reads it once."""
    try:
        return pooling_cost.stored(), None
    except (PoolingError, ZooError) as error:
        return (), str(error)


def find(name: str) -> Conversion | None:
    """What was measured on one trained model."""
    return next((one for one in stored()[0] if one.name == name), None)


@cache
def compared() -> tuple[Comparison, ...]:
    """Every conversion of a trained model beside the model that was trained with the g reached."""
    return comparisons(stored()[0])


@cache
def finding() -> str:
    """What all conversions have in common, in numbers; empty where nothing was measured."""
    found = compared()
    if not found:
        return ""
    worse = sum(min(one.behind) > 0 for one in found)
    losses = [
        statistics.median(loss)
        for loss in zip(*([s.validation_loss for s in _four(one)] for one in found), strict=True)
    ]
    before, after, trained, off = (f"{loss:.2f}" for loss in losses)
    return (
        f"Pooling without further training costs quality: in {worse} of {len(found)} conversions the pooled model is "
        f"worse, on both halves of the sentences, than the model trained with that g. Median loss in nats per word: "
        f"{before} before pooling, {after} after, {trained} when trained with that g, {off} with all heads switched "
        f"off. {_shares(found)}"
    )


def _shares(found: Sequence[Comparison]) -> str:
    """How near pooling comes to no attention at all, where fewest and where most KV heads become one."""
    ratios = sorted({one.heads_pooled for one in found})
    few, many = (
        statistics.median(one.share_lost for one in found if one.heads_pooled == ratio)
        for ratio in (ratios[0], ratios[-1])
    )
    return (
        f"Where {ratios[0]} KV heads become one, the loss rises by {few:.0%} of what all heads off would cost; where "
        f"{ratios[-1]} do, by {many:.0%} (medians)."
    )


def comparison(name: str, n_kv_heads: int) -> Comparison | None:
    """One trained model pooled to this g, beside the model trained with it; None where either was not measured."""
    one = find(name)
    if one is None:
        return None
    sizes = one.d_model, one.n_heads, one.trained.n_kv_heads, n_kv_heads
    return next((c for c in compared() if _sizes(c) == sizes), None)


def reading(found: Comparison) -> str:
    """What one conversion costs, in a sentence or two."""
    before, after, trained, _ = (scores.validation_loss for scores in _four(found))
    task = max(found.dropped, key=lambda name: found.dropped[name])
    was, now, so = (getattr(scores, task) for scores in _four(found)[:3])
    return (
        f"Pooled to g = {found.after.n_kv_heads}, this model's loss goes from {before:.2f} to {after:.2f}: "
        f"{found.share_lost:.0%} of what all heads off would cost. Trained with that g from "
        f"the start it is {trained:.2f}. What suffers most is “{TASKS[task]}”: {was:.2f} before, {now:.2f} pooled, "
        f"{so:.2f} trained so. The cache is {found.heads_pooled} times smaller either way."
    )


def table_rows(found: Comparison) -> list[list[str | int | float]]:
    """The COLUMNS of the model before pooling, pooled, trained with that g, and with all its heads switched off."""
    g, fewer = found.before.n_kv_heads, found.after.n_kv_heads
    far = found.distance
    off = asdict(found.heads_off)
    return [
        _row(f"before, g = {g}", found.before, ["", ""]),
        _row(f"pooled to g = {fewer}", found.after, [far.out_mean, far.kl]),
        _row(f"trained with g = {fewer}", found.trained, ["", ""]),
        ["before, all heads off", off["validation_loss"], "", "", *(off[task] for task in TASKS), "", "", "", ""],
    ]


def _row(name: str, found: Figures, far: list[str | float]) -> list[str | int | float]:
    scores = asdict(found.scores)
    tasks = [scores[task] for task in TASKS]
    return [name, scores["validation_loss"], *found.halves, *tasks, *far, found.parameters, found.cache_bytes]


def lines(name: str) -> tuple[Series, ...]:
    """Loss against g: one trained model pooled to every smaller g, and the models that were trained with each."""
    one = find(name)
    if one is None:
        return ()
    g = one.trained.n_kv_heads
    others = [c.trained for c in compared() if (c.d_model, c.n_heads, c.before.n_kv_heads) == (*_width(one), g)]
    stops = (g, *(after.figures.n_kv_heads for after in one.pooled))
    off = (one.heads_off.validation_loss,) * len(stops)
    return (
        _line(f"pooled from g = {g}", [one.trained, *(after.figures for after in one.pooled)]),
        _line("trained with that g", [one.trained, *others]),
        Series(f"g = {g}, all heads off", stops, off, (), ()),
    )


def _line(name: str, found: Sequence[Figures]) -> Series:
    return Series(
        name,
        tuple(one.n_kv_heads for one in found),
        tuple(one.scores.validation_loss for one in found),
        tuple(min(one.halves) for one in found),
        tuple(max(one.halves) for one in found),
    )


def _four(found: Comparison) -> tuple[TaskScores, ...]:
    return found.before.scores, found.after.scores, found.trained.scores, found.heads_off


def _sizes(found: Comparison) -> tuple[int, int, int, int]:
    return found.d_model, found.n_heads, found.before.n_kv_heads, found.after.n_kv_heads


def _width(one: Conversion) -> tuple[int, int]:
    return one.d_model, one.n_heads
