"""The loop and the big product are the same layer, and what is told of their time is what the clock said."""

import numpy as np
import pytest
import torch

from mha_core.analysis import timing as t
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.seeds import generator_for
from tests.core import oracle
from tests.core.cases import numbers

N, D, H = 5, 24, 3


def last(*sizes, **clock):
    *_, found = t.timing(*sizes, **clock)
    return found


class Clock:
    """A clock that goes on by one step whenever it is asked, ``step`` seconds at a time."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_the_loop_over_heads_is_the_plain_one():
    layer = GroupedQueryAttention(AttentionConfig(D, H, H, seed=4)).double()
    x = numbers(2, N, D, seed=9)
    with torch.no_grad():
        out = t.loop_over_heads(x, t.head_matrices(layer), layer.W_O.weight.T)
    for sentence in range(2):
        wanted = oracle.attention(
            x[sentence].numpy(), oracle.weights_of(layer), h=H, g=H, d_k=D // H, sees=lambda i, j: True
        )
        np.testing.assert_allclose(out[sentence].numpy(), wanted["out"], atol=1e-12)


def test_each_head_has_matrices_of_its_own_that_are_its_columns():
    layer = GroupedQueryAttention(AttentionConfig(D, H, H, seed=4))
    heads, d_k = t.head_matrices(layer), D // H
    assert len(heads) == H
    for i, matrices in enumerate(heads):
        for matrix, name in zip(matrices, ("W_Q", "W_K", "W_V"), strict=True):
            assert matrix.is_contiguous()
            assert matrix.equal(getattr(layer, name).weight.T[:, i * d_k : (i + 1) * d_k])


def test_the_outputs_are_equal_and_the_difference_is_measured():
    found = last(N, D, H)
    layer = GroupedQueryAttention(AttentionConfig(D, H, H))
    x = torch.randn(1, N, D, generator=generator_for(0, "timing", N, D))
    with torch.no_grad():
        big = layer(x)
        loop = t.loop_over_heads(x, t.head_matrices(layer), layer.W_O.weight.T)
    assert found.difference == float((loop - big).abs().max()) < 1e-6
    assert found.largest == pytest.approx(float(big.abs().max()), rel=1e-5)
    assert len(found.loop) == len(found.big) <= t.ROUNDS
    assert min(found.loop + found.big) > 0
    assert found.threads == torch.get_num_threads()


def test_a_loop_that_drops_a_head_shows_as_a_difference(monkeypatch):
    right = t.loop_over_heads
    monkeypatch.setattr(t, "loop_over_heads", lambda x, heads, W_O: right(x, [heads[1], *heads[1:]], W_O))
    assert last(N, D, H).difference > 1e-3


def test_rounds_come_one_by_one_and_end_in_time():
    given = list(t.timing(N, D, H, clock=Clock(0.2)))
    assert [len(one.loop) for one in given] == list(range(1, t.LEAST_ROUNDS + 1))
    # One pass between two looks at this clock takes 0.2 s.
    assert given[-1].loop == pytest.approx([0.2] * t.LEAST_ROUNDS)
    assert len(last(N, D, H, clock=Clock(5e-4)).loop) == t.ROUNDS


def test_a_short_pass_is_timed_many_times_in_a_row_and_told_per_pass():
    clock = Clock(1e-3)
    assert t._repeats(lambda: torch.zeros(1), clock) == 2
    assert t._seconds(lambda: torch.zeros(1), 4, clock) == pytest.approx(1e-3 / 4)


def test_each_way_gets_the_time_of_its_own_passes(monkeypatch):
    clock, right, forward = Clock(0.0), t.loop_over_heads, GroupedQueryAttention.forward

    def after(seconds, run):
        def slow(*arguments):
            clock.now += seconds
            return run(*arguments)

        return slow

    monkeypatch.setattr(t, "loop_over_heads", after(0.3, right))
    monkeypatch.setattr(GroupedQueryAttention, "forward", after(0.1, forward))
    found = last(N, D, H, clock=clock)
    assert found.loop == pytest.approx([0.3] * len(found.loop))
    assert found.big == pytest.approx([0.1] * len(found.big))
    assert found.slower == len(found.loop)


def timing_of(loop, big):
    return t.Timing(tuple(loop), tuple(big), 0.0, 1.0, 9, "here", 1)


def test_the_middle_and_the_quartiles():
    spread = timing_of([5.0, 1.0, 9.0, 3.0, 7.0, 2.0, 8.0], [1.0] * 7).spread("loop")
    assert (spread.low, spread.median, spread.high) == (2.0, 5.0, 8.0)
    assert timing_of([4.0], [2.0]).spread("big") == t.Spread(2.0, 2.0, 2.0)


@pytest.mark.parametrize(("slower", "apart"), [(0, True), (2, True), (3, False), (7, False), (8, True), (10, True)])
def test_one_way_is_called_quicker_only_when_most_rounds_say_so(slower, apart):
    found = timing_of([3.0] * slower + [1.0] * (10 - slower), [2.0] * 10)
    assert found.slower == slower
    assert found.apart is apart


def test_what_is_too_large_is_refused_before_anything_is_made(monkeypatch):
    def never(*_, **__):
        raise AssertionError("allocated")

    monkeypatch.setattr(t, "GroupedQueryAttention", never)
    monkeypatch.setattr(torch, "randn", never)
    with pytest.raises(t.TooLargeError, match=r"^1,024 tokens at d_model 1,024 take 6,442 million .* 1,500 million"):
        next(t.timing(1024, 1024, 8))
    with pytest.raises(t.TooLargeError, match=r"^64 heads of 1,024 x 1,024 scores are 67 million numbers"):
        next(t.timing(1024, 64, 64))


def test_the_multiplications_are_those_of_the_products():
    count, d_k = 0, D // H
    for _ in range(H):
        count += 3 * N * D * d_k + 2 * N * N * d_k
    assert t.products(N, D) == count + N * D * D


def test_the_largest_that_is_taken_is_taken():
    t.refuse_too_large(256, 1024, 64)
    t.refuse_too_large(1024, 256, 32)


def test_nothing_of_torch_is_set():
    before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed())
    next(t.timing(N, D, H))
    assert before == (
        torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.initial_seed(),
    )  # fmt: skip
