"""The page Reshape: what is sent is the trace's, wrong orders are told as measured, a guess and a timing are kept."""

import base64
import threading
from typing import Any

import numpy as np
import pytest
import streamlit as st

from mha_core.analysis import timing as core_timing
from mha_core.analysis.orders import order_checks, run_of
from mha_core.analysis.timing import Timing
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig, divisors
from mha_core.text import MAX_TOKENS
from mha_view import state
from mha_view.jobs import JobQueue
from mha_view.panels import parameters
from mha_view.panels import timing as timing_panel
from mha_view.settings import Settings
from mha_view.state import waiting
from mha_view.theme import small

PATIENCE = 60.0


@pytest.fixture(autouse=True)
def queue(monkeypatch):
    """A queue of each test's own: a timing that one has made must not be there for the next."""
    own = JobQueue()
    monkeypatch.setattr(waiting, "JOBS", own)
    yield own
    own.close()


def fed(page) -> dict[str, Any]:
    found = [part["data"] for part in page.sent("feed") if part["picture"] == "memory"]
    return found[0] if found else {}


def floats(text):
    return np.frombuffer(base64.b64decode(text), np.float32)


def bar(page, name) -> Any:
    """The bar that holds a control or an action of this name, or None."""
    for part in page.sent("controls"):
        names = [control["name"] for control in part["controls"]] + [action[0] for action in part["actions"]]
        if "examples" not in part and name in names:
            return part
    return None


def shown_run(page):
    return state.cached_run(page.app.session_state["_settings"])


def test_the_first_view_starts_at_the_product_with_nothing_guessed_and_nothing_measured(open_page):
    page = open_page("reshape")
    assert fed(page)["at"] == {"fold": 0, "row": 1, "head": 0, "from": 0}
    wanted = {"layer": "1", "matrix": "q", "fold": "0", "row": "1", "head": "0", "guess": "unanswered", "time_n": "12"}
    assert page.link().items() >= wanted.items()
    assert page.sent("chart") == []
    assert [name for name, _ in bar(page, "time_n")["actions"]] == ["start"]
    assert all(ok for _, ok, *_ in page.sent("checks")[0]["checks"])


@pytest.mark.parametrize("matrix", ["q", "k", "v"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"d": "64", "h": "16", "g": "4", "s": "the dog slept .", "mask": "window", "window": "3", "from": "2"},
        {"d": "24", "h": "12", "g": "1", "weights": "random", "mask": "full", "s": "cat", "head": "11"},
        {"d": "96", "h": "1", "g": "1", "weights": "random", "seed": "5", "s": "no no", "from": "95"},
        {"d": "128", "h": "64", "g": "64", "weights": "random", "head": "40", "row": "9"},
        {"d": "1024", "h": "8", "g": "2", "weights": "random", "s": "the cat sat on " * 32, "row": "128", "head": "7"},
    ],
    ids=["default", "shared and windowed", "d_k 2, one word", "one head", "64 heads", "1,024 wide, 128 words"],
)
def test_every_number_that_is_sent_is_one_of_the_trace(open_page, settings, matrix):
    page = open_page("reshape", **settings, layer="2", matrix=matrix)
    sent, trace = fed(page), shown_run(page).layer(2)
    n, heads, d_k = sent["sizes"]
    array = trace.array(matrix)
    assert array.shape == (heads, n, d_k)
    (t0, tall), (i0, many), (j0, wide) = sent["spans"]
    window = array[i0 : i0 + many, t0 : t0 + tall, j0 : j0 + wide].transpose(1, 0, 2)
    np.testing.assert_array_equal(floats(sent["values"]).reshape(tall, many, wide), window)
    # What the wrong order takes, from the memory written out by hand: token after token, head after head.
    memory = [array[i, t, j] for t in range(n) for i in range(heads) for j in range(d_k)]
    owners = [(t, i, j) for t in range(n) for i in range(heads) for j in range(d_k)]
    taken = [((i0 + i) * n + t0 + t) * d_k + j0 + j for t in range(tall) for i in range(many) for j in range(wide)]
    np.testing.assert_array_equal(floats(sent["wrongValues"]), [memory[address] for address in taken])
    assert [tuple(owner) for owner in sent["owners"]] == [owners[address] for address in taken]
    assert sent["most"] == pytest.approx(max(abs(window).max(), abs(floats(sent["wrongValues"])).max()))
    assert {tuple(layout["shape"]) for layout in sent["layouts"]} == {
        (1, n, heads * d_k), (1, n, heads, d_k), (1, heads, n, d_k),
    }  # fmt: skip
    assert sent["layouts"][1]["strides"] == [n * heads * d_k, heads * d_k, d_k, 1] or 1 in (n, heads)
    # The chosen token and head are among those that are drawn.
    head = sent["at"]["head"] if matrix == "q" else trace.cfg.kv_head_of(sent["at"]["head"])
    assert t0 <= sent["at"]["row"] < t0 + tall
    assert i0 <= head < i0 + many
    assert j0 <= sent["at"]["from"] < j0 + wide


