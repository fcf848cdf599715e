"""The memory of one projection, step by step from a row to heads, and where a wrong order takes its numbers from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_core.analysis.reshape import Layout, Reshape
from mha_core.config import AttentionConfig
from mha_view.components import declare, packed
from mha_view.components.feed import feed

# So many tokens, heads and columns of a head are drawn as cells with all their digits, around the chosen ones.
SHOWN = 4

_memory = declare("memory", matrix=True)


@dataclass(frozen=True)
class Fold:
    """One step of the way: what it is called and what a student should see."""

    title: str
    text: str


FOLDS = (
    Fold(
        "One product for all heads",
        "The product has one row for each token, as wide as all heads together. In memory the rows lie one after the "
        "other. The small number in a cell is its address: how many numbers lie before it.",
    ),
    Fold(
        "view cuts every row into heads",
        "Each token is now a small matrix with a row for each head. Every address is what it was: nothing has moved. "
        "view only writes down another shape, and how far to walk in memory along each axis: the strides.",
    ),
    Fold(
        "transpose puts the heads first",
        "Each head is now a matrix with a row for each token, which is what one batched product takes. The cells are "
        "drawn elsewhere and keep their addresses: two strides changed places, and nothing moved in memory.",
    ),
    Fold(
        "contiguous() writes them out anew",
        "A copy, in the order in which the heads are read: the addresses now count through one head after the other, "
        "and one token's numbers lie apart. Joining the heads needs such a copy, the way back.",
    ),
)
NOTHING_COPIED = (
    "With one head or one token the numbers lie in this order already, so contiguous() copies nothing and every "
    "address stays."
)


@dataclass(frozen=True)
class Place:
    """Where a visitor stands: the step, the token, the query head, and the first column that is drawn."""

    fold: int
    row: int
    head: int
    first: int


def memory_view(
    reshape: Reshape,
    cfg: AttentionConfig,
    *,
    labels: Sequence[str],
    at: Place,
    reads: Mapping[str, Sequence[int]],
    matrix: str,
    echo: int,
    recipe: Mapping[str, Any],
    on_move: Callable[[], None],
) -> None:
    """Draw a window of cells around ``at``; steps stay in the browser, which reports ``at`` when it comes to rest.

    reads: for the right order and for tile, the KV head that each query head reads. echo: how many places the browser
    had reported when it reported the last one.
    """
    place = {"fold": at.fold, "row": at.row, "head": at.head, "from": at.first}
    shared = {"perKv": cfg.heads_per_kv, "queryHeads": cfg.n_heads, "matrix": matrix, "reads": _plain(reads)}
    window = packed_window(reshape, at, kv=matrix != "q", cfg=cfg)
    sent = {**window, **shared, "labels": list(labels), "at": place, "echo": echo, "recipe": dict(recipe)}
    feed("memory", "window", sent)
    _memory(data=words(), key="memory", default={"at": None}, on_at_change=on_move)


def words() -> dict[str, Any]:
    """What is the same for all sizes and sentences."""
    return {"folds": [[fold.title, fold.text] for fold in FOLDS], "nothingCopied": NOTHING_COPIED}


def packed_window(reshape: Reshape, at: Place, *, kv: bool, cfg: AttentionConfig) -> dict[str, Any]:
    """The cells around a place, as the browser draws them: values and layouts, right and wrong.

    kv: the heads are KV heads, so the one that the chosen query head reads is shown.
    """
    n, heads, d_k = reshape.sizes
    head = cfg.kv_head_of(at.head) if kv else at.head
    spans = [_span(at.row, n), _span(head, heads), _span(at.first, d_k, before=0)]
    tokens, shown_heads, columns = (range(start, start + count) for start, count in spans)
    right = [reshape.layouts[1].address(0, t, i, j) for t in tokens for i in shown_heads for j in columns]
    wrong = [reshape.wrong.address(0, i, t, j) for t in tokens for i in shown_heads for j in columns]
    # A window of a few cells has no few large numbers that pale the others, so full colour is its largest.
    most = float(np.abs(reshape.memory[[*right, *wrong]]).max())
    return {
        "sizes": [n, heads, d_k],
        "spans": [list(span) for span in spans],
        "values": packed(reshape.memory[right].astype(np.float32)),
        "wrongValues": packed(reshape.memory[wrong].astype(np.float32)),
        "owners": [list(reshape.owner(address)) for address in wrong],
        "layouts": [_layout(layout) for layout in reshape.layouts],
        "wrong": _layout(reshape.wrong),
        "most": max(most, 1e-6),
    }


def _plain(reads: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    return {name: list(heads) for name, heads in reads.items()}


def _span(at: int, size: int, before: int = 1) -> tuple[int, int]:
    """The first of the shown ones, and how many: ``at`` is among them."""
    count = min(size, SHOWN)
    return min(max(at - before, 0), size - count), count


def _layout(layout: Layout) -> dict[str, Any]:
    return {
        "madeBy": layout.made_by,
        "axes": list(layout.axes),
        "shape": list(layout.shape),
        "strides": list(layout.strides),
        "copied": layout.copied,
    }
