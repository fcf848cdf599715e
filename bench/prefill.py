"""``forward`` over a whole prompt against every peer and the limit: ``python -m bench.prefill --json prefill.json``.

The limit is what nobody can leave out: the projections and the two batched products of q k^T and pattern V, unmasked,
without a softmax. (A fused causal kernel may come below it: it skips the half that the mask hides.)
"""

from __future__ import annotations

import argparse
import json
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from bench import peers
from bench.timing import Runs, Seconds, as_row, interleaved, machine, ratio
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.masks import CAUSAL

D_MODEL, N_HEADS = 512, 8
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
PLAIN = (("forward", "mha"), ("forward", "x-transformers"), ("forward", "limit"))
ROTARY = (("forward, rotary", "llama sdpa"), ("forward, rotary", "llama eager"))
EAGER_CELLS = 2**24


@dataclass(frozen=True)
class Setting:
    """One line of the table."""

    n_kv_heads: int
    n_tokens: int
    dtype: str


def contestants(setting: Setting) -> Runs:
    """Ours without and with rotary positions, and every peer that computes the same; each is checked first."""
    dtype, n = DTYPES[setting.dtype], setting.n_tokens
    x = torch.randn(1, n, D_MODEL, generator=torch.Generator().manual_seed(1)).to(dtype)
    plain, rotary = (_layer(setting, base).to(dtype).eval() for base in (None, 10_000.0))
    same: dict[str, Callable[[], Tensor]] = {"x-transformers": peers.x_transformers(plain, x)}
    same["mha"] = peers.torch_mha(plain, x, weights=False)
    turned = {"llama sdpa": peers.llama(rotary, x, "sdpa")}
    if N_HEADS * n * n <= EAGER_CELLS:
        turned["llama eager"] = peers.llama(rotary, x, "eager")
    with torch.inference_mode():
        for name, run in same.items():
            # nn.MultiheadAttention has no shared keys: with g < h its numbers are those of another layer.
            if name != "mha" or setting.n_kv_heads == N_HEADS:
                peers.check_same(name, run(), plain(x))
        for name, run in turned.items():
            peers.check_same(name, run(), rotary(x))
    ours = {"forward": lambda: plain(x), "forward, rotary": lambda: rotary(x), "limit": _limit(plain, x)}
    return {**ours, **same, **turned}


def _layer(setting: Setting, base: float | None) -> GroupedQueryAttention:
    return GroupedQueryAttention(AttentionConfig(D_MODEL, N_HEADS, setting.n_kv_heads, rotary_base=base, mask=CAUSAL))


def _limit(layer: GroupedQueryAttention, x: Tensor) -> Callable[[], Tensor]:
    b, n, _ = x.shape
    g, shared, d_k = layer.cfg.n_kv_heads, layer.cfg.heads_per_kv, layer.cfg.head_dim
    joined = torch.cat((layer.W_Q.weight, layer.W_K.weight, layer.W_V.weight)).detach()
    q, k = torch.randn(b * g, shared * n, d_k, dtype=x.dtype), torch.randn(b * g, d_k, n, dtype=x.dtype)
    v, z = torch.randn(b * g, n, d_k, dtype=x.dtype), torch.randn(b, n, layer.W_O.in_features, dtype=x.dtype)

    def run() -> Tensor:
        torch.nn.functional.linear(x, joined)
        torch.bmm(torch.bmm(q, k), v)
        return torch.nn.functional.linear(z, layer.W_O.weight)

    return run


def line(setting: Setting, seconds: Seconds) -> str:
    """One setting as a line of a markdown table: ratios with their quartiles, then our milliseconds."""
    cells = [setting.dtype, str(setting.n_kv_heads), f"{setting.n_tokens:,}"]
    cells += [str(ratio(seconds, *duel)) if duel[1] in seconds else "too large" for duel in (*PLAIN, *ROTARY)]
    cells.append(f"{1000 * statistics.median(seconds['forward']):.2f}")
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Measure every setting, print the table as it grows, and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--tokens", type=int, nargs="+", default=[32, 256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=11)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    names = ["dtype", "g", "n", *(f"{ours} / {peer}" for ours, peer in (*PLAIN, *ROTARY)), "forward ms"]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    rows = []
    for dtype in DTYPES:
        for n_kv_heads in (8, 2, 1):
            for n in chosen.tokens:
                setting = Setting(n_kv_heads, n, dtype)
                seconds = interleaved(contestants(setting), chosen.rounds)
                print(line(setting, seconds), flush=True)
                rows.append(as_row(setting, seconds, (*PLAIN, *ROTARY)))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps({**machine(), "rounds": chosen.rounds, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
