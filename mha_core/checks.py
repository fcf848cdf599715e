"""Does a run keep its promises? Each law is measured on the run itself, by another path than the run took."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from mha_core.trace import STEPS, AttentionTrace, ModelTrace
from mha_core.transformer import Transformer


@dataclass(frozen=True)
class Check:
    """One law: its name, what was measured, the largest deviation found and how much is allowed."""

    name: str
    sentence: str
    deviation: float
    tolerance: float

    @property
    def ok(self) -> bool:
        """Whether the law held; NaN never does."""
        return self.deviation <= self.tolerance


@torch.no_grad()
def check_run(model: Transformer, trace: ModelTrace) -> tuple[Check, ...]:
    """Measure six laws on a finished run of ``model``. Costs about as much as the run."""
    layers = trace.layers
    logits = model(trace.token_ids.to(next(model.parameters()).device)).cpu()
    size = max(1.0, float(trace.logits.abs().max()))
    return (
        Check("rows sum to 1", "largest |sum of a row - 1| over all heads", _worst(_row_sums, layers), 1e-5),
        Check("no NaN", "numbers in the trace that are not finite", float(sum(map(_not_finite, layers))), 0.0),
        Check("nothing seen through the mask", "largest weight on a hidden key", _worst(_leak, layers), 0.0),
        Check(
            "trace = fused pass",
            "largest difference of the logits between the step-by-step and the fast path, over the largest logit",
            float((logits - trace.logits).abs().max()) / size,
            1e-4,
        ),
        Check("head writes sum to out", "largest |sum of writes (and bias) - out|", _unsummed(model, layers), 1e-4),
        Check(
            "shared K, V = expanded K, V",
            "largest difference of z when every query head gets its own copy of its keys and values",
            _worst(_unshared, layers),
            1e-4,
        ),
    )


def _worst(measure: Callable[[AttentionTrace], Tensor], layers: tuple[AttentionTrace, ...]) -> float:
    # torch's maximum keeps a NaN, Python's may lose it.
    return float(torch.stack([measure(layer).float() for layer in layers]).max())


def _row_sums(layer: AttentionTrace) -> Tensor:
    sums = layer.pattern.sum(-1)
    expected = (~layer.rows_without_keys)[:, None].to(sums)
    return (sums - expected).abs().max()


def _not_finite(layer: AttentionTrace) -> int:
    steps = [getattr(layer, step.name) for step in STEPS if step.name != "mask"]
    # A sum is finite only if every number in it is: counting them one by one is left to the bad case.
    return sum(int((~torch.isfinite(step)).sum()) for step in steps if not torch.isfinite(step.sum()))


def _leak(layer: AttentionTrace) -> Tensor:
    return (layer.pattern * ~layer.mask[:, None]).abs().max()


def _unsummed(model: Transformer, layers: tuple[AttentionTrace, ...]) -> float:
    biases = iter([attention.W_O.bias for attention in model.attention_layers()])

    def measure(layer: AttentionTrace) -> Tensor:
        bias = next(biases)
        summed = layer.head_writes().sum(1)
        return ((summed if bias is None else summed + bias.cpu()) - layer.out).abs().max()

    return _worst(measure, layers)


def _unshared(layer: AttentionTrace) -> Tensor:
    times = layer.cfg.heads_per_kv
    k, v = (shared.repeat_interleave(times, dim=1) for shared in (layer.k_rot, layer.v))
    z = scaled_dot_product_attention(layer.q_rot, k, v, attn_mask=layer.mask[:, None], scale=layer.cfg.scale)
    seen = ~layer.rows_without_keys[:, None, :, None]
    return ((z - layer.z) * seen).abs().max()
