"""Heads off: what is measured is the model with those heads away, and every order is what it says."""

import itertools

import pytest
import torch
from torch.nn.functional import cross_entropy

from mha_core import zoo
from mha_core.analysis import pruning
from mha_core.config import AttentionConfig
from mha_core.masks import FULL
from mha_core.training import probes
from mha_core.training.grammar import build_vocabulary, sentences
from mha_core.training.recipe import PAD_ROW, Recipe, token_rows, train
from mha_core.transformer import Transformer, TransformerConfig

VOCABULARY = build_vocabulary()
COUNT = 8
# A little trained, so that heads differ: 2 layers, h 6, g 3, d_k 4; and random in float64, for fine differences.
TINY = Recipe(d_model=24, n_heads=6, n_kv_heads=3, n_layers=2, n_sentences=400, n_steps=60, batch_size=64, warm_up=5)
HEADS = [(layer, head) for layer in range(2) for head in range(6)]


@pytest.fixture(scope="module")
def model():
    return train(TINY)


@pytest.fixture(scope="module")
def exam():
    return pruning.exam(COUNT, VOCABULARY)


def rows_of(texts):
    return [token_rows([text], VOCABULARY) for text in texts]


def plain_loss(model, texts, gates=None):
    """Nats per word, sentence by sentence and word by word."""
    told = []
    with torch.no_grad():
        for rows in rows_of(texts):
            likely = model(rows[:, :-1], head_gates=gates)[0].log_softmax(-1)
            told += [-likely[i, rows[0, i + 1]].item() for i in range(rows.shape[1] - 1)]
    return sum(told) / len(told)


def silenced(model, off):
    """Another model whose W_O cannot hear the heads that are off: no gate is used."""
    other = Transformer(model.cfg)
    other.load_state_dict(model.state_dict())
    width = model.cfg.attention.head_dim
    with torch.no_grad():
        for layer, head in off:
            other.attention_layers()[layer].W_O.weight[:, head * width : (head + 1) * width] = 0.0
    return other


def test_all_gates_at_one_change_nothing(model):
    rows = token_rows(sentences(7, "any"), VOCABULARY)
    with torch.no_grad():
        gated = model(rows, head_gates=pruning.gates(model, ()))
        torch.testing.assert_close(gated, model(rows), atol=0, rtol=0)


@pytest.mark.parametrize("off", [(), ((0, 5),), ((1, 0), (0, 2), (1, 4)), tuple(HEADS)], ids=["none", "1", "3", "all"])
def test_figures_are_those_of_a_model_that_cannot_hear_these_heads(model, exam, off):
    found, other = pruning.measure(model, exam, off), silenced(model, off)
    for name in ("coreference", "mismatch", "agreement", "reflexive"):
        asked = getattr(probes, f"{name}_probes")(COUNT)
        rows = token_rows([probe.words for probe in asked], VOCABULARY)
        logits = other.trace(rows, keep=rows != PAD_ROW).logits
        assert getattr(found, name) == pytest.approx(plain_right_share(logits, asked)), name
    assert found.validation_loss == pytest.approx(
        plain_loss(other, pruning.mixed_sentences(COUNT, "validation")), rel=1e-5
    )
    assert found.copy == pytest.approx(plain_copy(other, probes.repeated_lists(COUNT, length=None)))


def plain_right_share(logits, asked):
    right = 0
    for sentence, probe in zip(logits, asked, strict=True):
        chances = sentence[len(probe.words)].softmax(-1)
        fitting, unfitting = (
            sum(chances[VOCABULARY.row(w)].item() for w in words) for words in (probe.fitting, probe.unfitting)
        )
        right += fitting > unfitting
    return right / len(asked)


