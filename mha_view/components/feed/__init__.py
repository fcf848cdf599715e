"""Data for a picture, sent apart from it.

Streamlit sends a part's script and data as one message, and sends a message that it has sent before as a reference of
a few bytes. So a large picture keeps its script to itself, and each thing that changes by its own travels in a feed.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from streamlit.components.v2 import component

_feed = component(
    "headroom_feed",
    html="<div hidden></div>\n",
    css=":host { display: none; }\n",
    js=(Path(__file__).parent / "feed.js").read_text(encoding="utf-8"),
)


def feed(picture: str, name: str, data: Mapping[str, Any]) -> None:
    """Hand ``data`` to the picture of that name in the browser; the picture is drawn anew.

    A numpy array anywhere in it arrives as a flat Float32Array.
    """
    _feed(data=message({"picture": picture, "name": name, "data": data}), key=f"{picture}_{name}")


def message(data: Mapping[str, Any]) -> bytes:
    """The length of the JSON (4 bytes, little endian), the JSON, and behind it all arrays as float32.

    In the JSON an array is ``{"float32": [where it begins, how many numbers]}``. As base64 it would be a third larger,
    and Streamlit writes JSON twice.
    """
    arrays: list[np.ndarray] = []

    def without_arrays(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            begin = sum(array.size for array in arrays)
            arrays.append(value)
            return {"float32": [begin, value.size]}
        if isinstance(value, Mapping):
            return {name: without_arrays(part) for name, part in value.items()}
        return [without_arrays(part) for part in value] if isinstance(value, (list, tuple)) else value

    head = json.dumps(without_arrays(data)).encode()
    # Numbers must begin at a multiple of their size.
    head += b" " * (-len(head) % 4)
    return b"".join((struct.pack("<I", len(head)), head, *(array.astype("<f4").tobytes() for array in arrays)))
