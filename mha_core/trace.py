"""What a pass leaves behind: every step of attention as a named, frozen value."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int
from torch import Tensor

from mha_core.config import AttentionConfig


@dataclass(frozen=True)
class Step:
    """One step of a trace: its axes, its formula in the field's symbols, and the steps it is computed from."""

    name: str
    axes: tuple[str, ...]
    formula: str
    reads: tuple[str, ...]


def step(axes: str, formula: str, reads: str = "") -> dict[str, Any]:
    """The metadata that makes a field of a trace a step (axes and reads are words apart by blanks)."""
    return {"step": (tuple(axes.split()), formula, tuple(reads.split()))}


def steps_of(trace_class: type) -> tuple[Step, ...]:
    """The steps of a trace class, in the order in which they are computed."""
    declared = [(f.name, f.metadata["step"]) for f in fields(trace_class) if "step" in f.metadata]
    return tuple(Step(name, *about) for name, about in declared)


class Traced:
    """What the traces of all kinds of attention can do with their steps."""

    @property
    def nbytes(self) -> int:
        """Bytes held by the steps (views and shared tensors are counted once)."""
        storages = {s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in self._tensors())}
        return sum(storages.values())

    def array(self, name: str) -> np.ndarray:
        """One step of the first sentence as a read-only numpy array, without the batch axis."""
        known = [s.name for s in steps_of(type(self))]
        if name not in known:
            raise KeyError(f"there is no step {name!r}; the steps are {', '.join(known)}")
        tensor: Tensor = getattr(self, name)[0]
        array: np.ndarray = tensor.numpy() if name == "mask" else tensor.detach().float().numpy()
        array = array.view()
        array.flags.writeable = False
        return array

    def _tensors(self) -> list[Tensor]:
        return [getattr(self, s.name) for s in steps_of(type(self))]


@dataclass(frozen=True, eq=False)
class AttentionTrace(Traced):
    """Every step of one grouped-query attention layer, on the CPU, with the batch axis b first.

    Axes: b sentences, n tokens, h query heads, g KV heads, d_k head width. Keys run along the last axis of
    ``scores``, ``mask`` and ``pattern``. ``W_O`` is the output projection's weight, shared with the module and
    not copied; ``head_writes`` refuses to use it once it has changed.
    """

    cfg: AttentionConfig
    x: Float[Tensor, "b n d_model"] = field(metadata=step("b n d_model", "X"))
    q: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "Q = X W_Q, split into h heads", "x"))
    k: Float[Tensor, "b g n d_k"] = field(metadata=step("b g n d_k", "K = X W_K, split into g KV heads", "x"))
    v: Float[Tensor, "b g n d_k"] = field(metadata=step("b g n d_k", "V = X W_V, split into g KV heads", "x"))
    q_rot: Float[Tensor, "b h n d_k"] = field(
        metadata=step("b h n d_k", "Q turned by its position (Q itself without rotary)", "q")
    )
    k_rot: Float[Tensor, "b g n d_k"] = field(
        metadata=step("b g n d_k", "K turned by its position (K itself without rotary)", "k")
    )
    scores: Float[Tensor, "b h n n"] = field(metadata=step("b h n n", "Q_rot K_rot^T / sqrt(d_k)", "q_rot k_rot"))
    mask: Bool[Tensor, "b n n"] = field(metadata=step("b n n", "True where a query may see a key"))
    pattern: Float[Tensor, "b h n n"] = field(
        metadata=step("b h n n", "softmax over the visible keys of scores", "scores mask")
    )
    z: Float[Tensor, "b h n d_k"] = field(metadata=step("b h n d_k", "pattern V", "pattern v"))
    concat: Float[Tensor, "b n h*d_k"] = field(
        metadata=step("b n h*d_k", "the z of all heads side by side, each times its gate", "z")
    )
    out: Float[Tensor, "b n d_model"] = field(
        metadata=step("b n d_model", "concat W_O (plus the output bias, if any)", "concat")
    )
    W_O: Float[Tensor, "d_model h*d_k"] = field(repr=False)
    W_O_version: int = field(repr=False)

    @property
    def k_shared(self) -> Float[Tensor, "b g heads_per_kv n d_k"]:
        """The keys as the query heads see them, h/g heads on one KV head: a view, no copy."""
        return _shared(self.k_rot, self.cfg.heads_per_kv)

    @property
    def v_shared(self) -> Float[Tensor, "b g heads_per_kv n d_k"]:
        """The values as the query heads see them, h/g heads on one KV head: a view, no copy."""
        return _shared(self.v, self.cfg.heads_per_kv)

    @property
    def rows_without_keys(self) -> Bool[Tensor, "b n"]:
        """True for a token that may see no key at all: its pattern row is zeros, by definition."""
        return ~self.mask.any(-1)

    def w_o_slice(self, head: int) -> Float[Tensor, "d_k d_model"]:
        """The rows of W_O that belong to one head.

        The formula multiplies from the right (concat W_O), nn.Linear keeps the transpose, so the h row slices of
        W_O stand as columns in ``nn.Linear.weight``. Raises RuntimeError once the weights have changed.
        """
        if version_of(self.W_O) != self.W_O_version:
            raise RuntimeError("the weights changed after this trace was made; trace again to see the head writes")
        d_k = self.cfg.head_dim
        return self.W_O[:, head * d_k : (head + 1) * d_k].T

    def head_writes(self, rows: slice = slice(None)) -> Float[Tensor, "b h rows d_model"]:
        """What each head adds to the residual stream: its slice of concat times its slice of W_O; the sum is out."""
        d_k, concat = self.cfg.head_dim, self.concat[:, rows]
        writes = self.x.new_empty((concat.shape[0], self.cfg.n_heads, concat.shape[1], self.x.shape[-1]))
        for head in range(self.cfg.n_heads):
            writes[:, head] = concat[..., head * d_k : (head + 1) * d_k] @ self.w_o_slice(head)
        return writes


