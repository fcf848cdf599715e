"""Shipped weights: what is stored comes back, and a file that cannot be trusted is refused in one sentence."""

import dataclasses
import hashlib
import json

import pytest
import torch
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors

from mha_core import zoo
from mha_core.text import SPECIAL
from mha_core.training.recipe import Recipe
from mha_core.training.scores import REQUIRED, Controls, Evaluation, HeadScores, TaskScores, TwoNouns
from mha_core.transformer import Transformer
from mha_core.zoo import Card, Tried, ZooError, available, find, load, model_name, pack, scan, store

RECIPE = Recipe(d_model=12, n_heads=6, n_kv_heads=3, n_layers=2, seed=5)
WORDS = (*SPECIAL, "the", "cat", "sat", "down")
NOUNS = TwoNouns(0.5, 0.25, 0.125, 0.75, 0.0, 1.0)
FIGURES = Evaluation(
    TaskScores(0.5, 0.25, 0.125, 0.75, 0.0, 2.5),
    tuple(HeadScores(layer, head, NOUNS, NOUNS, 0.5, 0.25, 0.75, 3) for layer in range(2) for head in range(6)),
    Controls(0.125, 0.25, 0.5, 0.75),
)


@pytest.fixture
def stored(tmp_path):
    """A folder with one small model, that model as it should come back, and its card."""
    weights, rounded = pack(Transformer(RECIPE.config(len(WORDS))))
    name, sha256 = model_name(RECIPE.d_model, RECIPE.n_heads, RECIPE.n_kv_heads), hashlib.sha256(weights).hexdigest()
    tried = (Tried(4, 1e-3, 0.5, FIGURES.gates()), Tried(5, 2e-3, 1.0, REQUIRED))
    card = Card(name, RECIPE, 1, WORDS, sha256, FIGURES, tried, "2026-01-31", "2.0.0")
    store(weights, card, tmp_path)
    return tmp_path, rounded, card


def weights_of(folder):
    return folder / "grammar-d12-h6-g3.safetensors"


def card_of(folder):
    return folder / "grammar-d12-h6-g3.json"


def put(folder, weights):
    """Other weights with a card that vouches for them."""
    weights_of(folder).write_bytes(weights)
    written = json.loads(card_of(folder).read_text())
    card_of(folder).write_text(json.dumps(written | {"sha256": hashlib.sha256(weights).hexdigest()}))


def refusal(folder, name="grammar-d12-h6-g3"):
    with pytest.raises(ZooError) as caught:
        load(name, folder)
    message = str(caught.value)
    assert "`make train D=" in message
    assert message.endswith(".")
    assert "\n" not in message
    return message


def test_what_is_stored_comes_back(stored):
    folder, rounded, card = stored
    model, read_card = load(card.name, folder)
    assert read_card == card
    assert read_card.vocabulary.tokenize("The cat sat down").unknown == []
    assert model.cfg == rounded.cfg
    ids = torch.tensor([[1, 3, 4, 5]])
    assert torch.equal(model(ids), rounded(ids))
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not model.training


def test_weights_are_stored_in_half_precision(stored):
    folder, _, _ = stored
    assert {tensor.dtype for tensor in load_tensors(weights_of(folder).read_bytes()).values()} == {torch.float16}


def test_the_shelf_lists_what_is_there_and_answers_which_settings_have_weights(stored):
    folder, _, card = stored
    assert available(folder) == [card]
    assert scan(folder) == ([card], [])
    assert find(12, 6, 3, folder) == card
    assert find(12, 6, 2, folder) is None


def test_one_bad_card_does_not_hide_the_others(stored):
    folder, _, card = stored
    (folder / "grammar-d8-h1-g1.json").write_text("{")
    cards, (problem,) = scan(folder)
    assert cards == [card]
    assert "grammar-d8-h1-g1.json" in problem


def test_a_missing_file_is_named(stored):
    folder, _, _ = stored
    weights_of(folder).unlink()
    assert "grammar-d12-h6-g3.safetensors is missing" in refusal(folder)


