"""Four claims that are told about heads, measured and kept: ``python -m mha_core.analysis.claims``.

Each compares what our core computes with the same thing written anew in numpy, in float64, on random weights and
random inputs: no training is behind any figure here. What holds exactly shows as a difference of rounding, about
1e-15; what is false shows by how much.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from mha_core.analysis.orders import (
    Run,
    attended,
    looped,
    projected,
    run_of,
    softmax,
    split_and_tiled,
    split_by_view,
)
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, divisors, valid_choices
from mha_core.masks import MASKS
from mha_core.params import attention_parameters, held_parameters
from mha_core.seeds import generator_for
from mha_core.trace import AttentionTrace
from mha_core.zoo.jsons import build, rounded

PATH = Path(__file__).with_name("claims.json")
FIX = "run `make evidence` to make it again"
D_MODELS = (24, 60, 128, 512)
SEEDS = (0, 1, 2, 3, 4)
# With the layers' own spread of weights, inputs of spread 1 give nearly uniform maps, on which all maps look alike.
INPUT_SPREAD = 2.0
SEARCH_STEPS = 10_000
# In float64 the two ways to one number compared here differ by far less (about 1e-15); any more is a difference.
ROUNDING = 1e-12
LINE = 110


class ClaimsError(Exception):
    """Raised for stored figures that cannot be used; the message names the file and what to do."""


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


SETTINGS = (
    Setting(7, 10, 2, 2, 3, "full"),
    Setting(5, 18, 4, 2, 3, "causal"),
    Setting(9, 26, 6, 3, 8, "full"),
    Setting(13, 96, 8, 2, 12, "causal"),
)


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


def parameters(d_models: Sequence[int] = D_MODELS) -> Parameters:
    """(i) Multi-head attention has 4 d^2 parameters whatever h; with g KV heads it is exactly 2 d^2 + 2 d g d_k.

    Shown for every valid (h, g) of these widths that the knobs offer, where d_k = d/h and there are no biases. So h
    alone is free, g is not.
    """
    return Parameters(tuple(_counted(d, h, g) for d in d_models for h in _heads(d) for g in divisors(h)))


def _heads(d_model: int) -> tuple[int, ...]:
    return valid_choices(d_model, 1, rotary=False).n_heads


def _counted(d_model: int, h: int, g: int) -> Counted:
    cfg = AttentionConfig(d_model, h, g)
    held = sum(held_parameters(cfg).values())
    formula = 2 * d_model**2 + 2 * d_model * g * (d_model // h)
    return Counted(d_model, h, g, held, sum(attention_parameters(cfg).values()), formula)


def one_softmax(settings: Sequence[Setting] = SETTINGS, seeds: Sequence[int] = SEEDS) -> OneSoftmax:
    """(ii) A single head of full width with block-diagonal weights does not give what multi-head attention gives.

    It reads h copies of x side by side through the heads' matrices on the diagonal, so its q . k is the sum of the
    heads' scores, and ONE softmax over the n keys of a sum is the normalised product of the heads' softmaxes. The
    scale stays the heads' 1/sqrt(d_k); with a full-width head's own 1/sqrt(h d_k) every score of the sum, and so every
    power in the product, is sqrt(h) times smaller. For h = 1 product and head are the same.
    """
    to_product, nearest, output = [], [], []
    for one in runs(settings, seeds):
        single, patterns = block_diagonal_head(one), one.step("pattern")
        pattern = single.pattern[0, 0].numpy()
        to_product.append(_largest(pattern - normalised_product(patterns)))
        nearest.append(min(_largest(pattern - head) for head in patterns))
        output.append(_distance(single.concat[0].numpy() @ one.W_O, one.step("out")))
    return OneSoftmax(max(to_product), _spread(nearest), _spread(output))


def block_diagonal_head(one: Run) -> AttentionTrace:
    """Our core with one head of width h d_k, reading h copies of x side by side; its scores have the heads' scale."""
    cfg = one.trace.cfg
    h = cfg.n_heads
    wide = AttentionConfig(h * cfg.d_model, 1, 1, h * cfg.head_dim, mask=cfg.mask)
    layer = GroupedQueryAttention(wide).double()
    with torch.no_grad():
        # A head of width h d_k divides by sqrt(h) more than its parts do.
        layer.W_Q.weight.copy_(torch.from_numpy(block_diagonal(one.heads(one.W_Q)).T * np.sqrt(h)))
        layer.W_K.weight.copy_(torch.from_numpy(block_diagonal(one.heads(one.W_K)).T))
        layer.W_V.weight.copy_(torch.from_numpy(block_diagonal(one.heads(one.W_V)).T))
    return layer.trace(one.trace.x.repeat(1, 1, h))


