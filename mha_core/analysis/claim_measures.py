"""The four claims of claims.py, each measured: our core against the same thing written anew in numpy, in float64.

The defaults are the sizes and seeds behind the stored figures.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from mha_core.analysis.claim_values import (
    Counted,
    Counterexample,
    Expanded,
    HeadSums,
    OneSoftmax,
    Parameters,
    Reshapes,
    Setting,
    Spread,
    runs,
)
from mha_core.analysis.orders import Run, attended, looped, projected, softmax, split_and_tiled, split_by_view
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, divisors, valid_choices
from mha_core.params import attention_parameters, held_parameters
from mha_core.trace import AttentionTrace

D_MODELS = (24, 60, 128, 512)
SEEDS = (0, 1, 2, 3, 4)
SEARCH_STEPS = 10_000
SETTINGS = (
    Setting(7, 10, 2, 2, 3, "full"),
    Setting(5, 18, 4, 2, 3, "causal"),
    Setting(9, 26, 6, 3, 8, "full"),
    Setting(13, 96, 8, 2, 12, "causal"),
)


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
