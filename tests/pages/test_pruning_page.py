"""The page Pruning: what is off, what that costs, and curves that can be half done."""

import base64
import itertools
import threading

import numpy as np
import pytest

from mha_core.analysis import pruning
from mha_view import pruned, state
from mha_view.jobs import JobQueue
from mha_view.panels.pruning import FIGURES
from mha_view.results import VOCABULARY
from mha_view.settings import DEFAULTS, Settings
from mha_view.state import waiting

PATIENCE = 60.0
SMALL = {"d": "32", "h": "4", "g": "2"}
SMALL_SETTINGS = Settings(d_model=32, n_heads=4, n_kv_heads=2)


@pytest.fixture(autouse=True)
def brief(monkeypatch):
    """Fewer sentences than in the app, so that the tests take seconds."""
    monkeypatch.setattr(pruned, "FULL_SENTENCES", 108)
    monkeypatch.setattr(pruned, "CURVE_SENTENCES", 28)


def until(page, ready):
    """Look again and again, as the page itself does in a browser, until what is measured has come."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if ready(page):
            return page
        pause.wait(0.05)
        page.run()
    raise AssertionError(f"not ready: {page.sent('facts')} {page.notes()}")


def measured(page):
    return "more are being measured" not in figures(page)["caption"] and "…" not in str(figures(page)["facts"])


def figures(page):
    return page.sent("facts")[1]


def bar(page):
    """The controls over the curve; the shared ones have examples."""
    return next(part for part in page.sent("controls") if "examples" not in part)


def values(page):
    return {label: value for label, value, _ in figures(page)["facts"]}


def test_all_heads_are_on_at_first_and_the_figures_come_soon_with_their_n(open_page, monkeypatch):
    monkeypatch.setattr(pruned, "FULL_SENTENCES", 600)
    page = open_page("pruning")
    assert page.sent("facts")[0]["lead"].startswith("All 24 heads are on.")
    assert page.sent("toggles")[0]["off"] == []
    assert page.sent("toggles")[0]["badges"]
    assert page.sent("maps") == []
    until(page, lambda page: "…" not in str(figures(page)["facts"]))
    assert figures(page)["caption"].split()[0] in ("100", "600")
    until(page, measured)
    assert figures(page)["caption"].startswith("600 sentences")
    card = state.cached_model(DEFAULTS).card
    assert card is not None
    tasks = card.figures.tasks
    assert values(page)["whom the pronoun means"] == f"{tasks.coreference:.3f}"
    assert values(page)["copies a list said twice"] == f"{tasks.copy:.3f}"


def test_a_link_with_heads_off_shows_their_model(open_page):
    page = until(open_page("pruning", off="1.3-0.2", **SMALL), measured)
    assert page.link()["off"] == "0.2-1.3"
    assert page.sent("toggles")[0]["off"] == ["0.2", "1.3"]
    model = state.cached_model(SMALL_SETTINGS).model
    exam = pruning.exam(pruned.full_count(SMALL_SETTINGS), VOCABULARY)
    expected, base = pruning.measure(model, exam, ((0, 2), (1, 3))), pruning.measure(model, exam)
    facts = {label: (value, note) for label, value, note in figures(page)["facts"]}
    assert facts["loss, nats per word"][0] == f"{expected.validation_loss:.3f}"
    assert facts["loss, nats per word"][1].startswith(f"all heads on {base.validation_loss:.3f}")
    assert facts["verb fits its subject"] == (
        f"{expected.agreement:.3f}",
        f"all heads on {base.agreement:.3f}; chance 0.5",
    )


def test_the_prediction_and_the_maps_are_those_of_the_pruned_trace(open_page):
    page = open_page("pruning", off="0.0-0.1", layer="2", head="1", **SMALL)
    run, loaded = state.cached_run(SMALL_SETTINGS), state.cached_model(SMALL_SETTINGS)
    without = pruned.without_heads(run, loaded, ((0, 0), (0, 1)))
    before, after, typed = page.sent("facts")[0]["facts"]
    assert [before[0], after[0], typed[0]] == ["after “was”, all heads on", "the same, 2 off", "chance of “tired”"]
    row = run.tokens.labels.index("was")
    assert before[1] == " · ".join(f"{word} {chance:.2f}" for word, chance in run.next_words(position=row))
    assert after[1] == " · ".join(f"{word} {chance:.2f}" for word, chance in without.next_words(position=row))
    assert before[1] != after[1]
    difference = page.sent("head")[0]
    now, then = (one.layer(2).array("pattern")[1] for one in (without, run))
    np.testing.assert_array_equal(
        np.frombuffer(base64.b64decode(difference["weights"]), np.float32), (now - then).ravel()
    )


def test_the_head_that_changed_most_is_named_and_framed(open_page):
    page = open_page("pruning", off="0.0-0.1", **SMALL)
    run = state.cached_run(SMALL_SETTINGS)
    without = pruned.without_heads(run, state.cached_model(SMALL_SETTINGS), ((0, 0), (0, 1)))
    shares = pruning.moved(run.trace, without.trace)
    layer, head = np.unravel_index(shares.argmax(), shares.shape)
    maps = page.sent("maps")[0]
    assert maps["picked"] == [layer, head]
    assert f"Layer {layer}, head {head} changed most: {shares[layer, head]:.2f}" in maps["caption"]
    assert maps["badges"]["0.0"] == maps["badges"]["0.1"] == "off"
    assert "0.2" not in maps["badges"]


@pytest.mark.parametrize("sentence", ["The cat sat on the mat because it was", "cat", "cat .", "the dog barked ! ."])
def test_an_unfinished_sentence_is_continued_and_a_finished_one_loses_its_last_word(open_page, sentence):
    page = open_page("pruning", s=sentence, **SMALL)
    found = {
        "The cat sat on the mat because it was": ("was", None),
        "cat": ("cat", None),
        "cat .": ("start", "cat"),
        "the dog barked ! .": ("dog", "barked"),
    }
    after, typed = found[sentence]
    facts = page.sent("facts")[0]["facts"]
    assert facts[0][0] == f"after “{after}”, all heads on"
    assert [label for label, *_ in facts[1:]] == ([] if typed is None else [f"chance of “{typed}”"])


def test_heads_that_the_model_has_not_are_told_and_the_others_go_off(open_page):
    page = open_page("pruning", off="0.1-9.9-<b>-1.-2.7", **SMALL)
    told = "The link switches off “9.9”, “<b>”, “1.” and 1 more; this model has heads 0.0 to 2.3 (layer.head)."
    assert told in page.notes()
    assert page.link()["off"] == "0.1"
    assert page.run().sent("toggles")[0]["off"] == ["0.1"]


def test_heads_stay_off_for_another_sentence_and_not_for_other_sizes(open_page):
    page = open_page("pruning", off="0.1-2.3", **SMALL)
    page.app.text_area[0].set_value("the dog barked .")
    assert page.run().link()["off"] == "0.1-2.3"
    page.app.session_state[state.widget_key("n_heads")] = 2
    assert page.run().link()["off"] == ""


def test_with_all_heads_off_the_page_says_what_remains(open_page):
    everything = "-".join(f"{layer}.{head}" for layer in range(3) for head in range(4))
    page = open_page("pruning", off=everything, **SMALL)
    assert page.sent("toggles")[0]["title"] == "0 of 12 heads on"
    assert "What remains is each token's own vector and the MLPs" in page.sent("facts")[0]["lead"]
    until(page, measured)
    assert values(page)["whom the pronoun means"] == "0.500"
    assert page.sent("maps")[0]["caption"].startswith("No head that is on looks elsewhere")


def half_a_curve(settings, order, points):
    """A real curve that ends after so many points, in the queue and finished there by its being left."""
    loaded = state.cached_model(settings)
    key, count = waiting._curve_key(settings, order), pruned.curve_count(settings, order)
    reached, hold = threading.Event(), threading.Event()

    def work():
        for progress in pruned.pruning_curve(loaded, order, count):
            yield progress
            if len(progress.curves[0].points) == points:
                break
        reached.set()
        hold.wait(PATIENCE)

    waiting.JOBS.ask(key, work, watcher="test", urgency=waiting.CURVE)
    assert reached.wait(PATIENCE)
    return key, hold


def test_a_curve_is_shown_while_it_grows_and_when_it_was_stopped_half_way(open_page):
    key, hold = half_a_curve(SMALL_SETTINGS, "importance", 5)
    page = open_page("pruning", order="importance", **SMALL)
    try:
        assert any(note.startswith("Measuring: 30 of 78 passes") for note in page.notes())
        assert [name for name, _ in bar(page)["actions"]] == ["stop"]
        assert page.sent("chart")[0]["series"][0]["x"] == [12, 11, 10, 9, 8]
        waiting.JOBS.leave(key, "test")
        still = waiting.JOBS.look(key, None)
        assert still is not None
        assert still.unfinished, "the page waits for it as well"
        waiting.JOBS.leave(key, page.app.session_state["_visitor"])
        page.run()
    finally:
        hold.set()
    assert any(note.startswith("Stopped. The curve ends at 30 of 78 passes; what was reached") for note in page.notes())
    assert any(note.startswith("What the curve says. So far: of 12 heads") for note in page.notes())
    assert page.sent("chart")[0]["series"][0]["x"] == [12, 11, 10, 9, 8]
    assert bar(page)["actions"] == [["start", "Measure it again"]]


def finished_curve(settings, order):
    loaded, count = state.cached_model(settings), pruned.curve_count(settings, order)
    *_, last = pruned.pruning_curve(loaded, order, count)
    done = threading.Event()

    def work():
        yield last
        done.set()

    waiting.JOBS.ask(waiting._curve_key(settings, order), work, watcher="test")
    assert done.wait(PATIENCE)
    return last


def test_a_finished_curve_says_how_many_heads_can_go(open_page):
    settings = Settings(d_model=32, n_heads=2, n_kv_heads=1)
    (curve,) = finished_curve(settings, "greedy").curves
    page = until(open_page("pruning", d="32", h="2", g="1"), lambda page: bar(page)["actions"] == [])
    losses = [point.scores.validation_loss for point in curve.points]
    gone = [max(k for k, loss in enumerate(losses) if loss <= losses[0] * (1 + more)) for more in (0.01, 0.03, 0.07)]
    (said,) = [note for note in page.notes() if note.startswith("What the curve says.")]
    assert f"{gone[0]} at +1%, {gone[1]} at +3%, {gone[2]} at +7%." in said
    assert f"would be 4 heads: without them the loss changes by {losses[4] / losses[0] - 1:+.1%}." in said
    first, left = curve.points[0].scores, curve.points[4].scores
    fell = {name: getattr(first, name) - getattr(left, name) for name in TASKS}
    worst = max(TASKS, key=fell.__getitem__)
    assert f"“{FIGURES[worst][0]}”, from {getattr(first, worst):.2f} to {getattr(left, worst):.2f}." in said
    assert page.sent("chart")[0]["series"][0]["y"] == losses
    (verdict,) = [n for part in page.sent("notes") for n in part["notes"] if n["title"] == "What the curve says."]
    assert [action["value"] for action in verdict["actions"]] == [{"take": k} for k in sorted({*gone} - {0})]


def test_random_orders_are_one_line_with_a_band(open_page):
    settings = Settings(d_model=32, n_heads=1, n_kv_heads=1)
    last = finished_curve(settings, "random")
    page = open_page("pruning", d="32", h="1", g="1", order="random")
    (series,) = page.sent("chart")[0]["series"]
    heights = np.array([[point.scores.validation_loss for point in curve.points] for curve in last.curves])
    assert series["x"] == [3, 2, 1, 0]
    np.testing.assert_allclose(
        [series["low"], series["y"], series["high"]], [heights.min(0), heights.mean(0), heights.max(0)]
    )
    tasks = open_page("pruning", d="32", h="1", g="1", order="random", figure="tasks").sent("chart")[0]
    assert [one["name"] for one in tasks["series"]] == [FIGURES[name][0] for name in TASKS]
    assert tasks["yRange"] == [0.0, 1.0]


TASKS = ("coreference", "mismatch", "agreement", "reflexive", "copy")


def test_random_weights_have_nothing_to_lose_and_the_page_says_so(open_page):
    settings = Settings(weights="random", d_model=16, n_heads=2, n_kv_heads=1, seed=5)
    finished_curve(settings, "importance")
    page = open_page("pruning", weights="random", d="16", h="2", g="1", seed="5", order="importance", off="0.1")
    assert any(note.startswith("There is nothing to lose here. With all heads on the loss is") for note in page.notes())
    until(page, measured)
    assert float(values(page)["loss, nats per word"]) > pruned.even_loss()


def test_a_curve_that_would_take_too_long_is_not_offered(open_page):
    page = open_page("pruning", weights="random", d="1024", h="64", g="64")
    assert any(note.startswith("Not offered. The greedy curve would take too long") for note in page.notes())
    assert bar(page)["actions"] == []


def test_the_default_model_is_measured_on_the_sentences_that_were_promised(monkeypatch):
    monkeypatch.undo()
    assert (pruned.quick_count(DEFAULTS), pruned.full_count(DEFAULTS)) == (100, 600)
    assert [pruned.curve_count(DEFAULTS, order) for order in pruning.ORDERS] == [100, 100, 100]


def test_costs_are_bounded_before_anything_is_measured(monkeypatch):
    monkeypatch.undo()
    for d_model, n_heads in itertools.product((8, 64, 128, 512, 1024), (1, 4, 16, 64)):
        if d_model % (2 * n_heads):
            continue
        settings = Settings(d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads, weights="random")
        counts = [pruned.quick_count(settings), pruned.full_count(settings)]
        curves = [pruned.curve_count(settings, order) for order in pruning.ORDERS]
        assert all(count % 4 == 0 for count in counts + curves)
        assert 4 <= counts[0] <= 100
        assert counts[0] <= counts[1] <= 600
        assert all(count == 0 or pruned.LEAST_CURVE_SENTENCES <= count <= 100 for count in curves)
        assert len({*curves} - {0}) <= 1, "curves in one picture are measured on the same sentences"


def test_a_full_queue_is_told_in_one_sentence(open_page, monkeypatch):
    monkeypatch.setattr(waiting, "JOBS", JobQueue(max_unfinished=0))
    page = open_page("pruning", off="0.1", **SMALL)
    assert any("measurements are waiting or running, which is as many as fit" in note for note in page.notes())
    assert page.sent("toggles")[0]["off"] == ["0.1"]


@pytest.mark.parametrize("text", ["", "  \n"])
def test_no_words_is_an_invitation_here_too(open_page, text):
    page = open_page("pruning", s=text)
    assert "Type a sentence, or press an example, to see what its words look at." in page.notes()


def test_markup_stays_text(open_page):
    page = open_page("pruning", s="<b>x</b> **bold**", off="0.1", **SMALL)
    assert page.sent("facts")[0]["facts"][0][0] == "after “*”, all heads on"
