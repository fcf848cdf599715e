"""From settings to a run: budgets, words, notes, and that visitors do not see each other."""

import numpy as np
import pytest
import torch

from mha_core.text import MAX_TOKENS, TextError, word_spans
from mha_view import cards, results, state
from mha_view.examples import EXAMPLES
from mha_view.results import VOCABULARY, estimated_bytes, run_key
from mha_view.settings import DEFAULTS, Settings, replace
from mha_view.state import caches


def test_every_example_is_made_of_known_words():
    for example in EXAMPLES:
        tokens = VOCABULARY.tokenize(example.sentence)
        assert not tokens.unknown, (example.name, tokens.unknown)


def test_the_default_view_shows_it_looking_at_cat():
    run = state.cached_run(DEFAULTS)
    assert run.card is not None
    layer, head = cards.first_head(run.card)
    labels = run.tokens.labels
    pattern = run.layer(layer).array("pattern")[head]
    row = labels.index("it")
    assert labels[int(pattern[row].argmax())] == "cat"
    assert pattern[row].max() > 0.9


def test_one_verb_moves_it_to_the_mat():
    run = state.cached_run(replace(DEFAULTS, sentence=EXAMPLES[1].sentence))
    assert run.card is not None
    layer, head = cards.first_head(run.card)
    labels = run.tokens.labels
    pattern = run.layer(layer).array("pattern")[head]
    assert labels[int(pattern[labels.index("it")].argmax())] == "mat"


def test_checks_hold_for_every_mask_and_break_when_the_pattern_is_broken():
    for mask in ("causal", "full", "window"):
        run = state.cached_run(Settings(d_model=24, n_heads=6, n_kv_heads=3, weights="random", mask=mask))
        assert all(check.ok for check in run.checks), [c for c in run.checks if not c.ok]


def test_the_same_settings_give_the_same_numbers_and_others_do_not():
    a = Settings(d_model=16, n_heads=4, n_kv_heads=2, weights="random", seed=1)
    first = results.run(a, results.load_model(a)).layer(0).array("pattern")
    again = results.run(a, results.load_model(a)).layer(0).array("pattern")
    other = replace(a, seed=2)
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, results.run(other, results.load_model(other)).layer(0).array("pattern"))


def test_a_run_touches_no_global_random_state():
    before = torch.get_rng_state()
    settings = Settings(d_model=8, n_heads=2, n_kv_heads=1, weights="random", seed=11)
    results.run(settings, results.load_model(settings))
    assert torch.equal(before, torch.get_rng_state())


def test_cache_keys_hold_every_setting_but_the_colour_scale():
    keys = {run_key(DEFAULTS)}
    for change in (
        {"sentence": "a"},
        {"weights": "random"},
        {"d_model": 64},
        {"n_heads": 4},
        {"n_kv_heads": 4},
        {"mask": "full"},
        {"window": 5},
        {"seed": 1},
    ):
        keys.add(run_key(replace(DEFAULTS, **change)))
    assert len(keys) == 9
    assert run_key(DEFAULTS) == run_key(replace(DEFAULTS, scale="log"))


def test_the_estimate_is_close_to_what_is_really_held():
    settings = Settings(d_model=96, n_heads=12, n_kv_heads=4, weights="random")
    loaded = results.load_model(settings)
    run = results.run(settings, loaded)
    held = loaded.nbytes + run.nbytes
    assert 0.7 * held < estimated_bytes(settings, len(run.tokens.items)) < 1.3 * held


def test_a_run_over_the_budget_is_refused_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(caches, "MAX_RUN_BYTES", 1000)
    with pytest.raises(state.BudgetError, match=r"would take \d+ MiB and the limit is 0 MiB; choose a smaller d_model"):
        state.cached_run(Settings(d_model=32, n_heads=2, n_kv_heads=2, weights="random", seed=77))


@pytest.mark.parametrize(("count", "fits"), [(MAX_TOKENS - 1, True), (MAX_TOKENS, True), (MAX_TOKENS + 1, False)])
def test_the_limit_of_the_text_is_exact(count, fits):
    text = " ".join(["cat"] * count)
    assert len(list(word_spans(text))) == count
    if fits:
        assert VOCABULARY.tokenize(text).n_typed == count
    else:
        with pytest.raises(TextError, match=r"has 129 tokens and the limit is 128; take out at least 1"):
            VOCABULARY.tokenize(text)
