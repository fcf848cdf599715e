"""The page KV cache: the answer is the core's, for every model and every wrong value."""

import json

import pytest

from mha_core.kv_size.__main__ import as_dict
from mha_core.kv_size.engines import ENGINES
from mha_core.kv_size.explain import explain
from mha_core.kv_size.formats import FORMATS
from mha_core.kv_size.presets import preset_size, presets
from mha_core.kv_size.units import binary
from tests.pages.kv import GEMMA, LLAMA, answer, facts, picked


def test_a_stranger_finds_the_cache_of_the_knobs_measured_on_real_tensors(open_page):
    page = open_page("kv-cache", d="64", h="4", g="2", ctx="33", batch="3")
    # 3 layers x K and V x g 2 x d_k 16 x 33 tokens x 4 bytes x 3 sequences, by hand.
    assert answer(page)[0] == 3 * 2 * 2 * 16 * 33 * 4 * 3
    value, note = facts(page)["measured on a real cache"]
    assert value == f"{answer(page)[0]:,} B"
    assert note.endswith("6 tensors (b, g, n, d_k) = 3 x 2 x 33 x 16")


@pytest.mark.parametrize(("g", "times"), [("8", 1), ("4", 2), ("1", 8)])
def test_the_knob_g_divides_the_cache(open_page, g, times):
    assert answer(open_page("kv-cache", g=g))[0] * times == answer(open_page("kv-cache", g="8"))[0]
    assert facts(open_page("kv-cache", g=g))["saving, h / g"][0] == f"8 / {g} = {times}"


def test_a_window_bounds_the_cache_and_a_full_mask_is_told(open_page):
    page = open_page("kv-cache", mask="window", window="5", ctx="100")
    assert answer(page)[0] * 20 == answer(open_page("kv-cache", ctx="100"))[0]
    assert facts(page)["measured on a real cache"][0] == f"{answer(page)[0]:,} B"
    assert any("nothing could be reused" in note for note in open_page("kv-cache", mask="full").notes())


def test_gemma_3_27b_takes_10_41_gib_at_131_072_and_the_page_says_why_not_62(open_page):
    page = open_page("kv-cache", model=GEMMA)
    total, lead = answer(page)
    assert total == 11_173_625_856
    assert page.sent("facts")[0]["facts"][0][1] == "10.41 GiB"
    assert "Not 62.00 GiB: 52 of 62 layers look back 1,024 tokens at most and keep no more, only 10 keep all" in lead
    assert facts(page)["windows ignored"][0] == "62.00 GiB"
    assert page.sent("layers")[0]["title"] == "Layer by layer: 10 full · 52 sliding, bounded at 1,024"


@pytest.mark.parametrize("name", [preset.name for preset in presets()])
def test_each_published_model_shows_the_total_of_the_core(open_page, name):
    size = preset_size(name)
    page = open_page("kv-cache", model=name, ctx="70001", batch="3", dtype="q8_0", engine="llama.cpp")
    assert answer(page)[0] == size.total_bytes(70_001, 3, "q8_0", "llama.cpp")
    told = page.notes()
    assert all(any(caveat in note for note in told) for caveat in size.caveats)
    if size.layers_with_kv == 0:
        assert "keeps no KV cache" in answer(page)[1]
        assert any(caveat for caveat in size.caveats)
        assert page.sent("chart", "kv_") == []
        return
    kept = [row[1] for row in page.sent("layers")[0]["layers"]]
    assert tuple(kept) == size.layer_bytes(70_001, 3, "q8_0", "llama.cpp")
    ghosts = [row[2] for row in page.sent("layers")[0]["layers"]]
    assert tuple(ghosts) == size.layer_bytes(70_001, 3, "q8_0", "window-ignored")
    assert sum(kept) == answer(page)[0]


def test_the_sum_is_written_out_with_the_fields_it_comes_from(open_page):
    page = open_page("kv-cache", model=GEMMA, ctx="5000", batch="7")
    rows = page.sent("table")[0]["rows"]
    terms = explain(preset_size(GEMMA), 5000, 7)
    assert [row[0] for row in rows[:-1]] == [term.formula for term in terms]
    assert (
        sum(int(row[2].replace(",", "")) for row in rows[:-1]) == int(rows[-1][2].replace(",", "")) == answer(page)[0]
    )
    assert all("num_key_value_heads" in row[3] for row in rows[:-1])
    # As JSON it is what the command line answers.
    assert page.sent("table")[0]["recipe"]["answer"] == json.loads(json.dumps(as_dict(preset_size(GEMMA), 5000, 7)))


@pytest.mark.parametrize(("engine", "dtype"), [(e, d) for e in ENGINES for d in ("bf16", "q4_0")])
def test_each_engine_and_a_quantised_dtype(open_page, engine, dtype):
    page = open_page("kv-cache", model=GEMMA, ctx="3000", engine=engine, dtype=dtype)
    assert answer(page)[0] == preset_size(GEMMA).total_bytes(3000, 1, dtype, engine)
    assert set(FORMATS) > {dtype}


