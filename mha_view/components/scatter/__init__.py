"""All heads as points: any two of their measures against each other, and all measures as a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mha_view.components import declare, packed

_scatter = declare("scatter")


@dataclass(frozen=True)
class Measure:
    """One column: its name in a link, its words on an axis, and what no skill would give, where that means anything."""

    name: str
    words: str
    control: float | None = None


def scatter(
    measures: Sequence[Measure],
    values: np.ndarray,
    *,
    names: Sequence[str],
    letters: Sequence[str],
    hues: Sequence[int | None],
    axes: tuple[str, str],
    picked: int,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    on_pick: Callable[[], None],
    on_axes: Callable[[], None],
) -> None:
    """Draw (points, measures) values; the two axes are changed in the browser and reported as ``axes``.

    names, letters, hues: one per point; a point without a hue is drawn hollow. picked: the point that is framed; a
    click on another reports ``picked`` = its number.
    """
    _scatter(
        data={
            "measures": [{"name": m.name, "words": m.words, "control": m.control} for m in measures],
            "values": packed(values.astype(np.float32)),
            "names": list(names),
            "letters": list(letters),
            "hues": list(hues),
            "axes": list(axes),
            "picked": picked,
            "title": title,
            "caption": caption,
            "recipe": dict(recipe),
        },
        key=key,
        default={"picked": None, "axes": None},
        on_picked_change=on_pick,
        on_axes_change=on_axes,
    )
