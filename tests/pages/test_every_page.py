"""Every page opens: by default, from a link, from an impossible link; and with any text."""

from urllib.parse import urlencode

import numpy as np
import pytest

from mha_core import attention
from mha_core.text import MAX_TOKENS
from mha_view import state
from mha_view.settings import DEFAULTS, Settings
from pages import PAGES

SLUGS = [spec.slug for spec in PAGES]


def key(name: str) -> str:
    return state.widget_key(name)


@pytest.mark.parametrize("slug", SLUGS)
def test_the_default_opens(open_page, slug):
    page = open_page(slug)
    spec = next(spec for spec in PAGES if spec.slug == slug)
    assert page.app.header[0].value == spec.question
    assert page.notes() == []
    assert page.link()["d"] == "128"


@pytest.mark.parametrize("slug", SLUGS)
def test_a_link_opens_as_it_was_made(open_page, slug):
    page = open_page(slug, d="64", h="16", g="4", s="the dog slept .", mask="window", window="3", seed="0", scale="log")
    link = page.link()
    wanted = {"d": "64", "h": "16", "g": "4", "s": "the dog slept .", "mask": "window", "window": "3", "seed": "0"}
    assert wanted.items() <= link.items()
    assert page.app.text_area[0].value == "the dog slept ."


@pytest.mark.parametrize("slug", SLUGS)
def test_an_impossible_link_gets_sentences_and_the_nearest_values(open_page, slug):
    page = open_page(slug, h="7", g="0", d="1e9", zz="1", s="the cat .")
    told = " ".join(page.notes())
    assert "d_model = 1,000,000,000 is not offered" in told
    assert "h = 7 does not divide d_model = 1,024" in told
    assert "g = 0 does not work with h = 8" in told
    assert "“zz”" in told
    assert page.link()["s"] == "the cat ."


def test_a_layer_that_is_not_there_is_told(open_page):
    page = open_page(layer="99", head="-1", row="1000", view="<b>")
    told = " ".join(page.notes())
    assert "layer = “99”; layer can be 0 to 2" in told
    assert "head = “-1”; head can be 0 to 7" in told
    assert "row = “1000”; row can be 0 to 11" in told
    assert "view = “<b>”; view can be map, lines, compare" in told


def test_g_moves_with_h_and_the_page_says_so(open_page):
    page = open_page()
    page.app.session_state[key("n_heads")] = 4
    page.run()
    assert page.link()["g"] == "4"
    assert "g = 8 does not divide h = 4; g can be 1, 2 or 4. g = 4 is shown." in page.notes()


def test_a_change_of_the_sentence_keeps_everything_else(open_page):
    page = open_page(d="64", h="4", g="2", mask="full", scale="row", seed="0")
    before = page.link()
    page.app.text_area[0].set_value("the dog barked .")
    after = page.run().link()
    same = ("d", "h", "g", "mask", "scale", "seed", "weights", "layer", "head", "view", "first")
    assert [after[name] for name in same] == [before[name] for name in same]
    assert after["s"] == "the dog barked ."


def controls(page) -> dict[str, dict]:
    """The shared controls by name."""
    shared = next(part for part in page.sent("controls") if "examples" in part)
    return {control["name"]: control for control in shared["controls"]}


def test_only_values_that_work_are_offered(open_page):
    offered = controls(open_page(d="24", h="6", g="2"))
    assert [value for value, *_ in offered["n_heads"]["options"]] == [1, 2, 3, 4, 6, 12]
    assert [value for value, *_ in offered["n_kv_heads"]["options"]] == [1, 2, 3, 6]


def test_a_dot_marks_the_trained_values(open_page):
    offered = controls(open_page())
    for name in ("d_model", "n_heads", "n_kv_heads"):
        marked = [value for value, _, trained in offered[name]["options"] if trained]
        assert offered[name]["value"] in marked


@pytest.mark.parametrize("value", [10**40, -3, 0, 7])
def test_a_number_that_no_control_offers_is_settled_and_told(open_page, value):
    page = open_page()
    page.app.session_state[key("n_heads")] = value
    page.run()
    assert page.link()["h"] in ("1", "8", "64")
    assert any("h can be 1, 2, 4, 8, 16, 32 or 64" in note for note in page.notes())


@pytest.mark.parametrize("sizes", [("8", "4", "1"), ("1024", "64", "64"), ("24", "12", "3"), ("768", "1", "1")])
def test_any_knob_shows_its_maps_and_its_checks_hold(open_page, sizes):
    d, h, g = sizes
    page = open_page(d=d, h=h, g=g, weights="random")
    assert page.sent("maps")[0]["heads"] == int(h)
    assert all(ok for _, ok, *_ in page.sent("checks")[0]["checks"])
    assert any(note.startswith("Random weights. Near-uniform patterns are expected") for note in page.notes())


