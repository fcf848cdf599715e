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
    """All of them, by name. Their configs hold what the cache needs and little else.

    Where the widths of the MLP are known they are filled in (data/widths.json), so that the parameters can be counted:
    the count is the number that the hub shows, which a test holds against it.
    """
    kept, known = _kept("presets.json"), _kept("widths.json")
    return tuple(Preset(one["name"], one["source"], {**one["config"], **_widths(known, one["name"])}) for one in kept)


def _kept(name: str) -> Any:
    return json.loads((DATA / name).read_text(encoding="utf-8"))


def _widths(known: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return {field: value for field, value in known.get(name, {}).items() if field != "parameters"}


@cache
def preset_size(name: str) -> KVCacheSize:
    """What the preset of that name keeps; raises ReadError for a name that there is none of."""
    found = next((one for one in presets() if one.name == name), None)
    if found is None:
        raise ReadError(f"There is no preset named {shown(name)}.")
    return read_config(found.config)
