"""What can be chosen, and what a wrong choice is told."""

import itertools
import re
from dataclasses import FrozenInstanceError
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mha_core.config import (
    KNOB_D_MODEL,
    KNOB_MAX_HEADS,
    MAX_D_MODEL,
    MAX_HEAD_DIM,
    MAX_HEADS,
    MAX_SEED,
    MAX_WINDOW,
    AttentionConfig,
    ConfigError,
    divisors,
    nearest,
    or_list,
    valid_choices,
)
from mha_core.masks import CAUSAL, FULL, MASKS, SlidingWindow
from tests.core.cases import configs, dividing

GOOD: dict[str, Any] = {"d_model": 48, "n_heads": 6, "n_kv_heads": 3}
WORD = "64"
NEVER_A_SIZE = [True, False, 8.0, float("nan"), float("inf"), WORD, "", -1, -(10**400), 0, 10**400, 10**5000, [8], 8j]


def problems_of(**choice: Any):
    with pytest.raises(ConfigError) as caught:
        AttentionConfig(**{**GOOD, **choice})
    return caught.value.problems


def message_of(**choice: Any):
    (problem,) = problems_of(**choice)
    return problem.message


def numbers_in(text):
    return [int(number.replace(",", "")) for number in re.findall(r"\d[\d,]*(?<!,)", text)]


@pytest.mark.parametrize("value", NEVER_A_SIZE, ids=lambda value: str(type(value)))
@pytest.mark.parametrize("field", ["d_model", "n_heads", "n_kv_heads", "head_dim"])
def test_what_is_no_size_is_refused_with_a_short_sentence(field, value):
    (problem,) = problems_of(**{field: value})
    assert problem.field == field
    assert len(problem.message) < 160
    limit = {"d_model": MAX_D_MODEL, "head_dim": MAX_HEAD_DIM}.get(field, MAX_HEADS)
    assert f"1 to {limit:,}" in problem.message


@pytest.mark.parametrize("field", ["d_model", "n_heads", "n_kv_heads", "seed", "mask", "bias"])
def test_none_is_refused_where_it_means_nothing(field):
    assert [problem.field for problem in problems_of(**{field: None})] == [field]


@pytest.mark.parametrize("value", [v for v in NEVER_A_SIZE if v != 0 or v is False], ids=lambda value: str(type(value)))
def test_seeds_are_whole_numbers_from_zero_to_the_limit(value):
    assert [problem.field for problem in problems_of(seed=value)] == ["seed"]


@pytest.mark.parametrize("value", [1, 0, "yes", 1.0, 10**5000, "x" * 10**6], ids=lambda value: str(type(value)))
def test_bias_is_true_or_false(value):
    assert [problem.field for problem in problems_of(bias=value)] == ["bias"]
    assert len(message_of(bias=value)) < 160


@pytest.mark.parametrize(
    "value",
    [True, False, "10000", 0, 1, -5, 0.5, 10**400, 10**5000, float("inf"), float("nan"), [1], "x" * 10**6],
    ids=lambda value: str(type(value)),
)
def test_rotary_bases_are_numbers_above_one(value):
    assert [problem.field for problem in problems_of(rotary_base=value)] == ["rotary_base"]
    assert len(message_of(rotary_base=value)) < 160


@pytest.mark.parametrize(
    "value", ["causal", 3, True, 0.5, 10**5000, type(CAUSAL), "x" * 10**6], ids=lambda value: str(type(value))
)
def test_masks_are_masks(value):
    assert [problem.field for problem in problems_of(mask=value)] == ["mask"]
    assert len(message_of(mask=value)) < 160


@pytest.mark.parametrize("width", NEVER_A_SIZE, ids=lambda value: str(type(value)))
def test_windows_are_whole_numbers_in_range(width):
    (problem,) = problems_of(mask=SlidingWindow(width))
    assert problem.field == "mask"
    assert f"1 to {MAX_WINDOW:,}" in problem.message


def test_the_limits_themselves_are_allowed_and_one_more_is_not():
    limit = AttentionConfig(
        MAX_D_MODEL, MAX_HEADS, MAX_HEADS, MAX_HEAD_DIM, seed=MAX_SEED, mask=SlidingWindow(MAX_WINDOW)
    )
    assert limit.heads_per_kv == 1
    for field, value in [
        ("d_model", MAX_D_MODEL),
        ("n_heads", MAX_HEADS),
        ("head_dim", MAX_HEAD_DIM),
        ("seed", MAX_SEED),
    ]:
        assert [problem.field for problem in problems_of(**{field: value + 1})] == [field]
        assert f"nearest is {value:,}" in message_of(**{field: value + 1})


def test_the_sentence_for_six_heads_in_sixty_four():
    assert message_of(d_model=64, n_heads=6, n_kv_heads=6) == (
        "h = 6 does not divide d_model = 64; h can be 1, 2, 4, 8, 16, 32 or 64."
    )


def test_the_sentence_for_four_kv_heads_on_six():
    assert message_of(n_kv_heads=4) == "g = 4 does not divide h = 6; g can be 1, 2, 3 or 6."


def test_the_sentences_for_an_odd_width_with_rotary_positions():
    why = "rotary positions turn pairs of numbers, so a head needs an even width"
    assert message_of(d_model=24, n_heads=8, n_kv_heads=2, rotary_base=10_000.0) == (
        f"h = 8 gives d_k = 3, which is odd: {why}; with d_model = 24, h can be 1, 2, 3, 4, 6 or 12."
    )
    assert message_of(head_dim=5, rotary_base=10_000.0) == f"d_k = 5 is odd: {why}; nearest are 4 or 6."
    assert message_of(head_dim=1, rotary_base=10_000.0) == f"d_k = 1 is odd: {why}; nearest are 2."


