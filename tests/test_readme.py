"""What the README says is what the repository does."""

import re
from pathlib import Path

from pages import PAGES

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


def test_the_table_of_pages_is_the_list_of_pages():
    table = re.search(r"<!-- pages:.*?-->\n(.*?)<!-- end of pages -->", README, re.DOTALL)
    assert table is not None
    rows = [[cell.strip() for cell in line.strip("|\n ").split("|")] for line in table[1].splitlines()[2:]]
    assert rows == [[page.title, page.question, page.about] for page in PAGES]


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
