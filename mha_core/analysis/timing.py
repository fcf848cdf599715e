"""A loop over heads against one big product, timed: the same layer, the same input, equal outputs.

Nothing of torch is set here: it is timed as the app runs, and what it runs with is told.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.device import best_device, machine_name
from mha_core.seeds import generator_for

MAX_TOKENS = 1_024
# On one busy core about 0.1 s a pass: two ways, once to warm up and seven times to measure, stay within two seconds.
MAX_PRODUCTS = 1_500_000_000
MAX_SCORES = 2**25
ROUNDS, LEAST_ROUNDS, SECONDS = 101, 7, 1.2
# Of the rounds, so many must agree before one way is called quicker: other visitors share the processor.
AGREEING = 0.8
# What is shorter is timed several times in a row: the clock and a call cost about a microsecond.
SAMPLE_SECONDS = 2e-3


class TooLargeError(ValueError):
    """Raised before a timing that would take too long or too much memory."""


@dataclass(frozen=True)
class Spread:
    """Seconds of one pass: the middle of all rounds, and the quartiles around it."""

    low: float
    median: float
    high: float


@dataclass(frozen=True)
class Timing:
    """A measurement as far as it is. loop, big: seconds of one pass, a number for each round.

    difference: largest difference between the two outputs; largest: largest number in them. of: rounds it will take
    at most. where, threads: what it runs on.
    """

    loop: tuple[float, ...]
    big: tuple[float, ...]
    difference: float
    largest: float
    of: int
    where: str
    threads: int

    def spread(self, name: str) -> Spread:
        """The middle of the rounds of "loop" or "big", and their quartiles."""
        rounds = sorted(getattr(self, name))
        low, _, high = statistics.quantiles(rounds, n=4) if len(rounds) > 1 else rounds * 3
        return Spread(low, statistics.median(rounds), high)

    @property
    def slower(self) -> int:
        """In how many rounds the loop took longer than the big product beside it."""
        return sum(loop > big for loop, big in zip(self.loop, self.big, strict=True))

    @property
    def apart(self) -> bool:
        """Whether enough rounds agree on which way is quicker."""
        return max(self.slower, len(self.loop) - self.slower) >= AGREEING * len(self.loop)


def products(n: int, d_model: int) -> int:
    """Multiplications in one pass over n tokens: four projections, and scores and values of all heads."""
    return 4 * n * d_model**2 + 2 * n**2 * d_model


def refuse_too_large(n: int, d_model: int, n_heads: int) -> None:
    """Raises TooLargeError, in a visitor's words, before anything is allocated."""
    if products(n, d_model) > MAX_PRODUCTS:
        raise TooLargeError(
            f"{n:,} tokens at d_model {d_model:,} take {products(n, d_model) / 1e6:,.0f} million multiplications a "
            f"pass, and the limit is {MAX_PRODUCTS / 1e6:,.0f} million; choose fewer tokens or a smaller d_model."
        )
    if n_heads * n**2 > MAX_SCORES:
        raise TooLargeError(
            f"{n_heads} heads of {n:,} x {n:,} scores are {n_heads * n**2 / 1e6:,.0f} million numbers, and the limit "
            f"is {MAX_SCORES / 1e6:,.0f} million; choose fewer tokens or fewer heads."
        )


def timing(n: int, d_model: int, n_heads: int, *, clock: Callable[[], float] = time.perf_counter) -> Iterator[Timing]:
    """Measure in rounds, each way once a round and in turns, and give what is there after each.

    Random weights and input, g = h, no rotary positions, no mask. Raises TooLargeError.
    """
    refuse_too_large(n, d_model, n_heads)
    device = best_device()
    layer = GroupedQueryAttention(AttentionConfig(d_model, n_heads, n_heads)).to(device)
    x = torch.randn(1, n, d_model, generator=generator_for(0, "timing", n, d_model)).to(device)
    heads, W_O = head_matrices(layer), layer.W_O.weight.detach().T
    passes = {"loop": lambda: loop_over_heads(x, heads, W_O), "big": lambda: layer(x)}
    # The first passes pay for memory and set-up, and give the outputs that are compared.
    with torch.inference_mode():
        outputs = [run() for run in passes.values()]
    difference, largest = (float(t.abs().max()) for t in (outputs[0] - outputs[1], outputs[1]))
    repeats = {name: _repeats(run, clock) for name, run in passes.items()}
    rounds: dict[str, list[float]] = {name: [] for name in passes}
    start, count = clock(), 0
    while count < ROUNDS and (count < LEAST_ROUNDS or clock() - start < SECONDS):
        count += 1
        for name in sorted(passes, reverse=count % 2 == 0):
            rounds[name].append(_seconds(passes[name], repeats[name], clock))
        yield Timing(
            tuple(rounds["loop"]),
            tuple(rounds["big"]),
            difference,
            largest,
            ROUNDS,
            machine_name(device),
            torch.get_num_threads(),
        )


def head_matrices(layer: GroupedQueryAttention) -> list[tuple[Tensor, Tensor, Tensor]]:
    """W_Q^i, W_K^i, W_V^i (d_model, d_k) of every head, each lying on its own, as a loop would keep them."""
    parts = [layer.W_Q, layer.W_K, layer.W_V]
    cut = [matrix.weight.detach().split(layer.cfg.head_dim) for matrix in parts]
    return [tuple(part.T.contiguous() for part in head) for head in zip(*cut, strict=True)]


def loop_over_heads(x: Tensor, heads: list[tuple[Tensor, Tensor, Tensor]], W_O: Tensor) -> Tensor:
    """Multi-head attention as it is told: each head by itself with its own small matrices, then concat and W_O.

    Each head has the fused kernel that the fast path has for all of them: what is compared is the loop, no more.
    """
    # (b, n, d_model) -> (b, 1, n, d_model): with four axes torch takes its fused kernel, with three it does not
    x = x[:, None]
    z = [scaled_dot_product_attention(x @ W_Q, x @ W_K, x @ W_V) for W_Q, W_K, W_V in heads]
    # (b, 1, n, h d_k) -> (b, n, h d_k)
    return torch.cat(z, dim=-1)[:, 0] @ W_O


def _repeats(run: Callable[[], Tensor], clock: Callable[[], float]) -> int:
    """How often in a row a pass is run, so that the clock has something to measure."""
    return max(1, min(1_000, round(SAMPLE_SECONDS / max(_seconds(run, 1, clock), 1e-7))))


@torch.inference_mode()
def _seconds(run: Callable[[], Tensor], repeats: int, clock: Callable[[], float]) -> float:
    """Seconds of one pass, the mean of some in a row; a GPU is waited for."""
    start = clock()
    for _ in range(repeats - 1):
        run()
    if run().is_cuda:
        torch.cuda.synchronize()
    return (clock() - start) / repeats
