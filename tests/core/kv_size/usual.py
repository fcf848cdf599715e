"""What the usual formula makes of the truth data: ``python -m tests.core.kv_size.usual``.

The formula is the one of most hand-made calculators: 2 x layers x KV heads x head_dim x bytes, with head_dim and
num_key_value_heads where the file has them, and text_config opened. Nothing here reads mha_core.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from tests.core.kv_size.data import CASES, TruthCase

CONTEXT = 32_768


@dataclass(frozen=True)
class Verdict:
    """How many cases come out right at 32,768 tokens, as many more if windows are ignored, wrong, or not at all."""

    right: int
    right_without_windows: int
    wrong: int
    no_answer: int


def usual_formula(config: dict[str, Any]) -> int | None:
    """Bytes per token in 16 bits, or None where the formula lacks a field."""
    config = config.get("text_config", config)
    try:
        layers, heads = config["num_hidden_layers"], config["num_attention_heads"]
        kv_heads = config.get("num_key_value_heads", heads)
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        return 2 * 2 * layers * kv_heads * head_dim
    except (KeyError, TypeError):
        return None


def verdict(case: TruthCase) -> str:
    found = usual_formula(case.config)
    at = str(CONTEXT)
    if found is None:
        return "no_answer"
    if found * CONTEXT == case.expected["total_bytes_bf16_at"][at]:
        return "right"
    ignored = case.expected.get("total_bytes_bf16_at_if_window_ignored", {}).get(at)
    return "right_without_windows" if found * CONTEXT == ignored else "wrong"


def count() -> Verdict:
    found = [verdict(case) for case in CASES]
    return Verdict(**{name: found.count(name) for name in Verdict.__dataclass_fields__})


if __name__ == "__main__":
    sys.stdout.write(f"{len(CASES)} cases: {count()}\n")
