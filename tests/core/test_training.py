"""The recipe: a short run learns, twice the same, and touches nothing but its own model."""

import dataclasses
import json

import pytest
import torch

from mha_core.config import ConfigError
from mha_core.seeds import generator_for
from mha_core.text import SPECIAL
from mha_core.training.__main__ import main
from mha_core.training.grammar import build_vocabulary, sentences
from mha_core.training.recipe import UNKNOWN_ROW, Recipe, _batches, _with_unknowns, token_rows, train
from mha_core.training.scores import REQUIRED
from mha_core.zoo import load

TINY = Recipe(d_model=16, n_heads=4, n_kv_heads=2, n_layers=2, n_sentences=300, n_steps=20, batch_size=32, warm_up=3)


@pytest.fixture(scope="module")
def run():
    losses = []
    model = train(TINY, lambda step, loss: losses.append((step, loss)))
    return model, losses


def test_twenty_steps_lower_the_loss(run):
    _, losses = run
    assert [step for step, _ in losses] == list(range(TINY.n_steps))
    values = [loss for _, loss in losses]
    assert sum(values[-3:]) < sum(values[:3]) - 0.3


def test_the_same_recipe_gives_the_same_weights_and_another_seed_others(run):
    state, again = run[0].state_dict(), train(TINY).state_dict()
    other = train(dataclasses.replace(TINY, seed=1)).state_dict()
    assert all(torch.equal(state[name], again[name]) for name in state)
    assert not torch.equal(state["embed.weight"], other["embed.weight"])


def test_a_trained_model_is_finished(run):
    model, _ = run
    assert not model.training
    assert not any(parameter.requires_grad for parameter in model.parameters())


def test_the_token_vectors_start_with_the_spread_of_the_recipe():
    start = train(dataclasses.replace(TINY, n_steps=0)).embed.weight
    assert start.std().item() == pytest.approx(TINY.embedding_std, rel=0.05)


def test_training_leaves_the_global_random_state_alone():
    before = torch.get_rng_state()
    train(dataclasses.replace(TINY, n_steps=2))
    assert torch.equal(torch.get_rng_state(), before)


def test_the_rate_warms_up_then_falls_to_its_last_share():
    recipe = Recipe()
    rates = [recipe.rate_at(step) for step in range(recipe.n_steps)]
    peak = rates.index(max(rates))
    assert peak in (recipe.warm_up - 1, recipe.warm_up)
    assert rates[:peak] == sorted(rates[:peak])
    assert rates[peak:] == sorted(rates[peak:], reverse=True)
    assert max(rates) == pytest.approx(recipe.learning_rate)
    assert rates[-1] == pytest.approx(recipe.learning_rate * recipe.last_rate)


def test_every_sentence_is_shown_before_one_is_shown_again():
    recipe = Recipe(batch_size=7, n_steps=6)
    rows = torch.arange(21)[:, None]
    shown = torch.cat(list(_batches(rows, recipe))).flatten()
    first, second = shown[:21].tolist(), shown[21:].tolist()
    assert sorted(first) == sorted(second) == list(range(21))
    assert first != second


def test_only_words_become_unknown_at_the_rate_of_the_recipe():
    vocabulary = build_vocabulary()
    rows = token_rows(sentences(3_000, "unknown words"), vocabulary)
    shown = _with_unknowns(rows, Recipe(), step=5)
    changed = shown != rows
    assert (shown[changed] == UNKNOWN_ROW).all()
    assert (rows[changed] >= len(SPECIAL)).all()
    assert changed.sum() / (rows >= len(SPECIAL)).sum() == pytest.approx(Recipe().unknown_rate, rel=0.1)
    assert not torch.equal(shown, _with_unknowns(rows, Recipe(), step=6))


def test_knobs_that_do_not_fit_are_told_before_any_training():
    with pytest.raises(ConfigError, match="does not divide"):
        train(dataclasses.replace(TINY, n_heads=5, n_kv_heads=5))


def test_the_command_writes_a_pair_of_files_that_loads(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    settings = ["--d-model", "8", "--heads", "2", "--kv-heads", "1", "--steps", "2", "--seed", "3", "4"]
    assert main([*settings, "--out", str(tmp_path / "new")]) == 0
    model, card = load("grammar-d8-h2-g1", tmp_path / "new")
    assert model.cfg.attention.n_kv_heads == 1
    assert [run.seed for run in card.tried] == [3, 4]
    assert card.recipe.seed in (3, 4)
    assert "gates missed: coreference_head" in capsys.readouterr().out
    written = json.loads((tmp_path / "new" / "grammar-d8-h2-g1.json").read_text())
    assert {"recipe", "words", "sha256", "figures", "tried", "date", "torch_version"} <= written.keys()


def test_the_command_answers_knobs_that_do_not_fit(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(torch, "set_num_threads", lambda _: None)
    assert main(["--d-model", "10", "--heads", "4", "--out", str(tmp_path / "new")]) == 1
    assert "h = 4 does not divide d_model = 10" in capsys.readouterr().err
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("gate", [field.name for field in dataclasses.fields(REQUIRED)])
def test_a_figure_just_short_of_its_gate_is_missed_and_one_just_met_is_not(gate):
    worse = 0.001 if gate == "validation_loss" else -0.001
    short = dataclasses.replace(REQUIRED, **{gate: getattr(REQUIRED, gate) + worse})
    assert REQUIRED.missed() == ()
    assert short.missed() == (gate,)


def test_generators_of_the_recipe_do_not_share_a_stream():
    order, unknown = generator_for(0, "order"), generator_for(0, "unknown", 0)
    assert order.initial_seed() != unknown.initial_seed()
