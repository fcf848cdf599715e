"""Several series of numbers against one axis: lines with markers and, where there is one, a band; or stacked bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mha_view.components import declare

_chart = declare("chart", units=True)


@dataclass(frozen=True)
class Series:
    """One line. x, y: as many numbers each. low, high: the band around it, or nothing.

    Each series has a hue, a dash and a marker of its own, so that none is known by its colour alone.
    look: "main" for the line that the chart is about, "fan" for one of a family, thin and named at its end.
    hue: where it must be the same in several pictures, else that of its place.
    """

    name: str
    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float] = ()
    high: Sequence[float] = ()
    look: str = ""
    hue: int | None = None


def line_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
    y_range: tuple[float, float] | None = None,
    x_range: tuple[float, float] | None = None,
    falling_x: bool = False,
    doubling_x: bool = False,
    x_ticks: Mapping[float, str] | None = None,
    in_bytes: bool = False,
    log_y: bool = False,
    stacked: bool = False,
) -> None:
    """Draw the series on shared axes, with legend, hover and arrow keys, table twin and exports.

    y_range, x_range: what the axes must hold at least; they grow to hold all points. falling_x: from the largest x on
    the left to the smallest on the right. doubling_x: every doubling of x takes the same width. x_ticks: where the axis
    is marked, and how; else where there are points. in_bytes: y is read off as GiB, MiB, KiB. log_y: every doubling
    of y takes the same height. stacked: each series stands on those before it, as an area.
    """
    _chart(
        data={
            "series": _plain(series),
            "xLabel": x_label,
            "yLabel": y_label,
            "xRange": None if x_range is None else list(x_range),
            "yRange": None if y_range is None else list(y_range),
            "falling": falling_x,
            "doubling": doubling_x,
            "xTicks": None if x_ticks is None else [list(tick) for tick in x_ticks.items()],
            "bytes": in_bytes,
            "log": log_y,
            "stacked": stacked,
            "title": title,
            "caption": caption,
            "recipe": dict(recipe),
            "file": file,
        },
        key=key,
    )


def bar_chart(
    series: Sequence[Series],
    *,
    x_label: str,
    y_label: str,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
    top: float,
    marked: float | None = None,
    falling_x: bool = False,
) -> None:
    """Draw one bar for each x, its series stacked from zero and named in it; the sum stands on top.

    top: what the axis must hold at least, so that charts can share a scale. marked: the x that is set in bold.
    falling_x: from the largest x on the left to the smallest on the right.
    """
    _chart(
        data={
            "bars": True,
            "series": _plain(series),
            "xLabel": x_label,
            "yLabel": y_label,
            # Room for the sum over the highest bar.
            "yRange": [0, 1.08 * top],
            "marked": marked,
            "falling": falling_x,
            "title": title,
            "caption": caption,
            "recipe": dict(recipe),
            "file": file,
        },
        key=key,
    )


def _plain(series: Sequence[Series]) -> list[dict[str, Any]]:
    return [
        {
            "name": s.name,
            "x": list(s.x),
            "y": list(s.y),
            "low": list(s.low),
            "high": list(s.high),
            "look": s.look,
            "hue": i if s.hue is None else s.hue,
        }
        for i, s in enumerate(series)
    ]
