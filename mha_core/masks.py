"""Who may look at whom: one frozen class per mask."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from jaxtyping import Bool, Int
    from torch import Tensor


@dataclass(frozen=True)
class Mask(ABC):
    """A rule that says which key positions a query position may see."""

    name: ClassVar[str]
    sentence: ClassVar[str]

    @abstractmethod
    def visible(
        self, query_positions: Int[Tensor, "n_q"], key_positions: Int[Tensor, "n_k"]
    ) -> Bool[Tensor, "n_q n_k"]:
        """True where the query (row) may see the key (column)."""


@dataclass(frozen=True)
class Full(Mask):
    """Every token sees every token."""

    name: ClassVar[str] = "full"
    sentence: ClassVar[str] = "every token sees every token"

    def visible(
        self, query_positions: Int[Tensor, "n_q"], key_positions: Int[Tensor, "n_k"]
    ) -> Bool[Tensor, "n_q n_k"]:
        """True everywhere."""
        return query_positions.new_ones(query_positions.numel(), key_positions.numel()).bool()


@dataclass(frozen=True)
class Causal(Mask):
    """A token sees itself and what came before."""

    name: ClassVar[str] = "causal"
    sentence: ClassVar[str] = "a token sees itself and what came before"

    def visible(
        self, query_positions: Int[Tensor, "n_q"], key_positions: Int[Tensor, "n_k"]
    ) -> Bool[Tensor, "n_q n_k"]:
        """True where the key is not later than the query."""
        return key_positions[None, :] <= query_positions[:, None]


@dataclass(frozen=True)
class SlidingWindow(Mask):
    """A token sees itself and the ``width - 1`` tokens before it (Beltagy et al. 2020; Mistral's sliding_window)."""

    width: int

    name: ClassVar[str] = "window"
    sentence: ClassVar[str] = "a token sees itself and the nearest tokens before it"

    def visible(
        self, query_positions: Int[Tensor, "n_q"], key_positions: Int[Tensor, "n_k"]
    ) -> Bool[Tensor, "n_q n_k"]:
        """True where the key is not later than the query and less than ``width`` positions earlier."""
        distance = query_positions[:, None] - key_positions[None, :]
        return (distance >= 0) & (distance < self.width)


FULL = Full()
CAUSAL = Causal()
MASKS: dict[str, type[Mask]] = {mask.name: mask for mask in (Causal, Full, SlidingWindow)}
