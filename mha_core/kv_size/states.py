"""States of fixed size: the formulas of vLLM's mamba_utils.py, each with the fields that call for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mha_core.kv_size import fields as f
from mha_core.kv_size.config import Config
from mha_core.kv_size.specs import State
from mha_core.kv_size.values import whole

# conv (kernel - 1) columns; which of the names of a size is in the file differs from model to model.
KERNEL = ("mamba_d_conv", "conv_kernel", "conv1d_width", "linear_conv_kernel_dim", "d_conv")
N_STATE = ("mamba_d_state", "ssm_state_size", "state_size", "d_state")
EXPAND = ("mamba_expand", "expand")
HEADS = ("mamba_n_heads", "mamba_num_heads", "n_mamba_heads", "num_heads")
HEAD_WIDTH = ("mamba_d_head", "mamba_head_dim", "mamba_headdim")
PARTS = ("mamba_n_groups", "mamba_ngroups", "n_groups")
# mamba2's own config calls the width of a head head_dim, as attention does elsewhere.
OWN_HEAD_DIM = "mamba2"


def state_of(config: Config) -> State | None:
    """The state of one layer, or None where the file does not give all its sizes."""
    for formula in FORMULAS:
        try:
            if found := formula(config):
                return found
        except _NotGivenError:
            continue
    return None


class _NotGivenError(Exception):
    """A size that a formula needs is not in the file."""


def _size(config: Config, names: tuple[str, ...], default: int | None = None) -> int:
    found = config.number(tuple(name for name in names if config.get(name) != "auto"), f.MAX_WIDTH)
    if found is None and default is None:
        raise _NotGivenError
    return default or 0 if found is None else found.value


def _part(config: Config, whole_of: str, name: str) -> int:
    part: dict[str, Any] = config.get(whole_of) or {}
    if part.get(name) is None:
        raise _NotGivenError
    return whole(f"{whole_of}.{name}", part[name], 1, f.MAX_WIDTH)


def _short_conv(config: Config) -> State | None:
    """LFM2: (k - 1) columns of the layer's width."""
    if config.get("conv_L_cache") is None:
        return None
    kernel = _size(config, ("conv_L_cache",))
    return State(
        "short convolution", _size(config, ("conv_dim", *f.HIDDEN)), kernel - 1, 0, origins=_origin("conv_L_cache")
    )


def _delta_attention(config: Config) -> State | None:
    """Kimi Linear: conv (k - 1) * 3 h d, recurrent h d d."""
    if not isinstance(config.get("linear_attn_config"), dict):
        return None
    heads, width = (_part(config, "linear_attn_config", name) for name in ("num_heads", "head_dim"))
    kernel = _part(config, "linear_attn_config", "short_conv_kernel_size")
    return State(
        "delta attention", 3 * heads * width, kernel - 1, heads * width**2, origins=_origin("linear_attn_config")
    )


def _delta_net(config: Config) -> State | None:
    """Qwen3-Next: conv (k - 1) * (2 hk dk + hv dv), recurrent hv dv dk."""
    if config.get("linear_num_value_heads") is None:
        return None
    hk, dk = _size(config, ("linear_num_key_heads",)), _size(config, ("linear_key_head_dim",))
    hv, dv = _size(config, ("linear_num_value_heads",)), _size(config, ("linear_value_head_dim",))
    kernel = _size(config, KERNEL)
    return State(
        "gated delta net", 2 * hk * dk + hv * dv, kernel - 1, hv * dv * dk, origins=_origin("linear_num_value_heads")
    )


def _linear_unit(config: Config) -> State | None:
    """RecurrentGemma's RG-LRU: conv (k - 1) * w, recurrent w."""
    if config.get("lru_width") is None:
        return None
    width = _size(config, ("lru_width",))
    return State("RG-LRU", width, _size(config, KERNEL) - 1, width, origins=_origin("lru_width"))


def _mamba2(config: Config) -> State | None:
    """Conv (k - 1) * (d_inner + 2 parts n), recurrent heads * width * n."""
    names = (*HEAD_WIDTH, "head_dim") if config.model_type == OWN_HEAD_DIM else HEAD_WIDTH
    if config.first(names) is None:
        return None
    heads, n = _size(config, HEADS), _size(config, N_STATE)
    inner = _size(config, ("mamba_d_ssm",), 0) or _size(config, EXPAND, 2) * _size(config, f.HIDDEN)
    width = _size(config, names, inner // heads)
    conv = heads * width + 2 * _size(config, PARTS, 1) * n
    return State("Mamba-2", conv, _size(config, KERNEL) - 1, heads * width * n, origins=_origin(names[0]))


def _mamba1(config: Config) -> State | None:
    """Conv (k - 1) * d_inner, recurrent d_inner * n."""
    if config.first(N_STATE) is None:
        return None
    inner = _size(config, EXPAND, 2) * _size(config, f.HIDDEN)
    recurrent = inner * _size(config, N_STATE)
    return State("Mamba", inner, _size(config, KERNEL) - 1, recurrent, origins=_origin(config.first(N_STATE) or ""))


def _lightning(config: Config) -> State | None:
    """MiniMax's lightning attention: one d x d matrix per head, no convolution."""
    if config.get("attn_type_list") is None and config.model_type != "minimax":
        return None
    heads, width = _size(config, f.N_HEADS), _size(config, f.HEAD_DIM)
    return State("lightning attention", 0, 0, heads * width**2, origins=_origin("num_attention_heads"))


def _origin(name: str) -> tuple[tuple[str, str], ...]:
    return (("state", name),)


FORMULAS: tuple[Callable[[Config], State | None], ...] = (
    _short_conv, _delta_attention, _delta_net, _linear_unit, _mamba2, _mamba1, _lightning,
)  # fmt: skip
