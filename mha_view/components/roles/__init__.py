"""The roles of a model's heads: a map of layers x heads, and a table of every name with what it rests on."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from mha_core.analysis.roles import ROLES, HeadEvidence, Label
from mha_core.analysis.showcase import Showing, Shown
from mha_view.components import declare

# Eight hues for eleven roles: those that heads often have stand apart, and a letter always stands beside a colour.
HUE = {
    "coreference": 0,
    "agreement": 1,
    "induction": 2,
    "previous token": 3,
    "first-token sink": 4,
    "itself": 5,
    "agreement at the verb": 6,
    "same token": 7,
    "two back": 3,
    "three back": 5,
    "rare word": 7,
}

_roles = declare("roles")


def role_map(
    heads: Sequence[HeadEvidence],
    labels: Sequence[Label],
    showings: Mapping[tuple[int, int, str], Showing],
    *,
    picked: tuple[int, int],
    told: Sequence[str],
    caption: str,
    rule: str,
    recipe: Mapping[str, Any],
    key: str,
    on_pick: Callable[[], None],
    on_open: Callable[[], None],
) -> None:
    """Draw one square per head in the colours of its names, and one line per name under it.

    showings: by layer, head and name. told: every head in words. rule: when a head gets a name. A click on a square
    reports ``picked`` = the number of the head; a click on a text reports ``open`` = the number of the label and which
    of its two texts, "best" or "counter".
    """
    rows = [_row(label, showings.get((label.head.layer, label.head.head, label.role.name))) for label in labels]
    used = {label.role.name for label in labels}
    _roles(
        data={
            "layers": max(head.layer for head in heads) + 1,
            "heads": max(head.head for head in heads) + 1,
            "roles": [
                {"name": role.name, "letter": role.letter, "about": role.about, "hue": HUE[role.name]}
                for role in ROLES
                if role.name in used
            ],
            "rows": rows,
            "picked": list(picked),
            "told": list(told),
            "caption": caption,
            "rule": rule,
            "recipe": dict(recipe),
        },
        key=key,
        default={"picked": None, "open": None},
        on_picked_change=on_pick,
        on_open_change=on_open,
    )


def _row(label: Label, showing: Showing | None) -> dict[str, Any]:
    runner_up = label.runner_up
    return {
        "layer": label.head.layer,
        "head": label.head.head,
        "role": label.role.name,
        "score": label.score,
        "detail": label.role.detail(label.head),
        "control": label.control,
        "runnerUp": None if runner_up is None else runner_up.name,
        "runnerUpScore": label.runner_up_score,
        "best": None if showing is None else _text(showing.best),
        "counter": None if showing is None or showing.counter is None else _text(showing.counter),
        "tried": 0 if showing is None else showing.tried,
    }


def _text(shown: Shown) -> dict[str, Any]:
    """A text as its words, where it is asked, where the head should look, and where it looks instead."""
    return {
        "words": shown.text.split(),
        "row": shown.row,
        "key": shown.key,
        "weight": shown.weight,
        "instead": shown.instead,
        "insteadWeight": shown.instead_weight,
    }
