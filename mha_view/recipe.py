"""What it takes to see a picture again: settings, place and versions, as plain data for an export."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import streamlit
import torch

from mha_view.results import Run
from mha_view.settings import VERSION

TORCH_VERSION, STREAMLIT_VERSION = torch.__version__, streamlit.__version__


def recipe(run: Run, **place: Any) -> dict[str, Any]:
    """The settings of a run with the place that is shown (layer, head, row ...), and the versions that made it."""
    return {
        "format": VERSION,
        "settings": asdict(run.settings),
        "shown": place,
        "weights": "random" if run.card is None else {"name": run.card.name, "sha256": run.card.sha256},
        "device": run.device,
        "dtype": run.dtype,
        "torch": TORCH_VERSION,
        "streamlit": STREAMLIT_VERSION,
    }


def weights_recipe(name: str, sha256: str, **place: Any) -> dict[str, Any]:
    """Which weights a stored figure was measured on, what is shown, and the versions that show it."""
    return {**app_recipe(**place), "weights": {"name": name, "sha256": sha256}}


def app_recipe(**place: Any) -> dict[str, Any]:
    """What is shown, and the versions that show it."""
    return {"format": VERSION, "shown": place, "torch": TORCH_VERSION, "streamlit": STREAMLIT_VERSION}
