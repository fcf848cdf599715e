"""Each mask against its rule in words, cell by cell."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from mha_core.masks import CAUSAL, FULL, MASKS, SlidingWindow
from tests.core.cases import masks, sees


@given(
    masks, st.lists(st.integers(0, 50), min_size=1, max_size=8), st.lists(st.integers(0, 50), min_size=1, max_size=9)
)
def test_a_mask_is_its_rule_for_any_positions(mask, queries, keys):
    visible = mask.visible(torch.tensor(queries), torch.tensor(keys))
    assert visible.dtype is torch.bool
    assert visible.tolist() == [[sees(mask)(i, j) for j in keys] for i in queries]


def test_a_window_of_one_sees_itself_and_a_wide_window_is_causal():
    here = torch.arange(7)
    assert SlidingWindow(1).visible(here, here).equal(torch.eye(7, dtype=torch.bool))
    assert SlidingWindow(7).visible(here, here).equal(CAUSAL.visible(here, here))
    assert SlidingWindow(3).visible(here, here).sum(1).tolist() == [1, 2, 3, 3, 3, 3, 3]
    assert FULL.visible(here, here).all()


@given(masks, st.integers(0, 50))
def test_every_token_sees_itself_so_that_only_padding_leaves_a_row_empty(mask, position):
    assert mask.visible(torch.tensor([position]), torch.tensor([position])).all()


@pytest.mark.parametrize(("name", "mask"), MASKS.items())
def test_every_mask_has_a_name_and_a_sentence(name, mask):
    assert mask.name == name
    assert "sees" in mask.sentence
