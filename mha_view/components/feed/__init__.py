"""Data for a picture, sent apart from it.

Streamlit sends a part's script and data as one message, and sends a message that it has sent before as a reference of
a few bytes. So a large picture keeps its script to itself, and each thing that changes by its own travels in a feed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mha_view.components import wrapped

_feed = wrapped(
    "headroom_feed",
    html="<div hidden></div>\n",
    css=":host { display: none; }\n",
    js=(Path(__file__).parent / "feed.js").read_text(encoding="utf-8"),
)


def feed(picture: str, name: str, data: Mapping[str, Any]) -> None:
    """Hand ``data`` to the picture of that name in the browser; the picture is drawn anew."""
    _feed(data={"picture": picture, "name": name, "data": dict(data)}, key=f"{picture}_{name}")
