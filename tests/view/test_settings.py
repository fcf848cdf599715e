"""Links in, settings out: every text gives settings that work, and every change is told."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.config import KNOB_D_MODEL, valid_choices
from mha_core.masks import MASKS
from mha_view.settings import DEFAULTS, MAX_WINDOW, PARAMS, SCALES, Settings, from_params, settle, to_params

knobs = st.sampled_from(KNOB_D_MODEL).flatmap(
    lambda d: st.sampled_from(valid_choices(d, 1, rotary=True).n_heads).flatmap(
        lambda h: st.tuples(st.just(d), st.just(h), st.sampled_from(valid_choices(d, h, rotary=True).n_kv_heads))
    )
)
valid_settings = st.builds(
    lambda sizes, **rest: Settings(d_model=sizes[0], n_heads=sizes[1], n_kv_heads=sizes[2], **rest),
    sizes=knobs,
    sentence=st.text(max_size=40),
    weights=st.sampled_from(["trained", "random"]),
    mask=st.sampled_from(sorted(MASKS)),
    window=st.integers(1, MAX_WINDOW),
    seed=st.integers(0, 2**32 - 1),
    scale=st.sampled_from(SCALES),
)
any_link = st.dictionaries(st.sampled_from(sorted(PARAMS.values())), st.text(max_size=30) | st.integers().map(str))


@given(valid_settings)
def test_a_link_brings_back_what_it_was_made_from(settings):
    assert from_params(to_params(settings)) == (settings, ())


def test_zero_empty_and_off_survive_a_link():
    settings = Settings(sentence="", seed=0, mask="full", n_kv_heads=1)
    assert from_params(to_params(settings))[0] == settings


def test_a_link_names_every_setting_even_the_defaults():
    assert set(to_params(DEFAULTS)) == {"v", *PARAMS.values()}


@given(any_link)
def test_any_link_gives_settings_that_the_core_accepts(params):
    settings, _ = from_params(params)
    settings.attention()
    assert settle(settings) == (settings, ())


@given(any_link)
def test_whatever_a_link_asked_for_in_vain_is_told(params):
    settings, told = from_params(params)
    shown = to_params(settings)
    changed = [
        name for name, text in params.items() if name != "s" and shown[name] != text and not _same(shown[name], text)
    ]
    assert len(told) >= len(changed)


def _same(shown: str, asked: str) -> bool:
    try:
        return float(asked) == float(shown)
    except ValueError:
        return False


@pytest.mark.parametrize(
    ("params", "shown", "sentence"),
    [
        ({"d": "64", "h": "6"}, (64, 8, 8), "h = 6 does not divide d_model = 64; h can be 1, 2, 4, 8, 16 or 32."),
        ({"h": "7"}, (128, 8, 8), "h = 7 does not divide d_model = 128; h can be 1, 2, 4, 8, 16, 32 or 64."),
        ({"g": "0"}, (128, 8, 1), "g = 0 does not work with h = 8; g can be 1, 2, 4 or 8. g = 1 is shown."),
        ({"h": "4", "g": "3"}, (128, 4, 4), "g = 3 does not divide h = 4; g can be 1, 2 or 4."),
        ({"d": "-1"}, (8, 4, 4), "d_model = -1 is not offered;"),
        ({"d": "1e9"}, (1024, 8, 8), "d_model = 1,000,000,000 is not offered;"),
        (
            {"d": "24", "h": "8"},
            (24, 6, 6),
            "h = 8 gives d_k = 3, which is odd: rotary positions turn pairs of numbers",
        ),
        ({"h": "eight"}, (128, 8, 8), "The link asks for h = “eight”, which is no whole number; 8 is taken instead."),
        ({"h": "9" * 50}, (128, 8, 8), "which is no whole number"),
        ({"mask": "<b>x</b>"}, (128, 8, 8), "The link asks for mask = “<b>x</b>”; mask can be causal, full or window."),
        ({"v": "7"}, (128, 8, 8), "The link was made by another version of Headroom"),
    ],
)
def test_impossible_links_get_a_sentence_with_the_nearest_values(params, shown, sentence):
    settings, told = from_params(params)
    assert (settings.d_model, settings.n_heads, settings.n_kv_heads) == shown
    assert any(sentence in notice for notice in told), told


def test_h_moves_to_the_nearest_that_works_and_g_follows():
    settings, told = settle(Settings(d_model=48, n_heads=16, n_kv_heads=16))
    assert (settings.n_heads, settings.n_kv_heads) == (12, 12)
    assert len(told) == 2
