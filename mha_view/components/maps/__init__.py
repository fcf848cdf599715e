"""All heads of a model as small maps: the overview that a visitor starts from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mha_core.analysis.heads import HeadSummary
from mha_view.components import declare, packed
from mha_view.theme import LOG_FLOOR

MAX_SIDE = 44
HIDDEN, FULL = 255, 254

_maps = declare("maps")


def head_maps(
    patterns: Sequence[np.ndarray],
    visible: np.ndarray,
    *,
    summaries: Sequence[HeadSummary],
    labels: Sequence[str],
    shown_rows: int,
    row: int,
    picked: tuple[int, int],
    scale: str,
    title: str,
    caption: str,
    badges: Mapping[str, str],
    recipe: Mapping[str, Any],
    key: str,
    on_pick: Callable[[], None],
    first_layer: int = 0,
    file: str = "headroom-heads",
) -> None:
    """Draw every head of every layer at one fixed size; a click reports ``picked`` = layer and head.

    patterns: one (h, n, n) array per layer from ``first_layer`` on, rows look at columns. visible: (n, n), False where
    the mask hides a key.
    labels: what was typed, token by token. shown_rows: rows of a pattern, fewer where the first is left out.
    row: the token whose favourites the captions name.
    """
    levels = np.concatenate([map_levels(pattern, visible, scale) for pattern in patterns])
    heads, side = patterns[0].shape[0], levels.shape[-1]
    kv_heads = [summary.kv_head for summary in summaries[:heads]]
    per_kv = heads // (max(kv_heads) + 1)
    block = _block(shown_rows)
    pooled = f" Each dot is the largest weight of {block} x {block} cells." if block > 1 else ""
    _maps(
        data={
            "first": first_layer,
            "layers": len(patterns),
            "heads": heads,
            "kv": kv_heads,
            "side": side,
            "levels": packed(levels),
            "picked": list(picked),
            "masked": not bool(visible.all()),
            "rowLabel": labels[row],
            "title": title,
            "caption": caption + pooled,
            "badges": dict(badges),
            "legend": legend_range(scale),
            "sharing": f"one bar: {per_kv} query heads share K and V"
            if per_kv > 1
            else "each head has its own K and V",
            "table": _table(summaries, labels, row),
            "recipe": dict(recipe),
            "file": file,
        },
        key=key,
        default={"picked": None},
        on_picked_change=on_pick,
    )


def map_levels(pattern: np.ndarray, visible: np.ndarray, scale: str) -> np.ndarray:
    """How full each dot of the small maps is painted: (h, n, n) -> (h, m, m), 0 to 254, 255 for hidden; m <= 44."""
    full = fullness(pattern, scale)
    full = np.where(visible, np.clip(full, 0.0, 1.0) * np.float32(FULL), np.float32(-1.0))
    n = pattern.shape[-1]
    block = _block(n)
    m = -(-n // block)
    padded = np.full((pattern.shape[0], m * block, m * block), -1.0, np.float32)
    padded[:, :n, :n] = full
    # (h, m block, m block) -> (h, m, m): the largest of each block, along the rows first
    pooled = padded.reshape(-1, m, block, m * block).max(2).reshape(-1, m, m, block).max(3)
    return np.where(pooled < 0, HIDDEN, np.round(pooled)).astype(np.uint8)


def fullness(pattern: np.ndarray, scale: str) -> np.ndarray:
    """How full a cell is painted, 0 to 1, on a linear, logarithmic or per-row scale."""
    if scale == "log":
        return 1.0 - np.log(np.maximum(pattern, LOG_FLOOR)) / np.log(LOG_FLOOR)
    if scale == "row":
        most = pattern.max(-1, keepdims=True)
        return np.divide(pattern, most, out=np.zeros_like(pattern), where=most > 0)
    return pattern


def legend_range(scale: str) -> list[str]:
    """Lowest and highest value of the scale, and what it measures."""
    return {
        "linear": ["0", "1", "weight"],
        "log": [f"{LOG_FLOOR:g}", "1", "weight, logarithmic"],
        "row": ["0", "row maximum", "weight, each row by its own largest"],
    }[scale]


def _block(n: int) -> int:
    """How many tokens share one dot, so that a map is at most MAX_SIDE dots wide."""
    return max(1, -(-n // MAX_SIDE))


def _table(summaries: Sequence[HeadSummary], labels: Sequence[str], row: int) -> list[list[Any]]:
    head = ["layer", "head", "KV head", "mean entropy (bits)", f"{labels[row]} looks most at", "weight"]
    return [head, *([s.layer, s.head, s.kv_head, s.entropy, labels[s.top_key], s.top_weight] for s in summaries)]
