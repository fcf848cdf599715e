"""One attention layer as a flow of numbers: its stages, what every cell is computed from, and the sum behind a cell."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mha_core.attention import GroupedQueryAttention
from mha_core.trace import STEPS, AttentionTrace

WEIGHTS = ("W_Q", "W_K", "W_V", "W_O")


@dataclass(frozen=True)
class Source:
    """Where a cell (head, row, col) of one matrix looks when it is computed.

    head: "same", "kv" (the KV head that the query head reads), "all", or "part" (the head whose slice holds col).
    rows, cols: "row" or "col" of the cell, "all", "pair" (col and its rotary partner) or "part" (col inside its slice).
    W_Q, W_K, W_V are cut by columns and W_O by rows, one slice for each head.
    """

    matrix: str
    head: str
    rows: str
    cols: str


_ROW_OF_X = Source("x", "same", "row", "all")
# Stages before a step of the trace (dots), after the last one (after) and the projections' weights stand here too.
SOURCES: dict[str, tuple[Source, ...]] = {
    "x": (),
    "q": (_ROW_OF_X, Source("W_Q", "same", "all", "col")),
    "k": (_ROW_OF_X, Source("W_K", "same", "all", "col")),
    "v": (_ROW_OF_X, Source("W_V", "same", "all", "col")),
    "q_rot": (Source("q", "same", "row", "pair"),),
    "k_rot": (Source("k", "same", "row", "pair"),),
    "dots": (Source("q_rot", "same", "row", "all"), Source("k_rot", "kv", "col", "all")),
    "scores": (Source("dots", "same", "row", "col"),),
    "mask": (),
    "pattern": (Source("scores", "same", "row", "all"), Source("mask", "same", "row", "all")),
    "z": (Source("pattern", "same", "row", "all"), Source("v", "kv", "all", "col")),
    "concat": (Source("z", "part", "row", "part"),),
    "out": (Source("concat", "all", "row", "all"), Source("W_O", "all", "all", "col")),
    "after": (Source("before", "same", "row", "col"), Source("out", "same", "row", "col")),
}


@dataclass(frozen=True)
class Stage:
    """One stop on the way: its address, the matrices that are drawn left to right, and what it makes.

    columns: matrices that stand above each other share a column; Q, K, V are q, k, v before the cut, masked is scores
    with the mask laid over. steps: the steps of the trace whose formulas belong here. weights: those it shows.
    """

    name: str
    columns: tuple[tuple[str, ...], ...]
    steps: tuple[str, ...]
    weights: tuple[str, ...] = ()

    @property
    def makes(self) -> tuple[str, ...]:
        """What is new in this stage: its last column; cutting and turning make several."""
        return {"heads": ("q", "k", "v"), "rotary": ("q_rot", "k_rot")}.get(self.name, self.columns[-1])


STAGES = (
    Stage("X", (("x",),), ("x",)),
    Stage("W_Q W_K W_V", (("x",), ("W_Q", "W_K", "W_V"), ("Q", "K", "V")), ("q", "k", "v"), ("W_Q", "W_K", "W_V")),
    Stage("heads", (("Q", "K", "V"), ("q",), ("k",), ("v",)), ("q", "k", "v")),
    Stage("rotary", (("q",), ("k",), ("q_rot",), ("k_rot",)), ("q_rot", "k_rot")),
    Stage("scores", (("q_rot",), ("k_rot",), ("dots",)), ("scores",)),
    Stage("scale", (("dots",), ("scores",)), ("scores",)),
    Stage("mask", (("scores",), ("mask",), ("masked",)), ("mask",)),
    Stage("softmax", (("masked",), ("pattern",)), ("pattern",)),
    Stage("x V", (("pattern",), ("v",), ("z",)), ("z",)),
    Stage("concat", (("z",), ("concat",)), ("concat",)),
    Stage("W_O", (("concat",), ("W_O",), ("out",)), ("out",), ("W_O",)),
    Stage("+ residual", (("before",), ("out",), ("after",)), ()),
)


@dataclass(frozen=True, eq=False)
class LayerFlow:
    """One attention layer of the first sentence, as numpy arrays that are only read.

    before, after: the residual stream around the layer, (n, d_model); before + out = after. dots: q_rot k_rot^T before
    the scale, (h, n, n). angles: what rotary positions turn by, (n, d_k/2), None without them. W_Q (d_model, h d_k),
    W_K and W_V (d_model, g d_k), W_O (h d_k, d_model): as the formulas have them, multiplied from the right.
    """

    trace: AttentionTrace
    before: np.ndarray
    after: np.ndarray
    dots: np.ndarray
    angles: np.ndarray | None
    W_Q: np.ndarray
    W_K: np.ndarray
    W_V: np.ndarray
    W_O: np.ndarray

    def matrices(self, name: str) -> np.ndarray:
        """All of one name: (heads, rows, cols), with one head where there are none; weights cut into their slices."""
        if name in WEIGHTS:
            return self._slices(name)
        if name == "concat":
            return self.trace.array("concat").reshape(len(self.before), self._h, -1).transpose(1, 0, 2)
        array = getattr(self, name) if name in ("before", "after", "dots") else self.trace.array(name)
        return array if array.ndim == 3 else array[None]

    def _slices(self, name: str) -> np.ndarray:
        weight: np.ndarray = getattr(self, name)
        d_k = self.trace.cfg.head_dim
        if name == "W_O":
            # (h d_k, d_model) -> (h, d_k, d_model)
            return weight.reshape(-1, d_k, weight.shape[1])
        # (d_model, heads d_k) -> (heads, d_model, d_k)
        return weight.reshape(weight.shape[0], -1, d_k).transpose(1, 0, 2)

    @property
    def _h(self) -> int:
        return self.trace.cfg.n_heads


@dataclass(frozen=True, eq=False)
class CellSum:
    """The sum behind one cell: ``value`` is the sum over first * second, except for pattern (a softmax).

    For pattern, first holds the visible scores of the row and second their softmax.
    """

    first: np.ndarray
    second: np.ndarray
    value: float


def layer_flow(layer: GroupedQueryAttention, trace: AttentionTrace, before: np.ndarray) -> LayerFlow:
    """Everything that the stages of one layer show; ``layer`` made ``trace``, and has no biases."""
    assert not trace.cfg.bias, "a bias would be a source that the stages do not draw"
    cfg = trace.cfg
    q, k = trace.array("q_rot"), trace.array("k_rot")
    # (h, n, d_k) -> (g, h/g n, d_k): consecutive heads share
    folded = q.reshape(cfg.n_kv_heads, -1, cfg.head_dim)
    dots = (folded @ k.transpose(0, 2, 1)).reshape(cfg.n_heads, len(before), -1)
    weights = {name: getattr(layer, name).weight.detach().cpu().float().numpy().T for name in WEIGHTS}
    return LayerFlow(trace, before, before + trace.array("out"), dots, rotary_angles(trace), **weights)


def rotary_angles(trace: AttentionTrace) -> np.ndarray | None:
    """The angle of each pair of numbers at each position, (n, d_k/2); None without rotary positions."""
    base, half = trace.cfg.rotary_base, trace.cfg.head_dim // 2
    if base is None:
        return None
    frequencies = base ** (-np.arange(half, dtype=np.float64) / half)
    return np.arange(trace.x.shape[1])[:, None] * frequencies


def stages_of(flow: LayerFlow) -> tuple[Stage, ...]:
    """The stages of a layer: without rotary positions there is nothing to turn."""
    return tuple(stage for stage in STAGES if stage.name != "rotary" or flow.angles is not None)


def formula_of(stage: Stage) -> tuple[str, ...]:
    """The formulas of a stage, read off the trace's own table; the scale is a stage of its own."""
    by_name = {step.name: step.formula for step in STEPS}
    if stage.name == "+ residual":
        return ("stream before + out",)
    found = tuple(by_name[name] for name in stage.steps)
    return tuple(text.split(" / ")[0] for text in found) if stage.name == "scores" else found


