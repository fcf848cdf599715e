"""The page Residual stream: every number that is sent is one of the trace; links, words, impossible settings."""

import json
import re
from typing import Any

import numpy as np
import pytest
from torch.nn.functional import layer_norm

from mha_core.text import MAX_TOKENS
from mha_view import state
from mha_view.components.attribution import MOST_BARS
from mha_view.results import VOCABULARY
from mha_view.settings import DEFAULTS

FIRST_WORDS = "The cat sat on the mat because it was"
SETTINGS = {
    "default": {},
    "shared and windowed": {"d": "64", "h": "16", "g": "4", "s": "the dog slept .", "mask": "window", "window": "3"},
    "d_k 2, g 1": {"d": "24", "h": "12", "g": "1", "weights": "random", "mask": "full", "s": "cat"},
    "one head": {"d": "96", "h": "1", "g": "1", "weights": "random", "seed": "5", "s": "no no"},
    "64 heads": {"d": "128", "h": "64", "g": "64", "weights": "random"},
}


def fed(page, picture, name) -> Any:
    found = [part["data"] for part in page.sent("feed") if (part["picture"], part["name"]) == (picture, name)]
    return found[0] if found else None


def shown(vector, cols):
    """The number largest in size of each block of dimensions, as wide as the picture draws them."""
    wide = -(-len(vector) // cols)
    blocks = [vector[i : i + wide] for i in range(0, len(vector), wide)]
    return np.array([block[np.abs(block).argmax()] for block in blocks])


def close(sent, vector):
    np.testing.assert_allclose(sent, shown(vector, len(sent)), atol=3e-5, rtol=1e-5)


@pytest.mark.parametrize("name", SETTINGS)
def test_every_number_that_is_sent_is_one_of_the_trace(open_page, name):
    page = open_page("residual", **SETTINGS[name])
    row, chosen = int(page.link()["row"]), page.app.session_state["_settings"]
    run, model = state.cached_run(chosen), state.cached_model(chosen).model
    stages = fed(page, "stream", "data")["stages"]
    streams = [run.trace.embedded[0, row], *(part.after[0, row] for part in run.trace.parts)]
    writes = [run.trace.embedded[0, row], *(part.write[0, row] for part in run.trace.parts)]
    befores = [None, *(part.before[0, row].numpy() for part in run.trace.parts)]
    norm = model.final_norm
    assert len(stages) == len(streams) == 7
    for stage, stream, write, before in zip(stages, streams, writes, befores, strict=True):
        close(stage["stream"], stream.numpy())
        assert stage["norm"] == pytest.approx(float(stream.norm()), rel=1e-5)
        vectors = [write]
        if stage["kind"] == "attention":
            vectors += list(run.layer(stage["layer"]).head_writes()[0, :, row])
            assert [part["head"] for part in stage["parts"]] == list(range(-1, chosen.n_heads))
        for part, vector in zip(stage["parts"], vectors, strict=True):
            close(part["write"], vector.numpy())
            assert part["norm"] == pytest.approx(float(vector.norm()), rel=1e-4)
            if before is None:
                assert part["cosine"] is None
            else:
                expected = float(vector.numpy() @ before) / float(vector.norm()) / np.linalg.norm(before)
                assert part["cosine"] == pytest.approx(expected, abs=1e-5)
        logits = model.unembed(layer_norm(stream, stream.shape, norm.weight, norm.bias, norm.eps)).detach()
        _same_lens(stage, logits.double().softmax(0).numpy(), fed(page, "stream", "data")["followed"])
    _same_lens(stages[-1], run.trace.next_token_probabilities(row), fed(page, "stream", "data")["followed"])
    assert all(fed(page, "stream", "data")[check]["ok"] for check in ("sum", "lens"))


def _same_lens(stage, chances, followed):
    order = chances.argsort()[::-1]
    for i, (word, chance) in enumerate(stage["top"]):
        assert chances[VOCABULARY.words.index(word)] == pytest.approx(chance, rel=1e-3, abs=1e-7)
        assert chance == pytest.approx(chances[order[i]], rel=1e-3)
    for word, (rank, chance) in zip(followed, stage["ranks"], strict=True):
        own = chances[VOCABULARY.words.index(word)]
        assert chance == pytest.approx(own, rel=1e-3, abs=1e-7)
        # Two words may be as good as equal, and stand either way round.
        assert (chances > own * 1.001).sum() < rank <= 1 + (chances > own * 0.999).sum()


@pytest.mark.parametrize("name", SETTINGS)
def test_every_contribution_is_that_of_the_trace_and_all_sum_to_the_logits(open_page, name):
    page = open_page("residual", **SETTINGS[name])
    row, chosen = int(page.link()["row"]), page.app.session_state["_settings"]
    run, model = state.cached_run(chosen), state.cached_model(chosen).model
    data, norm = fed(page, "attribution", "data"), model.final_norm
    word, against = (VOCABULARY.words.index(data["words"][i]) for i in (0, 1))
    last = run.trace.parts[-1].after[0, row].double()
    spread = float((last.var(unbiased=False) + norm.eps).sqrt())
    direction = (model.unembed.weight[word] - model.unembed.weight[against]).detach().double()
    gained = norm.weight.detach().double() * direction

    def value(vector):
        return float((vector.double() - vector.double().mean()) / spread @ gained)

    expected = {
        "embedding": value(run.trace.embedded[0, row]),
        "norm-bias": float(norm.bias.detach().double() @ direction),
    }
    for part in run.trace.parts:
        if part.kind == "mlp":
            expected[f"L{part.layer}-MLP"] = value(part.write[0, row])
            continue
        writes = run.layer(part.layer).head_writes()[0, :, row]
        expected |= {f"L{part.layer}H{head}": value(write) for head, write in enumerate(writes)}
    bars = data["bars"]
    assert data["spread"] == pytest.approx(spread, rel=1e-5)
    assert len(bars) + data["others"]["count"] == len(expected)
    assert len(bars) == min(len(expected), MOST_BARS)
    for bar in bars:
        assert bar["value"] == pytest.approx(expected.pop(bar["link"]), abs=2e-5), bar["link"]
    assert data["others"]["value"] == pytest.approx(sum(expected.values()), abs=2e-4)
    logits = run.trace.logits[0, row]
    assert data["difference"] == pytest.approx(float(logits[word] - logits[against]), abs=1e-6)
    shared = chosen.n_heads // chosen.n_kv_heads
    for bar in bars:
        head = int(bar["link"].split("H")[1]) if bar["kind"] == "head" else None
        assert bar["kv"] == (None if head is None else head // shared)
    assert fed(page, "stream", "data")["perKv"] == shared
    assert sum(bar["value"] for bar in bars) + data["others"]["value"] == pytest.approx(data["total"])
    assert data["sum"]["ok"] is True
    assert data["total"] == pytest.approx(data["difference"], abs=float(data["sum"]["tolerance"]))
    assert [abs(bar["value"]) for bar in bars] == sorted((abs(bar["value"]) for bar in bars), reverse=True)


@pytest.mark.parametrize("sentence", [DEFAULTS.sentence, FIRST_WORDS, "the CAT sat on the mat because it was soft"])
def test_the_sentence_of_the_text_asks_where_tired_comes_from(open_page, sentence):
    page = open_page("residual", s=sentence)
    data, link = fed(page, "attribution", "data"), page.link()
    assert link.items() >= {"row": "9", "word": "tired", "against": "soft"}.items()
    largest = max((bar for bar in data["bars"]), key=lambda bar: bar["value"])
    head = max((bar for bar in data["bars"] if bar["kind"] == "head"), key=lambda bar: bar["value"])
    told = page.sent("facts")[0]["lead"]
    assert told == data["told"]
    assert f"After “was” the model prefers “tired” to “soft” by {data['difference']:.3f} logits." in told
    assert f"(+{largest['value']:.3f})" in told
    assert f"layer {head['link'][1]}, head {head['link'][3:]} (+{head['value']:.3f})." in told
    assert link["stage"] == next(bar["link"] for bar in data["bars"] if bar["kind"] == "head")


def test_the_sentence_is_true_the_other_way_round_too(open_page):
    one, other = open_page("residual"), open_page("residual", word="soft", against="tired")
    assert other.sent("facts")[0]["lead"] == one.sent("facts")[0]["lead"]
    assert fed(other, "attribution", "data")["difference"] == -fed(one, "attribution", "data")["difference"]


def test_other_sizes_forget_a_part_that_they_may_not_have(open_page):
    page = open_page("residual", stage="L1H7")
    page.app.session_state[state.widget_key("n_heads")] = 4
    page.run()
    assert page.link()["stage"] != "L1H7"
    assert not any("L1H7" in note for note in page.notes())


def test_another_text_or_token_compares_the_two_likeliest_words(open_page):
    for params in ({"s": "The girls near the boy ."}, {"row": "8"}):
        page = open_page("residual", **params)
        run, row = state.cached_run(page.app.session_state["_settings"]), int(page.link()["row"])
        likeliest = [word for word, _ in run.next_words(2, row)]
        assert [page.link()[name] for name in ("word", "against")] == likeliest
        assert fed(page, "attribution", "data")["difference"] > 0


def test_the_words_that_were_chosen_stay_when_the_sentence_changes(open_page):
    page = open_page("residual", word="hungry", against="closed", stage="L2-MLP", row="7")
    page.app.text_area[0].set_value("The girl looked for the mat because it was soft.")
    link = page.run().link()
    assert link.items() >= {"word": "hungry", "against": "closed", "stage": "L2-MLP", "row": "9"}.items()
    page.app.selectbox(key="pick_word").set_value("green")
    assert page.run().link()["word"] == "green"
    assert fed(page, "attribution", "data")["words"] == ["green", "closed"]


def test_all_words_of_the_model_can_be_chosen(open_page):
    boxes = [open_page("residual").app.selectbox(key=f"pick_{name}") for name in ("word", "against")]
    for box in boxes:
        assert sorted(box.options) == sorted(VOCABULARY.words)


def test_the_same_word_twice_is_told_and_nothing_is_split(open_page):
    page = open_page("residual", word="soft", against="soft")
    assert any(note.startswith("Both words are “soft”: there is no difference to split.") for note in page.notes())
    assert fed(page, "attribution", "data") is None
    assert len(fed(page, "stream", "data")["stages"]) == 7


def test_an_impossible_link_is_told_with_its_values(open_page):
    page = open_page("residual", row="99", word="zebra", against="<b>", stage="L3H0")
    told = " ".join(page.notes())
    assert "row = “99”; row can be 0 to 11. 9 is shown." in told
    assert re.search(r"word = “zebra”; word can be \w+, \w+, \w+, \.\.\. \(202 in all\)\. tired is shown\.", told)
    assert "against = “<b>”" in told
    assert "stage = “L3H0”; stage can be embedding, L0-attention, L0H0, ... (31 in all). L1H3 is shown." in told
    assert page.link().items() >= {"row": "9", "word": "tired", "against": "soft", "stage": "L1H3"}.items()


@pytest.mark.parametrize("at", [{"stage": "L9H9", "open": "flow"}, {"stage": ["x"]}, {"open": 3, "count": "x"}, "x"])
def test_a_dishonest_browser_changes_nothing(open_page, at):
    page = open_page("residual")
    page.app.session_state["stream"] = {"at": at}
    page.app.session_state["attribution"] = {"open": at}
    page.run()
    assert fed(page, "stream", "place")["picked"] == "L1H3"


def test_no_words_is_an_invitation(open_page):
    page = open_page("residual", s=" ")
    assert any(note.startswith("Type a sentence") for note in page.notes())
    assert page.sent("stream") == []


def test_the_start_token_alone_and_the_longest_text_open(open_page):
    for params in ({"s": "cat", "row": "0"}, {"s": " ".join(["cat"] * MAX_TOKENS), "row": "128"}):
        page = open_page("residual", **params)
        assert fed(page, "stream", "data")["sum"]["ok"]
        assert page.link()["row"] == params["row"]


def test_a_run_beyond_the_budget_is_refused_in_a_sentence(open_page, monkeypatch):
    from mha_view.state import caches

    monkeypatch.setattr(caches, "MAX_RUN_BYTES", 2**20)
    page = open_page("residual", d="1024", h="64", g="64", weights="random", seed="77", s=" ".join(["cat"] * 120))
    assert any("the limit is 1 MiB" in note for note in page.notes())
    assert page.sent("stream") == []


def test_the_widest_model_with_the_longest_text_opens(open_page):
    page = open_page("residual", d="1024", h="64", g="8", weights="random", s=" ".join(["the cat"] * 64))
    data = fed(page, "stream", "data")
    assert data["sum"]["ok"]
    assert len(json.dumps(data)) < 300_000
    assert fed(page, "attribution", "data")["others"]["count"] == 1 + 3 * 65 + 1 - MOST_BARS


def test_a_usual_run_sends_little(open_page):
    page = open_page("residual")
    assert sum(len(json.dumps(part)) for part in page.sent("feed")) < 150_000


def test_random_weights_are_told(open_page):
    page = open_page("residual", weights="random", seed="3")
    assert any(note.startswith("Random weights.") for note in page.notes())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"s": "the cat sat ."}, {"s": "the dog sat ."}),
        ({"mask": "full"}, {}),
        ({"row": "3", "word": "happy", "against": "torn"}, {"row": "4", "word": "happy", "against": "torn"}),
        ({"word": "happy"}, {"word": "torn"}),
        ({"weights": "random", "seed": "1"}, {"weights": "random", "seed": "2"}),
    ],
    ids=["sentence", "mask", "row", "word", "seed"],
)
def test_what_is_packed_for_one_is_never_handed_to_another(open_page, one, other):
    for chosen in (one, other, one):
        page = open_page("residual", **chosen)
        run, link = state.cached_run(page.app.session_state["_settings"]), page.link()
        row, data = int(link["row"]), fed(page, "attribution", "data")
        words = [VOCABULARY.words.index(link[name]) for name in ("word", "against")]
        logits = run.trace.logits[0, row, words]
        assert data["difference"] == pytest.approx(float(logits[0] - logits[1]), abs=1e-6)
        last = fed(page, "stream", "data")["stages"][-1]["stream"]
        np.testing.assert_allclose(last, run.trace.parts[-1].after[0, row].numpy(), atol=3e-5)


def test_two_visitors_with_other_words_do_not_meet(open_page):
    one, two = open_page("residual", row="9"), open_page("residual", row="9", word="happy", against="torn")
    for page, words in ((one, ["tired", "soft"]), (two, ["happy", "torn"]), (one, ["tired", "soft"])):
        assert fed(page.run(), "attribution", "data")["words"] == words
