"""Controls in one part: the shared ones with examples and words, or a bar of a page's own.

One part and not a dozen widgets: Streamlit sends and redraws every widget with every rerun, which cost the browser more
time than all pictures together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mha_view.components import declare

_controls = declare("controls", picture=False)


@dataclass(frozen=True)
class Control:
    """One control. kind: "choice", "stops" (a slider), "number", "text" (a line to type in) or "select" (a list).

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


def worded(words: Mapping[str, str]) -> tuple[tuple[str, str, bool], ...]:
    """Options of a choice between words: value -> what stands on the control."""
    return tuple((value, label, False) for value, label in words.items())


def control_panel(
    controls: Sequence[Control],
    *,
    counted: str,
    examples: Sequence[str],
    chosen: str | None,
    notice: str,
    words: Sequence[str],
    actions: Mapping[str, str],
    key: str,
    on_set: Callable[[], None],
) -> None:
    """Show the shared controls; a change reports ``set`` = name and value; "example" and the actions are names too."""
    extras = {
        "counted": counted,
        "examples": [{"name": name, "chosen": name == chosen} for name in examples],
        "notice": notice,
        "words": list(words),
    }
    _show(controls, actions, extras, key, on_set)


def control_bar(
    controls: Sequence[Control], *, actions: Mapping[str, str], key: str, on_set: Callable[[], None]
) -> None:
    """Show a page's own controls in one line; actions are buttons, name -> words."""
    _show(controls, actions, {}, key, on_set)


def _show(
    controls: Sequence[Control],
    actions: Mapping[str, str],
    extras: Mapping[str, Any],
    key: str,
    on_set: Callable[[], None],
) -> None:
    # Not asdict: it copies every option of every list, on each rerun.
    shown = [dict(vars(control)) for control in controls]
    data = {"controls": shown, "actions": [list(action) for action in actions.items()], **extras}
    _controls(data=data, key=key, default={"set": None}, on_set_change=on_set)