def block_diagonal(blocks: Sequence[np.ndarray]) -> np.ndarray:
    """Blocks (r, c) down the diagonal, zeros elsewhere: (h r, h c)."""
    r, c = blocks[0].shape
    whole = np.zeros((len(blocks) * r, len(blocks) * c))
    for i, block in enumerate(blocks):
        whole[i * r : (i + 1) * r, i * c : (i + 1) * c] = block
    return whole


def normalised_product(patterns: np.ndarray) -> np.ndarray:
    """Patterns (h, n, n) multiplied weight by weight, each row divided by its sum: (n, n)."""
    multiplied = patterns.prod(0)
    return multiplied / multiplied.sum(-1, keepdims=True)


def expanded(settings: Sequence[Setting] = SETTINGS, seeds: Sequence[int] = SEEDS) -> Expanded:
    """(ii) What is true: ONE masked softmax over h n expanded tokens equals multi-head attention.

    Copy every token h times, let only copies of the same head see each other, and add a token's h copies up at the
    end. It takes (h n)^2 scores where multi-head takes h n^2, and the mask is not optional.
    """
    cases = list(runs(settings, seeds))
    right = [_largest(expanded_output(one) - one.step("out")) for one in cases]
    wrong = [_distance(expanded_output(one, masked=False), one.step("out")) for one in cases]
    scores = tuple(s.n_heads * s.n**2 for s in settings)
    return Expanded(max(right), _spread(wrong), scores, tuple((s.n_heads * s.n) ** 2 for s in settings))


def expanded_output(one: Run, *, masked: bool = True) -> np.ndarray:
    """The construction, (n, d_model); masked=False lets copies of different heads see each other.

    Copy i of token t is e_i (x) x_t, in R^(h d): zeros, but x_t in block i. One W_Q and one W_K (h d, d_k) stack the
    heads' matrices; W_V (h d, h d_k) has them on the diagonal.
    """
    h, x, visible = one.trace.cfg.n_heads, one.step("x"), one.step("mask")
    copies = np.kron(np.eye(h), x)
    q, k = copies @ np.vstack(one.heads(one.W_Q)), copies @ np.vstack(one.heads(one.W_K))
    v = copies @ block_diagonal(one.heads(one.W_V))
    same_copy = np.eye(h) if masked else np.ones((h, h))
    pattern = softmax(q @ k.T / np.sqrt(one.trace.cfg.head_dim), np.kron(same_copy, visible) > 0)
    # (h n, h d_k) -> (n, h d_k)
    return (pattern @ v).reshape(h, len(x), -1).sum(0) @ one.W_O


def counterexample() -> Counterexample:
    """(ii) The smallest case: two tokens with values (1, 0) and (0, 1), and a query that needs (1, 1).

    Head 1 looks at key 1 and reads coordinate 1, head 2 looks at key 2 and reads coordinate 2. A single head with that
    value map gives (a, 1 - a), whose sum is always 1, so it stays at least sqrt(1/2) away. For ONE given input a
    single head with another value map can be fitted; what it cannot do is give the right answer on every input.
    """
    two_heads, values = _two_whole_keys(), np.eye(2)
    a = np.linspace(0, 1, SEARCH_STEPS + 1)
    distances = np.linalg.norm(np.outer(a, values[0]) + np.outer(1 - a, values[1]) - two_heads, axis=1)
    best = int(distances.argmin())
    # The line x + y = 1 holds everything that one softmax can give.
    formula = abs(float(two_heads.sum()) - 1) / float(np.sqrt(2))
    return Counterexample((float(two_heads[0]), float(two_heads[1])), float(distances[best]), float(a[best]), formula)


