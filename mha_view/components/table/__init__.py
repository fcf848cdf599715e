"""A table of figures, with a caption that says what to notice and an export."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from mha_view.components import declare

_table = declare("table")


def table(
    head: Sequence[str],
    rows: Sequence[Sequence[str | int | float]],
    *,
    caption: str,
    file: str,
    recipe: Mapping[str, Any],
    key: str,
    marked: int | None = None,
) -> None:
    """Show rows under their heading; fractions get three digits, in the export all. marked: the row set in bold."""
    _table(
        data={
            "head": list(head),
            "rows": [list(row) for row in rows],
            # JSON does not tell 1.0 from 1: the browser is told which columns hold fractions.
            "fractions": [any(isinstance(row[i], float) for row in rows) for i in range(len(head))],
            "caption": caption,
            "file": file,
            "recipe": dict(recipe),
            "marked": marked,
        },
        key=key,
    )
