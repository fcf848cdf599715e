"""The page KV cache, the lesson: why decoding waits for the cache, and three published figures made anew."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import streamlit as st

from mha_core.kv_size.explain import explain
from mha_core.kv_size.presets import preset_size
from mha_core.kv_size.units import binary
from mha_view import state
from mha_view.components.controls import control_bar
from mha_view.components.table import table
from mha_view.recipe import app_recipe

WHY = (
    "A new token asks every earlier one, in every layer. Without a cache each step would compute all their keys and "
    "values again; with it, each step reads them. So a step reads all weights and the whole cache once, and does about "
    "two operations with each number it reads. A GPU can do hundreds in that time: it waits for memory. Weights are "
    "shared by all sequences of a batch, a cache by none: the longer the text and the larger the batch, the more of "
    "the time goes into reading caches. Fewer KV heads (GQA, MQA) or one latent (MLA) make what is read smaller."
)


@dataclass(frozen=True)
class Published:
    """A figure that others published: the preset it belongs to, the model's name, their words, and where."""

    preset: str
    name: str
    words: str
    source: str


PUBLISHED = (
    Published("llama-2-70b", "Llama-2-70B", "320 KiB per token", "widely quoted"),
    Published("opt-13b", "OPT-13B", "800 KB per token", "PagedAttention paper, section 3; its KB is KiB"),
    Published("deepseek-v3", "DeepSeek-V3", "70.272 KB per token", "arXiv 2505.09343, table 1; its KB is 1,000 B"),
)


def lesson(defaults: Mapping[str, str]) -> None:
    """Why, and the three figures with the sum that gives them; a press shows that model above."""
    st.subheader("Why decoding waits for the cache")
    st.markdown(WHY)
    table(
        ["model", "published", "one token, from its config", "", "bytes", "where it was published"],
        _rows(),
        caption="Three figures that are often quoted, made anew from each model's config in bf16.",
        file="headroom-kv-published",
        recipe=app_recipe(figure="published figures", models=[one.preset for one in PUBLISHED]),
        key="kv_published",
    )

    def take() -> None:
        name = state.component_value("kv_lesson", "set").get("name")
        if name in {one.preset for one in PUBLISHED}:
            state.choose_model(str(name), defaults)

    control_bar([], actions={one.preset: f"Show {one.name}" for one in PUBLISHED}, key="kv_lesson", on_set=take)


@cache
def _rows() -> list[list[str]]:
    return [_row(one) for one in PUBLISHED]


def _row(one: Published) -> list[str]:
    size = preset_size(one.preset)
    total = size.total_bytes(1)
    formula = " + ".join(term.formula for term in explain(size, 1))
    return [one.name, one.words, formula, binary(total), f"{total:,}", one.source]
