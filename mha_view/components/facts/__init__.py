"""A strip of results in numbers."""

from __future__ import annotations

from collections.abc import Sequence

from mha_view.components import declare

_facts = declare("facts", picture=False)


def facts_strip(
    facts: Sequence[tuple[str, str, str]], *, key: str, lead: str = "", caption: str = "", main: bool = False
) -> None:
    """Show (label, value, note) triples side by side, under a leading sentence and above a caption, where there are.

    main: the first of them is the answer of the page, and set large.
    """
    _facts(data={"facts": [list(fact) for fact in facts], "lead": lead, "caption": caption, "main": main}, key=key)
