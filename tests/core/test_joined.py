"""W_Q, W_K and W_V in one product: quick where nothing was touched, and right whatever anybody did to the weights."""

import copy
import io
import pickle

import numpy as np
import pytest
import torch
from hypothesis import given
from safetensors.torch import load as load_tensors
from safetensors.torch import save as save_tensors
from torch import nn
from torch.nn.utils import parametrize
from torch.testing import assert_close

from mha_core.attention import GroupedQueryAttention
from mha_core.config import AttentionConfig
from mha_core.joined import WIDEST_IN_FLOAT32
from mha_core.masks import CAUSAL, SlidingWindow
from tests.core import oracle
from tests.core.cases import TOLERANCE, cases, numbers, sees

B, N, H, G, D_K, D_MODEL = 5, 7, 6, 3, 4, 10
NAMES = ("W_Q", "W_K", "W_V")


def layer_of(bias=True, seed=3, d_model=D_MODEL):
    cfg = AttentionConfig(d_model, H, G, D_K, bias=bias, rotary_base=100.0, mask=CAUSAL, seed=seed)
    return GroupedQueryAttention(cfg)


def products(layer, x):
    """How many products W_Q, W_K and W_V take: 1 or 3 (W_O's own is left out)."""
    with torch.profiler.profile() as profile:
        layer(x)
    return sum(event.count for event in profile.key_averages() if event.key == "aten::linear") - 1


def assert_follows_its_weights(layer, dtype=torch.float32):
    """Forward and trace give what the plain loop gives with the weights that the layer shows right now."""
    x = numbers(B, N, D_MODEL, seed=4).to(dtype)
    with torch.no_grad():
        out = layer(x)
    sizes = {"h": H, "g": G, "d_k": D_K, "rotary_base": 100.0, "sees": sees(CAUSAL)}
    steps = [oracle.attention(one.double().numpy(), oracle.weights_of(layer), **sizes) for one in x]
    for actual, name in ((out, "out"), (layer.trace(x).out, "out"), (layer.trace(x).k_rot, "k_rot")):
        expected = torch.from_numpy(np.stack([one[name] for one in steps]))
        assert_close(actual.double(), expected, atol=2 * TOLERANCE[dtype], rtol=2 * TOLERANCE[dtype])


@pytest.mark.parametrize("bias", [False, True])
def test_one_product_without_gradients_and_three_with_them(bias):
    layer, x = layer_of(bias), numbers(B, N, D_MODEL, seed=4).float()
    assert products(layer, x) == 3
    with torch.no_grad():
        assert products(layer, x) == 1
    assert products(layer.trace, x) == 1


@given(cases(max_d_model=96))
def test_one_product_gives_what_three_give(case):
    layer, x = case.layer(), case.x()
    together = layer.trace(x)
    for step, matrix in (("q", layer.W_Q), ("k", layer.W_K), ("v", layer.W_V)):
        heads = matrix(x).detach().unflatten(2, (-1, case.cfg.head_dim)).transpose(1, 2)
        assert_close(getattr(together, step), heads, atol=1e-12, rtol=1e-12)


def test_wide_matrices_stay_apart_in_float32_where_one_product_is_slower():
    layer = layer_of(d_model=2 * WIDEST_IN_FLOAT32)
    x = numbers(B, N, 2 * WIDEST_IN_FLOAT32, seed=4)
    with torch.no_grad():
        assert products(layer, x.float()) == 3
        assert products(layer.bfloat16(), x.bfloat16()) == 1


def another(name):
    return getattr(layer_of(seed=8), name)


def new_matrix(layer, name):
    setattr(layer, name, another(name))


def new_weight(layer, name):
    getattr(layer, name).weight = another(name).weight


def new_bias(layer, name):
    getattr(layer, name).bias = another(name).bias


def no_bias(layer, name):
    getattr(layer, name).bias = None


def new_data(layer, name):
    getattr(layer, name).weight.data = another(name).weight.data


def same_memory_read_another_way(layer, name):
    weight = getattr(layer, name).weight
    weight.data = weight.data.flatten().view(weight.shape[1], -1).T


def written_in_place(layer, name):
    with torch.no_grad():
        getattr(layer, name).weight.mul_(-3.0)


def written_behind_autograd(layer, name):
    getattr(layer, name).weight.data.copy_(another(name).weight.data)


def parametrized(layer, name):
    class Doubled(nn.Module):
        def forward(self, tensor):
            return 2 * tensor

    parametrize.register_parametrization(getattr(layer, name), "weight", Doubled())


def parametrized_bias(layer, name):
    class Doubled(nn.Module):
        def forward(self, tensor):
            return 2 * tensor

    parametrize.register_parametrization(getattr(layer, name), "bias", Doubled())


