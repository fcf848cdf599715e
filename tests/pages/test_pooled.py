"""The section "Same weights, fewer KV heads": what it sends is the pooled model's trace and the stored figures."""

import base64
import statistics
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from streamlit.testing.v1 import AppTest

from mha_core import zoo
from mha_core.analysis import pooling_cost
from mha_core.analysis.pooling import Distance, pooled
from mha_core.analysis.pooling_cost import Comparison, Figures, PoolingError, comparisons
from mha_core.training.grammar import build_vocabulary
from mha_view import pooled as view
from mha_view import state
from mha_view.components.maps import map_levels
from mha_view.settings import DEFAULTS, SIZES
from tests.core import oracle
from tests.pages.conftest import Opened

SCRIPT = str(Path(__file__).with_name("pooled_alone.py"))
SMALL = {"d": "32", "h": "4", "g": "4"}
TASKS = ("coreference", "mismatch", "agreement", "reflexive", "copy")


@pytest.fixture
def section():
    def opened(**params: str) -> Opened:
        app = AppTest.from_file(SCRIPT, default_timeout=60)
        for name, value in params.items():
            app.query_params[name] = value
        return Opened(app)

    return opened


def levels(sent: dict) -> np.ndarray:
    side = sent["side"]
    return np.frombuffer(base64.b64decode(sent["levels"]), np.uint8).reshape(sent["heads"], side, side)


def bar(page: Opened) -> dict:
    return {control["name"]: control for control in page.sent("controls")[0]["controls"]}


def facts(page: Opened) -> dict[str, tuple[str, str]]:
    return {label: (value, note) for part in page.sent("facts") for label, value, note in part["facts"]}


def pooled_by_hand(name: str, fewer: int):
    """A trained model with the KV heads of consecutive query heads averaged in numpy."""
    model, _ = zoo.load(name)
    g, d_k = model.cfg.attention.n_kv_heads, model.cfg.attention.head_dim
    other = type(model)(replace(model.cfg, attention=replace(model.cfg.attention, n_kv_heads=fewer)))
    weights = dict(model.state_dict())
    for key in [key for key in weights if "W_K" in key or "W_V" in key]:
        weights[key] = torch.from_numpy(oracle.pooled_heads(weights[key].double().numpy().T, g, fewer, d_k).T)
    other.load_state_dict(weights)
    return model, other


def traces(name: str, fewer: int, sentence: str):
    ids = torch.tensor([build_vocabulary().tokenize(sentence).ids])
    return tuple(model.trace(ids) for model in pooled_by_hand(name, fewer))


def test_by_default_the_trained_model_is_pooled_to_half_its_kv_heads(section):
    page = section()
    assert bar(page)["pool"]["value"] == "4"
    assert bar(page)["pool"]["label"] == "Pool g = 8 to"
    assert [option[0] for option in bar(page)["pool"]["options"]] == ["4", "2", "1"]
    assert page.link().items() >= {"pool": "4", "layer": "1"}.items()
    assert page.notes() == []
    before, after = page.sent("maps")
    assert (before["title"], after["title"]) == ("Layer 1 before, g = 8", "Layer 1 pooled, g = 4")


@pytest.mark.parametrize(("fewer", "layer"), [(2, 0), (2, 2), (1, 1)])
def test_maps_before_and_after_are_those_of_weights_pooled_by_hand(section, fewer, layer):
    text = "the dog sat because it was tired ."
    page = section(pool=str(fewer), layer=str(layer), s=text, **SMALL)
    before, after = page.sent("maps")
    for sent, trace in zip((before, after), traces("grammar-d32-h4-g4", fewer, text), strict=True):
        attention = trace.layers[layer]
        expected = map_levels(attention.array("pattern"), attention.array("mask"), "linear")
        # One step of 254 where rounding falls the other way.
        assert np.abs(levels(sent).astype(int) - expected.astype(int)).max() <= 1
        assert sent["first"] == layer
        assert sent["layers"] == 1
        row = attention.array("pattern")[:, 5]
        assert [line[5] for line in sent["table"][1:]] == pytest.approx(row.max(-1).tolist(), abs=1e-5)
        assert [line[0] for line in sent["table"][1:]] == [layer] * 4
    assert np.abs(levels(before).astype(int) - levels(after).astype(int)).max() > 20
    assert before["legend"] == after["legend"]


@pytest.mark.parametrize(("fewer", "hues"), [(2, [0, 0, 1, 1]), (1, [0, 0, 0, 0])])
def test_the_hue_is_that_of_the_kv_head_read_then(section, fewer, hues):
    before, after = section(pool=str(fewer), **SMALL).sent("maps")
    assert before["kv"] == [0, 1, 2, 3]
    assert after["kv"] == hues
    assert [line[2] for line in after["table"][1:]] == hues
    assert before["sharing"] == "each head has its own K and V"
    assert after["sharing"] == f"one bar: {4 // fewer} query heads share K and V"


