"""Open a page in-process, as Streamlit's own test runner does; what its parts were sent is read back as plain data."""

import json
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest
from streamlit.util import calc_hash

from pages import PAGES

# As in the app: two threads fight over busy cores.
torch.set_num_threads(1)

ENTRY = str(Path(__file__).parents[2] / "pages" / "_main.py")


def told(message: bytes) -> Any:
    """What a feed says: JSON, and behind it the numbers that it points to."""
    size = int.from_bytes(message[:4], "little")
    assert size % 4 == 0

    def opened(pairs: dict) -> Any:
        if "float32" not in pairs:
            return pairs
        begin, count = pairs["float32"]
        return np.frombuffer(message, "<f4", count, 4 + size + 4 * begin)

    return json.loads(message[4 : 4 + size], object_hook=opened)


class Opened:
    """A page as a visitor finds it."""

    def __init__(self, app: AppTest) -> None:
        self.app = app
        self.run()

    def run(self) -> "Opened":
        self.app.run()
        assert not self.app.exception, self.app.exception
        return self

    def sent(self, part: str, key: str = "") -> list[dict]:
        """The data of every part of that name whose key begins like this, in the order of the page."""
        parts = [p.proto for p in self.app.get("bidi_component")]
        wanted = [p for p in parts if p.component_name == f"headroom_{part}" and f"-{key}" in p.id]
        return [told(p.bytes) if p.bytes else json.loads(p.json)[0] for p in wanted]

    def weight(self, part: str) -> int:
        """How many bytes all parts of that name are sent as data."""
        parts = [p.proto for p in self.app.get("bidi_component")]
        return sum(len(p.bytes) + len(p.json) for p in parts if p.component_name == f"headroom_{part}")

    def notes(self) -> list[str]:
        """Every sentence that the page tells its visitor."""
        return [f"{note['title']} {note['text']}".strip() for part in self.sent("notes") for note in part["notes"]]

    def link(self) -> dict[str, str]:
        """What the address bar is told to say."""
        return dict(parse_qsl(self.sent("link")[0]["query"], keep_blank_values=True))


@pytest.fixture
def open_page():
    def opened(slug: str = "heads", /, **params: str) -> Opened:
        app = AppTest.from_file(ENTRY, default_timeout=60)
        # Pages are functions here, which AppTest.switch_page cannot name: the hash is that of the page's address.
        app._page_hash = calc_hash("" if slug == PAGES[0].slug else slug)
        for name, value in params.items():
            app.query_params[name] = value
        return Opened(app)

    return opened
