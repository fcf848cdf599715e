"""What the README says is what the repository does."""

import re
from collections import Counter
from pathlib import Path

from mha_core.analysis.claims import stored, table
from mha_view import evidence
from mha_view.cards import cards
from pages import PAGES
from scripts.grid_table import grid_table, seeds_table

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def rows_of(name):
    """The cells of a marked table, without its head."""
    table = re.search(rf"<!-- {name}:.*?-->\n(.*?)<!-- end of {name} -->", README, re.DOTALL)
    assert table is not None
    return [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table[1].splitlines()[2:]]


def test_the_table_of_pages_is_the_list_of_pages():
    assert rows_of("pages") == [[page.title, page.question, page.about] for page in PAGES]


def test_the_four_claims_are_told_as_measured():
    c = stored()
    assert c.expanded.expanded_scores == tuple((s.n_heads * s.n) ** 2 for s in c.settings)
    assert c.reshapes.same_shape == c.reshapes.mistaken_runs
    assert c.reshapes.row_sums < 1e-12
    assert rows_of("claims") == [list(row) for row in table(c)]
    assert (len(c.settings), len(c.seeds)) == (4, 5)
    assert (min(s.n_heads for s in c.settings), max(s.n_heads for s in c.settings)) == (2, 8)


def test_the_table_of_trained_settings_is_that_of_the_cards():
    assert f"{grid_table()}\n<!-- end of grid -->" in README
    assert f"{seeds_table()}\n<!-- end of seeds -->" in README


def test_the_names_that_heads_earned_are_counted_right():
    names = [card.name for card in cards()]
    earned = Counter(label.role.name for name in names for label in evidence.named(name))
    heads = sum(len(card.figures.heads) for card in cards())
    named = sum(len({label.head.name for label in evidence.named(name)}) for name in names)
    told = " ".join(README.split())
    assert f"of {heads:,} heads, {heads - named} earn no name" in told
    for role, count in earned.items():
        assert f"{count} {role}" in told


def test_the_notebook_example_runs_and_sums_to_nothing():
    code = re.search(r"```python\n(.*?)```", README, re.DOTALL)
    assert code is not None
    *setup, last = [line for line in code[1].splitlines() if line]
    names: dict = {}
    exec("\n".join(setup), names)
    pattern, difference = eval(last, names)
    assert len(setup) + 1 == 5
    assert pattern.shape == (5, 5)
    assert difference.abs().max() < 1e-5


def test_every_file_it_links_to_is_there():
    root = Path(__file__).parents[1]
    for target in re.findall(r"\]\(([^)#]+)\)", README):
        assert (root / target).exists(), target
