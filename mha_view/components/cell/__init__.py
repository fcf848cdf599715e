"""The arithmetic behind one cell of a pattern, with the digits of the trace."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from mha_core.analysis.heads import CellArithmetic
from mha_view.components import declare, packed

_cell = declare("cell")


def cell_panel(
    cell: CellArithmetic, *, row_label: str, key_label: str, kv_head: int, recipe: Mapping[str, Any], key: str
) -> None:
    """Write out q.k term by term, the scale, the softmax, and the value that the weight carries."""
    _cell(
        data={
            "title": f"One cell: “{row_label}” (query {cell.row}) · “{key_label}” (key {cell.key})",
            "rowLabel": row_label,
            "keyLabel": key_label,
            "kv": kv_head,
            "q": _packed(cell.q),
            "k": _packed(cell.k),
            "products": _packed(cell.products),
            "value": _packed(cell.value),
            "dot": cell.dot,
            "headDim": cell.head_dim,
            "score": cell.score,
            "topScore": cell.top_score,
            "total": cell.total,
            "weight": cell.weight,
            "visible": cell.visible,
            "nVisible": cell.n_visible,
            "recipe": dict(recipe),
            "file": f"headroom-cell-{cell.row}-{cell.key}",
        },
        key=key,
    )


def _packed(array: np.ndarray) -> str:
    return packed(array.astype(np.float32))