def test_what_does_not_grow_stands_apart(open_page):
    jamba, whisper = open_page("kv-cache", model="jamba-v0.1"), open_page("kv-cache", model="whisper-tiny")
    assert facts(jamba)["state of fixed size, apart"][0] == binary(preset_size("jamba-v0.1").state_bytes())
    assert facts(whisper)["cross-attention, apart"][0] == binary(preset_size("whisper-tiny").cross_attention_bytes())


@pytest.mark.parametrize(
    ("typed", "context"), [("128k", 131_072), ("131,072", 131_072), ("10 million", 10**7), ("0", 0), ("1", 1)]
)
def test_a_context_as_people_type_it(open_page, typed, context):
    page = picked(open_page("kv-cache", model=LLAMA), "ctx", typed)
    assert answer(page)[0] == 131_072 * context
    assert page.link()["ctx"] == str(context)
    again = open_page("kv-cache", **page.link())
    assert answer(again) == answer(page)


@pytest.mark.parametrize(
    ("name", "typed", "said"),
    [("ctx", "banana", "Context: “banana” is no number; 131,072 is taken instead."),
     ("ctx", "-5", "Context: “-5” is out of range; Context can be 0 to 1,000,000,000. 0 is taken instead."),
     ("ctx", "9" * 5000, "is out of range"), ("batch", "1.5", "Batch: “1.5” is no whole number; 2 is taken instead."),
     ("gpus", "0", "GPUs: “0” is out of range; GPUs can be 1 to 4,096. 1 is taken instead."),
     ("params", "none", "is no number"), ("rank", "x", "Rank: “x” is no number; 512 is taken instead."),
     ("span", "0", "Window: “0” is out of range"), ("dtype", "fp3", "dtype = “fp3”"), ("engine", "<b>", "“<b>”"),
     ("gpu", "Abacus", "gpu = “Abacus”"), ("model", "lama-3.1-8b", "llama-3.1-8b is shown"),
     ("others", f"{GEMMA}~nobody", "“nobody”"), ("config", "!!", "The config in the link is damaged"),
     ("src", "moon", "src = “moon”")],
)  # fmt: skip
def test_a_wrong_value_in_a_link_gets_a_sentence_and_a_good_one(open_page, name, typed, said):
    page = open_page("kv-cache", **{"model": LLAMA, "src": "preset", name: typed})
    assert any(said in note for note in page.notes()), page.notes()
    assert answer(page)[0] >= 0


def test_a_batch_of_0_and_a_context_of_0_are_answered(open_page):
    for empty in ({"batch": "0"}, {"ctx": "0"}, {"batch": "0", "ctx": "0"}):
        page = open_page("kv-cache", model=LLAMA, **empty)
        assert answer(page)[0] == 0
        assert "the cache is empty" in answer(page)[1]


@pytest.mark.parametrize("model", [LLAMA, GEMMA, "deepseek-v3", "falcon-7b", "openelm-1.1b-per-layer-heads", "t5-3b"])
@pytest.mark.parametrize("axis", ["log", "linear"])
def test_the_largest_of_everything_is_drawn(open_page, model, axis):
    most = {"ctx": "1000000000", "batch": "1000000", "gpus": "4096", "params": "1e15", "rank": "65536", "span": "1e9"}
    for against in ("context", "batch"):
        page = open_page("kv-cache", model=model, axis=axis, along=against, others="gpt2~bert-encoder-only", **most)
        assert answer(page)[0] == preset_size(model).total_bytes(10**9, 10**6)
        assert len(page.sent("chart", "kv_")) == 3


def test_a_context_beyond_the_models_limit_is_told(open_page):
    assert any("2,048 tokens as the limit" in n for n in open_page("kv-cache", model="llama-2-7b", ctx="2049").notes())
    assert not any("limit" in note for note in open_page("kv-cache", model="llama-2-7b", ctx="2048").notes())


def test_the_limit_of_one_model_does_not_stay_with_the_next_but_what_was_asked_for_does(open_page):
    for asked, stays in (("2048", False), ("2049", True)):
        page = open_page("kv-cache", src="preset", model="llama-2-7b", ctx=asked, params="7B")
        page.app.selectbox(key="kv_model").set_value(LLAMA)
        page.run()
        assert page.link()["model"] == LLAMA
        assert page.link().get("ctx") == (asked if stays else None)
        assert "params" not in page.link()
        assert answer(page)[0] == 131_072 * (2049 if stays else 131_072)


def test_the_models_to_compare_with_are_chosen_from_a_list(open_page):
    page = open_page("kv-cache", model=LLAMA)
    page.app.multiselect(key="kv_others").set_value([GEMMA, "knobs"])
    assert page.run().link()["others"] == f"{GEMMA}~knobs"
