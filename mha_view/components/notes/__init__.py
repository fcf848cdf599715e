"""Plain sentences for the visitor; what was typed is shown in them as text, whatever it contains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from mha_view.components import declare

_notes = declare("notes", picture=False)


@dataclass(frozen=True)
class Note:
    """One sentence. kind: "info" or "problem". actions: label -> what is reported when it is pressed."""

    text: str
    title: str = ""
    kind: str = "info"
    actions: dict[str, dict[str, Any]] = field(default_factory=dict)


def show_notes(notes: Sequence[Note], *, key: str, on_act: Callable[[], None] | None = None) -> None:
    """Show the notes under each other; nothing at all when there are none."""
    if not notes:
        return
    rows = [
        {
            "kind": note.kind,
            "title": note.title,
            "text": note.text,
            "actions": [{"label": label, "value": value} for label, value in note.actions.items()],
        }
        for note in notes
    ]
    _notes(data={"notes": rows}, key=key, default={"act": None}, on_act_change=on_act if on_act else _nothing)


def _nothing() -> None:
    """Notes without actions have nothing to report."""
