"""Laws of what a pass leaves behind: the trace, its table of steps, and the writes of the heads."""

from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest
import torch
from hypothesis import given
from jaxtyping import TypeCheckError
from torch.testing import assert_close

from mha_core.attention import GroupedQueryAttention
from mha_core.masks import FULL
from mha_core.trace import STEPS, trace_nbytes
from tests.core.cases import DISTINCT, TOLERANCE, cases, configs, numbers

SIZES = {"b": 5, "n": 7, "h": 6, "g": 3, "d_k": 4, "d_model": 10, "h*d_k": 24}


def test_the_sizes_of_these_tests_are_all_different():
    assert len(set(SIZES.values())) == len(SIZES)
    cfg = DISTINCT.cfg
    assert (DISTINCT.b, DISTINCT.n, cfg.n_heads, cfg.n_kv_heads, cfg.head_dim, cfg.d_model) == tuple(SIZES.values())[:6]


@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.name)
def test_every_step_has_the_shape_its_axes_say(step):
    trace = DISTINCT.layer().trace(DISTINCT.x())
    assert getattr(trace, step.name).shape == tuple(SIZES[axis] for axis in step.axes)
    assert trace.array(step.name).shape == tuple(SIZES[axis] for axis in step.axes[1:])
    assert step.axes[0] == "b"
    assert step.formula


def test_steps_stand_in_the_order_in_which_they_are_computed():
    names = [step.name for step in STEPS]
    assert names == ["x", "q", "k", "v", "q_rot", "k_rot", "scores", "mask", "pattern", "z", "concat", "out"]
    for at, step in enumerate(STEPS):
        assert set(step.reads) <= set(names[:at])
        assert bool(step.reads) == (step.name not in ("x", "mask"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("name", [step.name for step in STEPS])
def test_arrays_are_read_only_and_hold_the_first_sentence(name, dtype):
    trace = DISTINCT.layer(dtype).trace(DISTINCT.x(dtype))
    array = trace.array(name)
    assert array.dtype == (np.bool_ if name == "mask" else np.float32)
    assert_close(torch.from_numpy(array.copy()), getattr(trace, name)[0].to(torch.from_numpy(array.copy()).dtype))
    with pytest.raises(ValueError, match="read-only"):
        array[0] = 1


def test_an_unknown_step_is_answered_with_the_steps_there_are():
    with pytest.raises(KeyError, match=r"no step 'attn_weights'.*scores, mask, pattern"):
        DISTINCT.layer().trace(DISTINCT.x()).array("attn_weights")


def test_a_trace_cannot_be_changed():
    trace = DISTINCT.layer().trace(DISTINCT.x())
    for step in STEPS:
        with pytest.raises(FrozenInstanceError):
            setattr(trace, step.name, trace.scores)


@given(cases())
def test_head_writes_add_up_to_out_without_its_bias(case):
    layer = case.layer()
    trace = layer.trace(case.x(), **case.arguments())
    bias = 0.0 if layer.W_O.bias is None else layer.W_O.bias.detach()
    assert_close(trace.head_writes().sum(1), trace.out - bias, atol=1e-10, rtol=1e-10)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_head_writes_add_up_in_every_number_type(dtype):
    trace = DISTINCT.layer(dtype).trace(DISTINCT.x(dtype))
    assert trace.head_writes().dtype is dtype
    assert_close(trace.head_writes().sum(1), trace.out, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype])


@given(configs(max_d_model=96))
def test_w_o_slice_of_a_head_is_what_multiplies_its_z(cfg):
    """For every head: let one head alone have a z, and the layer's W_O must write z times that head's slice."""
    layer = GroupedQueryAttention(cfg).double()
    trace = layer.trace(numbers(2, 3, cfg.d_model, seed=4))
    zero = layer.W_O(torch.zeros(cfg.n_heads * cfg.head_dim, dtype=torch.float64)).detach()
    for head in range(cfg.n_heads):
        z = numbers(cfg.head_dim, seed=head)
        concat = torch.zeros(cfg.n_heads, cfg.head_dim, dtype=torch.float64)
        concat[head] = z
        assert trace.w_o_slice(head).shape == (cfg.head_dim, cfg.d_model)
        assert_close(z @ trace.w_o_slice(head), (layer.W_O(concat.flatten()) - zero).detach(), atol=1e-12, rtol=1e-9)


def test_head_writes_are_refused_once_the_weights_have_changed():
    layer = DISTINCT.layer()
    trace = layer.trace(DISTINCT.x())
    trace.head_writes()
    with torch.no_grad():
        layer.W_O.weight.mul_(2.0)
    with pytest.raises(RuntimeError, match="weights changed"):
        trace.head_writes()
    with pytest.raises(RuntimeError, match="weights changed"):
        trace.w_o_slice(0)
    assert layer.trace(DISTINCT.x()).head_writes().isfinite().all()


def test_a_training_step_counts_as_a_change_of_weights():
    layer = DISTINCT.layer()
    trace = layer.trace(DISTINCT.x())
    layer(DISTINCT.x()).sum().backward()
    torch.optim.SGD(layer.parameters(), lr=0.1).step()
    with pytest.raises(RuntimeError, match="weights changed"):
        trace.head_writes()


@given(cases())
def test_shared_keys_and_values_are_views_that_show_each_head_its_kv_head(case):
    trace = case.layer().trace(case.x())
    cfg = case.cfg
    for shared, source in ((trace.k_shared, trace.k_rot), (trace.v_shared, trace.v)):
        assert shared.data_ptr() == source.data_ptr()
        assert shared.shape == (case.b, cfg.n_kv_heads, cfg.heads_per_kv, case.n, cfg.head_dim)
        for head in range(cfg.n_heads):
            assert shared[:, head // cfg.heads_per_kv, head % cfg.heads_per_kv].equal(source[:, cfg.kv_head_of(head)])


@given(cases(max_d_model=64))
def test_the_budget_of_a_trace_is_known_before_it_is_made(case):
    case = replace(case, b=1, padded=False)
    trace = case.layer(torch.float32).trace(case.x(torch.float32))
    budget = trace_nbytes(case.cfg, case.n)
    assert trace.nbytes <= budget
    # It counts what rotary positions copy always, and z and concat apart: with one head or token they are one.
    if case.cfg.rotary_base is not None and min(case.n, case.cfg.n_heads) > 1:
        assert trace.nbytes == budget


def test_nbytes_counts_every_storage_once():
    case = replace(DISTINCT, cfg=replace(DISTINCT.cfg, rotary_base=None, mask=FULL), b=1)
    trace = case.layer(torch.float32).trace(case.x(torch.float32))
    n, h, g, d_k, d_model = 7, 6, 3, 4, 10
    numbers_kept = 2 * n * d_model + 3 * h * n * d_k + 2 * g * n * d_k + 2 * h * n * n
    assert trace.nbytes == 4 * numbers_kept + n * n


def test_shapes_in_signatures_are_checked_under_pytest():
    layer = DISTINCT.layer()
    with pytest.raises(TypeCheckError):
        layer(DISTINCT.x(), keep=torch.ones(5, 8, dtype=torch.bool))
    with pytest.raises(TypeCheckError):
        replace(layer.trace(DISTINCT.x()), q=numbers(5, 7, 6, 4, seed=1))
