"""What the stages send: whole where it is small, thumbnails that keep the largest number where it is not."""

import numpy as np
import pytest

from mha_core.analysis.flow import WEIGHTS, layer_flow
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_view.components.flow import (
    ALL_BYTES,
    ONE_BYTES,
    SENT,
    colour_range,
    packed_numbers,
    packed_weights,
    thumbnail,
    whole,
)
from mha_view.stages import STAGE_WORDS
from tests.core.cases import numbers


def flow_of(d_model, h, g, n, base: float | None = 100.0):
    layer = GroupedQueryAttention(AttentionConfig(d_model, h, g, rotary_base=base))
    trace = layer.trace(numbers(1, n, d_model, seed=1).float())
    return layer_flow(layer, trace, trace.array("x"))


@pytest.mark.parametrize(
    ("shape", "cells"), [((3, 40, 70), 600), ((1, 9, 1000), 64), ((64, 12, 16), 4096), ((2, 5, 3), 99)]
)
def test_a_thumbnail_shows_the_number_largest_in_size_of_each_block(shape, cells):
    array = np.random.default_rng(2).normal(size=shape).astype(np.float32)
    small = thumbnail(array, cells)
    tall, wide = -(-shape[1] // small.shape[1]), -(-shape[2] // small.shape[2])
    assert small.size <= 2 * cells
    for head in range(shape[0]):
        for r in range(small.shape[1]):
            for c in range(small.shape[2]):
                block = array[head, r * tall : (r + 1) * tall, c * wide : (c + 1) * wide].ravel()
                assert small[head, r, c] == block[np.abs(block).argmax()]


@pytest.mark.parametrize("sizes", [(8, 4, 2, 1, 9.0), (8, 8, 8, 3, None), (24, 1, 1, 7, 9.0), (128, 64, 1, 4, 9.0)])
def test_small_sizes_travel_whole_and_bit_for_bit(sizes):
    flow = flow_of(*sizes)
    sent = packed_numbers(flow, 0)["blobs"]
    assert whole(flow)
    for name in SENT:
        np.testing.assert_array_equal(sent[name]["all"].ravel(), flow.matrices(name).ravel())
    for name, blob in packed_weights(flow).items():
        np.testing.assert_array_equal(blob["all"].ravel(), flow.matrices(name).ravel())


def test_large_sizes_travel_whole_for_the_chosen_head_and_as_thumbnails_within_the_limits():
    flow, head = flow_of(1024, 32, 8, 100), 22
    sent = packed_numbers(flow, head)["blobs"]
    assert not whole(flow)
    for name in ("q", "k", "scores", "pattern", "z"):
        blob, kv = sent[name], name == "k"
        assert blob["head"] == (flow.trace.cfg.kv_head_of(head) if kv else head)
        np.testing.assert_array_equal(blob["one"].ravel(), flow.matrices(name)[blob["head"]].ravel())
        assert blob["pool"].size == len(flow.matrices(name)) * blob["R"] * blob["C"]
    for blob in [*sent.values(), *packed_weights(flow).values()]:
        for part in ("all", "one", "pool"):
            assert part not in blob or blob[part].nbytes <= max(ALL_BYTES, ONE_BYTES)


def test_the_words_say_how_much_was_sent():
    told = packed_numbers(flow_of(1024, 32, 8, 100), 0)["sentText"]
    assert "KiB were sent instead of" in told
    assert "MiB" in told


def test_full_colour_begins_where_nearly_all_numbers_lie_and_the_largest_is_told():
    sizes = np.ones(1000, np.float32)
    sizes[3] = -50
    assert colour_range(sizes) == {"most": 50.0, "full": 1.0}
    assert colour_range(np.zeros(5, np.float32))["full"] > 0
    assert colour_range(sizes[:100]) == {"most": 50.0, "full": 50.0}


def test_every_stage_has_its_words():
    from mha_core.analysis.flow import STAGES

    assert list(STAGE_WORDS) == [stage.name for stage in STAGES]
    for stage in STAGES:
        assert len(STAGE_WORDS[stage.name].signs) == len(stage.columns) - 1
    assert set(WEIGHTS) == {"W_Q", "W_K", "W_V", "W_O"}
