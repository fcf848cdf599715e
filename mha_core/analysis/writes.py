"""What each head adds to the output, its slice of concat times its slice of W_O; and what if one of them changes."""

from __future__ import annotations

import copy
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import torch

from mha_core.attention import GroupedQueryAttention
from mha_core.trace import AttentionTrace


@dataclass(frozen=True, eq=False)
class Writes:
    """What the heads write for one token, line by line; a line is one head, the last may be several together.

    lines: the heads of each line. writes: (lines, d_model), what each adds. running: their sum so far, line by line.
    out: (d_model,). norms: length of each write. cosines: its direction against out, -1 to 1; 0 where one of them is
    zero. shares: how much of out it makes along out's own direction; they sum to 1. deviation: largest |sum - out|.
    """

    lines: tuple[tuple[int, ...], ...]
    writes: np.ndarray
    running: np.ndarray
    out: np.ndarray
    norms: np.ndarray
    cosines: np.ndarray
    shares: np.ndarray
    deviation: float


@dataclass(frozen=True, eq=False)
class Changed:
    """The layer computed anew with a head switched off or two slices of W_O swapped.

    out: (d_model,) of the same token. moved: length of what changed there. cosine: new against old direction.
    pattern_change: largest difference of any weight of any head, measured on the new pass.
    """

    out: np.ndarray
    moved: float
    cosine: float
    pattern_change: float


def writes_of(trace: AttentionTrace, row: int, *, most: int, shown: Collection[int] = ()) -> Writes:
    """What each head writes for token ``row``: at most ``most`` lines, the ``shown`` heads and the longest writes."""
    every = trace.head_writes(slice(row, row + 1))[0, :, 0].float().numpy()
    out, lines = trace.array("out")[row], _lines(every, most, shown)
    writes = np.stack([every[list(heads)].sum(0) for heads in lines])
    running = np.cumsum(writes, axis=0, dtype=np.float32)
    length = float(out @ out)
    return Writes(
        lines=lines,
        writes=writes,
        running=running,
        out=out,
        norms=np.linalg.norm(writes, axis=1),
        cosines=np.array([cosine(write, out) for write in writes]),
        shares=writes @ out / length if length > 0 else np.zeros(len(writes), np.float32),
        deviation=float(np.abs(running[-1] - out).max()),
    )


def _lines(writes: np.ndarray, most: int, shown: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """One line a head where there is room; else the shown and the longest by themselves, and the rest together."""
    heads = range(len(writes))
    if len(writes) <= most:
        return tuple((head,) for head in heads)
    norms = np.linalg.norm(writes, axis=1)
    alone = sorted(heads, key=lambda head: (head not in shown, -norms[head]))[: most - 1]
    rest = tuple(head for head in heads if head not in alone)
    return (*((head,) for head in sorted(alone)), rest)


def changed_output(
    layer: GroupedQueryAttention, trace: AttentionTrace, row: int, *, off: int | None, swap: tuple[int, int] | None
) -> Changed:
    """Trace the layer again without head ``off``, or with two row slices of W_O swapped; ``layer`` stays as it is."""
    device = layer.W_O.weight.device
    gate = None if off is None else torch.ones(trace.cfg.n_heads, device=device)
    if gate is not None:
        gate[off] = 0.0
    other = layer if swap is None else _with_swapped_slices(layer, *swap)
    again = other.trace(trace.x.to(device), head_gate=gate)
    out, old = again.array("out")[row], trace.array("out")[row]
    return Changed(
        out=out,
        moved=float(np.linalg.norm(out - old)),
        cosine=cosine(out, old),
        pattern_change=float((again.pattern - trace.pattern).abs().max()),
    )


def cosine(a: np.ndarray, b: np.ndarray) -> float:
    """The direction of one vector against another, -1 to 1; 0 where one of them is zero."""
    lengths = float(np.linalg.norm(a)) * float(np.linalg.norm(b))
    return float(a @ b) / lengths if lengths > 0 else 0.0


def _with_swapped_slices(layer: GroupedQueryAttention, a: int, b: int) -> GroupedQueryAttention:
    """A layer that shares all weights but W_O, whose row slices of heads ``a`` and ``b`` have changed places."""
    other = copy.copy(layer)
    # A shallow copy of a module shares its dictionary of parts.
    other._modules = dict(layer._modules)
    other.W_O = copy.deepcopy(layer.W_O)
    order, d_k = torch.arange(layer.W_O.in_features), layer.cfg.head_dim
    order[a * d_k : (a + 1) * d_k], order[b * d_k : (b + 1) * d_k] = (
        torch.arange(b * d_k, (b + 1) * d_k),
        torch.arange(a * d_k, (a + 1) * d_k),
    )
    with torch.no_grad():
        other.W_O.weight.copy_(layer.W_O.weight[:, order.to(layer.W_O.weight.device)])
    return other
