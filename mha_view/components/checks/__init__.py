"""The self-check strip: each law with its sign, its number and its tolerance."""

from __future__ import annotations

from collections.abc import Sequence

from mha_core.checks import Check
from mha_view.components import declare
from mha_view.theme import small

_checks = declare("checks", picture=False)


def check_strip(checks: Sequence[Check], *, key: str) -> None:
    """Show what was measured; a broken law is told by a sign, a word and a colour."""
    rows = [[c.name, c.ok, small(c.deviation), small(c.tolerance), c.sentence] for c in checks]
    _checks(data={"checks": rows}, key=key)
