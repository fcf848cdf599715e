"""The page KV cache: every figure is the core's, for every model, every wrong value and every bad config."""

import json
import re
import time

import pytest

from mha_core.kv_size import ReadError, read_config
from mha_core.kv_size.engines import ENGINES
from mha_core.kv_size.explain import explain
from mha_core.kv_size.formats import FORMATS
from mha_core.kv_size.hardware import Load, fit, gpus, roofline
from mha_core.kv_size.presets import preset_size, presets
from mha_core.kv_size.units import binary
from mha_core.kv_size.weights import parameters, weight_bytes
from mha_core.kv_size.whatif import as_mla, windowed, with_kv_heads
from mha_view.pasted import packed_text
from tests.core.kv_size.data import PLAIN, bad_bytes, bad_rows, config_of

GEMMA = "gemma3-27b-nested-no-pattern"
LLAMA = "llama-3.1-8b"


def facts(page, at=0):
    return {label: (value, note) for label, value, note in page.sent("facts")[at]["facts"]}


def answer(page):
    """(the total in bytes, the leading sentence)."""
    sent = page.sent("facts")[0]
    return int(sent["facts"][0][2].removesuffix(" B").replace(",", "")), sent["lead"]


def paste(page, text):
    page.app.text_area(key="kv_text").set_value(text)
    return page.run()


def picked(page, name, value):
    page.app.session_state["_picks"][name] = value
    return page.run()


# -- the answer ------------------------------------------------------------------------------------------------------


def test_a_stranger_finds_the_cache_of_the_knobs_measured_on_real_tensors(open_page):
    page = open_page("kv-cache", d="64", h="4", g="2", ctx="33", batch="3")
    # 3 layers x K and V x g 2 x d_k 16 x 33 tokens x 4 bytes x 3 sequences, by hand.
    assert answer(page)[0] == 3 * 2 * 2 * 16 * 33 * 4 * 3
    value, note = facts(page)["measured on real tensors"]
    assert value == f"{answer(page)[0]:,} B"
    assert note.endswith("6 tensors (b, g, n, d_k) = 3 x 2 x 33 x 16")


@pytest.mark.parametrize(("g", "times"), [("8", 1), ("4", 2), ("1", 8)])
def test_the_knob_g_divides_the_cache(open_page, g, times):
    assert answer(open_page("kv-cache", g=g))[0] * times == answer(open_page("kv-cache", g="8"))[0]
    assert facts(open_page("kv-cache", g=g))["saving, h / g"][0] == f"8 / {g} = {times}"


def test_a_window_bounds_the_cache_and_a_full_mask_is_told(open_page):
    page = open_page("kv-cache", mask="window", window="5", ctx="100")
    assert answer(page)[0] * 20 == answer(open_page("kv-cache", ctx="100"))[0]
    assert facts(page)["measured on real tensors"][0] == f"{answer(page)[0]:,} B"
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
        assert page.sent("chart") == []
        return
    kept = [row[1] for row in page.sent("layers")[0]["layers"]]
    assert tuple(kept) == size.layer_bytes(70_001, 3, "q8_0", "llama.cpp")
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


@pytest.mark.parametrize(("engine", "dtype"), [(e, d) for e in ENGINES for d in ("bf16", "q4_0")])
def test_each_engine_and_a_quantised_dtype(open_page, engine, dtype):
    page = open_page("kv-cache", model=GEMMA, ctx="3000", engine=engine, dtype=dtype)
    assert answer(page)[0] == preset_size(GEMMA).total_bytes(3000, 1, dtype, engine)
    assert set(FORMATS) > {dtype}


def test_what_does_not_grow_stands_apart(open_page):
    jamba, whisper = open_page("kv-cache", model="jamba-v0.1"), open_page("kv-cache", model="whisper-tiny")
    assert facts(jamba)["state of fixed size, apart"][0] == binary(preset_size("jamba-v0.1").state_bytes())
    assert facts(whisper)["cross-attention, apart"][0] == binary(preset_size("whisper-tiny").cross_attention_bytes())


# -- numbers that were typed -----------------------------------------------------------------------------------------


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
        page = open_page("kv-cache", model=model, axis=axis, against=against, others="gpt2~bert-encoder-only", **most)
        assert answer(page)[0] == preset_size(model).total_bytes(10**9, 10**6)
        assert len(page.sent("chart")) == 3


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


# -- a pasted config -------------------------------------------------------------------------------------------------


def test_a_pasted_config_is_answered_and_comes_back_from_its_link(open_page):
    text = json.dumps(config_of(GEMMA), indent=2)
    page = paste(open_page("kv-cache", src="pasted"), text)
    # Its own limit is the context that it is shown at.
    assert answer(page)[0] == preset_size(GEMMA).total_bytes(read_config(text).max_context or 131_072)
    link = page.link()
    assert link["config"] == packed_text(text)
    again = open_page("kv-cache", **link)
    assert again.app.text_area(key="kv_text").value == text
    assert answer(again) == answer(page)


