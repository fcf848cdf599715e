"""How much a pass has to compute and to move: by formula, and counted while it runs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass(frozen=True)
class Work:
    """flops: multiplications and additions of all matrix products. nbytes: what they read and write.

    Softmax, norms, biases and rotary positions are left out: they are small beside the products.
    """

    flops: int = 0
    nbytes: int = 0

    def __add__(self, other: Work) -> Work:
        return Work(self.flops + other.flops, self.nbytes + other.nbytes)


@dataclass(frozen=True)
class Product:
    """``times`` matrix products of (rows, inner) by (inner, columns)."""

    times: int
    rows: int
    inner: int
    columns: int

    def work(self, bytes_per_number: int) -> Work:
        """2 rows inner columns operations; both factors are read once and the result is written once."""
        t, r, i, c = self.times, self.rows, self.inner, self.columns
        return Work(2 * t * r * i * c, t * (r * i + i * c + r * c) * bytes_per_number)


def work_of(products: Iterable[Product], bytes_per_number: int) -> Work:
    """The sum over some products."""
    return sum((product.work(bytes_per_number) for product in products), Work())


class Counted(TorchDispatchMode):
    """While this context is open, every matrix product of this thread is counted from the tensors it really gets.

    Works for passes made of plain products, as ``trace`` is: torch's fused kernel is one call, and is refused.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work = Work()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **({} if kwargs is None else kwargs))
        name = func.overloadpacket.__name__
        assert "scaled_dot_product" not in name, "the products inside of a fused kernel cannot be counted"
        if name in _FACTORS:
            left, right = (args[at] for at in _FACTORS[name])
            self.work += _measured(left, right, out)
        return out


# Where the two factors stand among the arguments of torch's products.
_FACTORS = {"mm": (0, 1), "bmm": (0, 1), "addmm": (1, 2), "baddbmm": (1, 2)}


def _measured(left: Tensor, right: Tensor, out: Tensor) -> Work:
    return Work(2 * out.numel() * left.shape[-1], left.nbytes + right.nbytes + out.nbytes)
