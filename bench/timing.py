"""Contestants in one process, in interleaved rounds, as ratios: what every bench of the core shares.

Every round runs every contestant once, in a new order, so that a busy moment of the machine falls on all of them.
A ratio is the median of the ratios of the rounds, ours / peer: below 1 we are quicker.
"""

from __future__ import annotations

import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

MIN_SECONDS_PER_TURN = 0.002
Runs = Mapping[str, Callable[[], object]]
Seconds = dict[str, list[float]]


@dataclass(frozen=True)
class Spread:
    """The median of some rounds, and the quartiles around it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.2f} ({self.low:.2f}-{self.high:.2f})"


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return Spread(median, low, high)


def interleaved(runs: Runs, rounds: int) -> Seconds:
    """Seconds per call of every contestant, round by round; short calls are repeated within their turn."""
    order = random.Random(1)
    seconds: Seconds = {name: [] for name in runs}
    with torch.inference_mode():
        turns = {name: max(1, round(MIN_SECONDS_PER_TURN / seconds_of(run, 3))) for name, run in runs.items()}
        for _ in range(rounds):
            for name in order.sample(sorted(runs), len(runs)):
                seconds[name].append(seconds_of(runs[name], turns[name]))
    return seconds


def seconds_of(run: Callable[[], object], turns: int) -> float:
    """Mean seconds of a call over some turns."""
    start = time.perf_counter()
    for _ in range(turns):
        run()
    return (time.perf_counter() - start) / turns


def ratio(seconds: Seconds, ours: str, peer: str) -> Spread:
    """How long ours takes for each second of the peer's, over the rounds."""
    return spread([a / b for a, b in zip(seconds[ours], seconds[peer], strict=True)])


def as_row(setting: Any, seconds: Seconds, duels: Sequence[tuple[str, str]]) -> dict[str, object]:
    """One setting's medians in milliseconds and its ratios, as plain values for JSON."""
    times = {name: asdict(spread([1000 * s for s in values])) for name, values in seconds.items()}
    ratios = {f"{ours} / {peer}": asdict(ratio(seconds, ours, peer)) for ours, peer in duels if peer in seconds}
    return {"setting": asdict(setting), "milliseconds": times, "ratios": ratios}


def machine() -> dict[str, str]:
    """What the figures were measured on."""
    return {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
