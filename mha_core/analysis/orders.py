"""One projection, cut into heads: the right order, two wrong ones that raise no error, and what tells them apart.

Written in numpy beside the core, so that it can be held against it: the loop over heads is the answer that needs no
reshape at all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch

from mha_core.attention import GroupedQueryAttention, rotate
from mha_core.config import AttentionConfig
from mha_core.trace import AttentionTrace

RIGHT, VIEW, TILE = "right", "view", "tile"


@dataclass(frozen=True, eq=False)
class Run:
    """One sentence through one layer: our core's trace, and the matrices as the formulas have them (x W)."""

    trace: AttentionTrace
    forward: np.ndarray
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray

    def step(self, name: str) -> np.ndarray:
        """A step of the trace in its own number type, without the batch axis."""
        return getattr(self.trace, name)[0].numpy()

    def heads(self, matrix: np.ndarray) -> list[np.ndarray]:
        """For each query head its columns (d_model, d_k) of W_Q, or its KV head's of W_K or W_V: neighbours share."""
        d_k = self.trace.cfg.head_dim
        blocks = [matrix[:, start : start + d_k] for start in range(0, matrix.shape[1], d_k)]
        return [block for block in blocks for _ in range(self.trace.cfg.n_heads // len(blocks))]


@dataclass(frozen=True)
class OrderCheck:
    """What one order gives on one run, held against the plain loop over heads.

    q_shape, out_shape: of its queries and its output. row_sums: how far the rows of its patterns are from 1. pattern,
    out: largest difference of a weight and of an output. harmless: at these sizes it takes the very same numbers.
    """

    name: str
    q_shape: tuple[int, ...]
    out_shape: tuple[int, ...]
    row_sums: float
    pattern: float
    out: float
    harmless: bool


@torch.no_grad()
def run_of(layer: GroupedQueryAttention, trace: AttentionTrace) -> Run:
    """The first sentence of a trace, with the layer that made it; the layer has no biases."""
    assert not trace.cfg.bias, "a bias would be missing in the products here"
    names = ("W_Q", "W_K", "W_V", "W_O")
    matrices = {name: getattr(layer, name).weight.detach().cpu().T.numpy() for name in names}
    forward = layer(trace.x[:1].to(layer.W_Q.weight.device))
    return Run(trace, forward[0].cpu().numpy(), **matrices)


def order_checks(one: Run) -> tuple[OrderCheck, ...]:
    """The right order, as our core has it, and both mistakes, each measured on this run."""
    cfg, loop = one.trace.cfg, looped(one)
    patterns = np.stack([pattern for pattern, _ in loop])
    out = product(np.hstack([z for _, z in loop]), one.W_O)
    parts, found = projected(one), []
    for name, split in SPLITS.items():
        q, k, v = (split(part, cfg) for part in parts)
        pattern, given = (one.step("pattern"), one.forward) if name == RIGHT else attended(one, q, k, v)
        row_sums, off, moved = _largest(pattern.sum(-1) - 1), _largest(pattern - patterns), _largest(given - out)
        harmless = not takes_other_numbers(name, cfg, len(out))
        found.append(OrderCheck(name, q.shape, given.shape, row_sums, off, moved, harmless))
    return tuple(found)


def takes_other_numbers(name: str, cfg: AttentionConfig, n: int) -> bool:
    """Whether an order puts any number of Q, K or V elsewhere than the right one: told by places, not by values."""

    def places(order: str, heads: int) -> np.ndarray:
        numbered = np.arange(n * heads * cfg.head_dim).reshape(n, -1)
        return SPLITS[order](numbered, cfg)

    return any(not np.array_equal(places(name, heads), places(RIGHT, heads)) for heads in (cfg.n_heads, cfg.n_kv_heads))


def kv_heads_read(name: str, cfg: AttentionConfig) -> tuple[int, ...]:
    """For each query head, the KV head that it reads when K and V are shared in this order."""
    named = np.repeat(np.arange(cfg.n_kv_heads), cfg.head_dim)[None]
    return tuple(int(head) for head in SPLITS[name](named, cfg)[:, 0, 0])


def looped(one: Run) -> list[tuple[np.ndarray, np.ndarray]]:
    """Pattern (n, n) and z (n, d_k) of each head, computed with its own three small matrices."""
    cfg, x, visible = one.trace.cfg, one.step("x"), one.step("mask")
    # Turned all at once, which mixes no heads and is quicker.
    queries, keys = (_turned(np.stack([product(x, W) for W in one.heads(M)]), cfg) for M in (one.W_Q, one.W_K))
    found = []
    for q, k, W_V in zip(queries, keys, one.heads(one.W_V), strict=True):
        pattern = softmax(product(q, k.T) / cfg.head_dim**0.5, visible)
        found.append((pattern, product(pattern, product(x, W_V))))
    return found


def projected(one: Run) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x times each of the three big matrices, not yet split: (n, h d_k), and twice (n, g d_k)."""
    x = one.step("x")
    return product(x, one.W_Q), product(x, one.W_K), product(x, one.W_V)


def split_rightly(x: np.ndarray, cfg: AttentionConfig) -> np.ndarray:
    """The right order, (h, n, d_k): view as (n, heads, d_k), then transpose; neighbours share a KV head."""
    heads = x.reshape(len(x), -1, cfg.head_dim).transpose(1, 0, 2)
    return heads.repeat(cfg.n_heads // len(heads), axis=0)


def split_by_view(x: np.ndarray, cfg: AttentionConfig) -> np.ndarray:
    """The first mistake, (h, n, d_k): the numbers are cut into heads in the order in which they lie in memory."""
    heads = x.reshape(-1, len(x), cfg.head_dim)
    return heads.repeat(cfg.n_heads // len(heads), axis=0)


def split_and_tiled(x: np.ndarray, cfg: AttentionConfig) -> np.ndarray:
    """The second mistake, (h, n, d_k): split rightly, but head i reads KV head i mod g."""
    heads = x.reshape(len(x), -1, cfg.head_dim).transpose(1, 0, 2)
    return np.tile(heads, (cfg.n_heads // len(heads), 1, 1))


SPLITS: dict[str, Callable[[np.ndarray, AttentionConfig], np.ndarray]] = {
    RIGHT: split_rightly,
    VIEW: split_by_view,
    TILE: split_and_tiled,
}


def attended(one: Run, q: np.ndarray, k: np.ndarray, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Patterns (h, n, n) and the output (n, d_model) of heads that are split already."""
    cfg = one.trace.cfg
    q, k = _turned(q, cfg), _turned(k, cfg)
    pattern = softmax(product(q, k.transpose(0, 2, 1)) / cfg.head_dim**0.5, one.step("mask"))
    # (h, n, d_k) -> (n, h d_k)
    concat = product(pattern, v).transpose(1, 0, 2).reshape(len(one.forward), -1)
    return pattern, product(concat, one.W_O)


def product(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """a times b. By torch, which keeps to the app's one thread: numpy's threads wait for each other on a busy core."""
    return (torch.from_numpy(a) @ torch.from_numpy(b)).numpy()


def softmax(scores: np.ndarray, visible: np.ndarray) -> np.ndarray:
    """Softmax of each row over its visible keys."""
    seen = np.where(visible, scores, -np.inf)
    weights = np.exp(seen - seen.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _turned(vectors: np.ndarray, cfg: AttentionConfig) -> np.ndarray:
    """Vectors (h, n, d_k) with the layer's rotary positions, where it has some."""
    if cfg.rotary_base is None:
        return vectors
    # (h, n, d_k) -> (1, h, n, d_k)
    wide = torch.from_numpy(np.ascontiguousarray(vectors))[None]
    return rotate(wide, torch.arange(vectors.shape[1]), cfg.rotary_base)[0].numpy()


def _largest(difference: np.ndarray) -> float:
    return float(np.abs(difference).max())
