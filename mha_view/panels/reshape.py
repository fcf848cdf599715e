"""The page Reshape: one projection of the visitor's run in memory, and the wrong orders measured on that run."""

from __future__ import annotations

import hashlib
from dataclasses import asdict, dataclass
from typing import Any

from mha_core.analysis.orders import RIGHT, TILE, VIEW, OrderCheck, kv_heads_read, order_checks, run_of
from mha_core.analysis.reshape import MATRICES, Reshape, reshape_of
from mha_core.config import AttentionConfig, divisors
from mha_view import cards, state
from mha_view.components.controls import Control, control_bar, worded
from mha_view.components.memory import FOLDS, Place, memory_view
from mha_view.components.table import table
from mha_view.recipe import recipe
from mha_view.results import Run, run_key
from mha_view.settings import Settings
from mha_view.theme import small

MATRIX_WORDS = {"q": "Q", "k": "K", "v": "V"}
# As the self-check strip allows, of the largest number in the output.
TOLERANCE = 1e-4
ORDER_WORDS = {
    RIGHT: "view(b, n, h, d_k), then transpose",
    VIEW: "view(b, h, n, d_k), no transpose",
    TILE: "K, V shared by tile (repeat)",
}
CHECK_WORDS = (
    "Measured on this run. Shapes are right in all three and every row sums to 1, so neither check notices anything. "
    "pattern and out: largest difference from a plain loop over heads, in which each head has matrices of its own and "
    "nothing is ever reshaped. That is the check which catches a wrong order."
)


@dataclass(frozen=True, eq=False)
class Shown:
    """One projection of one layer of the visitor's run, and the three orders measured there."""

    settings: Settings
    run: Run
    layer: int
    matrix: str
    reshape: Reshape
    checks: tuple[OrderCheck, ...]

    @property
    def cfg(self) -> AttentionConfig:
        """The layer's sizes."""
        return self.run.layer(self.layer).cfg

    @property
    def largest(self) -> float:
        """The largest number of the layer's output, at least 1: what a difference is measured against."""
        return max(1.0, float(abs(self.run.layer(self.layer).array("out")).max()))


def bar(run: Run) -> tuple[int, str]:
    """Which layer and which of its projections are shown."""
    first = (0, 0) if run.card is None else cards.first_head(run.card)
    layer = state.pick_number("layer", 0, len(run.trace.layers) - 1, first[0])
    matrix = state.pick_choice("matrix", MATRICES, "q")

    def take() -> None:
        value = state.component_value("reshape_bar", "set")
        if value.get("name") == "matrix":
            state.set_pick_choice("matrix", value.get("value"), MATRICES)
        elif value.get("name") == "layer":
            state.set_picks(layer=value.get("value"))

    layers = tuple((i, str(i), False) for i in range(len(run.trace.layers)))
    controls = [
        Control("choice", "matrix", "Projection", matrix, worded(MATRIX_WORDS)),
        Control("choice", "layer", "Layer", layer, layers),
    ]
    control_bar(controls, actions={}, key="reshape_bar", on_set=take)
    return layer, matrix


def shown(settings: Settings, run: Run, layer: int, matrix: str) -> Shown:
    """What the page shows; the orders are measured once for all visitors."""

    def measured() -> dict[str, Any]:
        module = state.cached_model(settings).model.attention_layers()[layer]
        return {"checks": [asdict(check) for check in order_checks(run_of(module, run.layer(layer)))]}

    name = hashlib.sha256(repr(run_key(settings)).encode()).hexdigest()
    kept = state.cached_pack(("orders", name, layer), measured)
    checks = tuple(OrderCheck(**check) for check in kept["checks"])
    return Shown(settings, run, layer, matrix, reshape_of(run.layer(layer), matrix), checks)


