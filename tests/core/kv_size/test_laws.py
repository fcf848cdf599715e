"""Laws that hold for every model: drawn specs, drawn configs and all the published ones."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.kv_size import KVCacheSize, ReadError, read_config
from mha_core.kv_size import specs as s
from mha_core.kv_size.engines import ENGINES
from mha_core.kv_size.explain import explain
from mha_core.kv_size.formats import FORMATS
from mha_core.kv_size.size import MAX_BATCH, MAX_CONTEXT
from tests.core.kv_size.data import CASES

small, width = st.integers(1, 12), st.integers(1, 96)
window = st.integers(2, 600)
SPECS = st.one_of(
    st.builds(s.FullAttention, small, width, width),
    st.builds(s.SlidingWindow, small, width, width, window),
    st.builds(s.Chunked, small, width, width, window),
    st.builds(s.Latent, width, width, st.integers(0, 40)),
    st.builds(s.Compressed, width, window, st.integers(1, 130), st.integers(0, 40)),
    st.builds(s.CrossAttention, small, width, width),
    st.builds(s.State, st.just("Mamba"), width, small, width),
    st.just(s.NoCache()),
    st.just(s.SharedWithEarlier()),
)
LAYERS = st.lists(st.builds(s.Layer, st.lists(SPECS, min_size=1, max_size=2).map(tuple)), min_size=1, max_size=6)
SIZES = LAYERS.map(lambda layers: KVCacheSize(tuple(layers)))
contexts = st.integers(0, 3000)
formats, engines = st.sampled_from(sorted(FORMATS)), st.sampled_from(sorted(ENGINES))


@given(SIZES, contexts, st.integers(0, 500), formats, engines)
def test_a_longer_context_never_takes_less(size, context, more, dtype, engine):
    # A format that leaves the last tokens whole is no exception: each token takes some bytes for good.
    assert size.total_bytes(context, 1, dtype, engine) <= size.total_bytes(context + more, 1, dtype, engine)


@given(SIZES, contexts, formats)
def test_windows_never_add(size, context, dtype):
    bounded, ignored = (size.total_bytes(context, 1, dtype, engine) for engine in ("ideal", "window-ignored"))
    assert bounded <= ignored
    assert size.total_bytes(context, 1, dtype, "vllm") <= size.total_bytes(context, 1, dtype, "vllm-no-hybrid")


@given(SIZES, contexts, st.integers(0, 40), formats, engines)
def test_a_batch_multiplies(size, context, batch, dtype, engine):
    assert size.total_bytes(context, batch, dtype, engine) == batch * size.total_bytes(context, 1, dtype, engine)


@given(SIZES, contexts, st.integers(1, 16), formats, engines)
def test_shards_hold_the_whole_and_never_more_than_it_each(size, context, ranks, dtype, engine):
    rank, one = (each.total_bytes(context, 1, dtype, engine) for each in (size.shard(ranks), size))
    # Rounding up to whole bytes may add one byte a layer.
    assert rank * ranks >= one - ranks * len(size.layers)
    assert rank <= one


@given(SIZES, st.lists(contexts, min_size=1, max_size=4), st.integers(0, 5), formats, engines)
def test_parts_sum_to_the_total(size, some, batch, dtype, engine):
    totals = size.totals(some, batch, dtype, engine)
    for context, total in zip(some, totals, strict=True):
        assert sum(size.layer_bytes(context, batch, dtype, engine)) == total
        assert sum(size.by_kind(context, batch, dtype, engine).values()) == total
        assert sum(term.bytes for term in explain(size, context, batch, dtype, engine)) == total


@given(SIZES, contexts)
def test_a_plain_loop_over_tokens_finds_the_same_elements(size, context):
    """An independent count: token by token, what is still there at the end."""
    elements = 0
    for layer in size.layers:
        for part in layer.parts:
            for stream in part.streams:
                if stream.part == "indexer":
                    continue
                last = context - (stream.window or context)
                there = [token for token in range(context) if token >= last]
                elements += len(there) // stream.stride * stream.heads * stream.width
    assert size.total_bytes(context, dtype="int8") == elements


@given(SIZES)
def test_growth_is_what_is_left_when_windows_are_full(size):
    long = 2_000_000
    slope = (size.total_bytes(2 * long) - size.total_bytes(long)) / long
    assert slope == pytest.approx(size.bytes_per_token_growing(), rel=1e-3, abs=1e-2)
    assert size.elements_per_token_growing <= size.elements_per_token


@given(st.integers(1, 8), st.integers(1, 6), st.integers(1, 70), st.integers(1, 9))
def test_sharing_keys_and_values_saves_h_over_g(kv_heads, per_kv, head_dim, layers):
    config = {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": kv_heads * per_kv,
              "head_dim": head_dim}  # fmt: skip
    all_heads, some = read_config(config), read_config({**config, "num_key_value_heads": kv_heads})
    assert all_heads.elements_per_token == per_kv * some.elements_per_token
    assert some.elements_per_token == 2 * layers * kv_heads * head_dim


def test_kv_heads_are_copied_when_there_are_fewer_than_ranks_and_a_latent_always():
    plain = KVCacheSize((s.Layer((s.FullAttention(4, 3, 3),)),))
    assert [plain.shard(ranks).elements_per_token for ranks in (1, 2, 3, 4, 8)] == [24, 12, 12, 6, 6]
    latent = KVCacheSize((s.Layer((s.Latent(7, 2),)),))
    assert latent.shard(8) == latent
    state = KVCacheSize((s.Layer((s.State("Mamba", 10, 3, 21),)),))
    assert state.shard(2).state_elements() == (15, 11)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_order_of_fields_and_unknown_ones_change_nothing(case):
    size = read_config(case.config)
    turned = dict(reversed(list(case.config.items())))
    assert read_config(json.dumps(turned)).layers == size.layers
    assert read_config({**case.config, "a_new_field": 3}).layers == size.layers


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_reading_changes_no_config_and_gives_the_same_answer_twice(case):
    before = json.dumps(case.config)
    assert read_config(case.config) == read_config(case.config)
    assert json.dumps(case.config) == before


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_number_says_which_field_it_came_from(case):
    for term in explain(read_config(case.config), 100):
        named = dict(term.origins)
        assert {"which layers", "layers"} <= set(named)
        assert {"KV heads", "head dim"} <= set(named) or {"latent", "rotary key"} <= set(named)
        assert "bytes" in term.sentence


@pytest.mark.parametrize("context", [0, 1, 10_000_000])
@pytest.mark.parametrize("batch", [0, 1, 7])
def test_odd_contexts_and_batches_are_answered(context, batch):
    for case in CASES[::9]:
        size = read_config(case.config)
        assert size.total_bytes(context, batch) >= 0
        assert (size.total_bytes(context, batch) == 0) == (not (context and batch and size.layers_with_kv))


@pytest.mark.parametrize("value", [-1, 1.5, True, "x", None, 10**30, float("nan")])
@pytest.mark.parametrize("field", ["context", "batch"])
def test_a_wrong_context_or_batch_is_refused_by_name(field, value):
    with pytest.raises(ReadError, match=field):
        read_config(CASES[0].config).total_bytes(**{"context": 1, field: value})
    assert MAX_CONTEXT >= 10_000_000
    assert MAX_BATCH >= 1
