"""Numbers as people type them: "128k", "131,072", "10 million"; a wrong one gets a sentence and the nearest good."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from mha_view.settings import shorten

NUMBER = re.compile(r"([+-]?(?:\d{1,3}(?:[,_' ]\d{3})+|\d+)(?:\.\d+)?)(?:e([+-]?\d{1,2}))?\s*([a-z]*)", re.IGNORECASE)
WORDS = {"": 1, "thousand": 10**3, "million": 10**6, "mio": 10**6, "billion": 10**9, "bn": 10**9}
LETTERS = ("k", "m", "b")
# Longer ones are beyond every limit here, and slow to read as a number.
MAX_DIGITS = 60


@dataclass(frozen=True)
class Span:
    """What a typed number may be. kilo: what "k" stands for, 1,024 for tokens and 1,000 for all else."""

    label: str
    low: int
    high: int
    kilo: int = 1000


@dataclass(frozen=True)
class Typed:
    """The number that is used, and a sentence where it is not what was typed."""

    value: int
    problem: str = ""


def typed_number(text: str, kilo: int = 1000) -> Fraction | None:
    """``text`` as a number, or None where it is none."""
    found = NUMBER.fullmatch(" ".join(text.split()))
    if found is None:
        return None
    number, power, word = re.sub(r"[,_' ]", "", found[1]), int(found[2] or 0), found[3].lower()
    factors = {**WORDS, **{letter: kilo ** (i + 1) for i, letter in enumerate(LETTERS)}, "g": kilo**3}
    if word not in factors:
        return None
    if len(number) > MAX_DIGITS:
        return Fraction(10) ** MAX_DIGITS * (-1 if number.startswith("-") else 1)
    return Fraction(number) * Fraction(10) ** power * factors[word]


def settled(text: str | None, span: Span, default: int) -> Typed:
    """The whole number that ``text`` stands for; where it cannot be, the nearest that can, and why."""
    if text is None:
        return Typed(default)
    number = typed_number(text, span.kilo)
    if number is None:
        return Typed(default, f"{span.label}: {shorten(text)} is no number; {default:,} is taken instead.")
    value = min(max(round(number), span.low), span.high)
    if not span.low <= number <= span.high:
        can = f"{span.label} can be {span.low:,} to {span.high:,}"
        return Typed(value, f"{span.label}: {shorten(text)} is out of range; {can}. {value:,} is taken instead.")
    if value != number:
        return Typed(value, f"{span.label}: {shorten(text)} is no whole number; {value:,} is taken instead.")
    return Typed(value)
