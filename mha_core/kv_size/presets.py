"""Published models whose configs are kept here, each with the place it was read from."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from mha_core.kv_size.reader import read_config
from mha_core.kv_size.size import KVCacheSize
from mha_core.kv_size.values import ReadError, shown

DATA = Path(__file__).with_name("data")


@dataclass(frozen=True)
class Preset:
    """A published model: its name here, where its config was read, and the config."""

    name: str
    source: str
    config: dict[str, Any] = field(hash=False, repr=False)


@cache
def presets() -> tuple[Preset, ...]:
    """All of them, by name. Their configs hold what the cache needs and little else."""
    kept = json.loads((DATA / "presets.json").read_text(encoding="utf-8"))
    return tuple(Preset(**one) for one in kept)


@cache
def preset_size(name: str) -> KVCacheSize:
    """What the preset of that name keeps; raises ReadError for a name that there is none of."""
    found = next((one for one in presets() if one.name == name), None)
    if found is None:
        raise ReadError(f"There is no preset named {shown(name)}.")
    return read_config(found.config)
