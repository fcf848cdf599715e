"""The page Flow: every number that is sent is one of the trace; links, the worked example, what is changed."""

from typing import Any

import numpy as np
import pytest

from mha_core import worked_example
from mha_core.analysis.flow import STAGES
from mha_core.analysis.writes import writes_of
from mha_core.text import MAX_TOKENS
from mha_core.trace import STEPS
from mha_view import state
from mha_view.settings import DEFAULTS

ALIASES = {"Q": "q", "K": "k", "V": "v", "concat": "z", "masked": "scores"}


def fed(page, picture, name) -> Any:
    found = [part["data"] for part in page.sent("feed") if (part["picture"], part["name"]) == (picture, name)]
    return found[0] if found else None


def at(page):
    return fed(page, "flow", "place")["at"]


def test_the_first_view_has_every_stage_of_the_recommended_head(open_page):
    page = open_page("flow")
    words = page.sent("flow")[0]
    assert [stage["columns"] for stage in words["stages"]] == [[list(names) for names in s.columns] for s in STAGES]
    assert at(page) == {"step": 0, "head": 3, "row": 8, "col": 8}
    assert page.link().items() >= {"layer": "1", "step": "0", "head": "3", "preset": "yours", "without": "-1"}.items()
    assert fed(page, "flow", "weights") is None
    assert all(ok for _, ok, *_ in page.sent("checks")[0]["checks"])


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"d": "64", "h": "16", "g": "4", "s": "the dog slept .", "mask": "window", "window": "3"},
        {"d": "24", "h": "12", "g": "1", "weights": "random", "mask": "full", "s": "cat"},
        {"d": "96", "h": "1", "g": "1", "weights": "random", "seed": "5", "s": "no no"},
        {"d": "128", "h": "64", "g": "64", "weights": "random"},
    ],
    ids=["default", "shared and windowed", "d_k 2, one word", "one head", "64 heads"],
)
def test_every_number_that_is_sent_is_one_of_the_trace(open_page, settings):
    page = open_page("flow", **settings, layer="1", step="1")
    chosen = page.app.session_state["_settings"]
    run, model = state.cached_run(chosen), state.cached_model(chosen).model
    trace, stream = run.layer(1), run.trace.parts[2]
    cfg, n = trace.cfg, len(run.tokens.items)
    blobs = fed(page, "flow", "numbers")["blobs"]
    sent = {name: blob["all"] for name, blob in blobs.items()}
    for step in STEPS:
        if step.name in sent:
            np.testing.assert_array_equal(sent[step.name], trace.array(step.name).ravel(), err_msg=step.name)
    # concat is drawn from z, which must therefore be the same numbers in another order.
    z = sent["z"].reshape(cfg.n_heads, n, cfg.head_dim)
    np.testing.assert_array_equal(z.transpose(1, 0, 2).reshape(n, -1), trace.array("concat"))
    np.testing.assert_array_equal(sent["before"], stream.before.numpy().ravel())
    np.testing.assert_array_equal(sent["after"], stream.after.numpy().ravel())
    np.testing.assert_allclose(sent["dots"] * cfg.scale, trace.array("scores").ravel(), atol=2e-5)
    mask = np.array([sign == "1" for sign in fed(page, "flow", "numbers")["mask"]])
    np.testing.assert_array_equal(mask, trace.array("mask").ravel())
    layer = model.attention_layers()[1]
    for name, blob in fed(page, "flow", "weights")["blobs"].items():
        weight = getattr(layer, name).weight.detach().numpy().T
        axis = 0 if name == "W_O" else 1
        slices = blob["all"].reshape(-1, *((cfg.head_dim, cfg.d_model) if axis == 0 else (cfg.d_model, cfg.head_dim)))
        np.testing.assert_array_equal(np.concatenate(list(slices), axis=axis), weight, err_msg=name)
    assert set(sent) | {"mask", "concat"} >= {step.name for step in STEPS}


