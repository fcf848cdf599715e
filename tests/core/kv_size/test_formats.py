"""Bytes of a row in every cache dtype, against what engines' own code was run or read to keep."""

from fractions import Fraction

import pytest

from mha_core.kv_size import KVCacheSize, ReadError, read_config
from mha_core.kv_size.formats import FORMATS, cache_format
from mha_core.kv_size.specs import FullAttention, Layer
from tests.core.kv_size.data import config_of

# Bytes per number for a row of 128, from formulas.md section 2.
PER_NUMBER = {
    "f32": 4, "bf16": 2, "f16": 2, "fp8": 1, "int8": 1, "int4": 0.5, "fp8_per_token_head": 1.03125,
    "int8_per_token_head": 1.03125, "int4_per_token_head": 0.53125, "nvfp4": 0.5625, "q8_0": 1.0625, "q5_1": 0.75,
    "q5_0": 0.6875, "q4_1": 0.625, "q4_0": 0.5625, "iq4_nl": 0.5625, "hqq_int8": 1.0625, "hqq_int4": 0.5625,
    "quanto_int4": 0.5625, "quanto_int2": 0.3125,
}  # fmt: skip
ONE_LAYER = KVCacheSize((Layer((FullAttention(8, 128, 128),)),))


@pytest.mark.parametrize("name", PER_NUMBER)
def test_a_number_takes_what_the_source_says(name):
    assert FORMATS[name].row(128) / 128 == Fraction(PER_NUMBER[name])
    assert ONE_LAYER.bytes_per_token(name) == PER_NUMBER[name] * 2 * 8 * 128


def test_every_format_is_checked_here():
    assert set(FORMATS) == {*PER_NUMBER, "fp8_ds_mla"}


def test_vllm_was_run_to_keep_these_bytes_per_token_and_layer():
    sizes = {
        name: ONE_LAYER.total_bytes(1, dtype=name) for name in ("bf16", "int8_per_token_head", "int4_per_token_head")
    }
    assert sizes == {"bf16": 4096, "int8_per_token_head": 2112, "int4_per_token_head": 1088}


def test_scales_per_head_weigh_more_in_narrow_heads():
    assert FORMATS["fp8_per_token_head"].row(64) == 68
    assert FORMATS["int4_per_token_head"].row(64) == 36


def test_the_latent_format_keeps_the_rotary_key_in_sixteen_bits():
    form = FORMATS["fp8_ds_mla"]
    assert form.row(512 + 64) == 512 + 16 + 128 == 656
    assert form.row(128) == 132
    assert read_config(config_of("deepseek-v3")).bytes_per_token("fp8_ds_mla") == 61 * 656
    glm = read_config(config_of("glm-5-decoy-head-dim"))
    assert glm.indexer_bytes(1, dtype="fp8_ds_mla") == 78 * 132


@pytest.mark.parametrize("context", [0, 5, 128, 129, 4196])
def test_the_last_tokens_stay_whole_where_a_format_leaves_them(context):
    whole = min(context, 128)
    expected = 2 * 8 * 128 * ((context - whole) * Fraction(5, 16) + whole * 2)
    assert ONE_LAYER.total_bytes(context, dtype="quanto_int2") == expected


@pytest.mark.parametrize(("name", "other"), [("bfloat16", "bf16"), ("float16", "f16"), ("fp8_e4m3", "fp8")])
def test_other_names_mean_the_same(name, other):
    assert cache_format(name) is FORMATS[other]


def test_an_unknown_format_is_told_which_there_are():
    with pytest.raises(ReadError, match=r"q9_9.*bf16"):
        cache_format("q9_9")
