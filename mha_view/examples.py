"""Sentences one click away: pairs that differ in one word and send a head somewhere else."""

from __future__ import annotations

from dataclasses import dataclass

from mha_view.settings import DEFAULTS


@dataclass(frozen=True)
class Example:
    """A sentence, the short name on its button, and what to look for."""

    name: str
    sentence: str
    notice: str


EXAMPLES = (
    Example("sat on", DEFAULTS.sentence, "The verb “sat” makes “it” the cat, the one who sat."),
    Example(
        "looked for",
        "The cat looked for the mat because it was soft.",
        "One verb changes and “it” moves: what was looked for is the mat.",
    ),
    Example(
        "tired → soft",
        "The cat sat on the mat because it was soft.",
        "Only the last word changes. A causal model reads it after “it”, so the row of “it” cannot change.",
    ),
    Example(
        "it → they",
        "The cats sat on the mat because they were tired.",
        "The pronoun is plural, and so is the only noun it fits.",
    ),
    Example(
        "said twice",
        "cat soft the near boys cat soft the near boys",
        "A list said twice: induction heads look at what followed the same word before.",
    ),
)
