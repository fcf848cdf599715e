"""The same model with other attention."""

import pytest

from mha_core.kv_size import ReadError, read_config
from mha_core.kv_size.presets import preset_size
from mha_core.kv_size.whatif import (
    alternatives,
    as_mha,
    as_mla,
    as_mqa,
    saving,
    valid_kv_heads,
    windowed,
    with_kv_heads,
)
from tests.core.kv_size.data import CASES, PLAIN


def llama():
    return read_config(PLAIN)


def gemma():
    return preset_size("gemma3-27b-nested-no-pattern")


@pytest.mark.parametrize("n_kv_heads", [1, 2, 4, 8, 16, 32])
def test_the_cache_is_in_proportion_to_g(n_kv_heads):
    assert with_kv_heads(llama(), n_kv_heads).elements_per_token == 2 * 32 * n_kv_heads * 128
    other = with_kv_heads(gemma(), n_kv_heads)
    assert other.elements_per_token / n_kv_heads == gemma().elements_per_token / 16
    assert other.bounded == gemma().bounded


@pytest.mark.parametrize("n_kv_heads", [0, 3, 64, -1])
def test_a_g_that_does_not_divide_h_is_told_which_do(n_kv_heads):
    with pytest.raises(ReadError, match="1, 2, 4, 8, 16 or 32"):
        with_kv_heads(llama(), n_kv_heads)


def test_all_and_one_head_are_the_ends():
    assert as_mha(llama()) == with_kv_heads(llama(), 32)
    assert as_mqa(llama()) == with_kv_heads(llama(), 1)
    assert valid_kv_heads(llama()) == (1, 2, 4, 8, 16, 32)
    assert saving(llama()) == 4
    assert saving(preset_size("falcon-7b")) == 71


def test_a_latent_becomes_heads_as_the_paper_compares_and_back():
    deepseek = preset_size("deepseek-v2-236b")
    assert as_mha(deepseek).elements_per_token == 60 * 2 * 128 * 128
    assert as_mla(llama(), 512).elements_per_token == 32 * (512 + 64)
    assert as_mla(llama(), 100, rope=7).elements_per_token == 32 * 107
    assert as_mla(gemma(), 512).total_bytes(10_000) == 2 * 576 * (10 * 10_000 + 52 * 1024)


def test_a_window_bounds_every_layer_and_widens_none():
    other = windowed(gemma(), 2048)
    assert other.elements_per_token_growing == 0
    assert other.total_bytes(131_072) == 2 * 4096 * (10 * 2048 + 52 * 1024)
    assert windowed(preset_size("deepseek-v3"), 100).total_bytes(1000) == 61 * 576 * 2 * 100
    assert windowed(preset_size("llama-4-scout-chunked"), 9000).total_bytes(10**5) == 2 * 2048 * (36 * 8192 + 12 * 9000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_model_has_its_alternatives(case):
    size = read_config(case.config)
    found = alternatives(size, rank=300, window=500)
    assert found["as it is"] is size
    assert len(found) == 1 + len(valid_kv_heads(size)) + 2 * bool(size.layers_with_kv)
    for other in found.values():
        assert other.layers_with_kv == size.layers_with_kv
        assert other.state_elements() == size.state_elements()
        assert other.cross_attention_bytes(1) == size.cross_attention_bytes(1)
    totals = [one.total_bytes(4000) for name, one in found.items() if "g =" in name]
    assert totals == sorted(totals, reverse=True)


@pytest.mark.parametrize("rank", [0, -1, True, "x"])
def test_a_wrong_rank_or_window_is_refused(rank):
    with pytest.raises(ReadError, match="rank"):
        as_mla(llama(), rank)
    with pytest.raises(ReadError, match="window"):
        windowed(llama(), rank)