def test_large_settings_send_no_more_than_small_ones(open_page):
    page = open_page("reshape", d="1024", h="64", g="64", weights="random", s="the cat sat on " * 32, guess="none")
    parts = [part.proto.json for part in page.app.get("bidi_component")]
    assert sum(map(len, parts)) < 40_000


@pytest.mark.parametrize("g", [8, 4, 1])
def test_the_table_of_orders_is_measured_on_the_visitors_run(open_page, g):
    page = open_page("reshape", g=str(g), layer="0")
    run, settings = shown_run(page), page.app.session_state["_settings"]
    layer = state.cached_model(settings).model.attention_layers()[0]
    right, view, tile = order_checks(run_of(layer, run.layer(0)))
    rows = page.sent("table")[0]["rows"]
    for row, check in zip(rows, (right, view, tile), strict=True):
        assert row[1:3] == ["(1, 8, 12, 16)", "(1, 12, 128)"]
        assert row[3:6] == [f"off by {small(check.row_sums)}", small(check.pattern), small(check.out)]
    assert rows[0][6] == "✓ the loop's numbers"
    assert rows[1][6].startswith("✗ wrong numbers")
    assert rows[2][6].startswith("✗ wrong numbers" if g == 4 else "✓ harmless here")
    assert max(right.pattern, right.out) < 1e-4 < 0.1 < view.out
    assert (tile.out > 0.1) == (g == 4)


@pytest.mark.parametrize(
    ("settings", "why", "leads_to"),
    [
        ({"g": "8"}, "g = h = 8: no keys or values are shared", "See tile go wrong: g = 4"),
        ({"g": "1"}, "g = 1: all 8 heads read the same KV head", "See tile go wrong: g = 4"),
        ({"g": "2"}, None, None),
        ({"h": "2", "g": "1"}, "g = 1: all 2 heads", None),
        ({"h": "1", "g": "1"}, "h = 1: there is one head", None),
    ],
)
def test_where_a_mistake_is_harmless_the_page_says_why(open_page, settings, why, leads_to):
    page = open_page("reshape", **settings, weights="random")
    caption = page.sent("table")[0]["caption"]
    assert (why in caption) if why else ("harmless" not in str(page.sent("table")[0]["rows"]))
    way = bar(page, "share")
    assert (way["actions"][0][1] if way else None) == leads_to


def test_who_reads_whom_is_sent_for_every_query_head(open_page):
    reads = fed(open_page("reshape", h="16", g="4", d="64"))["reads"]
    assert reads["right"] == [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3]
    assert reads["tile"] == [0, 1, 2, 3] * 4


