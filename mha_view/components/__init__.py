"""Our own pictures: one folder per part, a typed Python function in front of html, css and js.

The parts run in the page itself: no build step, no iframe, no outside request. ``base.js`` and ``base.css`` are put in
front of every part, ``draw.js`` and ``draw.css`` in front of every picture; all of it travels with each rerun, so it is
kept small. Text that a visitor typed enters the page as text, never as HTML.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.components.v2 import component

from mha_view.theme import palette

FOLDER = Path(__file__).parent


def declare(name: str, *, picture: bool = True, matrix: bool = False, units: bool = False) -> Callable[..., Any]:
    """Register the part in folder ``name``; call it once, at import.

    picture: it can draw maps and export itself. matrix: it draws signed matrices too. units: it tells bytes.
    """
    wanted = {"draw": picture, "matrix": matrix, "units": units}
    layers = [FOLDER / "base", *(FOLDER / layer for layer, used in wanted.items() if used)]
    # A large part is cut into several scripts; the one with its name comes last.
    others = sorted(path.with_suffix("") for path in (FOLDER / name).glob("*.js") if path.stem != name)
    layers += [*others, FOLDER / name / name]
    styles, scripts = (
        "\n".join(_slim(path.read_text(encoding="utf-8")) for path in paths if path.exists())
        for paths in ([layer.with_suffix(suffix) for layer in layers] for suffix in (".css", ".js"))
    )
    palette_line = f"const PALETTE = {json.dumps(palette())};"
    return wrapped(f"headroom_{name}", html='<div class="root"></div>\n', css=styles, js=f"{palette_line}\n{scripts}")


def wrapped(name: str, *, html: str, css: str, js: str) -> Callable[..., Any]:
    """A part whose data travels as the only item of a list, which its script unpacks.

    Streamlit looks into every value of a dict for data frames, about 40 us each; it takes a list as it is.
    """
    unpacked = js.replace("export default function", "const part = function")
    part = component(
        name, html=html, css=css, js=f"{unpacked}\nexport default (g) => part({{...g, data: g.data[0]}});\n"
    )

    def mount(*, data: Mapping[str, Any], **options: Any) -> Any:
        return part(data=[data], **options)

    return mount


def packed(array: np.ndarray) -> str:
    """A numpy array as the browser takes it: base64 of its bytes, row by row."""
    return base64.b64encode(np.ascontiguousarray(array).tobytes()).decode("ascii")


def _slim(source: str) -> str:
    """A script or style without its indentation and its comment lines: it is sent again with every rerun."""
    lines = (line.strip() for line in source.splitlines())
    return "\n".join(line for line in lines if line and not line.startswith("// "))