def test_the_writes_that_are_sent_are_those_of_the_trace(open_page):
    page = open_page("flow", layer="2", row="5")
    data = fed(page, "writes", "data")
    found = writes_of(state.cached_run(DEFAULTS).layer(2), 5, most=12)
    for i, line in enumerate(data["lines"]):
        np.testing.assert_array_equal(line["write"], found.writes[i])
        np.testing.assert_allclose(line["figures"], [found.norms[i], found.cosines[i], found.shares[i]], rtol=1e-6)
    dims = data["dims"]
    np.testing.assert_array_equal(data["bars"]["running"].reshape(8, -1), found.running[:, dims])
    np.testing.assert_array_equal(data["bars"]["out"], found.out[dims])
    assert data["sum"]["ok"] is True
    assert float(data["sum"]["deviation"]) < 1e-5
    assert set(np.argsort(-np.abs(found.out))[:8]) == set(dims)


def test_weights_travel_only_with_a_stage_that_shows_them_and_once(open_page):
    page = open_page("flow", step="10")
    key = fed(page, "flow", "weights")["key"]
    page.app.session_state["flow"] = {"at": {"step": 10, "head": 3, "row": 8, "col": 8, "have": key}}
    page.run()
    assert fed(page, "flow", "weights") is None
    assert fed(open_page("flow", step="4"), "flow", "weights") is None


def test_an_impossible_place_is_told(open_page):
    page = open_page("flow", step="99", head="8", row="-1", col="1e6", preset="<b>", without="64", layer="3")
    told = " ".join(page.notes())
    assert "step = “99”; step can be 0 to 11. 0 is shown." in told
    assert "head = “8”; head can be 0 to 7" in told
    assert "row = “-1”; row can be 0 to 11" in told
    assert "col = “1e6”; col can be 0 to 127" in told
    assert "preset = “<b>”; preset can be yours, worked" in told
    assert "without = “64”; without can be -1 to 7" in told
    assert "layer = “3”; layer can be 0 to 2" in told


def test_the_worked_example_is_labelled_and_its_numbers_are_those_of_the_core(open_page):
    page = open_page("flow", preset="worked", step="5")
    assert any(note.startswith("Worked example. These weights are constructed, not learned") for note in page.notes())
    assert any("the score 3 and the weight 0.87" in note for note in page.notes())
    numbers, trace = fed(page, "flow", "numbers"), worked_example.trace()
    assert numbers["labels"] == ["The", "cat", "sat", "down"]
    for name in ("x", "q", "scores", "pattern", "z", "out"):
        np.testing.assert_array_equal(numbers["blobs"][name]["all"], trace.array(name).ravel())
    assert [stage["name"] for stage in page.sent("flow")[0]["stages"]].count("rotary") == 0
    assert fed(page, "writes", "data")["token"] == "sat"


def test_the_preset_is_chosen_in_the_bar_and_takes_its_own_place(open_page):
    page = open_page("flow", step="11", head="7")
    page.app.session_state["flow_bar"] = {"set": {"name": "preset", "value": "worked"}}
    state_key = "_picks"
    page.app.session_state[state_key] = {"preset": "worked"}
    page.run()
    assert at(page) == {"step": 0, "head": 1, "row": 2, "col": 1}


def test_a_head_off_and_swapped_slices_move_the_output_and_no_map(open_page):
    plain = fed(open_page("flow"), "writes", "data")
    changed = fed(open_page("flow", without="3", swap="1", **{"with": "2"}), "writes", "data")
    assert plain["changed"] is None
    assert plain["told"] == ""
    assert changed["off"] == 3
    assert changed["swap"] == [1, 2]
    assert "without head 3 and with the slices of heads 1 and 2 swapped" in changed["told"]
    assert changed["told"].endswith("The maps stay: largest change of any weight 0.")
    assert not np.array_equal(changed["changed"], changed["out"])
    np.testing.assert_array_equal(changed["out"], plain["out"])


def test_a_swap_with_itself_is_no_swap(open_page):
    assert fed(open_page("flow", swap="1", **{"with": "1"}), "writes", "data")["changed"] is None


