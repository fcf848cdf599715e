"""What pooling costs: measured as the cards are, beside the model that was trained so, and told again from the file."""

import dataclasses
import re
from functools import partial

import pytest

from mha_core import zoo
from mha_core.analysis import pooling_cost as pc
from mha_core.analysis.pooling import Distance, distance, pooled
from mha_core.analysis.pooling_cost import Comparison, Conversion, Figures, Pooled, PoolingError, comparisons, stored
from mha_core.config import divisors
from mha_core.training.evaluate import make_exam, mean_loss, score
from mha_core.training.grammar import build_vocabulary
from mha_core.training.recipe import Recipe
from mha_core.training.scores import Controls, Evaluation, HeadScores, TaskScores, TwoNouns
from mha_core.transformer import Transformer
from tests.core import oracle

VOCABULARY = build_vocabulary()
TASKS = ("coreference", "mismatch", "agreement", "reflexive", "copy")
SMALL = partial(make_exam, n_probes=8, n_sentences=14)
# d_model 12, h 6, d_k 2, 2 layers, and g 6, 3 or 1.
SETTINGS = (6, 3, 1)


@pytest.fixture(scope="module")
def kept():
    return stored()


def numbers(value):
    """All numbers of nested values, in order."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [number for item in value for number in numbers(item)]
    return [] if isinstance(value, str) else [value]


def name_of(g):
    return f"grammar-d12-h6-g{g}"


def shelve(folder, g, seed=5):
    """A small untrained model and its card."""
    recipe = Recipe(d_model=12, n_heads=6, n_kv_heads=g, n_layers=2, seed=seed)
    nouns = TwoNouns(0.5, 0.5, 0.1, 0.1, 0.1, 0.1)
    weights, _ = zoo.pack(Transformer(recipe.config(len(VOCABULARY))))
    figures = Evaluation(
        TaskScores(0.5, 0.5, 0.5, 0.5, 0.5, 2.5),
        (HeadScores(0, 0, nouns, nouns, 0.1, 0.1, 0.1, 1),),
        Controls(0, 0, 0, 0),
    )
    sha256 = zoo.hashlib.sha256(weights).hexdigest()
    zoo.store(
        weights, zoo.Card(name_of(g), recipe, 1, VOCABULARY.words, sha256, figures, (), "2026-01-31", "2"), folder
    )


@pytest.fixture
def folder(tmp_path):
    for g in SETTINGS:
        shelve(tmp_path, g)
    return tmp_path


@pytest.fixture
def run(folder, monkeypatch):
    """The command on the small models."""
    monkeypatch.setattr(pc, "make_exam", SMALL)
    return lambda *names: pc.main([*names, "--folder", str(folder), "--out", str(folder / "cost" / "pooling.json")])


@pytest.fixture
def path(folder):
    (folder / "cost").mkdir()
    return folder / "cost" / "pooling.json"


def test_every_smaller_g_is_measured_as_the_model_itself_is(folder):
    (model, card), exam = zoo.load(name_of(6), folder), SMALL(VOCABULARY)
    found = pc.measure(model, card, exam)
    assert (found.name, found.sha256, found.d_model, found.n_heads) == (name_of(6), card.sha256, 12, 6)
    assert [one.figures.n_kv_heads for one in found.pooled] == [3, 2, 1]
    assert found.trained == pc.figures(model, exam)
    for one in found.pooled:
        fewer = pooled(model, one.figures.n_kv_heads)
        assert one.figures == pc.figures(fewer, exam)
        assert one.distance == distance(model, fewer, exam.sentences)


def silenced(model):
    """The same weights with W_O all zeros: what the heads find goes nowhere."""
    other = Transformer(model.cfg)
    weights = {n: 0 * w if n.endswith("attention.W_O.weight") else w for n, w in model.state_dict().items()}
    other.load_state_dict(weights)
    return other


def test_with_all_heads_off_a_model_scores_as_if_nothing_of_them_were_added(folder):
    (model, card), exam = zoo.load(name_of(6), folder), SMALL(VOCABULARY)
    found = pc.measure(model, card, exam).heads_off
    assert dataclasses.astuple(found) == pytest.approx(dataclasses.astuple(score(silenced(model), exam)))
    assert found.validation_loss != pytest.approx(score(model, exam).validation_loss, abs=1e-4)


def test_a_model_with_one_kv_head_is_measured_and_not_pooled(folder):
    found = pc.measure(*zoo.load(name_of(1), folder), SMALL(VOCABULARY))
    assert found.pooled == ()
    assert found.trained.n_kv_heads == 1


@pytest.mark.parametrize("g", SETTINGS)
def test_figures_are_the_scores_and_both_halves_make_the_loss(folder, g):
    (model, _), exam = zoo.load(name_of(g), folder), SMALL(VOCABULARY)
    found = pc.figures(model, exam)
    assert found.scores == score(model, exam)
    assert found.n_kv_heads == g
    halves = exam.sentences[:7], exam.sentences[7:]
    assert found.halves == tuple(mean_loss(model, rows) for rows in halves)
    # Row 0 is padding's.
    words = [int((rows[:, 1:] != 0).sum()) for rows in halves]
    whole = sum(loss * n for loss, n in zip(found.halves, words, strict=True)) / sum(words)
    assert found.scores.validation_loss == pytest.approx(whole, rel=1e-6)
    assert found.parameters == sum(parameter.numel() for parameter in model.parameters())
    trace = model.trace(exam.sentences[:1, :1])
    assert found.cache_bytes == sum(layer.k.nbytes + layer.v.nbytes for layer in trace.layers) == 2 * 2 * 2 * 4 * g


def figures_of(g, losses=(2.0, 3.0), shares=(1.0, 0.9, 0.8, 0.7, 0.6)):
    scores = TaskScores(*shares, validation_loss=sum(losses) / 2)
    return Figures(g, scores, losses, 100 * g, 10 * g)


NOWHERE = Distance(0.1, 0.2, 0.3, 0.4, 0.5)
OFF, OTHER_OFF = (TaskScores(0.5, 0.5, 0.5, 0.4, 0.0, validation_loss=loss) for loss in (4.5, 8.0))


def test_a_pooled_model_stands_beside_the_one_trained_with_its_g():
    models = [
        Conversion("a", "", "", 10, 6, figures_of(6), OFF, (Pooled(figures_of(3, (2.5, 4.0)), NOWHERE),)),
        Conversion("b", "", "", 10, 6, figures_of(3, (2.1, 2.8)), OTHER_OFF, (Pooled(figures_of(1), NOWHERE),)),
        Conversion("c", "", "", 14, 6, figures_of(3, (9.0, 9.0)), OTHER_OFF, ()),
        Conversion("d", "", "", 10, 3, figures_of(1, (9.0, 9.0)), OTHER_OFF, ()),
    ]
    (one,) = comparisons(models)
    assert one == Comparison(10, 6, models[0].trained, models[0].pooled[0].figures, NOWHERE, models[1].trained, OFF)
    assert one.heads_pooled == 2
    assert one.cost == (0.5, 1.0)
    assert one.behind == pytest.approx((0.4, 1.2))
    # 2.5 before, 3.25 pooled, 4.5 without any head.
    assert one.share_lost == pytest.approx(0.75 / 2.0)


def test_what_pooling_takes_is_told_task_by_task():
    before, after = figures_of(6), figures_of(2, shares=(0.5, 0.9, 0.9, 0.5, 0.1))
    one = Comparison(10, 6, before, after, NOWHERE, before, OFF)
    assert one.dropped == pytest.approx(dict(zip(TASKS, (0.5, 0.0, -0.1, 0.2, 0.5), strict=True)))


def test_the_table_has_a_row_for_each_number_of_heads_that_became_one():
    def one(g, loss):
        return Comparison(10, 6, figures_of(6), figures_of(g, (loss, loss)), NOWHERE, figures_of(g, (1.0, 2.0)), OFF)

    rows = pc.table([one(3, 3.0), one(1, 5.0), one(3, 4.0), one(3, 7.0)])
    assert rows == [
        ("2", "3", "1.50 (0.50 to 4.50)", "2.50 (1.50 to 5.50)", "0.00 (0.00 to 0.00)"),
        ("6", "1", "2.50 (2.50 to 2.50)", "3.50 (3.50 to 3.50)", "0.00 (0.00 to 0.00)"),
    ]


def test_what_is_stored_comes_back_in_four_digits_on_a_line_for_each_model(folder, path):
    found = [pc.measure(*zoo.load(name_of(g), folder), SMALL(VOCABULARY)) for g in SETTINGS]
    pc.store(found, path)
    again = stored(path, folder)
    assert [one.name for one in again] == [name_of(g) for g in SETTINGS]
    told, right = ([dataclasses.asdict(one) for one in models] for models in (again, found))
    assert numbers(told) == pytest.approx(numbers(right), rel=6e-4)
    first, *lines, last = path.read_text().splitlines()
    assert (first, last, len(lines)) == ("[", "]", 3)
    pc.store(again, path)
    assert stored(path, folder) == again


@pytest.mark.parametrize(
    "spoil", [lambda t: t[:-40], lambda t: t.replace('"kl"', '"cl"', 1), lambda t: "{}", lambda t: ""]
)
def test_figures_that_cannot_be_read_are_told_so_and_measured_again(folder, path, run, spoil):
    run(name_of(3))
    right = path.read_text()
    path.write_text(spoil(right))
    with pytest.raises(
        PoolingError, match=r"^pooling\.json holds no figures .*run `make evidence` to make it again\.$"
    ):
        stored(path, folder)
    assert run(name_of(3)) == 0
    assert path.read_text() == right


def test_a_file_that_is_absent_is_told_so(folder):
    with pytest.raises(PoolingError, match=r"^absent\.json holds no figures"):
        stored(folder / "absent.json", folder)


def test_figures_of_other_weights_are_refused_and_measured_again(folder, path, run):
    run()
    shelve(folder, 3, seed=6)
    with pytest.raises(
        PoolingError, match=r"was measured on other weights than grammar-d12-h6-g3; run `make evidence`"
    ):
        stored(path, folder)
    run()
    assert stored(path, folder)[1].sha256 == zoo.load_card(name_of(3), folder).sha256


def test_the_command_measures_what_is_missing_and_only_that(folder, path, run, monkeypatch, capsys):
    measured = []
    measure = pc.measure
    monkeypatch.setattr(
        pc, "measure", lambda model, card, exam: measured.append(card.name) or measure(model, card, exam)
    )
    assert run(name_of(6)) == 0
    assert run() == 0
    assert measured == [name_of(6), name_of(1), name_of(3)]
    assert [one.name for one in stored(path, folder)] == [name_of(1), name_of(3), name_of(6)]
    told = capsys.readouterr().out.splitlines()
    # 3 to 1, 6 to 3 and 6 to 1 have a trained model beside them, 6 to 2 has none.
    assert [line.split()[:2] for line in told[-3:]] == [["2", "1"], ["3", "1"], ["6", "1"]]


def test_every_trained_setting_is_stored_with_every_smaller_g(kept):
    assert [one.name for one in kept] == [card.name for card in zoo.available()]
    for one in kept:
        d_model, h, g = map(int, re.findall(r"\d+", one.name))
        assert (one.d_model, one.n_heads, one.trained.n_kv_heads) == (d_model, h, g)
        assert [fewer.figures.n_kv_heads for fewer in one.pooled] == [n for n in reversed(divisors(g)) if n < g]
    assert len(comparisons(kept)) == sum(len(one.pooled) for one in kept)


def test_the_figures_of_trained_models_are_those_of_their_cards(kept):
    for one, card in zip(kept, zoo.available(), strict=True):
        told, right = (dataclasses.astuple(scores) for scores in (one.trained.scores, card.figures.tasks))
        assert told == pytest.approx(right, abs=1e-3), one.name
        assert one.trained.parameters == card.parameters


def test_costs_in_parameters_and_bytes_are_those_of_the_trained_model_of_the_same_g(kept):
    for one in comparisons(kept):
        assert (one.after.parameters, one.after.cache_bytes) == (one.trained.parameters, one.trained.cache_bytes)
        assert one.before.cache_bytes == one.after.cache_bytes * one.heads_pooled
        gone = one.before.n_kv_heads - one.after.n_kv_heads
        # 3 layers, W_K and W_V.
        assert one.before.parameters - one.after.parameters == 3 * 2 * one.d_model * (one.d_model // one.n_heads) * gone


def plainly_pooled(model, fewer):
    """A model of that g with the weights of this one, pooled in numpy."""
    attention = dataclasses.replace(model.cfg.attention, n_kv_heads=fewer)
    other = Transformer(dataclasses.replace(model.cfg, attention=attention))
    weights, g, d_k = dict(model.state_dict()), model.cfg.attention.n_kv_heads, attention.head_dim
    for layer in range(model.cfg.n_layers):
        for name in (f"blocks.{layer}.attention.W_K.weight", f"blocks.{layer}.attention.W_V.weight"):
            columns = oracle.pooled_heads(weights[name].double().numpy().T, g, fewer, d_k)
            weights[name] = pc.torch.from_numpy(columns.T)
    other.load_state_dict(weights)
    return other


@pytest.mark.parametrize(("name", "fewer"), [("grammar-d32-h4-g4", 2), ("grammar-d64-h16-g8", 1)])
def test_stored_figures_are_measured_again_on_weights_pooled_by_hand(kept, name, fewer):
    model, card = zoo.load(name)
    (one,) = (one for one in kept if one.name == name)
    (told,) = (p for p in one.pooled if p.figures.n_kv_heads == fewer)
    exam, other = make_exam(card.vocabulary), plainly_pooled(model, fewer)
    found = pc.figures(other, exam)
    # A word that is nearly a tie may fall the other way on another processor.
    assert numbers(dataclasses.asdict(told.figures)) == pytest.approx(numbers(dataclasses.asdict(found)), abs=0.004)
    off = score(silenced(model), exam)
    assert dataclasses.astuple(one.heads_off) == pytest.approx(dataclasses.astuple(off), abs=0.004)
    some = distance(model, other, exam.sentences)
    assert dataclasses.astuple(told.distance) == pytest.approx(dataclasses.astuple(some), rel=0.01)