def test_error_and_costs_of_the_sentence_are_those_of_the_core(section):
    text = "the dog sat because it was tired ."
    found = facts(section(pool="2", s=text, **SMALL))
    (model, other), (a, b) = pooled_by_hand("grammar-d32-h4-g4", 2), traces("grammar-d32-h4-g4", 2, text)
    errors = [
        np.mean(
            [np.linalg.norm(y - x) / np.linalg.norm(x) for x, y in zip(p.array("out"), q.array("out"), strict=True)]
        )
        for p, q in zip(a.layers, b.layers, strict=True)
    ]
    assert found["output error, layer by layer"][0] == " · ".join(f"{error:.2f}" for error in errors)
    p, q = (trace.logits[0].double().softmax(-1).numpy() for trace in (a, b))
    assert found["next word, before to after"][0] == f"{(p * np.log(p / q)).sum(-1).mean():.2f} nats"
    counts = [sum(parameter.numel() for parameter in one.parameters()) for one in (model, other)]
    assert found["parameters"][0] == f"{counts[0]:,} → {counts[1]:,}"
    # 2 x 3 layers x g x 8 x 4 bytes.
    assert found["KV cache per token"] == ("768 B → 384 B", "2 times smaller: g = 4 → 2, 4 bytes a number")


def stored_models():
    return {(one.d_model, one.n_heads, one.trained.n_kv_heads): one for one in pooling_cost.stored()}


def test_the_table_holds_the_stored_figures_before_pooled_and_trained(section):
    (sent,) = section(d="64", h="8", g="8", pool="2").sent("table")
    models = stored_models()
    one, trained = models[64, 8, 8], models[64, 8, 2].trained
    (fewer,) = (after for after in one.pooled if after.figures.n_kv_heads == 2)
    rows: dict[str, list] = dict(zip(("before", "pooled", "trained", "off"), sent["rows"], strict=True))
    assert sent["marked"] == 1
    assert [row[0] for row in rows.values()] == [
        "before, g = 8",
        "pooled to g = 2",
        "trained with g = 2",
        "before, all heads off",
    ]
    figures = {"before": one.trained, "pooled": fewer.figures, "trained": trained}
    for name, right in figures.items():
        tasks = [getattr(right.scores, task) for task in TASKS]
        assert rows[name][1:9] == [right.scores.validation_loss, *right.halves, *tasks]
        assert rows[name][11:] == [right.parameters, right.cache_bytes]
    assert rows["pooled"][9:11] == [fewer.distance.out_mean, fewer.distance.kl]
    assert rows["off"][1] == one.heads_off.validation_loss
    assert rows["off"][4:9] == [getattr(one.heads_off, task) for task in TASKS]


def test_the_chart_has_a_pooled_line_a_trained_line_and_no_heads_at_all(section):
    (sent,) = section(d="64", h="16", g="8", pool="2").sent("chart")
    models, stops = stored_models(), [8, 4, 2, 1]
    one = models[64, 16, 8]
    pooled_line, trained_line, off = sent["series"]
    assert pooled_line["x"] == trained_line["x"] == off["x"] == stops
    assert sent["falling"]
    right = [one.trained, *(after.figures for after in one.pooled)]
    for line, figures in ((pooled_line, right), (trained_line, [models[64, 16, g].trained for g in stops])):
        assert line["y"] == [f.scores.validation_loss for f in figures]
        assert line["low"] == [min(f.halves) for f in figures]
        assert line["high"] == [max(f.halves) for f in figures]
    assert off["y"] == [one.heads_off.validation_loss] * 4
    assert [line["name"] for line in sent["series"]] == [
        "pooled from g = 8",
        "trained with that g",
        "g = 8, all heads off",
    ]


def test_the_finding_is_counted_over_all_conversions(section):
    found = comparisons(pooling_cost.stored())
    worse = sum(a > b and c > d for one in found for (a, c), (b, d) in [(one.after.halves, one.trained.halves)])
    medians = [
        statistics.median(losses)
        for losses in zip(
            *(
                [s.validation_loss for s in (c.before.scores, c.after.scores, c.trained.scores, c.heads_off)]
                for c in found
            ),
            strict=True,
        )
    ]
    lead = section().sent("facts")[0]
    assert f"in {worse} of {len(found)} conversions the pooled model is worse, on both halves" in lead["lead"]
    before, after, trained, off = (f"{loss:.2f}" for loss in medians)
    assert f"{before} before pooling, {after} after, {trained} when trained with that g, {off} with all" in lead["lead"]
    assert lead["caption"].startswith("Nothing was trained after the pooling here. Ainslie et al. (2023)")


