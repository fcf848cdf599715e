"""How many tokens engines keep, against what was probed, run or logged."""

import pytest

from mha_core.kv_size import KVCacheSize, ReadError, read_config
from mha_core.kv_size.engines import ENGINES, VLLM, LlamaCpp, engine_of
from mha_core.kv_size.specs import Chunked, Compressed, FullAttention, Latent, Layer, SlidingWindow
from tests.core.kv_size.data import config_of


def kept(engine, spec, context):
    return engine_of(engine).kept(spec.streams[0], context)


SLIDING, CHUNKED, FULL = SlidingWindow(3, 5, 7, 128), Chunked(3, 5, 7, 8192), FullAttention(3, 5, 7)


@pytest.mark.parametrize(
    ("engine", "spec", "context", "tokens"),
    [
        ("ideal", SLIDING, 127, 127),
        ("ideal", SLIDING, 1000, 128),
        ("ideal", CHUNKED, 9000, 8192),
        ("ideal", FULL, 9001, 9001),
        ("window-ignored", SLIDING, 1000, 1000),
        ("transformers", SLIDING, 127, 127),
        ("transformers", SLIDING, 1000, 127),
        ("transformers", SlidingWindow(1, 1, 1, 4096), 9999, 4095),
        ("transformers", CHUNKED, 9000, 8191),
        ("vllm", SLIDING, 100_000, 144),
        ("vllm", SLIDING, 17, 32),
        (VLLM(in_flight=2048), SLIDING, 100_000, 2192),
        ("vllm", CHUNKED, 100_000, 8208),
        ("vllm", FULL, 1, 16),
        ("vllm", FULL, 17, 32),
        ("vllm-no-hybrid", SLIDING, 1000, 1008),
        ("llama.cpp", SlidingWindow(1, 1, 1, 1024), 131_072, 1536),
        ("llama.cpp", FULL, 257, 512),
        (LlamaCpp(ubatch=256), SLIDING, 100_000, 512),
    ],
)
def test_an_engine_keeps_what_it_was_seen_to_keep(engine, spec, context, tokens):
    assert kept(engine, spec, context) == tokens


def test_blocks_of_vllm_as_it_was_run():
    size = read_config(config_of("llama-3.1-8b"))
    found = [size.total_bytes(context, engine="vllm") for context in (1, 17, 4097)]
    assert found == [2_097_152, 4_194_304, 538_968_064]


def test_transformers_4_expands_a_latent_and_5_does_not():
    size = KVCacheSize((Layer((Latent(11, 3, expanded=(5, 7, 2)),)),))
    assert size.total_bytes(1, engine="transformers-4") == 2 * 5 * (7 + 2)
    assert size.total_bytes(1, engine="transformers") == 2 * (11 + 3)


def test_a_latent_that_cannot_be_expanded_is_kept():
    size = KVCacheSize((Layer((Latent(11, 3),)),))
    assert size.total_bytes(1, engine="transformers-4") == 2 * (11 + 3)


def test_transformers_copies_the_heads_of_falcon():
    size = KVCacheSize((Layer((FullAttention(3, 5, 7, copies=4),)),))
    assert size.total_bytes(1, engine="transformers") == 4 * size.total_bytes(1)


def test_a_row_for_many_tokens_is_kept_when_it_is_full():
    size = KVCacheSize((Layer((Compressed(512, 8, 4, 128),)),))
    assert [size.total_bytes(c) // 2 for c in (3, 4, 9)] == [3 * 512, 4 * 512 + 640, 8 * 512 + 2 * 640]


def test_engines_have_words_and_a_source():
    for engine in ENGINES.values():
        assert engine.label
        assert engine.sentence
        assert engine.source


def test_an_unknown_engine_is_told_which_there_are():
    with pytest.raises(ReadError, match=r"abacus.*llama\.cpp"):
        engine_of("abacus")
