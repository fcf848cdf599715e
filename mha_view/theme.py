"""Hues, inks and number formats, for light and dark: the only place where a colour is named."""

from __future__ import annotations

# Eight hues that stay apart for colour-blind readers when told with their labels; beyond eight they repeat.
HUES = {
    "light": ("#2b6cb0", "#b3403a", "#2f8552", "#7a55b0", "#a86410", "#0f8289", "#a3468c", "#727f12"),
    "dark": ("#6cb2f7", "#ff8f80", "#6fce8b", "#b79cf2", "#e5a94d", "#22cfd3", "#ef86cd", "#b9c64a"),
}
INKS = {
    "light": {
        "paper": "#fbfaf7",
        "tile": "#f1efe9",
        "ink": "#1a2130",
        "muted": "#5b6579",
        "line": "#dfdbd2",
        "hatch": "#d3cec2",
        "good": "#24784a",
        "bad": "#b3261e",
        "other": "#5f6672",
        "accent": "#2b5c8f",
        "stream": "#00809b",
    },
    "dark": {
        "paper": "#12161d",
        "tile": "#222a35",
        "ink": "#e9edf3",
        "muted": "#9aa6b8",
        "line": "#303a47",
        "hatch": "#3a4554",
        "good": "#6fd39b",
        "bad": "#ff8f80",
        "other": "#aab3c0",
        "accent": "#7db0ea",
        "stream": "#3cc4ea",
    },
}
LOG_FLOOR = 1e-4


def palette() -> dict[str, object]:
    """Everything the browser needs to colour a picture, for both themes."""
    return {"hues": HUES, "inks": INKS, "logFloor": LOG_FLOOR}


def weight(value: float) -> str:
    """A weight between 0 and 1 with three digits; a tiny one is not shown as zero."""
    return f"{value:.0e}" if 0 < abs(value) < 5e-4 else f"{value:.3f}"


def bytes_text(count: int) -> str:
    """Bytes in the largest binary unit that keeps them above one: "3.00 KiB"."""
    for unit, size in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if count >= size:
            return f"{count / size:.2f} {unit}"
    return f"{count} B"


def small(value: float) -> str:
    """A deviation as people write it: "0", "3.6e-07" or "6.02"."""
    return "0" if value == 0 else f"{value:.1e}" if abs(value) < 0.001 else f"{value:.3g}"