def test_an_impossible_place_is_told(open_page):
    page = open_page("reshape", fold="4", head="8", row="-1", matrix="<b>", layer="3", guess="?", **{"from": "16"})
    told = " ".join(page.notes())
    assert "fold = “4”; fold can be 0 to 3. 0 is shown." in told
    assert "head = “8”; head can be 0 to 7" in told
    assert "row = “-1”; row can be 0 to 11" in told
    assert "matrix = “<b>”; matrix can be q, k, v" in told
    assert "layer = “3”; layer can be 0 to 2" in told
    assert "from = “16”; from can be 0 to 15" in told
    assert "guess = “?”; guess can be none, half, twice, unsure, unanswered" in told


def test_impossible_sizes_of_the_timing_are_told(open_page):
    told = " ".join(open_page("reshape", time_n="1025", time_d="100", time_h="3").notes())
    assert "time_n = “1025”; time_n can be 1 to 1024. 12 is shown." in told
    assert "time_d = “100”; time_d can be 8, 16," in told
    assert "time_h = “3”; time_h can be 1, 2, 4, 8" in told


@pytest.mark.parametrize("text", ["", " \n"])
def test_no_words_is_an_invitation_and_the_rest_still_works(open_page, text):
    page = open_page("reshape", s=text, guess="none")
    assert any(note.startswith("Type a sentence") for note in page.notes())
    assert page.sent("memory") == []
    assert len(page.sent("chart")) == 2
    assert bar(page, "time_n") is not None


def test_the_longest_text_opens(open_page):
    page = open_page("reshape", s=" ".join(["cat"] * MAX_TOKENS))
    assert fed(page)["sizes"][0] == MAX_TOKENS + 1
    assert page.link()["time_n"] == str(MAX_TOKENS + 1)


def test_two_visitors_on_other_places_do_not_meet(open_page):
    one, two = open_page("reshape", fold="1", head="1", guess="twice"), open_page("reshape", fold="3", head="5", g="4")
    for page, fold, head, guess in ((one, 1, 1, "twice"), (two, 3, 5, "unanswered"), (one, 1, 1, "twice")):
        page.run()
        assert (fed(page)["at"]["fold"], fed(page)["at"]["head"]) == (fold, head)
        assert page.link()["guess"] == guess


@pytest.mark.parametrize(
    ("one", "other"),
    [({"s": "the cat sat ."}, {"s": "the dog sat ."}), ({"mask": "full"}, {}), ({"layer": "0"}, {"layer": "1"})],
    ids=["sentence", "mask", "layer"],
)
def test_what_is_measured_for_one_is_never_handed_to_another(open_page, one, other):
    for chosen in (one, other, one):
        page = open_page("reshape", **chosen)
        layer = int(page.link()["layer"])
        module = state.cached_model(page.app.session_state["_settings"]).model.attention_layers()[layer]
        checks = order_checks(run_of(module, shown_run(page).layer(layer)))
        right, *wrong = [row[5] for row in page.sent("table")[0]["rows"]]
        assert wrong == [small(check.out) for check in checks[1:]]
        # What is right differs by rounding alone, and that is not the same in every pass.
        assert float(right) < 1e-5


# --- the guess -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("guess", list(parameters.GUESSES))
def test_the_answer_is_counted_and_the_guess_stays_in_the_link(open_page, guess):
    page = open_page("reshape", guess=guess, d="96", h="6", g="2", weights="random")
    (told,) = [note for note in page.notes() if note.startswith("None.")]
    assert "6 heads of width 16 need 36,864, 12 of width 8 need 36,864" in told
    assert f"sharing: 12 heads on one KV head need {2 * 96**2 + 2 * 96 * 8:,}." in told
    assert (f"You said “{parameters.GUESSES[guess]}”." in told) == (guess != "unsure")
    assert page.link()["guess"] == guess
    assert bar(page, "again") is not None


def test_before_the_guess_nothing_is_given_away(open_page):
    page = open_page("reshape")
    assert page.sent("chart") == []
    assert len(page.sent("table")) == 1
    assert not any("None." in note for note in page.notes())


@pytest.mark.parametrize(("d", "h", "few", "many"), [(8, 4, 4, 8), (8, 2, 2, 4), (1024, 64, 64, 128), (24, 12, 12, 24)])
def test_the_question_fits_every_width(d, h, few, many):
    assert parameters.doubled(Settings(d_model=d, n_heads=h, n_kv_heads=1)) == (few, many)