def loaded(layer, name):
    layer.load_state_dict(layer_of(seed=8).state_dict())


def loaded_by_assigning(layer, name):
    layer.load_state_dict(layer_of(seed=8).state_dict(), assign=True)


CHANGES = [new_matrix, new_weight, new_bias, no_bias, new_data, same_memory_read_another_way, written_in_place]
CHANGES += [written_behind_autograd, parametrized, parametrized_bias, loaded, loaded_by_assigning]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_the_output_follows_the_weights_whatever_was_done_to_them(change, name):
    layer = layer_of()
    assert_follows_its_weights(layer)
    change(layer, name)
    assert_follows_its_weights(layer)
    assert_follows_its_weights(layer.double(), torch.float64)


@pytest.mark.parametrize("name", NAMES)
def test_a_bias_only_on_one_matrix_is_not_forgotten(name):
    layer = layer_of(bias=False)
    setattr(layer, name, another(name))
    assert_follows_its_weights(layer)
    assert_follows_its_weights(layer.double(), torch.float64)


def saved_and_loaded(layer):
    file = io.BytesIO()
    torch.save(layer, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


COPIES = [copy.deepcopy, lambda layer: pickle.loads(pickle.dumps(layer)), saved_and_loaded]


@pytest.mark.parametrize("copied", COPIES, ids=["deepcopy", "pickle", "torch.save"])
def test_a_copy_is_as_quick_and_has_weights_of_its_own(copied):
    layer, x = layer_of(), numbers(B, N, D_MODEL, seed=4).float()
    twin = copied(layer)
    with torch.no_grad():
        before = layer(x)
        assert products(twin, x) == 1
        twin.W_K.weight.mul_(-3.0)
        assert layer(x).equal(before)
        assert not twin(x).equal(before)
    assert_follows_its_weights(twin)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_another_number_type_is_as_quick_and_follows_too(dtype):
    layer = layer_of().to(dtype)
    with torch.no_grad():
        assert products(layer, numbers(B, N, D_MODEL, seed=4).to(dtype)) == 1
    assert_follows_its_weights(layer, dtype)
    written_in_place(layer, "W_K")
    assert_follows_its_weights(layer, dtype)


def test_matrices_of_different_number_types_are_not_made_one():
    layer = layer_of()
    layer.W_K.double()
    layer._apply(lambda tensor: tensor)
    assert [getattr(layer, name).weight.dtype for name in NAMES] == [torch.float32, torch.float64, torch.float32]


def test_training_moves_each_matrix_and_the_quick_product_sees_it():
    layer, x = layer_of(), numbers(B, N, D_MODEL, seed=4).float()
    optimizer = torch.optim.AdamW(layer.parameters(), lr=0.1)
    before = {name: weight.clone() for name, weight in layer.state_dict().items()}
    for _ in range(2):
        optimizer.zero_grad()
        layer(x).square().sum().backward()
        optimizer.step()
    assert not any(weight.equal(before[name]) for name, weight in layer.state_dict().items())
    with torch.no_grad():
        assert products(layer, x) == 1
    assert_follows_its_weights(layer)


def test_names_and_files_show_nothing_of_the_block():
    layer = layer_of()
    state = layer.state_dict()
    assert list(state) == [f"{name}.{end}" for name in (*NAMES, "W_O") for end in ("weight", "bias")]
    assert dict(layer.named_buffers()) == {}
    read = load_tensors(save_tensors(state))
    assert all(read[name].equal(tensor) for name, tensor in state.items())


def test_functional_calls_with_other_weights_use_those():
    layer, other, x = layer_of(), layer_of(seed=8), numbers(B, N, D_MODEL, seed=4).float()
    with torch.no_grad():
        called = torch.func.functional_call(layer, dict(other.named_parameters()), (x,))
        assert_close(called, other(x))


def test_a_layer_without_numbers_still_tells_its_shapes():
    layer, x = layer_of().to("meta"), torch.empty(B, N, D_MODEL, device="meta")
    with torch.no_grad():
        assert layer(x).shape == x.shape


def test_a_mask_that_was_written_to_spoils_no_later_pass():
    layer, x = layer_of(), numbers(1, N, D_MODEL, seed=4).float()
    first = layer.trace(x)
    first.mask.fill_(True)
    assert not layer.trace(x).mask.all()


def test_a_window_seen_first_in_inference_mode_serves_training():
    cfg = AttentionConfig(D_MODEL, H, G, D_K, mask=SlidingWindow(3), seed=3)
    layer, x = GroupedQueryAttention(cfg), numbers(B, 13, D_MODEL, seed=4).float()
    with torch.inference_mode():
        layer(x)
    layer(x).sum().backward()
    assert layer.W_Q.weight.grad is not None
