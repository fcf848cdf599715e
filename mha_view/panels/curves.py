"""The page Pruning, step by step: curves of loss and tasks against the heads that are kept, and what they say."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import streamlit as st

from mha_core.analysis.pruning import ORDERS, RANDOM_SEEDS, Curve, Progress, can_go
from mha_view import pruned, state
from mha_view.components.chart import Series, line_chart
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.notes import Note, show_notes
from mha_view.jobs import DONE, JobView
from mha_view.panels.pruning import FIGURES, polled
from mha_view.recipe import recipe
from mha_view.results import Run
from mha_view.settings import Settings

ORDER_WORDS = {"greedy": "greedy", "importance": "importance", "random": "random"}
ORDER_ABOUT = {
    "greedy": "Greedy: at each step the head goes without which the loss is lowest.",
    "importance": "Importance: heads go by their mean |d loss / d gate|, the smallest first (Michel et al. 2019).",
    "random": f"Random: the mean of {len(RANDOM_SEEDS)} orders; the band goes from the lowest to the highest.",
}
FIGURE_WORDS = {"loss": "loss", "tasks": "tasks"}
FIGURE_ABOUT = {"loss": "All orders that were measured.", "tasks": "Every task, in this order."}
LOSS = "validation_loss"
MORE_LOSS = (0.01, 0.03, 0.07)
# The share of heads that texts on pruning say can go.
CLAIMED = 0.6


def curve_bar(settings: Settings) -> tuple[str, str]:
    """Which order and which figures are drawn, with a button that starts or stops the curve."""
    order = state.pick_choice("order", ORDERS, "greedy")
    figure = state.pick_choice("figure", tuple(FIGURE_WORDS), "loss")

    def take() -> None:
        value = state.component_value("curve_bar", "set")
        if value.get("name") == "order":
            state.set_pick_choice("order", value.get("value"), ORDERS)
        elif value.get("name") == "figure":
            state.set_pick_choice("figure", value.get("value"), FIGURE_WORDS)
        elif value.get("name") == "stop":
            state.stop_curve(settings, order)
        elif value.get("name") == "start":
            state.start_curve(settings, order)

    control_bar(
        [
            Control("choice", "order", "Which head goes next", order, worded(ORDER_WORDS), note=ORDER_ABOUT[order]),
            Control("choice", "figure", "Show", figure, worded(FIGURE_WORDS), note=FIGURE_ABOUT[figure]),
        ],
        actions=_action(settings, order),
        key="curve_bar",
        on_set=take,
    )
    return order, figure


def _action(settings: Settings, order: str) -> dict[str, str]:
    view = state.curve(settings, order)
    if view is not None and view.unfinished:
        return {"stop": "Stop"}
    if pruned.curve_count(settings, order) == 0 or (view is not None and view.state == DONE):
        return {}
    return {"start": f"Measure the {order} curve" if view is None else "Measure it again"}


def curves(run: Run, order: str, figure: str) -> None:
    """The curve as far as it is; drawn anew several times a second while it grows, and only then."""
    view = state.curve(run.settings, order)
    polling = view is not None and view.unfinished
    polled(partial(_curves, run, order, figure, polling=polling), polling)


def _curves(run: Run, order: str, figure: str, *, polling: bool) -> None:
    views = {name: state.curve(run.settings, name) for name in ORDERS}
    view = views[order]
    if polling and not (view is not None and view.unfinished):
        st.rerun()
    _show_notes(run.settings, order, view)
    measured = {name: found for name, one in views.items() if (found := _points(one))}
    if figure == "loss" and measured:
        series = [_series(found, LOSS, name) for name, found in measured.items()]
        _chart(run, series, list(measured), "Loss against heads kept", FIGURES[LOSS][0], None)
    elif order in measured:
        series = [_series(measured[order], name, FIGURES[name][0]) for name in FIGURES if name != LOSS]
        _chart(run, series, [order], f"Tasks against heads kept, order: {order}", "share right", (0.0, 1.0))


def _show_notes(settings: Settings, order: str, view: JobView | None) -> None:
    def act() -> None:
        taken = state.component_value("curve_notes", "act").get("take")
        if isinstance(taken, int):
            state.set_heads_off(_points(view)[0].taken[:taken])

    show_notes(_notes(settings, order, view), key="curve_notes", on_act=act)


def _points(view: JobView | None) -> tuple[Curve, ...]:
    """The curves of a job that have points, none where nothing is measured yet."""
    if view is None or not isinstance(view.latest, Progress):
        return ()
    return tuple(curve for curve in view.latest.curves if curve.points)


def _chart(
    run: Run, series: Sequence[Series], orders: list[str], title: str, y_label: str, y_range: tuple[float, float] | None
) -> None:
    count = pruned.curve_count(run.settings, orders[0])
    line_chart(
        series,
        x_label="heads kept",
        y_label=y_label,
        title=title,
        caption=f"{count} sentences for each figure. Heads are chosen by {count} others than those that measure the "
        "loss, and nothing is trained anew.",
        recipe=recipe(run, figure="pruning", orders=orders, sentences=count),
        key="curve",
        file="headroom-pruning",
        x_range=(0, _total(run)),
        y_range=y_range,
        falling_x=True,
    )


def _series(found: Sequence[Curve], figure: str, name: str) -> Series:
    """One line: the mean of the curves, with a band where there are several."""
    heights: dict[int, list[float]] = {}
    for curve in found:
        for point in curve.points:
            heights.setdefault(point.kept, []).append(getattr(point.scores, figure))
    kept = sorted(heights, reverse=True)
    means = [sum(heights[k]) / len(heights[k]) for k in kept]
    if len(found) == 1:
        return Series(name, kept, means)
    return Series(name, kept, means, [min(heights[k]) for k in kept], [max(heights[k]) for k in kept])


def _notes(settings: Settings, order: str, view: JobView | None) -> list[Note]:
    """How the measurement stands, and what the curve says."""
    if view is None:
        return _refusal(settings, order)
    progress = view.latest
    reached = f"{progress.done:,} of {progress.of:,} passes" if isinstance(progress, Progress) else "not begun"
    waiting = f"; {view.before} come first" if view.before else ""
    told = {
        "waiting": Note(f"It waits for its turn{waiting}.", title="Waiting."),
        "running": Note(f"{reached}. It ends when nobody looks at it any more.", title="Measuring:"),
        "stopped": Note(f"The curve ends at {reached}; what was reached is shown.", title="Stopped."),
        "failed": Note("The measurement failed; what was reached is shown.", title="Failed.", kind="problem"),
    }
    found = [told[view.state]] if view.state in told else []
    return [*found, *_verdict(_points(view), view)]


def _refusal(settings: Settings, order: str) -> list[Note]:
    if pruned.curve_count(settings, order) > 0:
        return []
    size = f"d_model {settings.d_model} with {settings.n_heads} heads a layer"
    text = f"The {order} curve would take too long for {size}; choose another order, or a smaller model."
    return [Note(text, title="Not offered.")]


def _verdict(found: Sequence[Curve], view: JobView) -> list[Note]:
    """What "60% of the heads can go" amounts to in this curve, and switches to try it."""
    if not found:
        return []
    loss, total = found[0].points[0].scores.validation_loss, found[0].points[0].kept
    if pruned.random_like(loss):
        text = f"With all heads on the loss is {loss:.2f}, no better than an even guess among all words "
        return [Note(f"{text}({pruned.even_loss():.2f}).", title="There is nothing to lose here.")]
    gone = [[can_go(curve, more) for curve in found] for more in MORE_LOSS]
    went = [f"{_range(counts)} at +{more:.0%}" for more, counts in zip(MORE_LOSS, gone, strict=True)]
    start = "Of" if view.state == DONE else "So far: of"
    text = f"{start} {total} heads, this many can go while the loss stays within its limit: {', '.join(went)}."
    return [Note(text + _claim(found, total), title="What the curve says.", actions=_actions(found, gone, view))]


def _actions(found: Sequence[Curve], gone: Sequence[Sequence[int]], view: JobView) -> dict[str, dict[str, int]]:
    """Buttons that switch off what the curve took first; none while it grows, or where it is several curves."""
    if view.unfinished or len(found) > 1:
        return {}
    return {f"Switch off the first {count}": {"take": count} for (count,) in gone if count > 0}


def _claim(found: Sequence[Curve], total: int) -> str:
    gone = round(CLAIMED * total)
    rises = [
        point.scores.validation_loss / curve.points[0].scores.validation_loss - 1
        for curve in found
        for point in curve.points
        if point.kept == total - gone
    ]
    if not rises:
        return ""
    low, high = min(rises), max(rises)
    amount = f"{low:+.1%}" if len(rises) == 1 else f"{low:+.1%} to {high:+.1%}"
    words = f" “60% of the heads can go” would be {gone} heads: without them the loss changes by {amount}."
    return words + (_worst_task(found[0], gone) if len(found) == 1 else "")


def _worst_task(curve: Curve, gone: int) -> str:
    """The task that loses most when ``gone`` heads are off: a small rise of the loss may hide it."""
    before, after = curve.points[0].scores, curve.points[gone].scores
    name = max(
        (name for name in FIGURES if name != LOSS), key=lambda name: getattr(before, name) - getattr(after, name)
    )
    return f" What suffers most: “{FIGURES[name][0]}”, from {getattr(before, name):.2f} to {getattr(after, name):.2f}."


def _range(numbers: Sequence[int]) -> str:
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"


def _total(run: Run) -> int:
    return len(run.trace.layers) * run.layer(0).cfg.n_heads