def test_the_finding_counts_what_is_worse_on_both_halves_and_only_that(monkeypatch):
    scores = comparisons(pooling_cost.stored())[0].before.scores

    def figures(g, *halves):
        return Figures(g, replace(scores, validation_loss=sum(halves) / 2), halves, 7, 5)

    def one(g, after):
        off = replace(scores, validation_loss=6.0)
        return Comparison(32, 12, figures(12, 2, 2), figures(g, *after), Distance(*range(5)), figures(g, 3, 4), off)

    found = (one(6, (3.5, 4.5)), one(6, (3.5, 3.5)), one(4, (2.5, 4.5)), one(2, (5, 5)), one(6, (6, 6)))
    monkeypatch.setattr(view, "compared", lambda: found)
    said = view.finding.__wrapped__()
    assert "in 3 of 5 conversions" in said
    assert "2.00 before pooling, 4.00 after, 3.50 when trained with that g, 6.00 with all heads" in said
    assert "Where 2 KV heads become one, the loss rises by 50% of what" in said
    assert "where 6 do, by 75% (medians)" in said


def test_the_head_whose_map_moved_most_is_named_and_framed(section):
    text = "the dog sat because it was tired ."
    both = traces("grammar-d32-h4-g4", 1, text)
    a, b = (trace.layers[2].array("pattern") for trace in both)
    shares = np.abs(a - b).sum(-1).mean(-1) / 2
    maps = section(pool="1", layer="2", s=text, **SMALL).sent("maps")
    most = int(shares.argmax())
    assert maps[1]["caption"].endswith(
        f"Head {most} changed most: {shares[most]:.3f} of its weight moved, mean over the rows."
    )
    assert [sent["picked"] for sent in maps] == [[2, most]] * 2
    picked = section(pool="1", layer="2", head="0", **SMALL).sent("maps")
    assert [sent["picked"] for sent in picked] == [[2, 0]] * 2


def test_what_the_chosen_conversion_costs_is_said_with_the_task_that_suffers_most(section):
    reading = section(d="64", h="8", g="8", pool="2").sent("facts")[-1]["lead"]
    one, trained = stored_models()[64, 8, 8], stored_models()[64, 8, 2].trained.scores
    before, after = one.trained.scores, next(p.figures.scores for p in one.pooled if p.figures.n_kv_heads == 2)
    off = one.heads_off.validation_loss
    share = (after.validation_loss - before.validation_loss) / (off - before.validation_loss)
    assert f"goes from {before.validation_loss:.2f} to {after.validation_loss:.2f}: {share:.0%} of what all" in reading
    task = max(TASKS, key=lambda name: getattr(before, name) - getattr(after, name))
    words = [f"{getattr(scores, task):.2f}" for scores in (before, after, trained)]
    assert f"“{view.TASKS[task]}”: {words[0]} before, {words[1]} pooled, {words[2]} trained so." in reading
    assert "The cache is 4 times smaller either way." in reading


@pytest.mark.parametrize("asked", ["3", "99", "8", "0", "-1", "2.0", "1e400", "<b>", ""])
def test_a_pool_that_cannot_be_is_told_and_the_first_is_shown(section, asked):
    page = section(pool=asked)
    shown = asked if len(asked) < 24 else asked[:24] + "..."
    assert f"The link asks for pool = “{shown}”; pool can be 4, 2, 1. 4 is shown." in page.notes()
    assert page.link()["pool"] == "4"
    assert len(page.sent("maps")) == 2


def test_a_layer_that_is_not_there_is_told(section):
    page = section(layer="7")
    assert any("layer = “7”; layer can be 0 to 2" in note for note in page.notes())


def test_what_is_chosen_in_the_bar_is_kept_and_goes_with_other_sizes(section):
    page = section(pool="2", layer="2")
    assert page.run().link().items() >= {"pool": "2", "layer": "2"}.items()
    page.app.session_state[state.widget_key("n_heads")] = 4
    assert page.run().link()["pool"] == "2"
    page.app.session_state[state.widget_key("n_heads")] = 2
    assert page.run().link()["pool"] == "1"
    assert page.notes() == [] or all("pool" not in note for note in page.notes())


def actions(page: Opened) -> dict:
    return {a["label"]: a["value"] for part in page.sent("notes") for n in part["notes"] for a in n["actions"]}


