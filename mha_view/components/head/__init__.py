"""One pattern, large: rows, cells, the sorted row beside it; or the difference of two patterns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mha_view.components import declare, packed
from mha_view.components.maps import legend_range

_head = declare("head")


def head_map(
    pattern: np.ndarray,
    visible: np.ndarray,
    *,
    labels: Sequence[str],
    kv_head: int,
    picked: tuple[int, int],
    scale: str,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
    bars: bool = True,
    offset: int = 0,
    unknown: Sequence[int] = (),
    on_pick: Callable[[], None] | None = None,
) -> None:
    """Draw one head: (n, n) weights, rows look at columns; a click reports ``picked`` = row and key.

    visible: (n, n), False where the mask hides a key. offset: added to what is reported, when first rows are left out.
    unknown: rows whose word the model does not know.
    """
    data = {
        "unknown": list(unknown),
        "kind": "weights",
        "legend": legend_range(scale),
        "bars": bars,
        **_common(pattern, visible, labels, kv_head, picked, scale, title, caption, recipe, file, offset),
    }
    _mount(data, key, on_pick)


def head_difference(
    first: np.ndarray,
    second: np.ndarray,
    visible: np.ndarray,
    *,
    labels: Sequence[str],
    kv_head: int,
    picked: tuple[int, int],
    names: tuple[str, str],
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
    offset: int = 0,
) -> None:
    """Draw ``first - second``: in the hue of the first head where it looks more, in grey where the second does."""
    difference = first - second
    data = {
        "kind": "difference",
        "unknown": [],
        "names": list(names),
        "range": max(float(np.abs(difference).max(initial=0.0)), 1e-6),
        "legend": ["", "", "difference of weights"],
        "bars": False,
        **_common(difference, visible, labels, kv_head, picked, "linear", title, caption, recipe, file, offset),
    }
    _mount(data, key, None)


def _common(
    weights: np.ndarray,
    visible: np.ndarray,
    labels: Sequence[str],
    kv_head: int,
    picked: tuple[int, int],
    scale: str,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    file: str,
    offset: int,
) -> dict[str, Any]:
    return {
        "weights": packed(weights.astype(np.float32)),
        "visible": packed(visible.astype(np.uint8)),
        "labels": list(labels),
        "kv": kv_head,
        "picked": list(picked),
        # The browser moves its own frame; it takes ours again when this changes.
        "stamp": f"{title}|{'|'.join(labels)}|{picked}",
        "scale": scale,
        "title": title,
        "caption": caption,
        "recipe": dict(recipe),
        "file": file,
        "offset": offset,
    }


def _mount(data: dict[str, Any], key: str, on_pick: Callable[[], None] | None) -> None:
    data["clickable"] = on_pick is not None
    _head(data=data, key=key, default={"picked": None}, on_picked_change=on_pick if on_pick else _nothing)


def _nothing() -> None:
    """A map that only shows has nobody to tell."""
