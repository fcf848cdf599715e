"""One figure per head, held against patterns made by hand and against plain loops."""

import math
from random import Random

import pytest
import torch

from mha_core.analysis import measures as m
from mha_core.analysis.roles import OFFSETS, Dwelling
from mha_core.seeds import generator_for
from mha_core.training import probes
from mha_core.training.evaluate import (
    SHIFTS,
    Reading,
    all_heads,
    make_exam,
    noun_masses,
    offset_places,
    place_gaze,
    prefix_places,
    read,
    score,
)
from mha_core.training.grammar import build_vocabulary, sentences
from mha_core.training.recipe import PAD_ROW, Recipe, token_rows
from mha_core.transformer import Transformer

S, LAYERS, HEADS, N = 5, 2, 3, 17
VOCABULARY = build_vocabulary()
RECIPE = Recipe(d_model=12, n_heads=6, n_kv_heads=3, n_layers=2, seed=5)


@pytest.fixture(scope="module")
def model():
    return Transformer(RECIPE.config(len(VOCABULARY))).eval().requires_grad_(False)


def reading(cells=(), layer=1, head=2):
    """Patterns of zeros but for one head, which has the cells {(sentence, row, key): weight}."""
    patterns = torch.zeros(S, LAYERS, HEADS, N, N)
    for at, weight in dict(cells).items():
        patterns[at[0], layer, head, at[1], at[2]] = weight
    seen = torch.ones(N, N).tril()
    return Reading(patterns, (seen / seen.sum(-1, keepdim=True)).expand(S, 1, 1, N, N))


def everywhere(places):
    return places.expand(S, -1, -1)


def back(shift, weight=lambda row: 1.0):
    return {(s, row, row - shift): weight(row) for s in range(S) for row in range(shift, N)}


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
def test_a_head_that_looks_so_far_back_has_all_its_mass_at_that_offset_and_none_elsewhere(shift):
    found = reading(back(shift))
    for offset in OFFSETS:
        table = m.dwellings(found, everywhere(offset_places(N, offset)))
        assert (table[1][2].first, table[1][2].second) == ((1, 1) if offset == -shift else (0, 0))
        assert {(d.first, d.second) for d in (*table[0], *table[1][:2])} == {(0, 0)}


def test_the_rows_that_count_see_ten_keys_or_more_and_are_cut_in_their_middle():
    weight = {row: float(Random(row).random()) for row in range(1, N)}
    (*_, found) = m.dwellings(reading(back(1, weight.__getitem__)), everywhere(offset_places(N, -1)))[1]
    assert m.LEAST_VISIBLE == 10
    assert found.first == pytest.approx(sum(weight[row] for row in (9, 10, 11, 12)) / 4)
    assert found.second == pytest.approx(sum(weight[row] for row in (13, 14, 15, 16)) / 4)
    assert found.even_first == pytest.approx((1 / 10 + 1 / 11 + 1 / 12 + 1 / 13) / 4)
    assert found.even_second == pytest.approx((1 / 14 + 1 / 15 + 1 / 16 + 1 / 17) / 4)
    assert found.mass == min(found.first, found.second)


def places_of(kind):
    random = torch.rand(S, N, N, generator=generator_for(3, "places")) < 0.2
    return {
        "random": random.tril(),
        "self": everywhere(offset_places(N, 0)),
        "start": everywhere(m.start_places(N)),
        "prefix": everywhere(prefix_places(N, 2)),
    }[kind]


@pytest.mark.parametrize("kind", ["random", "self", "start", "prefix"])
def test_an_even_gaze_has_the_mass_of_its_control(kind):
    even = reading().even
    found = Reading(even.expand(S, LAYERS, HEADS, N, N), even)
    for head in m.dwellings(found, places_of(kind))[0]:
        assert head.first > 0
        assert (head.first, head.second) == pytest.approx((head.even_first, head.even_second))


@pytest.mark.parametrize("kind", ["random", "self", "start", "prefix"])
def test_a_mean_weight_is_that_of_a_plain_loop(kind):
    patterns = torch.rand(S, LAYERS, HEADS, N, N, generator=generator_for(4, "patterns"))
    places, expected = places_of(kind), torch.zeros(LAYERS, HEADS)
    rows = [(s, row) for s in range(S) for row in range(N) if places[s, row].any()]
    for s, row in rows:
        expected += sum(patterns[s, :, :, row, key] for key in range(N) if places[s, row, key])
    torch.testing.assert_close(place_gaze(patterns, places), expected / len(rows))


