"""The text's plain loop over heads, written anew in float64: the independent answer that the core is held against.

Nothing here calls mha_core. Every head takes its own slice of every matrix, sharing of keys and values is a Python
loop that hands out heads one by one, rotary positions are complex numbers, and the softmax is a sum per row.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Weights:
    """The four matrices as the formulas have them (multiplied from the right), with their biases."""

    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray
    bias_q: np.ndarray
    bias_k: np.ndarray
    bias_v: np.ndarray
    bias_o: np.ndarray


def weights_of(layer) -> Weights:
    """Copies of a layer's parameters in float64; nn.Linear keeps the transpose of what the formulas write."""

    def matrix(name):
        return getattr(layer, name).weight.detach().double().numpy().T.copy()

    def bias(name):
        linear = getattr(layer, name)
        return np.zeros(linear.out_features) if linear.bias is None else linear.bias.detach().double().numpy().copy()

    names = ("W_Q", "W_K", "W_V", "W_O")
    return Weights(*(matrix(name) for name in names), *(bias(name) for name in names))


def shared_heads(h: int, g: int) -> list[int]:
    """For every query head the KV head it reads, dealt out one by one: the first h/g heads get KV head 0."""
    dealt: list[int] = []
    for kv_head in range(g):
        for _ in range(h // g):
            dealt.append(kv_head)  # noqa: PERF401 -- the plain loop is the point of an oracle
    return dealt


def pooled_heads(columns: np.ndarray, g: int, fewer: int, d_k: int) -> np.ndarray:
    """Columns (..., g d_k) of W_K, W_V or their bias with ``fewer`` heads: each the mean of those dealt to it."""
    sums = [np.zeros((*columns.shape[:-1], d_k)) for _ in range(fewer)]
    for head, shared in enumerate(shared_heads(g, fewer)):
        sums[shared] += columns[..., head * d_k : (head + 1) * d_k]
    return np.concatenate(sums, axis=-1) * fewer / g


def turned(vector: np.ndarray, position: int, base: float) -> np.ndarray:
    """One vector with rotary positions: number i and number i + d_k/2 are one complex number, and it is turned."""
    half = len(vector) // 2
    result = np.empty_like(vector)
    for i in range(half):
        number = complex(vector[i], vector[i + half]) * np.exp(1j * position * base ** (-2 * i / len(vector)))
        result[i], result[i + half] = number.real, number.imag
    return result


def softmax_row(scores: np.ndarray, visible: list[bool]) -> np.ndarray:
    """One row of the pattern: exponentials of the visible scores over their sum; nothing visible gives zeros."""
    row = np.zeros(len(scores))
    if any(visible):
        top = max(score for score, seen in zip(scores, visible, strict=True) if seen)
        for j, seen in enumerate(visible):
            row[j] = np.exp(scores[j] - top) if seen else 0.0
        row /= row.sum()
    return row


def attention(
    x: np.ndarray,
    weights: Weights,
    *,
    h: int,
    g: int,
    d_k: int,
    sees: Callable[[int, int], bool],
    rotary_base: float | None = None,
    gate: np.ndarray | None = None,
) -> dict[str, np.ndarray]:
    """Every step for one sentence x (n, d_model); ``sees(i, j)`` says whether token i may look at token j."""
    n = len(x)
    kv_head_of = shared_heads(h, g)

    def slice_of(matrix, bias, head):
        return x @ matrix[:, head * d_k : (head + 1) * d_k] + bias[head * d_k : (head + 1) * d_k]

    def rotated(head):
        return head if rotary_base is None else np.stack([turned(head[i], i, rotary_base) for i in range(n)])

    q = [slice_of(weights.W_Q, weights.bias_q, head) for head in range(h)]
    k = [slice_of(weights.W_K, weights.bias_k, head) for head in range(g)]
    v = [slice_of(weights.W_V, weights.bias_v, head) for head in range(g)]
    q_rot, k_rot = [rotated(head) for head in q], [rotated(head) for head in k]
    mask = [[sees(i, j) for j in range(n)] for i in range(n)]
    scores, pattern, z, writes = [], [], [], []
    out = np.zeros_like(x) + weights.bias_o
    for head in range(h):
        keys, values = k_rot[kv_head_of[head]], v[kv_head_of[head]]
        scores.append(np.array([[q_rot[head][i] @ keys[j] / np.sqrt(d_k) for j in range(n)] for i in range(n)]))
        pattern.append(np.stack([softmax_row(scores[head][i], mask[i]) for i in range(n)]))
        z.append(pattern[head] @ values)
        gated = z[head] if gate is None else z[head] * gate[head]
        writes.append(gated @ weights.W_O[head * d_k : (head + 1) * d_k])
        out = out + writes[head]
    concat = np.concatenate([z[head] * (1.0 if gate is None else gate[head]) for head in range(h)], axis=1)
    named = {"q": q, "k": k, "v": v, "q_rot": q_rot, "k_rot": k_rot, "scores": scores, "pattern": pattern, "z": z}
    steps = {name: np.stack(heads) for name, heads in named.items()}
    return steps | {"x": x, "mask": np.array(mask), "concat": concat, "out": out, "head_writes": np.stack(writes)}
