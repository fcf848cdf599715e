"""What hypothesis draws for the core: layers over the whole domain of the knobs, with inputs, padding and gates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from mha_core.attention import GroupedQueryAttention
from mha_core.config import KNOB_D_MODEL, AttentionConfig
from mha_core.masks import CAUSAL, FULL, Mask, SlidingWindow

TOLERANCE = {torch.float64: 1e-10, torch.float32: 3e-5, torch.bfloat16: 3e-2, torch.float16: 4e-3}


@dataclass(frozen=True)
class Case:
    """A layer's shape and one pass through it; ``padded`` and ``gated`` say whether keep and head_gate are given."""

    cfg: AttentionConfig
    b: int
    n: int
    seed: int
    padded: bool = False
    gated: bool = False

    def layer(self, dtype: torch.dtype = torch.float64) -> GroupedQueryAttention:
        return GroupedQueryAttention(self.cfg).to(dtype)

    def x(self, dtype: torch.dtype = torch.float64) -> Tensor:
        return numbers(self.b, self.n, self.cfg.d_model, seed=self.seed).to(dtype)

    @property
    def keep(self) -> Tensor | None:
        """Any tokens may be padding, all of a sentence too: the core promises an answer for each."""
        return numbers(self.b, self.n, seed=self.seed + 1) > -0.5 if self.padded else None

    def gate(self, dtype: torch.dtype = torch.float64) -> Tensor | None:
        if not self.gated:
            return None
        gate = numbers(self.cfg.n_heads, seed=self.seed + 2).to(dtype)
        return torch.where(gate < -0.7, torch.zeros_like(gate), gate)

    def arguments(self, dtype: torch.dtype = torch.float64) -> dict[str, Tensor | None]:
        return {"keep": self.keep, "head_gate": self.gate(dtype)}


def numbers(*shape: int, seed: int) -> Tensor:
    """Normal numbers in float64 from a generator of their own."""
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def sees(mask: Mask, keep: np.ndarray | None = None) -> Callable[[int, int], bool]:
    """The mask in words instead of tensors: may token i look at token j?"""

    def rule(i: int, j: int) -> bool:
        if keep is not None and not keep[j]:
            return False
        if isinstance(mask, SlidingWindow):
            return j <= i and i - j < mask.width
        return mask == FULL or j <= i

    return rule


def dividing(number: int, limit: int) -> list[int]:
    return [i for i in range(1, limit + 1) if number % i == 0]


masks = st.sampled_from([FULL, CAUSAL]) | st.integers(1, 9).map(SlidingWindow)


@st.composite
def configs(draw: st.DrawFn, *, max_d_model: int = 1024, rotary: bool | None = None) -> AttentionConfig:
    """Any position of the knobs, or a head width of one's own; with and without bias and rotary positions."""
    d_model = draw(st.sampled_from([width for width in KNOB_D_MODEL if width <= max_d_model]))
    turns = draw(st.booleans()) if rotary is None else rotary
    base = draw(st.sampled_from([10.0, 10_000.0])) if turns else None
    if draw(st.booleans()):
        n_heads, head_dim = draw(st.sampled_from([2, 3, 4, 5, 6, 8, 12])), draw(st.integers(1, 9))
        head_dim = 2 * head_dim if turns else head_dim
    else:
        n_heads = draw(st.sampled_from([h for h in dividing(d_model, 64) if not turns or d_model // h % 2 == 0]))
        head_dim = d_model // n_heads
    n_kv_heads = draw(st.sampled_from(dividing(n_heads, n_heads)))
    bias, mask, seed = draw(st.booleans()), draw(masks), draw(st.integers(0, 2**32 - 1))
    return AttentionConfig(d_model, n_heads, n_kv_heads, head_dim, bias, base, mask, seed)


@st.composite
def cases(draw: st.DrawFn, *, max_d_model: int = 1024, rotary: bool | None = None, mask: Mask | None = None) -> Case:
    """A layer with an input: few sentences, and token counts that no other size is likely to share."""
    cfg = draw(configs(max_d_model=max_d_model, rotary=rotary))
    cfg = cfg if mask is None else replace(cfg, mask=mask)
    b, n, seed = draw(st.sampled_from([1, 2, 3])), draw(st.sampled_from([1, 7, 11, 13])), draw(st.integers(0, 2**31))
    return Case(cfg, b, n, seed, draw(st.booleans()), draw(st.booleans()))


# Every axis has a size of its own: b 5, n 7, h 6, g 3, d_k 4, d_model 10, h d_k 24, h/g 2.
DISTINCT = Case(AttentionConfig(10, 6, 3, 4, rotary_base=100.0, mask=CAUSAL, seed=3), b=5, n=7, seed=17)


@st.composite
def splits(draw: st.DrawFn, n: int) -> list[tuple[int, int]]:
    """A text of ``n`` tokens in pieces, as (start, stop): any cuts, or a prompt and then one token at a time."""
    if draw(st.booleans()):
        inner = draw(st.sets(st.integers(1, n - 1))) if n > 1 else set()
    else:
        inner = set(range(draw(st.integers(1, n)), n))
    cuts = sorted({0, n} | inner)
    return list(pairwise(cuts))
