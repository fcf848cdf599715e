"""The shared controls: examples, weights, the three knobs, mask and colour scale, in one part.

One part and not a dozen widgets: Streamlit sends and redraws every widget with every rerun, which cost the browser more
time than all pictures together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mha_view.components import declare

_controls = declare("controls", picture=False)


@dataclass(frozen=True)
class Control:
    """One control. kind: "choice", "stops" (a slider) or "number".

    options: value, words, and whether trained weights stand behind it; for a number, low and high instead.
    """

    kind: str
    name: str
    label: str
    value: Any
    options: tuple[tuple[Any, str, bool], ...] = ()
    low: int = 0
    high: int = 0
    about: str = ""
    note: str = ""


def control_panel(
    controls: Sequence[Control],
    *,
    counted: str,
    examples: Sequence[str],
    chosen: str | None,
    notice: str,
    words: Sequence[str],
    key: str,
    on_set: Callable[[], None],
) -> None:
    """Show the controls; a change reports ``set`` = name and value ("example" and "reset" among the names)."""
    _controls(
        data={
            "controls": [asdict(control) for control in controls],
            "counted": counted,
            "examples": [{"name": name, "chosen": name == chosen} for name in examples],
            "notice": notice,
            "words": list(words),
        },
        key=key,
        default={"set": None},
        on_set_change=on_set,
    )