def read(text):
    """(what the config says, "") or (None, the sentence)."""
    try:
        return read_config(text), ""
    except ReadError as error:
        return None, str(error)


@pytest.mark.parametrize("row", bad_rows(), ids=lambda row: row["file"])
def test_each_bad_config_pasted_is_a_value_or_one_sentence_and_stays_in_the_box(open_page, row):
    text = bad_bytes(row["file"]).decode("utf-8", "replace")
    start = time.perf_counter()
    page = paste(open_page("kv-cache", src="pasted"), text)
    assert time.perf_counter() - start < 20
    assert page.app.text_area(key="kv_text").value == text
    problems = [n["text"] for part in page.sent("notes") for n in part["notes"] if n["title"] == "No answer."]
    size, sentence = read(text)
    # An empty box is an invitation.
    assert problems == ([sentence] if sentence and text else [])
    if size is None:
        assert page.sent("facts") == []
        return
    page = picked(page, "ctx", "1")
    assert answer(page)[0] == size.total_bytes(1)
    assert all(any(caveat in note for note in page.notes()) for caveat in (*size.caveats, *size.notes))


def test_a_picked_file_comes_into_the_box_and_is_let_go(open_page):
    page = open_page("kv-cache", src="pasted")
    text = json.dumps(config_of(LLAMA))
    page.app.file_uploader[0].upload("config.json", text.encode("utf-16"))
    page.run()
    assert page.app.text_area(key="kv_text").value == text
    assert answer(page)[0] == 131_072 * 131_072
    assert page.app.file_uploader[0].value is None
    # Then a file that is no text at all: one sentence, and an empty box.
    page.app.file_uploader[0].upload("model.gguf", bad_bytes("09_not_utf8_binary.json"))
    page.run()
    assert any("The file is not UTF-8 text" in note for note in page.notes())
    assert page.app.text_area(key="kv_text").value == ""
    page.app.file_uploader[0].upload("config.json", b"")
    assert any("The text is empty" in note for note in page.run().notes())


def test_a_text_too_long_for_a_link_is_answered_and_left_out(open_page):
    page = paste(open_page("kv-cache", src="pasted"), bad_bytes("19_five_megabytes.json").decode())
    assert any("a link to this view leaves it out" in note for note in page.notes())
    assert "config" not in page.link()
    assert answer(page)[0] > 0


