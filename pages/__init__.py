"""The one list of pages: the menu, the tests and the README's table read it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class PageSpec:
    """A page: its module in this folder, its address, its place in the menu, and the question it answers."""

    module: str
    slug: str
    title: str
    question: str
    about: str


PAGES = (
    PageSpec(
        "heads",
        "heads",
        "Heads",
        "What does each head look at?",
        "every head's map, one cell's arithmetic, lines, comparison",
    ),
    PageSpec(
        "flow",
        "flow",
        "Flow",
        "How does the sentence become the output?",
        "one layer stage by stage, what each cell is computed from, concat and W_O head by head, a worked example",
    ),
    PageSpec(
        "model",
        "model",
        "Model card",
        "Where do the weights come from?",
        "how the small model was trained, its measured figures, the words it knows",
    ),
)
