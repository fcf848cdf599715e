"""Who makes one word likelier than another: every part's direct contribution to the difference of two logits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from mha_core.analysis.residual import Attribution, Part, collected
from mha_view.components import declare
from mha_view.components.feed import feed
from mha_view.components.stream import link_of
from mha_view.theme import small

MOST_BARS = 32

_attribution = declare("attribution")


def attribution_view(data: Mapping[str, Any], *, recipe: Mapping[str, Any], on_open: Callable[[], None]) -> None:
    """Draw what ``packed_attribution`` made; a press on a head's bar reports ``open`` = the link of that head."""
    feed("attribution", "data", {**data, "recipe": dict(recipe)})
    _attribution(data={}, key="attribution", default={"open": None}, on_open_change=on_open)


def packed_attribution(found: Attribution, *, words: tuple[str, str], token: str, per_kv: int) -> dict[str, Any]:
    """The contributions as bars, largest first; the smallest together in one bar where there are many."""
    shown, left_out, rest = collected(found, MOST_BARS)
    return {
        "words": list(words),
        "token": token,
        "bars": [_bar(part, float(value), per_kv) for part, value in zip(shown.parts, shown.values, strict=True)],
        "others": {"count": left_out, "value": rest},
        "total": found.total,
        "difference": found.difference,
        "spread": found.spread,
        "sum": {
            "deviation": small(found.deviation),
            "tolerance": small(found.tolerance),
            "ok": found.deviation <= found.tolerance,
        },
        "told": attribution_words(found, words, token),
    }


def attribution_words(found: Attribution, words: tuple[str, str], token: str) -> str:
    """One sentence: which parts make the difference between the two words, and which head most of all."""
    ahead, behind = words if found.difference >= 0 else words[::-1]
    sign = 1 if found.difference >= 0 else -1
    ranked = sorted(zip(found.values * sign, found.parts, strict=True), key=lambda pair: -pair[0])
    first = " and ".join(f"{_spoken(part)} ({_signed(value)})" for value, part in ranked[:2] if value > 0)
    best = next(((value, part) for value, part in ranked[2:] if part.kind == "head" and value > 0), None)
    named = any(part.kind == "head" for _, part in ranked[:2])
    of_heads = "" if named or best is None else f"; of the heads, {_spoken(best[1])} ({_signed(best[0])})"
    return (
        f"After “{token}” the model prefers “{ahead}” to “{behind}” by {abs(found.difference):.3f} logits. "
        f"What adds most to that directly: {first}{of_heads}."
    )


def _spoken(part: Part) -> str:
    """A part in words: "layer 1's MLP", "layer 1, head 3"."""
    if part.kind == "head":
        return f"layer {part.layer}, head {part.head}"
    kind = "MLP" if part.kind == "mlp" else part.kind
    return f"the {kind}" if part.layer < 0 else f"the {kind} of layer {part.layer}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _bar(part: Part, value: float, per_kv: int) -> dict[str, Any]:
    kv_head = part.head // per_kv if part.kind == "head" else None
    return {"link": link_of(part), "name": part.name, "kind": part.kind, "kv": kv_head, "value": value}
