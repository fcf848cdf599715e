"""One attention layer, stage by stage: every matrix with its real numbers, and what each cell is computed from."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from mha_core.analysis.flow import SOURCES, WEIGHTS, LayerFlow, Stage, cell_sum, formula_of, stages_of
from mha_view.components import declare
from mha_view.components.feed import feed
from mha_view.components.maps import legend_range
from mha_view.stages import STAGE_WORDS
from mha_view.theme import bytes_text

# Numbers of one matrix (of all heads, or of the chosen head) up to these many bytes are sent as they are; what is
# larger goes as a thumbnail, and a window of exact numbers when it is asked for.
ALL_BYTES, ONE_BYTES, WEIGHT_BYTES = 40 * 2**10, 72 * 2**10, 256 * 2**10
THUMBNAIL_CELLS = 4096
WINDOW_ROWS, WINDOW_COLS = 9, 13
COLOUR_SHARE, FEW_CELLS = 0.98, 300
# concat is z laid side by side, so it is drawn from z and not sent again.
SENT = ("x", "q", "k", "v", "q_rot", "k_rot", "dots", "scores", "pattern", "z", "out", "before", "after")
ALIASES = {"Q": "q", "K": "k", "V": "v", "concat": "z", "masked": "scores"}
NAMES = {
    "x": "X",
    "q": "Q per head",
    "k": "K per KV head",
    "v": "V per KV head",
    "q_rot": "Q turned",
    "k_rot": "K turned",
    "dots": "Q K^T",
    "masked": "scores, masked",
    "before": "stream before",
    "after": "stream after",
}

_flow = declare("flow", matrix=True)


@dataclass(frozen=True)
class Place:
    """Where a visitor stands: the stage, the head, the token and the column."""

    step: int
    head: int
    row: int
    col: int


def flow_view(
    flow: LayerFlow,
    *,
    labels: Sequence[str],
    at: Place,
    key: str,
    numbers: Mapping[str, Any],
    weights: tuple[str, Mapping[str, Any] | None],
    zoom: Mapping[str, Any],
    echo: int,
    scale: str,
    recipe: Mapping[str, Any],
    on_move: Callable[[], None],
) -> None:
    """Draw the stages of one layer; steps and pointing stay in the browser, which reports ``at`` when it comes to rest.

    numbers: of ``packed_numbers``; key names them. weights: their name, and ``packed_weights`` where the browser lacks
    them; it reports the name of those it holds as ``have``. zoom: a cell of a matrix that was too large to send (name,
    head, row, col), or nothing. echo: how many places it had reported when it reported the last one.
    """
    stages = stages_of(flow)
    feed("flow", "numbers", {"key": key, **numbers, **outline(flow, stages, labels)})
    if weights[1] is not None:
        feed("flow", "weights", {"key": weights[0], "blobs": weights[1]})
    place = {
        "key": key,
        "at": asdict(at),
        "echo": echo,
        "weightsKey": weights[0],
        "sentWeights": weights[1] is None,
        "oneHead": not whole(flow),
        "scale": scale,
        "patternLegend": legend_range(scale),
        "recipe": dict(recipe),
    }
    feed("flow", "place", {**place, **_asked(flow, zoom)})
    _flow(data=words(stages), key="flow", default={"at": None}, on_at_change=on_move)


def words(stages: Sequence[Stage]) -> dict[str, Any]:
    """What is the same for all sizes and sentences: the stages in words and the table of sources."""
    return {
        "stages": [_stage(stage) for stage in stages],
        "names": {name: NAMES.get(name, name) for name in _drawn(stages)},
        "sources": {name: [[s.matrix, s.head, s.rows, s.cols] for s in found] for name, found in SOURCES.items()},
    }


def outline(flow: LayerFlow, stages: Sequence[Stage], labels: Sequence[str]) -> dict[str, Any]:
    """Sizes, shapes and axes, the tokens, the mask, and the angles of rotary positions."""
    cfg, n = flow.trace.cfg, len(labels)
    angles = np.zeros(0) if flow.angles is None else flow.angles
    last = {"step": len(stages), "head": cfg.n_heads, "row": n, "col": max(cfg.d_model, n)}
    return {
        "labels": list(labels),
        "heads": cfg.n_heads,
        "perKv": cfg.heads_per_kv,
        "dk": cfg.head_dim,
        "limits": last,
        "matrices": {name: _matrix(flow, name) for name in (*SENT, "mask", *WEIGHTS)},
        "widths": {name: _width(flow, name) for name in _drawn(stages)},
        "shapes": [_shapes(flow, stage) for stage in stages],
        "mask": (flow.trace.array("mask").astype(np.uint8) + ord("0")).tobytes().decode("ascii"),
        "angles": angles,
    }


def packed_numbers(flow: LayerFlow, head: int) -> dict[str, Any]:
    """The matrices of the pass, each whole, or whole for the chosen head beside a thumbnail, or a thumbnail."""
    blobs = {name: _blob(flow, name, head, ALL_BYTES) for name in SENT}
    return {"blobs": blobs, "sentText": _sent_words(flow, blobs)}


def packed_weights(flow: LayerFlow) -> dict[str, Any]:
    """The four projections, whole as raw float32 or as thumbnails."""
    return {name: _blob(flow, name, 0, WEIGHT_BYTES) for name in WEIGHTS}


def whole(flow: LayerFlow) -> bool:
    """Whether every matrix of the pass is sent for all heads, so that another head needs no message."""
    return all(flow.matrices(name).nbytes <= ALL_BYTES for name in SENT if len(flow.matrices(name)) > 1)


def thumbnail(array: np.ndarray, cells: int = THUMBNAIL_CELLS) -> np.ndarray:
    """The number largest in size of each block: (heads, rows, cols) -> (heads, R, C), about ``cells`` in all."""
    heads, rows, cols = array.shape
    side = max(1.0, (rows * cols * heads / cells) ** 0.5)
    # A short side is kept whole and the other one pays for it.
    tall = min(rows, max(1, round(side))) if rows > side else 1
    wide = max(1, -(-(rows * cols * heads) // (cells * tall)))
    tall, wide = -(-rows // -(-rows // tall)), -(-cols // max(1, -(-cols // wide)))
    padded = np.zeros((heads, -(-rows // tall) * tall, -(-cols // wide) * wide), array.dtype)
    padded[:, :rows, :cols] = array
    # (heads, R tall, C wide) -> (heads, R, C): along the rows first, where the numbers lie side by side
    blocks = padded.reshape(heads, -1, tall, padded.shape[2])
    high, low = blocks.max(2), blocks.min(2)
    high, low = (side.reshape(heads, blocks.shape[1], -1, wide) for side in (high, low))
    high, low = high.max(3), low.min(3)
    return np.where(high >= -low, high, low)


def colour_range(array: np.ndarray) -> dict[str, float]:
    """The largest number in size, and where full colour begins: a few large numbers must not pale all others."""
    sizes = np.abs(array).ravel()
    most = max(float(sizes.max(initial=0.0)), 1e-6)
    rank = int(COLOUR_SHARE * (sizes.size - 1))
    usual = float(np.partition(sizes, rank)[rank]) if sizes.size > FEW_CELLS else most
    return {"most": most, "full": usual if usual > most / 100 else most}


def _blob(flow: LayerFlow, name: str, head: int, limit: int) -> dict[str, Any]:
    array = flow.matrices(name).astype(np.float32, copy=False)
    blob: dict[str, Any] = colour_range(array)
    if array.nbytes <= (max(limit, ONE_BYTES) if len(array) == 1 else limit):
        return {**blob, "all": array}
    small = thumbnail(array)
    blob |= {"pool": small, "R": small.shape[1], "C": small.shape[2]}
    at = flow.trace.cfg.kv_head_of(head) if name in ("k", "v", "k_rot") else min(head, len(array) - 1)
    if name not in WEIGHTS and array[0].nbytes <= ONE_BYTES:
        blob |= {"one": array[at].copy(), "head": at}
    return blob


def _sent_words(flow: LayerFlow, blobs: Mapping[str, Any]) -> str:
    """How much was sent instead of how much, in words."""
    sent = sum(part.nbytes for blob in blobs.values() for part in blob.values() if isinstance(part, np.ndarray))
    whole_bytes = sum(flow.matrices(name).size * 4 for name in SENT)
    return f"{bytes_text(sent)} were sent instead of {bytes_text(whole_bytes)}."


def _asked(flow: LayerFlow, zoom: Mapping[str, Any]) -> dict[str, Any]:
    """The window of exact numbers around one cell, and the sum behind it, where the browser cannot have them."""
    name = zoom.get("name")
    if name not in (*SENT, *WEIGHTS):
        return {"zoom": None, "cell": None}
    array = flow.matrices(name)
    place = [zoom.get(axis) for axis in ("head", "row", "col")]
    if not all(isinstance(i, int) and 0 <= i < size for i, size in zip(place, array.shape, strict=True)):
        return {"zoom": None, "cell": None}
    head, row, col = (int(i) for i in place if i is not None)
    top, left = max(0, row - WINDOW_ROWS // 2), max(0, col - WINDOW_COLS // 2)
    window = array[head, top : top + WINDOW_ROWS, left : left + WINDOW_COLS]
    values = {
        "row": top,
        "col": left,
        "rows": window.shape[0],
        "cols": window.shape[1],
        "values": window.ravel().tolist(),
    }
    found: dict[str, Any] = {"zoom": {"name": name, "head": head, **values}, "cell": None}
    if name in ("q", "k", "v", "dots", "z", "out"):
        behind = cell_sum(flow, name, head, row, col)
        terms = np.stack((behind.first, behind.second), axis=1).tolist()
        found["cell"] = {"name": name, "head": head, "row": row, "col": col, "terms": terms}
    return found


def _stage(stage: Stage) -> dict[str, Any]:
    told = STAGE_WORDS[stage.name]
    return {
        "name": stage.name.replace("x V", "× V"),
        "title": told.title,
        "text": told.text,
        "notice": told.notice,
        "signs": list(told.signs),
        "formulas": list(formula_of(stage)),
        "columns": [list(names) for names in stage.columns],
        "makes": list(stage.makes),
        "weights": list(stage.weights),
    }


def _shapes(flow: LayerFlow, stage: Stage) -> str:
    found = [f"{NAMES.get(name, name)} {_shape(flow, name)}" for names in stage.columns for name in names]
    return " · ".join(dict.fromkeys(found))


def _axes(name: str) -> tuple[str, str, str]:
    """The axes of a matrix with its heads: letter of the heads ("" for none), of the rows and of the columns."""
    name = ALIASES.get(name, name)
    if name in ("k", "v", "k_rot"):
        return "g", "n", "d_k"
    if name in ("q", "q_rot", "z"):
        return "h", "n", "d_k"
    if name in ("dots", "scores", "pattern"):
        return "h", "n", "n"
    if name == "mask":
        return "", "n", "n"
    if name in WEIGHTS:
        return {"W_Q": ("h", "d_model", "d_k"), "W_O": ("h", "d_k", "d_model")}.get(name, ("g", "d_model", "d_k"))
    return "", "n", "d_model"


def _matrix(flow: LayerFlow, name: str) -> dict[str, Any]:
    heads, rows, cols = flow.matrices(name).shape
    letter, *axes = _axes(name)
    kind = {"h": "query", "g": "kv", "": "none"}[letter]
    return {"heads": heads, "rows": rows, "cols": cols, "axes": axes, "kind": kind}


def _shape(flow: LayerFlow, name: str) -> str:
    """Letters and sizes: "(h, n, d_k) = (8, 12, 16)"; of the wide matrices as the formulas have them."""
    cfg = flow.trace.cfg
    sizes = {"h": cfg.n_heads, "g": cfg.n_kv_heads, "n": len(flow.before), "d_k": cfg.head_dim, "d_model": cfg.d_model}
    letter, rows, cols = _axes(name)
    if name in ("Q", "K", "V", "concat", "W_Q", "W_K", "W_V"):
        return f"({rows}, {letter} d_k) = ({sizes[rows]}, {sizes[letter] * cfg.head_dim})"
    if name == "W_O":
        return f"(h d_k, d_model) = ({cfg.n_heads * cfg.head_dim}, {cfg.d_model})"
    letters = [part for part in (letter, rows, cols) if part]
    return f"({', '.join(letters)}) = ({', '.join(str(sizes[part]) for part in letters)})"


def _width(flow: LayerFlow, name: str) -> str:
    """What the axis over a matrix says."""
    cfg = flow.trace.cfg
    letter, _, cols = _axes(name)
    if name in ("Q", "K", "V", "concat", "W_Q", "W_K", "W_V"):
        return f"{letter} d_k = {flow.matrices(ALIASES.get(name, name)).shape[0]} x {cfg.head_dim}"
    return f"{cols} = {flow.matrices(ALIASES.get(name, name)).shape[2]}"


def _drawn(stages: Sequence[Stage]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for stage in stages for names in stage.columns for name in names))