def test_a_head_on_the_start_token_is_seen_there_only():
    found = reading({(s, row, 0): 0.75 for s in range(S) for row in range(N)})
    assert m.dwellings(found, everywhere(m.start_places(N)))[1][2].mass == 0.75
    assert not m.start_places(N)[0].any()


def test_the_same_word_is_found_at_every_earlier_place():
    rows = torch.tensor([[1, 7, 8, 7, 7], [1, 5, 6, 5, 6]])
    marked = m.same_word_places(rows).nonzero().tolist()
    assert marked == [[0, 3, 1], [0, 4, 1], [0, 4, 3], [1, 3, 1], [1, 4, 2]]


@pytest.mark.parametrize("shift", SHIFTS)
def test_behind_the_last_time_is_counted_from_the_first_saying(shift):
    text = ["<s>", *"abcdefgh", *"abcdefgh"]
    for row, key in prefix_places(N, shift).nonzero().tolist():
        assert text[key - shift] == text[row]
        assert key - shift < key < row
    assert prefix_places(N, shift).any(-1).nonzero().flatten().tolist() == [9, 10, 11, 12, 13, 14, 15]


def test_later_rows_end_with_the_sentence():
    assert m.later_rows([2, 1], [5, 3], 6).nonzero().tolist() == [[0, 3, 2], [0, 4, 2], [1, 2, 1]]


def test_entropy_is_over_words_only():
    rows = torch.full((S, N), PAD_ROW)
    rows[:, :4] = torch.tensor([1, 9, 8, 7])
    found = reading({(s, row, key): 1 / 4 for s in range(S) for row in range(1, 3) for key in range(4)})
    # Rows 1 and 2 spread over four keys, 2 bits each; row 3 over one; whatever stands in padding counts for nothing.
    found.patterns[:, 1, 2, 3, 0] = 1
    found.patterns[:, 1, 2, 0, :2] = 1 / 2
    found.patterns[:, 1, 2, 4:, :8] = 1 / 8
    assert m.mean_entropy(found, rows)[1].tolist() == pytest.approx([0, 0, 4 / 3])


def choices(s, heads, seed=1):
    right, wrong = torch.rand(2, s, 1, heads, generator=generator_for(seed, "choices"))
    return right, wrong


def luck(right, wrong, flips=200, seed=0):
    return m.best_by_luck(right, wrong, flips, generator_for(seed, "test"))


def test_luck_of_one_head_is_that_of_a_coin_even_if_the_head_is_perfect():
    ones = torch.ones(400, 1, 1)
    # 95 of 100 coins stay under the mean plus 1.645 spreads.
    assert luck(ones, 0 * ones, 2000) == pytest.approx(0.5 + 1.645 * math.sqrt(0.25 / 400), abs=0.004)
    assert luck(0 * ones, ones, 2000) == pytest.approx(0.5 + 1.645 * math.sqrt(0.25 / 400), abs=0.004)


def test_luck_grows_with_the_number_of_heads_and_shrinks_with_the_sentences():
    few, more, most = (luck(*choices(400, heads)) for heads in (1, 10, 100))
    assert 0.5 < few < more < most < 0.62
    assert luck(*choices(4_000, 100)) < more


def test_a_head_that_prefers_neither_is_never_right():
    same = torch.ones(30, 1, 4)
    assert luck(same, same) == 0


def test_luck_is_that_of_a_plain_loop():
    right, wrong = choices(40, 6)
    swapped = torch.rand(50, 40, generator=generator_for(0, "test")) < 0.5
    best = []
    for flip in swapped.tolist():
        hits = [
            sum((w > r) if f else (r > w) for r, w, f in zip(right[:, 0, h], wrong[:, 0, h], flip, strict=True))
            for h in range(6)
        ]
        best.append(float(max(hits)) / 40)
    best.sort()
    # The 95th percentile of 50 values lies between the 47th and the 48th, at 0.95 * 49 = 46.55 from the first.
    assert luck(right, wrong, 50) == pytest.approx(best[46] + 0.55 * (best[47] - best[46]))