def test_a_script_in_a_model_name_is_text_everywhere(open_page):
    name = "<script>alert(1)</script>"
    page = paste(open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": name}))
    assert any("alert(1)" in note for note in page.notes())
    for kind in ("markdown", "header", "subheader", "caption"):
        assert all("alert(1)" not in element.value for element in getattr(page.app, kind))


def test_two_visitors_with_pasted_configs_of_equal_layers_keep_their_names(open_page):
    first = paste(open_page("kv-cache", src="pasted"), json.dumps(PLAIN))
    other = paste(open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": "mistral"}))
    assert "pasted llama" in answer(first)[1]
    assert "pasted mistral" in answer(other)[1]
    assert "pasted llama" in answer(first.run())[1]
    for page, kind in ((first, "llama"), (other, "mistral")):
        page = picked(page, "others", "gpt2")
        assert page.sent("table")[1]["rows"][0][0] == f"pasted {kind}"


def test_the_words_of_one_visitors_config_never_reach_another(open_page):
    """Two unknown model types with the same layers: each sees its own name in the sum, whoever came first."""
    for kind in ("zebra-one", "zebra-two"):
        page = paste(
            open_page("kv-cache", src="pasted"), json.dumps({**PLAIN, "model_type": kind, "sliding_window": 64})
        )
        page = picked(page, "others", "pasted~gpt2")
        shown = json.dumps([page.sent(part) for part in ("table", "facts", "layers", "chart", "notes")])
        assert kind in shown
        assert {"zebra-one", "zebra-two"} - {kind} == {name for name in ("zebra-one", "zebra-two") if name not in shown}


# -- charts, models side by side -------------------------------------------------------------------------------------


def chart(page, words):
    return next(part for part in page.sent("chart") if words in part["title"])


@pytest.mark.parametrize("against", ["context", "batch"])
@pytest.mark.parametrize("axis", ["log", "linear"])
def test_every_point_of_every_curve_is_the_cores(open_page, against, axis):
    size = preset_size(GEMMA)
    page = open_page("kv-cache", model=GEMMA, against=against, axis=axis, ctx="3001", batch="3", rank="96", span="777")
    models = {"as it is": size, "MLA, rank 96": as_mla(size, 96), "window 777": windowed(size, 777)}
    for g, name in ((32, "MHA g = 32"), (16, "g = 16"), (8, "g = 8"), (4, "g = 4"), (2, "g = 2"), (1, "MQA g = 1")):
        models[name] = with_kv_heads(size, g)
    sent = chart(page, "as it might be")
    assert {series["name"] for series in sent["series"]} == set(models)
    for series in sent["series"]:
        for x, y in zip(series["x"], series["y"], strict=True):
            context, batch = (x, 3) if against == "context" else (3001, x)
            assert y == models[series["name"]].total_bytes(context, batch)
    assert (3001 if against == "context" else 3) in sent["series"][0]["x"]


def test_the_layers_by_kind_add_up_to_the_total(open_page):
    sent = chart(open_page("kv-cache", model=GEMMA, ctx="3001", batch="2"), "made of")
    for at, x in enumerate(sent["series"][0]["x"]):
        assert sum(series["y"][at] for series in sent["series"]) == preset_size(GEMMA).total_bytes(x, 2)


def test_the_saving_is_written_out(open_page):
    caption = chart(open_page("kv-cache", model=LLAMA), "as it might be")["caption"]
    assert "32/8 = 4" in caption
    assert "32/1 = 32" in caption


def test_four_models_stand_side_by_side_and_in_the_link(open_page):
    page = open_page("kv-cache", model=LLAMA, others=f"{GEMMA}~knobs~deepseek-v3", ctx="4099")
    assert facts(page)["layers that cache"][0] == "32 of 32"
    rows = page.sent("table")[1]["rows"]
    assert [row[0] for row in rows][:2] == [LLAMA, GEMMA]
    for row, name in zip(rows, (LLAMA, GEMMA, None, "deepseek-v3"), strict=True):
        if name is not None:
            assert int(row[2].replace(",", "")) == preset_size(name).total_bytes(4099)
    assert len(chart(page, "Total against context")["series"]) > 0
    assert page.link()["others"] == f"{GEMMA}~knobs~deepseek-v3"


# -- what fits, how fast, the lesson ---------------------------------------------------------------------------------


def test_what_fits_is_said_before_any_speed_and_is_the_cores(open_page):
    name = "H200 141GB SXM"
    page = open_page("kv-cache", model=LLAMA, ctx="50000", batch="6", gpu=name, gpus="2", wdtype="int8", dtype="fp8")
    size = preset_size(LLAMA)
    count = parameters(size)
    assert count is not None
    load = Load(size, weight_bytes(count.total, "int8"), "fp8", "ideal", 2)
    found, roof = fit(load, gpus()[name], 50_000, 6), roofline(load, gpus()[name], count.active, 50_000, 6)
    memory, speed = facts(page, 1), facts(page, 2)
    assert memory["weights on each GPU"][0] == binary(found.weights)
    assert memory["cache and states on each GPU"][0] == binary(found.cache)
    assert memory["longest context"][0] == f"{found.longest_context:,} tokens"
    assert memory["largest batch"][0] == f"{found.largest_batch:,} sequences"
    assert speed["tokens per second, at most"][0] == f"{roof.tokens_per_second:,.1f}"
    assert speed["read for each step"][1].startswith(f"{roof.bytes_moved:,} B")
    bar = page.sent("budget")[0]
    assert gpus()[name].source in bar["caption"]
    assert [part[1] for part in bar["parts"]] == [found.weights, found.cache]
    assert bar["memory"] == gpus()[name].memory


def test_parameters_that_no_config_gives_are_asked_for(open_page):
    page = open_page("kv-cache", model="mamba-130m-no-kv")
    assert any("Type how many it has" in note for note in page.notes())
    typed = picked(page, "params", "130M")
    assert facts(typed, 1)["weights"][0] == binary(260_000_000)


@pytest.mark.parametrize(
    ("batch", "gpu", "said"),
    [("1", "L4", "fits on 1 x L4"), ("99", "L4", "the cache does not"), ("1", "A30", "Not even the weights")],
)
def test_what_does_not_fit_is_said(open_page, batch, gpu, said):
    model = "llama-3.1-70b-fp8-kv-scheme" if "weights" in said else LLAMA
    page = open_page(
        "kv-cache", model=model, ctx="4000", batch=batch, gpu=gpu, params="70B" if "weights" in said else "8B"
    )
    assert said in page.sent("facts")[1]["lead"]


def test_the_three_published_figures_are_made_anew(open_page):
    rows = {row[0]: row for row in open_page("kv-cache").sent("table")[-1]["rows"]}
    assert rows["Llama-2-70B"][3:5] == ["320.00 KiB", "327,680"]
    assert rows["OPT-13B"][3:5] == ["800.00 KiB", "819,200"]
    assert rows["DeepSeek-V3"][4] == "70,272"
    for name in rows:
        said = rows[name][2]
        numbers = [int(n.replace(",", "")) for n in re.findall(r"[\d,]+", said)]
        assert numbers
