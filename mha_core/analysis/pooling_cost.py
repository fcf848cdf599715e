"""What fewer KV heads cost without training: ``python -m mha_core.analysis.pooling_cost [names]``.

Every trained setting is pooled to every smaller g it can have, and held against the model that was trained with that g.
Weights are kept of seed 0 alone: the two halves of the sentences tell how much the choice of sentences moves a figure,
and nothing here tells how much the choice of the seed would.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from mha_core import zoo
from mha_core.analysis.pooling import Distance, distance, pooled, targets
from mha_core.analysis.pruning import gates
from mha_core.params import kv_cache_bytes_per_token, model_parameters
from mha_core.training.evaluate import Exam, all_heads, make_exam, mean_loss, score
from mha_core.training.scores import TaskScores
from mha_core.transformer import Transformer
from mha_core.zoo.jsons import build, rounded

PATH = Path(__file__).with_name("pooling_cost.json")
FIX = "run `make evidence` to make it again"
COLUMNS = ("KV heads made one", "conversions", "nats per word it costs", "behind trained", "most taken from a task")


class PoolingError(Exception):
    """Raised for stored figures that cannot be used; the message names the file and what to do."""


@dataclass(frozen=True)
class Figures:
    """What a model with g KV heads can do, and what it costs.

    halves: loss in nats per word on the first and on the second half of the sentences behind ``validation_loss``.
    cache_bytes: what one more token adds to the cache, in all layers, at the size that the weights have in memory.
    """

    n_kv_heads: int
    scores: TaskScores
    halves: tuple[float, float]
    parameters: int
    cache_bytes: int


@dataclass(frozen=True)
class Pooled:
    """A model after pooling: its figures, and its distance from the model before."""

    figures: Figures
    distance: Distance


@dataclass(frozen=True)
class Conversion:
    """One trained model of the zoo, and its weights pooled to every smaller g, the largest first.

    heads_off: what the model scores with all its heads switched off.
    """

    name: str
    sha256: str
    torch: str
    d_model: int
    n_heads: int
    trained: Figures
    heads_off: TaskScores
    pooled: tuple[Pooled, ...]


@dataclass(frozen=True)
class Comparison:
    """One conversion: the model before and after it, and the model that was trained with the g reached."""

    d_model: int
    n_heads: int
    before: Figures
    after: Figures
    distance: Distance
    trained: Figures
    heads_off: TaskScores

    @property
    def heads_pooled(self) -> int:
        """How many KV heads became one."""
        return self.before.n_kv_heads // self.after.n_kv_heads

    @property
    def cost(self) -> tuple[float, float]:
        """Nats per word that pooling costs, on each half of the sentences."""
        return _halves_apart(self.after, self.before)

    @property
    def behind(self) -> tuple[float, float]:
        """Nats per word by which the pooled model is behind the trained one, on each half of the sentences."""
        return _halves_apart(self.after, self.trained)

    @property
    def share_lost(self) -> float:
        """How much of what the heads are worth, in loss, pooling takes: 1 where all heads off would cost the same."""
        before, after, off = (one.validation_loss for one in (self.before.scores, self.after.scores, self.heads_off))
        return (after - before) / (off - before)

    @property
    def dropped(self) -> dict[str, float]:
        """What pooling takes from the share of right answers in each task; below 0 where it adds."""
        before, after = asdict(self.before.scores), asdict(self.after.scores)
        return {task: before[task] - after[task] for task in before if task != "validation_loss"}


def measure(model: Transformer, card: zoo.Card, exam: Exam) -> Conversion:
    """One model and all that can be pooled from it; some seconds for each on one core."""
    recipe, found = card.recipe, []
    for n_kv_heads in reversed(targets(recipe.n_kv_heads)):
        fewer = pooled(model, n_kv_heads)
        found.append(Pooled(figures(fewer, exam), distance(model, fewer, exam.sentences)))
    # A build for another device only adds its name to the version.
    version = torch.__version__.split("+")[0]
    sizes = recipe.d_model, recipe.n_heads
    trained, off = figures(model, exam), without_heads(model, exam)
    return Conversion(card.name, card.sha256, version, *sizes, trained, off, tuple(found))


def figures(model: Transformer, exam: Exam) -> Figures:
    """What a model scores and costs."""
    cfg, rows = model.cfg, exam.sentences
    half = len(rows) // 2
    return Figures(
        cfg.attention.n_kv_heads,
        score(model, exam),
        (mean_loss(model, rows[:half]), mean_loss(model, rows[half:])),
        sum(model_parameters(cfg).values()),
        kv_cache_bytes_per_token(cfg.attention, cfg.n_layers, model.unembed.weight.element_size()),
    )


def without_heads(model: Transformer, exam: Exam) -> TaskScores:
    """What a model scores with all its heads switched off: each word foretells the next one by itself."""
    return score(model, exam, gates(model, tuple(all_heads(model))))


def comparisons(found: Sequence[Conversion]) -> tuple[Comparison, ...]:
    """Every conversion whose g is that of a trained model in ``found``, beside that model."""
    trained = {(c.d_model, c.n_heads, c.trained.n_kv_heads): c.trained for c in found}
    return tuple(
        Comparison(c.d_model, c.n_heads, c.trained, after.figures, after.distance, trained[sizes], c.heads_off)
        for c in found
        for after in c.pooled
        if (sizes := (c.d_model, c.n_heads, after.figures.n_kv_heads)) in trained
    )


def stored(path: Path = PATH, folder: Path = zoo.FOLDER) -> tuple[Conversion, ...]:
    """The figures as they were measured last, by name.

    Raises PoolingError for a file that cannot be read or was measured on other weights, ZooError for a bad card.
    """
    found, cards = _read(path), {card.name: card for card in zoo.available(folder)}
    if other := {one.name for one in found} - {one.name for one in _of_today(found, cards)}:
        raise PoolingError(f"{path.name} was measured on other weights than {', '.join(sorted(other))}; {FIX}.")
    return found


def store(found: Iterable[Conversion], path: Path = PATH) -> None:
    """Write the figures in four digits, one line per trained model."""
    lines = [json.dumps(rounded(asdict(one), _digits)) for one in found]
    path.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def table(found: Sequence[Comparison]) -> list[tuple[str, ...]]:
    """The COLUMNS by how many KV heads became one: median (lowest to highest) over the settings.

    The last is the share of right answers that pooling takes from the task that suffers most.
    """
    rows = []
    for ratio in sorted({one.heads_pooled for one in found}):
        some = [one for one in found if one.heads_pooled == ratio]
        columns = ([statistics.mean(one.cost) for one in some], [statistics.mean(one.behind) for one in some])
        dropped = [max(one.dropped.values()) for one in some]
        rows.append((str(ratio), str(len(some)), *(_shown(column) for column in (*columns, dropped))))
    return rows


def main(arguments: list[str] | None = None) -> int:
    """Convert the named models, all of the zoo when none is named, unless their figures are there; print the cost."""
    parser = argparse.ArgumentParser(prog="python -m mha_core.analysis.pooling_cost", description=__doc__)
    parser.add_argument("names", nargs="*", help="models such as grammar-d128-h8-g8; all when left out")
    parser.add_argument("--folder", type=Path, default=zoo.FOLDER, help="folder of the weights and cards")
    parser.add_argument("--out", type=Path, default=PATH, help="file of the figures")
    options = parser.parse_args(arguments)
    cards = {card.name: card for card in zoo.available(options.folder)}
    kept = {one.name: one for one in _kept(options.out, cards)}
    names = options.names or list(cards)
    for number, name in enumerate(names, start=1):
        if name not in kept:
            model, card = zoo.load(name, options.folder)
            kept[name] = measure(model, card, make_exam(card.vocabulary))
            store([kept[known] for known in sorted(kept)], options.out)
        print(f"{number} of {len(names)} {name}", flush=True)
    for row in (COLUMNS, *table(comparisons(list(kept.values())))):
        print("".join(f"{cell:<28}" for cell in row))
    return 0


def _read(path: Path) -> tuple[Conversion, ...]:
    try:
        return build(tuple[Conversion, ...], json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise PoolingError(f"{path.name} holds no figures that this version can read ({error}); {FIX}.") from error


def _kept(path: Path, cards: Mapping[str, zoo.Card]) -> list[Conversion]:
    """What need not be measured again; nothing where the file cannot be read."""
    try:
        return _of_today(_read(path), cards)
    except PoolingError:
        return []


def _of_today(found: Iterable[Conversion], cards: Mapping[str, zoo.Card]) -> list[Conversion]:
    """Those that were measured on the weights that are there now."""
    return [one for one in found if one.name in cards and one.sha256 == cards[one.name].sha256]


def _halves_apart(one: Figures, other: Figures) -> tuple[float, float]:
    return one.halves[0] - other.halves[0], one.halves[1] - other.halves[1]


def _shown(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


def _digits(value: float) -> float:
    return float(f"{value:.4g}")


if __name__ == "__main__":
    sys.exit(main())
