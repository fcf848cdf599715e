"""The same weights with fewer KV heads, nothing trained anew: W_K and W_V of heads that are to share become their mean.

This is how Ainslie et al. 2023 (GQA, section 2.1) convert a model; they go on to train it, which is not done here.
It does not matter that keys are pooled before they are turned by their positions: a rotation is linear, so the mean of
turned keys is the turned mean.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import kl_div

from mha_core.config import MAX_HEADS, AttentionConfig, ConfigError, Problem, divisors, or_list, whole_number_problem
from mha_core.trace import ModelTrace
from mha_core.training.evaluate import BATCH
from mha_core.training.recipe import PAD_ROW
from mha_core.transformer import Transformer

OF_KV_HEADS = ("W_K", "W_V")


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The same tokens through a model before and after its KV heads were pooled."""

    before: ModelTrace
    after: ModelTrace

    def patterns(self, layer: int) -> tuple[Float[np.ndarray, "h n n"], Float[np.ndarray, "h n n"]]:
        """What every head of a layer looks at, before and after; both have h maps, whatever g is."""
        return self.before.layers[layer].array("pattern"), self.after.layers[layer].array("pattern")

    def out_errors(self) -> tuple[float, ...]:
        """Length of the error of each layer's attention output as a share of that output's length, mean over rows."""
        both = zip(self.before.layers, self.after.layers, strict=True)
        return tuple(_relative_error(a.out, b.out).mean().item() for a, b in both)

    def divergence(self) -> float:
        """Kullback-Leibler divergence of the next word after pooling from that before, nats, mean over rows."""
        return _divergence(self.before.logits, self.after.logits).mean().item()


@dataclass(frozen=True)
class Distance:
    """How far a pooled model is from the one it was made of, over every word that has to be foretold.

    out_mean, out_largest: length of the error of the last layer's attention output, as a share of that output's length.
    stream_mean, stream_largest: the same of the residual stream after the last layer. kl: Kullback-Leibler divergence
    of the pooled model's next word from the first one's, nats per word, mean.
    """

    out_mean: float
    out_largest: float
    stream_mean: float
    stream_largest: float
    kl: float


def targets(n_kv_heads: int) -> tuple[int, ...]:
    """The numbers of KV heads that g can be pooled to, smallest first: its divisors, without g itself."""
    return divisors(n_kv_heads)[:-1]


def pooled(model: Transformer, n_kv_heads: int) -> Transformer:
    """The same model with fewer KV heads: those that now share become their mean, weights and biases alike.

    Consecutive heads share, so each query head reads the mean of a set that its own KV head was in. All else is
    copied, and nothing asks for gradients. Raises ConfigError for a number that is no smaller divisor of the model's g.
    """
    attention = model.cfg.attention
    if problem := _problem(attention, n_kv_heads):
        raise ConfigError([problem])
    cfg = replace(model.cfg, attention=replace(attention, n_kv_heads=n_kv_heads))
    fewer = Transformer(cfg).to(model.unembed.weight)
    # Copied, not shared: each layer lays its matrices side by side in memory of its own (joined.py).
    fewer.load_state_dict(
        {
            name: mean_of_heads(tensor, n_kv_heads, attention.head_dim) if _is_of_kv_heads(name) else tensor
            for name, tensor in model.state_dict().items()
        }
    )
    return fewer.eval().requires_grad_(False)


def mean_of_heads(rows: Float[Tensor, "g_d_k *d_model"], n_kv_heads: int, d_k: int) -> Float[Tensor, "_ *d_model"]:
    """The rows of all KV heads in a weight or bias, averaged over consecutive heads until ``n_kv_heads`` are left."""
    # (g d_k, ...) -> (fewer, g/fewer, d_k, ...) -> (fewer d_k, ...)
    return rows.unflatten(0, (n_kv_heads, -1, d_k)).mean(1).flatten(0, 1)


def side_by_side(model: Transformer, token_ids: Int[Tensor, "b n"], n_kv_heads: int) -> SideBySide:
    """A visitor's tokens before and after pooling, every step of both; raises ConfigError as ``pooled`` does."""
    return SideBySide(model.trace(token_ids), pooled(model, n_kv_heads).trace(token_ids))


def distance(before: Transformer, after: Transformer, rows: Int[Tensor, "s n"]) -> Distance:
    """How far the second model is from the first on sentences in rows of the vocabulary; padding is left out."""
    out, stream, divergence = [], [], []
    for batch in rows.split(BATCH):
        first, second = before.trace(batch[:, :-1]), after.trace(batch[:, :-1])
        foretold = batch[:, 1:] != PAD_ROW
        out.append(_relative_error(first.layers[-1].out, second.layers[-1].out)[foretold])
        stream.append(_relative_error(first.parts[-1].after, second.parts[-1].after)[foretold])
        divergence.append(_divergence(first.logits, second.logits)[foretold])
    both = [torch.cat(errors).double() for errors in (out, stream)]
    errors = [value.item() for error in both for value in (error.mean(), error.max())]
    return Distance(*errors, kl=torch.cat(divergence).double().mean().item())


def _problem(attention: AttentionConfig, n_kv_heads: object) -> Problem | None:
    """Why this g cannot be pooled to ``n_kv_heads``, or None."""
    if problem := whole_number_problem("n_kv_heads", "g", n_kv_heads, 1, MAX_HEADS):
        return problem
    g, choices = attention.n_kv_heads, targets(attention.n_kv_heads)
    if n_kv_heads in choices:
        return None
    if not choices:
        return Problem("n_kv_heads", "This model has a single KV head, g = 1; there is nothing left to pool.")
    why = "it must be smaller and divide it"
    return Problem("n_kv_heads", f"g = {g:,} cannot be pooled to {n_kv_heads:,}: {why}; g can be {or_list(choices)}.")


def _is_of_kv_heads(name: str) -> bool:
    """Whether a parameter, by its name in the model, belongs to the keys or the values."""
    return name.split(".")[-2] in OF_KV_HEADS


def _relative_error(right: Float[Tensor, "b n d_model"], found: Float[Tensor, "b n d_model"]) -> Float[Tensor, "b n"]:
    return (found - right).norm(dim=-1) / right.norm(dim=-1)


def _divergence(right: Float[Tensor, "b n vocab"], found: Float[Tensor, "b n vocab"]) -> Float[Tensor, "b n"]:
    return kl_div(found.log_softmax(-1), right.log_softmax(-1), log_target=True, reduction="none").sum(-1)
