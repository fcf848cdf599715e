"""Memory cells of a projection: the addresses that torch's strides give are those of a plain count, step by step."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mha_core.analysis.reshape import MATRICES, reshape_of
from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from tests.core.cases import numbers


def trace_of(n=5, h=6, g=3, d_k=4, d_model=22):
    layer = GroupedQueryAttention(AttentionConfig(d_model, h, g, d_k, seed=3))
    return layer, layer.trace(numbers(1, n, d_model, seed=7).float())


def counted(n, heads, d_k):
    """Every number of the product, counted one by one as x W writes them: token, head, place -> address."""
    places, address = {}, 0
    for t in range(n):
        for i in range(heads):
            for j in range(d_k):
                places[t, i, j] = address
                address += 1
    return places


@pytest.mark.parametrize("name", MATRICES)
def test_the_memory_holds_the_projection_as_x_w_gives_it(name):
    layer, trace = trace_of()
    found = reshape_of(trace, name)
    product = trace.x[0] @ getattr(layer, f"W_{name.upper()}").weight.T
    np.testing.assert_allclose(found.memory, product.detach().numpy().ravel(), atol=1e-6)
    assert found.sizes == (5, 6 if name == "q" else 3, 4)


@settings(max_examples=30)
@given(st.integers(1, 6), st.sampled_from([(1, 1), (3, 1), (4, 2), (6, 3), (5, 5)]), st.integers(1, 5))
def test_every_address_is_the_plain_count(n, heads_and_kv, d_k):
    h, g = heads_and_kv
    _, trace = trace_of(n, h, g, d_k, d_model=9)
    for name in MATRICES:
        found, heads = reshape_of(trace, name), h if name == "q" else g
        whole, viewed, turned, copied = found.layouts
        for (t, i, j), address in counted(n, heads, d_k).items():
            assert whole.address(0, t, i * d_k + j) == address
            assert viewed.address(0, t, i, j) == address
            assert turned.address(0, i, t, j) == address
            assert found.owner(address) == (t, i, j)
            # A value of the trace lies where the layout says, before and after the copy.
            value = trace.array(name)[i, t, j]
            assert found.memory[address] == value
            assert found.copied[copied.address(0, i, t, j)] == value
            # Without the transpose the same place in the shape means another number.
            assert found.wrong.address(0, i, t, j) == (i * n + t) * d_k + j


def test_view_and_transpose_move_nothing_and_contiguous_copies():
    _, trace = trace_of()
    whole, viewed, turned, copied = reshape_of(trace, "q").layouts
    assert [layout.copied for layout in (whole, viewed, turned, copied)] == [False, False, False, True]
    assert (whole.shape, viewed.shape, turned.shape) == ((1, 5, 24), (1, 5, 6, 4), (1, 6, 5, 4))
    assert (viewed.strides, turned.strides, copied.strides) == ((120, 24, 4, 1), (120, 4, 24, 1), (120, 20, 4, 1))


@pytest.mark.parametrize(("sizes", "name"), [({"n": 1}, "q"), ({"h": 1, "g": 1}, "q"), ({"g": 1}, "k")])
def test_with_one_head_or_one_token_there_is_nothing_to_copy(sizes, name):
    _, trace = trace_of(**sizes)
    found = reshape_of(trace, name)
    assert not found.layouts[3].copied
    np.testing.assert_array_equal(found.memory, found.copied)


def test_the_axes_of_a_shared_projection_are_those_of_its_kv_heads():
    _, trace = trace_of()
    assert reshape_of(trace, "v").layouts[2].axes == ("b", "g", "n", "d_k")
    assert reshape_of(trace, "q").layouts[2].axes == ("b", "h", "n", "d_k")
    assert reshape_of(trace, "k").layouts[1].made_by == ".view(b, n, g, d_k)"
