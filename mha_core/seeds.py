"""Random weights that are the same on every machine, and touch no global random state."""

from __future__ import annotations

import hashlib

import torch
from torch import nn


def generator_for(seed: int, *path: object) -> torch.Generator:
    """A CPU generator for one named tensor: the same seed and path always give the same numbers.

    Each tensor has its own stream, so a change of g redraws W_K and W_V and leaves W_Q and W_O alone.
    """
    name = "/".join(str(part) for part in (seed, *path))
    digest = hashlib.sha256(name.encode()).digest()
    return torch.Generator().manual_seed(int.from_bytes(digest[:8], "big") >> 1)


def linear(d_in: int, d_out: int, *, bias: bool, seed: int, path: tuple[object, ...]) -> nn.Linear:
    """An nn.Linear with torch's own default spread, U(-1/sqrt(d_in), 1/sqrt(d_in)), from its own stream.

    Under ``torch.device("meta")`` it has its shapes and no numbers.
    """
    layer = nn.Linear(d_in, d_out, bias=bias, device="meta")
    if torch.get_default_device().type == "meta":
        return layer
    layer = layer.to_empty(device="cpu")
    bound = d_in**-0.5
    generator = generator_for(seed, *path)
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return layer


def embedding(n_rows: int, width: int, *, std: float, seed: int, path: tuple[object, ...]) -> nn.Embedding:
    """An nn.Embedding with normal entries of spread ``std``, from its own stream."""
    layer = nn.Embedding(n_rows, width, device="meta").to_empty(device="cpu")
    with torch.no_grad():
        layer.weight.normal_(0.0, std, generator=generator_for(seed, *path))
    return layer
