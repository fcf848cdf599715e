"""The layers of a model side by side: what each keeps, and what it would keep if windows were ignored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mha_view.components import declare

_layers = declare("layers", units=True)


def layer_strip(
    layers: Sequence[tuple[int, int, int]],
    *,
    kinds: Sequence[tuple[str, str, int]],
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
) -> None:
    """Draw a bar for each layer: (its kind, bytes it keeps, bytes it would keep with windows ignored).

    kinds: for each kind its name, the words of the legend, and its hue. Bars start at zero and share one scale.
    """
    _layers(
        data={
            "layers": [list(layer) for layer in layers],
            "kinds": [list(kind) for kind in kinds],
            "title": title,
            "caption": caption,
            "recipe": dict(recipe),
            "file": file,
        },
        key=key,
    )
