"""The page Knobs: every point and every cell is a figure of a card or of a stored seed."""

import pytest

from mha_core import zoo
from mha_core.analysis import evidence as stored
from mha_core.analysis.roles import labels
from mha_core.training.grid import HEADS, SLICE, SLICE_WIDTH, WIDTHS
from mha_view import knobs
from mha_view.cards import cards, sizes_of


def test_all_45_settings_are_there_with_the_figures_of_their_cards(open_page):
    sent = open_page("knobs").sent("table")[1]
    assert len(sent["rows"]) == 45
    by_sizes = {tuple(row[:3]): row for row in sent["rows"]}
    assert {sizes_of(card) for card in cards()} == set(by_sizes)
    for card in cards():
        row = by_sizes[sizes_of(card)]
        gates, tasks = card.figures.gates(), card.figures.tasks
        assert row[5:9] == [tasks.validation_loss, tasks.copy, gates.coreference_head, gates.agreement_head]
        model, _ = zoo.load(card.name)
        assert row[4] == sum(parameter.numel() for parameter in model.parameters())
        found = stored.find(card.name)
        assert found is not None
        assert row[-1] == sum(label.role.name == "coreference" for label in labels(found))


def test_the_chosen_setting_is_marked(open_page):
    sent = open_page("knobs", d="64", h="8", g="2").sent("table")[1]
    assert sent["rows"][sent["marked"]][:3] == [64, 8, 2]
    assert open_page("knobs", d="96", h="8", g="2").sent("table")[-1]["marked"] is None


@pytest.mark.parametrize("figure", knobs.FIGURES, ids=lambda figure: figure.name)
def test_points_are_seed_0_inside_the_band_of_all_seeds(open_page, figure):
    against_h, against_g = open_page("knobs", measure=figure.name).sent("chart")
    for chart, heads in ((against_h, None), (against_g, 8)):
        assert [series["name"] for series in chart["series"]] == [f"d_model {width}" for width in WIDTHS]
        for series, width in zip(chart["series"], WIDTHS, strict=True):
            for x, y, low, high in zip(*(series[name] for name in ("x", "y", "low", "high")), strict=True):
                sizes = (width, x, x) if heads is None else (width, heads, x)
                card = next(card for card in cards() if sizes_of(card) == sizes)
                assert y == figure.of(card.figures.tasks, card.figures.gates())
                assert low <= y <= high
    assert against_h["series"][0]["x"] == list(HEADS)
    assert against_g["series"][0]["x"] == [1, 2, 4, 8]


def test_the_slice_has_three_seeds_and_their_spread_is_drawn(open_page):
    runs = zoo.seed_runs()
    assert {(run.n_heads, run.n_kv_heads, run.seed) for run in runs} == {(*s, seed) for s in SLICE for seed in (1, 2)}
    loss = next(figure for figure in knobs.FIGURES if figure.name == "loss")
    series = open_page("knobs", measure="loss").sent("chart")[0]["series"][WIDTHS.index(SLICE_WIDTH)]
    for h, low, high in zip(series["x"], series["low"], series["high"], strict=True):
        found = knobs.values((SLICE_WIDTH, h, h), loss)
        assert len(found) == 3
        assert (low, high) == (min(found), max(found))
    assert any(low < high for low, high in zip(series["low"], series["high"], strict=True))


def test_what_changes_and_what_stays_is_read_off_the_cards(open_page):
    page = open_page("knobs", d="32")
    rows = {row[0]: row for row in page.sent("table")[0]["rows"]}
    for figure in knobs.FIGURES:
        few, many = (next(c for c in cards() if sizes_of(c) == (32, h, h)) for h in (1, 8))
        moved = abs(
            figure.of(many.figures.tasks, many.figures.gates()) - figure.of(few.figures.tasks, few.figures.gates())
        )
        verdict = "changes" if moved >= 0.1 else "stays" if moved <= 0.02 else "moves a little"
        assert rows[figure.words][-1] == verdict
    lead = page.sent("facts")[0]["lead"]
    assert ("copies a list said twice" in lead.split("What stays")[0]) == (
        rows["copies a list said twice, share right"][-1] == "changes"
    )


def test_a_width_or_an_h_without_trained_weights_is_told(open_page):
    told = " ".join(open_page("knobs", d="96", h="3", g="3").notes())
    assert "d_model = 96 has no trained weights; here d_model can be 32, 64 or 128." in told
    assert "h = 3 has no trained weights at any width." in told


def test_an_unknown_figure_is_told(open_page):
    assert any("measure = “fame”" in note for note in open_page("knobs", measure="fame").notes())