STEPS = steps_of(AttentionTrace)


@dataclass(frozen=True, eq=False)
class CachedTrace(Traced):
    """Every step of one layer for the m newest tokens, which look at n cached tokens, themselves included.

    Axes as in ``AttentionTrace``. ``positions`` says where in the text each of the n keys stands: a ring does not keep
    them in order. ``k`` and ``v`` are those of the new tokens; those of the cache are not kept with every step.
    """

    cfg: AttentionConfig
    positions: Int[Tensor, "n"]
    x: Float[Tensor, "b m d_model"] = field(metadata=step("b m d_model", "X, the new tokens' rows"))
    q: Float[Tensor, "b h m d_k"] = field(metadata=step("b h m d_k", "Q = X W_Q, split into h heads", "x"))
    k: Float[Tensor, "b g m d_k"] = field(metadata=step("b g m d_k", "K = X W_K, split into g KV heads", "x"))
    v: Float[Tensor, "b g m d_k"] = field(metadata=step("b g m d_k", "V = X W_V, split into g KV heads", "x"))
    q_rot: Float[Tensor, "b h m d_k"] = field(
        metadata=step("b h m d_k", "Q turned by its position (Q itself without rotary)", "q")
    )
    k_rot: Float[Tensor, "b g m d_k"] = field(
        metadata=step("b g m d_k", "K turned by its position (K itself without rotary)", "k")
    )
    scores: Float[Tensor, "b h m n"] = field(
        metadata=step("b h m n", "Q_rot times the cached K_rot^T / sqrt(d_k)", "q_rot k_rot")
    )
    mask: Bool[Tensor, "b m n"] = field(metadata=step("b m n", "True where a query may see a key"))
    pattern: Float[Tensor, "b h m n"] = field(
        metadata=step("b h m n", "softmax over the visible keys of scores", "scores mask")
    )
    z: Float[Tensor, "b h m d_k"] = field(metadata=step("b h m d_k", "pattern times the cached V", "pattern v"))
    concat: Float[Tensor, "b m h*d_k"] = field(
        metadata=step("b m h*d_k", "the z of all heads side by side, each times its gate", "z")
    )
    out: Float[Tensor, "b m d_model"] = field(
        metadata=step("b m d_model", "concat W_O (plus the output bias, if any)", "concat")
    )


CACHED_STEPS = steps_of(CachedTrace)


@dataclass(frozen=True, eq=False)
class StreamPart:
    """One part of the model writing into the residual stream: before + write = after."""

    layer: int
    kind: str
    before: Float[Tensor, "b n d_model"]
    write: Float[Tensor, "b n d_model"]
    after: Float[Tensor, "b n d_model"]


@dataclass(frozen=True, eq=False)
class ModelTrace:
    """A whole pass: the tokens, the residual stream around every part, one trace per layer, and the logits."""

    token_ids: Int[Tensor, "b n"]
    embedded: Float[Tensor, "b n d_model"]
    parts: tuple[StreamPart, ...]
    layers: tuple[AttentionTrace, ...]
    logits: Float[Tensor, "b n vocab"]

    @property
    def nbytes(self) -> int:
        """Bytes held by this trace, for a cache that must stay bounded."""
        stream = sum(part.write.nbytes + part.after.nbytes for part in self.parts)
        return stream + self.embedded.nbytes + self.logits.nbytes + sum(layer.nbytes for layer in self.layers)

    def next_token_probabilities(self, position: int = -1) -> np.ndarray:
        """What the model expects after ``position`` in the first sentence: one probability per vocabulary entry."""
        return self.logits[0, position].detach().float().softmax(-1).numpy()


def version_of(weight: Tensor) -> int:
    """How often a tensor has been written to; torch does not count it for tensors made in inference mode."""
    return 0 if weight.is_inference() else weight._version


def _shared(tensor: Tensor, heads_per_kv: int) -> Tensor:
    # (b, g, n, d_k) -> (b, g, h/g, n, d_k)
    return tensor[:, :, None].expand(-1, -1, heads_per_kv, -1, -1)


def trace_nbytes(cfg: AttentionConfig, n_tokens: int, bytes_per_number: int = 4) -> int:
    """Bytes one layer's trace will hold for ``n_tokens``, before anything is allocated (rotary counted as kept)."""
    h, g, d_k, n = cfg.n_heads, cfg.n_kv_heads, cfg.head_dim, n_tokens
    vectors = 2 * n * cfg.d_model + n * d_k * (4 * h + 3 * g)
    return bytes_per_number * (vectors + 2 * h * n * n) + n * n
