"""What every module here shares: the one error, wrong values as their sentences show them, and whole numbers."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass

MAX_SHOWN = 40
WHOLE = re.compile(r"[+-]?\d{1,18}(\.0+)?")


class ReadError(ValueError):
    """Raised where no cache size can be answered; the message is one sentence that names the thing."""


@dataclass(frozen=True)
class HugeNumber:
    """Stands for a number in the text that is too long to be read as one."""

    digits: int


def shown(value: object) -> str:
    """A value as a sentence shows it: one line, never long."""
    if isinstance(value, HugeNumber):
        return f"a number of {value.digits:,} digits"
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, int):
        digits = value.bit_length() * 30103 // 100000 + 1
        return f"{value:,}" if digits < 19 else f"a number of about {digits:,} digits"
    if isinstance(value, (list, dict)):
        return f"a list of {len(value):,}" if isinstance(value, list) else "an object"
    text = value if isinstance(value, str) else repr(value)
    text = " ".join(text[: 4 * MAX_SHOWN].split())
    # A sign that moves a terminal's cursor, or half a surrogate pair, is shown as a question mark.
    text = "".join(sign if sign.isprintable() else "?" for sign in text)
    return text if len(text) <= MAX_SHOWN else text[: MAX_SHOWN - 3] + "..."


def listed(names: Iterable[str]) -> str:
    """Names as a person would say them: "a, b and c"."""
    *head, last = names
    return f"{', '.join(head)} and {last}" if head else last


def tidy(value: object) -> object:
    """A whole number written as text or with a point, as the number it is; anything else unchanged."""
    if isinstance(value, str) and WHOLE.fullmatch(value.strip()):
        return int(value.split(".")[0])
    if isinstance(value, float) and math.isfinite(value) and value == int(value) and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [tidy(item) for item in value]
    return value


def whole(field: str, value: object, low: int, high: int) -> int:
    """``value`` as a whole number from ``low`` to ``high``; raises ReadError naming the field."""
    value = tidy(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise ReadError(f"{field} must be a whole number from {low:,} to {high:,}, not {shown(value)}.")
    if value < low:
        raise ReadError(f"{field} must be at least {low:,}, not {shown(value)}.")
    if value > high:
        raise ReadError(f"{field} = {shown(value)} is over the limit of {high:,}.")
    return value
