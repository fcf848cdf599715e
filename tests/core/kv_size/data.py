"""The truth data of the KV sizes: 80 verified cases, 60 bad inputs, published numbers."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parents[2] / "data" / "kv"
PLAIN = {
    "model_type": "llama", "hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "max_position_embeddings": 131072,
}  # fmt: skip


@dataclass(frozen=True)
class TruthCase:
    """One published config, and what transformers and vLLM were seen to keep for it."""

    name: str
    config: dict[str, Any]
    expected: dict[str, Any]


def truth_cases() -> list[TruthCase]:
    kept = [json.loads(path.read_text(encoding="utf-8")) for path in sorted((DATA / "cases").glob("*.json"))]
    return [TruthCase(one["name"], one["config"], one["expected"]) for one in kept]


CASES = truth_cases()


def config_of(name: str) -> dict[str, Any]:
    return next(case.config for case in CASES if case.name == name)


def bad_rows() -> list[dict[str, Any]]:
    return json.loads((DATA / "bad" / "expected.json").read_text(encoding="utf-8"))["cases"]


def bad_bytes(name: str) -> bytes:
    """The file of that name; the one of five megabytes is made here."""
    path = DATA / "bad" / name
    if path.exists():
        return path.read_bytes()
    reference = json.loads((DATA / "bad" / "07_bom_utf8.json").read_text(encoding="utf-8-sig"))
    return json.dumps({**reference, "unknown_text": "x" * 5 * 2**20}).encode()