def test_a_missing_card_is_named(stored):
    folder, _, _ = stored
    card_of(folder).unlink()
    assert "grammar-d12-h6-g3.json is missing" in refusal(folder)
    assert "grammar-d999-h1-g1.json is missing" in refusal(folder, "grammar-d999-h1-g1")


@pytest.mark.parametrize("keep", [0, 7, 100, -1])
def test_a_truncated_file_is_refused(stored, keep):
    folder, _, _ = stored
    weights_of(folder).write_bytes(weights_of(folder).read_bytes()[:keep])
    assert "grammar-d12-h6-g3.safetensors is not the file its card describes" in refusal(folder)


def test_an_edited_file_is_refused(stored):
    folder, _, _ = stored
    data = bytearray(weights_of(folder).read_bytes())
    data[-5] ^= 1
    weights_of(folder).write_bytes(bytes(data))
    assert "is not the file its card describes" in refusal(folder)


def test_bytes_that_are_no_weights_are_refused_even_with_a_card_that_vouches_for_them(stored):
    folder, _, _ = stored
    put(folder, b"no tensors at all")
    assert "grammar-d12-h6-g3.safetensors cannot be loaded" in refusal(folder)


def test_weights_of_another_shape_are_refused(stored):
    folder, _, _ = stored
    wider = Transformer(dataclasses.replace(RECIPE, n_kv_heads=6).config(len(WORDS)))
    put(folder, pack(wider)[0])
    message = refusal(folder)
    assert "grammar-d12-h6-g3.safetensors does not fit its card" in message
    assert "blocks.0.attention.W_K.weight is (12, 12), not (6, 12)" in message


def test_weights_with_a_tensor_too_many_or_too_few_are_refused(stored):
    folder, rounded, _ = stored
    state = {name: tensor.half() for name, tensor in rounded.state_dict().items()}
    put(folder, save_tensors(state | {"extra": torch.zeros(3)}))
    assert "extra is (3,), not absent" in refusal(folder)
    del state["embed.weight"]
    put(folder, save_tensors(state))
    assert "embed.weight is absent, not (7, 12)" in refusal(folder)


@pytest.mark.parametrize(
    "spoil",
    [
        lambda card: "not json {",
        lambda card: json.dumps([1, 2]),
        lambda card: json.dumps({key: value for key, value in card.items() if key != "sha256"}),
        lambda card: json.dumps(card | {"words": "the cat"}),
        lambda card: json.dumps(card | {"words": ["the", "cat"]}),
        lambda card: json.dumps(card | {"recipe": card["recipe"] | {"n_heads": "six"}}),
        lambda card: json.dumps(card | {"recipe": card["recipe"] | {"n_heads": True}}),
        lambda card: json.dumps(card | {"recipe": card["recipe"] | {"betas": [0.9]}}),
        lambda card: json.dumps(card | {"recipe": None}),
    ],
)
def test_a_card_that_is_no_card_is_refused(stored, spoil):
    folder, _, _ = stored
    card_of(folder).write_text(spoil(json.loads(card_of(folder).read_text())))
    assert "grammar-d12-h6-g3.json is not a card that this version can read" in refusal(folder)


def test_a_card_with_knobs_that_do_not_fit_is_refused(stored):
    folder, _, _ = stored
    written = json.loads(card_of(folder).read_text())
    card_of(folder).write_text(json.dumps(written | {"recipe": written["recipe"] | {"n_heads": 5}}))
    assert "h = 5 does not divide d_model = 12" in refusal(folder)


def test_bytes_that_are_no_text_are_no_card(stored):
    folder, _, _ = stored
    card_of(folder).write_bytes(b"\xff\xfe\x00")
    assert "is not a card" in refusal(folder)


def test_the_shipped_folder_is_found_beside_the_code():
    assert zoo.FOLDER.name == "zoo"
    assert all(
        card.name == model_name(card.recipe.d_model, card.recipe.n_heads, card.recipe.n_kv_heads)
        for card in available()
    )
