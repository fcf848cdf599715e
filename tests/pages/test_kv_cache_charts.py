"""The page KV cache: every point that is drawn is the core's; models side by side, what fits, the lesson."""

import re

import pytest

from mha_core.kv_size.hardware import Load, fit, gpus, roofline
from mha_core.kv_size.presets import preset_size
from mha_core.kv_size.units import binary
from mha_core.kv_size.weights import parameters, weight_bytes
from mha_core.kv_size.whatif import as_mla, windowed, with_kv_heads
from tests.pages.kv import GEMMA, LLAMA, answer, chart, facts, picked


@pytest.mark.parametrize("against", ["context", "batch"])
@pytest.mark.parametrize("axis", ["log", "linear"])
def test_every_point_of_every_curve_is_the_cores(open_page, against, axis):
    size = preset_size(GEMMA)
    page = open_page("kv-cache", model=GEMMA, along=against, axis=axis, ctx="3001", batch="3", rank="96", span="777")
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


CHANGES = [
    {"ctx": "5003"}, {"batch": "3"}, {"dtype": "q8_0"}, {"engine": "vllm"}, {"rank": "96"}, {"span": "77"},
    {"gpus": "2"}, {"gpu": "A30"}, {"wdtype": "int8"}, {"params": "9B"}, {"along": "batch"}, {"axis": "linear"},
    {"model": "mixtral-8x7b"}, {"others": "gpt2"},
]  # fmt: skip


def test_no_cache_forgets_a_setting(open_page):
    """One choice after the other is changed, and each time all that is shared between visitors is the core's anew."""
    page = open_page("kv-cache", src="preset", model=GEMMA, ctx="3001", params="27B", others="gpt2~opt-13b")
    now = {
        "model": GEMMA,
        "ctx": "3001",
        "batch": "1",
        "dtype": "bf16",
        "engine": "ideal",
        "rank": "512",
        "span": "4096",
    }
    now |= {"gpus": "1", "gpu": "H100 80GB SXM", "wdtype": "bf16", "params": "27B", "along": "context", "axis": "log"}
    now |= {"others": "gpt2~opt-13b"}
    for change in [{}, *CHANGES]:
        now |= change
        for name, value in change.items():
            page.app.session_state["_picks"][name] = value
        everything_is_the_cores(page.run(), now)


def everything_is_the_cores(page, now):
    size, asked = preset_size(now["model"]), (int(now["ctx"]), int(now["batch"]), now["dtype"], now["engine"])
    total, here = size.total_bytes(*asked), int(now["ctx" if now["along"] == "context" else "batch"])
    assert answer(page)[0] == total
    assert sum(row[1] for row in page.sent("layers")[0]["layers"]) == total
    assert page.sent("table")[0]["rows"][-1][2] == f"{total:,}"
    at = {s["name"]: s["y"][s["x"].index(here)] for s in chart(page, "as it might be")["series"]}
    assert at["as it is"] == total
    assert at[f"MLA, rank {int(now['rank']):,}"] == as_mla(size, int(now["rank"])).total_bytes(*asked)
    assert at[f"window {int(now['span']):,}"] == windowed(size, int(now["span"])).total_bytes(*asked)
    assert sum(s["y"][s["x"].index(here)] for s in chart(page, "made of")["series"]) == total
    compared = [preset_size(name).total_bytes(*asked) for name in (now["model"], *now["others"].split("~"))]
    assert [row[2] for row in page.sent("table")[1]["rows"]] == [f"{n:,}" for n in compared]
    count = int(now["params"].removesuffix("B")) * 10**9
    load = Load(size, weight_bytes(count, now["wdtype"]), now["dtype"], now["engine"], int(now["gpus"]))
    card = gpus()[now["gpu"]]
    found, roof = fit(load, card, *asked[:2]), roofline(load, card, count, *asked[:2])
    bar = page.sent("budget")[0]
    assert [bar["memory"], *(part[1] for part in bar["parts"])] == [card.memory, found.weights, found.cache]
    assert facts(page, 2)["tokens per second, at most"][0] == f"{roof.tokens_per_second:,.1f}"
