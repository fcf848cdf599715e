"""The running cache: keys and values of the tokens read so far, so that a new token costs one row and not all rows.

Every cache has room for its tokens from the start and keeps the g KV heads as they are: no copy for each query head.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from copy import deepcopy
from typing import Self

import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn.functional import pad

from mha_core.config import ConfigError, Problem, or_list, whole_number_problem
from mha_core.masks import Mask

MAX_ROOM = 1_000_000
BITS = (4, 8)
# Each row of a quantised cache has one such factor: for 32 numbers of 4 bits it is a fifth of what is kept.
SCALE = torch.float32

Shape = tuple[int, ...]


class Rows:
    """Room for vectors, one row per token; the tokens run along the last axis but one."""

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device | None = None) -> None:
        self.dtype = dtype
        self._room = torch.zeros(shape, dtype=dtype, device=device)

    def write(self, start: int, new: Tensor) -> None:
        """Put rows at ``start`` and behind; what stood there is gone."""
        self._room.narrow(-2, start, new.shape[-2]).copy_(new)

    def read(self, n: int) -> Tensor:
        """The first ``n`` rows: a view, no copy."""
        return self._room.narrow(-2, 0, n)

    def as_kept(self, new: Tensor) -> Tensor:
        """Rows as they would come back after ``write``."""
        return new.to(self.dtype)

    def tensors(self) -> tuple[Tensor, ...]:
        """All memory that is held."""
        return (self._room,)


class QuantisedRows(Rows):
    """Rows as whole numbers of 8 or 4 bits, each row of each head with a scale of its own.

    number = code * scale, with scale = largest size in the row / (2^(bits-1) - 1), so it is off by half a scale at
    most. Codes of 4 bits lie two in a byte: the first half of a row in the low bits, the second half in the high ones.
    ``read`` gives new tensors in ``dtype``: a product with whole numbers is not to be had from torch on a CPU.
    """

    def __init__(self, shape: Shape, dtype: torch.dtype, device: torch.device | None = None, *, bits: int) -> None:
        self.dtype, self.bits, self._width = dtype, bits, shape[-1]
        packed = (shape[-1] * bits + 7) // 8
        self._codes = torch.zeros((*shape[:-1], packed), dtype=torch.uint8, device=device)
        self._scales = torch.zeros((*shape[:-1], 1), dtype=SCALE, device=device)

    def write(self, start: int, new: Tensor) -> None:
        """Round rows and put them at ``start`` and behind."""
        codes, scales = self._rounded(new)
        self._codes.narrow(-2, start, new.shape[-2]).copy_(codes)
        self._scales.narrow(-2, start, new.shape[-2]).copy_(scales)

    def read(self, n: int) -> Tensor:
        """The first ``n`` rows, computed from their codes."""
        return self._restored(self._codes.narrow(-2, 0, n), self._scales.narrow(-2, 0, n))

    def as_kept(self, new: Tensor) -> Tensor:
        """Rows after rounding."""
        return self._restored(*self._rounded(new))

    def tensors(self) -> tuple[Tensor, ...]:
        """Codes and scales."""
        return self._codes, self._scales

    @property
    def _largest(self) -> int:
        return 2 ** (self.bits - 1) - 1

    def _rounded(self, new: Float[Tensor, "*rows d"]) -> tuple[UInt8[Tensor, "*rows bytes"], Float[Tensor, "*rows 1"]]:
        wide = new.to(SCALE)
        scales = wide.abs().amax(-1, keepdim=True) / self._largest
        # A row of zeros has the scale 0, and 0 / 0 would be no number.
        codes = (wide / scales.clamp_min(torch.finfo(SCALE).tiny)).round().clamp(-self._largest, self._largest)
        # Codes are kept as unsigned numbers: -127..127 as 1..255, -7..7 as 1..15.
        codes = (codes + (self._largest + 1)).to(torch.uint8)
        if self.bits == 8:
            return codes, scales
        low, high = pad(codes, (0, self._width % 2)).chunk(2, -1)
        return low | (high << 4), scales

    def _restored(self, codes: Tensor, scales: Tensor) -> Tensor:
        if self.bits == 4:
            codes = torch.cat((codes & 15, codes >> 4), -1)[..., : self._width]
        return ((codes.to(SCALE) - (self._largest + 1)) * scales).to(self.dtype)


class RunningCache(ABC):
    """What every cache can do: take the new tokens' rows, and hand back all rows that a new query may need.

    shapes: one for each kind of row that is kept, such as keys (b, g, n_max, d_k) and values (b, g, n_max, d_k), or
    one latent (b, n_max, rank). bits: 8 or 4 to keep them quantised. Raises ConfigError for a size or a number of
    bits that cannot be.
    """

    def __init__(
        self,
        shapes: Sequence[Shape],
        *,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
        bits: int | None = None,
    ) -> None:
        room = shapes[0][-2]
        problem = whole_number_problem("n_max", "n_max", room, 1, MAX_ROOM)
        if bits is not None and bits not in BITS:
            problem = Problem("bits", f"A cache can be kept in {or_list(BITS)} bits, not {bits!r}.")
        if problem is not None:
            raise ConfigError([problem])
        self.room = room
        self.seen = 0
        self._rows = [
            Rows(shape, dtype, device) if bits is None else QuantisedRows(shape, dtype, device, bits=bits)
            for shape in shapes
        ]

    @property
    def size(self) -> int:
        """Tokens that are held."""
        return min(self.seen, self.room)

    @property
    def nbytes(self) -> int:
        """Bytes of memory, measured on the tensors; all of it is taken from the start."""
        return sum(tensor.nbytes for rows in self._rows for tensor in rows.tensors())

    @property
    def nbytes_used(self) -> int:
        """Bytes of the rows that hold a token."""
        return self.nbytes // self.room * self.size

    def held(self) -> tuple[Tensor, ...]:
        """All rows that are held, as they lie in memory; quantised ones as they are read back."""
        return tuple(rows.read(self.size) for rows in self._rows)

    def held_positions(self) -> Int[Tensor, "size"]:
        """The position in the text of each row that ``held`` gives."""
        slots = torch.arange(self.size)
        # Each row holds the last token that was written there; while there is room that is the first one.
        return slots + (self.seen - 1 - slots) // self.room * self.room

    def reset(self) -> None:
        """Forget all tokens; the memory stays."""
        self.seen = 0

    def copy(self) -> Self:
        """A cache with the same tokens and memory of its own."""
        return deepcopy(self)

    @abstractmethod
    def update(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Take the rows of the next tokens; give back all rows that are held, the new ones included.

        One tensor for each of the cache's shapes, with the new tokens along the last axis but one. What comes back
        is a view of the memory where that is possible: the next ``update`` writes into it. ``positions`` says where
        each row stands in the text.
        """

    @abstractmethod
    def positions(self, n: int) -> Int[Tensor, "n"]:
        """The position in the text of each of the ``n`` rows that the last ``update`` gave back."""

    @abstractmethod
    def newest(self, m: int) -> int:
        """Where the ``m`` new rows begin among the rows that the last ``update`` gave back."""

    def visible(
        self, mask: Mask, m: int, n: int, keep: Bool[Tensor, "b n_seen"] | None = None
    ) -> Bool[Tensor, "b_or_1 m n"]:
        """Which of the ``n`` rows that came back each of the ``m`` newest tokens may see.

        keep: for all tokens so far, in the order of the text; False marks padding.
        """
        keys = self.positions(n)
        visible = mask.visible(torch.arange(self.seen - m, self.seen), keys)[None]
        return visible if keep is None else visible.to(keep.device) & keep[:, None, keys.to(keep.device)]


