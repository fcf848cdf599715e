"""What each stage of the page Flow is called, what happens in it, and what to notice there."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StageWords:
    """A heading, one sentence of what happens, what to notice, and the signs between the columns of the picture."""

    title: str
    text: str
    notice: str
    signs: tuple[str, ...] = ()


STAGE_WORDS = {
    "X": StageWords(
        "One row of numbers for each token",
        "Attention reads X: a row for each token, as wide as the model.",
        "In a whole model X is the residual stream, normalised: what earlier parts wrote about a token is in its row.",
    ),
    "W_Q W_K W_V": StageWords(
        "Three products: queries, keys, values",
        "Each row of X is multiplied with three matrices: what it asks, what it answers, what it carries.",
        "One large product each. The h heads are already in it, side by side: slices of one hue read the same K and V.",
        ("×", "="),
    ),
    "heads": StageWords(
        "The same numbers, cut into heads",
        "Nothing is computed: every row is cut into pieces of d_k numbers, one for each head.",
        "Count the slices: Q has h of them, K and V have g; with g below h, several query heads share a slice.",
        ("cut", "", ""),
    ),
    "rotary": StageWords(
        "Position enters: queries and keys are turned",
        "Pairs of numbers are turned by an angle that grows with the position; values are not turned.",
        "The first row has position 0 and stays as it is. Fast pairs stand left, slow pairs right.",
        ("", "turn", ""),
    ),
    "scores": StageWords(
        "Every query meets every key",
        "A score is the dot product of one query and one key of the same head.",
        "A row belongs to the token that looks, a column to the token that is looked at.",
        ("×", "="),
    ),
    "scale": StageWords(
        "Divided by the square root of d_k",
        "Wider heads add up more products; dividing by the root of d_k keeps the scores in the same range.",
        "The picture stays the same, its range does not: compare the two legends.",
        ("scale",),
    ),
    "mask": StageWords(
        "Some keys are hidden",
        "The mask says which keys a query may see; it is the same for all heads.",
        "Hidden is not zero: a hidden score never enters the softmax.",
        ("", "="),
    ),
    "softmax": StageWords(
        "Scores become weights",
        "In each row the visible scores become weights above 0 that sum to 1.",
        "The largest score takes most: a difference of 1 between two scores is a factor of 2.7 between the weights.",
        ("softmax",),
    ),
    "x V": StageWords(
        "Each token collects values",
        "A token's z is the sum of the values, each times its weight.",
        "Where a weight is near 1, the row of z is nearly a copy of one row of V.",
        ("×", "="),
    ),
    "concat": StageWords(
        "The heads stand side by side again",
        "Nothing is computed: the z of all heads are laid next to each other.",
        "h pieces of d_k numbers make one row; up to here no head knows of another.",
        ("join",),
    ),
    "W_O": StageWords(
        "W_O mixes the heads",
        "Row slice i of W_O turns head i's z into a vector of full width; the output is the sum of all of them.",
        "Each hue of concat meets its own rows of W_O and no others: below, the same sum is drawn head by head.",
        ("×", "="),
    ),
    "+ residual": StageWords(
        "The output is added to the stream",
        "The layer writes its output into the residual stream; what stood there stays.",
        "Look how much of the stream is new: compare the ranges in the legend.",
        ("+", "="),
    ),
}
