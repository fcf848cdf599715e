"""Print the README's two tables of trained settings, from cards and seeds: ``python -m scripts.grid_table``."""

from __future__ import annotations

from collections.abc import Iterable

from mha_core import zoo
from mha_core.training.grid import SLICE, SLICE_WIDTH
from mha_view.knobs import FIGURES, of_card, values


def grid_table() -> str:
    """The lowest and the highest figure of all settings at a width, as a markdown table."""
    cards = zoo.available()
    widths = sorted({card.recipe.d_model for card in cards})
    lines = [_line("", [f"d_model {width}" for width in widths]), "|---" * (len(widths) + 1) + "|"]
    for figure in FIGURES:
        found = [[of_card(card, figure) for card in cards if card.recipe.d_model == width] for width in widths]
        lines.append(_line(figure.words, map(_range, found)))
    return "\n".join(lines)


def seeds_table() -> str:
    """The lowest and the highest of all seeds, setting by setting, for the slice that has several."""
    lines = [_line(f"d_model {SLICE_WIDTH}", [f"h {h}, g {g}" for h, g in SLICE]), "|---" * (len(SLICE) + 1) + "|"]
    for figure in FIGURES[:6]:
        found = [_range(values((SLICE_WIDTH, h, g), figure)) for h, g in SLICE]
        lines.append(_line(figure.words.split(",")[0], found))
    return "\n".join(lines)


def _range(found: list[float]) -> str:
    return f"{min(found):.2f} to {max(found):.2f}"


def _line(name: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join((name, *cells))} |"


if __name__ == "__main__":
    print(f"{grid_table()}\n\n{seeds_table()}")