def _two_whole_keys() -> np.ndarray:
    """What token 1 gets from our core: scores 900 apart are a weight of exactly 1 in float64."""
    layer = GroupedQueryAttention(AttentionConfig(2, 2, 2)).double()
    # Both heads ask with coordinate 1, which is all that token 1 has; head i's key is coordinate i.
    asks = torch.tensor([[900.0, 0.0], [900.0, 0.0]], dtype=torch.float64)
    with torch.no_grad():
        layer.W_Q.weight.copy_(asks)
        for matrix in (layer.W_K, layer.W_V, layer.W_O):
            matrix.weight.copy_(torch.eye(2))
        return layer(torch.eye(2, dtype=torch.float64)[None])[0, 0].numpy()


def head_sums(settings: Sequence[Setting] = SETTINGS, seeds: Sequence[int] = SEEDS) -> HeadSums:
    """(iii) Joining the heads and multiplying by W_O is adding up what each head writes through its rows of W_O.

    Shown for layers without biases; an output bias belongs to no head and is added once.
    """
    cases = list(runs(settings, seeds))
    joined = [one.step("concat") @ one.W_O for one in cases]
    writes = [one.trace.head_writes()[0].sum(0).numpy() for one in cases]
    loops = [summed_heads(one) for one in cases]
    return HeadSums(
        max(_largest(a - b) for a, b in zip(writes, joined, strict=True)),
        max(_largest(a - b) for a, b in zip(loops, joined, strict=True)),
    )


def summed_heads(one: Run) -> np.ndarray:
    """The sum of z_i W_O^i, one head after the other: (n, d_model)."""
    d_k, total = one.trace.cfg.head_dim, np.zeros_like(one.forward)
    for i, z in enumerate(one.step("z")):
        total += z @ one.W_O[i * d_k : (i + 1) * d_k]
    return total


def reshapes(settings: Sequence[Setting] = SETTINGS, seeds: Sequence[int] = SEEDS) -> Reshapes:
    """(iv) A loop over heads equals one big matrix and a reshape, if it is the right reshape.

    Two wrong ones raise no error: splitting into heads by a view without the transpose (the joining at the end is
    left right), and sharing K and V as ``tile`` does, not ``repeat_interleave``. The second is tried where it differs,
    1 < g < h.
    """
    cases = list(runs(settings, seeds))
    right = [np.hstack([z for _, z in looped(one)]) @ one.W_O for one in cases]
    views = [(one, attended(one, *(split_by_view(x, one.trace.cfg) for x in projected(one)))) for one in cases]
    shared = [one for one in cases if 1 < one.trace.cfg.n_kv_heads < one.trace.cfg.n_heads]
    tiles = [(one, attended(one, *(split_and_tiled(x, one.trace.cfg) for x in projected(one)))) for one in shared]
    mistaken = [*views, *tiles]
    return Reshapes(
        max(_largest(out - one.forward) for one, out in zip(cases, right, strict=True)),
        max(_largest(wrong[0].sum(-1) - 1) for _, wrong in mistaken),
        _spread(_distance(wrong[1], one.forward) for one, wrong in views),
        _spread(_distance(wrong[1], one.forward) for one, wrong in tiles),
        len(mistaken),
        sum(wrong[1].shape == one.forward.shape for one, wrong in mistaken),
    )


def _largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())


def _distance(found: np.ndarray, right: np.ndarray) -> float:
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def _spread(figures: Iterable[float]) -> Spread:
    values = list(figures)
    return Spread(min(values), max(values))


def measure() -> Claims:
    """All four claims; a second or two on one core."""
    figures = parameters(), one_softmax(), expanded(), counterexample(), head_sums(), reshapes()
    # A build for another device only adds its name to the version.
    version = torch.__version__.split("+")[0]
    return Claims(version, SEEDS, INPUT_SPREAD, SETTINGS, *figures)


