"""What only the model type tells: patterns that stand in code and not in the file, models without a cache."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class Every:
    """Layer i is full where i % period == offset, else of the kind ``other``."""

    period: int
    offset: int
    other: str = "sliding"
    first: int = 0
    last_full: bool = False

    def kinds(self, n_layers: int, period: int | None = None) -> list[str]:
        """The kind of each layer; another period of the file keeps the place within it."""
        every = self.period if period is None else period
        place = every - 1 if self.offset == self.period - 1 else self.offset
        found = ["full" if i < self.first or i % every == place else self.other for i in range(n_layers)]
        return [*found[:-1], "full"] if self.last_full and found else found


def last_of(period: int, other: str = "sliding", *, last_full: bool = False) -> Every:
    """The last of every ``period`` layers is full."""
    return Every(period, period - 1, other, last_full=last_full)


# From transformers 5.24.0, configuration_*.py (__post_init__) unless said otherwise.
PATTERNS: dict[str, Every] = {
    "gemma2": last_of(2),
    "gemma3": last_of(6),
    "gemma3_text": last_of(6),
    "gemma3n": last_of(5),
    "gemma3n_text": last_of(5),
    "gemma4": last_of(6, last_full=True),
    "gemma4_text": last_of(6, last_full=True),
    "gemma4_unified_text": last_of(6, last_full=True),
    "vaultgemma": last_of(2),
    "t5gemma": last_of(2),
    "gpt_oss": last_of(2),
    "cohere2": last_of(4),
    "exaone4": last_of(4),
    "exaone_moe": last_of(4),
    "olmo3": last_of(4),
    "afmoe": last_of(4),
    "kolibri1": last_of(5),
    "beam": last_of(6, last_full=True),
    "cwm": Every(4, 0),
    "granite_swa": Every(4, 0),
    "granitemoe_swa": Every(4, 0),
    "mimo_v2_flash": Every(6, 5, first=1),
    "flint": Every(4, 1, first=2, last_full=True),
    "llama4": last_of(4, "chunked"),
    "llama4_text": last_of(4, "chunked"),
    "qwen3_next": last_of(4, "state"),
    "qwen3_5": last_of(4, "state"),
    "qwen3_5_text": last_of(4, "state"),
    "qwen3_5_moe": last_of(4, "state"),
    "qwen3_5_moe_text": last_of(4, "state"),
    "olmo_hybrid": last_of(4, "state"),
    "minimax": Every(2, 0, "state"),
}
# Every layer has the window of the file.
ALL_SLIDE = frozenset(
    ("mistral", "mixtral", "ministral", "ministral3", "starcoder2", "phi3", "phi3_v", "phimoe", "phi4_multimodal")
)
# These have a window only where use_sliding_window says so (the class default is false).
WINDOW_NEEDS_FLAG = frozenset(
    (
        "qwen2",
        "qwen2_moe",
        "qwen3",
        "qwen3_moe",
        "qwen2_vl",
        "qwen2_vl_text",
        "qwen2_5_vl",
        "qwen2_5_vl_text",
        "smollm3",
    )
)
# These need no use_sliding_window to switch on max_window_layers.
WINDOW_WITHOUT_FLAG = frozenset(("dots1", "deepseek_ocr2"))
# Attention and a state stand side by side in every layer.
PARALLEL = frozenset(("falcon_h1",))
# No attention at all: a state of fixed size in every layer.
ATTENTION_FREE = frozenset(("mamba", "mamba2", "falcon_mamba", "rwkv", "rwkv5", "rwkv6", "rwkv7", "xlstm"))
# A layer of these has this many attentions, each with its cache.
CACHES_PER_LAYER = {"longcat_flash": 2}
# multi_query is true where the file does not say (transformers' class defaults).
MULTI_QUERY_DEFAULT = frozenset(("gpt_bigcode", "falcon", "RefinedWebModel"))
# The attention works on the concatenation of two streams: twice the hidden size.
DOUBLE_WIDTH = frozenset(("zamba", "zamba2"))
# These share the class defaults of another name.
SAME_AS = {"gemma3": "gemma3_text", "gemma3n": "gemma3n_text", "llama4": "llama4_text", "gemma4": "gemma4_text"}
# blocksparse masks and rope-less layers of these still read all keys; what engines are known to do differently.
ENGINE_CAVEATS = {
    "minicpm3": "vLLM 0.32 does not use the latent of MiniCPM3: it caches keys and values of every head.",
}
# A field that means something else elsewhere is the window of these.
EXTRA_WINDOW = {"gpt_neo": ("window_size",)}


@cache
def _types() -> dict[str, Any]:
    return json.loads((DATA / "model_types.json").read_text(encoding="utf-8"))


def is_known(model_type: str) -> bool:
    """Whether its caching rules are known here: transformers' decoders, and names seen with remote code."""
    named = ("decoders", "text_encoders")
    return any(model_type in _types()[name] for name in named) or model_type in PATTERNS or model_type in ATTENTION_FREE


def is_text_encoder(model_type: str) -> bool:
    """BERT and its relatives: no token by token decoding, so no cache."""
    return model_type in _types()["text_encoders"]


def is_other_encoder(model_type: str) -> bool:
    """Encoders of images and sound."""
    return model_type in _types()["other_encoders"]


def class_default(model_type: str, name: str) -> object:
    """What transformers' config class fills in for a field that the file leaves out, or None."""
    return _types()["defaults"].get(SAME_AS.get(model_type, model_type), {}).get(name)