class FullCache(RunningCache):
    """Keeps every token, in order. Raises ConfigError when there is no room for one more."""

    def update(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Write behind the last token; gives back views of all rows up to here."""
        start, self.seen = self.seen, self.seen + new[0].shape[-2]
        if self.seen > self.room:
            self.seen = start
            raise ConfigError([_no_room(self.room, start + new[0].shape[-2])])
        for rows, fresh in zip(self._rows, new, strict=True):
            rows.write(start, fresh)
        return tuple(rows.read(self.seen) for rows in self._rows)

    def positions(self, n: int) -> Int[Tensor, "n"]:
        """0, 1, 2 ..."""
        return torch.arange(n)

    def newest(self, m: int) -> int:
        """At the end."""
        return self.seen - m


class RingCache(RunningCache):
    """Keeps the last ``room`` tokens, each new one in the place of the oldest: all that a sliding window can see.

    With one new token, rows come back as they lie in the ring, and their order is no matter to a softmax; with
    several, in the order of the text, for then the first of them still sees tokens that the last one pushes out.
    """

    _in_order = True
    _n_given = 0

    def update(self, *new: Tensor) -> tuple[Tensor, ...]:
        """Write over the oldest tokens; gives back views for one new token, and new tensors for several."""
        n_new = new[0].shape[-2]
        self._in_order, self._n_given = n_new > 1, self.size + n_new
        if self._in_order:
            return self._update_many(new, n_new)
        for rows, fresh in zip(self._rows, new, strict=True):
            rows.write(self.seen % self.room, fresh)
        self.seen += 1
        return tuple(rows.read(self.size) for rows in self._rows)

    def _update_many(self, new: Sequence[Tensor], n_new: int) -> tuple[Tensor, ...]:
        # Rows of the ring from the oldest on; while the ring is not full the oldest is row 0.
        oldest = self.seen % self.room if self.seen > self.room else 0
        given = []
        for rows, fresh in zip(self._rows, new, strict=True):
            held = rows.read(self.size).roll(-oldest, -2)
            given.append(torch.cat((held, rows.as_kept(fresh)), -2))
            last = fresh.narrow(-2, max(0, n_new - self.room), min(n_new, self.room))
            start = (self.seen + n_new - last.shape[-2]) % self.room
            before_the_end = min(last.shape[-2], self.room - start)
            rows.write(start, last.narrow(-2, 0, before_the_end))
            rows.write(0, last.narrow(-2, before_the_end, last.shape[-2] - before_the_end))
        self.seen += n_new
        return tuple(given)

    def positions(self, n: int) -> Int[Tensor, "n"]:
        """As they lie in the ring after one new token, in the order of the text after several."""
        return torch.arange(self.seen - n, self.seen) if self._in_order else self.held_positions()

    def newest(self, m: int) -> int:
        """In the place of the oldest, or behind all others after several."""
        return self._n_given - m if self._in_order else (self.seen - 1) % self.room


def cache_nbytes(shapes: Sequence[Shape], *, bytes_per_number: int = 4, bits: int | None = None) -> int:
    """Bytes that a cache of these shapes will take, before it is made: for keys and values 2 b g n_max d_k numbers.

    A quantised row of d numbers is ceil(d bits / 8) bytes and a scale of 4.
    """
    total = 0
    for *rows, width in shapes:
        n_rows = 1
        for size in rows:
            n_rows *= size
        total += n_rows * (width * bytes_per_number if bits is None else -(-width * bits // 8) + SCALE.itemsize)
    return total


def _no_room(room: int, wanted: int) -> Problem:
    return Problem("n_max", f"The cache has room for {room:,} tokens, and {wanted:,} are too many; make room for more.")
