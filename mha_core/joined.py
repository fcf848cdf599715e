"""W_Q, W_K and W_V as one matrix: they lie side by side in memory, so one product does the work of three.

At twelve tokens a product costs more in calls than in sums. Each stays an ``nn.Linear`` of its own, with its own name.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

# Measured on a CPU: in float32 one product of 512 x 1,536 with 12 tokens takes 1.7 times as long as three of 512 x 512.
WIDEST_IN_FLOAT32 = 256


@dataclass(frozen=True, eq=False)
class Part:
    """One of the matrices as it was when they were joined, and its rows of the block."""

    name: str
    matrix: nn.Linear
    weight: Tensor
    bias: Tensor | None
    rows: Tensor

    def stands(self, layer: nn.Module) -> bool:
        """Whether the layer still multiplies with these rows: nobody has replaced the matrix, its weight or bias."""
        # nn.Module finds an attribute by a slow road, a microsecond each; these are the shelves where it keeps them.
        now = self.matrix._parameters
        same = layer._modules[self.name] is self.matrix and now.get("weight") is self.weight
        return same and now.get("bias", "elsewhere") is self.bias and self.weight.is_set_to(self.rows)


@dataclass(frozen=True, eq=False)
class Joined:
    """Matrices that share one block of memory; the numbers are nowhere else, so they cannot go stale.

    widths: the numbers per token that each gives, first to last.
    """

    block: Tensor
    parts: tuple[Part, ...]
    widths: tuple[int, ...]

    def stands(self, layer: nn.Module) -> bool:
        """Whether every part is still what the layer uses."""
        first, *others = self.parts
        return first.stands(layer) and all(part.stands(layer) for part in others)

    def product(self, x: Tensor) -> Tensor:
        """x times all the matrices, their results one after the other along the last axis."""
        biases = [part.bias for part in self.parts if part.bias is not None]
        return functional.linear(x, self.block, torch.cat(biases) if biases else None)


def join(matrices: Mapping[str, nn.Linear]) -> Joined | None:
    """Lay a layer's matrices, by their names in it, side by side in memory.

    None, and nothing moves, where one product would gain nothing or they are of different kinds.
    """
    kinds = {(m.weight.dtype, m.weight.device, m.weight.shape[1], m.bias is None) for m in matrices.values()}
    dtype, device, width, _ = kinds.pop()
    wide = width > WIDEST_IN_FLOAT32 and dtype.itemsize >= torch.float32.itemsize
    if kinds or wide or device.type == "meta":
        return None
    block = torch.cat([matrix.weight.detach() for matrix in matrices.values()])
    widths = tuple(len(matrix.weight) for matrix in matrices.values())
    parts = []
    for (name, matrix), rows in zip(matrices.items(), block.split_with_sizes(widths), strict=True):
        matrix.weight.data = rows
        parts.append(Part(name, matrix, matrix.weight, matrix.bias, rows))
    return Joined(block, tuple(parts), widths)
