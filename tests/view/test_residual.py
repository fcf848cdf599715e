"""Where a part of the stream is opened: only what the page has, whatever a browser reports."""

import pytest

from mha_view.panels import residual

PACK = {
    "stream": {
        "stages": [
            {"layer": -1, "parts": [{"link": "embedding", "head": -1}]},
            {"layer": 2, "parts": [{"link": "L2-attention", "head": -1}, {"link": "L2H5", "head": 5}]},
        ]
    }
}


@pytest.fixture
def opened(monkeypatch):
    """What a press would open: page and places."""
    asked: list = []
    monkeypatch.setattr(residual.state, "drop_picks", lambda *names: None)
    monkeypatch.setattr(residual.state, "go_to", lambda page, **places: asked.append((page, places)))

    def press(page, link):
        asked.clear()
        residual._open(page, link, 7, PACK)
        return asked[0] if asked else None

    return press


def test_a_head_opens_at_its_layer_head_and_token(opened):
    assert opened("heads", "L2H5") == ("heads", {"layer": 2, "head": 5, "row": 7, "step": residual.OUTPUT_STEP})
    assert opened("flow", "L2-attention") == ("flow", {"layer": 2, "row": 7, "step": residual.OUTPUT_STEP})


@pytest.mark.parametrize(
    ("page", "link"),
    [("flow", "embedding"), ("flow", "L9H9"), ("flow", ["L2H5"]), ("", "L2H5"), (["flow"], "L2H5"), ("x", None)],
)
def test_nothing_else_opens_anything(opened, page, link):
    assert opened(page, link) is None
