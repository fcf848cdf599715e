"""Work: what the formula says of a product is what is counted while it runs."""

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.functional import scaled_dot_product_attention
from torch.testing import assert_close

from mha_core.work import Counted, Product, Work, work_of
from tests.core.cases import numbers

sizes = st.integers(1, 9)


@given(sizes, sizes, sizes, sizes)
def test_a_product_costs_what_the_plain_loop_counts(times, rows, inner, columns):
    flops = read = written = 0
    for _ in range(times):
        read += rows * inner + inner * columns
        for _ in range(rows):
            for _ in range(columns):
                written += 1
                for _ in range(inner):
                    flops += 2
    assert Product(times, rows, inner, columns).work(4) == Work(flops, 4 * (read + written))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
def test_every_kind_of_product_is_counted_and_changes_nothing(dtype):
    a, b, stack, other = (numbers(*shape, seed=1).to(dtype) for shape in ((3, 5), (5, 7), (2, 3, 5), (2, 5, 7)))
    layer = nn.Linear(5, 7, bias=True).to(dtype).requires_grad_(False)
    runs = {
        (1, 3): lambda: a @ b,
        (2, 3): lambda: stack @ other,
        (1, 6): lambda: layer(stack),
        (3, 3): lambda: torch.cat((stack @ other, layer(a)[None])),
    }
    for (times, rows), run in runs.items():
        plain = run()
        with Counted() as counted:
            assert_close(run(), plain)
        expected = Product(times, rows, 5, 7)
        assert counted.work == work_of([expected], dtype.itemsize)


def test_what_runs_in_another_thread_is_not_counted():
    with Counted() as counted:
        other = threading.Thread(target=lambda: torch.ones(3, 5) @ torch.ones(5, 7))
        other.start()
        other.join()
    assert counted.work == Work()


def test_a_fused_kernel_is_refused():
    q = torch.ones(1, 2, 3, 4)
    with pytest.raises(AssertionError, match="fused kernel"), Counted():
        scaled_dot_product_attention(q, q, q)
