"""What takes long: who waits for what, in the one queue that all visitors share."""

from __future__ import annotations

import atexit
import secrets
from collections.abc import Iterable
from typing import Any

import streamlit as st

from mha_core.analysis.pruning import Head
from mha_core.analysis.timing import timing
from mha_view import pruned, results
from mha_view.jobs import STOPPED, WAITING, JobQueue, JobView, QueueFullError
from mha_view.settings import Settings
from mha_view.state.caches import cached_model
from mha_view.state.session import tell

# A first look comes before a second one, and that before a curve; a timing is short, and goes before curves.
JOBS = JobQueue()
atexit.register(JOBS.close)
FIRST_LOOK, SECOND_LOOK, TIMING, CURVE = range(4)
Sizes = tuple[int, int, int]


def looks(settings: Settings, off: tuple[Head, ...]) -> tuple[JobView, JobView]:
    """The first and the second look at the figures with these heads off, begun if nobody has yet.

    Raises QueueFullError when the queue does not even take the first; the second waits outside until there is room.
    """
    first = _look(settings, off, pruned.quick_count(settings), FIRST_LOOK)
    try:
        return first, _look(settings, off, pruned.full_count(settings), SECOND_LOOK)
    except QueueFullError:
        return first, JobView(WAITING, None)


def leave_other_looks(settings: Settings, wanted: Iterable[tuple[Head, ...]]) -> None:
    """What was looked at before and is no longer on screen need not be measured for this visitor."""
    keep = {_look_key(settings, off, count(settings)) for off in wanted for count in _COUNTS}
    watched: set[object] = st.session_state.setdefault("_watched", set())
    for key in watched - keep:
        JOBS.leave(key, visitor())
    st.session_state["_watched"] = keep


def curve(settings: Settings, order: str) -> JobView | None:
    """The curve of these settings and this order as far as it is, or None where nobody has asked for it."""
    key = _curve_key(settings, order)
    return JOBS.look(key, None if st.session_state.get("_left_curve") == key else visitor())


def start_curve(settings: Settings, order: str) -> None:
    """Ask for a curve, anew if it was stopped; a full queue is told on the page."""
    key, count = _curve_key(settings, order), pruned.curve_count(settings, order)
    st.session_state["_left_curve"] = None

    def start() -> Any:
        return pruned.pruning_curve(cached_model(settings), order, count)

    try:
        JOBS.ask(key, start, watcher=visitor(), urgency=CURVE, again=True)
    except QueueFullError as error:
        tell(str(error))


def stop_curve(settings: Settings, order: str) -> None:
    """Stop waiting for a curve: it ends after its next step, unless others wait for it too."""
    key = _curve_key(settings, order)
    st.session_state["_left_curve"] = key
    JOBS.leave(key, visitor())


def timed(sizes: Sizes) -> JobView | None:
    """The timing of these sizes (n, d_model, h) as far as it is, or None where nobody has asked for it."""
    key = _timing_key(sizes)
    return JOBS.look(key, None if st.session_state.get("_left_timing") == key else visitor())


def start_timing(sizes: Sizes) -> None:
    """Ask for a timing, anew where there is one; a full queue is told on the page."""
    view = JOBS.look(_timing_key(sizes), None)
    if view is not None and not view.unfinished:
        st.session_state["_attempt"] = st.session_state.get("_attempt", 0) + 1
    st.session_state["_left_timing"] = None
    try:
        JOBS.ask(_timing_key(sizes), lambda: timing(*sizes), watcher=visitor(), urgency=TIMING, again=True)
    except QueueFullError as error:
        tell(str(error))


def stop_timing(sizes: Sizes) -> None:
    """Stop waiting for a timing: it ends after its next round, unless others wait for it too."""
    key = _timing_key(sizes)
    st.session_state["_left_timing"] = key
    JOBS.leave(key, visitor())


def visitor() -> str:
    """A name for this session that says nothing about its visitor."""
    return st.session_state.setdefault("_visitor", secrets.token_hex(8))


def _look(settings: Settings, off: tuple[Head, ...], count: int, urgency: int) -> JobView:
    key = _look_key(settings, off, count)

    def start() -> Any:
        return pruned.measuring(cached_model(settings), off, count)

    found = JOBS.ask(key, start, watcher=visitor(), urgency=urgency)
    # Stopped only because whoever asked went on to something else.
    return JOBS.ask(key, start, watcher=visitor(), urgency=urgency, again=True) if found.state == STOPPED else found


_COUNTS = (pruned.quick_count, pruned.full_count)


def _look_key(settings: Settings, off: tuple[Head, ...], count: int) -> tuple[object, ...]:
    return ("look", results.model_key(settings), off, count)


def _curve_key(settings: Settings, order: str) -> tuple[object, ...]:
    return ("curve", results.model_key(settings), order, pruned.curve_count(settings, order))


def _timing_key(sizes: Sizes) -> tuple[object, ...]:
    """Visitors share a measurement; who measures again gets another one."""
    return ("timing", *sizes, st.session_state.get("_attempt", 0))
