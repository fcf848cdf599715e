"""Print the README's table of all trained settings, from the cards: ``python -m scripts.grid_table``."""

from __future__ import annotations

from mha_core import zoo
from mha_view.knobs import FIGURES, of_card


def grid_table() -> str:
    """The lowest and the highest figure of all settings at a width, as a markdown table."""
    cards = zoo.available()
    widths = sorted({card.recipe.d_model for card in cards})
    lines = ["| | " + " | ".join(f"d_model {width}" for width in widths) + " |", "|---" * (len(widths) + 1) + "|"]
    for figure in FIGURES:
        found = [sorted(of_card(card, figure) for card in cards if card.recipe.d_model == width) for width in widths]
        lines.append(f"| {figure.words} | " + " | ".join(f"{low[0]:.2f} to {low[-1]:.2f}" for low in found) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    print(grid_table())