TEXTS = {
    "one word": ("cat", ["cat"]),
    "four times no": ("no no no no", ["no"] * 4),
    "equal words": ("the cat and the dog and the bird", ["the", "cat", "and", "the", "dog", "and", "the", "bird"]),
    "html": ('<b>x</b> & "y" <script>1</script>', None),
    "markdown": ("$x_1$ **bold** :smile:", None),
    "special tokens": ("[PAD] [CLS] </s> hello", ["[", "PAD", "]", "[", "CLS", "]", "<", "/", "s", ">", "hello"]),
    "Chinese": ("猫坐在垫子上。", ["猫坐在垫子上", "。"]),
    "Arabic": ("قطة نائمة", ["قطة", "نائمة"]),
    "emoji": ("café 👩‍🔬 naïve", ["café", "👩‍🔬", "naïve"]),
    "tabs and newlines": ("\tthe\n\ncat\t sat\n", ["the", "cat", "sat"]),
}


@pytest.mark.parametrize("name", TEXTS)
def test_any_text_has_its_own_rows_labelled_as_typed(open_page, name):
    text, tokens = TEXTS[name]
    page = open_page(s=text)
    head = page.sent("head")[0]
    typed = head["labels"][1:]
    assert head["labels"][0] == "start"
    assert "".join(typed) == "".join(text.split())
    assert tokens is None or typed == tokens
    assert page.link()["s"] == text


@pytest.mark.parametrize("text", ["", " ", " " * 10_000, "\t\n \n"])
def test_no_words_is_an_invitation_and_the_text_is_kept(open_page, text):
    page = open_page(s=text)
    assert "Type a sentence, or press an example, to see what its words look at." in page.notes()
    assert page.link()["s"] == text


@pytest.mark.parametrize(("count", "shown"), [(MAX_TOKENS - 1, True), (MAX_TOKENS, True), (MAX_TOKENS + 1, False)])
def test_the_limit_is_kept_to_the_token_and_told(open_page, count, shown):
    text = " ".join(["cat"] * count)
    page = open_page(s=text)
    assert bool(page.sent("maps")) is shown
    refusal = "The text has 129 tokens and the limit is 128; take out at least 1 word or sign."
    assert (refusal in page.notes()) is not shown
    assert page.link()["s"] == text


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("cat " * 25_000, "The text has 100,000 characters and the limit is 20,000; shorten it to at most 128 words."),
        ("x" * 300, "One word has 300 letters and the limit is 100; shorten it or split it."),
    ],
    ids=["100 kB", "one long word"],
)
def test_a_text_beyond_all_limits_is_refused_and_kept(open_page, text, sentence):
    page = open_page(s=text)
    assert sentence in page.notes()
    assert page.link()["s"] == text
    assert page.sent("maps") == []


def test_unknown_words_are_marked_and_known_ones_offered(open_page):
    page = open_page(s="the catt sat .")
    notes = [n for part in page.sent("notes") for n in part["notes"] if "catt" in n["text"]]
    assert len(notes) == 1
    assert any("“cat”" in action["label"] for action in notes[0]["actions"])
    assert page.sent("head")[0]["labels"][2] == "catt"


def test_what_is_sent_to_the_browser_is_the_trace(open_page):
    page = open_page(layer="2", head="3", row="9", key="4")
    run = state.cached_run(DEFAULTS)
    head, cell = page.sent("head")[0], page.sent("cell")[0]
    pattern = run.layer(2).array("pattern")[3]
    np.testing.assert_array_equal(_floats(head["weights"]).reshape(pattern.shape), pattern)
    np.testing.assert_array_equal(_floats(cell["q"]), run.layer(2).array("q_rot")[3, 9])
    np.testing.assert_array_equal(_floats(cell["k"]), run.layer(2).array("k_rot")[3, 4])
    np.testing.assert_array_equal(_floats(cell["value"]), run.layer(2).array("v")[3, 4])
    assert cell["score"] == pytest.approx(float(run.layer(2).array("scores")[3, 9, 4]))
    assert cell["weight"] == pytest.approx(float(pattern[9, 4]))
    assert np.exp(cell["score"] - cell["topScore"]) / cell["total"] == pytest.approx(cell["weight"], rel=1e-4)
    assert cell["dot"] / cell["headDim"] ** 0.5 == pytest.approx(cell["score"], rel=1e-4, abs=1e-5)


def _floats(packed: str) -> np.ndarray:
    import base64

    return np.frombuffer(base64.b64decode(packed), np.float32)


