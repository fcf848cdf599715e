"""The address bar as a mirror of the settings, and the button that copies it."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

from mha_view.components import declare

_link = declare("link", picture=False)


def link_box(params: Mapping[str, str], *, without: tuple[str, ...], key: str) -> None:
    """Write ``params`` to the address bar and offer the link, with or without the params named in ``without``."""
    bare = {name: value for name, value in params.items() if name not in without}
    _link(data={"query": urlencode(params), "bare": urlencode(bare)}, key=key)