def test_where_twice_as_many_heads_do_not_fit_half_as_many_are_asked_about():
    assert parameters.doubled(Settings(d_model=8, n_heads=8, n_kv_heads=1)) == (4, 8)


def test_bars_and_table_hold_what_real_modules_hold(open_page):
    page = open_page("reshape", guess="none", d="48", h="6", g="3", weights="random")
    against_h, against_g = page.sent("chart")
    for chart, pairs in (
        (against_h, [(h, h) for h in divisors(48)]),
        (against_g, [(6, g) for g in (1, 2, 3, 6)]),
    ):
        for at, (h, g) in enumerate(pairs):
            layer = GroupedQueryAttention(AttentionConfig(48, h, g))
            for one in chart["series"]:
                assert one["y"][at] == getattr(layer, one["name"]).weight.numel()
                assert one["x"][at] == (h if chart is against_h else g)
    assert {sum(one["y"][at] for one in against_h["series"]) for at in range(10)} == {4 * 48**2}
    assert (against_h["marked"], against_g["marked"]) == (6, 3)
    assert against_h["yRange"] == against_g["yRange"]
    assert against_h["title"].endswith("flat")
    rows, marked = page.sent("table")[1]["rows"], page.sent("table")[1]["marked"]
    assert rows[marked][:2] == [6, 3]
    for h, g, d_k, formula, held, difference in rows:
        assert d_k == 48 // h
        assert formula == held == 2 * 48**2 + 2 * 48 * g * d_k
        assert difference == 0


# --- the timing ------------------------------------------------------------------------------------------------------


def key_of(page) -> tuple[object, ...]:
    link = page.link()
    return ("timing", int(link["time_n"]), int(link["time_d"]), int(link["time_h"]), 0)


def until(page, ready):
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.05)):
        if ready(page):
            return page
        pause.wait(0.05)
        page.run()
    raise AssertionError(f"not ready: {page.notes()}")


def measured(page):
    return any(note.startswith("Measured.") for note in page.notes())


def test_a_real_timing_is_measured_named_and_can_be_repeated(open_page, queue):
    page = open_page("reshape", time_n="5", time_d="24", time_h="3")
    queue.ask(key_of(page), lambda: core_timing.timing(5, 24, 3), watcher="test")
    until(page, measured)
    view = queue.look(key_of(page), None)
    assert view is not None
    timing = view.latest
    facts = {label: (value, note) for label, value, note in page.sent("facts")[0]["facts"]}
    assert facts["loop over heads"][0] == f"{1e3 * timing.spread('loop').median:.3f} ms"
    assert facts["one big product"][0] == f"{1e3 * timing.spread('big').median:.3f} ms"
    assert facts["largest difference of the outputs"][0] == small(timing.difference)
    assert facts["measured on"][0] == timing.where
    assert page.sent("facts")[0]["lead"] == "n = 5, d_model = 24, h = 3"
    loop, big = page.sent("chart")[0]["series"]
    assert loop["y"] == pytest.approx([1e3 * seconds for seconds in timing.loop])
    assert big["y"] == pytest.approx([1e3 * seconds for seconds in timing.big])
    assert bar(page, "start")["actions"] == [["start", "Measure again"]]


def made(loop, big, difference=2e-7):
    return Timing(tuple(loop), tuple(big), difference, 0.5, 101, "a machine", 1)


@pytest.mark.parametrize(
    ("timing", "words"),
    [
        (made([3.0] * 9, [2.0] * 9), "The loop takes 1.5 times as long: the loop was slower in 9 of 9 rounds."),
        (made([1.0] * 9, [2.0] * 9), "Here the loop is no slower: the loop was slower in 0 of 9 rounds, and the big "),
        (made([1.0, 3.0] * 4, [2.0] * 8), "cannot be told apart here: the loop was slower in 4 of 8 rounds."),
    ],
)
def test_the_verdict_says_what_was_measured_whichever_way_it_went(timing, words):
    told = timing_panel.verdict(timing)
    assert words in told
    assert "Both give the same output: largest difference 2.0e-07 (largest number 0.50)." in told