def test_a_hidden_start_token_is_gone_from_maps_and_said(open_page):
    page = open_page(first="renormalise")
    head = page.sent("head")[0]
    n = len(head["labels"])
    weights = _floats(head["weights"]).reshape(n, n)
    assert head["labels"][0] == "The"
    np.testing.assert_allclose(weights.sum(-1), 1.0, atol=1e-5)
    assert "The start token is left out: rows are rescaled to sum to 1." in head["caption"]
    kept = open_page(first="hide").sent("head")[0]
    assert (_floats(kept["weights"]).reshape(n, n).sum(-1) < 0.999).any()
    assert "rows sum to less than 1" in kept["caption"]


def test_two_heads_and_their_difference_share_a_scale(open_page):
    page = open_page(view="compare", layer="1", head="2", other="1.6", scale="log")
    difference, first, second = page.sent("head")
    assert (first["title"], second["title"], difference["title"]) == ("L1H2", "L1H6", "L1H2 minus L1H6")
    assert first["legend"] == second["legend"]
    np.testing.assert_allclose(
        _floats(difference["weights"]), _floats(first["weights"]) - _floats(second["weights"]), atol=1e-7
    )
    assert difference["range"] == pytest.approx(np.abs(_floats(difference["weights"])).max())


def test_a_pinned_view_is_compared_with_what_comes_after(open_page):
    kept = urlencode({"d": "64", "h": "4", "g": "2", "weights": "random", "seed": "3", "layer": "0", "head": "0"})
    page = open_page(view="compare", d="64", h="4", g="2", weights="random", seed="3", pin=kept)
    page.app.session_state[key("n_kv_heads")] = 4
    page.run()
    assert page.link()["pin"]
    titles = [part["title"] for part in page.sent("head")]
    assert titles == ["L0H0 minus pinned L0H0", "L0H0", "pinned L0H0"]
    captions = [part["caption"] for part in page.sent("head")]
    assert "g 4" in captions[1]
    assert "g 2" in captions[2]
    again = open_page(**page.link())
    assert [part["weights"] for part in again.sent("head")] == [part["weights"] for part in page.sent("head")]


def test_another_mask_than_the_trained_one_is_told(open_page):
    assert any(note.startswith("Not the trained mask.") for note in open_page(mask="full").notes())


def test_a_text_longer_than_the_training_is_told(open_page):
    assert any(note.startswith("Longer than the training.") for note in open_page(s=" ".join(["cat"] * 30)).notes())


def test_the_colour_scale_is_each_visitors_own_though_the_run_is_shared(open_page):
    log, linear = open_page(s="the fox sat down .", scale="log"), open_page(s="the fox sat down .", scale="linear")
    assert log.sent("head")[0]["weights"] == linear.sent("head")[0]["weights"]
    for page, scale in ((log, "log"), (linear, "linear"), (log, "log")):
        page.run()
        assert page.sent("head")[0]["scale"] == scale
        assert page.sent("head")[0]["recipe"]["settings"]["scale"] == scale
        assert page.link()["scale"] == scale
    linear.app.session_state[key("scale")] = "row"
    assert linear.run().sent("maps")[0]["legend"][1] == "row maximum"


def test_two_visitors_with_other_seeds_do_not_meet(open_page):
    a, b = open_page(weights="random", seed="1"), open_page(weights="random", seed="2")
    first, second = a.sent("head")[0]["weights"], b.sent("head")[0]["weights"]
    assert first != second
    assert a.run().sent("head")[0]["weights"] == first
    assert b.run().sent("head")[0]["weights"] == second


BREAKS = {
    "tile for repeat_interleave": ("_scores", lambda right: lambda q, k, scale: right(q, k.flip(1), scale)),
    "no scale": ("_scores", lambda right: lambda q, k, scale: right(q, k, 1.0)),
    "softmax over the wrong axis": (
        "_masked_softmax",
        lambda right: lambda scores, *rest: right(scores.transpose(-1, -2), *rest).transpose(-1, -2),
    ),
}


@pytest.mark.parametrize("name", BREAKS)
def test_the_strip_turns_red_when_the_code_is_broken(open_page, monkeypatch, name):
    function, broken = BREAKS[name]
    monkeypatch.setattr(attention, function, broken(getattr(attention, function)))
    # Settings that no other test uses, so that no finished run is found in the cache.
    seed = str(9000 + list(BREAKS).index(name))
    page = open_page(d="48", h="6", g="2", weights="random", seed=seed)
    checks = page.sent("checks")[0]["checks"]
    assert not all(ok for _, ok, *_ in checks)


def test_links_of_every_setting_are_written_even_when_it_is_the_default(open_page):
    assert set(open_page().link()) >= {"v", "s", "weights", "d", "h", "g", "mask", "window", "seed", "scale"}
    assert Settings() == DEFAULTS
