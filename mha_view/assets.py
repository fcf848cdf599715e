"""The few pictures the app ships, by path."""

from __future__ import annotations

from pathlib import Path

_IMAGES = Path(__file__).parent / "images"

LOGO = str(_IMAGES / "logo.svg")
ICON = str(_IMAGES / "icon.svg")