def test_a_timing_is_shown_while_it_grows_and_can_be_stopped(open_page, queue):
    page, hold, reached = open_page("reshape", time_n="7"), threading.Event(), threading.Event()

    def work():
        yield made([1.0, 2.0], [1.0, 1.0])
        reached.set()
        hold.wait(PATIENCE)

    queue.ask(key_of(page), work, watcher="test")
    assert reached.wait(PATIENCE)
    page.run()
    try:
        assert any(note.startswith("Measuring: 2 of at most 101 rounds") for note in page.notes())
        assert bar(page, "stop")["actions"] == [["stop", "Stop"]]
        queue.leave(key_of(page), "test")
        queue.leave(key_of(page), page.app.session_state["_visitor"])
        page.run()
    finally:
        hold.set()
    assert any(note.startswith("Stopped. It ends after 2 of at most 101 rounds") for note in page.notes())
    assert bar(page, "start") is not None


def test_a_timing_that_fails_is_told_without_a_traceback(open_page, queue):
    page = open_page("reshape", time_n="3")

    def work():
        raise RuntimeError("secret")
        yield

    queue.ask(key_of(page), work, watcher="test")
    until(page, lambda page: any(note.startswith("Failed.") for note in page.notes()))
    assert "secret" not in str(page.notes())


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"time_n": "1024", "time_d": "1024", "time_h": "8"}, "6,442 million multiplications a pass"),
        ({"time_n": "1024", "time_d": "64", "time_h": "64"}, "64 heads of 1,024 x 1,024 scores"),
    ],
)
def test_what_would_take_too_long_is_refused_and_has_no_button(open_page, sizes, words):
    page = open_page("reshape", **sizes)
    assert any(note.startswith("Not measured.") and words in note for note in page.notes())
    assert bar(page, "time_n")["actions"] == []


@pytest.fixture
def session(monkeypatch):
    """One visitor's session as plain data, for what buttons call."""
    kept: dict[str, Any] = {"_notices": ()}
    monkeypatch.setattr(st, "session_state", kept)
    return kept


def until_done(sizes):
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.02)):
        view = state.timed(sizes)
        if view is not None and not view.unfinished:
            return view
        pause.wait(0.02)
    raise AssertionError("not done")


def test_a_press_measures_and_another_press_measures_again(session, queue, monkeypatch):
    given = iter(["first", "second", "third"])
    monkeypatch.setattr(waiting, "timing", lambda *sizes: iter([(next(given), sizes)]))
    assert state.timed((5, 24, 3)) is None
    for wanted in ("first", "second"):
        state.start_timing((5, 24, 3))
        assert until_done((5, 24, 3)).latest == (wanted, (5, 24, 3))
    # Another visitor finds the first measurement of this machine.
    session.clear()
    assert until_done((5, 24, 3)).latest[0] == "first"


def test_who_stops_a_timing_waits_for_it_no_more(session, queue, monkeypatch):
    hold, begun = threading.Event(), threading.Event()

    def work(*_):
        yield "half"
        begun.set()
        hold.wait(PATIENCE)

    monkeypatch.setattr(waiting, "timing", work)
    state.start_timing((5, 24, 3))
    assert begun.wait(PATIENCE)
    state.stop_timing((5, 24, 3))
    view = state.timed((5, 24, 3))
    hold.set()
    assert view is not None
    assert (view.state, view.latest) == ("stopped", "half")


def test_a_full_queue_is_told_in_one_sentence(session, monkeypatch):
    monkeypatch.setattr(waiting, "JOBS", JobQueue(max_unfinished=0))
    state.start_timing((5, 24, 3))
    assert "which is as many as fit" in session["_notices"][0]
    assert state.timed((5, 24, 3)) is None
