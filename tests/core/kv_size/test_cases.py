"""The 80 published configs: all that transformers and vLLM were seen to keep, and the usual formula's score."""

import json

import pytest

from mha_core.kv_size import read_config
from tests.core.kv_size.data import CASES
from tests.core.kv_size.usual import count, usual_formula

by_name = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


@by_name
def test_what_a_token_adds_is_right(case):
    size = read_config(json.dumps(case.config))
    expected = case.expected
    assert size.elements_per_token == expected["elements_per_token"]
    assert size.elements_per_token_growing == expected["elements_per_token_growing"]
    assert size.bytes_per_token("bf16") == expected["bytes_per_token_bf16"]
    assert size.bytes_per_token_growing("bf16") == expected["bytes_per_token_bf16_growing"]


@by_name
def test_layers_heads_and_widths_are_right(case):
    size = read_config(case.config)
    expected = case.expected
    assert len(size.layers) == expected["layers_total"]
    assert size.layers_with_kv == expected["layers_with_kv"]
    assert size.kv_heads == expected["kv_heads"]
    assert size.head_dim == expected["head_dim"]
    if "kv_layer_indices" in expected:
        assert [i for i, layer in enumerate(size.layers) if layer.streams] == expected["kv_layer_indices"]


@by_name
def test_totals_are_right_with_and_without_windows(case):
    size = read_config(case.config)
    for context, n_bytes in case.expected["total_bytes_bf16_at"].items():
        assert size.total_bytes(int(context)) == n_bytes
    for context, n_bytes in case.expected.get("total_bytes_bf16_at_if_window_ignored", {}).items():
        assert size.total_bytes(int(context), engine="window-ignored") == n_bytes


@by_name
def test_bounded_layers_are_the_right_ones(case):
    size, expected = read_config(case.config), case.expected["sliding_window"]
    if expected is None:
        assert size.bounded is None
        return
    assert size.bounded is not None
    assert size.bounded.kind == expected["bound_kind"]
    assert size.bounded.tokens == expected["bound_tokens"]
    assert list(size.bounded.layers) == expected["bounded_layer_indices"]


@by_name
def test_states_cross_attention_and_indexers_stand_apart(case):
    size, expected = read_config(case.config), case.expected
    state = expected.get("fixed_state", {"conv_elements": 0, "recurrent_elements": 0, "bytes_all_bf16": 0})
    assert size.state_elements() == (state["conv_elements"], state["recurrent_elements"])
    assert size.state_bytes(recurrent_bytes=2) == state["bytes_all_bf16"]
    assert size.state_bytes() == state.get("bytes_conv_bf16_recurrent_fp32", 0)
    assert sum(size.state_elements("transformers")) == state.get(
        "transformers_5.24.0_elements", sum(size.state_elements("transformers"))
    )
    cross = expected.get("cross_attention", {"bytes_per_encoder_token_bf16": 0})
    assert size.cross_attention_bytes(1) == cross["bytes_per_encoder_token_bf16"]
    indexer = expected.get("indexer_cache", {"bytes_per_token_bf16": 0, "total_with_indexer_bytes_bf16_at": {}})
    assert size.indexer_bytes(1) == indexer["bytes_per_token_bf16"]
    for context, n_bytes in indexer["total_with_indexer_bytes_bf16_at"].items():
        assert size.total_bytes(int(context)) + size.indexer_bytes(int(context)) == n_bytes


@by_name
def test_engines_that_keep_something_else_are_known(case):
    size, variants = read_config(case.config), case.expected.get("engine_variants", {})
    for name, variant in variants.items():
        engines = ["transformers-4"] * ("4.57.1" in name) + ["transformers"] * ("5.24.0" in name)
        for engine in engines:
            assert size.total_bytes(1, engine=engine) == variant["bytes_per_token_bf16"]


@by_name
def test_what_a_case_says_beside_its_figures(case):
    size, expected = read_config(case.config), case.expected
    assert size.bytes_per_token("fp8") == expected.get("bytes_per_token_fp8", size.elements_per_token)
    assert (size.cache_dtype == "fp8") == ("bytes_per_token_fp8" in expected)
    if "vllm_fp8_ds_mla_bytes_per_token" in expected:
        assert size.bytes_per_token("fp8_ds_mla") == expected["vllm_fp8_ds_mla_bytes_per_token"]
    if "declared_window_that_never_binds" in expected:
        assert any("never binds" in sentence for sentence in size.caveats)
    if not expected["decode_cache"]:
        assert any("no KV cache" in sentence for sentence in size.caveats)
    if "at_limits" in expected:
        limits = expected["at_limits"]
        assert size.max_context == limits["decoder_tokens"]
        assert size.total_bytes(limits["decoder_tokens"]) == limits["self_bytes_bf16"]
        assert size.cross_attention_bytes() == limits["cross_bytes_bf16"]
    shapes = expected.get("comparison_bytes_per_token_bf16")
    assert shapes is None or shapes["actual"] == size.bytes_per_token()


def test_the_usual_formula_gets_fewer_than_half_of_the_cases():
    """The README says how many: tests.core.kv_size.usual counts them."""
    found = count()
    assert found.right + found.right_without_windows + found.wrong + found.no_answer == len(CASES)
    assert found.right < len(CASES) / 2
    assert found.wrong > 10


def test_the_usual_formula_is_right_where_nothing_is_special():
    assert usual_formula({"num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128,
                          "hidden_size": 4096}) == 131_072  # fmt: skip
