"""All heads of one layer as lines from the token that looks to the token that is looked at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mha_view.components import declare, packed

MAX_LINES = 6_000
THRESHOLDS = (0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5)

_lines = declare("lines")


def head_lines(
    patterns: np.ndarray,
    *,
    labels: Sequence[str],
    kv_heads: Sequence[int],
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
) -> None:
    """Draw a line per weight: patterns (h, n, n), rows look at columns.

    Weights under a threshold are left out, the lowest one that keeps the number of lines within the limit; the caption
    says which, and how many lines there are.
    """
    threshold = line_threshold(patterns)
    head, row, to = np.nonzero(patterns >= threshold)
    per_kv = len(kv_heads) // (max(kv_heads) + 1)
    drawn = f" {len(head):,} lines with a weight of at least {threshold:g} are drawn, {patterns.size:,} cells in all."
    _lines(
        data={
            "from": packed(row.astype(np.uint8)),
            "to": packed(to.astype(np.uint8)),
            "head": packed(head.astype(np.uint8)),
            "weight": packed(patterns[head, row, to].astype(np.float32)),
            "labels": list(labels),
            "kv": list(kv_heads),
            "dash": [i % per_kv for i in range(len(kv_heads))],
            "threshold": threshold,
            "title": title,
            "caption": caption + drawn,
            "recipe": dict(recipe),
            "file": file,
            "stamp": f"{title}|{len(labels)}",
        },
        key=key,
    )


def line_threshold(patterns: np.ndarray) -> float:
    """The lowest threshold that leaves at most MAX_LINES lines; at the highest, rows have at most two each."""
    return next((t for t in THRESHOLDS if int((patterns >= t).sum()) <= MAX_LINES), THRESHOLDS[-1])
