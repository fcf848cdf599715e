"""A strip of results in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mha_view.components import declare

_facts = declare("facts", picture=False)


def facts_strip(facts: Sequence[tuple[str, str, str]], *, key: str, lead: str = "", caption: str = "") -> None:
    """Show (label, value, note) triples side by side, under a leading sentence and above a caption, where there are."""
    _facts(data={"facts": [list(fact) for fact in facts], "lead": lead, "caption": caption}, key=key)
