"""What the four claims of claims.py are measured on, and what is told of each, as frozen values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from mha_core.analysis.orders import Run, run_of
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import MASKS
from mha_core.seeds import generator_for

# With the layers' own spread of weights, inputs of spread 1 give nearly uniform maps, on which all maps look alike.
INPUT_SPREAD = 2.0


@dataclass(frozen=True)
class Setting:
    """The sizes of one layer and its input: n tokens, and a mask by its name."""

    n: int
    d_model: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    mask: str

    def config(self, seed: int) -> AttentionConfig:
        """The layer of this size whose weights start at ``seed``; no biases, no rotary positions."""
        mask = MASKS[self.mask]()
        return AttentionConfig(self.d_model, self.n_heads, self.n_kv_heads, self.head_dim, mask=mask, seed=seed)


@dataclass(frozen=True)
class Spread:
    """The lowest and the highest of one figure over all runs."""

    low: float
    high: float


@dataclass(frozen=True)
class Counted:
    """Parameters of one layer without biases: what it holds, what params.py counts, and the formula."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    held: int
    counted: int
    formula: int


@dataclass(frozen=True)
class Parameters:
    """Claim (i), one row for every valid (h, g) of several widths."""

    rows: tuple[Counted, ...]

    def mha(self) -> tuple[Counted, ...]:
        """The rows with a KV head for every head."""
        return tuple(row for row in self.rows if row.n_kv_heads == row.n_heads)

    def off(self) -> int:
        """The largest difference between parameters held and either count; 0 when the claim holds."""
        return max(max(abs(row.held - row.counted), abs(row.held - row.formula)) for row in self.rows)


@dataclass(frozen=True)
class OneSoftmax:
    """Claim (ii) as it is often told, which is false.

    to_product: largest difference between the single head's pattern and the normalised product of the heads'.
    to_nearest_head: largest difference of a weight between its pattern and the head's that is most like it.
    output: distance of its output from multi-head's, as a share of that output's length.
    """

    to_product: float
    to_nearest_head: Spread
    output: Spread


@dataclass(frozen=True)
class Expanded:
    """Claim (ii) as it is true.

    difference: largest difference between its output and multi-head's. without_mask: distance of the output, as a
    share of multi-head's, when copies of different heads see each other. scores, expanded_scores: scores computed by
    multi-head, h n^2, and by the construction, (h n)^2, for each setting.
    """

    difference: float
    without_mask: Spread
    scores: tuple[int, ...]
    expanded_scores: tuple[int, ...]


@dataclass(frozen=True)
class Counterexample:
    """The smallest case in which no single head will do: one query that needs two keys, each whole.

    two_heads: what our core's two heads give. The single head has the same value map and output map, and weights
    (a, 1 - a). searched: the smallest distance on a grid of a, found at a. formula: distance of a point from a line.
    """

    two_heads: tuple[float, float]
    searched: float
    a: float
    formula: float


@dataclass(frozen=True)
class HeadSums:
    """Claim (iii): largest difference from concat W_O of the sum of head_writes, and of a plain loop in numpy."""

    head_writes: float
    plain_loop: float


@dataclass(frozen=True)
class Reshapes:
    """Claim (iv), and two mistakes that raise no error.

    loop: largest difference between a loop over heads with a matrix each and our core. row_sums: how far the rows
    of the mistaken patterns are from 1. view, tile: distance of the mistaken output, as a share of the right one's
    length. mistaken_runs: runs with a mistake in them; same_shape: those whose output has the right shape all the same.
    """

    loop: float
    row_sums: float
    view: Spread
    tile: Spread
    mistaken_runs: int
    same_shape: int


@dataclass(frozen=True)
class Claims:
    """All figures, and what they were measured with: random weights from ``seeds``, inputs normal with this spread."""

    torch: str
    seeds: tuple[int, ...]
    input_spread: float
    settings: tuple[Setting, ...]
    parameters: Parameters
    one_softmax: OneSoftmax
    expanded: Expanded
    counterexample: Counterexample
    head_sums: HeadSums
    reshapes: Reshapes


def run(setting: Setting, seed: int) -> Run:
    """Weights and input of one seed, in float64; the input has a stream of its own."""
    layer = GroupedQueryAttention(setting.config(seed)).double()
    generator = generator_for(seed, "claims", setting.n, setting.d_model)
    x = INPUT_SPREAD * torch.randn(1, setting.n, setting.d_model, generator=generator, dtype=torch.float64)
    return run_of(layer, layer.trace(x))


def runs(settings: Sequence[Setting], seeds: Sequence[int]) -> Iterator[Run]:
    """Every setting with every seed."""
    return (run(setting, seed) for setting, seed in product(settings, seeds))
