"""The worked example "The cat sat down" (d_model 8, h 2): weights written by hand, so that every number can be checked.

The numbers are constructed, not learned. A word's vector says where it stands (dimensions 0 to 3) and what kind of
word it is (4 to 7). Head 0 looks at the places beside it; head 1 lets the verb look for its subject, the noun.
"""

from __future__ import annotations

import torch
from torch import Tensor

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.trace import AttentionTrace

WORDS = ("The", "cat", "sat", "down")
KINDS = ("determiner", "noun", "verb", "adverb")
CONFIG = AttentionConfig(d_model=8, n_heads=2, n_kv_heads=2)

# How strongly a head asks. With d_k = 4 the scale halves it: scores of 2 and 3.
BESIDE, SUBJECT = 4.0, 6.0
NOUN, VERB = KINDS.index("noun"), KINDS.index("verb")


def layer() -> GroupedQueryAttention:
    """The attention layer with its constructed weights; a new one with each call."""
    made = GroupedQueryAttention(CONFIG).requires_grad_(False).eval()
    for name, weight in (("W_Q", _asks()), ("W_K", _answers()), ("W_V", _carries()), ("W_O", _writes())):
        # nn.Linear keeps the transpose of what the formulas multiply with.
        getattr(made, name).weight.copy_(weight.T)
    return made


def x() -> Tensor:
    """The four word vectors, (1, 4, 8): a 1 for the place, a 1 for the kind of word."""
    return torch.cat((torch.eye(4), torch.eye(4)), dim=1)[None]


def trace() -> AttentionTrace:
    """Every step of the example."""
    return layer().trace(x())


def _asks() -> Tensor:
    """W_Q: head 0 asks for the places beside its own; head 1 asks for a noun, and only the verb does."""
    weight = torch.zeros(8, 8)
    for place in range(4):
        for beside in (place - 1, place + 1):
            if 0 <= beside < 4:
                weight[place, beside] = BESIDE
    weight[4 + VERB, 4 + NOUN] = SUBJECT
    return weight


def _answers() -> Tensor:
    """W_K: in head 0 a key says its place, in head 1 its kind of word."""
    return torch.eye(8)


def _carries() -> Tensor:
    """W_V: both heads carry the kind of word."""
    weight = torch.zeros(8, 8)
    weight[4:, :4] = torch.eye(4)
    weight[4:, 4:] = torch.eye(4)
    return weight


def _writes() -> Tensor:
    """W_O: head 0 writes kinds into both halves, head 1 twice into the second and, against head 0, out of the first."""
    one = torch.eye(4)
    return torch.cat((torch.cat((one, one), dim=1), torch.cat((-one, 2 * one), dim=1)), dim=0)