def picked_place(shown: Shown) -> Place:
    """Step, token, head and first column: what was clicked or linked, or where the page starts."""
    cfg, n = shown.cfg, len(shown.run.tokens.labels)
    return Place(
        fold=state.pick_number("fold", 0, len(FOLDS) - 1, 0),
        row=state.pick_number("row", 0, n - 1, min(1, n - 1)),
        head=state.pick_number("head", 0, cfg.n_heads - 1, 0),
        first=state.pick_number("from", 0, cfg.head_dim - 1, 0),
    )


def memory(shown: Shown) -> None:
    """The cells step by step, and beside them where the wrong orders would take them from."""

    def move() -> None:
        value = state.component_value("memory", "at")
        state.set_picks(**{name: value.get(name) for name in ("fold", "row", "head", "from")})

    cfg, at, told = shown.cfg, picked_place(shown), state.component_value("memory", "at")
    echo = told.get("count")
    memory_view(
        shown.reshape,
        cfg,
        labels=shown.run.tokens.labels,
        at=at,
        reads={name: kv_heads_read(name, cfg) for name in (RIGHT, TILE)},
        matrix=shown.matrix,
        echo=echo if isinstance(echo, int) else 0,
        recipe=recipe(shown.run, figure="reshape", layer=shown.layer, matrix=shown.matrix),
        on_move=move,
    )


def harmless_words(name: str, cfg: AttentionConfig) -> str:
    """Why a wrong order takes the right numbers at these sizes."""
    if name == TILE:
        if cfg.n_kv_heads == cfg.n_heads:
            return (
                f"g = h = {cfg.n_heads}: no keys or values are shared, so tile has nothing to put in the wrong place."
            )
        return f"g = 1: all {cfg.n_heads} heads read the same KV head, whoever deals it out."
    if cfg.n_heads == 1:
        return "h = 1: there is one head, so nothing is cut and view takes the right numbers without the transpose."
    return "n = 1: a single token has nothing to change places with, so view takes the right numbers."


def way_out(shown: Shown) -> None:
    """A button to a g where tile is a mistake, where the visitor's is none and h leaves one."""
    h, g = shown.cfg.n_heads, shown.cfg.n_kv_heads
    between = [number for number in divisors(h) if 1 < number < h]
    if not between or 1 < g < h:
        return
    wanted = between[len(between) // 2]

    def take() -> None:
        if state.component_value("way_out", "set").get("name") == "share":
            state.set_sizes({"n_kv_heads": wanted})

    control_bar([], actions={"share": f"See tile go wrong: g = {wanted}"}, key="way_out", on_set=take)


def order_table(shown: Shown) -> None:
    """The three orders, and what each self-check says of them; why one of them is harmless, where one is."""
    harmless = [harmless_words(check.name, shown.cfg) for check in shown.checks[1:] if check.harmless]
    table(
        ("order", "shape of q", "shape of out", "rows of the pattern sum to 1", "pattern", "out", "verdict"),
        [_row(shown, check) for check in shown.checks],
        caption=" ".join([CHECK_WORDS, *harmless]),
        file="headroom-orders",
        recipe=recipe(shown.run, figure="orders", layer=shown.layer),
        key="orders",
    )


def _row(shown: Shown, check: OrderCheck) -> tuple[str, ...]:
    shapes = ("(1, " + ", ".join(map(str, shape)) + ")" for shape in (check.q_shape, check.out_shape))
    figures = (f"off by {small(check.row_sums)}", small(check.pattern), small(check.out))
    return (ORDER_WORDS[check.name], *shapes, *figures, verdict(check, shown.largest))


def verdict(check: OrderCheck, largest: float) -> str:
    """What the comparison with the loop says; largest: of the numbers in the output."""
    if max(check.out / largest, check.pattern) <= TOLERANCE:
        if check.name == RIGHT:
            return "✓ the loop's numbers"
        return "✓ harmless here" if check.harmless else "✓ other numbers, but this sentence does not show it"
    return "✗ wrong numbers, caught by the loop"