def test_large_settings_send_thumbnails_and_exact_numbers_on_demand(open_page):
    text = " ".join(["the", "cat", "sat", "on"] * 32)
    page = open_page("flow", d="1024", h="64", g="8", weights="random", s=text, head="40", step="1")
    numbers = fed(page, "flow", "numbers")
    assert "were sent instead of" in numbers["sentText"]
    assert all("all" in blob or "pool" in blob for blob in numbers["blobs"].values())
    total = sum(
        part.nbytes for blob in numbers["blobs"].values() for part in blob.values() if isinstance(part, np.ndarray)
    )
    assert total < 10**6
    place = {"step": 1, "head": 40, "row": 100, "col": 9}
    page.app.session_state["flow"] = {"at": {**place, "zoom": {"name": "q", "head": 40, "row": 100, "col": 9}}}
    page.run()
    asked = fed(page, "flow", "place")
    trace = state.cached_run(page.app.session_state["_settings"]).layer(0)
    zoom, cell = asked["zoom"], asked["cell"]
    window = np.array(zoom["values"]).reshape(zoom["rows"], zoom["cols"])
    rows, cols = (slice(zoom[a], zoom[a] + zoom[b]) for a, b in (("row", "rows"), ("col", "cols")))
    np.testing.assert_array_equal(window, trace.array("q")[40, rows, cols])
    terms = np.array(cell["terms"])
    np.testing.assert_array_equal(terms[:, 0], trace.array("x")[100])
    assert terms.prod(1).sum() == pytest.approx(float(trace.array("q")[40, 100, 9]), abs=1e-5)


@pytest.mark.parametrize(
    "zoom",
    [
        {"name": "q", "head": 99, "row": 0, "col": 0},
        {"name": "__class__"},
        {"name": ["q"]},
        {"name": "x", "head": 0, "row": -1, "col": 0},
        "x",
    ],
)
def test_a_dishonest_browser_gets_no_numbers(open_page, zoom):
    page = open_page("flow")
    page.app.session_state["flow"] = {"at": {"step": 0, "zoom": zoom, "have": 3}}
    page.run()
    assert fed(page, "flow", "place")["zoom"] is None


def test_the_longest_text_opens(open_page):
    page = open_page("flow", s=" ".join(["cat"] * MAX_TOKENS))
    assert len(fed(page, "flow", "numbers")["labels"]) == MAX_TOKENS + 1


def test_no_words_is_an_invitation(open_page):
    page = open_page("flow", s=" ")
    assert any(note.startswith("Type a sentence") for note in page.notes())
    assert page.sent("flow") == []


@pytest.mark.parametrize(
    ("one", "other"),
    [({"s": "the cat sat ."}, {"s": "the dog sat ."}), ({"mask": "full"}, {}), ({"layer": "0"}, {"layer": "1"})],
    ids=["sentence", "mask", "layer"],
)
def test_what_is_packed_for_one_is_never_handed_to_another(open_page, one, other):
    for chosen in (one, other, one):
        page = open_page("flow", **chosen)
        run = state.cached_run(page.app.session_state["_settings"])
        trace, row = run.layer(int(page.link()["layer"])), int(page.link()["row"])
        sent = fed(page, "flow", "numbers")["blobs"]["pattern"]["all"]
        np.testing.assert_array_equal(sent, trace.array("pattern").ravel())
        np.testing.assert_array_equal(fed(page, "writes", "data")["out"], trace.array("out")[row])


def test_another_scale_sends_the_same_numbers(open_page):
    log, linear = (open_page("flow", scale=scale) for scale in ("log", "linear"))
    np.testing.assert_equal(fed(log, "flow", "numbers"), fed(linear, "flow", "numbers"))
    assert fed(log, "flow", "place")["scale"] == "log"


def test_two_visitors_on_other_steps_do_not_meet(open_page):
    one, two = open_page("flow", step="3", head="1"), open_page("flow", step="7", head="5")
    for page, step, head in ((one, 3, 1), (two, 7, 5), (one, 3, 1)):
        page.run()
        assert (at(page)["step"], at(page)["head"]) == (step, head)
