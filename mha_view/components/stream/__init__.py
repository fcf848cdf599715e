"""The residual stream of one token: parts write into it one after the other, and a lens reads it after each layer."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from mha_core.analysis.residual import Part, Residual, Stage
from mha_view.components import declare
from mha_view.components.feed import feed
from mha_view.components.flow import colour_range
from mha_view.components.writes import STRIP_COLS, packed_strip
from mha_view.theme import small

TOP_WORDS = 3
# Floats of all strips together: with many heads each of them is drawn from fewer, larger dots.
STRIP_BUDGET, FEWEST_COLS = 20_000, 32

_stream = declare("stream", matrix=True)


def stream_view(
    data: Mapping[str, Any],
    *,
    picked: str,
    echo: int,
    recipe: Mapping[str, Any],
    on_move: Callable[[], None],
) -> None:
    """Draw what ``packed_stream`` made; a press reports ``at`` = the link of a part, and "open" = a page or nothing.

    picked: the part that is explained. echo: how many places the browser had reported when it reported the last one.
    """
    feed("stream", "data", data)
    feed("stream", "place", {"picked": picked, "echo": echo, "recipe": dict(recipe)})
    _stream(data={}, key="stream", default={"at": None}, on_at_change=on_move)


def packed_stream(
    found: Residual, *, token: str, words: Sequence[str], followed: Sequence[int], per_kv: int
) -> dict[str, Any]:
    """One token's way through the model as the browser draws it.

    words: the vocabulary. followed: the words whose rank is told after every stage, the predicted one first.
    """
    parts, cols = [*found.parts, *wholes(found)], strip_cols(found)
    heads = [part.write for part in parts if part.kind == "head"]
    others = [part.write for part in parts if part.kind != "head"]
    return {
        "token": token,
        "dModel": len(found.stages[0].stream),
        "perKv": per_kv,
        "followed": [words[i] for i in followed],
        "stages": [_stage(stage, words, followed, cols) for stage in found.stages],
        "ranges": {
            "stream": colour_range(np.stack([stage.stream for stage in found.stages])),
            "heads": colour_range(np.stack(heads)),
            "others": colour_range(np.stack(others)),
        },
        "sum": _check(found.deviation, found.tolerance),
        "lens": _check(found.lens_deviation, found.logit_tolerance),
    }


def wholes(found: Residual) -> list[Part]:
    """What a stage wrote in all, where it has several parts."""
    return [stage.whole for stage in found.stages if stage.whole.kind == "attention"]


def link_of(part: Part) -> str:
    """How a part is called in a link: "embedding", "L1H3", "L1-attention", "L1-MLP"."""
    return part.name.replace(" ", "-")


def strip_cols(found: Residual) -> int:
    """How many dots each vector is drawn with, so that all of them together stay small."""
    strips = len(found.parts) + len(wholes(found)) + len(found.stages)
    return min(STRIP_COLS, max(FEWEST_COLS, STRIP_BUDGET // strips))


def _check(deviation: float, tolerance: float) -> dict[str, Any]:
    return {"deviation": small(deviation), "tolerance": small(tolerance), "ok": deviation <= tolerance}


def _stage(stage: Stage, words: Sequence[str], followed: Sequence[int], cols: int) -> dict[str, Any]:
    lens = stage.lens
    parts = [stage.whole] if stage.whole.kind == "attention" else []
    return {
        "name": stage.whole.name,
        "kind": stage.whole.kind,
        "layer": stage.whole.layer,
        "norm": stage.norm,
        "deviation": small(stage.deviation),
        "stream": packed_strip(stage.stream, cols),
        "parts": [_part(part, cols) for part in (*parts, *stage.parts)],
        "top": [[words[i], float(lens.probabilities[i])] for i in lens.top(TOP_WORDS)],
        "ranks": [[lens.rank(i), float(lens.probabilities[i])] for i in followed],
    }


def _part(part: Part, cols: int) -> dict[str, Any]:
    return {
        "link": link_of(part),
        "name": part.name,
        "kind": part.kind,
        "head": part.head,
        "norm": part.norm,
        "cosine": part.cosine,
        "write": packed_strip(part.write, cols),
    }