@pytest.mark.parametrize("weights", ["trained", "random"])
def test_a_single_kv_head_says_what_can_be_chosen(section, weights):
    page = section(d="64", h="8", g="1", weights=weights, pool="2")
    (note,) = (note for note in page.notes() if note.startswith("g = 1"))
    assert note == "g = 1: there is a single KV head, and nothing left to pool. With h = 8, g can also be 2, 4 or 8."
    assert actions(page) == {"Show g = 8": {"weights": weights, "d_model": 64, "n_heads": 8, "n_kv_heads": 8}}
    assert set(actions(page)["Show g = 8"]) == set(SIZES)
    assert page.sent("maps") == page.sent("table") == []
    assert "conversions" in page.sent("facts")[0]["lead"]
    alone = " ".join(section(d="64", h="1", g="1").notes())
    assert "choose more heads h first" in alone


@pytest.mark.parametrize(
    ("sizes", "nearest"),
    [
        ({"d": "96", "h": "6", "g": "3", "pool": "1"}, "d_model 96, h 6, g 3"),
        ({"d": "64", "h": "8", "g": "4", "pool": "2", "weights": "random"}, "d_model 64, h 8, g 4"),
    ],
)
def test_random_weights_have_maps_and_error_and_no_loss(section, sizes, nearest):
    page = section(**sizes)
    (note,) = page.notes()
    assert note.startswith(
        f"Random weights. For {nearest} the weights are random numbers from the seed. Maps and output"
    )
    assert [label for label in actions(page) if label.startswith("Show trained weights: d_model ")]
    assert len(page.sent("maps")) == 2
    assert "output error, layer by layer" in facts(page)
    assert page.sent("table") == page.sent("chart") == []


def test_random_weights_are_pooled_as_they_are(section):
    page = section(d="24", h="6", g="6", pool="3", weights="random", seed="8", s="the cat sat", layer="2")
    settings = replace(DEFAULTS, d_model=24, n_heads=6, n_kv_heads=6, weights="random", seed=8, sentence="the cat sat")
    ids = state.cached_run(settings).trace.token_ids
    attention = pooled(state.cached_model(settings).model, 3).trace(ids).layers[2]
    expected = map_levels(attention.array("pattern"), attention.array("mask"), "linear")
    np.testing.assert_array_equal(levels(page.sent("maps")[1]), expected)


@pytest.mark.parametrize("text", ["", "  \n", " " * 5_000])
def test_without_a_sentence_the_figures_stay(section, text):
    page = section(s=text)
    assert "Type a sentence to see the maps before and after." in page.notes()
    assert page.sent("maps") == []
    assert len(page.sent("table")) == len(page.sent("chart")) == 1


def test_a_text_that_is_too_long_takes_only_the_maps(section):
    page = section(s=" ".join(["cat"] * 200))
    assert any("the limit is 128" in note for note in page.notes())
    assert page.sent("maps") == []
    assert len(page.sent("table")) == len(page.sent("chart")) == 1


@pytest.mark.parametrize("text", ["cat", "<script>1</script> & **b**"])
def test_any_text_is_drawn(section, text):
    before, after = section(s=text).sent("maps")
    assert before["side"] == after["side"] > 1


def test_64_heads_at_the_largest_width(section):
    page = section(d="1024", h="64", g="64", pool="1", s="cat")
    before, after = page.sent("maps")
    assert before["kv"] == list(range(64))
    assert after["kv"] == [0] * 64
    assert facts(page)["KV cache per token"][1] == "64 times smaller: g = 64 → 1, 4 bytes a number"


def test_another_mask_and_scale_hold_for_both_maps(section):
    before, after = section(mask="full", scale="row", pool="1", **SMALL).sent("maps")
    assert not before["masked"]
    assert not after["masked"]
    assert before["legend"][1] == after["legend"][1] == "row maximum"


def test_two_choices_of_g_and_two_sentences_do_not_meet_in_the_cache(section):
    def after(pool: str, g: str, s: str) -> str:
        return section(d="32", h="4", g=g, pool=pool, s=s).sent("maps")[1]["levels"]

    kinds = [("2", "4", "the fox ran"), ("1", "4", "the fox ran"), ("1", "2", "the fox ran"), ("1", "4", "the owl ran")]
    first = [after(*kind) for kind in kinds]
    assert len(set(first)) == 4
    assert [after(*kind) for kind in kinds] == first


def test_figures_that_cannot_be_read_are_told_and_the_maps_stay(section, monkeypatch):
    def missing():
        raise PoolingError("pooling_cost.json holds no figures that this version can read; run `make evidence`.")

    monkeypatch.setattr(pooling_cost, "stored", missing)
    for kept in (view.stored, view.compared, view.finding):
        kept.cache_clear()
    try:
        page = section(**SMALL)
        assert any(note.startswith("pooling_cost.json holds no figures") for note in page.notes())
        assert len(page.sent("maps")) == 2
        assert page.sent("table") == page.sent("chart") == []
    finally:
        for kept in (view.stored, view.compared, view.finding):
            kept.cache_clear()
