"""The launcher: ``streamlit run app.py``, ``python app.py`` and ``uvicorn app:app`` all serve Headroom.

The entry script lies in ``pages/`` and not here, since Streamlit takes a ``pages`` folder beside an entry script for
its own old router (docs/adr/0001).
"""

from __future__ import annotations

import gc
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import streamlit as st


@asynccontextmanager
async def lifespan(_: st.App) -> AsyncIterator[None]:
    """Pay for imports and the first run before the first visitor comes; keep what is there out of the collector."""
    import torch

    # One thread a visitor: two fight over busy cores and take a small pass from 0.3 to 88 ms.
    torch.set_num_threads(1)
    from mha_view.settings import DEFAULTS
    from mha_view.state import cached_run

    cached_run(DEFAULTS)
    gc.collect()
    gc.freeze()
    yield


def tell_nobody_details(error: Exception) -> bool:
    """A visitor gets one sentence; the log gets the kind and place of the error, never what was typed."""
    last = error.__traceback__
    while last is not None and last.tb_next is not None:
        last = last.tb_next
    place = "unknown place" if last is None else f"{last.tb_frame.f_code.co_filename}:{last.tb_lineno}"
    logging.getLogger("headroom").error("%s at %s", type(error).__name__, place)
    st.error("Something went wrong while drawing this page. Your text and settings are kept; try another setting.")
    return True


app = st.App(Path(__file__).parent / "pages" / "_main.py", lifespan=lifespan, on_script_error=tell_nobody_details)

if __name__ == "__main__":
    app.run()