def store(claims: Claims, path: Path = PATH) -> None:
    """Write the figures, three digits each; four for the counterexample, whose figure is a known number."""
    plain = asdict(claims)
    exact = rounded(plain["counterexample"], lambda value: float(f"{value:.4g}"))
    path.write_text(_text(rounded(plain, shorten) | {"counterexample": exact}) + "\n")


def shorten(value: float) -> float:
    """Three digits; a rounding error becomes the power of ten above it, which is the same on most machines."""
    if 0 < value < ROUNDING:
        return float(f"1e{math.ceil(math.log10(value))}")
    return float(f"{value:.3g}")


def _text(value: Any, indent: str = "") -> str:
    """JSON in which everything that fits on a line stands on one."""
    flat, deeper = json.dumps(value), indent + "  "
    if len(indent + flat) <= LINE:
        return flat
    if isinstance(value, dict):
        lines = [f"{deeper}{json.dumps(key)}: {_text(item, deeper)}" for key, item in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    lines = [deeper + _text(item, deeper) for item in value]
    return "[\n" + ",\n".join(lines) + f"\n{indent}]"


def stored(path: Path = PATH) -> Claims:
    """The figures as they were measured last; raises ClaimsError for a file that cannot be read."""
    try:
        return build(Claims, json.loads(path.read_bytes()))
    except (OSError, ValueError, TypeError) as error:
        raise ClaimsError(f"{path.name} holds no figures that this version can read ({error}); {FIX}.") from error


def table(claims: Claims) -> list[tuple[str, str, str]]:
    """Every claim as (what it says, whether it holds, what was measured), for the README and the page Knobs."""
    false, true, wrong = claims.one_softmax, claims.expanded, claims.reshapes
    least = min(claims.counterexample.searched, claims.counterexample.formula)
    return [
        ("(i) 4 d² parameters for every h, where g = h", "yes", _counted_off(Parameters(claims.parameters.mha()))),
        ("(i) 2 d² + 2 d g d_k for every h and g, so g is not free", "yes", _counted_off(claims.parameters)),
        (
            "(ii) a single head with block-diagonal weights is multi-head attention",
            "no",
            f"output {_shown(false.output)} off",
        ),
        (
            "(ii) its one softmax over n keys is the normalised product of the heads' patterns",
            "yes",
            _below(false.to_product),
        ),
        (
            "(ii) its pattern is that of one of the heads",
            "no",
            f"nearest head {_shown(false.to_nearest_head)} away in some cell",
        ),
        (
            "(ii) one masked softmax over h n expanded tokens, (h n)² scores, is multi-head attention",
            "yes",
            _below(true.difference),
        ),
        ("(ii) the same without its mask", "no", f"output {_shown(true.without_mask)} off"),
        ("(ii) two whole keys, (1, 1), from one head's (a, 1 - a)", "no", f"at least {least} away"),
        (
            "(iii) the sum of z_i W_O^i is concat W_O",
            "yes",
            _below(max(claims.head_sums.head_writes, claims.head_sums.plain_loop)),
        ),
        ("(iv) a loop over heads is one big matrix and a reshape", "yes", _below(wrong.loop)),
        (
            "(iv) the reshape is a view without transpose (shape and row sums are right)",
            "no",
            f"output {_shown(wrong.view)} off",
        ),
        ("(iv) K and V shared by `tile`, not `repeat_interleave` (the same)", "no", f"output {_shown(wrong.tile)} off"),
    ]


def _counted_off(counted: Parameters) -> str:
    return f"{counted.off()} off in {len(counted.rows)} layers"


def _below(figure: float) -> str:
    """How a difference of rounding is told; a larger one is told as it is."""
    return "below 1e-12" if figure < ROUNDING else f"{figure:.2g}"


def _shown(spread: Spread) -> str:
    return f"{spread.low:.2g} to {spread.high:.2g}"


def main(path: Path = PATH) -> int:
    """Measure, store, and print what was found."""
    claims = measure()
    store(claims, path)
    for what, holds, figure in table(claims):
        print(f"{what:<92}{holds:<5}{figure}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
