"""The attention core against its peers, in one process: ``python -m bench.core --json core.json``.

Every round runs every contestant once, in a new order, so that a busy moment of the machine falls on all of them.
A ratio is the median of the ratios of the rounds, ours / peer: below 1 we are quicker. Peers get their best case:
no dropout, inference mode, masks built outside the clock and of the quickest kind, ``is_causal`` said where it helps.
"""

from __future__ import annotations

import argparse
import json
import platform
import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL

SHAPES = ((64, 4, 4, 12), (512, 8, 8, 32), (512, 8, 2, 256), (512, 8, 8, 1024), (1024, 16, 4, 1024))
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
# Who is held against whom: trace keeps every step, so its peer is the one that hands out its weights.
DUELS = (("forward", "mha"), ("trace", "mha with weights"), ("forward", "eager"), ("trace", "eager"))
MIN_SECONDS_PER_TURN = 0.002


@dataclass(frozen=True)
class Setting:
    """One line of the table: the layer's shape, its number type, and the threads it runs on."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    n_tokens: int
    dtype: str
    threads: int
    bias: bool


@dataclass(frozen=True)
class Spread:
    """The median of some rounds, and the quartiles around it."""

    median: float
    low: float
    high: float


class Eager(nn.Module):
    """The attention of a textbook: keys and values repeated, scores, mask, softmax, product."""

    def __init__(self, layer: GroupedQueryAttention) -> None:
        super().__init__()
        self.W_Q, self.W_K, self.W_V, self.W_O = layer.W_Q, layer.W_K, layer.W_V, layer.W_O
        self.head_dim, self.heads_per_kv = layer.cfg.head_dim, layer.cfg.heads_per_kv

    def forward(self, x: Tensor, later: Tensor) -> Tensor:
        """The output, step by step."""
        b, n, _ = x.shape
        q = self.W_Q(x).view(b, n, -1, self.head_dim).transpose(1, 2)
        k = self.W_K(x).view(b, n, -1, self.head_dim).transpose(1, 2).repeat_interleave(self.heads_per_kv, dim=1)
        v = self.W_V(x).view(b, n, -1, self.head_dim).transpose(1, 2).repeat_interleave(self.heads_per_kv, dim=1)
        scores = q @ k.transpose(2, 3) / self.head_dim**0.5
        pattern = scores.masked_fill(later, float("-inf")).softmax(-1)
        return self.W_O((pattern @ v).transpose(1, 2).reshape(b, n, -1))


def contestants(setting: Setting) -> dict[str, Callable[[], object]]:
    """Everything that runs in one setting, by name. nn.MultiheadAttention knows no sharing: there g is h."""
    dtype, n = DTYPES[setting.dtype], setting.n_tokens
    cfg = AttentionConfig(setting.d_model, setting.n_heads, setting.n_kv_heads, bias=setting.bias, mask=CAUSAL)
    layer = GroupedQueryAttention(cfg).to(dtype).eval()
    peer = nn.MultiheadAttention(setting.d_model, setting.n_heads, bias=setting.bias, batch_first=True)
    peer = peer.to(dtype).eval()
    eager = Eager(layer).eval()
    x = torch.randn(1, n, setting.d_model, generator=torch.Generator().manual_seed(1)).to(dtype)
    later = torch.ones(n, n, dtype=torch.bool).triu(1)
    hide = torch.zeros(n, n, dtype=dtype).masked_fill(later, -torch.inf)
    return {
        "forward": lambda: layer(x),
        "trace": lambda: layer.trace(x),
        "mha": lambda: peer(x, x, x, attn_mask=hide, is_causal=True, need_weights=False),
        "mha with weights": lambda: peer(x, x, x, attn_mask=hide, average_attn_weights=False),
        "eager": lambda: eager(x, later),
    }


def measure(setting: Setting, rounds: int) -> dict[str, list[float]]:
    """Seconds per call of every contestant, round by round."""
    torch.set_num_threads(setting.threads)
    # Made outside inference mode: with weights made inside, nn.MultiheadAttention was 4 to 300 times slower.
    runs = contestants(setting)
    order = random.Random(1)
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    with torch.inference_mode():
        turns = {name: max(1, round(MIN_SECONDS_PER_TURN / seconds_per_turn(run, 3))) for name, run in runs.items()}
        for _ in range(rounds):
            for name in order.sample(sorted(runs), len(runs)):
                seconds[name].append(seconds_per_turn(runs[name], turns[name]))
    return seconds


def seconds_per_turn(run: Callable[[], object], turns: int) -> float:
    """The mean of some calls one after the other."""
    start = time.perf_counter()
    for _ in range(turns):
        run()
    return (time.perf_counter() - start) / turns


def spread(values: list[float]) -> Spread:
    """Median and quartiles."""
    low, median, high = statistics.quantiles(values, n=4)
    return Spread(median, low, high)


def report(setting: Setting, seconds: dict[str, list[float]]) -> dict[str, object]:
    """One setting's medians in milliseconds and its ratios, as plain values for JSON."""
    times = {name: asdict(spread([1000 * s for s in values])) for name, values in seconds.items()}
    ratios = {
        f"{ours} / {peer}": asdict(spread([a / b for a, b in zip(seconds[ours], seconds[peer], strict=True)]))
        for ours, peer in DUELS
    }
    return {"setting": asdict(setting), "milliseconds": times, "ratios": ratios}


def line(setting: Setting, seconds: dict[str, list[float]]) -> str:
    """One setting as a line of a markdown table: ratios with their quartiles, then milliseconds."""
    shape = f"{setting.d_model}, {setting.n_heads}, {setting.n_kv_heads}, {setting.n_tokens}"
    cells = [f"{setting.threads}, {setting.dtype}{', bias' * setting.bias}", shape]
    for ours, peer in DUELS:
        ratio = spread([a / b for a, b in zip(seconds[ours], seconds[peer], strict=True)])
        cells.append(f"{ratio.median:.2f} ({ratio.low:.2f}-{ratio.high:.2f})")
    cells += [f"{1000 * statistics.median(values):.3f}" for values in seconds.values()]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure the chosen settings, print the table as it grows, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--bias", action="store_true", help="with biases nn.MultiheadAttention takes its fused path")
    chosen = parser.parse_args()
    names = ["threads, dtype", "d, h, g, n", *(f"{ours} / {peer}" for ours, peer in DUELS)]
    names += [f"{name} ms" for name in ("forward", "trace", "mha", "mha with weights", "eager")]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    results = []
    for threads in chosen.threads:
        for dtype in chosen.dtypes:
            for shape in SHAPES:
                setting = Setting(*shape, dtype=dtype, threads=threads, bias=chosen.bias)
                seconds = measure(setting, chosen.rounds)
                print(line(setting, seconds), flush=True)
                results.append(report(setting, seconds))
    if chosen.json is not None:
        about = {"torch": torch.__version__, "machine": platform.processor() or platform.machine()}
        chosen.json.write_text(json.dumps({**about, "rounds": chosen.rounds, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    main()
