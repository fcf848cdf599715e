"""What takes its share of one memory: a bar of parts, with a line where the memory ends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mha_view.components import declare

_budget = declare("budget", units=True)


def memory_bar(
    parts: Sequence[tuple[str, int, int]],
    *,
    memory: int,
    title: str,
    caption: str,
    recipe: Mapping[str, Any],
    key: str,
    file: str,
) -> None:
    """Draw (name, bytes, hue) after each other: what is left of ``memory`` stays empty, what is over lies beyond it."""
    data = {"parts": [list(part) for part in parts], "memory": memory, "title": title, "caption": caption}
    _budget(data={**data, "recipe": dict(recipe), "file": file}, key=key)