def test_importance_is_the_mean_size_of_each_sentences_own_slope(model):
    double = Transformer(model.cfg).double().requires_grad_(False)
    double.load_state_dict(model.state_dict())
    rows = token_rows(sentences(7, "slopes"), VOCABULARY)
    assert (rows == PAD_ROW).any()
    slopes = torch.tensor([[_slope(double, row, *at) for at in all_heads(model)] for row in rows]).view(7, 2, 6)
    found = m.importance(double, rows)
    torch.testing.assert_close(found, slopes.abs().mean(0).float(), rtol=1e-4, atol=1e-7)
    assert (found > 1.05 * slopes.mean(0).abs()).any(), "sizes are taken before the mean"


def _slope(model, row, layer, head, step=1e-4):
    """A sentence's loss with one gate a little open and a little shut, without padding or batch."""
    words = row[row != PAD_ROW][None]

    def loss(gate):
        gates = torch.ones(2, 6, dtype=torch.float64)
        gates[layer, head] = gate
        likely = model(words, head_gates=list(gates))[0].log_softmax(-1)
        said = [likely[i, words[0, i + 1]].item() for i in range(words.shape[1] - 1)]
        return -sum(said) / len(said)

    return (loss(1 + step) - loss(1 - step)) / (2 * step)


def test_importance_does_not_depend_on_how_sentences_are_batched(model, monkeypatch):
    rows = token_rows(sentences(9, "batches"), VOCABULARY)
    whole = m.importance(model, rows)
    monkeypatch.setattr(m, "BATCH", 4)
    torch.testing.assert_close(m.importance(model, rows), whole)


def test_without_a_head_is_a_model_whose_rows_of_w_o_are_zero(model):
    exam = make_exam(VOCABULARY, 8, 20, "test")
    found = m.without_each(model, exam)
    for layer, head in all_heads(model):
        maimed = Transformer(model.cfg).requires_grad_(False)
        maimed.load_state_dict(model.state_dict())
        maimed.attention_layers()[layer].W_O.weight[:, 2 * head : 2 * head + 2] = 0
        assert found[layer][head] == score(maimed.eval(), exam)
    assert len({scores.validation_loss for layer in found for scores in layer}) == 12


def test_the_loss_is_over_words_not_over_sentences(model):
    exam = make_exam(VOCABULARY, 4, 30, "test")
    losses = []
    for text in sentences(30, "testvalidation"):
        ids = torch.tensor([VOCABULARY.encode(["<s>", *text])])
        likely = model(ids)[0].log_softmax(-1)
        losses += [-likely[i, ids[0, i + 1]].item() for i in range(len(text))]
    assert score(model, exam).validation_loss == pytest.approx(sum(losses) / len(losses), rel=1e-5)


def test_a_task_is_scored_by_the_words_that_fit_against_those_that_do_not(model):
    exam = make_exam(VOCABULARY, 12, 4, "test")
    right = 0
    for probe in probes.coreference_probes(12, "testcoreference"):
        likely = model(torch.tensor([VOCABULARY.encode(["<s>", *probe.words])]))[0, -1].softmax(-1)
        fitting, unfitting = (sum(likely[VOCABULARY.encode(list(words))]) for words in (probe.fitting, probe.unfitting))
        right += int(fitting > unfitting)
    assert score(model, exam).coreference == right / 12


def test_noun_masses_are_read_sentence_by_sentence(model):
    asked = probes.verb_probes(8)
    patterns = read(model, token_rows([probe.words for probe in asked], VOCABULARY)).patterns
    right, wrong = noun_masses(patterns, asked)
    for s, probe in enumerate(asked):
        assert torch.equal(right[s], patterns[s, :, :, probe.asked, probe.right])
        assert torch.equal(wrong[s], patterns[s, :, :, probe.asked, probe.wrong])


def test_a_dwelling_is_worth_its_lower_half():
    assert Dwelling(0.25, 0.75, 0.125, 0.0625).mass == 0.25
    assert Dwelling(0.75, 0.25, 0.125, 0.0625).mass == 0.25
    assert Dwelling(0.75, 0.25, 0.125, 0.0625).even == 0.09375