def source_cells(flow: LayerFlow, name: str, head: int, row: int, col: int) -> list[tuple[str, int, slice, slice]]:
    """The table of sources for one cell, as (matrix, head, rows, cols); "pair" gives one entry for each partner."""
    cfg, found = flow.trace.cfg, []
    for source in SOURCES[name]:
        count = len(flow.matrices(source.matrix))
        heads = {
            "same": [min(head, count - 1)],
            "kv": [cfg.kv_head_of(head)],
            "all": list(range(count)),
            "part": [head],
        }
        columns = {"row": [row], "col": [col], "part": [col], "all": [None], "pair": [col, _partner(col, cfg.head_dim)]}
        for at in heads[source.head]:
            rows = {"row": slice(row, row + 1), "col": slice(col, col + 1), "all": slice(None)}[source.rows]
            for column in columns[source.cols]:
                cols = slice(None) if column is None else slice(column, column + 1)
                found.append((source.matrix, at, rows, cols))
    return found


def cell_sum(flow: LayerFlow, name: str, head: int, row: int, col: int) -> CellSum:
    """The numbers behind one cell of a matrix that is computed; head counts KV heads for k, v and k_rot."""
    value = float(flow.matrices(name)[head, row, col])
    if name in ("q_rot", "k_rot"):
        return CellSum(*_turned(flow, name[0], head, row, col), value)
    if name == "pattern":
        seen = flow.trace.array("mask")[row]
        return CellSum(flow.matrices("scores")[head, row][seen], flow.matrices(name)[head, row][seen], value)
    if name == "scores":
        return CellSum(flow.dots[head, row, col : col + 1], np.array([flow.trace.cfg.scale], np.float32), value)
    if name == "after":
        return CellSum(np.array([flow.before[row, col], flow.matrices("out")[0, row, col]]), np.ones(2), value)
    first, second = _factors(flow, name, head, row, col)
    return CellSum(first, second, value)


def _factors(flow: LayerFlow, name: str, head: int, row: int, col: int) -> tuple[np.ndarray, np.ndarray]:
    """The two vectors whose product is one cell of a matrix product."""
    if name in ("q", "k", "v"):
        return flow.matrices("x")[0, row], flow.matrices(f"W_{name.upper()}")[head][:, col]
    if name == "dots":
        return flow.matrices("q_rot")[head, row], flow.matrices("k_rot")[flow.trace.cfg.kv_head_of(head), col]
    if name == "z":
        return flow.matrices("pattern")[head, row], flow.matrices("v")[flow.trace.cfg.kv_head_of(head)][:, col]
    assert name == "out", name
    return flow.trace.array("concat")[row], flow.W_O[:, col]


def _turned(flow: LayerFlow, name: str, head: int, row: int, col: int) -> tuple[np.ndarray, np.ndarray]:
    assert flow.angles is not None, "only rotary positions turn"
    d_k = flow.trace.cfg.head_dim
    angle, vector = float(flow.angles[row, col % (d_k // 2)]), flow.matrices(name)[head, row]
    sign = -1.0 if col < d_k // 2 else 1.0
    return vector[[col, _partner(col, d_k)]], np.array([np.cos(angle), sign * np.sin(angle)])


def _partner(col: int, d_k: int) -> int:
    return (col + d_k // 2) % d_k
