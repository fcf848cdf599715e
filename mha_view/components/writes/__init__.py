"""Concat and W_O, head by head: what each head adds to the output of one token, and what changes without it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mha_core.analysis.flow import LayerFlow
from mha_core.analysis.writes import Changed, Writes
from mha_view.components import declare, packed
from mha_view.components.feed import feed
from mha_view.components.flow import colour_range, thumbnail
from mha_view.theme import small

MOST_LINES, BAR_DIMENSIONS = 12, 8
STRIP_COLS, SUM_COLS, SLICE_CELLS = 256, 64, 96
# As the self-check strip allows.
SUM_TOLERANCE = 1e-4

_writes = declare("writes", matrix=True)


def writes_view(data: Mapping[str, Any], *, token: str, on_change: Callable[[], None]) -> None:
    """Draw what ``packed_writes`` made of one token; a press reports ``change`` = off, swap, with (-1: none)."""
    feed("writes", "data", {**data, "token": token})
    _writes(data={}, key="writes", default={"change": None}, on_change_change=on_change)


def packed_writes(
    flow: LayerFlow, writes: Writes, row: int, *, changed: Changed | None, off: int, swap: tuple[int, int], token: str
) -> dict[str, Any]:
    """The heads' writes for token ``row`` and their sum, as the browser draws them.

    changed: the layer computed anew with head ``off`` switched off, or the slices of W_O of ``swap`` swapped.
    """
    cfg, dims = flow.trace.cfg, bar_dimensions(writes)
    totals = np.stack((writes.running[-1], writes.out))
    return {
        "lines": [_line(flow, writes, i, row) for i in range(len(writes.lines))],
        "dims": dims,
        "bars": {
            "writes": writes.writes[:, dims],
            "running": writes.running[:, dims],
            "out": writes.out[dims],
            "changed": None if changed is None else changed.out[dims],
        },
        "out": packed_strip(writes.out),
        "changed": None if changed is None else packed_strip(changed.out),
        "dModel": cfg.d_model,
        "dk": cfg.head_dim,
        "perKv": cfg.heads_per_kv,
        "heads": cfg.n_heads,
        "ranges": {"writes": colour_range(writes.writes), "out": colour_range(totals)},
        "zRange": colour_range(flow.trace.array("concat")),
        "sum": {"deviation": small(writes.deviation), "ok": writes.deviation <= SUM_TOLERANCE},
        "length": float(np.linalg.norm(writes.out)),
        "off": off,
        "swap": list(swap),
        "told": "" if changed is None else change_words(changed, writes, token, off, swap),
    }


def bar_dimensions(writes: Writes) -> list[int]:
    """The dimensions whose sum is drawn as bars: all of a narrow model, else those where the output is largest."""
    largest = np.argsort(-np.abs(writes.out), kind="stable")[:BAR_DIMENSIONS]
    return sorted(int(i) for i in largest)


def change_words(changed: Changed, writes: Writes, token: str, off: int, swap: tuple[int, int]) -> str:
    """One sentence with the measured change of the output, and of the patterns."""
    done = [] if off < 0 else [f"without head {off}"]
    done += [] if min(swap) < 0 else [f"with the slices of heads {swap[0]} and {swap[1]} swapped"]
    length = float(np.linalg.norm(writes.out))
    return (
        f"Computed anew {' and '.join(done)}: the output of “{token}” moves by {changed.moved:.3f} (its length was "
        f"{length:.3f}), cosine with before {changed.cosine:.3f}. The maps stay: largest change of any weight "
        f"{small(changed.pattern_change)}."
    )


def _line(flow: LayerFlow, writes: Writes, i: int, row: int) -> dict[str, Any]:
    heads = writes.lines[i]
    alone = len(heads) == 1
    piece = flow.matrices("concat")[heads[0], row]
    return {
        "heads": list(heads),
        "z": piece.copy() if alone else None,
        "slice": _slice(flow, heads[0]) if alone else None,
        "write": packed_strip(writes.writes[i]),
        "running": packed_strip(writes.running[i], SUM_COLS),
        "figures": np.array([writes.norms[i], writes.cosines[i], writes.shares[i]]),
    }


def _slice(flow: LayerFlow, head: int) -> dict[str, Any]:
    """The rows of W_O of one head as a thumbnail: its colours, -127 to 127; the numbers stand in the stage W_O."""
    small_one = thumbnail(flow.matrices("W_O")[head][None], SLICE_CELLS)[0]
    most = max(float(np.abs(small_one).max()), 1e-9)
    return {"rows": len(small_one), "levels": packed(np.round(small_one / most * 127).astype(np.int8))}


def packed_strip(vector: np.ndarray, cols: int = STRIP_COLS) -> np.ndarray:
    """One vector as the browser draws it, at most ``cols`` dots of the number largest in size."""
    return vector.copy() if len(vector) <= cols else thumbnail(vector[None, None], cols)[0, 0]