def plain_copy(model, lists):
    right, of = 0, 0
    for words in lists:
        expected = model.trace(token_rows([words], VOCABULARY)).logits[0].argmax(-1)
        said = VOCABULARY.encode(words)
        # The second saying from its second word on; row i foretells word i, counted from 0.
        for i in range(len(words) // 2 + 1, len(words)):
            right, of = right + (expected[i].item() == said[i]), of + 1
    return right / of


def test_the_figures_of_the_shipped_model_are_those_of_its_card():
    model, card = zoo.load("grammar-d128-h8-g8")
    found = pruning.measure(model, pruning.exam(probes.PROBE_SENTENCES, VOCABULARY))
    for name in ("coreference", "mismatch", "agreement", "reflexive", "copy"):
        assert getattr(found, name) == pytest.approx(getattr(card.figures.tasks, name), abs=1e-4), name


def test_sentences_of_other_lengths_do_not_reach_each_other_under_any_mask(exam):
    """Under a full mask padding would be seen; here nothing is padded."""
    model = train(Recipe(d_model=8, n_heads=2, n_kv_heads=1, n_layers=1, n_sentences=64, n_steps=2, batch_size=8))
    model.use_mask(FULL)
    assert all((rows != PAD_ROW).all() for rows in (*exam.held_out, *exam.trial, *exam.lists))
    expected = plain_loss(model, pruning.mixed_sentences(COUNT, "validation"))
    assert pruning.measure(model, exam).validation_loss == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("order", pruning.ORDERS)
def test_a_curve_begins_with_the_model_and_ends_without_attention(model, exam, order):
    *_, last = pruning.prune(model, exam, order)
    assert last.done == last.of == pruning.n_passes(len(HEADS), order)
    seeds = pruning.RANDOM_SEEDS if order == "random" else (0,)
    assert [curve.seed for curve in last.curves] == list(seeds)
    whole, none = pruning.measure(model, exam), pruning.measure(silenced(model, HEADS), exam)
    for curve in last.curves:
        assert [point.kept for point in curve.points] == list(range(len(HEADS), -1, -1))
        assert curve.points[0].off is None
        assert curve.points[0].scores == whole
        assert sorted(curve.taken) == HEADS
        assert curve.points[-1].scores.validation_loss == pytest.approx(none.validation_loss, rel=1e-5)


@pytest.mark.parametrize("order", pruning.ORDERS)
def test_every_point_has_all_heads_off_that_went_before(model, exam, order):
    *_, last = pruning.prune(model, exam, order)
    curve = last.curves[-1]
    for k in (3, 8):
        assert curve.points[k].off == curve.taken[k - 1]
        assert curve.points[k].scores == pruning.measure(model, exam, curve.taken[:k])


def test_greedy_takes_the_best_of_all_single_removals_at_every_step(model, exam):
    *_, last = pruning.prune(model, exam, "greedy")
    taken = last.curves[0].taken
    trial = pruning.mixed_sentences(COUNT, "heads to switch off")
    for step in range(4):
        off, left = taken[:step], [head for head in HEADS if head not in taken[:step]]
        losses = {head: plain_loss(silenced(model, [*off, head]), trial) for head in left}
        assert losses[taken[step]] == pytest.approx(min(losses.values()), abs=1e-6)


@pytest.mark.parametrize(("count", "lists"), [(8, 1), (52, 7), (100, 13), (600, 78)])
def test_a_set_of_any_size_is_mixed_as_the_grammar_mixes(count, lists):
    found = pruning.mixed_sentences(count, "validation")
    assert len(found) == count
    assert sum(len(text) % 2 == 0 and text == text[: len(text) // 2] * 2 for text in found) == lists
    drawn = {tuple(text) for text in sentences(8 * count, "validation")}
    assert {tuple(text) for text in found} <= drawn


def test_heads_are_chosen_by_other_sentences_than_those_that_measure_them():
    used = {tuple(text) for text in pruning.mixed_sentences(100, "heads to switch off")}
    measured = {tuple(text) for text in pruning.mixed_sentences(100, "validation")}
    assert len(used & measured) <= 3


def test_importance_is_the_mean_size_of_a_finite_difference():
    attention = AttentionConfig(d_model=12, n_heads=3, n_kv_heads=1, rotary_base=100.0, seed=4)
    model = Transformer(TransformerConfig(attention, vocab_size=len(VOCABULARY), n_layers=2)).double()
    texts = sentences(5, "importance")
    found = pruning.importance(model, rows_of(texts))
    step = 1e-5
    for layer, head in itertools.product(range(2), range(3)):
        sizes = []
        for rows in rows_of(texts):
            losses = []
            for sign in (1, -1):
                gates = [torch.ones(3, dtype=torch.float64) for _ in range(2)]
                gates[layer][head] += sign * step
                with torch.no_grad():
                    logits = model(rows[:, :-1], head_gates=gates)
                losses.append(cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten()).item())
            sizes.append(abs(losses[0] - losses[1]) / (2 * step))
        assert found[layer, head].item() == pytest.approx(sum(sizes) / len(sizes), rel=1e-4)


def test_importance_order_removes_the_least_important_first(model, exam):
    found = pruning.importance(model, exam.trial)
    *_, last = pruning.prune(model, exam, "importance")
    sizes = [found[head].item() for head in last.curves[0].taken]
    assert sizes == sorted(sizes)


def test_random_orders_differ_from_each_other_and_repeat_from_their_seed(model, exam):
    *_, last = pruning.prune(model, exam, "random")
    taken = [curve.taken for curve in last.curves]
    assert len(set(taken)) == len(pruning.RANDOM_SEEDS)
    again = next(step for step in pruning.prune(model, exam, "random") if len(step.curves) == 2)
    assert again.curves[0].taken == taken[0]


def test_a_curve_can_be_left_at_any_pass_and_shows_what_was_reached(model, exam):
    steps = list(itertools.islice(pruning.prune(model, exam, "greedy"), 2 * pruning.SETS + len(HEADS)))
    assert [step.done for step in steps] == list(range(1, len(steps) + 1))
    assert [point.kept for point in steps[-1].curves[0].points] == [12, 11]
    assert len(steps[pruning.SETS - 2].curves[0].points) == 0
    assert len(steps[pruning.SETS - 1].curves[0].points) == 1


def test_how_many_can_go_is_read_off_the_last_point_within_the_limit():
    losses = [2.0, 2.01, 2.05, 2.02, 2.5]
    tasks = dict.fromkeys(("coreference", "mismatch", "agreement", "reflexive", "copy"), 1.0)
    points = tuple(
        pruning.CurvePoint(4 - k, None, pruning.TaskScores(**tasks, validation_loss=loss))
        for k, loss in enumerate(losses)
    )
    curve = pruning.Curve("greedy", 0, points)
    assert [pruning.can_go(curve, more) for more in (0.0, 0.006, 0.02, 0.03, 0.3)] == [0, 1, 3, 3, 4]


def test_what_moved_is_the_share_of_weight_that_went_elsewhere(model):
    rows = token_rows([["the", "cat", "sat", "down", "."]], VOCABULARY)
    before = model.trace(rows)
    after = model.trace(rows, head_gates=pruning.gates(model, [(0, 1)]))
    shares = pruning.moved(before, after)
    assert shares.shape == (2, 6)
    assert (shares[0] == 0).all()
    a, b = before.layers[1].pattern[0, 4], after.layers[1].pattern[0, 4]
    by_hand = sum(max(0.0, (y - x).item()) for x, y in zip(a.flatten(), b.flatten(), strict=True)) / 6
    assert shares[1, 4] == pytest.approx(by_hand, rel=1e-4)
    assert 0 < shares[1].max() <= 1


def test_an_order_that_is_none_is_refused(model, exam):
    with pytest.raises(ValueError, match="the orders are greedy, importance, random"):
        next(pruning.prune(model, exam, "alphabet"))


def test_measuring_touches_neither_the_model_nor_the_global_random_state(exam):
    model = Transformer(TINY.config(len(VOCABULARY)))
    assert all(p.requires_grad for p in model.parameters())
    before, state = [p.clone() for p in model.parameters()], torch.get_rng_state()
    list(itertools.islice(pruning.prune(model, exam, "importance"), 20))
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters(), strict=True))
    assert torch.equal(torch.get_rng_state(), state)
    assert all(p.grad is None for p in model.parameters())
