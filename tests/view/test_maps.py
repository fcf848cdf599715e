"""What is sent to the small maps is the pattern, scaled as the legend says."""

import base64

import numpy as np
import pytest

from mha_view.components import packed
from mha_view.components.lines import MAX_LINES, THRESHOLDS, line_threshold
from mha_view.components.maps import FULL, HIDDEN, MAX_SIDE, fullness, legend_range, map_levels


def pattern_of(n_heads: int, n: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    visible = np.tril(np.ones((n, n), dtype=bool))
    weights = np.random.default_rng(seed).random((n_heads, n, n)) * visible
    return weights / weights.sum(-1, keepdims=True), visible


def test_a_level_is_the_weight_and_hidden_is_not_zero():
    pattern, visible = pattern_of(3, 7)
    pattern[0, 6] = 0.0
    levels = map_levels(pattern, visible, "linear")
    assert levels.shape == (3, 7, 7)
    assert (levels[:, ~visible] == HIDDEN).all()
    assert (levels[:, visible] != HIDDEN).all()
    assert (levels[0, 6] == 0).all()
    np.testing.assert_allclose(levels[:, visible] / FULL, pattern[:, visible], atol=0.5 / FULL)


def test_a_long_text_is_pooled_to_the_same_size_and_keeps_its_peaks():
    n = 129
    pattern, visible = np.zeros((2, n, n)), np.ones((n, n), dtype=bool)
    pattern[1, 100, 17] = 1.0
    levels = map_levels(pattern, visible, "linear")
    assert levels.shape[1] <= MAX_SIDE
    block = -(-n // MAX_SIDE)
    assert levels[1, 100 // block, 17 // block] == FULL
    assert levels[0].max() == 0


def test_the_three_scales_tell_zero_tiny_and_large_apart_as_they_promise():
    row = np.array([[[0.0, 1e-6, 1e-3, 0.9]]])
    assert fullness(row, "linear").ravel().tolist() == row.ravel().tolist()
    log = fullness(row, "log").ravel()
    assert log[0] == log[1] == 0.0
    assert log[2] == pytest.approx(0.25)
    assert log[3] > 0.98
    assert fullness(row, "row").max() == 1.0


def test_a_row_of_zeros_stays_zeros_when_scaled_by_its_largest():
    assert not fullness(np.zeros((1, 2, 2)), "row").any()


@pytest.mark.parametrize("scale", ["linear", "log", "row"])
def test_every_scale_has_a_legend(scale):
    low, high, name = legend_range(scale)
    assert low != high
    assert name


def test_packed_arrays_come_back_bit_by_bit():
    array = np.random.default_rng(1).random((3, 5)).astype(np.float32).T
    raw = base64.b64decode(packed(array))
    np.testing.assert_array_equal(np.frombuffer(raw, np.float32).reshape(5, 3), array)


def test_lines_stay_within_their_number_with_the_lowest_threshold_that_does():
    few, _ = pattern_of(2, 12)
    assert line_threshold(few) == THRESHOLDS[0]
    even = np.full((64, 129, 129), 1 / 129)
    assert int((even >= line_threshold(even)).sum()) <= MAX_LINES