def test_all_wrong_sizes_are_told_at_once():
    assert {problem.field for problem in problems_of(d_model=-1, n_heads="6", seed=1.5)} == {
        "d_model",
        "n_heads",
        "seed",
    }
    assert {problem.field for problem in problems_of(d_model=50, n_kv_heads=4)} == {"n_heads", "n_kv_heads"}


@pytest.mark.parametrize("d_model", KNOB_D_MODEL)
def test_every_head_count_that_a_sentence_offers_works_with_rotary_positions(d_model):
    for n_heads in set(range(1, 65)) - set(valid_choices(d_model, 1, rotary=True).n_heads):
        message = message_of(d_model=d_model, n_heads=n_heads, n_kv_heads=1, rotary_base=10_000.0)
        offered = numbers_in(message.split("h can be")[1])
        assert offered
        assert all(AttentionConfig(d_model, h, 1, rotary_base=10_000.0).n_heads == h for h in offered)


def by_ratio(value, options):
    return min(max(option, value) / min(option, value) for option in options)


@given(st.integers(1, 2_000), st.integers(1, 200))
def test_a_wrong_head_count_names_both_numbers_and_the_nearest_that_work(d_model, n_heads):
    if d_model % n_heads == 0:
        assert AttentionConfig(d_model, n_heads, n_heads).head_dim * n_heads == d_model
        return
    message = message_of(d_model=d_model, n_heads=n_heads, n_kv_heads=n_heads)
    assert message.startswith(f"h = {n_heads:,} does not divide d_model = {d_model:,}; h can be ")
    offered = numbers_in(message.split("h can be")[1])
    valid = dividing(d_model, min(d_model, MAX_HEADS))
    assert offered == sorted(set(offered) & set(valid))
    assert len(offered) == min(8, len(valid))
    assert by_ratio(n_heads, offered) == by_ratio(n_heads, valid)


@given(st.integers(1, MAX_HEADS), st.integers(1, MAX_HEADS))
def test_a_wrong_kv_head_count_names_both_numbers_and_the_nearest_that_work(n_heads, n_kv_heads):
    if n_heads % n_kv_heads == 0:
        assert AttentionConfig(n_heads, n_heads, n_kv_heads).heads_per_kv == n_heads // n_kv_heads
        return
    message = message_of(d_model=n_heads, n_heads=n_heads, n_kv_heads=n_kv_heads)
    assert message.startswith(f"g = {n_kv_heads:,} does not divide h = {n_heads:,}; g can be ")
    offered, valid = numbers_in(message.split("g can be")[1]), dividing(n_heads, n_heads)
    assert offered == sorted(set(offered) & set(valid))
    assert by_ratio(n_kv_heads, offered) == by_ratio(n_kv_heads, valid)


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("d_model", KNOB_D_MODEL)
def test_every_position_of_the_knobs_works_and_everything_that_works_is_offered(d_model, rotary):
    base = 10_000.0 if rotary else None
    offered = valid_choices(d_model, 1, rotary=rotary)
    assert offered.d_model == KNOB_D_MODEL
    assert offered.n_heads

    def works(n_heads, n_kv_heads):
        try:
            return AttentionConfig(d_model, n_heads, n_kv_heads, rotary_base=base).n_heads == n_heads
        except ConfigError:
            return False

    assert offered.n_heads == tuple(h for h in range(1, KNOB_MAX_HEADS + 1) if works(h, 1))
    for n_heads in offered.n_heads:
        kv_heads = valid_choices(d_model, n_heads, rotary=rotary).n_kv_heads
        assert kv_heads == tuple(g for g in range(1, n_heads + 1) if works(n_heads, g))


def test_the_knobs_are_the_ones_the_design_names():
    assert KNOB_D_MODEL == (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024)


@given(configs())
def test_equal_choices_are_equal_values_and_cannot_be_changed(cfg):
    again = AttentionConfig(*(getattr(cfg, name) for name in cfg.__dataclass_fields__))
    assert again == cfg
    assert hash(again) == hash(cfg)
    for name in cfg.__dataclass_fields__:
        with pytest.raises(FrozenInstanceError):
            setattr(cfg, name, 1)


def test_a_width_that_is_spelled_out_equals_the_default():
    assert AttentionConfig(48, 6, 3) == AttentionConfig(48, 6, 3, 8)
    assert AttentionConfig(48, 6, 3, 5).head_dim == 5
    assert AttentionConfig(48, 6, 3, 16).scale == 0.25


def test_masks_of_different_rules_are_different_choices():
    choices = [AttentionConfig(48, 6, 3, mask=mask) for mask in (FULL, CAUSAL, SlidingWindow(2), SlidingWindow(3))]
    assert all(one != other for one, other in itertools.combinations(choices, 2))
    assert set(MASKS) == {"full", "causal", "window"}


@given(st.integers(1, 5_000))
def test_divisors_are_all_there_is_and_in_order(number):
    assert list(divisors(number)) == dividing(number, number)


@given(st.integers(0, 5_000), st.sets(st.integers(1, 5_000), min_size=1), st.integers(1, 9))
def test_nearest_are_nearest_by_ratio_and_sorted(value, options, count):
    found = nearest(value, options, count)
    assert list(found) == sorted(found)
    assert len(found) == min(count, len(options))
    if value:
        farthest_found = max(max(o, value) / min(o, value) for o in found)
        assert all(max(o, value) / min(o, value) >= farthest_found for o in options - set(found))


def test_lists_read_as_a_person_would_say_them():
    assert or_list([3]) == "3"
    assert or_list([1, 2]) == "1 or 2"
    assert or_list([1, 512, 1024]) == "1, 512 or 1,024"
    assert or_list(["a", "b"]) == "a or b"
