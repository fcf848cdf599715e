"""What a forged or broken control reports is ignored, or settled: never trusted."""

import pytest

from mha_view import state
from mha_view.state import session


@pytest.fixture
def chosen(monkeypatch):
    taken = {}
    monkeypatch.setattr(session, "set_settings", taken.update)
    return taken


@pytest.mark.parametrize("value", [True, None, "8", 2.5, [8], {"h": 8}, float("nan"), float("inf"), 10**400, -(10**16)])
def test_what_is_no_whole_number_is_ignored(chosen, value):
    state.set_checked("n_heads", value)
    assert chosen == {}


@pytest.mark.parametrize(("name", "value"), [("mask", "<b>"), ("scale", None), ("nothing", 3), ("sentence", "x")])
def test_unknown_words_and_names_are_ignored(chosen, name, value):
    state.set_checked(name, value)
    assert chosen == {}


def test_sound_values_are_taken(chosen):
    state.set_checked("n_heads", 4.0)
    state.set_checked("mask", "full")
    assert chosen == {"n_heads": 4, "mask": "full"}
