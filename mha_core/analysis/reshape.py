"""Where the numbers of one projection lie in memory while it becomes heads: shapes, strides, addresses, as torch says.

A projection (b, n, heads d_k) is one run of numbers. view only counts them anew, transpose only swaps two strides,
contiguous() writes them out again: these are torch's own tensors, asked for their strides and for where they start.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from mha_core.trace import AttentionTrace

MATRICES = ("q", "k", "v")


@dataclass(frozen=True)
class Layout:
    """One way to read a projection's memory.

    made_by: the call that gives it. axes: a letter each; "heads" is h for Q and g for K and V. shape, strides: of the
    tensor, strides counted in numbers. copied: whether it lies in memory of its own.
    """

    made_by: str
    axes: tuple[str, ...]
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    copied: bool

    def address(self, *place: int) -> int:
        """Where the number at this place lies, counted in numbers from the first one."""
        return sum(index * stride for index, stride in zip(place, self.strides, strict=True))


@dataclass(frozen=True, eq=False)
class Reshape:
    """One projection of the first sentence on its way to heads.

    memory: its numbers as they lie, (n * heads * d_k). copied: as they lie after contiguous(). layouts: product, view,
    transpose, contiguous. wrong: the same memory cut by view(b, heads, n, d_k), with no transpose after it.
    """

    memory: np.ndarray
    copied: np.ndarray
    layouts: tuple[Layout, Layout, Layout, Layout]
    wrong: Layout

    @property
    def sizes(self) -> tuple[int, int, int]:
        """n, heads and d_k."""
        _, n, heads, d_k = self.layouts[1].shape
        return n, heads, d_k

    def owner(self, address: int) -> tuple[int, int, int]:
        """Whose number lies at an address of the product: token, head, and place inside the head."""
        _, heads, d_k = self.sizes
        return address // (heads * d_k), address // d_k % heads, address % d_k


def reshape_of(trace: AttentionTrace, name: str) -> Reshape:
    """The way of q, k or v, with the numbers of the trace, (1, n, heads d_k) lying on its own as x W gives it."""
    made: Tensor = getattr(trace, name)[:1].float()
    _, heads, n, d_k = made.shape
    product = made.transpose(1, 2).reshape(1, n, heads * d_k).contiguous()
    viewed = product.view(1, n, heads, d_k)
    turned = viewed.transpose(1, 2)
    copied = turned.contiguous()
    letters = "h" if name == "q" else "g"
    layouts = (
        _layout(product, f"X W_{name.upper()}", ("b", "n", f"{letters} d_k"), product),
        _layout(viewed, f".view(b, n, {letters}, d_k)", ("b", "n", letters, "d_k"), product),
        _layout(turned, ".transpose(1, 2)", ("b", letters, "n", "d_k"), product),
        _layout(copied, ".contiguous()", ("b", letters, "n", "d_k"), product),
    )
    wrong = product.view(1, heads, n, d_k)
    told = _layout(wrong, f".view(b, {letters}, n, d_k)", ("b", letters, "n", "d_k"), product)
    return Reshape(_flat(product), _flat(copied), layouts, told)


def _layout(tensor: Tensor, made_by: str, axes: tuple[str, ...], product: Tensor) -> Layout:
    copied = tensor.data_ptr() != product.data_ptr()
    return Layout(made_by, axes, tuple(tensor.shape), tuple(tensor.stride()), copied)


def _flat(tensor: Tensor) -> np.ndarray:
    """The numbers in the order in which they lie: a contiguous tensor has no other."""
    assert tensor.is_contiguous(), "only a tensor without gaps lies as it counts"
    return torch.ravel(tensor).numpy()
