"""One step of decoding against its limits, in one process: ``python -m bench.decode --json decode.json``.

A step reads one new token while the cache holds a context.
*copy*: as many bytes as the step's products move, copied in memory; the share is the step's bytes per second over the
copy's. *textbook*: the same weights with a cache that is joined anew at every step and repeated for every query head.
The step's seconds are fitted by a + b * context, for each width and g: what g saves must show in b.
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from bench.core import DTYPES
from bench.timing import Seconds, interleaved, machine, ratio, spread
from mha_core.attention import GroupedQueryAttention, rotate
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL
from mha_core.work import work_of

WIDTHS = (512, 1024, 2048)
CONTEXTS = (128, 1024, 8192)
HEAD_DIM = 64


@dataclass(frozen=True)
class Setting:
    """One line of the table: a layer's shape, the tokens in its cache, its number type and its threads."""

    d_model: int
    n_heads: int
    n_kv_heads: int
    context: int
    dtype: str
    threads: int


@dataclass(frozen=True)
class Line:
    """Microseconds of a step as a + b * context, by least squares."""

    d_model: int
    n_kv_heads: int
    dtype: str
    threads: int
    at_no_context: float
    per_token: float


class Textbook:
    """A step as it is often written: K and V are joined to the new ones, then repeated for every query head."""

    def __init__(self, layer: GroupedQueryAttention, keys: Tensor, values: Tensor) -> None:
        self.layer, self.keys, self.values = layer, keys, values

    def step(self, x: Tensor) -> Tensor:
        """The output for one token; the joined K and V are dropped, so that each turn is the same."""
        layer, cfg, n = self.layer, self.layer.cfg, self.keys.shape[2]
        q, k, v = (m(x).view(1, 1, -1, cfg.head_dim).transpose(1, 2) for m in (layer.W_Q, layer.W_K, layer.W_V))
        at = torch.tensor([n])
        q, k = rotate(q, at, 10_000.0), rotate(k, at, 10_000.0)
        keys, values = torch.cat((self.keys, k), 2), torch.cat((self.values, v), 2)
        keys, values = (t.repeat_interleave(cfg.heads_per_kv, 1) for t in (keys, values))
        return layer.W_O(scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2))


def contestants(setting: Setting) -> tuple[dict[str, Callable[[], object]], int]:
    """Everything that runs in one setting, by name, and the bytes that the step's products move."""
    dtype, n = DTYPES[setting.dtype], setting.context
    cfg = AttentionConfig(
        setting.d_model, setting.n_heads, setting.n_kv_heads, HEAD_DIM, rotary_base=10_000.0, mask=CAUSAL
    )
    layer = GroupedQueryAttention(cfg).to(dtype).requires_grad_(False)
    draw = torch.Generator().manual_seed(1)
    x = torch.randn(1, 1, setting.d_model, generator=draw).to(dtype)
    k, v = torch.randn(2, 1, setting.n_kv_heads, n, HEAD_DIM, generator=draw).to(dtype)
    cache, textbook = layer.new_cache(1, n + 1), Textbook(layer, k, v)
    cache.update(k, v)
    nbytes = work_of(layer.products(1, n + 1), dtype.itemsize).nbytes
    # A copy reads and writes: half of the bytes each.
    source = torch.ones(nbytes // 2, dtype=torch.uint8)
    target = torch.empty_like(source)

    def step() -> Tensor:
        cache.seen = n
        return layer.decode(x, cache)

    return {"step": step, "textbook": lambda: textbook.step(x), "copy": lambda: target.copy_(source)}, nbytes


def measure(setting: Setting, rounds: int) -> tuple[Seconds, int]:
    """Seconds per call of every contestant, round by round, and the bytes that a step moves."""
    torch.set_num_threads(setting.threads)
    runs, nbytes = contestants(setting)
    return interleaved(runs, rounds), nbytes


def report(setting: Setting, seconds: Seconds, nbytes: int) -> dict[str, object]:
    """One setting's figures as plain values for JSON."""
    return {
        "setting": asdict(setting),
        "microseconds": {name: asdict(spread([1e6 * s for s in values])) for name, values in seconds.items()},
        "tokens per second": 1 / statistics.median(seconds["step"]),
        "bytes moved": nbytes,
        "share of copy bandwidth": asdict(ratio(seconds, "copy", "step")),
        "step / textbook": asdict(ratio(seconds, "step", "textbook")),
    }


def table_line(setting: Setting, seconds: Seconds) -> str:
    """One setting as a line of a markdown table: ratios with their quartiles."""
    shape = f"{setting.d_model}, {setting.n_heads}, {setting.n_kv_heads}, {setting.context}"
    cells = [f"{setting.threads}, {setting.dtype}", shape, f"{1 / statistics.median(seconds['step']):,.0f}"]
    cells += [str(ratio(seconds, one, other)) for one, other in (("copy", "step"), ("step", "textbook"))]
    return f"| {' | '.join(cells)} |"


def fitted(points: Sequence[tuple[Setting, float]]) -> list[Line]:
    """For each width, g, number type and threads the line through its contexts."""
    found: dict[tuple[int, int, str, int], list[tuple[int, float]]] = {}
    for s, seconds in points:
        found.setdefault((s.d_model, s.n_kv_heads, s.dtype, s.threads), []).append((s.context, 1e6 * seconds))
    lines = []
    for about, pairs in found.items():
        if len(pairs) > 1:
            fit = statistics.linear_regression(*zip(*pairs, strict=True))
            lines.append(Line(*about, fit.intercept, fit.slope))
    return lines


def settings_of(chosen: argparse.Namespace) -> list[Setting]:
    """All combinations of what was chosen, with g = h, h/4 and 1."""
    return [
        Setting(d_model, d_model // HEAD_DIM, g, context, dtype, threads)
        for threads, dtype, d_model in product(chosen.threads, chosen.dtypes, chosen.widths)
        for g in (d_model // HEAD_DIM, d_model // HEAD_DIM // 4, 1)
        for context in chosen.contexts
    ]


def print_lines(lines: Sequence[Line]) -> None:
    """The fitted lines as a markdown table."""
    print("\n| threads, dtype | d, g | microseconds without context | more per 1,000 tokens |\n|---|---|---|---|")
    for line in lines:
        cells = [f"{line.threads}, {line.dtype}", f"{line.d_model}, {line.n_kv_heads}"]
        print(f"| {' | '.join(cells)} | {line.at_no_context:.0f} | {1000 * line.per_token:.1f} |")


def main() -> None:
    """Measure the chosen settings, print the table as it grows and the fitted lines, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, help="where the numbers go")
    parser.add_argument("--threads", type=int, nargs="+", default=[1])
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument("--widths", type=int, nargs="+", default=WIDTHS)
    parser.add_argument("--contexts", type=int, nargs="+", default=CONTEXTS)
    parser.add_argument("--rounds", type=int, default=15)
    chosen = parser.parse_args()
    names = ["threads, dtype", "d, h, g, context", "tokens/s", "share of copy bandwidth", "step / textbook"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    results, points = [], []
    for setting in settings_of(chosen):
        seconds, nbytes = measure(setting, chosen.rounds)
        print(table_line(setting, seconds), flush=True)
        results.append(report(setting, seconds, nbytes))
        points.append((setting, statistics.median(seconds["step"])))
    lines = fitted(points)
    print_lines(lines)
    if chosen.json is not None:
        found = {**machine(), "rounds": chosen.rounds, "results": results, "lines": [asdict(line) for line in lines]}
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
