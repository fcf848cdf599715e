"""Every head of a model as a switch: layers down, heads across."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from mha_view.components import declare

_toggles = declare("toggles", picture=False)


def head_toggles(
    off: Collection[tuple[int, int]],
    *,
    layers: int,
    kv_heads: Sequence[int],
    badges: Mapping[str, str],
    title: str,
    caption: str,
    key: str,
    on_set: Callable[[], None],
) -> None:
    """Show which heads are on; a press reports ``set`` = all heads that are off then, as pairs of layer and head.

    kv_heads: the KV head of every query head. badges: "layer.head" -> letters of the roles it earned.
    """
    _toggles(
        data={
            "off": sorted(f"{layer}.{head}" for layer, head in off),
            "layers": layers,
            "kv": list(kv_heads),
            "badges": dict(badges),
            "title": title,
            "caption": caption,
        },
        key=key,
        default={"set": None},
        on_set_change=on_set,
    )
