"""What a head looks at: its summary, and the arithmetic behind one cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mha_core.trace import AttentionTrace, ModelTrace


@dataclass(frozen=True)
class HeadSummary:
    """One head on one sentence, in numbers.

    entropy: mean over the rows, in bits; 0 when every row looks at one token, log2 of the visible keys when even.
    top_key, top_weight: what the chosen row looks at most.
    """

    layer: int
    head: int
    kv_head: int
    entropy: float
    top_key: int
    top_weight: float


@dataclass(frozen=True)
class CellArithmetic:
    """How one cell of a pattern came to be, with the numbers of the trace.

    q, k: the query of the row and the key, after rotary positions. products: q_i k_i; they sum to ``dot``.
    score: dot / sqrt(d_k). total: sum of exp(score) over the visible keys, with the largest score taken off first.
    weight: the cell itself. value: v of the key; the head adds weight * value to the row's z.
    """

    row: int
    key: int
    visible: bool
    n_visible: int
    q: np.ndarray
    k: np.ndarray
    products: np.ndarray
    dot: float
    head_dim: int
    score: float
    top_score: float
    total: float
    weight: float
    value: np.ndarray


def entropy_bits(pattern: np.ndarray) -> np.ndarray:
    """Entropy of every row of a pattern, in bits: (..., n, n) -> (..., n). Zero weights add nothing."""
    # The smallest float in place of 0: times a weight of 0 its logarithm is 0, as it should be.
    return -(pattern * np.log2(np.maximum(pattern, np.finfo(pattern.dtype).tiny))).sum(-1)


def head_summaries(trace: ModelTrace, row: int) -> list[HeadSummary]:
    """One summary per head, layer by layer, with what ``row`` looks at most."""
    return [summary for layer in range(len(trace.layers)) for summary in layer_summaries(trace, layer, row)]


def layer_summaries(trace: ModelTrace, layer: int, row: int) -> list[HeadSummary]:
    """One summary per head of a layer, with what ``row`` looks at most."""
    attention = trace.layers[layer]
    pattern = attention.array("pattern")
    entropy = entropy_bits(pattern).mean(-1)
    top = pattern[:, row].argmax(-1)
    found = []
    for head in range(attention.cfg.n_heads):
        kv_head = attention.cfg.kv_head_of(head)
        weight = float(pattern[head, row, top[head]])
        found.append(HeadSummary(layer, head, kv_head, float(entropy[head]), int(top[head]), weight))
    return found


def cell_arithmetic(trace: AttentionTrace, head: int, row: int, key: int) -> CellArithmetic:
    """The steps from q and k to one weight, read off the trace of the first sentence."""
    kv_head = trace.cfg.kv_head_of(head)
    q, k = trace.array("q_rot")[head, row], trace.array("k_rot")[kv_head, key]
    scores, visible = trace.array("scores")[head, row], trace.array("mask")[row]
    seen = scores[visible]
    top = float(seen.max()) if seen.size else 0.0
    return CellArithmetic(
        row=row,
        key=key,
        visible=bool(visible[key]),
        n_visible=int(visible.sum()),
        q=q,
        k=k,
        products=q * k,
        dot=float((q * k).sum()),
        head_dim=trace.cfg.head_dim,
        score=float(scores[key]),
        top_score=top,
        total=float(np.exp(seen - top).sum()),
        weight=float(trace.array("pattern")[head, row, key]),
        value=trace.array("v")[kv_head, key],
    )


def without_first_token(pattern: np.ndarray, *, renormalise: bool) -> np.ndarray:
    """A pattern without its first row and column: (..., n, n) -> (..., n-1, n-1).

    With ``renormalise`` the weights left in a row are scaled to sum to 1; a row that put everything on the first
    token has nothing left and stays zeros.
    """
    kept = pattern[..., 1:, 1:]
    if not renormalise:
        return kept
    sums = kept.sum(-1, keepdims=True)
    return np.divide(kept, sums, out=np.zeros_like(kept), where=sums > 1e-9)
